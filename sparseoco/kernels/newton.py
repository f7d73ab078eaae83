"""Loops over quadratic models: coordinate descent, curvatures, Newton steps."""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.compile_cache import compiled_restrict, register_jitable
from sparseoco.learners.losses import Loss, smoothed_hinge_curvature, smoothed_hinge_slope, smoothed_hinge_value
from sparseoco.learners.penalties import clip, soft

# ----------------------------------------------------------------------------------------------------------------------
# Loops over a quadratic model with a penalty: coordinate descent, and the sums a quasi-Newton metric needs.
#
# The model at w is m(x) = ⟨g, x − w⟩ + ½(x − w)ᵀB(x − w) + h(x) with B = diag(D) − Q·diag(J)·Qᵀ, Q (features, r) and J
# = ±1, and h(x) = l1·‖x‖₁ + ½·l2·‖x‖² within |x_i| ≤ box_i. ``v`` = J∘Qᵀ(x − w) is updated with x. Everything is
# float64 and summed in the order of the features.


@register_jitable
def coordinate_minimum(x, slope, curvature, l1, l2, box):
    """argmin_v slope·(v − x) + ½·curvature·(v − x)² + l1·|v| + ½·l2·v² within |v| ≤ box."""
    return clip(soft(curvature * x - slope, l1) / (curvature + l2), box)


@register_jitable
def least_subgradient(x, slope, l1, l2, box):
    """The subgradient of slope·v + l1·|v| + ½·l2·v² within |v| ≤ box, at v = x, that is nearest to 0."""
    slope += l2 * x
    if x > 0.0:
        slope += l1
    elif x < 0.0:
        slope -= l1
    else:
        slope = soft(slope, l1)
    outward = (x >= box and slope < 0.0) or (x <= -box and slope > 0.0)
    return 0.0 if outward else slope


def sweep(x, w, g, D, Q, J, l1, l2, box, v):
    """Minimise m over each coordinate in turn, updating `x` and `v` in place."""
    r = Q.shape[1]
    for i in range(x.shape[0]):
        q = Q[i]
        slope = g[i] + D[i] * (x[i] - w[i])
        curvature = D[i]
        for k in range(r):
            slope -= q[k] * v[k]
            curvature -= J[k] * q[k] * q[k]
        curvature = max(curvature, 1e-12 * D[i])
        new = coordinate_minimum(x[i], slope, curvature, l1, l2, box[i])
        step = new - x[i]
        if step != 0.0:
            x[i] = new
            for k in range(r):
                v[k] += J[k] * step * q[k]


def steepest(x, w, g, D, Q, l1, l2, box, v, out):
    """Write the least subgradient of m at x to `out`: 0 for optimal coordinates."""
    r = Q.shape[1]
    for i in range(x.shape[0]):
        slope = g[i] + D[i] * (x[i] - w[i])
        for k in range(r):
            slope -= Q[i, k] * v[k]
        out[i] = least_subgradient(x[i], slope, l1, l2, box[i])


def model_change(new, x, w, g, D, Q, J, l1, l2, v, moved):
    """m(new) − m(x) for points within the box, computed without cancellation.

    `v` belongs to x; `moved` (r,) is set to its change, J∘Qᵀ(new − x).
    """
    r = Q.shape[1]
    for k in range(r):
        moved[k] = 0.0
    total = 0.0
    for i in range(x.shape[0]):
        step = new[i] - x[i]
        if step != 0.0:
            total += step * (g[i] + D[i] * (x[i] - w[i] + 0.5 * step))
            total += l1 * (abs(new[i]) - abs(x[i])) + 0.5 * l2 * step * (new[i] + x[i])
            for k in range(r):
                moved[k] += step * Q[i, k]
    for k in range(r):
        total -= moved[k] * (v[k] + 0.5 * J[k] * moved[k])
        moved[k] *= J[k]
    return total


def gram(Q, free, scale, right, matrix, vector):
    """Add Σ_i scale_i·Q_i Q_iᵀ to `matrix` (r, r) and Σ_i scale_i·right_i·Q_i to `vector` (r,), over `free` i."""
    r = Q.shape[1]
    for i in range(Q.shape[0]):
        if free[i]:
            for a in range(r):
                p = scale[i] * Q[i, a]
                vector[a] += p * right[i]
                for b in range(r):
                    matrix[a, b] += p * Q[i, b]


