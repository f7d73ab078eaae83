"""Counting n-grams: hashes, keys, sorting."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from sparseoco.core.compile_cache import compiled, register_jitable

# ----------------------------------------------------------------------------------------------------------------------
# Machine instructions that numba does not offer, and constants for loops over eight bytes at a time.


ZERO, ONE, B3 = np.uint64(0), np.uint64(1), np.uint64(3)


def _address(context, builder, signature, arguments):
    """The address of an element of an array; the first two arguments are the array and the index."""
    array_type, index_type, *_ = signature.args
    struct = context.make_array(array_type)(context, builder, arguments[0])
    index = context.cast(builder, arguments[1], index_type, types.intp)
    return cgutils.get_item_pointer(context, builder, array_type, struct, [index], wraparound=False, boundscheck=False)


@intrinsic
def load8(typing, data, index):
    """The 8 bytes of a uint8 array from `index` on as a little-endian uint64; the caller provides 8 bytes of slack."""

    def code(context, builder, signature, arguments):
        pointer = _address(context, builder, signature, arguments)
        word = builder.load(builder.bitcast(pointer, ir.IntType(64).as_pointer()))
        word.align = 1
        return word

    return types.uint64(data, index), code


@intrinsic
def nonzero64(typing, data, index):
    """Bit k of the uint64: whether data[index + k] is not zero; the caller provides 64 bytes of slack."""

    def code(context, builder, signature, arguments):
        pointer = _address(context, builder, signature, arguments)
        vector = ir.VectorType(ir.IntType(8), 64)
        loaded = builder.load(builder.bitcast(pointer, vector.as_pointer()))
        loaded.align = 1
        return builder.bitcast(builder.icmp_unsigned("!=", loaded, ir.Constant(vector, None)), ir.IntType(64))

    return types.uint64(data, index), code


@intrinsic
def store8(typing, data, index, word):
    """Write a uint64 as 8 little-endian bytes of a uint8 array from `index` on; the array has space for them."""

    def code(context, builder, signature, arguments):
        pointer = _address(context, builder, signature, arguments)
        stored = builder.store(arguments[2], builder.bitcast(pointer, ir.IntType(64).as_pointer()))
        stored.align = 1
        return context.get_dummy_value()

    return types.void(data, index, types.uint64), code


@intrinsic
def prefetch(typing, array, index):
    """Prefetch the cache line of element `index` of a one-dimensional array."""

    def code(context, builder, signature, arguments):
        pointer = _address(context, builder, signature, arguments)
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        declared = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, declared, "llvm.prefetch.p0i8")
        read, keep, data = (ir.Constant(number, value) for value in (0, 3, 1))
        builder.call(function, [builder.bitcast(pointer, byte), read, keep, data])
        return context.get_dummy_value()

    return types.void(array, index), code


@intrinsic
def trailing_zeros(typing, word):
    """Number of zero bits below the lowest set bit of a uint64 (64 for zero)."""

    def code(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), code


@intrinsic
def ones(typing, word):
    """Number of one bits of a uint64."""

    def code(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), code


# ----------------------------------------------------------------------------------------------------------------------
# Keys of n-grams: 64-bit numbers of two halves, the n-gram of all tokens but the last, and the last token.


HALF = np.uint64(32)
LOW = np.uint64(0xFFFFFFFF)


def pack_keys(high: NDArray[Any], low: NDArray[Any]) -> NDArray[np.uint64]:
    """high · 2^32 + low."""
    return (high.astype(np.uint64) << HALF) | low.astype(np.uint64, copy=False)


def unpack_keys(keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(high, low) of packed keys."""
    return (keys >> HALF).astype(np.int64), (keys & LOW).astype(np.int64)


@compiled
def map_keys(keys, first, high_map, low_map):
    """(high_map[high − first], low_map[low]) of each key, packed."""
    result = np.empty(keys.size, np.uint64)
    for i in range(keys.size):
        high = high_map[np.int64(keys[i] >> HALF) - first]
        result[i] = (np.uint64(high) << HALF) | np.uint64(low_map[np.int64(keys[i] & LOW)])
    return result


@compiled
def merge_pair(left, right):
    """(the sorted union of two arrays that strictly increase, the int32 positions of left in it, those of right).

    Without branches on keys: the position of a key is overwritten until the key is taken.
    """
    union = np.empty(left.size + right.size, np.uint64)
    left_positions, right_positions = np.empty(left.size, np.int32), np.empty(right.size, np.int32)
    i, j, size = 0, 0, 0
    while i < left.size and j < right.size:
        a, b = left[i], right[j]
        union[size] = min(a, b)
        left_positions[i] = size
        right_positions[j] = size
        i += a <= b
        j += b <= a
        size += 1
    for k in range(i, left.size):
        union[size] = left[k]
        left_positions[k] = size
        size += 1
    for k in range(j, right.size):
        union[size] = right[k]
        right_positions[k] = size
        size += 1
    return union[:size], left_positions, right_positions


