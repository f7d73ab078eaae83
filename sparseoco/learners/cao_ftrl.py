"""CAO-FTRL: composite, adaptive and optimistic follow-the-regularized-leader in the box |x_i| ≤ R.

    x_{t+1} = argmin_{|x| ≤ R} (g_{1:t} + g̃_{t+1})·x + Σ_{s≤t} σ_s(x − x_s)²/2 + (t+1)ψ(x),
    σ_s = (Δ_s − Δ_{s−1})/R,    Δ_s = √(Σ_{a≤s} (g_a − g̃_a)²),    for every coordinate

Source: Mohri and Yang (2015), Algorithm 2 and Theorem 3 with the regularizer of Corollary 2; Algorithm 1 is ψ = 0.

The terms collect into a parabola, whose minimum over an interval is its free minimum, clipped. With
Z_t = g_{1:t} − Σ_{s≤t} σ_s x_s, Σ σ_s = Δ_t/R and ψ = λ(ρ|x| + (1 − ρ)x²/2), ρ = 1 for l1,

    x_{t+1} = clip(−c·soft(Z_t + g̃_{t+1}, (t+1)λρ), ±R),    c = R/(Δ_t + (t+1)λ(1 − ρ)R),

and while that denominator is 0 the objective is linear and its minimum is 0 or an end of the interval: c is then so
large that clipping finds it. (Before the first gradient Z + g̃ = 0, so x = 0 here, but not in `caos_erm`.)

The prediction g̃_{t+1} is 0 or, coordinate by coordinate,

- last: g_t, which is 0 for a feature that is not in row t;
- mean: the mean gradient over the rows with the feature if the next row has it, else 0. The row is known before it is
  predicted, and a feature not in it has gradient 0; the theorems hold for any prediction made before x_{t+1} is played.
  (Predicting the mean in the rounds between would cost a Σ 1/√(Δ² + k·g̃²) without a closed form, for gradients known
  to be 0.) Weights that are read are those for a row that has the feature.

Symbols: `Z`, `Delta` = Δ; `g_last`, the gradient in the feature's last round; `g_mean`, over `seen` rounds; `t`, the
next round; `l1` = λρ; `ridge` = λ(1 − ρ)R; `importance` = 1 (see `caos_ftrl`); `elapsed`, rounds since the feature's
last round (1 if that was the previous one).

Why lazy is exact: if g = g̃ = 0, neither Z nor Δ changes, and the weight is a function of them and t. With last, one
pending round must be applied if the feature is not in the next row: there g = 0 and g̃ = g_last. It is applied on
reading and at the feature's next update, with its own t, which follows from `elapsed`.

Two numbers per coordinate; with last three, and one time stamp per feature; with mean four.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from sparseoco.learners.contract import Algorithm, Rule, nonzero, round_clock
from sparseoco.learners.losses import Loss
from sparseoco.learners.parameters import LARGER_LAM, Parameter, categorical, positive
from sparseoco.learners.penalties import Penalty, clip

ZERO: Any = np.float32(0)  # float32, so that arithmetic with float32 columns stays float32
ONE: Any = np.float32(1)
LARGE = np.float32(2.0**64)


class Params(NamedTuple):
    R: float
    lam: float
    l1_ratio: float


class Scalars(NamedTuple):
    R: float
    inverse_r: float
    l1: float
    ridge: float
    t: float
    importance: float


class State(NamedTuple):
    Z: float
    Delta: float


class LastState(NamedTuple):
    Z: float
    Delta: float
    g_last: float


class MeanState(NamedTuple):
    Z: float
    Delta: float
    g_mean: float
    seen: float


@register_jitable
def scalars_of_round(R, l1, ridge, t, importance):
    """The scalars of round t for λρ = l1 and λ(1 − ρ) = ridge."""
    return Scalars(R, 1.0 / R, l1, ridge * R, t, importance)


@register_jitable
def round_scalars(clock, params, maps):
    l1, ridge = maps.split(params.lam, params)
    return scalars_of_round(params.R, l1, ridge, clock.rounds + 1.0, 1.0)


@register_jitable
def free_step(Delta, t, scalars):
    """c, the step of the unconstrained minimum; very large while the objective is linear."""
    stiffness = Delta + scalars.ridge * t
    return scalars.R / stiffness if stiffness > 0 else LARGE


@register_jitable
def minimizer(v, Delta, t, scalars, prox):
    """argmin_{|x| ≤ R} v·x + Δ/(2R)·x² + tψ(x); NaN propagates."""
    step = free_step(Delta, t, scalars)
    return clip(prox(-v * step, t * scalars.l1 * step), scalars.R)


@register_jitable
def played(Z, Delta, x, g, missed, scalars):
    """Z and Δ after a round at x with gradient g and prediction error `missed` = g − g̃."""
    grown = math.sqrt(Delta * Delta + missed * missed)
    return Z + g - (grown - Delta) * scalars.inverse_r * x, grown


@register_jitable
def weight(state, elapsed, scalars, maps):
    return minimizer(state.Z, state.Delta, scalars.t, scalars, maps.prox)


@register_jitable
def update(state, elapsed, scalars, gradient, row, maps):
    g_hat = scalars.importance * gradient
    x = weight(state, elapsed, scalars, maps)
    Z, Delta = played(state.Z, state.Delta, x, g_hat, g_hat, scalars)
    return State(Z, Delta)


@register_jitable
def settled(state, elapsed, scalars, maps):
    """Z, Δ and g̃ of the next round, with the pending round applied if it is over."""
    Z, Delta, g_last = state.Z, state.Delta, state.g_last
    if elapsed > 1:
        x = minimizer(Z + g_last, Delta, scalars.t + ONE - elapsed, scalars, maps.prox)
        Z, Delta = played(Z, Delta, x, ZERO, g_last, scalars)
        g_last = g_last - g_last
    return Z, Delta, g_last


@register_jitable
def weight_last(state, elapsed, scalars, maps):
    Z, Delta, g_tilde = settled(state, elapsed, scalars, maps)
    return minimizer(Z + g_tilde, Delta, scalars.t, scalars, maps.prox)


@register_jitable
def update_last(state, elapsed, scalars, gradient, row, maps):
    g_hat = scalars.importance * gradient
    Z, Delta, g_tilde = settled(state, elapsed, scalars, maps)
    x = minimizer(Z + g_tilde, Delta, scalars.t, scalars, maps.prox)
    Z, Delta = played(Z, Delta, x, g_hat, g_hat - g_tilde, scalars)
    return LastState(Z, Delta, g_hat)


@register_jitable
def weight_mean(state, elapsed, scalars, maps):
    return minimizer(state.Z + state.g_mean, state.Delta, scalars.t, scalars, maps.prox)


@register_jitable
def update_mean(state, elapsed, scalars, gradient, row, maps):
    g_hat = scalars.importance * gradient
    missed = g_hat - state.g_mean
    x = weight_mean(state, elapsed, scalars, maps)
    Z, Delta = played(state.Z, state.Delta, x, g_hat, missed, scalars)
    seen = state.seen + ONE
    return MeanState(Z, Delta, state.g_mean + missed / seen, seen)


@register_jitable
def state_from_weight(w, scalars, maps):
    """After one gradient of size 1: Δ = 1."""
    Delta = nonzero(w)
    step = free_step(Delta, scalars.t, scalars)
    return State(-maps.preimage(clip(w, scalars.R), scalars.t * scalars.l1 * step) / step, Delta)


@register_jitable
def state_from_weight_last(w, scalars, maps):
    """As `state_from_weight`, with the prediction 0."""
    Z, Delta = state_from_weight(w, scalars, maps)
    return LastState(Z, Delta, ZERO)


@register_jitable
def state_from_weight_mean(w, scalars, maps):
    """As `state_from_weight`, with the prediction 0 and no rounds in the mean."""
    Z, Delta = state_from_weight(w, scalars, maps)
    return MeanState(Z, Delta, ZERO, ZERO)


FORMS: dict[str, dict[str, Any]] = {
    "none": {"state": State, "weight": weight, "update": update, "state_from_weight": state_from_weight},
    "last": {
        "state": LastState,
        "weight": weight_last,
        "update": update_last,
        "state_from_weight": state_from_weight_last,
        "clock_time": round_clock,
    },
    "mean": {
        "state": MeanState,
        "weight": weight_mean,
        "update": update_mean,
        "state_from_weight": state_from_weight_mean,
    },
}


def rule(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> Rule:
    """Without a prediction unless a parameter chooses one."""
    form = FORMS[parameters.get("predict_gradient", "none")]
    return Rule(params=Params, scalars=Scalars, round_scalars=round_scalars, maps=penalty.maps, **form)


def rule_last(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> Rule:
    """Predicts the last gradient unless a parameter chooses otherwise."""
    return rule(loss, penalty, {"predict_gradient": "last"} | dict(parameters))


R = Parameter("R", 0.1, "bound of every |weight|, and the scale of the steps R/Δ", positive, grid=(0.03, 0.1, 0.3))
PREDICT_GRADIENT = categorical(
    "predict_gradient",
    tuple(FORMS),
    "prediction of the next gradient: 0, the last one, or the mean over the rows that had the feature",
    default="last",
)._replace(grid=tuple(FORMS))

SEPARABLE = ("l1", "l2", "elastic_net")
WHY = "it minimises over its own box, |x_i| ≤ R, coordinate by coordinate"
WHY_PLAIN = "it has no penalty, only its own box |x_i| ≤ R; penalty='l1' means no penalty; cao-ftrl takes one"

FTRL_PROXIMAL = Algorithm(
    name="ftrl-proximal",
    formula="x_{t+1} = argmin_{|x| ≤ R} g_{1:t}·x + Σ σ_s(x − x_s)²/2 + (t+1)ψ(x), σ_s = (Δ_s − Δ_{s−1})/R, "
    "Δ_s = √(Σ_{a≤s} g_a²)",
    source="McMahan 2014; Mohri and Yang 2015, Corollary 1.1",
    parameters=(R, LARGER_LAM),
    penalties=SEPARABLE,
    rule=rule,
    why=WHY,
)
AO_FTRL = Algorithm(
    name="ao-ftrl",
    formula="x_{t+1} = argmin_{|x| ≤ R} (g_{1:t} + g̃_{t+1})·x + Σ σ_s(x − x_s)²/2, Δ_s = √(Σ_{a≤s} (g_a − g̃_a)²)",
    source="Mohri and Yang 2015, Algorithm 1 with the regularizer of Corollary 2",
    parameters=(R, PREDICT_GRADIENT),
    penalties=("l1",),
    rule=rule_last,
    why=WHY_PLAIN,
)
AO_GD = Algorithm(
    name="ao-gd",
    formula="x_{t+1} = argmin_{|x| ≤ R} (g_{1:t} + g_t)·x + Σ σ_s(x − x_s)²/2, Δ_s = √(Σ_{a≤s} (g_a − g_{a−1})²)",
    source="Mohri and Yang 2015, Corollary 2",
    parameters=(R,),
    penalties=("l1",),
    rule=rule_last,
    why=WHY_PLAIN,
)
CAO_FTRL = Algorithm(
    name="cao-ftrl",
    formula="x_{t+1} = argmin_{|x| ≤ R} (g_{1:t} + g̃_{t+1})·x + Σ σ_s(x − x_s)²/2 + (t+1)ψ(x), "
    "σ_s = (Δ_s − Δ_{s−1})/R, Δ_s = √(Σ_{a≤s} (g_a − g̃_a)²)",
    source="Mohri and Yang 2015, Algorithm 2, Theorem 3",
    parameters=(R, LARGER_LAM, PREDICT_GRADIENT),
    penalties=SEPARABLE,
    rule=rule,
    why=WHY,
)
