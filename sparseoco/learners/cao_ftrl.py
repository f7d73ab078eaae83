"""CAO-FTRL: composite, adaptive and optimistic follow-the-regularized-leader in the box |x_i| ≤ R.

    x_{t+1} = argmin_{|x| ≤ R} (g_{1:t} + g̃_{t+1})·x + Σ_{s≤t} σ_s(x − x_s)²/2 + (t+1)λ|x|,
    σ_s = (Δ_s − Δ_{s−1})/R,    Δ_s = √(Σ_{a≤s} (g_a − g̃_a)²),    every coordinate by itself

Source: Mohri and Yang (2015), Algorithm 2 and Theorem 3 with the regularizer of Corollary 2; Algorithm 1 is λ = 0.

The terms collect into a parabola, whose minimum over an interval is its free minimum, clipped: with
Z_t = g_{1:t} − Σ_{s≤t} σ_s x_s and Σ σ_s = Δ_t/R,

    x_{t+1} = clip(prox_{a ψ}(−(Z_t + g̃_{t+1})·R/Δ_t), ±R),    a = (t+1)λR/Δ_t,

and x = 0 while Δ_t = 0: no gradient was seen yet.

The prediction g̃_{t+1} is 0 or, coordinate by coordinate,

- last: g_t, which is 0 for a feature that was not in row t;
- mean: the mean of the gradients of the rows that had the feature, if the coming row has it, and 0 if not. A row is
  known before it is predicted, and that a feature not in it has gradient 0; the theorems hold for any prediction made
  before x_{t+1} is played. (Kept up while the feature sleeps, the mean would cost a Σ 1/√(Δ² + k·g̃²) that has no closed
  form, to foretell what cannot happen.) Its weights, read at any time, are those of a row that has the feature.

Symbols: `Z`, `Delta` = Δ; `g_last` = the gradient of the coordinate's last round; `g_mean` over `seen` rounds;
`due` = (t+1)λ for the coming round t+1, `after` = t+2, `importance` = 1 (see `caos_ftrl`);
`slept` = rounds since the feature's last, 1 where that is round t.

Why lazy is exact: where g = g̃ = 0 neither Z nor Δ moves, and the weight is a function of them and of t. With last, one
round is due when a feature falls asleep: g = 0 was played against g̃ = g_last. It is played on reading and on waking,
at its own (t+1)λ, which `slept` tells.

Two slots a coordinate; three and a stamp a feature with last; four with mean.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numba.extending import register_jitable

from sparseoco.learners.definition import LAM, Algorithm, Parameter, Rule, no_time, one_of, positive
from sparseoco.losses import Loss
from sparseoco.penalties import Penalty

ZERO, ONE = np.float32(0), np.float32(1)  # of a type that does not widen float32 columns


@register_jitable
def time(clock):
    return clock.n


@register_jitable
def tick(clock, hyper):
    R, lam = hyper
    return (R, 1.0 / R, (clock.n + 1.0) * lam, lam, clock.n + 2.0, 1.0)


@register_jitable
def tick_without_penalty(clock, hyper):
    (R,) = hyper
    return (R, 1.0 / R, 0.0, 0.0, clock.n + 2.0, 1.0)


@register_jitable
def minimizer(v, Delta, due, R, prox):
    """argmin_{|x| ≤ R} v·x + Δ/(2R)·x² + due·ψ(x), 0 while Δ = 0; a NaN stays one."""
    scale = R / Delta if Delta > 0 else ZERO
    x = prox(-v * scale, due * scale)
    x = R if x > R else x
    return -R if x < -R else x


@register_jitable
def played(Z, Delta, x, g, missed, inverse_R):
    """Z and Δ after a round that played x, saw g and missed it by g − g̃."""
    grown = math.sqrt(Delta * Delta + missed * missed)
    return Z + g - (grown - Delta) * inverse_R * x, grown


@register_jitable
def weight_none(slots, slept, now, prox, parts):
    Z, Delta = slots
    R, _, due, _, _, _ = now
    return minimizer(Z, Delta, due, R, prox)


@register_jitable
def observe_none(slots, slept, now, g, x, prox, parts):
    Z, Delta = slots
    _, inverse_R, _, _, _, importance = now
    g_hat = importance * g
    return played(Z, Delta, weight_none(slots, slept, now, prox, parts), g_hat, g_hat, inverse_R)


@register_jitable
def settled(slots, slept, now, prox):
    """Z, Δ and g̃ of the coming round; the round after the coordinate's last is played if it is over."""
    Z, Delta, g_last = slots
    R, inverse_R, _, lam, after, _ = now
    if slept > 1:
        x = minimizer(Z + g_last, Delta, lam * (after - slept), R, prox)
        Z, Delta = played(Z, Delta, x, ZERO, g_last, inverse_R)
        g_last = g_last - g_last
    return Z, Delta, g_last


@register_jitable
def weight_last(slots, slept, now, prox, parts):
    R, _, due, _, _, _ = now
    Z, Delta, g_tilde = settled(slots, slept, now, prox)
    return minimizer(Z + g_tilde, Delta, due, R, prox)