@compiled
def compose(outer, inner):
    """outer[inner]."""
    result = np.empty(inner.size, outer.dtype)
    for i in range(inner.size):
        result[i] = outer[inner[i]]
    return result


@compiled
def add_at(totals, positions, values):
    """totals[positions] += values."""
    for i in range(positions.size):
        totals[positions[i]] += values[i]


# ----------------------------------------------------------------------------------------------------------------------
# XXH64 (Yann Collet, xxHash specification 0.1.1, section "XXH64 algorithm"), for hashed features and equal ids.


P1, P2, P3 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9)
BYTE = np.uint64(0xFF)
P4, P5 = np.uint64(0x85EBCA77C2B2AE63), np.uint64(0x27D4EB2F165667C5)


@register_jitable
def _left(word, bits):
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


@register_jitable
def _round(lane, word):
    return _left(lane + word * P2, 31) * P1


@register_jitable
def xxh64(data, start, stop, seed):
    """64-bit hash of data[start:stop]; the array has eight bytes of slack after `stop`."""
    at = start
    if stop - start >= 32:
        a, b, c, d = seed + P1 + P2, seed + P2, seed, seed - P1
        while at + 32 <= stop:
            a = _round(a, load8(data, at))
            b = _round(b, load8(data, at + 8))
            c = _round(c, load8(data, at + 16))
            d = _round(d, load8(data, at + 24))
            at += 32
        h = _left(a, 1) + _left(b, 7) + _left(c, 12) + _left(d, 18)
        h = (h ^ _round(np.uint64(0), a)) * P1 + P4
        h = (h ^ _round(np.uint64(0), b)) * P1 + P4
        h = (h ^ _round(np.uint64(0), c)) * P1 + P4
        h = (h ^ _round(np.uint64(0), d)) * P1 + P4
    else:
        h = seed + P5
    h += np.uint64(stop - start)
    while at + 8 <= stop:
        h = _left(h ^ _round(np.uint64(0), load8(data, at)), 27) * P1 + P4
        at += 8
    # Without branches on what is left: they could not be predicted.
    word, left = load8(data, at), stop - at
    step = _left(h ^ ((word & LOW) * P1), 23) * P2 + P3
    h = step if left >= 4 else h
    word = word >> HALF if left >= 4 else word
    for k in range(3):
        step = _left(h ^ ((word & BYTE) * P5), 11) * P1
        h = step if (left & 3) > k else h
        word >>= np.uint64(8)
    h = (h ^ (h >> np.uint64(33))) * P2
    h = (h ^ (h >> np.uint64(29))) * P3
    return h ^ (h >> np.uint64(32))


@compiled
def hash_terms(data, offsets, seed, bits):
    """(terms,) int64: the low `bits` bits of XXH64 of each term; data has eight bytes of slack."""
    result = np.empty(offsets.size - 1, np.int64)
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    for i in range(result.size):
        result[i] = np.int64(xxh64(data, offsets[i], offsets[i + 1], seed) & mask)
    return result


# ----------------------------------------------------------------------------------------------------------------------
# The n-grams of the documents of a split: numbered by sorting their keys, then counted row by row.
#
# Tokens are numbered alphabetically, so the n-grams of each length are, too. A run is a sequence of tokens that
#     n-grams
# do not leave: a document, or a word of one. Sorting beats a hash table, which would be larger than the caches.


BLOCK_BITS = 16


@compiled
def pack_ngrams(prefixes, tokens, runs, n, levels, low, high, token_bits, position_bits, packed):
    """Write (prefix − low, next tokens, position) for each prefix in [low, high), one word each; returns their number.

    prefixes, tokens   int32 by position: number of the n-gram of n − 1 tokens that begins there; number of the token
    runs               (runs + 1,) positions; packed uint64, with space for all positions
    levels             tokens after a prefix, at least one of its run; each is its number + 1, or 0 beyond the run
    """
    top, ahead = token_bits * np.uint64(levels - 1), np.uint64(n - 1)
    m = 0
    for r in range(runs.size - 1):
        following = np.uint64(0)
        for i in range(runs[r + 1] - n, runs[r] - 1, -1):
            at = np.uint64(i)
            following = (np.uint64(tokens[at + ahead] + 1) << top) | (following >> token_bits)
            prefix = prefixes[at]
            if low <= prefix < high:
                key = (np.uint64(prefix - low) << (top + token_bits)) | following
                packed[m] = (key << position_bits) | at
                m += 1
    return m


