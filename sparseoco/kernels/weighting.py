"""Term weights of rows: a function of each count, times the feature's idf, divided by the row's norm."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.compile_cache import compiled, register_jitable

COUNT, BINARY, LOG = range(3)

LOGS = np.concatenate([[0.0], 1.0 + np.log(np.arange(1.0, 4096.0))])
"""1 + ln c of small counts c; the entry of 0 is not read."""


def _kernel(function):
    return compiled(function, [], restrict=True)


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


@register_jitable
def field_scales(weighting):
    """Space for the scale of each field."""
    return np.empty(1 + (np.int64(weighting.fields.max()) if weighting.fields.size else 0), np.float64)


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


@_kernel
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


@_kernel
def weighted_sums(indptr, indices, values, places, weights):
    """(rows, outputs): the sums of `add_products` of each row."""
    sums = np.zeros((indptr.size - 1, weights.shape[1]))
    for i in range(indptr.size - 1):
        row = slice(indptr[i], indptr[i + 1])
        add_products(indices[row], values[row], places, weights, sums[i])
    return sums