@register_jitable
def observe_last(slots, slept, now, g, x, prox, parts):
    R, inverse_R, due, _, _, importance = now
    g_hat = importance * g
    Z, Delta, g_tilde = settled(slots, slept, now, prox)
    Z, Delta = played(Z, Delta, minimizer(Z + g_tilde, Delta, due, R, prox), g_hat, g_hat - g_tilde, inverse_R)
    return (Z, Delta, g_hat)


@register_jitable
def weight_mean(slots, slept, now, prox, parts):
    Z, Delta, g_mean, _ = slots
    R, _, due, _, _, _ = now
    return minimizer(Z + g_mean, Delta, due, R, prox)


@register_jitable
def observe_mean(slots, slept, now, g, x, prox, parts):
    Z, Delta, g_mean, seen = slots
    _, inverse_R, _, _, _, importance = now
    missed = importance * g - g_mean
    Z, Delta = played(Z, Delta, weight_mean(slots, slept, now, prox, parts), importance * g, missed, inverse_R)
    return (Z, Delta, g_mean + missed / (seen + ONE), seen + ONE)


PREDICTIONS = ("none", "last", "mean")
TICKS = 6


def rule_of(predict: str, tick: Any, hyper: tuple[str, ...]) -> Rule:
    """The family's functions for one prediction and a tick of its own."""
    if predict == "last":
        return Rule(time, tick, weight_last, observe_last, ("Z", "Delta", "g_last"), hyper, TICKS, stamped=True)
    if predict == "mean":
        slots = ("Z", "Delta", "g_mean", "seen")
        return Rule(no_time, tick, weight_mean, observe_mean, slots, hyper, TICKS, stamped=False)
    return Rule(no_time, tick, weight_none, observe_none, ("Z", "Delta"), hyper, TICKS, stamped=False)


def composite(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> Rule:
    return rule_of(parameters["predict"], tick, ("R", "lam"))


def unpredicted(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> Rule:
    return rule_of("none", tick, ("R", "lam"))


def plain(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> Rule:
    return rule_of(parameters["predict"], tick_without_penalty, ("R",))


def martingale(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> Rule:
    return rule_of("last", tick_without_penalty, ("R",))


R = Parameter("R", 0.1, "bound of every |weight|, and the scale of the steps R/Δ", positive, grid=(0.03, 0.1, 0.3))
L1 = LAM._replace(grid=(1e-6, 1e-5, 1e-4, 1e-3))
PREDICT = Parameter(
    "predict",
    "last",
    "what the coming gradient is taken to be: 0, the last one, or the mean of the rows that had the feature",
    one_of(*PREDICTIONS),
    choices=PREDICTIONS,
    static=True,
    grid=PREDICTIONS,
)

FTRL_PROXIMAL = Algorithm(
    name="ftrl-proximal",
    formula="x_{t+1} = argmin_{|x| ≤ R} g_{1:t}·x + Σ σ_s(x − x_s)²/2 + (t+1)λ|x|, σ_s = (Δ_s − Δ_{s−1})/R, "
    "Δ_s = √(Σ_{a≤s} g_a²)",
    source="McMahan 2014; Mohri and Yang 2015, Corollary 1.1",
    parameters=(R, L1),
    penalties=("l1",),
    rule=unpredicted,
    module=__name__,
)
AO_FTRL = Algorithm(
    name="ao-ftrl",
    formula="x_{t+1} = argmin_{|x| ≤ R} (g_{1:t} + g̃_{t+1})·x + Σ σ_s(x − x_s)²/2, Δ_s = √(Σ_{a≤s} (g_a − g̃_a)²)",
    source="Mohri and Yang 2015, Algorithm 1 with the regularizer of Corollary 2",
    parameters=(R, PREDICT),
    penalties=("l1",),
    rule=plain,
    module=__name__,
)
AO_GD = Algorithm(
    name="ao-gd",
    formula="x_{t+1} = argmin_{|x| ≤ R} (g_{1:t} + g_t)·x + Σ σ_s(x − x_s)²/2, Δ_s = √(Σ_{a≤s} (g_a − g_{a−1})²)",
    source="Mohri and Yang 2015, Corollary 2",
    parameters=(R,),
    penalties=("l1",),
    rule=martingale,
    module=__name__,
)
CAO_FTRL = Algorithm(
    name="cao-ftrl",
    formula="x_{t+1} = argmin_{|x| ≤ R} (g_{1:t} + g̃_{t+1})·x + Σ σ_s(x − x_s)²/2 + (t+1)λ|x|, "
    "σ_s = (Δ_s − Δ_{s−1})/R, Δ_s = √(Σ_{a≤s} (g_a − g̃_a)²)",
    source="Mohri and Yang 2015, Algorithm 2, Theorem 3",
    parameters=(R, L1, PREDICT),
    penalties=("l1",),
    rule=composite,
    module=__name__,
)
