"""Convex sets of dense learners: norms, projections and their constants."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.compile_cache import register_jitable
from sparseoco.core.errors import InputError, unsupported
from sparseoco.learners.numerics import cbrt1p_of_fraction
from sparseoco.learners.parameters import finite_number

# ----------------------------------------------------------------------------------------------------------------------
# The p-norm of a coordinate's history, round by round: r_t = ‖(a_1, …, a_t)‖_p from r_{t−1} and a_t.
#
# One function `grow(r, a, p, inverse_p)` for each kind of p. The norm itself is stored: updates take a root, reading
# a weight, which is much more frequent, takes none.


ONE = np.float32(1)  # float32, so that arithmetic with float32 columns stays float32


@register_jitable
def grow_1(r, a, p, inverse_p):
    """r + |a|."""
    return r + abs(a)


@register_jitable
def grow_2(r, a, p, inverse_p):
    """√(r² + a²)."""
    return math.sqrt(r * r + a * a)


@register_jitable
def scaled_pair(r, a):
    """max(r, |a|), and the smaller divided by it, 0 if both are 0: powers of the quotient do not overflow."""
    b = abs(a)
    larger, smaller = (r, b) if r > b else (b, r)
    return larger, smaller / (larger if larger > 0.0 else ONE)


@register_jitable
def grow_3(r, a, p, inverse_p):
    """(r³ + |a|³)^(1/3)."""
    larger, quotient = scaled_pair(r, a)
    return larger * cbrt1p_of_fraction(quotient * quotient * quotient)


@register_jitable
def grow_p(r, a, p, inverse_p):
    """(r^p + |a|^p)^(1/p)."""
    if a == 0.0:
        return r
    larger, quotient = scaled_pair(r, a)
    return larger * (ONE + quotient**p) ** inverse_p


@register_jitable
def grow_inf(r, a, p, inverse_p):
    """max(r, |a|)."""
    b = abs(a)
    return b if b > r else r


GROWTH: dict[int | float | str, Callable[..., Any]] = {1: grow_1, 2: grow_2, 3: grow_3, "inf": grow_inf}


def growth(p: int | float | str) -> Callable[..., Any]:
    """The function `grow` for a canonical p."""
    return GROWTH.get(p, grow_p)


def order(value: Any) -> int | float | str:
    """A norm's p in canonical form: a number ≥ 1, or "inf"."""
    if value in ("inf", math.inf):
        return "inf"
    p = finite_number(value)
    if p < 1.0:
        raise ValueError("must be at least 1, or inf")
    return int(p) if p.is_integer() else p


# ----------------------------------------------------------------------------------------------------------------------
# The smallest constants valid on given rows for the theorems on bandits and online Newton steps.
#
# P is the ball of diameter D around 0, r = D/2; a round's loss is f(x) = ℓ(⟨x, z⟩, y):
#
#     squared    F = max ½(r‖z‖ + |y|)²          G = max (r‖z‖ + |y|)·‖z‖         α = min 1/(r‖z‖ + |y|)²
#     logistic   F = max log(1 + exp(r‖z‖))      G = max ‖z‖/(1 + exp(−r‖z‖))     α = min exp(−r‖z‖)
#
# F bounds |f| and G bounds ‖∇f‖ on P; α is the largest for which exp(−αf) is concave on P for every row
# (f″ ≥ α·f′² along z).


class Constants(NamedTuple):
    """F, G and α of rows on a ball."""

    F: float
    G: float
    alpha: float


def largest_loss(features: NDArray[np.float64], labels: NDArray[np.float64], loss: str, D: float) -> float:
    """F, of rows as in `ball_constants`."""
    reach = D / 2 * np.linalg.norm(features, axis=1)
    if loss == "squared":
        return float(0.5 * ((reach + np.abs(labels)) ** 2).max())
    return float(np.logaddexp(0.0, reach.max()))


