"""Loops over data stored by columns (`offline.column_major.ColumnMajor`): their merge, and what cao-rcd draws by."""

import math

from sparseoco.core.compile_cache import compiled
from sparseoco.learners.numerics import cube_root


def _kernel(function):
    return compiled(function, [], restrict=True)


@_kernel
def append_entries(features, sizes, piece_rows, piece_counts, ends, rows, counts):
    """Append entries, sorted by feature, to those of each feature, which end at ``ends[i]``; `ends` is updated."""
    at = 0
    for f in range(features.shape[0]):
        to = ends[features[f]]
        for e in range(sizes[f]):
            rows[to + e] = piece_rows[at + e]
            counts[to + e] = piece_counts[at + e]
        at += sizes[f]
        ends[features[f]] = to + sizes[f]


@_kernel
def max_abs_scales(first, stop, data, weights, scale):
    """1/max_j |a_{j,i}| of features first..stop over the examples of weight > 0 into `scale` (features,); 1 if all are
    0."""
    for i in range(first, stop):
        largest = 0.0
        for e in range(data.indptr[i], data.indptr[i + 1]):
            if weights[data.rows[e]]:
                largest = max(largest, abs(float(data.counts[e])))
        scale[i] = 1.0 / largest if largest > 0.0 else 1.0


@_kernel
def row_norms(first, stop, data, scale, norms):
    """Add the terms of features first..stop in Σ_i scale_i·|a_{j,i}| to `norms` (examples,)."""
    for i in range(first, stop):
        for e in range(data.indptr[i], data.indptr[i + 1]):
            norms[data.rows[e]] += scale[i] * abs(float(data.counts[e]))


@_kernel
def coordinate_bounds(first, stop, data, bounds, L):
    """L_i = Σ_j |a_{j,i}|·ℓ_j of features first..stop into `L` (features,), from `bounds` ℓ (examples,)."""
    for i in range(first, stop):
        total = 0.0
        for e in range(data.indptr[i], data.indptr[i + 1]):
            total += abs(float(data.counts[e])) * bounds[data.rows[e]]
        L[i] = total


@_kernel
def block_weights(L, scale, batch, out):
    """(S_Π L_Π)^{2/3} of blocks up to a factor: S_Π = Σ_{i∈Π} scale_i, L_Π = √(Σ_{i∈Π} L_i²).

    `L` and `scale` (n,) are in the order of the blocks, `batch` features each.
    """
    for block in range(out.shape[0]):
        sides, square = 0.0, 0.0
        for i in range(block * batch, min((block + 1) * batch, L.shape[0])):
            sides += scale[i]
            square += L[i] * L[i]
        root = cube_root(sides * math.sqrt(square))
        out[block] = root * root
