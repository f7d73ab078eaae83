"""Counting the n-grams of a run of documents.

Tables grow between documents, never inside one: the loops over bytes and tokens then hold no reference that could
change, which is what lets the compiler keep their pointers in registers.
"""

import numpy as np
from numba.extending import register_jitable

from sparseoco.text.kernels import kernel
from sparseoco.text.kernels.intrinsics import load8, prefetch, trailing_zeros

ONES = np.uint64(0x0101010101010101)
HIGHS = np.uint64(0x8080808080808080)
LOW_BYTE = np.uint64(0xFF)
LOW_HALF = np.uint64(0xFFFFFFFF)
ODD_1 = np.uint64(0x9E3779B97F4A7C15)
ODD_2 = np.uint64(0xC2B2AE3D27D4EB4F)
B3, B7, B32 = np.uint64(3), np.uint64(7), np.uint64(32)
ZERO, ONE = np.uint64(0), np.uint64(1)
# Columns of a gram's state, side by side so that one cache line serves a count.
DOCUMENT, SLOT, COUNT, DOCUMENTS = 0, 1, 2, 3


@register_jitable
def _mix(word):
    """A bijection of 64 bits whose high bits depend on all of them."""
    word = word * ODD_1
    word ^= word >> B32
    return word * ODD_2


