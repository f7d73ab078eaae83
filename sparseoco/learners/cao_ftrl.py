"""CAO-FTRL: composite, adaptive and optimistic follow-the-regularized-leader in the box |x_i| ≤ R.

    x_{t+1} = argmin_{|x| ≤ R} (g_{1:t} + g̃_{t+1})·x + Σ_{s≤t} σ_s(x − x_s)²/2 + (t+1)ψ(x),
    σ_s = (Δ_s − Δ_{s−1})/R,    Δ_s = √(Σ_{a≤s} (g_a − g̃_a)²),    every coordinate by itself

Source: Mohri and Yang (2015), Algorithm 2 and Theorem 3 with the regularizer of Corollary 2; Algorithm 1 is ψ = 0.

The terms collect into a parabola, whose minimum over an interval is its free minimum, clipped. With
Z_t = g_{1:t} − Σ_{s≤t} σ_s x_s, Σ σ_s = Δ_t/R and ψ = λ(ρ|x| + (1 − ρ)x²/2), ρ = 1 for l1,

    x_{t+1} = clip(−c·soft(Z_t + g̃_{t+1}, (t+1)λρ), ±R),    c = R/(Δ_t + (t+1)λ(1 − ρ)R),

and while that denominator is 0 the sum is linear and its minimum at 0 or a corner of the box: c is then a number so
large that clipping finds it. (Here no gradient was seen yet, so Z + g̃ = 0 and x = 0; not so in `caos_erm`.)

The prediction g̃_{t+1} is 0 or, coordinate by coordinate,

- last: g_t, which is 0 for a feature that was not in row t;
- mean: the mean of the gradients of the rows that had the feature, if the coming row has it, and 0 if not. A row is
  known before it is predicted, and that a feature not in it has gradient 0; the theorems hold for any prediction made
  before x_{t+1} is played. (Kept up while the feature sleeps, the mean would cost a Σ 1/√(Δ² + k·g̃²) that has no closed
  form, to foretell what cannot happen.) Its weights, read at any time, are those of a row that has the feature.

Symbols: `Z`, `Delta` = Δ; `g_last` = the gradient of the coordinate's last round; `g_mean` over `seen` rounds;
`rounds` = t+1 for the coming round t+1, `l1` = λρ, `ridge` = λ(1 − ρ)R, `importance` = 1 (see `caos_ftrl`);
`slept` = rounds since the feature's last, 1 where that is round t.

Why lazy is exact: where g = g̃ = 0 neither Z nor Δ moves, and the weight is a function of them and of t. With last, one
round is due when a feature falls asleep: g = 0 was played against g̃ = g_last. It is played on reading and on waking,
at its own t+1, which `slept` tells.

Two slots a coordinate; three and a stamp a feature with last; four with mean.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numba.extending import register_jitable

from sparseoco.learners.contract import LAM, Algorithm, Parameter, Rule, no_time, nonzero, one_of, positive
from sparseoco.learners.losses import Loss
from sparseoco.learners.penalties import Penalty, clip

ZERO, ONE = np.float32(0), np.float32(1)  # of a type that does not widen float32 columns
LARGE = np.float32(2.0**64)


@register_jitable
def time(clock):
    return clock.n


@register_jitable
def terms(R, lam, ratio, rounds, importance):
    """A column's scalars of the coming round, as all functions below unpack them."""
    return (R, 1.0 / R, lam * ratio, lam * (1.0 - ratio) * R, rounds, importance)


@register_jitable
def tick(clock, hyper):
    R, lam = hyper
    return terms(R, lam, 1.0, clock.n + 1.0, 1.0)


@register_jitable
def tick_decaying(clock, hyper):
    R, lam, ratio = hyper
    return terms(R, lam, ratio, clock.n + 1.0, 1.0)


@register_jitable
def tick_without_penalty(clock, hyper):
    (R,) = hyper
    return terms(R, 0.0, 1.0, clock.n + 1.0, 1.0)


@register_jitable
def stiffness(Delta, ridge, rounds):
    """Second derivative of the sum that is minimised, times R."""
    return Delta


@register_jitable
def stiffness_decaying(Delta, ridge, rounds):
    return Delta + ridge * rounds