def ball_constants(features: NDArray[np.float64], labels: NDArray[np.float64], loss: str, D: float) -> Constants:
    """The constants of rows (n, d), labels (n,) float64 (unused by the logistic loss), for squared or logistic loss.

    Raises `InputError` for another loss, and if they overflow or every row is 0.
    """
    with np.errstate(over="ignore"):  # infinite values are rejected below
        F = largest_loss(features, labels, loss, D)
        size = np.linalg.norm(features, axis=1)
        reach = D / 2 * size  # the largest |margin| on P
        residual = reach + np.abs(labels)
        steepest, most = residual.max(), float((residual * size).max())
        square = float(steepest * steepest)
    if loss == "squared":
        found = Constants(F, most, 1 / square if square else np.inf)
    elif loss == "logistic":
        steep = size / (1 + np.exp(-np.minimum(reach, 700.0)))
        found = Constants(F, float(steep.max()), float(np.exp(-reach.max())))
    else:
        raise unsupported(f"loss={loss!r}: constants are known for squared and logistic only.")
    if not (np.isfinite(found.F) and 0 < found.G < np.inf and found.alpha > 0):
        raise InputError(
            f"The losses are not bounded on a ball of diameter {D:g}: F = {found.F:g}, "
            f"G = {found.G:g}, α = {found.alpha:g}. Standardise the columns, or choose a smaller D.",
            code="unbounded-losses",
        )
    return found


# ----------------------------------------------------------------------------------------------------------------------
# The convex sets of dense learners and the projections onto them, for compiled loops.
#
# `ball`: ‖x‖ ≤ R, R = D/2. `l1`: ‖x‖₁ ≤ R, of diameter D; the largest ball around its centre has radius R/√n.
# `simplex`: x ≥ 0, Σ x_i = 1, of diameter √2; in its plane the largest ball around the centre (1/n, …, 1/n) has
# radius 1/√(n(n − 1)).
#
# Projections are onto (1 − γ)P, the set shrunk towards its centre, in the Euclidean norm or in that of a positive
# definite A (Liu et al. 2019, Algorithm 1, line 10):
#
#     Π^A[z] = argmin_{x ∈ (1−γ)P} ‖x − z‖_A,    ‖v‖_A = √⟨v, Av⟩,    given B = A⁻¹
#
# ``project(x, B, numbers)`` works in place; the Euclidean ones ignore `B`. They are exact up to rounding.


TINY = 1e-15  # relative residual that is rounding only
SLACK = 1e-12  # how far below its lower bound rounding may put a coordinate
DOMAINS = ("ball", "simplex", "l1")
BALL, SIMPLEX = 0.0, 1.0


class Numbers(NamedTuple):
    """The constants of a dense learner's column, as float64 scalars."""

    radius: float
    """R of a ball or of a 1-norm ball; unused on a simplex."""
    gamma: float
    """γ, by which the set is shrunk."""
    delta: float
    """δ, the length of the perturbations of a bandit."""
    rate: float
    """Scale of the steps; see the learner."""
    spread: float
    """Initial value of the memory; see the learner."""
    repetition: float
    """Number of the run, which seeds the directions of a bandit."""
    domain: float = 0.0
    """The set: the position in `DOMAINS`, so that one kernel plays in any of them."""


@register_jitable
def numbers_of(row):
    """`Numbers` from a row of a float64 array."""
    return Numbers(row[0], row[1], row[2], row[3], row[4], row[5], row[6])


@register_jitable
def norm_of(x):
    """‖x‖."""
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i] * x[i]
    return math.sqrt(total)


@register_jitable
def onto_ball(x, B, numbers):
    """Euclidean: x·R/‖x‖ if x is outside."""
    R, norm = numbers.radius * (1.0 - numbers.gamma), norm_of(x)
    if norm > R:
        for i in range(x.shape[0]):
            x[i] *= R / norm


@register_jitable
def onto_ball_in_metric(x, B, numbers):
    """In the norm of A: x(μ) = (I + μB)⁻¹z with the μ > 0 such that ‖x(μ)‖ = R (A(x − z) + μx = 0)."""
    R = numbers.radius * (1.0 - numbers.gamma)
    if norm_of(x) > R:
        shrink_in_metric(x, B, R)


@register_jitable
def absolute_sum(x):
    """‖x‖₁."""
    total = 0.0
    for i in range(x.shape[0]):
        total += abs(x[i])
    return total


@register_jitable
def true_places(mask):
    """The positions of True."""
    places, count = np.empty(mask.shape[0], np.int64), 0
    for i in range(mask.shape[0]):
        if mask[i]:
            places[count] = i
            count += 1
    return places[:count]


