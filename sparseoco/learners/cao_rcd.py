"""CAO-RCD: CAO-FTRL on F = Σ_j f_j + αψ with random coordinates, weighted by the inverse of their probabilities.

    x_{t+1} and ψ as `cao_ftrl` with λ = α,
    ĝ_t = ∇_{Π_t}F(x_t)/p_{Π_t},    g̃_t = g̃_{Π_t}/p_{Π_t},    p_Π ∝ (S_Π L_Π)^{2/3}

Source: Mohri and Yang (2015), Theorem 7 and Corollary 4; with blocks of more than one coordinate Corollary 5.

Round t draws a block Π_t of `batch` features (one, for Corollary 4). The blocks partition the features for the whole
run: consecutive ids, or runs of a random permutation, a function of the seed (Corollary 5 takes any partition).
S_Π = Σ_{i∈Π} R_i, the sides of its box; L_Π = √(Σ_{i∈Π} L_i²) bounds the 2-norm of its part of the gradient, and
L_i = Σ_j |a_{j,i}|·ℓ_j bounds |∇_iF|, where ℓ_j bounds |dℓ/dz| on example j: 1 for logistic and hinge; for losses
without a Lipschitz constant the maximum over the box, where |z_j| ≤ r_j = Σ_i R_i|a_{j,i}|: 2(1 + r_j) for squared
hinge and |y_j| + r_j for squared. Features in no example are never drawn. A sample weight ω_j multiplies f_j, and hence
ℓ_j. An intercept is the last feature, 1 in every example, with α = 0 and R_i = R; it is drawn often, because its L_i is
the largest, and a draw reads all examples.

The range R_i of a coordinate is R, or with scale = max_abs R/max_j |a_{j,i}|, the maximum over the examples with
ω_j > 0: the box |x_i|·max_j |a_{j,i}| ≤ R of features divided by their largest absolute value. Then, without a penalty,
the margins do not depend on the units of a feature; with sample = lipschitz only for blocks of one feature, since S_Π
and L_Π add ranges and bounds of several units.

The prediction of ∇_iF, divided by p like the gradient, is

- none: 0;
- half: L_i/2, as in the paper, derived from |g − g̃| ≤ max(L − g̃, g̃), which holds only for gradients of one sign;
- last: the gradient at the coordinate's last draw.

In Corollary 5 the index in "g̃_{t,i} = L_i/2" is that of a block although a coordinate's is needed; here it is half of
each coordinate's own bound. Only the drawn block is predicted (Theorem 7), so a prediction displaces the weights of
this block in its round. Hence x_t depends on the draw, and E[ĝ_t | x_t] = ∇F(x_t), which the proof uses, holds only for
none (see `bounds`). At a coordinate's first draw half moves its weight to the boundary of the box; on word counts it is
slower than the other two. So the default is none.

Symbols: `Z`, `Delta`, `g_last` as `cao_ftrl`.

Why lazy is exact: between two draws of a coordinate Z and Δ do not change, and its weight is a function of t,

    x(t) = −clip(R·soft(Z, tαρ)/(Δ + tα(1 − ρ)R), ±R)    (R = R_i; ρ = 1 for l1, 0 for l2),

in at most three segments: ±R while |Z| − tαρ ≥ Δ + tα(1 − ρ)R, then free, then 0 from t = |Z|/(αρ) on. For l1 the free
segment is a line, and a margin is linear as long as no segment of a feature in its row ends.

For ρ < 1 the free segment is a hyperbola in t, with a pole of its own for every coordinate, so that their sum has no
short form. But every pole is at some t ≤ 0: in rounds t_0 to 2t_0 a hyperbola is a series of Chebyshev polynomials
whose terms shrink by a factor of 3 + √8 or more, and 20 of them leave an error of 1e-15 (`fill_series`). A margin is
then such a series too. At 2t_0 all margins are computed anew from the weights: log₂(rounds) times in the first epoch,
and in a later one only at its start, as for l1. Coefficients take ten times the memory of lines.

Ties. A weight and a subgradient jump in three places only. There numbers that exact arithmetic makes equal differ by
rounding, so numbers that differ by no more than `ROUNDING` count as equal:

- the kink yz = 1 of the hinge, where the subgradient is 0 (`kernels.coordinate`);
- g = g̃ (g = 0 without a prediction) while Δ = 0: within `ROUNDING`·L_i it is equal, and Δ stays 0. Any other first
  gradient, however small, moves the weight to ±R;
- |Z + g̃| = tαρ while Δ = 0 and without a ridge: the objective is linear on one side of 0 and constant on the other,
  and of its minima x = 0 is taken.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from sparseoco.core.compile_cache import register_jitable
from sparseoco.core.errors import unsupported
from sparseoco.learners.cao_ftrl import SEPARABLE, R, State, minimizer, played, scalars_of_round
from sparseoco.learners.caos_erm import ALPHA, rounds
from sparseoco.learners.contract import Algorithm
from sparseoco.learners.losses import Loss
from sparseoco.learners.parameters import Parameter, categorical, positive_int
from sparseoco.learners.penalties import Penalty, soft

ROUNDING = 2.0**-34
"""Bound on the relative rounding error of margins, which are updated round by round, and of gradients; measured of
margins: 2e-11 after a million rounds."""


@register_jitable
def excess(v, Delta, t, l1, ridge):
    """|v| − tαρ: x is 0 if it is not positive. Where x would jump from ±R to 0, it is 0 if only rounding says more."""
    beyond = abs(v) - t * l1
    return 0.0 if Delta == 0.0 and ridge == 0.0 and beyond <= ROUNDING * abs(v) else beyond


@register_jitable
def weight(Z, Delta, g_tilde, t, R, l1, ridge):
    """x_t of a coordinate with the prediction g̃; l1 = αρ, ridge = α(1 − ρ)."""
    v = Z + g_tilde
    if excess(v, Delta, t, l1, ridge) <= 0.0:
        return 0.0
    return minimizer(v, Delta, t, scalars_of_round(R, l1, ridge, t), soft)


@register_jitable
def gradient_or_prediction(g, g_tilde, Delta, L):
    """g of a coordinate, or its prediction if only rounding separates them and no gradient has differed yet."""
    return g_tilde if Delta == 0.0 and abs(g - g_tilde) <= ROUNDING * L else g


@register_jitable
def update(Z, Delta, x, g_hat, g_tilde, t, R, l1, ridge):
    """Z and Δ after round t, which drew the coordinate at x."""
    return played(State(Z, Delta), x, g_hat, g_hat - g_tilde, scalars_of_round(R, l1, ridge, t))


@register_jitable
def segment(Z, Delta, t, R, l1, ridge):
    """(free, length): whether |x| is between 0 and R from round t on, and for how many rounds if nothing draws it.

    If not free, x is 0 or ±R. A free segment of one round counts as not free: its slope could be larger than R.
    """
    over = excess(Z, Delta, t, l1, ridge)
    if over <= 0.0:
        return False, math.inf
    if Delta == 0.0 and ridge == 0.0:
        return False, np.ceil((over - ROUNDING * abs(Z)) / l1) if l1 > 0.0 else math.inf
    beyond = over - (Delta + t * ridge * R)
    if beyond >= 0.0:
        shrinkage = l1 + ridge * R
        return False, np.floor(beyond / shrinkage) + 1.0 if shrinkage > 0.0 else math.inf
    length = np.ceil(over / l1) if l1 > 0.0 else math.inf
    return length > 1.0, length


@register_jitable
def fill_line(Z, Delta, t, R, l1, line):
    """x in rounds t + k of a free segment as line[0] + k·line[1], for a penalty without ridge."""
    line[0] = weight(Z, Delta, 0.0, t, R, l1, 0.0)
    line[1] = math.copysign(R * l1 / Delta, Z)


@register_jitable
def fill_series(Z, Delta, origin, R, l1, ridge, series):
    """x of a free segment as Σ_p series[p]·T_p(u) in rounds (3 + u)/2·origin, |u| ≤ 1.

    With N + Mu and C + Bu the numerator and the denominator, 1/(C + Bu) = (1 + 2 Σ_{p≥1} (−q)^p T_p(u))/√(C² − B²),
    q = B/(C + √(C² − B²)), and 2u·T_p = T_{p+1} + T_{p−1}.
    """
    half = 0.5 * origin
    N, M = abs(Z) - 3.0 * half * l1, -half * l1
    B = half * ridge * R
    C = Delta + 3.0 * B
    root = math.sqrt((C - B) * (C + B))
    q = B / (C + root)
    power = -math.copysign(2.0 * R / root, Z)
    series[0] = 0.5 * power * (N - M * q)
    for p in range(1, series.shape[0]):
        before, power = power, -q * power
        series[p] = power * N + 0.5 * M * (before - q * power)


BOUNDED_IN_BOX = ("squared_hinge", "squared")


def lipschitz(loss: Loss) -> bool:
    """Whether |dℓ/dz| ≤ 1 for all margins, so that gradient bounds do not depend on the box."""
    return loss.name in ("logistic", "hinge", "huber")


def slope_bounds(loss: Loss, norms: Any, sizes: Any, R: float) -> Any:
    """ℓ_j, the largest |dℓ/dz| of each example in the box, from Σ_i R_i|a_{j,i}|/R and |y_j| (examples,)."""
    if lipschitz(loss):
        return np.ones_like(norms)
    return 2.0 * (1.0 + R * norms) if loss.name == "squared_hinge" else sizes + R * norms


def rule(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> None:
    """No functions to choose. Raises `InputError` for losses without a bounded slope."""
    if not lipschitz(loss) and loss.name not in BOUNDED_IN_BOX:
        raise unsupported(f"cao-rcd needs a bound on the slope of the loss; loss={loss.name!r} has none here.")


CAO_RCD = Algorithm(
    name="cao-rcd",
    formula="x_{t+1} = argmin_{|x| ≤ R_i} (ĝ_{1:t} + g̃_{t+1})·x + Σ σ_s(x − x_s)²/2 + (t+1)αψ(x), "
    "ĝ_t = ∇_iF(x_t)/p_i, p_i ∝ (R_i L_i)^{2/3}, L_i ≥ |∇_iF|",
    source="Mohri and Yang 2015, Theorem 7, Corollaries 4 and 5",
    parameters=(
        R._replace(meaning="bound of every |weight|, and the factor of the steps R/Δ; see scale"),
        ALPHA,
        Parameter(
            "rounds",
            "pass",
            "rounds per epoch; by default as many as are expected to read each nonzero once",
            rounds,
            static=True,
        ),
        Parameter("batch", 1, "features per block", positive_int, static=True),
        categorical(
            "partition",
            ("consecutive", "random"),
            "blocks of features with consecutive ids, or of a random permutation that the seed determines",
        ),
        categorical(
            "predict_gradient",
            ("none", "half", "last"),
            "prediction of the drawn coordinate's gradient: 0, half its bound (as in the paper), or its last one",
        ),
        categorical(
            "sample",
            ("uniform", "lipschitz"),
            "probability of drawing a block: the same for all, or by its gradient bound and box",
            default="lipschitz",
        ),
        categorical(
            "scale",
            ("none", "max_abs"),
            "range R_i of a weight: R for all features, or R divided by the feature's largest absolute value",
        ),
    ),
    penalties=(*SEPARABLE, "box"),
    rules=rule,
    why="it minimises over its own box, |x_i| ≤ R_i, coordinate by coordinate",
    driver="coordinate",
)