@register_jitable
def step(Delta, rounds, now, parts):
    """c, the step of the free minimum; as good as unbounded while nothing stiffens the sum."""
    R, _, _, ridge, _, _ = now
    stiff, _ = parts
    denominator = stiff(Delta, ridge, rounds)
    return R / denominator if denominator > 0 else LARGE


@register_jitable
def minimizer(v, Delta, rounds, now, prox, parts):
    """argmin_{|x| ≤ R} v·x + Δ/(2R)·x² + rounds·ψ(x); a NaN stays one."""
    R, _, l1, _, _, _ = now
    scale = step(Delta, rounds, now, parts)
    return clip(prox(-v * scale, rounds * l1 * scale), R)


@register_jitable
def played(Z, Delta, x, g, missed, now):
    """Z and Δ after a round that played x, saw g and missed it by g − g̃."""
    _, inverse_R, _, _, _, _ = now
    grown = math.sqrt(Delta * Delta + missed * missed)
    return Z + g - (grown - Delta) * inverse_R * x, grown


@register_jitable
def weight_none(slots, slept, now, prox, parts):
    Z, Delta = slots
    _, _, _, _, rounds, _ = now
    return minimizer(Z, Delta, rounds, now, prox, parts)


@register_jitable
def observe_none(slots, slept, now, g, x, prox, parts):
    Z, Delta = slots
    _, _, _, _, _, importance = now
    g_hat = importance * g
    return played(Z, Delta, weight_none(slots, slept, now, prox, parts), g_hat, g_hat, now)


@register_jitable
def settled(slots, slept, now, prox, parts):
    """Z, Δ and g̃ of the coming round; the round after the coordinate's last is played if it is over."""
    Z, Delta, g_last = slots
    _, _, _, _, rounds, _ = now
    if slept > 1:
        x = minimizer(Z + g_last, Delta, rounds + ONE - slept, now, prox, parts)
        Z, Delta = played(Z, Delta, x, ZERO, g_last, now)
        g_last = g_last - g_last
    return Z, Delta, g_last


@register_jitable
def weight_last(slots, slept, now, prox, parts):
    _, _, _, _, rounds, _ = now
    Z, Delta, g_tilde = settled(slots, slept, now, prox, parts)
    return minimizer(Z + g_tilde, Delta, rounds, now, prox, parts)


@register_jitable
def observe_last(slots, slept, now, g, x, prox, parts):
    _, _, _, _, rounds, importance = now
    g_hat = importance * g
    Z, Delta, g_tilde = settled(slots, slept, now, prox, parts)
    x_t = minimizer(Z + g_tilde, Delta, rounds, now, prox, parts)
    Z, Delta = played(Z, Delta, x_t, g_hat, g_hat - g_tilde, now)
    return (Z, Delta, g_hat)


@register_jitable
def weight_mean(slots, slept, now, prox, parts):
    Z, Delta, g_mean, _ = slots
    _, _, _, _, rounds, _ = now
    return minimizer(Z + g_mean, Delta, rounds, now, prox, parts)


@register_jitable
def observe_mean(slots, slept, now, g, x, prox, parts):
    Z, Delta, g_mean, seen = slots
    _, _, _, _, _, importance = now
    g_hat = importance * g
    missed = g_hat - g_mean
    Z, Delta = played(Z, Delta, weight_mean(slots, slept, now, prox, parts), g_hat, missed, now)
    return (Z, Delta, g_mean + missed / (seen + ONE), seen + ONE)


@register_jitable
def from_weight_none(w, now, preimage, parts):
    """After one gradient of size 1: Δ = 1."""
    R, _, l1, _, rounds, _ = now
    Delta = nonzero(w)
    scale = step(Delta, rounds, now, parts)
    return (-preimage(clip(w, R), rounds * l1 * scale) / scale, Delta)


@register_jitable
def from_weight_last(w, now, preimage, parts):
    """The coming gradient is taken to be 0."""
    Z, Delta = from_weight_none(w, now, preimage, parts)
    return (Z, Delta, ZERO)