@register_jitable
def product(B, q, p):
    """p = Bq for a symmetric B, row by row of B, so that the inner loop vectorises."""
    for i in range(q.shape[0]):
        p[i] = 0.0
    for j in range(q.shape[0]):
        if q[j] != 0.0:
            for i in range(q.shape[0]):
                p[i] += B[j, i] * q[j]


@register_jitable
def shrink_in_metric(z, B, R):
    """z ← (I + μB)⁻¹z with the μ that gives it norm R, for ‖z‖ > R.

    Lanczos' method: in the basis q_1 = z/‖z‖, …, q_k, B is a tridiagonal T with diagonal α and off-diagonal β.
    x = Σ_j h_j q_j with (I + μT)h = ‖z‖e_1 has the residual μβ_k|h_k| and is exact for k = d. This takes k products
    with B; a factorisation would cost as much as d/6 products for every μ.
    """
    d = z.shape[0]
    size = norm_of(z)
    Q = np.empty((d, d))  # memory that is never written takes no room
    alpha, beta, h, w = np.zeros(d), np.zeros(d), np.zeros(d), np.zeros(d)
    p = np.zeros(d)
    for i in range(d):
        Q[0, i] = z[i] / size
    k = 0
    while True:
        product(B, Q[k], p)
        a = 0.0
        for i in range(d):
            a += Q[k, i] * p[i]
        alpha[k] = a
        for _ in range(2):  # done twice, so that the basis is orthogonal up to rounding
            for j in range(k + 1):
                along = 0.0
                for i in range(d):
                    along += Q[j, i] * p[i]
                for i in range(d):
                    p[i] -= along * Q[j, i]
        beta[k] = norm_of(p)
        k += 1
        mu = multiplier(alpha, beta, k, size, R, h, w)
        if k == d or mu * beta[k - 1] * abs(h[k - 1]) <= TINY * size:
            break
        for i in range(d):
            Q[k, i] = p[i] / beta[k - 1]
    for i in range(d):
        z[i] = 0.0
    for j in range(k):
        for i in range(d):
            z[i] += h[j] * Q[j, i]
    norm = norm_of(z)
    for i in range(d):
        z[i] *= R / norm


@register_jitable
def solve_tridiagonal(alpha, beta, k, mu, right, out):
    """out = (I + μT)⁻¹·right for the leading k entries; `out` must not be `right`."""
    pivots = np.empty(k)
    pivots[0] = 1.0 + mu * alpha[0]
    out[0] = right[0]
    for j in range(1, k):
        ratio = mu * beta[j - 1] / pivots[j - 1]
        pivots[j] = 1.0 + mu * alpha[j] - ratio * mu * beta[j - 1]
        out[j] = right[j] - ratio * out[j - 1]
    out[k - 1] /= pivots[k - 1]
    for j in range(k - 2, -1, -1):
        out[j] = (out[j] - mu * beta[j] * out[j + 1]) / pivots[j]


@register_jitable
def multiplier(alpha, beta, k, size, R, h, w):
    """The μ for which ‖h‖ = R, h = (I + μT)⁻¹·size·e_1; h is returned in `h`.

    1/‖h‖ is a power mean of the lines (1 + μλ)/|c| over T's eigenvalues λ and concave in μ, so Newton steps for
    1/‖h‖ = 1/R from μ = 0 never overshoot and need no safeguard.
    """
    right, image = np.zeros(k), np.zeros(k)
    right[0] = size
    mu = 0.0
    for _ in range(100):
        solve_tridiagonal(alpha, beta, k, mu, right, h)
        norm = 0.0
        for j in range(k):
            norm += h[j] * h[j]
        norm = math.sqrt(norm)
        if norm <= R * (1.0 + 4.0 * TINY):
            break
        for j in range(k):  # dh/dμ = −(I + μT)⁻¹Th
            image[j] = alpha[j] * h[j]
            if j > 0:
                image[j] += beta[j - 1] * h[j - 1]
            if j < k - 1:
                image[j] += beta[j] * h[j + 1]
        solve_tridiagonal(alpha, beta, k, mu, image, w)
        fall = 0.0
        for j in range(k):
            fall += h[j] * w[j]
        step = (norm - R) / R * norm * norm / fall if fall > 0.0 else 0.0
        if not mu + step > mu:
            break
        mu += step
    return mu


