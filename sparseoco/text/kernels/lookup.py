"""The features of a vocabulary in rows of tokens."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.compile_cache import compiled, register_jitable
from sparseoco.text.kernels.ngrams import HALF, LOW, ONE, ZERO, prefetch
from sparseoco.text.kernels.preprocess import BUCKETS, SHORT, insertion_sort, radix_sort
from sparseoco.text.kernels.tokenize import mix

# ----------------------------------------------------------------------------------------------------------------------
# The n-grams of documents that a vocabulary has, and their counts.


class NgramTables(NamedTuple):
    """The n-grams of a vocabulary, numbered over all levels concatenated, for lookups.

    Parameters
    ----------
    firsts : (levels + 1,) int64
        The number of the first n-gram of each level.
    ids : int32
        The feature of each n-gram, or −1 if it is only a prefix.
    keys : uint64
        Those of the levels from the second on, as `Vocabulary.keys`.
    slots : uint32
        Hash tables of these levels, as `key_tables`.
    slot_firsts : (levels,) int64
        Where the tables begin, and the end of the last.
    """

    firsts: NDArray[np.int64]
    ids: NDArray[np.int32]
    keys: NDArray[np.uint64]
    slots: NDArray[np.uint32]
    slot_firsts: NDArray[np.int64]


class NgramRange(NamedTuple):
    """The lengths of the n-grams that are counted: `shortest` to `longest`; below `min_n` only those that are a run."""

    shortest: int
    min_n: int
    longest: int


class _Scratch(NamedTuple):
    """Space for a row: of its tokens, and of its features."""

    prefixes: Any
    wanted: Any
    slots: Any
    places: Any
    features: Any
    other: Any
    counts: Any
    starts: Any


@compiled
def key_tables(keys, firsts):
    """(tables, their first slots) of the levels keys[firsts[l] : firsts[l + 1]], each of distinct keys.

    Tables are uint32, with open addressing: position in the level + 1 and bits of the hash above; 0 is free.
    """
    slot_firsts = np.zeros(firsts.size, np.int64)
    for level in range(firsts.size - 1):
        capacity = 16
        while capacity < 2 * (firsts[level + 1] - firsts[level]):
            capacity *= 2
        slot_firsts[level + 1] = slot_firsts[level] + capacity
    slots = np.zeros(slot_firsts[-1], np.uint32)
    for level in range(firsts.size - 1):
        table = slots[slot_firsts[level] : slot_firsts[level + 1]]
        mask = np.uint64(table.size - 1)
        for i in range(firsts[level + 1] - firsts[level]):
            h = mix(keys[firsts[level] + i])
            slot = (h >> HALF) & mask
            while table[slot] != 0:
                slot = (slot + ONE) & mask
            table[slot] = np.uint32((h & LOW & ~mask) | np.uint64(i + 1))
    return slots, slot_firsts


@register_jitable
def _find_longer(tokens, n, keys, table, ids, counted, scratch, size):
    """Find the n-grams of the tokens of a run among those of a level; returns the number of features of the row.

    scratch.prefixes   int32 by position in the run: in, the number in its level of the n-gram of n − 1 tokens that
                       begins there; out, that of the n-gram of n tokens; −1 for those that are not found

    In three passes, each of which prefetches what the next one reads.
    """
    prefixes, wanted, slots, places = scratch.prefixes, scratch.wanted, scratch.slots, scratch.places
    mask = np.uint64(table.size - 1)
    m = ZERO
    for i in range(tokens.size - n + 1):
        prefix, last = prefixes[i], tokens[i + n - 1]
        prefixes[i] = -1
        key = (np.uint64(np.uint32(prefix)) << HALF) | np.uint64(np.uint32(last))
        h = mix(key)
        wanted[m], slots[m], places[m] = key, h, i
        prefetch(table, np.int64((h >> HALF) & mask))
        m += np.uint64((prefix | last) >= 0)
    found = ZERO
    for k in range(m):
        h = slots[k]
        tag = h & LOW & ~mask
        slot = (h >> HALF) & mask
        entry = np.uint64(table[slot])
        while entry != ZERO and entry & ~mask != tag:
            slot = (slot + ONE) & mask
            entry = np.uint64(table[slot])
        prefetch(keys, np.int64(entry & mask) - 1)
        prefetch(ids, np.int64(entry & mask) - 1)
        wanted[found], slots[found], places[found] = wanted[k], (tag << HALF) | slot, places[k]
        found += np.uint64(entry != ZERO)
    for k in range(found):
        tag, slot = slots[k] >> HALF, slots[k] & mask
        while True:
            entry = np.uint64(table[slot])
            if entry == ZERO:
                break
            number = (entry & mask) - ONE
            if entry & ~mask == tag and keys[number] == wanted[k]:
                prefixes[places[k]] = np.int32(number)
                feature = ids[number]
                scratch.features[size] = np.uint32(feature)
                size += counted & np.uint64(feature >= 0)
                break
            slot = (slot + ONE) & mask
    return size


@register_jitable
def _find_row(tokens, runs, first, last, ngrams, tables, scratch):
    """Write the features of the row of runs `first` to `last` to scratch.features, as often as they occur."""
    size = ZERO
    for r in range(first, last):
        own = tokens[runs[r] : runs[r + 1]]
        for n in range(1, min(ngrams.longest, own.size) + 1):
            counted = np.uint64(n >= ngrams.shortest and (n >= ngrams.min_n or n == own.size))
            begin, end = tables.firsts[n - 1], tables.firsts[n]
            ids = tables.ids[begin:end]
            if n > 1:
                keys = tables.keys[begin - tables.firsts[1] : end - tables.firsts[1]]
                table = tables.slots[tables.slot_firsts[n - 2] : tables.slot_firsts[n - 1]]
                size = _find_longer(own, n, keys, table, ids, counted, scratch, size)
                continue
            for i in range(own.size):
                token = own[i]
                scratch.prefixes[i] = token
                feature = ids[token] if token >= 0 else np.int32(-1)
                scratch.features[size] = np.uint32(feature)
                size += counted & np.uint64(feature >= 0)
    return np.int64(size)


@register_jitable
def _count_features(size, bits, scratch):
    """The distinct features of a row of `size` in scratch.features, which increase, and their counts."""
    features, other, ends = scratch.features, scratch.other, scratch.counts
    if size <= SHORT:
        insertion_sort(features, size)
    else:
        features, other = radix_sort(features, other, size, ZERO, bits, scratch.starts)
    n, previous = ZERO, ~features[0]
    for k in range(size):
        feature = features[k]
        n += np.uint64(feature != previous)
        features[n - ONE], ends[n - ONE] = feature, k + 1
        previous = feature
    distinct = np.int64(n)
    for k in range(distinct - 1, 0, -1):
        ends[k] -= ends[k - 1]
    return features[:distinct], ends[:distinct]


@register_jitable
def _scratch_space(runs, row_runs, ngrams):
    """Space for the longest row."""
    longest = 0
    for d in range(row_runs.size - 1):
        longest = max(longest, runs[row_runs[d + 1]] - runs[row_runs[d]])
    longest += 1  # a feature is written before it is known whether it counts
    size = max(1, ngrams.longest - ngrams.shortest + 1) * longest
    return _Scratch(
        np.empty(longest, np.int32),
        np.empty(longest, np.uint64),
        np.empty(longest, np.uint64),
        np.empty(longest, np.uint64),
        np.empty(size, np.uint32),
        np.empty(size, np.uint32),
        np.empty(size, np.uint32),
        np.empty(BUCKETS, np.uint32),
    )


@register_jitable
def _id_bits(n_features):
    """The bits of the ids of features."""
    bits = ZERO
    while n_features - 1 >> np.int64(bits) > 0:
        bits += ONE
    return bits


@compiled
def count_found(tokens, runs, row_runs, ngrams, tables, n_features):
    """The rows of found n-grams in CSR format: (indptr int64, features int32, counts uint32), features increase.

    tokens     int32 by position, −1 for unknown ones
    runs       (runs + 1,) int64, positions in tokens, which n-grams do not leave
    row_runs   (rows + 1,): document d is runs row_runs[d] to row_runs[d + 1]
    ngrams     the `NgramRange`, whose longest n-grams are not longer than those of the `NgramTables`
    """
    scratch, bits = _scratch_space(runs, row_runs, ngrams), _id_bits(n_features)
    rows = row_runs.size - 1
    indptr = np.zeros(rows + 1, np.int64)
    most = max(0, ngrams.longest - ngrams.shortest + 1) * tokens.size
    features, counts = np.empty(most, np.int32), np.empty(most, np.uint32)
    for d in range(rows):
        size = _find_row(tokens, runs, row_runs[d], row_runs[d + 1], ngrams, tables, scratch)
        own, own_counts = _count_features(size, bits, scratch)
        begin = indptr[d]
        for k in range(own.size):
            features[begin + k], counts[begin + k] = own[k], own_counts[k]
        indptr[d + 1] = begin + own.size
    return indptr, features[: indptr[rows]], counts[: indptr[rows]]
