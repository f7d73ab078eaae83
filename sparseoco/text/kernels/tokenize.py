"""Runs of words or characters of a text as tokens."""

import numpy as np

from sparseoco.core.compile_cache import compiled, register_jitable
from sparseoco.text.kernels.ngrams import HALF, ONE, ZERO, load8, nonzero64, ones, prefetch, trailing_zeros
from sparseoco.text.kernels.preprocess import decode, previous

# ----------------------------------------------------------------------------------------------------------------------
# Tokens beyond runs of word characters: inner joiners.


@compiled
def keep_joiners(data, starts, stops, joiners, neighbours, clean, bounds):
    """Copy each joiner between two characters of a word that may be its neighbours to `clean`, in place.

    `joiners` and `neighbours` are bool, by code point; the others are the arguments of `preprocess` and what it
    returned.
    """
    for d in range(starts.size):
        source = data[starts[d] : stops[d]]
        target = clean[bounds[d] : bounds[d + 1]]
        for i in range(1, source.size):
            if target[i - 1] == 0 or target[i] != 0:
                continue  # this is not the first byte after a word
            point, size = decode(source, i)
            if (
                joiners[point]
                and target[i + size] != 0
                and neighbours[decode(source, previous(source, i))[0]]
                and neighbours[decode(source, i + size)[0]]
            ):
                for k in range(i, i + size):
                    target[k] = source[k]


# ----------------------------------------------------------------------------------------------------------------------
# From preprocessed documents to numbers of tokens.


ODD_1 = np.uint64(0x9E3779B97F4A7C15)
ODD_2 = np.uint64(0xC2B2AE3D27D4EB4F)
ALL = ~np.uint64(0)
TWO, B56, B62, B63 = np.uint64(2), np.uint64(56), np.uint64(62), np.uint64(63)
N_CODE_POINTS = 0x110000


@register_jitable
def mix(word):
    """A bijection of 64 bits whose high bits depend on all of them."""
    word = word * ODD_1
    word ^= word >> HALF
    return word * ODD_2


@register_jitable
def _enlarged(array, size):
    larger = np.empty(size, array.dtype)
    for k in range(array.size):
        larger[k] = array[k]
    return larger


@register_jitable
def _write_bits(bits, base, positions, n):
    """Write base + i for each bit i of a word to positions[n:], in order; returns n + the number of bits.

    Eight at a time: a branch for each could not be predicted.
    """
    end = n + np.int64(ones(bits))
    while n < end:
        for k in range(8):
            positions[n + k] = base + np.int64(trailing_zeros(bits))
            bits &= bits - ONE
        n += 8
    return end


@register_jitable
def _find_words(clean, start, end, singles, begins, ends):
    """Write the bounds of the words of clean[start:end], which ends with a zero; returns their number.

    64 bytes at a time, as bits that say which bytes are not zero. Words of one byte are left out, unless `singles`.
    """
    n = n_ends = 0
    before = np.uint64(0)  # whether the last two bytes were not zero: bits 63 and 62
    for base in range(start, end, 64):
        inside = nonzero64(clean, base)
        following = np.uint64(clean[base + 64] != 0)
        if end - base < 65:
            inside &= ALL >> np.uint64(64 - (end - base))
            following = ZERO
        previous = (inside << ONE) | (before >> B63)
        starts, stops = inside & ~previous, previous & ~inside
        if not singles:
            starts &= (inside >> ONE) | (following << B63)
            stops &= (inside << TWO) | (before >> B62)
        before = inside
        n = _write_bits(starts, base, begins, n)
        n_ends = _write_bits(stops, base, ends, n_ends)
    return n


@register_jitable
def _leading(clean, begin, size):
    """The first `size` bytes, at most eight, of clean[begin:]; zero-padded."""
    half = np.uint64(4 * max(0, min(8, 8 - size)))
    return load8(clean, begin) & (ALL >> half >> half)


@register_jitable
def _is_character(clean, begin, size):
    """Whether this word is a single character of several bytes."""
    first = clean[begin]
    return size == (2 if first < 0xE0 else (3 if first < 0xF0 else 4))


