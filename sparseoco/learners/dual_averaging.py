"""Dual averaging: RDA, and STDA below. RDA is regularized dual averaging:

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
from sparseoco.learners.contract import Algorithm, Rule, nonzero, round_clock
from sparseoco.learners.parameters import GAMMA, LAM, LARGER_LAM, Parameter, categorical, positive
from sparseoco.learners.sgft import P


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


# ----------------------------------------------------------------------------------------------------------------------
# STDA: self-weighted truncated dual averaging; a coordinate's truncation grows with the norm of its own history.
#
#     w_{t+1} = −(√t/γ)·soft(ḡ_t, λ·r̄_t),    r_t = min(V, ‖(g_1, …, g_t)‖_p),    r̄_t = (r_1 + … + r_t)/t,    β_t = γ√t
#
# Source: Oiwa, Matsushima and Nakagawa (2012), Algorithm 1, (12)–(15), (18), (21); with by = "feature", (24):
# x for g.
#
# Symbols: `G` = t·ḡ_t; `r` = ‖(g_1, …, g_t)‖_p; `R` = r_1 + … + r_τ up to the round before the feature's last;
# `elapsed` = rounds since then, all with the current r; `scale` = −1/β_t, `lam_scale` = λ/β_t.
#
# Why lazy is exact: outside the support g and x are 0, so G and r do not change and R grows by r per round: the
# rounds since the last update are one product.
#
# Three numbers per coordinate, one time stamp per feature.


class StdaParams(NamedTuple):
    gamma: float
    lam: float
    V: float
    p: float
    by: float


class StdaScalars(NamedTuple):
    scale: float
    lam_scale: float
    V: float
    p: float
    inverse_p: float
    by_feature: float


class StdaState(NamedTuple):
    G: float
    r: float
    R: float


@register_jitable
def round_scalars_stda(clock, params, maps):
    inverse = 1.0 / (params.gamma * math.sqrt(clock.rounds)) if clock.rounds > 0.0 else 0.0
    return StdaScalars(-inverse, params.lam * inverse, params.V, params.p, 1.0 / params.p, params.by)


@register_jitable
def threshold(state, elapsed, scalars, maps):
    """r = min(V, ‖·‖_p), (21)."""
    return state.r if state.r < scalars.V else scalars.V


@register_jitable
def threshold_sum(state, elapsed, scalars, maps):
    """r_1 + … + r_t."""
    return state.R + threshold(state, elapsed, scalars, maps) * elapsed


@register_jitable
def weight_stda(state, elapsed, scalars, maps):
    amount = scalars.lam_scale * threshold_sum(state, elapsed, scalars, maps)
    return maps.prox(scalars.scale * state.G, amount)


@register_jitable
def update_stda(state, elapsed, scalars, gradient, row, maps):
    r = maps.grow(state.r, row.x if scalars.by_feature else gradient, scalars.p, scalars.inverse_p)
    return StdaState(state.G + gradient, r, threshold_sum(state, elapsed, scalars, maps))


@register_jitable
def state_from_weight_stda(w, scalars, maps):
    """A history of one gradient, or x, of size 1, and no truncation so far, R = 0."""
    return StdaState(w / scalars.scale, nonzero(w), w - w)


RULE = Rule(
    StdaParams,
    StdaScalars,
    StdaState,
    round_scalars_stda,
    update_stda,
    weight=weight_stda,
    state_from_weight=state_from_weight_stda,
    clock_time=round_clock,
    threshold=threshold,
)
STDA = Algorithm(
    name="stda",
    formula="w_{t+1} = −(√t/γ)·soft(ḡ_t, λ·r̄_t), r̄_t the mean of r_τ = min(V, ‖(g_1 … g_τ)‖_p)",
    source="Oiwa, Matsushima and Nakagawa 2012, Algorithm 1, (18), (21), (24)",
    parameters=(
        GAMMA,
        LARGER_LAM._replace(grid=(1e-5, 1e-4, 3e-4, 1e-3)),
        P,
        categorical("by", ("subgradient", "feature"), "history in the norm r: subgradients or x", static=False),
        Parameter("V", 1e8, "bound of r", positive),
    ),
    rules=RULE,
    why="its per-coordinate truncation, (18), is a weighted l1",
)
