"""Loops of a full-gradient pass, by rows and by columns."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.compile_cache import compiled_restrict
from sparseoco.learners.losses import Loss, hinge_value, smoothed_hinge_slope, smoothed_hinge_value
from sparseoco.learners.numerics import cube_roots, response

Array = NDArray[Any]

# ----------------------------------------------------------------------------------------------------------------------
# The loops of a full-gradient pass: margins of rows under dense weights, losses and slopes, gradients.
#
# Weights and gradients are stored ``[feature, column]`` in float64, so one access to a feature serves every column. A
# linear model's gradient is Σ_j s_j·a_j with slopes s_j = ℓ'(z_j): a pass stores one number per example and column.
# Sums over a row run in the order of its nonzeros and sums over rows in row order; columns are independent. So bits
# depend neither on how rows are split into calls nor on which columns are computed together.
#
# Rows are CSR: ``indptr`` (rows + 1,), whose first entry need not be 0, and the ``indices`` and ``counts`` of these
# rows only.


def margins(indptr, indices, counts, weights, out):
    """z_{i,c} = Σ_j x_{i,j}·w_{j,c} into ``out`` (rows, columns), for ``weights`` (features, columns) of its dtype."""
    base = indptr[0]
    width = out.shape[1]
    for i in range(out.shape[0]):
        z = out[i]
        for c in range(width):
            z[c] = 0.0
        for k in range(indptr[i] - base, indptr[i + 1] - base):
            w = weights[indices[k]]
            x = out.dtype.type(counts[k])
            for c in range(width):
                z[c] += x * w[c]


def accumulate(indptr, indices, counts, slopes, gradient):
    """Add Σ_i s_{i,c}·x_{i,j} to ``gradient`` (features, columns), row by row, for ``slopes`` (rows, columns)."""
    base = indptr[0]
    width = slopes.shape[1]
    for i in range(slopes.shape[0]):
        s = slopes[i]
        for k in range(indptr[i] - base, indptr[i + 1] - base):
            g = gradient[indices[k]]
            x = float(counts[k])
            for c in range(width):
                g[c] += x * s[c]


def accumulate_squares(indices: Array, counts: Array, squares: Array) -> None:
    """Add Σ_i x_{i,j}² to ``squares`` (features,), nonzero by nonzero."""
    np.add.at(squares, indices, counts.astype(np.float64) ** 2)


def build_respond(value, slope):
    """``respond``: losses and slopes, times the `weights` of the rows, from margins; column c has ``positive[c]``."""

    def respond(z, labels, weights, positive, slopes, loss_sum):
        for i in range(labels.shape[0]):
            for c in range(positive.shape[0]):
                y = response(labels[i], positive[c])
                loss_sum[c] += weights[i] * value(z[i, c], y)
                slopes[i, c] = weights[i] * slope(z[i, c], y)

    return respond


def respond_smoothed(z, labels, weights, positive, width, slopes, loss_sum, exact_sum):
    """As ``respond`` for the hinge smoothed over ``width`` (columns,); `exact_sum` sums the hinge itself."""
    for i in range(labels.shape[0]):
        for c in range(positive.shape[0]):
            y = response(labels[i], positive[c])
            loss_sum[c] += weights[i] * smoothed_hinge_value(z[i, c], y, width[c])
            exact_sum[c] += weights[i] * hinge_value(z[i, c], y)
            slopes[i, c] = weights[i] * smoothed_hinge_slope(z[i, c], y, width[c])


def build_conjugate(conjugate):
    """``conjugate_sums``: add Σ_i ω_i·f*(κ_c·s_{i,c}/ω_i) to ``out`` (columns,); rows of weight 0 add nothing."""

    def conjugate_sums(slopes, weights, scale, out):
        for i in range(slopes.shape[0]):
            if weights[i] > 0.0:
                for c in range(slopes.shape[1]):
                    out[c] += weights[i] * conjugate(scale[c] * (slopes[i, c] / weights[i]))

    return conjugate_sums


MARGINS = compiled_restrict(margins)
ACCUMULATE = compiled_restrict(accumulate)
RESPOND_SMOOTHED = compiled_restrict(respond_smoothed)


class LossKernels(NamedTuple):
    """The kernels of a loss of one margin."""

    respond: Callable[..., None]
    conjugate_sums: Callable[..., None]


@lru_cache(maxsize=16)
def loss_kernels(loss: Loss) -> LossKernels:
    """The compiled kernels of a loss."""
    return LossKernels(
        compiled_restrict(build_respond(loss.value, loss.slope), loss.name),
        compiled_restrict(build_conjugate(loss.conjugate), loss.name),
    )


# ----------------------------------------------------------------------------------------------------------------------
# Loops over data stored by columns (`offline.passes.ColumnMajor`): their merge, and what cao-rcd draws by.


def append_entries(
    features: Array, sizes: Array, piece_rows: Array, piece_counts: Array, ends: Array, rows: Array, counts: Array
) -> None:
    """Append entries, sorted by feature, to those of each feature, which end at ``ends[i]``; `ends` is updated."""
    places = np.repeat(ends[features] - (np.cumsum(sizes) - sizes), sizes) + np.arange(len(piece_rows))
    rows[places], counts[places] = piece_rows, piece_counts
    ends[features] += sizes


def _entries(first: int, stop: int, data: Any) -> tuple[Array, Array, Array]:
    """The features, examples and absolute counts of the nonzeros of features first..stop, in order."""
    places = slice(data.indptr[first], data.indptr[stop])
    features = np.repeat(np.arange(first, stop), np.diff(data.indptr[first : stop + 1]))
    return features, data.rows[places], np.abs(data.counts[places].astype(np.float64))


def max_abs_scales(first: int, stop: int, data: Any, weights: Array, scale: Array) -> None:
    """1/max_j |a_{j,i}| of features first..stop over the examples of weight > 0 into `scale` (features,); 1 if all are
    0."""
    features, examples, sizes = _entries(first, stop, data)
    largest = np.zeros(stop - first)
    np.maximum.at(largest, features - first, np.where(weights[examples] > 0.0, sizes, 0.0))
    scale[first:stop] = 1.0 / np.where(largest > 0.0, largest, 1.0)


def row_norms(first: int, stop: int, data: Any, scale: Array, norms: Array) -> None:
    """Add the terms of features first..stop in Σ_i scale_i·|a_{j,i}| to `norms` (examples,)."""
    features, examples, sizes = _entries(first, stop, data)
    np.add.at(norms, examples, scale[features] * sizes)


def coordinate_bounds(first: int, stop: int, data: Any, bounds: Array, L: Array) -> None:
    """L_i = Σ_j |a_{j,i}|·ℓ_j of features first..stop into `L` (features,), from `bounds` ℓ (examples,)."""
    features, examples, sizes = _entries(first, stop, data)
    L[first:stop] = 0.0
    np.add.at(L, features, sizes * bounds[examples])


def block_weights(L: Array, scale: Array, batch: int) -> Array:
    """(S_Π L_Π)^{2/3} of blocks up to a factor: S_Π = Σ_{i∈Π} scale_i, L_Π = √(Σ_{i∈Π} L_i²).

    `L` and `scale` (n,) are in the order of the blocks, `batch` features each.
    """
    blocks = np.arange(L.size) // batch
    sides, squares = np.bincount(blocks, scale), np.bincount(blocks, L * L)
    return np.asarray(cube_roots(sides * np.sqrt(squares)) ** 2)