@register_jitable
def _hash_words(clean, begins, ends, n, singles, seed, table, words):
    """Write (first 8 bytes, next 8 bytes, hash) of words to `words`, three uint64 each; returns their number.

    Words of a single character are left out, unless `singles`. The slots of the table are prefetched.
    """
    mask = np.uint64(table.size - 1)
    m = 0
    for i in range(n):
        begin, end = begins[i], ends[i]
        size = end - begin
        if clean[begin] >= 0xC0 and not singles and _is_character(clean, begin, size):
            continue
        first, second = _leading(clean, begin, size), _leading(clean, begin + 8, size - 8)
        h = mix(mix(seed ^ first) ^ second)
        if size > 16:
            for k in range(16, size, 8):
                h = mix(h ^ _leading(clean, begin + k, size - k))
        h ^= h >> HALF
        prefetch(table, np.int64(h & mask))
        words[3 * m], words[3 * m + 1], words[3 * m + 2] = first, second, h
        begins[m], ends[m] = begin, end
        m += 1
    return m


@register_jitable
def _token_table(hashes, n, capacity):
    table = np.zeros(capacity, np.uint32)
    mask = np.uint64(capacity - 1)
    for i in range(n):
        slot = hashes[i] & mask
        while table[slot] != 0:
            slot = (slot + ONE) & mask
        table[slot] = np.uint32(((hashes[i] >> HALF) & ~mask) | np.uint64(i + 1))
    return table


@register_jitable
def _is_equal(clean, begin, size, token, offsets, arena):
    """Whether a word of 16 bytes or more is this token, which has the same 16 bytes."""
    offset = offsets[token]
    same = offsets[token + 1] - offset == size
    k = 16
    while same and k < size:
        same = arena[offset + k] == clean[begin + k]
        k += 1
    return same


@register_jitable
def _number_words(clean, begins, ends, words, n, table, hashes, heads, offsets, arena, n_tokens, tokens):
    """Write the numbers of words to `tokens`; returns n_tokens.

    table    uint32, open addressing: number + 1, and bits of the hash above those that a number may have; 0 is free
    heads    the first 16 bytes of each token, zero-padded, which decide most comparisons
    """
    mask = np.uint64(table.size - 1)
    for i in range(n):
        first, second, h = words[3 * i], words[3 * i + 1], words[3 * i + 2]
        tag = (h >> HALF) & ~mask
        slot = h & mask
        while True:
            entry = np.uint64(table[slot])
            if entry == ZERO:
                token = np.uint64(n_tokens)
                n_tokens += 1
                table[slot] = np.uint32(tag | np.uint64(n_tokens))
                hashes[token] = h
                heads[TWO * token], heads[TWO * token + ONE] = first, second
                begin, size, offset = begins[i], ends[i] - begins[i], offsets[token]
                for k in range(size):
                    arena[offset + k] = clean[begin + k]
                offsets[n_tokens] = offset + size
                break
            if entry & ~mask == tag:
                token = (entry & mask) - ONE
                if (
                    heads[TWO * token] == first
                    and heads[TWO * token + ONE] == second
                    and (
                        second >> B56 == ZERO or _is_equal(clean, begins[i], ends[i] - begins[i], token, offsets, arena)
                    )
                ):
                    break
            slot = (slot + ONE) & mask
        tokens[i] = np.int32(token)
    return n_tokens


