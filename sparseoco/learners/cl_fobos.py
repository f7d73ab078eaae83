"""CL-FOBOS: FOBOS with component-wise lazy evaluation; only the support of the gradient is touched.

    for i in the support of g_t:  w_{t+1} = prox_{a ψ}(w_t − η_t g_t),  a = Σ η_τ over the rounds since i's last update,
    this one included; other coordinates keep their value.   η_t = eta0/√t

Source: Togari and Yamashita (2016), Algorithm 4, (8)–(10).

Symbols: `w` is the iterate itself; `eta` = η_t; `rate` = eta0·λ; `slept` = Σ 1/√τ over the rounds since the feature was
last in a row, this one included; `owed` = the part of that sum that earlier rows left unpaid.

Why lazy is exact: the algorithm is its own lazy form, so `weight` is what is stored and nothing is ever due on reading.
Where the slope can be exactly zero (hinge), the support of g_t is then empty and the charge waits: it is kept in
`owed`, a column's own, and the stamp stays one a feature. The logistic slope is never zero, also where it underflows.

With ½w² in the penalty the maps of Step 2 multiply, as in `fobos`: what a coordinate is charged is the growth of P
since the round it was charged last, which waits by itself where the slope is zero.

One slot a coordinate (two where the slope can vanish, or with ½w²), one stamp a feature.
"""

import math
from collections.abc import Mapping
from typing import Any

from numba.extending import register_jitable

from sparseoco.learners.contract import ETA0, LAM, STEP, Algorithm, Rule, begin, no_time, weight_itself
from sparseoco.learners.fobos import DECAYING, decayed, from_weight_bounded, run_decaying, tick, tick_bounded
from sparseoco.learners.losses import Loss
from sparseoco.learners.penalties import Penalty


@register_jitable
def time(clock):
    return clock.S + clock.s


@register_jitable
def paid_at(clock):
    """As after a round that the feature was in."""
    return clock.S


@register_jitable
def weight(slots, slept, now, prox, parts):
    return slots[0]


@register_jitable
def observe(slots, slept, now, g, x, prox, parts):
    (w,) = slots
    eta, rate = now
    return (prox(w - eta * g, rate * slept),)


@register_jitable
def observe_vanishing(slots, slept, now, g, x, prox, parts):
    w, owed = slots
    eta, rate = now
    due = owed + slept
    stepped = prox(w - eta * g, rate * due)
    asleep = g == 0
    return (w if asleep else stepped, due if asleep else owed - owed)


@register_jitable
def tick_decaying(clock, hyper):
    eta0, _, ratio, P_past, _ = hyper
    _, _, _, P, _ = run_decaying(clock, hyper)
    return (eta0 * clock.s, P, ratio / (1.0 - ratio), P_past)


@register_jitable
def observe_decaying(slots, slept, now, g, x, prox, parts):
    w, P_then = slots
    eta, P, kappa, _ = now
    return (decayed(w - eta * g, P_then, P, kappa, prox), P)


@register_jitable
def observe_decaying_vanishing(slots, slept, now, g, x, prox, parts):
    w, P_then = slots
    stepped, P = observe_decaying(slots, slept, now, g, x, prox, parts)
    asleep = g == 0
    return (w if asleep else stepped, P_then if asleep else P)


@register_jitable
def observe_bounded(slots, slept, now, g, x, prox, parts):
    (w,) = slots
    eta, R = now
    return (prox(w - eta * g, R),)


@register_jitable
def from_weight_decaying(w, now, preimage, parts):
    _, _, _, P_past = now
    return (w, P_past)


@register_jitable
def from_weight_vanishing(w, now, preimage, parts):
    return (w, w - w)


def rule(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> Rule:
    start = begin(parameters)
    if penalty.kind == "decaying":
        step = observe_decaying_vanishing if loss.slope_vanishes else observe_decaying
        return Rule(
            no_time,
            tick_decaying,
            weight,
            step,
            ("w", "P"),
            **(DECAYING | {"from_weight": from_weight_decaying}),
            ticks=4,
            stamped=False,
            start=start,
            kept_for=math.inf,
        )
    if penalty.kind == "bounded":
        return Rule(
            no_time,
            tick_bounded,
            weight,
            observe_bounded,
            ("w",),
            ("eta0", "R"),
            2,
            False,
            start=start,
            kept_for=math.inf,
            from_weight=from_weight_bounded,
        )
    if loss.slope_vanishes:
        charged = {"slots": ("w", "owed"), "observe": observe_vanishing, "from_weight": from_weight_vanishing}
    else:
        charged = {"slots": ("w",), "observe": observe, "from_weight": weight_itself}
    return Rule(
        time,
        tick,
        weight,
        **charged,
        hyper=("eta0", "lam"),
        ticks=2,
        stamped=True,
        start=start,
        kept_for=math.inf,
        paid_at=paid_at,
    )


CL_FOBOS = Algorithm(
    name="cl-fobos",
    formula="on the support of g_t: w_{t+1} = prox_{a ψ}(w_t − η_t g_t), a = Σ η_τ since its last; η_t = eta0/√t",
    source="Togari and Yamashita 2016, Algorithm 4, (10)",
    parameters=(ETA0, LAM, STEP),
    penalties=("l1", "l2", "elastic_net", "box"),
    rule=rule,
    module=__name__,
    why="it is charged coordinate by coordinate, each on the support of the gradient",
)
