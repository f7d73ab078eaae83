"""RDA: regularized dual averaging.

    w_{t+1} = argmin_w ⟨ḡ_t, w⟩ + ψ(w) + (β_t/t)·½‖w‖²  = −(√t/γ)·soft(ḡ_t, λ) for ψ = λ‖w‖₁,    β_t = γ√t

Source: Xiao (2010), as Oiwa et al. (2012), (3), with h = ½‖w‖².

Symbols: `G` = g_1 + … + g_t = t·ḡ_t; `scale` = −1/β_t; `amount` = tλ/β_t.

Why lazy is exact: a coordinate out of the support of g_t adds 0 to its sum, and the weight is a function of the sum and
of t alone, so nothing is ever due.

One slot a coordinate, no stamp.
"""

import math
from collections.abc import Mapping
from typing import Any

from numba.extending import register_jitable

from sparseoco.learners.contract import GAMMA, LAM, Algorithm, Rule, no_time
from sparseoco.learners.losses import Loss
from sparseoco.learners.penalties import Penalty


@register_jitable
def tick(clock, hyper):
    gamma, lam = hyper
    inverse = 1.0 / (gamma * math.sqrt(clock.n)) if clock.n > 0.0 else 0.0
    return (-inverse, clock.n * lam * inverse)


@register_jitable
def weight(slots, slept, now, prox, parts):
    (G,) = slots
    scale, amount = now
    return prox(scale * G, amount)


@register_jitable
def observe(slots, slept, now, g, x, prox, parts):
    (G,) = slots
    return (G + g,)


@register_jitable
def from_weight(w, now, preimage, parts):
    """The sum of gradients whose minimum is w."""
    scale, amount = now
    return (preimage(w, amount) / scale,)


@register_jitable
def tick_decaying(clock, hyper):
    """The minimum has λ(1 − ρ) beside β_t/t: both numbers shrink by 1/(1 + (1 − ρ)·tλ/β_t)."""
    gamma, lam, ratio = hyper
    scale, amount = tick(clock, (gamma, lam))
    shrink = 1.0 / (1.0 + amount * (1.0 - ratio))
    return (scale * shrink, amount * ratio * shrink)


@register_jitable
def tick_bounded(clock, hyper):
    gamma, R = hyper
    scale, _ = tick(clock, (gamma, 0.0))
    return (scale, R)


FORMS = {
    "additive": (tick, ("gamma", "lam")),
    "grouped": (tick, ("gamma", "lam")),
    "decaying": (tick_decaying, ("gamma", "lam", "l1_ratio")),
    "bounded": (tick_bounded, ("gamma", "R")),
}


def rule(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> Rule:
    form, hyper = FORMS[penalty.kind]
    return Rule(
        no_time, form, weight, observe, slots=("G",), hyper=hyper, ticks=2, stamped=False, from_weight=from_weight
    )


RDA = Algorithm(
    name="rda",
    formula="w_{t+1} = argmin ⟨ḡ_t, w⟩ + ψ(w) + γ/(2√t)·‖w‖², ḡ_t the mean of g_1 … g_t",
    source="Xiao 2010; Oiwa, Matsushima and Nakagawa 2012, (3)",
    parameters=(GAMMA, LAM),
    penalties=("l1", "l2", "elastic_net", "group", "box"),
    rule=rule,
    module=__name__,
)
