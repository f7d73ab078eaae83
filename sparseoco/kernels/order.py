"""Orders of rows, weighted rows, and runs of bytes of a file."""

import ctypes
import math
from typing import Any, NamedTuple

import numpy as np
from numba import config, types
from numpy.typing import NDArray

from sparseoco.core.compile_cache import compiled, compiled_restrict, register_jitable
from sparseoco.learners.numerics import mix

# ----------------------------------------------------------------------------------------------------------------------
# The order of examples: a permutation, a fold and a gather, each a pure function of seed, epoch and row number.
#
# Nothing is stored or depends on shards, workers or earlier draws, so any worker can compute any part of an epoch, and
# every way of splitting the work gives the same stream.


ROUNDS = 6
EPOCH_STREAM = np.uint64(1)
FOLD_STREAM = np.uint64(2)
SAMPLE_STREAM = np.uint64(3)


@register_jitable
def key(seed, stream, epoch):
    """A hash of (seed, stream, epoch)."""
    return mix(mix(mix(np.uint64(seed)) ^ stream) ^ np.uint64(epoch))


@compiled
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


def _hashes(seed: int, stream: np.uint64, numbers: NDArray[np.int64]) -> Any:
    """A hash of (seed, stream, number) for each of these row numbers."""
    with np.errstate(over="ignore"):
        return mix(key(seed, stream, 0) ^ numbers.astype(np.uint64))


def fold_rows(seed: int, start: int, stop: int, fold: int, folds: int) -> NDArray[np.int64]:
    """Row numbers in start..stop that belong to a fold, in document order. Returns int64."""
    rows = np.arange(start, stop, dtype=np.int64)
    return rows[_hashes(seed, FOLD_STREAM, rows) % np.uint64(folds) == np.uint64(fold)]


def sample_rows(seed: int, rows: NDArray[np.int64], share: float) -> NDArray[np.int64]:
    """Those of these row numbers that are in a sample of about this share of all rows. Returns int64."""
    return rows[(_hashes(seed, SAMPLE_STREAM, rows) >> np.uint64(11)).astype(np.float64) * 2.0**-53 < share]


@compiled
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


# ----------------------------------------------------------------------------------------------------------------------
# Term weights of rows: a function of each count, times the feature's idf, divided by the row's norm.


COUNT, BINARY, LOG = range(3)

LOGS = np.concatenate([[0.0], 1.0 + np.log(np.arange(1.0, 4096.0))])
"""1 + ln c of small counts c; the entry of 0 is not read."""


class RowWeighting(NamedTuple):
    """How counts c_k of features j_k become values: tf(c_k)·idf_j, divided by the ℓ2 norm of the row if `normalized`.

    Parameters
    ----------
    tf : int
        c (`COUNT`), 1 (`BINARY`) or 1 + ln c (`LOG`).
    idf : float64
        By feature; empty if there is none.
    fields : int16
        Empty, or the text field of each feature, from 1: each has its own norm, and features of 0 stay as they are.
    normalized : bool
    logs : float64
        `LOGS`: an argument, since compiled code would have a copy of it.
    """

    tf: int
    idf: NDArray[np.float64]
    fields: NDArray[np.int16]
    normalized: bool
    logs: NDArray[np.float64] = LOGS


@register_jitable
def _scale_fields(indices, counts, row, fields, normalized, scales):
    """Scale the values of a row in place: divide each field by its norm if `normalized`, restore those of field 0."""
    for field in range(scales.size):
        scales[field] = 0.0
    for k in range(indices.size):
        field = fields[indices[k]]
        if field == 0:
            row[k] = counts[k]
        scales[field] += row[k] * row[k]
    for field in range(scales.size):
        scale = normalized and field > 0 and scales[field] > 0
        scales[field] = 1.0 / math.sqrt(scales[field]) if scale else 1.0
    for k in range(indices.size):
        row[k] *= scales[fields[indices[k]]]