@register_jitable
def threshold_of(values, size):
    """The sum of all values, and the τ with Σ max(v_i − τ, 0) = size; sorts `values`."""
    values.sort()
    total, tau = 0.0, 0.0
    for i in range(values.shape[0]):
        value = values[values.shape[0] - 1 - i]
        total += value
        least = (total - size) / (i + 1.0)
        if value > least:
            tau = least
    return total, tau


@register_jitable
def onto_simplex(x, B, numbers):
    """Euclidean: max(x_i − τ, γ/n) with τ such that the sum is 1, found by sorting."""
    n = x.shape[0]
    floor = numbers.gamma / n
    above = np.empty_like(x)
    for i in range(n):
        above[i] = x[i] - floor
    _, tau = threshold_of(above, 1.0 - numbers.gamma)
    for i in range(n):
        x[i] = max(x[i] - floor - tau, 0.0) + floor


@register_jitable
def onto_simplex_in_metric(x, B, numbers):
    """In the norm of A: x = z + B(ν1 + s) with s ≥ 0, s_i > 0 only if x_i = γ/n, its lower bound, and ν for Σx_i = 1.

    With B̃ = B − B11ᵀB/(1ᵀB1), which preserves the sum, and z̃ the projection of z onto Σx_i = 1, x = z̃ + B̃s for the
    s ≥ 0 that minimises ½sᵀB̃s + (z̃ − γ/n)ᵀs: the active-set method of Lawson and Hanson (1974, chapter 23), from an
    empty set. A coordinate joins the set if it is below its bound by more than `SLACK`.
    """
    n = x.shape[0]
    floor = numbers.gamma / n
    image = np.zeros(n)
    product(B, np.ones(n), image)
    bend, missing = 0.0, 1.0
    for i in range(n):
        bend += image[i]
        missing -= x[i]
    z = np.empty(n)
    for i in range(n):
        z[i] = x[i] + image[i] * (missing / bend) - floor
    for i in range(n):
        x[i] = z[i]
    s = np.zeros(n)
    active = np.zeros(n, np.bool_)
    for _ in range(10 * n):
        worst = -1
        least = -SLACK
        for i in range(n):
            if not active[i] and x[i] < least:
                worst, least = i, x[i]
        if worst < 0:
            break
        active[worst] = True
        join(worst, active, s, z, B, image, bend)
        residual(s, active, z, B, image, bend, x)
    total = 0.0
    for i in range(n):
        x[i] = 0.0 if active[i] else max(x[i], 0.0)
        total += x[i]
    for i in range(n):
        x[i] = x[i] * ((1.0 - numbers.gamma) / total) + floor


@register_jitable
def join(worst, active, s, z, B, image, bend):
    """Add `worst` to the active set and drop members whose multiplier would become negative.

    On return `s` are the multipliers that keep the members at their lower bounds.
    """
    n = s.shape[0]
    while True:
        members = true_places(active)
        wanted = held_multipliers(members, z, B, image, bend)
        share, first = 1.0, -1
        for a in range(members.shape[0]):
            i = members[a]
            if wanted[a] <= 0.0 and i != worst:
                part = s[i] / (s[i] - wanted[a]) if s[i] > wanted[a] else 0.0
                if part < share:
                    share, first = part, i
        for a in range(members.shape[0]):
            i = members[a]
            s[i] += share * (wanted[a] - s[i])
        if first < 0:
            break
        active[first] = False
        for i in range(n):
            if not active[i] or (i != worst and s[i] <= 0.0):
                active[i] = False
                s[i] = 0.0


@register_jitable
def held_multipliers(members, z, B, image, bend):
    """B̃_mm⁻¹·(−z_m) by Cholesky factorisation, for a proper subset of members m."""
    k = members.shape[0]
    L, s = np.empty((k, k)), np.empty(k)
    for a in range(k):
        i = members[a]
        for b in range(a + 1):
            j = members[b]
            total = B[i, j] - image[i] * (image[j] / bend)
            for c in range(b):
                total -= L[a, c] * L[b, c]
            if a == b:
                L[a, a] = math.sqrt(max(total, 1e-300))
            else:
                L[a, b] = total / L[b, b]
        total = -z[i]
        for c in range(a):
            total -= L[a, c] * s[c]
        s[a] = total / L[a, a]
    for a in range(k - 1, -1, -1):
        for c in range(a + 1, k):
            s[a] -= L[c, a] * s[c]
        s[a] /= L[a, a]
    return s


