"""Term weights of rows: a function of each count, times the feature's idf, divided by the row's norm."""

import math

import numpy as np
from numba.extending import register_jitable

from sparseoco.core.compile_cache import compiled

COUNT, BINARY, LOG = range(3)

LOGS = np.concatenate([[0.0], 1.0 + np.log(np.arange(1.0, 4096.0))])
"""1 + ln c of small counts c; the entry of 0 is not read."""


def _kernel(function):
    return compiled(function, [], ("kernels/weighting.py",), restrict=True)


@register_jitable
def _scale_fields(indices, counts, row, fields, normalized, scales):
    """Scale the values of a row in place: divide each field by its norm if `normalized`, restore those of field 0."""
    scales[:] = 0.0
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


@_kernel
def weigh_rows(indptr, indices, counts, tf, logs, idf, fields, normalized, out):
    """out_k = tf(c_k)·idf_j, divided by the ℓ2 norm of its row if `normalized`; computed in float64.

    `fields` is empty, or the text field of each feature, from 1; each has its own norm, and features of 0 stay as they
    are. `tf` is c (`COUNT`), 1 (`BINARY`) or 1 + ln c (`LOG`); `logs` is `LOGS`, `idf` is empty if there is none.
    Returns the first row with a count whose logarithm is not defined, or −1.
    """
    widest = 0
    for i in range(indptr.size - 1):
        widest = max(widest, indptr[i + 1] - indptr[i])
    row = np.empty(widest, np.float64)
    scales = np.empty(1 + (np.int64(fields.max()) if fields.size else 0), np.float64)
    for i in range(indptr.size - 1):
        first = indptr[i] - indptr[0]
        size = indptr[i + 1] - indptr[i]
        if tf == COUNT:
            for k in range(size):
                row[k] = counts[first + k]
        elif tf == BINARY:
            for k in range(size):
                row[k] = 1.0
        else:
            for k in range(size):
                count = counts[first + k]
                if not count > 0:
                    if fields.size and fields[indices[first + k]] == 0:
                        continue
                    return i
                if count < logs.size and count == np.int64(count):
                    row[k] = logs[np.int64(count)]
                else:
                    row[k] = 1.0 + math.log(count)
        if idf.size:
            for k in range(size):
                row[k] *= idf[indices[first + k]]
        if fields.size:
            _scale_fields(indices[first : first + size], counts[first : first + size], row, fields, normalized, scales)
        scale = 1.0
        if normalized and not fields.size:
            squares = 0.0
            for k in range(size):
                squares += row[k] * row[k]
            if squares > 0:
                scale = 1.0 / math.sqrt(squares)
        for k in range(size):
            out[first + k] = row[k] * scale
    return -1


@_kernel
def weighted_sums(indptr, indices, values, places, weights):
    """(rows, outputs): Σ_k v_k·w_{places[j_k]} over the entries (j_k, v_k) of each row; a place of −1 has weight 0."""
    sums = np.zeros((indptr.size - 1, weights.shape[1]))
    for i in range(indptr.size - 1):
        for k in range(indptr[i], indptr[i + 1]):
            place = places[indices[k]]
            if place >= 0:
                for c in range(weights.shape[1]):
                    sums[i, c] += values[k] * weights[place, c]
    return sums
