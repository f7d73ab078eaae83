"""The weighted sums of the hashed n-grams of documents. An n-gram is a span of the tokens of its run, joined."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.compile_cache import compiled, register_jitable
from sparseoco.kernels.weighting import add_products, field_scales, weigh_row
from sparseoco.text.kernels.hashing import xxh64
from sparseoco.text.kernels.intrinsics import ONE, ZERO, load8, prefetch, store8
from sparseoco.text.kernels.lookup import count_features, id_bits, scratch_space


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


sum_hashed = compiled(_sum_hashed, [])
