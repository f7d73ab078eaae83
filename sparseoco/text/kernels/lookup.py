"""Features of a row of tokens, of a vocabulary or hashed."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.compile_cache import compiled, register_jitable
from sparseoco.kernels.order import add_products, field_scales, weigh_row
from sparseoco.text.kernels.ngrams import HALF, LOW, ONE, ZERO, load8, prefetch, store8, xxh64
from sparseoco.text.kernels.preprocess import BUCKETS, SHORT, insertion_sort, radix_sort
from sparseoco.text.kernels.tokenize import mix

# ----------------------------------------------------------------------------------------------------------------------
# The n-grams of documents that a vocabulary has: their counts, or their weighted sums.


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
def count_features(size, bits, scratch):
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
def scratch_space(runs, row_runs, ngrams, dtype):
    """Space for the longest row, with features of this type."""
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
        np.empty(size, dtype),
        np.empty(size, dtype),
        np.empty(size, np.uint32),
        np.empty(BUCKETS, np.uint32),
    )


@register_jitable
def id_bits(n_features):
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
    scratch, bits = scratch_space(runs, row_runs, ngrams, np.uint32), id_bits(n_features)
    rows = row_runs.size - 1
    indptr = np.zeros(rows + 1, np.int64)
    most = max(0, ngrams.longest - ngrams.shortest + 1) * tokens.size
    features, counts = np.empty(most, np.int32), np.empty(most, np.uint32)
    for d in range(rows):
        size = _find_row(tokens, runs, row_runs[d], row_runs[d + 1], ngrams, tables, scratch)
        own, own_counts = count_features(size, bits, scratch)
        begin = indptr[d]
        for k in range(own.size):
            features[begin + k], counts[begin + k] = own[k], own_counts[k]
        indptr[d + 1] = begin + own.size
    return indptr, features[: indptr[rows]], counts[: indptr[rows]]


def _sum_found(tokens, runs, row_runs, ngrams, tables, n_features, weighting, places, weights):
    """(rows, outputs): the weighted sums of found n-grams, as `weighted_sums` of the values of `weigh_rows`.

    The first arguments are those of `count_found`; `weighting` is a `RowWeighting`; `places` and `weights` are those
    of `weighted_sums`. Rows of counts or values are never stored.
    """
    scratch, bits = scratch_space(runs, row_runs, ngrams, np.uint32), id_bits(n_features)
    values = np.empty(scratch.features.size, np.float64)
    scales = field_scales(weighting)
    sums = np.zeros((row_runs.size - 1, weights.shape[1]))
    for d in range(row_runs.size - 1):
        size = _find_row(tokens, runs, row_runs[d], row_runs[d + 1], ngrams, tables, scratch)
        features, counts = count_features(size, bits, scratch)
        weigh_row(features, counts, weighting, scales, values)
        add_products(features, values, places, weights, sums[d])
    return sums


sum_found = compiled(_sum_found)


# ----------------------------------------------------------------------------------------------------------------------
# The weighted sums of the hashed n-grams of documents. An n-gram is a span of the tokens of its run, joined.


class HashTable(NamedTuple):
    """Hashes that have a place.

    Parameters
    ----------
    ids : (places + 1,) uint64
        The hash of each place, increasing, and a number above all hashes.
    firsts : (buckets + 1,) int32
        The first place of the hashes of each bucket, which begin with the same bits.
    shift : uint64
        The other bits.
    bits, seed : uint64
        Of XXH64.
    counts_others : bool
        Whether every other hash counts, too, each as a feature of its own, all of the last place.
    """

    ids: NDArray[np.uint64]
    firsts: NDArray[np.int32]
    shift: np.uint64
    bits: np.uint64
    seed: np.uint64
    counts_others: bool


@register_jitable
def _join_tokens(tokens, data, offsets, space, joined, begins):
    """Join tokens, with `space` spaces, in `joined`; token i and what follows begins at begins[i].

    Eight bytes at a time: bytes beyond the end of a token are overwritten by the next one.
    """
    at = 0
    for i in range(tokens.size):
        begins[i] = at
        first, end = offsets[tokens[i]], offsets[tokens[i] + 1]
        for k in range(0, end - first, 8):
            store8(joined, at + k, load8(data, first + k))
        at += end - first
        joined[at] = 32
        at += space
    begins[tokens.size] = at


@register_jitable
def _hash_row(tokens, runs, first, last, ngrams, data, offsets, space, table, joined, begins, hashes):
    """Write the hashes of the n-grams of runs `first` to `last`; returns their number."""
    mask = (ONE << table.bits) - ONE
    size = ZERO
    for r in range(first, last):
        own = tokens[runs[r] : runs[r + 1]]
        _join_tokens(own, data, offsets, space, joined, begins)
        for n in range(ngrams.shortest, min(ngrams.longest, own.size) + 1):
            if n >= ngrams.min_n or n == own.size:
                for i in range(own.size - n + 1):
                    hashes[size] = xxh64(joined, begins[i], begins[i + n] - space, table.seed) & mask
                    size += ONE
    return np.int64(size)


@register_jitable
def _find_places(hashes, table, starts):
    """Replace hashes by their places, in order, without those that do not count; returns how many are left.

    In three passes, each of which prefetches what the next one reads.
    """
    for hashed in hashes:
        prefetch(table.firsts, np.int64(hashed >> table.shift))
    for k in range(hashes.size):
        starts[k] = table.firsts[hashes[k] >> table.shift]
        prefetch(table.ids, starts[k])
    size, others = ZERO, np.uint64(table.ids.size - 1)
    for k in range(hashes.size):
        hashed, place = hashes[k], np.uint64(starts[k])
        for _ in range(2):  # few buckets have more: no branch that could not be predicted
            place += np.uint64(table.ids[place] < hashed)
        while table.ids[place] < hashed:
            place += ONE
        found = table.ids[place] == hashed
        hashes[size] = place if found else others
        size += np.uint64(found | table.counts_others)
    return np.int64(size)


@register_jitable
def _longest_run(tokens, runs, offsets):
    """The bytes of the tokens of the longest run, with a space after each."""
    longest = 0
    for r in range(runs.size - 1):
        size = 0
        for token in tokens[runs[r] : runs[r + 1]]:
            size += offsets[token + 1] - offsets[token] + 1
        longest = max(longest, size)
    return longest


def _sum_hashed(tokens, runs, row_runs, ngrams, data, offsets, space, table, weighting, places, weights):
    """(rows, outputs): the weighted sums of hashed n-grams, as `weighted_sums` of the values of `weigh_rows`.

    tokens          int32 by position; token t is data[offsets[t] : offsets[t + 1]], with eight bytes of slack
    runs, row_runs  as of `count_found`
    ngrams          a `NgramRange`
    space           0 or 1, the spaces between tokens
    table           a `HashTable`; `weighting`, a `RowWeighting`, and `places` have an entry for each of its places
    """
    scratch = scratch_space(runs, row_runs, ngrams, np.uint64)
    joined = np.empty(_longest_run(tokens, runs, offsets) + 8, np.uint8)
    begins = np.empty(scratch.prefixes.size, np.int64)
    starts, values = np.empty(scratch.features.size, np.int64), np.empty(scratch.features.size, np.float64)
    scales = field_scales(weighting)
    sums = np.zeros((row_runs.size - 1, weights.shape[1]))
    for d in range(row_runs.size - 1):
        features, first, last = scratch.features, row_runs[d], row_runs[d + 1]
        size = _hash_row(tokens, runs, first, last, ngrams, data, offsets, space, table, joined, begins, features)
        if table.counts_others:  # each hash on its own
            features, counts = count_features(size, table.bits, scratch)
            _find_places(features, table, starts)
        else:
            size = _find_places(features[:size], table, starts)
            features, counts = count_features(size, id_bits(table.ids.size), scratch)
        weigh_row(features, counts, weighting, scales, values)
        add_products(features, values, places, weights, sums[d])
    return sums


sum_hashed = compiled(_sum_hashed)
