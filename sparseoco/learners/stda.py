"""STDA: self-weighted truncated dual averaging; a coordinate's truncation grows with the norm of its own history.

    w_{t+1} = −(√t/γ)·soft(ḡ_t, λ·r̄_t),    r_t = min(V, ‖(g_1, …, g_t)‖_p),    r̄_t = (r_1 + … + r_t)/t,    β_t = γ√t

Source: Oiwa, Matsushima and Nakagawa (2012), Algorithm 1, (12)–(15), (18), (21); with by = "feature", (24): x for g.

Symbols: `G` = t·ḡ_t; `r` = ‖(g_1, …, g_t)‖_p; `R` = r_1 + … + r_τ up to the round before the coordinate's last;
`slept` = rounds since then, all of them with today's r; `scale` = −1/β_t, `lam_scale` = λ/β_t.

Why lazy is exact: out of the support g and x are 0, so G and r stand still and R grows by r a round: the rounds slept
are one product.

Three slots a coordinate, one stamp a feature.
"""

import math
from collections.abc import Mapping
from typing import Any

from numba.extending import register_jitable

from sparseoco.learners.contract import GAMMA, LAM, Algorithm, Parameter, Rule, no_time, nonzero, one_of, positive
from sparseoco.learners.losses import Loss
from sparseoco.learners.norms import growth_of_order, order
from sparseoco.learners.penalties import Penalty


@register_jitable
def time(clock):
    return clock.n


@register_jitable
def tick(clock, hyper):
    gamma, lam, V, p, by_feature = hyper
    inverse = 1.0 / (gamma * math.sqrt(clock.n)) if clock.n > 0.0 else 0.0
    return (-inverse, lam * inverse, V, p, 1.0 / p, by_feature)


@register_jitable
def threshold_now(slots, slept, now, prox, parts):
    """r = min(V, ‖·‖_p), (21)."""
    _, r, _ = slots
    _, _, V, _, _, _ = now
    return r if r < V else V


@register_jitable
def truncation_slept_through(slots, slept, now, prox, parts):
    """r_1 + … + r_t."""
    _, _, R = slots
    return R + threshold_now(slots, slept, now, prox, parts) * slept


@register_jitable
def weight(slots, slept, now, prox, parts):
    G, _, _ = slots
    scale, lam_scale, _, _, _, _ = now
    return prox(scale * G, lam_scale * truncation_slept_through(slots, slept, now, prox, parts))


@register_jitable
def observe(slots, slept, now, g, x, prox, parts):
    G, r, _ = slots
    _, _, _, p, inverse_p, by_feature = now
    grow, _ = parts
    longer = grow(r, x if by_feature else g, p, inverse_p)
    return (G + g, longer, truncation_slept_through(slots, slept, now, prox, parts))


@register_jitable
def from_weight(w, now, preimage, parts):
    """A history of one gradient, or x, of size 1; truncated from here on, R = 0."""
    scale, _, _, _, _, _ = now
    return (w / scale, nonzero(w), w - w)


HISTORIES = ("subgradient", "feature")


def rule(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> Rule:
    hyper = ("gamma", "lam", "V", "p", "by")
    parts = (growth_of_order(parameters["p"]), no_time)
    return Rule(
        time,
        tick,
        weight,
        observe,
        ("G", "r", "R"),
        hyper,
        6,
        True,
        parts,
        threshold=threshold_now,
        from_weight=from_weight,
    )


STDA = Algorithm(
    name="stda",
    formula="w_{t+1} = −(√t/γ)·soft(ḡ_t, λ·r̄_t), r̄_t the mean of r_τ = min(V, ‖(g_1 … g_τ)‖_p)",
    source="Oiwa, Matsushima and Nakagawa 2012, Algorithm 1, (18), (21), (24)",
    parameters=(
        GAMMA,
        LAM._replace(grid=(1e-5, 1e-4, 3e-4, 1e-3)),
        Parameter("p", 2, "order of the norm of a coordinate's history, ≥ 1 or inf", order, static=True),
        Parameter(
            "by", HISTORIES[0], "whose norm r is, the subgradient's or x's", one_of(*HISTORIES), choices=HISTORIES
        ),
        Parameter("V", 1e8, "bound of r", positive),
    ),
    penalties=("l1",),
    rule=rule,
    module=__name__,
    why="a truncation that is a coordinate's own, (18), is a weighted l1",
)
