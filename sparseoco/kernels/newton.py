"""Loops of a proximal Newton method on data by columns: coordinate descent, conjugate gradients, line searches.

The model at w is m(x) = ⟨g, x − w⟩ + ½ Σ_i c_i⟨a_i, x − w⟩² + h(x), c_i the loss's second derivative at row i and h as
in `kernels.quadratic`. ``r`` = c∘A(x − w) (rows,) is updated with x; the slope of a column needs one read. `data` is
an `offline.column_major.ColumnMajor`. Everything is float64 and summed in the order of the columns and of their rows.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from sparseoco.core.compile_cache import compiled, register_jitable
from sparseoco.kernels.quadratic import coordinate_minimum, least_subgradient
from sparseoco.learners.losses import Loss, smoothed_hinge_curvature, smoothed_hinge_slope, smoothed_hinge_value


@register_jitable
def product(members, data, v, out):
    """Add A·v to ``out`` (rows,), over the columns `members` only."""
    indptr, rows, counts, _ = data
    for a in range(members.shape[0]):
        j = members[a]
        for k in range(indptr[j], indptr[j + 1]):
            out[rows[k]] += float(counts[k]) * v[j]


def column_curvatures(members, data, c, out):
    """Write Σ_i c_i·x_{i,j}² to out_j for the columns `members`."""
    indptr, rows, counts, _ = data
    for a in range(members.shape[0]):
        j = members[a]
        total = 0.0
        for k in range(indptr[j], indptr[j + 1]):
            x = float(counts[k])
            total += c[rows[k]] * x * x
        out[j] = total


@register_jitable
def column_slopes(members, data, g, r, out):
    """Write g_j + Σ_i x_{i,j}·r_i to out_j for the columns `members`."""
    indptr, rows, counts, _ = data
    for a in range(members.shape[0]):
        j = members[a]
        total = g[j]
        for k in range(indptr[j], indptr[j + 1]):
            total += float(counts[k]) * r[rows[k]]
        out[j] = total


def least_subgradients(members, x, slopes, l1, l2, box, out):
    """Write the least subgradient of ⟨slopes, ·⟩ + h at x to ``out``, for the coordinates `members`."""
    for a in range(members.shape[0]):
        j = members[a]
        out[j] = least_subgradient(x[j], slopes[j], l1, l2, box)


def sweep_columns(members, data, c, g, curvatures, l1, l2, box, x, r):
    """Minimise m over each coordinate of `members` in turn, updating `x` and `r` in place.

    A coordinate without curvature does not change.
    """
    indptr, rows, counts, _ = data
    for a in range(members.shape[0]):
        j = members[a]
        if curvatures[j] + l2 > 0.0:
            slope = g[j]
            for k in range(indptr[j], indptr[j + 1]):
                slope += float(counts[k]) * r[rows[k]]
            new = coordinate_minimum(x[j], slope, curvatures[j], l1, l2, box)
            step = new - x[j]
            if step != 0.0:
                x[j] = new
                for k in range(indptr[j], indptr[j + 1]):
                    i = rows[k]
                    r[i] += c[i] * float(counts[k]) * step


def conjugate_gradients(free, data, c, curvatures, l2, slopes, until, iterations, found):
    """Solve (AᵀCA + l2·I)·found = −slopes among the columns `free`, from found = 0.

    Stops once the residual has fallen to the fraction `until`, in the norm of the inverse diagonal of the matrix, which
    is also the preconditioner.
    """
    nothing, residual, p, image = np.zeros((4, *found.shape))
    z = np.empty_like(c)
    size = 0.0
    for a in range(free.shape[0]):
        j = free[a]
        residual[j] = -slopes[j]
        p[j] = residual[j] / (curvatures[j] + l2)
        size += residual[j] * p[j]
    goal = until * until * size
    for _ in range(iterations):
        if size <= goal or size == 0.0:
            break
        z[:] = 0.0
        product(free, data, p, z)
        for i in range(z.shape[0]):
            z[i] *= c[i]
        column_slopes(free, data, nothing, z, image)
        bend = 0.0
        for a in range(free.shape[0]):
            j = free[a]
            image[j] += l2 * p[j]
            bend += p[j] * image[j]
        if not bend > 0.0:
            break
        step, before, size = size / bend, size, 0.0
        for a in range(free.shape[0]):
            j = free[a]
            found[j] += step * p[j]
            residual[j] -= step * image[j]
            size += residual[j] * residual[j] / (curvatures[j] + l2)
        for a in range(free.shape[0]):
            j = free[a]
            p[j] = residual[j] / (curvatures[j] + l2) + (size / before) * p[j]


def build_curvatures(curvature):
    """``curvatures``: write max(ℓ''(z_i, y_i), floor) to ``out`` (rows,)."""

    def curvatures(z, y, width, floor, out):
        for i in range(z.shape[0]):
            out[i] = max(curvature(z[i], y[i], width), floor)

    return curvatures


def build_line(value, slope):
    """``line``: the change of the loss from margins z to z + t·δ, summed by rows, and its slope along δ there.

    `weights` (rows,) or None.
    """

    def line(z, delta, y, weights, t, width):
        rise, last = 0.0, 0.0
        for i in range(z.shape[0]):
            if delta[i] != 0.0:
                there = z[i] + t * delta[i]
                weight = 1.0 if weights is None else weights[i]
                rise += weight * (value(there, y[i], width) - value(z[i], y[i], width))
                last += weight * slope(there, y[i], width) * delta[i]
        return rise, last

    return line


def _without_width(function):
    @register_jitable
    def plain(z, y, width):
        return function(z, y)

    return plain


def _compiled(function: Callable[..., Any], *key: str) -> Callable[..., Any]:
    return compiled(function, list(key), restrict=True)


PRODUCT = _compiled(product)
COLUMN_CURVATURES = _compiled(column_curvatures)
COLUMN_SLOPES = _compiled(column_slopes)
SWEEP_COLUMNS = _compiled(sweep_columns)
LEAST_SUBGRADIENTS = _compiled(least_subgradients)
CONJUGATE_GRADIENTS = _compiled(conjugate_gradients)


class NewtonKernels(NamedTuple):
    """The kernels of a loss; `width` is that of the smoothed hinge and ignored by other losses."""

    curvatures: Callable[..., None]
    line: Callable[..., tuple[float, float]]


@lru_cache(maxsize=16)
def newton_kernels(loss: Loss) -> NewtonKernels:
    """The compiled kernels of a loss of one margin; the hinge is smoothed."""
    if loss.curvature is None:
        value, slope, curvature = smoothed_hinge_value, smoothed_hinge_slope, smoothed_hinge_curvature
    else:
        value, slope, curvature = map(_without_width, (loss.value, loss.slope, loss.curvature))
    return NewtonKernels(
        _compiled(build_curvatures(curvature), loss.name), _compiled(build_line(value, slope), loss.name)
    )