@register_jitable
def residual(s, active, z, B, image, bend, x):
    """x = z + B̃s."""
    product(B, s, x)
    along = 0.0
    for i in range(s.shape[0]):
        along += image[i] * s[i]
    for i in range(s.shape[0]):
        x[i] += z[i] - image[i] * (along / bend)


@register_jitable
def to_size(x, R):
    """x·R/‖x‖₁, which takes rounding away."""
    size = absolute_sum(x)
    for i in range(x.shape[0]):
        x[i] *= R / size


@register_jitable
def onto_l1(x, B, numbers):
    """Euclidean: sign(x_i)·max(|x_i| − τ, 0) with τ such that the absolute values add up to R, found by sorting."""
    R = numbers.radius * (1.0 - numbers.gamma)
    sizes = np.empty_like(x)
    for i in range(x.shape[0]):
        sizes[i] = abs(x[i])
    total, tau = threshold_of(sizes, R)
    if total > R:
        for i in range(x.shape[0]):
            x[i] = math.copysign(max(abs(x[i]) - tau, 0.0), x[i])
        to_size(x, R)


@register_jitable
def onto_l1_in_metric(x, B, numbers):
    """In the norm of A: x = z − Bu, u_i = λ·sign(x_i), or |u_i| ≤ λ where x_i = 0, and λ for ‖x‖₁ = R.

    The lasso's path from λ = 0, where x = z (Osborne, Presnell and Turlach 2000). u and x are linear in λ until an x_i
    becomes 0, which then holds u_i, or some |u_i| with x_i = 0 reaches λ, which sets x_i free.
    """
    n = x.shape[0]
    R = numbers.radius * (1.0 - numbers.gamma)
    if absolute_sum(x) <= R:
        return
    held = np.zeros(n, np.bool_)
    sign, u, slope, image, none = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)
    for i in range(n):
        held[i] = x[i] == 0.0
        sign[i] = 0.0 if held[i] else math.copysign(1.0, x[i])
    level, last, before = 0.0, -1, 0.0  # rounding only could change the last one back
    for _ in range(20 * n):
        product(B, sign, image)
        members = true_places(held)
        wanted = held_multipliers(members, image, B, none, 1.0)
        for i in range(n):
            slope[i] = sign[i]
        for a in range(members.shape[0]):
            slope[members[a]] = wanted[a]
        product(B, slope, image)
        size, fall = 0.0, 0.0
        for i in range(n):
            if not held[i]:
                size += abs(x[i])
                fall += sign[i] * image[i]
        step, changed, side = (size - R) / fall, -1, 0.0
        for i in range(n):
            if held[i]:
                toward = math.copysign(1.0, slope[i])
                if toward * slope[i] > 1.0 and not (i == last and toward == before):
                    own = max(level - toward * u[i], 0.0) / (toward * slope[i] - 1.0)
                    if own < step:
                        step, changed, side = own, i, toward
            elif sign[i] * image[i] > 0.0 and i != last:
                own = max(sign[i] * x[i], 0.0) / (sign[i] * image[i])
                if own < step:
                    step, changed, side = own, i, 0.0
        level += step
        for i in range(n):
            u[i] += step * slope[i]
            if not held[i]:
                x[i] -= step * image[i]
        if changed < 0:
            break
        last, before = changed, sign[changed]
        held[changed], sign[changed], x[changed] = side == 0.0, side, 0.0
    to_size(x, R)


@register_jitable
def onto_set(x, B, numbers):
    """Project onto the set of `Numbers.domain`, in the Euclidean norm."""
    if numbers.domain == BALL:
        onto_ball(x, B, numbers)
    elif numbers.domain == SIMPLEX:
        onto_simplex(x, B, numbers)
    else:
        onto_l1(x, B, numbers)


@register_jitable
def onto_set_in_metric(x, B, numbers):
    """Project onto the set of `Numbers.domain`, in the norm of A."""
    if numbers.domain == BALL:
        onto_ball_in_metric(x, B, numbers)
    elif numbers.domain == SIMPLEX:
        onto_simplex_in_metric(x, B, numbers)
    else:
        onto_l1_in_metric(x, B, numbers)
