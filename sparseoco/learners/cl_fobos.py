"""CL-FOBOS: FOBOS with component-wise lazy evaluation; only the support of the gradient is touched.

    for i in the support of g_t:  w_{t+1} = prox_{a ψ}(w_t − η_t g_t),  a = Σ η_τ over the rounds since i's last update,
    this one included; other coordinates keep their value.   η_t = eta0/√t

Source: Togari and Yamashita (2016), Algorithm 4, (8)–(10).

Symbols: `w` is the iterate itself; `eta` = η_t; `rate` = eta0·λ; `slept` = Σ 1/√τ over the rounds since the feature was
last in a row, this one included; `owed` = the part of that sum that earlier rows left unpaid.

Why lazy is exact: the algorithm is its own lazy form, so `weight` is what is stored and nothing is ever due on reading.
Where the slope can be exactly zero (hinge), the support of g_t is then empty and the charge waits: it is kept in
`owed`, a column's own, and the stamp stays one a feature. The logistic slope is never zero, also where it underflows.

One slot a coordinate (two where the slope can vanish), one stamp a feature.
"""

from collections.abc import Mapping
from typing import Any

from numba.extending import register_jitable

from sparseoco.learners.definition import ETA0, LAM, STEP, Algorithm, Rule, begin
from sparseoco.learners.fobos import tick
from sparseoco.losses import Loss
from sparseoco.penalties import Penalty


@register_jitable
def time(clock):
    return clock.S + clock.s


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


def rule(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> Rule:
    start = begin(parameters)
    if loss.slope_vanishes:
        return Rule(
            time, tick, weight, observe_vanishing, ("w", "owed"), ("eta0", "lam"), ticks=2, stamped=True, start=start
        )
    return Rule(time, tick, weight, observe, ("w",), ("eta0", "lam"), ticks=2, stamped=True, start=start)


CL_FOBOS = Algorithm(
    name="cl-fobos",
    formula="on the support of g_t: w_{t+1} = prox_{a ψ}(w_t − η_t g_t), a = Σ η_τ since its last; η_t = eta0/√t",
    source="Togari and Yamashita 2016, Algorithm 4, (10)",
    parameters=(ETA0, LAM, STEP),
    penalties=("l1",),
    rule=rule,
    module=__name__,
)