@register_jitable
def _tokenise(clean, start, end, seed, table, hashes, heads, offsets, arena, n_tokens, tokens):
    """Number the tokens of clean[start:end] (which ends at a zero) into `tokens`; gives (how many, n_tokens).

    table    uint64, open addressing: high half of the hash, then number + 1; 0 is free
    heads    the first eight bytes of each token, zero-padded; with the length they settle most comparisons
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
            if size == 1:
                continue
            first = clean[begin]
            if first >= 0xC0 and size == (2 if first < 0xE0 else (3 if first < 0xF0 else 4)):
                continue
        h = _mix(h ^ word)
        h ^= h >> B32
        tag = h >> B32
        slot = h & mask
        token = -1
        while token < 0:
            entry = table[slot]
            if entry == ZERO:
                token = n_tokens
                table[slot] = (tag << B32) | np.uint64(token + 1)
                hashes[token] = h
                heads[token] = head
                offset = offsets[token]
                for k in range(size):
                    arena[offset + k] = clean[begin + k]
                offsets[token + 1] = offset + size
                n_tokens += 1
            elif entry >> B32 == tag:
                t = np.int64(entry & LOW_HALF) - 1
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
def _extend(current, tokens, n, span, table, shift, keys, state, n_grams):
    """Lengthen the gram at each place, current[i], by the token n − 1 further on; gives n_grams.

    table    uint64 pairs (key, number + 1), open addressing; (·, 0) is free
    """
    mask = np.uint64((table.size >> 1) - 1)
    for i in range(span):
        key = (np.uint64(current[i]) << B32) | np.uint64(tokens[i + n - 1])
        prefetch(table, np.int64(_mix(key) >> shift) << 1)
    for i in range(span):
        key = (np.uint64(current[i]) << B32) | np.uint64(tokens[i + n - 1])
        slot = _mix(key) >> shift
        while True:
            at = np.int64(slot) << 1
            entry = np.int64(table[at + 1])
            if entry == 0:
                keys[n_grams] = key
                _start(state, n_grams)
                n_grams += 1
                table[at] = key
                table[at + 1] = np.uint64(n_grams)
                current[i] = n_grams - 1
                break
            if table[at] == key:
                current[i] = entry - 1
                prefetch(state, (entry - 1) << 2)
                break
            slot = (slot + ONE) & mask
    return n_grams


@register_jitable
def _start(state, gram):
    at = 4 * gram
    state[at + DOCUMENT] = -1
    state[at + COUNT] = 0
    state[at + DOCUMENTS] = 0


@register_jitable
def _tally(current, span, document, state, grams, counts, nonzeros):
    """Count the grams of one level of a document: the first of a kind appends, later ones increment. Gives nonzeros."""
    for i in range(span):
        gram = np.int64(current[i])
        at = gram << 2
        state[at + COUNT] += 1
        if state[at + DOCUMENT] == document:
            counts[state[at + SLOT]] += np.uint32(1)
        else:
            state[at + DOCUMENT] = document
            state[at + SLOT] = nonzeros
            state[at + DOCUMENTS] += 1
            grams[nonzeros] = gram
            counts[nonzeros] = 1
            nonzeros += 1
    return nonzeros


@register_jitable
def _grown(array, size):
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
        table[slot] = (hashes[i] >> B32 << B32) | np.uint64(i + 1)
    return table


@register_jitable
def _shift(capacity):
    """How far to the right a hash is shifted to be a place in a table of `capacity` (a power of two)."""
    shift = np.uint64(64)
    while capacity > 1:
        shift -= ONE
        capacity >>= 1
    return shift


@register_jitable
def _gram_table(keys, lengths, n, capacity, shift):
    """The table of the grams of two tokens and more."""
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
def count_grams(clean, bounds, min_n, max_n, seed, table, keys, lengths, state, grams, counts):
    """Count the n-grams, min_n ≤ n ≤ max_n, of documents given as word bytes between zeros.

    clean   uint8 with 16 zero bytes of slack; document d is clean[bounds[d] : bounds[d + 1]] and ends with a zero
    A token is a maximal run of word bytes of at least two characters. A gram of one token has the token's number as
    its key; a gram of n tokens has (number of the gram of the first n − 1) · 2^32 + (number of the last token), so no
    two share a key. Numbers go by first appearance and do not depend on `seed`.

    Returns indptr int64, grams int32, counts uint32 (CSR, grams of a document in order of first appearance); of each
    gram keys uint64, lengths int8 and state int32, whose columns 2 and 3 are its count and documents; of the tokens
    their bytes and offsets.
    """
    rows = bounds.size - 1
    n_tokens, n_grams, nonzeros = 0, 0, 0
    token_limit = 1 << 14
    hashes, heads = np.empty(token_limit, np.uint64), np.empty(token_limit, np.uint64)
    offsets = np.zeros(token_limit + 1, np.int64)
    gram_of_token = np.empty(token_limit, np.int32)
    token_table = _token_table(hashes, 0, 2 * token_limit)
    arena = np.empty(1 << 18, np.uint8)

    capacity = table.size >> 1
    limit = keys.size
    shift = _shift(capacity)

    indptr = np.zeros(rows + 1, np.int64)
    tokens, current = np.empty(1 << 12, np.int32), np.empty(1 << 12, np.int32)

    for d in range(rows):
        size = bounds[d + 1] - bounds[d]
        possible = size // 3 + 1
        while n_tokens + possible > token_limit:
            token_limit *= 2
            hashes, heads = _grown(hashes, token_limit), _grown(heads, token_limit)
            offsets, gram_of_token = _grown(offsets, token_limit + 1), _grown(gram_of_token, token_limit)
            token_table = _token_table(hashes, n_tokens, 2 * token_limit)
        while offsets[n_tokens] + size > arena.size:
            arena = _grown(arena, 2 * arena.size)
        while possible > tokens.size:
            tokens, current = np.empty(2 * tokens.size, np.int32), np.empty(2 * tokens.size, np.int32)
        before = n_tokens
        m, n_tokens = _tokenise(
            clean, bounds[d], bounds[d + 1] - 1, seed, token_table, hashes, heads, offsets, arena, n_tokens, tokens
        )
        while n_grams + m * max_n > limit:
            limit *= 2
            keys, lengths = _grown(keys, limit), _grown(lengths, limit)
            state = _grown(state, 4 * limit)
        if 5 * (n_grams + m * (max_n - 1)) > 4 * capacity and max_n > 1:
            while 5 * (n_grams + m * (max_n - 1)) > 3 * capacity:
                capacity *= 2
            shift = _shift(capacity)
            table = _gram_table(keys, lengths, n_grams, capacity, shift)
        while nonzeros + m * (max_n - min_n + 1) > grams.size:
            grams, counts = _grown(grams, 2 * grams.size), _grown(counts, 2 * counts.size)

        for token in range(before, n_tokens):
            keys[n_grams] = np.uint64(token)
            lengths[n_grams] = 1
            _start(state, n_grams)
            gram_of_token[token] = n_grams
            n_grams += 1
        for i in range(m):
            current[i] = gram_of_token[tokens[i]]
        if min_n == 1:
            nonzeros = _tally(current, m, d, state, grams, counts, nonzeros)
        for n in range(2, max_n + 1):
            known = n_grams
            n_grams = _extend(current, tokens, n, m - n + 1, table, shift, keys, state, n_grams)
            lengths[known:n_grams] = n
            if n >= min_n:
                nonzeros = _tally(current, m - n + 1, d, state, grams, counts, nonzeros)
        indptr[d + 1] = nonzeros

    return (
        indptr,
        grams[:nonzeros],
        counts[:nonzeros],
        keys[:n_grams],
        lengths[:n_grams],
        state[: 4 * n_grams].reshape(n_grams, 4),
        arena[: offsets[n_tokens]],
        offsets[: n_tokens + 1],
    )
