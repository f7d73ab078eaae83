"""FOBOS: a gradient step, then the proximal map of every coordinate, every round.

    w_{t+1} = prox_{η_t ψ}(w_t − η_t g_t),    η_t = eta0/√t

Source: Togari and Yamashita (2016), Algorithm 2, (5)–(6); the recursion SG-L1 of Oiwa et al. (2011), (4), is the same.

Symbols: `w` is what the last gradient step left, its own round's prox still due; `eta` = η_t; `rate` = eta0·λ;
`slept` = Σ 1/√τ over the rounds whose prox is due.

Why lazy is exact: a coordinate out of the support of g_t only meets the prox, and the proximal maps of a|w| add up
(Property 1 there): soft(soft(w, a), b) = soft(w, a + b). So the rounds slept are one soft-threshold with the sum of
their steps, which is eta0·λ times a difference of one sum shared by all columns. The prox of a coordinate's own round
waits with the others, so reading never writes.

With ½w² in the penalty the maps do not add up (Property 1 does not hold for it) but multiply: with b_τ = η_τ λ(1 − ρ)
and κ = ρ/(1 − ρ) a round is |w| + κ ← (|w| + κ)/(1 + b_τ), down to w = 0. So with P = Σ log(1 + b_τ) over the rounds
done, kept by every column, and D its growth over the rounds due, w ← soft(w·e^−D, κ(1 − e^−D)); nothing can underflow.
With a box one projection is as good as many.

One slot a coordinate, one stamp a feature; with ½w² two slots, P as it was among them, and no stamp.
"""

import math
from collections.abc import Mapping
from typing import Any

from numba.extending import register_jitable

from sparseoco.learners.contract import ETA0, LAM, SECOND, STEP, Algorithm, Rule, begin, no_time
from sparseoco.learners.losses import Loss
from sparseoco.learners.numerics import exp_of_negative
from sparseoco.learners.penalties import Penalty


@register_jitable
def time(clock):
    return clock.Q


@register_jitable
def tick(clock, hyper):
    eta0, lam = hyper
    return (eta0 * clock.s, eta0 * lam)


@register_jitable
def weight(slots, slept, now, prox, parts):
    (w,) = slots
    _, rate = now
    return prox(w, rate * slept)


@register_jitable
def observe(slots, slept, now, g, x, prox, parts):
    eta, _ = now
    return (weight(slots, slept, now, prox, parts) - eta * g,)


@register_jitable
def run_decaying(clock, hyper):
    """P over all rounds, and as it was after the last round that K divides."""
    eta0, lam, ratio, P_all, P = hyper
    P_all = P_all + math.log1p(eta0 * clock.s_half * lam * (1.0 - ratio))
    return (eta0, lam, ratio, P_all, P_all if (clock.n + 1.0) % clock.K == 0.0 else P)


@register_jitable
def tick_decaying(clock, hyper):
    eta0, _, ratio, _, P = hyper
    return (eta0 * clock.s, P, ratio / (1.0 - ratio))


@register_jitable
def decayed(w, P_then, P, kappa, prox):
    """w after the rounds in which P grew from P_then."""
    left = exp_of_negative(P_then - P)
    return prox(w * left, kappa * (1.0 - left))


@register_jitable
def weight_decaying(slots, slept, now, prox, parts):
    w, P_then = slots
    _, P, kappa = now
    return decayed(w, P_then, P, kappa, prox)


@register_jitable
def observe_decaying(slots, slept, now, g, x, prox, parts):
    eta, P, _ = now
    return (weight_decaying(slots, slept, now, prox, parts) - eta * g, P)


@register_jitable
def tick_bounded(clock, hyper):
    eta0, R = hyper
    return (eta0 * clock.s, R)


@register_jitable
def weight_bounded(slots, slept, now, prox, parts):
    (w,) = slots
    _, R = now
    return prox(w, R) if slept > 0 else w


@register_jitable
def observe_bounded(slots, slept, now, g, x, prox, parts):
    eta, _ = now
    return (weight_bounded(slots, slept, now, prox, parts) - eta * g,)


@register_jitable
def from_weight_decaying(w, now, preimage, parts):
    _, P, _ = now
    return (w, P)


@register_jitable
def from_weight_bounded(w, now, preimage, parts):
    _, R = now
    return (preimage(w, R),)


DECAYING = {
    "hyper": ("eta0", "lam", "l1_ratio"),
    "running": ("P_all", "P"),
    "run": run_decaying,
    "from_weight": from_weight_decaying,
}


def rule(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> Rule:
    start, K = begin(parameters), parameters.get("K", 1)
    kept_for = float(K) if K > 1 else 0.0
    if penalty.kind == "decaying":
        slots = ("w", "P")
        return Rule(
            no_time,
            tick_decaying,
            weight_decaying,
            observe_decaying,
            slots,
            **DECAYING,
            ticks=3,
            stamped=False,
            start=start,
        )
    if penalty.kind == "bounded":
        return Rule(
            time,
            tick_bounded,
            weight_bounded,
            observe_bounded,
            ("w",),
            ("eta0", "R"),
            2,
            True,
            start=start,
            kept_for=kept_for,
            from_weight=from_weight_bounded,
        )
    return Rule(time, tick, weight, observe, ("w",), ("eta0", "lam"), 2, True, start=start, kept_for=kept_for)


FOBOS = Algorithm(
    name="fobos",
    formula="w_{t+1} = prox_{η_t ψ}(w_t − η_t g_t), η_t = eta0/√t",
    source="Togari and Yamashita 2016, Algorithm 2; Duchi and Singer 2009",
    parameters=(ETA0, LAM, STEP),
    penalties=("l1", "l2", "elastic_net", "group", "box"),
    rule=rule,
    module=__name__,
)
SG_L1 = Algorithm(
    name="sg-l1",
    formula="w_{t+1} = soft(w_t − η_t g_t, η_{t+1/2} λ); with η_{t+1/2} = η_t it is fobos",
    source="Oiwa, Matsushima and Nakagawa 2011, (2), (4)",
    parameters=(ETA0, LAM, STEP, SECOND),
    penalties=("l1",),
    rule=rule,
    module=__name__,
    why="it is the subgradient method with l1; fobos is the same recursion with others",
)
