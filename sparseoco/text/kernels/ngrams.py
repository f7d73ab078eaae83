"""Counting the n-grams of the documents of a split.

Hash tables grow between documents, never inside one: the loops over bytes and tokens then hold no array reference that
can change, and the compiler keeps the pointers in registers.
"""

import numpy as np
from numba.extending import register_jitable

from sparseoco.text.kernels import kernel
from sparseoco.text.kernels.characters import decode
from sparseoco.text.kernels.intrinsics import B3, HIGHS, ONE, ONES, ZERO, load8, prefetch, trailing_zeros
from sparseoco.text.kernels.keys import HALF, LOW

LOW_BYTE = np.uint64(0xFF)
ODD_1 = np.uint64(0x9E3779B97F4A7C15)
ODD_2 = np.uint64(0xC2B2AE3D27D4EB4F)
B7 = np.uint64(7)
# Columns of the state of an n-gram, in one cache line: the last document and its entry there, total count, documents.
DOCUMENT, ENTRY, COUNT, DOCUMENTS = 0, 1, 2, 3
# What tokens are: words of two characters and more, of one and more, characters, characters within words.
WORDS, SHORT_WORDS, CHARACTERS, WORD_CHARACTERS = 0, 1, 2, 3
N_CODE_POINTS = 0x110000


@register_jitable
def _mix(word):
    """A bijection of 64 bits whose high bits depend on all of them."""
    word = word * ODD_1
    word ^= word >> HALF
    return word * ODD_2


@register_jitable
def _tokenize(clean, start, end, singles, seed, table, hashes, heads, offsets, arena, n_tokens, tokens):
    """Write the numbers of the tokens of clean[start:end], which ends with a zero, to `tokens`; (count, n_tokens).

    singles  whether a single character is a token
    table    uint64, open addressing: high half of the hash, then number + 1; 0 is free
    heads    the first eight bytes of each token, zero-padded; with the length they decide most comparisons
    """
    mask = np.uint64(table.size - 1)
    m = 0
    i = start
    while i < end:
        word = load8(clean, i)
        if word & LOW_BYTE == ZERO:
            i += np.int64(trailing_zeros(word) >> B3)
            continue
        begin = i
        head = word
        zeros = (word - ONES) & ~word & HIGHS
        h = seed
        while zeros == ZERO:
            h = _mix(h ^ word)
            i += 8
            word = load8(clean, i)
            zeros = (word - ONES) & ~word & HIGHS
        low = zeros & (~zeros + ONE)
        word &= (low >> B7) - ONE
        i += np.int64(trailing_zeros(low) >> B3)
        size = i - begin
        i += 1
        if size < 8:
            head = word
            if size == 1 and not singles:
                continue
            first = clean[begin]
            if not singles and first >= 0xC0 and size == (2 if first < 0xE0 else (3 if first < 0xF0 else 4)):
                continue
        h = _mix(h ^ word)
        h ^= h >> HALF
        tag = h >> HALF
        slot = h & mask
        token = -1
        while token < 0:
            entry = table[slot]
            if entry == ZERO:
                token = n_tokens
                table[slot] = (tag << HALF) | np.uint64(token + 1)
                hashes[token] = h
                heads[token] = head
                offset = offsets[token]
                for k in range(size):
                    arena[offset + k] = clean[begin + k]
                offsets[token + 1] = offset + size
                n_tokens += 1
            elif entry >> HALF == tag:
                t = np.int64(entry & LOW) - 1
                if heads[t] == head and offsets[t + 1] - offsets[t] == size:
                    token = int(t)
                    for k in range(8, size):
                        if arena[offsets[t] + k] != clean[begin + k]:
                            token = -1
                            break
            slot = (slot + ONE) & mask
        tokens[m] = token
        m += 1
    return m, n_tokens


@register_jitable
def _tokenize_characters(clean, start, end, points, offsets, arena, n_tokens, tokens):
    """Write the numbers of the characters of clean[start:end] to `tokens`; (count, n_tokens).

    points   int32: the number of each code point + 1, or 0
    """
    m = 0
    i = start
    while i < end:
        point, size = decode(clean, i)
        if points[point] == 0:
            at = offsets[n_tokens]
            for k in range(size):
                arena[at + k] = clean[i + k]
            n_tokens += 1
            offsets[n_tokens] = at + size
            points[point] = n_tokens
        tokens[m] = points[point] - 1
        m += 1
        i += size
    return m, n_tokens


@register_jitable
def _word_end(tokens, begin, space):
    """The end of the word that begins with the space tokens[begin], with the space after it."""
    end = begin + 1
    while tokens[end] != space:
        end += 1
    return end + 1


