"""FOBOS: a gradient step, then the proximal map of every coordinate, every round.

    w_{t+1} = prox_{η_t ψ}(w_t − η_t g_t),    η_t = eta0/√t

Source: Togari and Yamashita (2016), Algorithm 2, (5)–(6); the recursion SG-L1 of Oiwa et al. (2011), (4), is the same.

Symbols: `w` is what the last gradient step left, its own round's prox still due; `eta` = η_t; `rate` = eta0·λ;
`slept` = Σ 1/√τ over the rounds whose prox is due.

Why lazy is exact: a coordinate out of the support of g_t only meets the prox, and the proximal maps of a|w| add up
(Property 1 there): soft(soft(w, a), b) = soft(w, a + b). So the rounds slept are one soft-threshold with the sum of
their steps, which is eta0·λ times a difference of one sum shared by all columns. The prox of a coordinate's own round
waits with the others, so reading never writes.

One slot a coordinate, one stamp a feature.
"""

from collections.abc import Mapping
from typing import Any

from numba.extending import register_jitable

from sparseoco.learners.definition import ETA0, LAM, SECOND, STEP, Algorithm, Rule, begin
from sparseoco.losses import Loss
from sparseoco.penalties import Penalty


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


def rule(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> Rule:
    return Rule(time, tick, weight, observe, ("w",), ("eta0", "lam"), 2, True, start=begin(parameters))


FOBOS = Algorithm(
    name="fobos",
    formula="w_{t+1} = prox_{η_t ψ}(w_t − η_t g_t), η_t = eta0/√t",
    source="Togari and Yamashita 2016, Algorithm 2; Duchi and Singer 2009",
    parameters=(ETA0, LAM, STEP),
    penalties=("l1",),
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
)