@compiled
def tokenize_words(clean, bounds, singles, seed):
    """Number the words of documents in order of first appearance, which does not depend on `seed`.

    clean     uint8 with 64 zero bytes of slack; document d is clean[bounds[d] : bounds[d + 1]] and ends with a zero
    singles   A word is a maximal run of nonzero bytes, of at least two characters, or one if `singles`

    Returns tokens int32, runs (rows + 1,) int64: the tokens of document d are tokens[runs[d] : runs[d + 1]]; the bytes
    and offsets of the distinct tokens.
    """
    rows = bounds.size - 1
    shortest = 1 if singles else 2
    n_tokens = 0
    limit = 1 << 14
    hashes, heads = np.empty(limit, np.uint64), np.empty(2 * limit, np.uint64)
    offsets = np.zeros(limit + 1, np.int64)
    table = _token_table(hashes, 0, 2 * limit)
    arena = np.empty(1 << 18, np.uint8)
    begins, ends = np.empty(1 << 12, np.int64), np.empty(1 << 12, np.int64)
    words = np.empty(3 << 12, np.uint64)
    tokens = np.empty((clean.size + rows) // (shortest + 1) + 1, np.int32)
    runs = np.zeros(rows + 1, np.int64)
    for d in range(rows):
        size = bounds[d + 1] - bounds[d]
        possible = size // 2 + 8
        if possible > begins.size:
            begins, ends = np.empty(2 * possible, np.int64), np.empty(2 * possible, np.int64)
            words = np.empty(6 * possible, np.uint64)
        n = _find_words(clean, bounds[d], bounds[d + 1], singles, begins, ends)
        # Enlarged between documents, never inside one: the compiler keeps pointers in registers.
        while n_tokens + n > limit:
            limit *= 2
            hashes, heads = _enlarged(hashes, limit), _enlarged(heads, 2 * limit)
            offsets = _enlarged(offsets, limit + 1)
            table = _token_table(hashes, n_tokens, 2 * limit)
        while offsets[n_tokens] + size > arena.size:
            arena = _enlarged(arena, 2 * arena.size)
        n = _hash_words(clean, begins, ends, n, singles, seed, table, words)
        runs[d + 1] = runs[d] + n
        n_tokens = _number_words(
            clean, begins, ends, words, n, table, hashes, heads, offsets, arena, n_tokens, tokens[runs[d] : runs[d + 1]]
        )
    return tokens[: runs[rows]], runs, arena[: offsets[n_tokens]], offsets[: n_tokens + 1]


@compiled
def tokenize_characters(clean, bounds, within_words):
    """Number the characters of documents in order of first appearance.

    clean          as of `tokenize_words`
    within_words   Documents are words between single spaces, and a run is a word with the spaces around it, so that
                   the tokens have a space between two words twice; otherwise a run is a document

    Returns tokens int32; runs (runs + 1,) int64, positions in tokens; row_runs (rows + 1,) int64, the runs of each
    document; the bytes and offsets of the distinct tokens.
    """
    rows = bounds.size - 1
    n_tokens, m, n_runs = 0, 0, 0
    numbers = np.zeros(N_CODE_POINTS, np.int32)  # number + 1 of each code point
    first = np.empty(N_CODE_POINTS, np.int64)  # where each token appears first
    n_spaces = 0
    if within_words:
        for byte in clean:
            n_spaces += byte == 32
    tokens = np.empty(clean.size + n_spaces, np.int32)
    runs = np.empty(rows + n_spaces + 1, np.int64)
    runs[0] = 0
    row_runs = np.zeros(rows + 1, np.int64)
    for d in range(rows):
        start, i = bounds[d], bounds[d]
        end = bounds[d + 1] - 1
        while i < end:
            point, size = decode(clean, i)
            if numbers[point] == 0:
                first[n_tokens] = i
                n_tokens += 1
                numbers[point] = n_tokens
            tokens[m] = numbers[point] - 1
            m += 1
            if within_words and point == 32 and start < i < end - 1:
                n_runs += 1
                runs[n_runs] = m
                tokens[m] = numbers[point] - 1
                m += 1
            i += size
        if m > runs[n_runs] or not within_words:
            n_runs += 1
            runs[n_runs] = m
        row_runs[d + 1] = n_runs
    offsets, arena = np.zeros(n_tokens + 1, np.int64), np.empty(4 * n_tokens, np.uint8)
    for token in range(n_tokens):
        size = decode(clean, first[token])[1]
        offsets[token + 1] = offsets[token] + size
        for k in range(size):
            arena[offsets[token] + k] = clean[first[token] + k]
    return tokens[:m], runs[: n_runs + 1], row_runs, arena[: offsets[n_tokens]], offsets
