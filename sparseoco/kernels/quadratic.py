"""Loops over a quadratic model with a penalty: coordinate descent, and the sums a quasi-Newton metric needs.

The model at w is m(x) = ⟨g, x − w⟩ + ½(x − w)ᵀB(x − w) + h(x) with B = diag(D) − Q·diag(J)·Qᵀ, Q (features, r) and
J = ±1, and h(x) = l1·‖x‖₁ + ½·l2·‖x‖² within |x_i| ≤ box. ``v`` = J∘Qᵀ(x − w) is updated with x. Everything is float64
and summed in the order of the features.
"""

from sparseoco.core.compile_cache import compiled, register_jitable
from sparseoco.learners.penalties import clip, soft


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
        new = coordinate_minimum(x[i], slope, curvature, l1, l2, box)
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
        out[i] = least_subgradient(x[i], slope, l1, l2, box)


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


def inner(a, b):
    """⟨a, b⟩."""
    total = 0.0
    for i in range(a.shape[0]):
        total += a[i] * b[i]
    return total


def penalty_value(x, l1, l2):
    """l1·‖x‖₁ + ½·l2·‖x‖²."""
    total = 0.0
    for i in range(x.shape[0]):
        total += l1 * abs(x[i]) + 0.5 * l2 * x[i] * x[i]
    return total


def penalty_change(x, w, l1, l2):
    """h(x) − h(w), summed by coordinates and so accurate for close points."""
    total = 0.0
    for i in range(x.shape[0]):
        total += l1 * (abs(x[i]) - abs(w[i])) + 0.5 * l2 * (x[i] - w[i]) * (x[i] + w[i])
    return total


def penalty_conjugate(g, scale, l1, l2, box):
    """h*(scale·g) = Σ_i max_{|x| ≤ box} (|u_i| − l1)x − ½·l2·x², u = scale·g; where l2 = 0 and box = ∞, |u_i| ≤ l1."""
    total = 0.0
    for i in range(g.shape[0]):
        over = abs(scale * g[i]) - l1
        if over > 0.0:
            x = min(over / l2, box) if l2 > 0.0 else box
            if x < 1e300:
                total += over * x - 0.5 * l2 * x * x
    return total


def _compiled(function):
    return compiled(function, [], restrict=True)


SWEEP = _compiled(sweep)
STEEPEST = _compiled(steepest)
MODEL_CHANGE = _compiled(model_change)
GRAM = _compiled(gram)
NEWTON_DIRECTION = _compiled(newton_direction)
PAIR_PRODUCTS = _compiled(pair_products)
FACTOR = _compiled(factor)
OUTSIDE_SLOPES = _compiled(outside_slopes)
INNER = _compiled(inner)
PENALTY_VALUE = _compiled(penalty_value)
PENALTY_CHANGE = _compiled(penalty_change)
PENALTY_CONJUGATE = _compiled(penalty_conjugate)
