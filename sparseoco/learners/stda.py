"""STDA: self-weighted truncated dual averaging; a coordinate's truncation grows with the norm of its own history.

    w_{t+1} = −(√t/γ)·soft(ḡ_t, λ·r̄_t),    r_t = min(V, ‖(g_1, …, g_t)‖_p),    r̄_t = (r_1 + … + r_t)/t,    β_t = γ√t

Source: Oiwa, Matsushima and Nakagawa (2012), Algorithm 1, (12)–(15), (18), (21); with by = "feature", (24): x for g.

Symbols: `G` = t·ḡ_t; `u` as (12); `R` = r_1 + … + r_τ up to the round before the coordinate's last; `slept` = rounds
since then, all of them with today's r; `scale` = −1/β_t, `lam_scale` = λ/β_t.

Why lazy is exact: out of the support g and x are 0, so G and r stand still and R grows by r a round: the rounds slept
are one product.

Three slots a coordinate, one stamp a feature.
"""

import math
from collections.abc import Mapping
from typing import Any

from numba.extending import register_jitable

from sparseoco.learners.definition import GAMMA, LAM, Algorithm, Parameter, Rule, positive
from sparseoco.learners.norms import grow, norm, order
from sparseoco.losses import Loss
from sparseoco.penalties import Penalty


@register_jitable
def time(clock):
    return clock.n


@register_jitable
def tick(clock, hyper):
    gamma, lam, V = hyper
    inverse = 1.0 / (gamma * math.sqrt(clock.n)) if clock.n > 0.0 else 0.0
    return (-inverse, lam * inverse, V)


@register_jitable
def truncation(u, V, static):
    """r = min(V, ‖·‖_p), (21)."""
    p, inverse_p, _ = static
    r = norm(u, p, inverse_p)
    return r if r < V else V


@register_jitable
def weight(slots, slept, now, prox, static):
    G, u, R = slots
    scale, lam_scale, V = now
    return prox(scale * G, lam_scale * (R + truncation(u, V, static) * slept))


@register_jitable
def observe(slots, slept, now, g, x, prox, static):
    G, u, R = slots
    _, _, V = now
    p, _, by_feature = static
    due = R + truncation(u, V, static) * slept
    return (G + g, grow(u, x if by_feature else g, p), due)


def source_of_weights(value: Any) -> str:
    """Which history the truncation is weighted by."""
    if value not in ("subgradient", "feature"):
        raise ValueError("must be subgradient or feature")
    return str(value)


def rule(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> Rule:
    p = float(parameters["p"])
    static = (p, 1.0 / p, float(parameters["by"] == "feature"))
    return Rule(time, tick, weight, observe, ("G", "u", "R"), ("gamma", "lam", "V"), 3, True, static)


STDA = Algorithm(
    name="stda",
    formula="w_{t+1} = −(√t/γ)·soft(ḡ_t, λ·r̄_t), r̄_t the mean of r_τ = min(V, ‖(g_1 … g_τ)‖_p)",
    source="Oiwa, Matsushima and Nakagawa 2012, Algorithm 1, (18), (21), (24)",
    parameters=(
        GAMMA,
        LAM,
        Parameter("p", 2, "order of the norm of a coordinate's history, ≥ 1 or inf", order, static=True),
        Parameter(
            "by", "subgradient", "weigh by the subgradient or by the feature's values", source_of_weights, static=True
        ),
        Parameter("V", 1e8, "bound of r", positive),
    ),
    penalties=("l1",),
    rule=rule,
    module=__name__,
)
