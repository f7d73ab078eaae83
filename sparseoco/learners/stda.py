"""STDA: self-weighted truncated dual averaging; a coordinate's truncation grows with the norm of its own history.

    w_{t+1} = −(√t/γ)·soft(ḡ_t, λ·r̄_t),    r_t = min(V, ‖(g_1, …, g_t)‖_p),    r̄_t = (r_1 + … + r_t)/t,    β_t = γ√t

Source: Oiwa, Matsushima and Nakagawa (2012), Algorithm 1, (12)–(15), (18), (21); with by = "feature", (24): x for g.

Symbols: `G` = t·ḡ_t; `r` = ‖(g_1, …, g_t)‖_p; `R` = r_1 + … + r_τ up to the round before the feature's last;
`elapsed` = rounds since then, all with the current r; `scale` = −1/β_t, `lam_scale` = λ/β_t.

Why lazy is exact: outside the support g and x are 0, so G and r do not change and R grows by r per round: the
rounds since the last update are one product.

Three numbers per coordinate, one time stamp per feature.
"""

import math
from typing import NamedTuple

from sparseoco.core.compile_cache import register_jitable
from sparseoco.learners.contract import Algorithm, Rule, nonzero, round_clock
from sparseoco.learners.parameters import GAMMA, LARGER_LAM, Parameter, categorical, positive
from sparseoco.learners.sgft import P


class Params(NamedTuple):
    gamma: float
    lam: float
    V: float
    p: float
    by: float


class Scalars(NamedTuple):
    scale: float
    lam_scale: float
    V: float
    p: float
    inverse_p: float
    by_feature: float


class State(NamedTuple):
    G: float
    r: float
    R: float


@register_jitable
def round_scalars(clock, params, maps):
    inverse = 1.0 / (params.gamma * math.sqrt(clock.rounds)) if clock.rounds > 0.0 else 0.0
    return Scalars(-inverse, params.lam * inverse, params.V, params.p, 1.0 / params.p, params.by)


@register_jitable
def threshold(state, elapsed, scalars, maps):
    """r = min(V, ‖·‖_p), (21)."""
    return state.r if state.r < scalars.V else scalars.V


@register_jitable
def threshold_sum(state, elapsed, scalars, maps):
    """r_1 + … + r_t."""
    return state.R + threshold(state, elapsed, scalars, maps) * elapsed


@register_jitable
def weight(state, elapsed, scalars, maps):
    amount = scalars.lam_scale * threshold_sum(state, elapsed, scalars, maps)
    return maps.prox(scalars.scale * state.G, amount)


@register_jitable
def update(state, elapsed, scalars, gradient, row, maps):
    r = maps.grow(state.r, row.x if scalars.by_feature else gradient, scalars.p, scalars.inverse_p)
    return State(state.G + gradient, r, threshold_sum(state, elapsed, scalars, maps))


@register_jitable
def state_from_weight(w, scalars, maps):
    """A history of one gradient, or x, of size 1, and no truncation so far, R = 0."""
    return State(w / scalars.scale, nonzero(w), w - w)


RULE = Rule(
    Params,
    Scalars,
    State,
    round_scalars,
    update,
    weight=weight,
    state_from_weight=state_from_weight,
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
    penalties=("l1",),
    rules=RULE,
    why="its per-coordinate truncation, (18), is a weighted l1",
)