@register_jitable
def field_scales(weighting):
    """Space for the scale of each field."""
    last = np.int64(0)
    for field in weighting.fields:
        last = max(last, np.int64(field))
    return np.empty(1 + last, np.float64)


@register_jitable
def weigh_row(indices, counts, weighting, scales, row):
    """Write the values of a row, computed in float64, to `row`; False if the logarithm of a count is not defined."""
    tf, idf, fields, normalized, logs = weighting
    squares = 0.0
    for k in range(indices.size):
        count, value = counts[k], 1.0
        if tf == COUNT:
            value = np.float64(count)
        elif tf == LOG:
            if count > 0:
                small = count < logs.size and count == np.int64(count)
                value = logs[np.int64(count)] if small else 1.0 + math.log(count)
            elif not (fields.size and fields[indices[k]] == 0):
                return False
        if idf.size:
            value *= idf[indices[k]]
        row[k] = value
        if normalized:
            squares += value * value
    if fields.size:
        _scale_fields(indices, counts, row, fields, normalized, scales)
    elif squares > 0:
        scale = 1.0 / math.sqrt(squares)
        for k in range(indices.size):
            row[k] *= scale
    return True


@compiled_restrict
def weigh_rows(indptr, indices, counts, weighting, out):
    """Write the values of rows, computed in float64, to `out`, by a `RowWeighting`.

    Returns the first row with a count whose logarithm is not defined, or −1.
    """
    widest = 0
    for i in range(indptr.size - 1):
        widest = max(widest, indptr[i + 1] - indptr[i])
    row, scales = np.empty(widest, np.float64), field_scales(weighting)
    for i in range(indptr.size - 1):
        first, last = indptr[i] - indptr[0], indptr[i + 1] - indptr[0]
        if not weigh_row(indices[first:last], counts[first:last], weighting, scales, row):
            return i
        for k in range(last - first):
            out[first + k] = row[k]
    return -1


@register_jitable
def add_products(indices, values, places, weights, sums):
    """Add Σ_k v_k·w_{places[j_k]} over the entries (j_k, v_k) of a row to `sums`; a place of −1 has weight 0."""
    if sums.size == 1:  # in a register
        total = sums[0]
        for k in range(indices.size):
            place = places[indices[k]]
            if place >= 0:
                total += values[k] * weights[np.uint64(place), 0]
        sums[0] = total
        return
    for k in range(indices.size):
        place = places[indices[k]]
        if place >= 0:
            for c in range(sums.size):
                sums[c] += values[k] * weights[np.uint64(place), c]


@compiled_restrict
def weighted_sums(indptr, indices, values, places, weights):
    """(rows, outputs): the sums of `add_products` of each row."""
    sums = np.zeros((indptr.size - 1, weights.shape[1]))
    for i in range(indptr.size - 1):
        row = slice(indptr[i], indptr[i + 1])
        add_products(indices[row], values[row], places, weights, sums[i])
    return sums


# ----------------------------------------------------------------------------------------------------------------------
# Read many runs of bytes of a file in one call, without mapping it.
#
# Mapped pages count as memory of the worker and may be read ahead in 2 MB pieces; copies by `pread` do not.


if config.DISABLE_JIT:
    pread = ctypes.CDLL(None).pread
    pread.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64)
    pread.restype = ctypes.c_ssize_t
else:
    pread = types.ExternalFunction("pread", types.int64(types.int32, types.voidptr, types.uint64, types.int64))


@compiled
def read_runs(descriptor, offsets, sizes, out):
    """Copy sizes[i] bytes from offsets[i] of an open file, run after run, into `out` (uint8); returns success.

    descriptor int32; offsets, sizes (runs,) int64
    """
    at = 0
    for i in range(offsets.size):
        done = 0
        while done < sizes[i]:
            got = pread(descriptor, out[at + done :].ctypes, np.uint64(sizes[i] - done), offsets[i] + done)
            if got <= 0:
                return False
            done += got
        at += sizes[i]
    return True