@register_jitable
def from_weight_mean(w, now, preimage, parts):
    """There is no gradient yet to take the mean of: it is taken to be 0."""
    Z, Delta = from_weight_none(w, now, preimage, parts)
    return (Z, Delta, ZERO, ZERO)


PREDICTIONS = ("none", "last", "mean")
TICKS = 6


def rule_of(predict: str, penalty: Penalty, tick: Any, hyper: tuple[str, ...]) -> Rule:
    """The family's functions for one prediction and penalty, and a tick of its own."""
    parts = (stiffness_decaying if penalty.kind == "decaying" else stiffness, no_time)
    shape = (hyper, TICKS, predict == "last", parts)
    if predict == "last":
        slots: tuple[str, ...] = ("Z", "Delta", "g_last")
        return Rule(time, tick, weight_last, observe_last, slots, *shape, from_weight=from_weight_last)
    if predict == "mean":
        slots = ("Z", "Delta", "g_mean", "seen")
        return Rule(no_time, tick, weight_mean, observe_mean, slots, *shape, from_weight=from_weight_mean)
    return Rule(no_time, tick, weight_none, observe_none, ("Z", "Delta"), *shape, from_weight=from_weight_none)


def composite(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> Rule:
    predict = parameters.get("predict", "none")
    if penalty.kind == "decaying":
        return rule_of(predict, penalty, tick_decaying, ("R", "lam", "l1_ratio"))
    return rule_of(predict, penalty, tick, ("R", "lam"))


def plain(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> Rule:
    return rule_of(parameters.get("predict", "last"), penalty, tick_without_penalty, ("R",))


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

SEPARABLE = ("l1", "l2", "elastic_net")
WHY = "it minimises, coordinate by coordinate, over a box of its own, |x_i| ≤ R"
WHY_PLAIN = "it has no penalty but its own box, |x_i| ≤ R, so that l1 stands for none; cao-ftrl takes one"

FTRL_PROXIMAL = Algorithm(
    name="ftrl-proximal",
    formula="x_{t+1} = argmin_{|x| ≤ R} g_{1:t}·x + Σ σ_s(x − x_s)²/2 + (t+1)ψ(x), σ_s = (Δ_s − Δ_{s−1})/R, "
    "Δ_s = √(Σ_{a≤s} g_a²)",
    source="McMahan 2014; Mohri and Yang 2015, Corollary 1.1",
    parameters=(R, L1),
    penalties=SEPARABLE,
    rule=composite,
    module=__name__,
    why=WHY,
)
AO_FTRL = Algorithm(
    name="ao-ftrl",
    formula="x_{t+1} = argmin_{|x| ≤ R} (g_{1:t} + g̃_{t+1})·x + Σ σ_s(x − x_s)²/2, Δ_s = √(Σ_{a≤s} (g_a − g̃_a)²)",
    source="Mohri and Yang 2015, Algorithm 1 with the regularizer of Corollary 2",
    parameters=(R, PREDICT),
    penalties=("l1",),
    rule=plain,
    module=__name__,
    why=WHY_PLAIN,
)
AO_GD = Algorithm(
    name="ao-gd",
    formula="x_{t+1} = argmin_{|x| ≤ R} (g_{1:t} + g_t)·x + Σ σ_s(x − x_s)²/2, Δ_s = √(Σ_{a≤s} (g_a − g_{a−1})²)",
    source="Mohri and Yang 2015, Corollary 2",
    parameters=(R,),
    penalties=("l1",),
    rule=plain,
    module=__name__,
    why=WHY_PLAIN,
)
CAO_FTRL = Algorithm(
    name="cao-ftrl",
    formula="x_{t+1} = argmin_{|x| ≤ R} (g_{1:t} + g̃_{t+1})·x + Σ σ_s(x − x_s)²/2 + (t+1)ψ(x), "
    "σ_s = (Δ_s − Δ_{s−1})/R, Δ_s = √(Σ_{a≤s} (g_a − g̃_a)²)",
    source="Mohri and Yang 2015, Algorithm 2, Theorem 3",
    parameters=(R, L1, PREDICT),
    penalties=SEPARABLE,
    rule=composite,
    module=__name__,
    why=WHY,
)