@register_jitable
def _extend_ngrams(current, tokens, n, span, table, shift, keys, state, n_ngrams):
    """Extend the n-gram at each position, current[i], by the token n − 1 positions later; returns n_ngrams.

    table    uint64 pairs (key, number + 1), open addressing; (·, 0) is free
    """
    mask = np.uint64((table.size >> 1) - 1)
    for i in range(span):
        key = (np.uint64(current[i]) << HALF) | np.uint64(tokens[i + n - 1])
        prefetch(table, np.int64(_mix(key) >> shift) << 1)
    for i in range(span):
        key = (np.uint64(current[i]) << HALF) | np.uint64(tokens[i + n - 1])
        slot = _mix(key) >> shift
        while True:
            at = np.int64(slot) << 1
            entry = np.int64(table[at + 1])
            if entry == 0:
                keys[n_ngrams] = key
                _init_state(state, n_ngrams)
                n_ngrams += 1
                table[at] = key
                table[at + 1] = np.uint64(n_ngrams)
                current[i] = n_ngrams - 1
                break
            if table[at] == key:
                current[i] = entry - 1
                prefetch(state, (entry - 1) << 2)
                break
            slot = (slot + ONE) & mask
    return n_ngrams


@register_jitable
def _init_state(state, ngram):
    at = 4 * ngram
    state[at + DOCUMENT] = -1
    state[at + COUNT] = 0
    state[at + DOCUMENTS] = 0


@register_jitable
def _count_level(current, span, document, state, ngrams, counts, nonzeros):
    """Count the n-grams of one length of a document: a new one appends an entry. Returns the number of entries."""
    for i in range(span):
        ngram = np.int64(current[i])
        at = ngram << 2
        state[at + COUNT] += 1
        if state[at + DOCUMENT] == document:
            counts[state[at + ENTRY]] += np.uint32(1)
        else:
            state[at + DOCUMENT] = document
            state[at + ENTRY] = nonzeros
            state[at + DOCUMENTS] += 1
            ngrams[nonzeros] = ngram
            counts[nonzeros] = 1
            nonzeros += 1
    return nonzeros


@register_jitable
def _enlarged(array, size):
    larger = np.empty(size, array.dtype)
    larger[: array.size] = array
    return larger


@register_jitable
def _token_table(hashes, n, capacity):
    table = np.zeros(capacity, np.uint64)
    mask = np.uint64(capacity - 1)
    for i in range(n):
        slot = hashes[i] & mask
        while table[slot] != ZERO:
            slot = (slot + ONE) & mask
        table[slot] = (hashes[i] >> HALF << HALF) | np.uint64(i + 1)
    return table


@register_jitable
def _shift(capacity):
    """64 − log2(capacity): shifts a hash to a slot of a table whose capacity is a power of two."""
    shift = np.uint64(64)
    while capacity > 1:
        shift -= ONE
        capacity >>= 1
    return shift


@register_jitable
def _ngram_table(keys, lengths, n, capacity, shift):
    """The hash table of the n-grams of two tokens and more."""
    table = np.zeros(2 * capacity, np.uint64)
    mask = np.uint64(capacity - 1)
    for i in range(n):
        if lengths[i] == 1:
            continue
        slot = _mix(keys[i]) >> shift
        while table[2 * slot + ONE] != ZERO:
            slot = (slot + ONE) & mask
        table[2 * slot] = keys[i]
        table[2 * slot + ONE] = np.uint64(i + 1)
    return table