@compiled
def distinct_keys(packed, base, position_bits, first, pairs, ends):
    """Number the distinct keys of sorted words of `pack_ngrams` from `first` on; returns their number.

    packed  the words; base + key of each distinct key is written over the first of them
    pairs   uint64: position · 2^32 + number, by blocks of 2^BLOCK_BITS positions, each of which occurs once
    ends    int64, by block: the end of its pairs so far
    """
    position = (ONE << position_bits) - ONE
    last = ~np.uint64(0)
    k = -1
    for word in packed:
        key = word >> position_bits
        k += key != last
        last = key
        packed[k] = base + key
        at = word & position
        block = at >> np.uint64(BLOCK_BITS)
        pairs[np.uint64(ends[block])] = (at << HALF) | np.uint64(first + k)
        ends[block] += 1
    return k + 1


@compiled
def number_level(sequences, shift, token_bits, numbers):
    """Number the n-grams that distinct sorted sequences of tokens begin with; returns their keys uint64.

    sequences   uint64: prefix and following tokens, of which all but the last `shift` bits are those of the n-gram
    numbers     int32, by sequence: of the n-gram without its last token; becomes that of the n-gram, if there is one
    """
    keys = np.empty(sequences.size, np.uint64)
    token_mask = (ONE << token_bits) - ONE
    last = ~np.uint64(0)
    k = -1
    for i in range(sequences.size):
        ngram = sequences[i] >> shift
        token = ngram & token_mask
        if token != ZERO:
            if ngram != last:
                k += 1
                keys[k] = (np.uint64(numbers[i]) << HALF) | (token - ONE)
                last = ngram
            numbers[i] = k
    return keys[: k + 1]


@compiled
def write_numbers(pairs, ends, sequence_numbers, numbers):
    """Write sequence_numbers[number] to its position of `numbers`, for pairs of `distinct_keys`.

    Block by block, so that the positions fit the caches; the numbers of a block ascend.
    """
    for block in range(ends.size):
        for pair in pairs[block << BLOCK_BITS : ends[block]]:
            numbers[pair >> HALF] = sequence_numbers[pair & LOW]


@compiled
def count_ngrams(numbers, shortest, firsts, runs, row_runs, min_n, n_ngrams):
    """Count n-grams, one entry for each that a document contains.

    numbers    (levels, positions) int32: number, in its level, of the n-gram of n = shortest + level tokens
    firsts     (levels,) int64: number of the first n-gram of each level
    runs       (runs + 1,) positions; row_runs (rows + 1,): the runs of each document
    min_n      n-grams of fewer tokens are counted if they are a whole run

    Returns indptr int64, ngrams int32, counts uint32 (CSR, the n-grams of a document by n and in order of first
    appearance).
    """
    rows = row_runs.size - 1
    levels, positions = numbers.shape
    last = np.full(n_ngrams, -1, np.int32)  # the last entry of each n-gram
    indptr = np.zeros(rows + 1, np.int64)
    ngrams, counts = np.empty(levels * positions + 1, np.int32), np.empty(levels * positions + 1, np.uint32)
    nonzeros = np.int32(0)
    for d in range(rows):
        begin = nonzeros
        for level in range(levels):
            n = shortest + level
            own = numbers[level]
            for r in range(row_runs[d], row_runs[d + 1]):
                if n < min_n and runs[r + 1] - runs[r] != n:
                    continue
                for i in range(runs[r], runs[r + 1] - n + 1):
                    # No branch on whether the document has the n-gram already: it could not be predicted.
                    ngram = np.uint64(firsts[level] + own[i])
                    new = last[ngram] < begin
                    entry = np.uint64(nonzeros if new else last[ngram])
                    ngrams[entry] = np.int32(ngram)
                    counts[entry] = np.uint32(1) if new else counts[entry] + np.uint32(1)
                    last[ngram] = np.int32(entry)
                    nonzeros += np.int32(new)
        indptr[d + 1] = nonzeros
    return indptr, ngrams[:nonzeros], counts[:nonzeros]


@compiled
def sum_entries(ngrams, counts, n_ngrams):
    """(n_ngrams, 2) int32: the total count of each n-gram, and its documents."""
    sums = np.zeros(n_ngrams, np.uint64)  # both in one word
    for k in range(ngrams.size):
        sums[np.uint64(ngrams[k])] += (ONE << HALF) | np.uint64(counts[k])
    return sums.view(np.int32).reshape(n_ngrams, 2)
