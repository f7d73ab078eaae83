"""RDA: regularized dual averaging.

    w_{t+1} = argmin_w ⟨ḡ_t, w⟩ + ψ(w) + (β_t/t)·½‖w‖²  = −(√t/γ)·soft(ḡ_t, λ) for ψ = λ‖w‖₁,    β_t = γ√t

Source: Xiao (2010), as Oiwa et al. (2012), (3), with h = ½‖w‖².

Symbols: `G` = g_1 + … + g_t = t·ḡ_t; `scale` = −1/β_t; `amount` = tλ/β_t. With ½w² in ψ, λ(1 − ρ) is
added to β_t/t: both scalars shrink by 1/(1 + (1 − ρ)·tλ/β_t). For a box, `amount` is its R.

Why lazy is exact: a coordinate outside the support of g_t adds 0 to its sum, and the weight is a function of the sum
and t.

One number per coordinate, no time stamp.
"""

import math
from typing import NamedTuple

from sparseoco.core.compile_cache import register_jitable
from sparseoco.learners.contract import Algorithm, Rule
from sparseoco.learners.parameters import GAMMA, LAM


class Params(NamedTuple):
    gamma: float
    lam: float
    l1_ratio: float
    R: float


class Scalars(NamedTuple):
    scale: float
    amount: float


class State(NamedTuple):
    G: float


@register_jitable
def round_scalars(clock, params, maps):
    inverse = 1.0 / (params.gamma * math.sqrt(clock.rounds)) if clock.rounds > 0.0 else 0.0
    amount, ridge = maps.split(clock.rounds * params.lam * inverse, params)
    shrink = 1.0 / (1.0 + ridge)
    return Scalars(-inverse * shrink, maps.scaled(amount, shrink))


@register_jitable
def weight(state, elapsed, scalars, maps):
    return maps.prox(scalars.scale * state.G, scalars.amount)


@register_jitable
def update(state, elapsed, scalars, gradient, row, maps):
    return State(state.G + gradient)


@register_jitable
def state_from_weight(w, scalars, maps):
    """The sum of gradients whose minimum is w."""
    return State(maps.preimage(w, scalars.amount) / scalars.scale)


RDA = Algorithm(
    name="rda",
    formula="w_{t+1} = argmin ⟨ḡ_t, w⟩ + ψ(w) + γ/(2√t)·‖w‖², ḡ_t the mean of g_1 … g_t",
    source="Xiao 2010; Oiwa, Matsushima and Nakagawa 2012, (3)",
    parameters=(GAMMA, LAM),
    penalties=("l1", "l2", "elastic_net", "group", "box"),
    rules=Rule(Params, Scalars, State, round_scalars, update, weight=weight, state_from_weight=state_from_weight),
)