def newton_direction(Q, free, scale, right, solved, out):
    """scale_i·(right_i + ⟨Q_i, solved⟩) for `free` i, else 0, into `out`."""
    for i in range(Q.shape[0]):
        total = 0.0
        if free[i]:
            total = right[i]
            for k in range(Q.shape[1]):
                total += Q[i, k] * solved[k]
            total *= scale[i]
        out[i] = total


def pair_products(rows, s, y, q, S, Y, out):
    """Add Σ_i s_i·q_i·S_i, Σ_i s_i·Y_i and Σ_i y_i·S_i over i in `rows` to the rows of `out` (3, pairs).

    S and Y are (features, pairs).
    """
    for a in range(rows.shape[0]):
        i = rows[a]
        for k in range(S.shape[1]):
            out[0, k] += s[i] * q[i] * S[i, k]
            out[1, k] += s[i] * Y[i, k]
            out[2, k] += y[i] * S[i, k]


def factor(members, D, S, Y, order, T, Q):
    """Q_i = [D_i·S_i, Y_i]·T for the features `members`, pairs taken in `order`."""
    m = order.shape[0]
    for a in range(members.shape[0]):
        i = members[a]
        for k in range(2 * m):
            total = 0.0
            for p in range(m):
                total += D[i] * S[i, order[p]] * T[p, k] + Y[i, order[p]] * T[m + p, k]
            Q[a, k] = total


def outside_slopes(rows, g, D, S, Y, order, t, out):
    """g_i − [D_i·S_i, Y_i]·t for i in `rows`: the slope of the model where x_i = w_i."""
    m = order.shape[0]
    for a in range(rows.shape[0]):
        i = rows[a]
        total = g[i]
        for p in range(m):
            total -= D[i] * S[i, order[p]] * t[p] + Y[i, order[p]] * t[m + p]
        out[a] = total


def inner_product(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """⟨a, b⟩, with the same bits for any number of threads."""
    return float((a * b).sum())


SWEEP = compiled_restrict(sweep)
STEEPEST = compiled_restrict(steepest)
MODEL_CHANGE = compiled_restrict(model_change)
GRAM = compiled_restrict(gram)
NEWTON_DIRECTION = compiled_restrict(newton_direction)
PAIR_PRODUCTS = compiled_restrict(pair_products)
FACTOR = compiled_restrict(factor)
OUTSIDE_SLOPES = compiled_restrict(outside_slopes)


# ----------------------------------------------------------------------------------------------------------------------
# Loops of a proximal Newton method on data by columns: coordinate descent, conjugate gradients, line searches.
#
# The model at w is m(x) = ⟨g, x − w⟩ + ½ Σ_i c_i⟨a_i, x − w⟩² + h(x), c_i the loss's second derivative at row i and h
# as above. ``r`` = c∘A(x − w) (rows,) is updated with x; the slope of a column needs one read. `data`
# is an `offline.passes.ColumnMajor`. Everything is float64 and summed in the order of the columns and of their
# rows.


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
        out[j] = least_subgradient(x[j], slopes[j], l1, l2, box[j])


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
            new = coordinate_minimum(x[j], slope, curvatures[j], l1, l2, box[j])
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
    """``line``: the change of the loss from margins z to z + t·δ, summed by rows, and its slope along δ there."""

    def line(z, delta, y, weights, t, width):
        rise, last = 0.0, 0.0
        for i in range(z.shape[0]):
            if delta[i] != 0.0:
                there = z[i] + t * delta[i]
                rise += weights[i] * (value(there, y[i], width) - value(z[i], y[i], width))
                last += weights[i] * slope(there, y[i], width) * delta[i]
        return rise, last

    return line


def _without_width(function):
    @register_jitable
    def plain(z, y, width):
        return function(z, y)

    return plain


PRODUCT = compiled_restrict(product)
COLUMN_CURVATURES = compiled_restrict(column_curvatures)
COLUMN_SLOPES = compiled_restrict(column_slopes)
SWEEP_COLUMNS = compiled_restrict(sweep_columns)
LEAST_SUBGRADIENTS = compiled_restrict(least_subgradients)
CONJUGATE_GRADIENTS = compiled_restrict(conjugate_gradients)


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
        compiled_restrict(build_curvatures(curvature), loss.name),
        compiled_restrict(build_line(value, slope), loss.name),
    )