@kernel
def count_ngrams(clean, bounds, unit, min_n, max_n, seed, table, keys, lengths, state, ngrams, counts):
    """Count the n-grams, min_n ≤ n ≤ max_n, of documents whose words are separated by zeros.

    clean   uint8 with 16 zero bytes of slack; document d is clean[bounds[d] : bounds[d + 1]] and ends with a zero
    unit    A token is a maximal run of nonzero bytes, of at least two characters (WORDS) or one (SHORT_WORDS), or a
            character (CHARACTERS). WORD_CHARACTERS: documents are words between single spaces; n-grams have characters
            of one word and the spaces around it, and a word of fewer characters than min_n is counted as a whole.
    The key of a unigram is the number of its token;
    the key of a longer n-gram is (number of the n-gram of its first n − 1 tokens) · 2^32 + (number of its last token).
    Numbers are given in order of first appearance and do not depend on `seed`. The hash table, keys, lengths, state,
    ngrams and counts are work space, enlarged as needed.

    Returns indptr int64, ngrams int32, counts uint32 (CSR, n-grams of a document in order of first appearance); for
    each n-gram keys uint64, lengths int8 and state int32, whose columns 2 and 3 are its count and documents; the bytes
    and offsets of the tokens.
    """
    rows = bounds.size - 1
    n_tokens, n_ngrams, nonzeros = 0, 0, 0
    token_limit = 1 << 14
    hashes, heads = np.empty(token_limit, np.uint64), np.empty(token_limit, np.uint64)
    offsets = np.zeros(token_limit + 1, np.int64)
    token_ngram = np.empty(token_limit, np.int32)
    token_table = _token_table(hashes, 0, 2 * token_limit)
    arena = np.empty(1 << 18, np.uint8)

    capacity = table.size >> 1
    limit = keys.size
    shift = _shift(capacity)

    indptr = np.zeros(rows + 1, np.int64)
    tokens, current = np.empty(1 << 12, np.int32), np.empty(1 << 12, np.int32)
    characters, within_words = unit >= CHARACTERS, unit == WORD_CHARACTERS
    points = np.zeros(N_CODE_POINTS if characters else 1, np.int32)

    for d in range(rows):
        size = bounds[d + 1] - bounds[d]
        possible = size if characters else size // (2 if unit == SHORT_WORDS else 3) + 1
        while n_tokens + (min(possible, N_CODE_POINTS) if characters else possible) > token_limit:
            token_limit *= 2
            hashes, heads = _enlarged(hashes, token_limit), _enlarged(heads, token_limit)
            offsets, token_ngram = _enlarged(offsets, token_limit + 1), _enlarged(token_ngram, token_limit)
            token_table = _token_table(hashes, n_tokens, 2 * token_limit)
        while offsets[n_tokens] + size > arena.size:
            arena = _enlarged(arena, 2 * arena.size)
        while possible > tokens.size:
            tokens, current = np.empty(2 * tokens.size, np.int32), np.empty(2 * tokens.size, np.int32)
        before = n_tokens
        start, stop = bounds[d], bounds[d + 1] - 1
        if characters:
            m, n_tokens = _tokenize_characters(clean, start, stop, points, offsets, arena, n_tokens, tokens)
        else:
            m, n_tokens = _tokenize(
                clean, start, stop, unit == SHORT_WORDS, seed, token_table, hashes, heads, offsets, arena, n_tokens,
                tokens,
            )  # fmt: skip
        while n_ngrams + m * max_n > limit:
            limit *= 2
            keys, lengths = _enlarged(keys, limit), _enlarged(lengths, limit)
            state = _enlarged(state, 4 * limit)
        if 5 * (n_ngrams + m * (max_n - 1)) > 4 * capacity and max_n > 1:
            while 5 * (n_ngrams + m * (max_n - 1)) > 3 * capacity:
                capacity *= 2
            shift = _shift(capacity)
            table = _ngram_table(keys, lengths, n_ngrams, capacity, shift)
        while nonzeros + m * (max_n - min_n + 1) > ngrams.size:
            ngrams, counts = _enlarged(ngrams, 2 * ngrams.size), _enlarged(counts, 2 * counts.size)

        for token in range(before, n_tokens):
            keys[n_ngrams] = np.uint64(token)
            lengths[n_ngrams] = 1
            _init_state(state, n_ngrams)
            token_ngram[token] = n_ngrams
            n_ngrams += 1
        begin = 0
        while begin < m:
            end = _word_end(tokens, begin, points[32] - 1) if within_words else m
            run, words = current[begin:end], tokens[begin:end]
            for i in range(run.size):
                run[i] = token_ngram[words[i]]
            if min_n == 1:
                nonzeros = _count_level(run, run.size, d, state, ngrams, counts, nonzeros)
            for n in range(2, min(max_n, run.size) + 1):
                known = n_ngrams
                n_ngrams = _extend_ngrams(run, words, n, run.size - n + 1, table, shift, keys, state, n_ngrams)
                lengths[known:n_ngrams] = n
                if n >= min_n or (within_words and n == run.size):
                    nonzeros = _count_level(run, run.size - n + 1, d, state, ngrams, counts, nonzeros)
            begin = end - 1 if within_words and end < m else m
        indptr[d + 1] = nonzeros

    return (
        indptr,
        ngrams[:nonzeros],
        counts[:nonzeros],
        keys[:n_ngrams],
        lengths[:n_ngrams],
        state[: 4 * n_ngrams].reshape(n_ngrams, 4),
        arena[: offsets[n_tokens]],
        offsets[: n_tokens + 1],
    )
