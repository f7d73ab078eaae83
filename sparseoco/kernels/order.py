"""The order of examples: a permutation, a fold and a gather, each a pure function of seed, epoch and row number.

Nothing is stored or depends on shards, workers or earlier draws, so any worker can compute any part of an epoch, and
every way of splitting the work gives the same stream.
"""

import numpy as np

from sparseoco.core.compile_cache import compiled, register_jitable
from sparseoco.learners.numerics import mix


def _kernel(function):
    return compiled(function, [])


ROUNDS = 6
EPOCH_STREAM = np.uint64(1)
FOLD_STREAM = np.uint64(2)
SAMPLE_STREAM = np.uint64(3)


@register_jitable
def key(seed, stream, epoch):
    """A hash of (seed, stream, epoch)."""
    return mix(mix(mix(np.uint64(seed)) ^ stream) ^ np.uint64(epoch))


@_kernel
def epoch_rows(seed, epoch, shuffled, n_rows, start, stop, fold, folds):
    """Row numbers at positions start..stop of an epoch, without those of the held-out fold. Returns int64.

    The epoch's order is a Feistel permutation of 0..n_rows−1 (balanced, `ROUNDS` rounds, walked until it falls in
    range), or document order if not `shuffled`. `fold` = −1 holds nothing out.
    """
    half = 1
    while (np.int64(1) << (2 * half)) < n_rows:
        half += 1
    shift = np.uint64(half)
    mask = np.uint64((np.int64(1) << half) - 1)
    epoch_key = key(seed, EPOCH_STREAM, epoch)
    fold_key = key(seed, FOLD_STREAM, 0)
    rows = np.empty(stop - start, np.int64)
    kept = 0
    for position in range(start, stop):
        row = np.uint64(position)
        if shuffled:
            while True:
                left = row >> shift
                right = row & mask
                for r in range(ROUNDS):
                    left, right = right, left ^ (mix(epoch_key ^ (right << np.uint64(8)) ^ np.uint64(r)) & mask)
                row = (left << shift) | right
                if row < np.uint64(n_rows):
                    break
        if fold < 0 or mix(fold_key ^ row) % np.uint64(folds) != np.uint64(fold):
            rows[kept] = np.int64(row)
            kept += 1
    return rows[:kept]


@_kernel
def fold_rows(seed, start, stop, fold, folds):
    """Row numbers in start..stop that belong to a fold, in document order. Returns int64."""
    fold_key = key(seed, FOLD_STREAM, 0)
    rows = np.empty(stop - start, np.int64)
    kept = 0
    for row in range(start, stop):
        if mix(fold_key ^ np.uint64(row)) % np.uint64(folds) == np.uint64(fold):
            rows[kept] = row
            kept += 1
    return rows[:kept]


@_kernel
def sample_rows(seed, rows, share):
    """Those of these row numbers that are in a sample of about this share of all rows. Returns int64."""
    sample_key = key(seed, SAMPLE_STREAM, 0)
    chosen = np.empty(rows.size, np.int64)
    size = 0
    for row in rows:
        if np.int64(mix(sample_key ^ np.uint64(row)) >> np.uint64(11)) * 2.0**-53 < share:
            chosen[size] = row
            size += 1
    return chosen[:size]


@_kernel
def gather(rows, indptr, indices, counts, labels):
    """These rows as a new CSR: (indptr, indices, counts, labels), with the dtypes of the arguments."""
    out_indptr = np.zeros(rows.size + 1, np.int64)
    for i in range(rows.size):
        out_indptr[i + 1] = out_indptr[i] + indptr[rows[i] + 1] - indptr[rows[i]]
    out_indices = np.empty(out_indptr[-1], indices.dtype)
    out_counts = np.empty(out_indptr[-1], counts.dtype)
    out_labels = np.empty(rows.size, labels.dtype)
    for i in range(rows.size):
        first, last = indptr[rows[i]], indptr[rows[i] + 1]
        to = out_indptr[i]
        for k in range(last - first):
            out_indices[to + k] = indices[first + k]
            out_counts[to + k] = counts[first + k]
        out_labels[i] = labels[rows[i]]
    return out_indptr, out_indices, out_counts, out_labels
