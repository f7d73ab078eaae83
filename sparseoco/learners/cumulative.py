"""Cumulative truncation: a coordinate pays what it would have paid by now, less what it has paid already.

    for j in x_t:  v = w_t − η_t g_t,    w_{t+1} = max(0, v − (h_t u_t + q_{t−1}))  where v ≥ 0
                                         w_{t+1} = min(0, v + (h_t u_t − q_{t−1}))  where v < 0
                   q_t = q_{t−1} + (w_{t+1} − v),    u_t = λ(η_{3/2} + … + η_{t+1/2})

with h = 1 (`cumulative-l1`) or h_t = min(V, ‖(u_1, …, u_t)_j‖_p) of `sgft` (`sgft-cumulative`).

Source: Tsuruoka, Tsujii and Ananiadou (2009); Oiwa, Matsushima and Nakagawa (2011), §4, (13), (14), where q on the
right of (13) is its value before the round.

Symbols: `w`, `q`, `r` = ‖(u_1, …, u_t)_j‖_p; `eta` = η_t; `total` = u_t of the round being played, `past` = u_{t−1}.

Why lazy is exact: only the features of the row are truncated, so `weight` is what is stored.

Two slots a coordinate, three with h; no stamp.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numba.extending import register_jitable

from sparseoco.learners.contract import ETA0, LAM, SECOND, STEP, Algorithm, Rule, begin, no_time, nonzero
from sparseoco.learners.losses import Loss
from sparseoco.learners.norms import growth_of_order
from sparseoco.learners.penalties import Penalty
from sparseoco.learners.sgft import NO_BOUND, P, V, threshold

ZERO = np.float32(0)  # of a type that does not widen float32 columns


@register_jitable
def tick(clock, hyper):
    eta0, lam = hyper
    rate = eta0 * lam
    return (eta0 * clock.s, rate * (clock.S_half + clock.s_half), rate * clock.S_half)


@register_jitable
def tick_aware(clock, hyper):
    eta0, lam, V, p = hyper
    eta, total, past = tick(clock, (eta0, lam))
    return (eta, total, past, V if p <= 2.0 else NO_BOUND, p, 1.0 / p)


@register_jitable
def truncated(v, total, q):
    """(13)."""
    low = v - (total + q)
    high = v + (total - q)
    low = low if low > ZERO else ZERO
    high = high if high < ZERO else ZERO
    return low if v >= ZERO else high


@register_jitable
def weight(slots, slept, now, prox, parts):
    return slots[0]


@register_jitable
def threshold_now(slots, slept, now, prox, parts):
    _, _, r = slots
    _, _, _, V, _, _ = now
    return threshold(r, V)


@register_jitable
def observe(slots, slept, now, g, x, prox, parts):
    w, q = slots
    eta, total, _ = now
    v = w - eta * g
    w_next = truncated(v, total, q)
    return (w_next, q + (w_next - v))


@register_jitable
def observe_aware(slots, slept, now, g, x, prox, parts):
    w, q, r = slots
    eta, total, _, V, p, inverse_p = now
    grow, _ = parts
    r_next = grow(r, eta * g, p, inverse_p)
    v = w - eta * g
    w_next = truncated(v, total * threshold(r_next, V), q)
    return (w_next, q + (w_next - v), r_next)


@register_jitable
def from_weight(w, now, preimage, parts):
    """q = −sign(w)·u: a weight that is not 0 has paid for all rounds done."""
    _, _, past = now
    return (w, -math.copysign(nonzero(w), w) * past)


@register_jitable
def from_weight_aware(w, now, preimage, parts):
    """A history of one step of size |w|; all was paid, h·u."""
    _, _, past, V, _, _ = now
    r = abs(w)
    w, q = from_weight(w, (past, past, past * threshold(r, V)), preimage, parts)
    return (w, q, r)


def rule(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> Rule:
    return Rule(
        no_time,
        tick,
        weight,
        observe,
        ("w", "q"),
        ("eta0", "lam"),
        3,
        False,
        start=begin(parameters),
        kept_for=math.inf,
        from_weight=from_weight,
    )


def rule_aware(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> Rule:
    parts = (growth_of_order(parameters["p"]), no_time)
    hyper = ("eta0", "lam", "V", "p")
    return Rule(
        no_time,
        tick_aware,
        weight,
        observe_aware,
        ("w", "q", "r"),
        hyper,
        6,
        False,
        parts,
        start=begin(parameters),
        kept_for=math.inf,
        from_weight=from_weight_aware,
        threshold=threshold_now,
    )


WHY_L1_ONLY = (
    "a running total of what was paid, (14), needs a penalty that takes the same from every weight, as only l1 does"
)

CUMULATIVE_L1 = Algorithm(
    name="cumulative-l1",
    formula="on x_t: v = w_t − η_t g_t is truncated by u_t less what the coordinate has paid, u_t = λ Σ η",
    source="Tsuruoka, Tsujii and Ananiadou 2009; Oiwa, Matsushima and Nakagawa 2011, (13), (14) with h = 1",
    parameters=(ETA0, LAM, STEP, SECOND),
    penalties=("l1",),
    rule=rule,
    module=__name__,
    why=WHY_L1_ONLY,
)
SGFT_CUMULATIVE = Algorithm(
    name="sgft-cumulative",
    formula="on x_t: v = w_t − η_t g_t is truncated by h_t u_t less what the coordinate has paid; h_t as sgft",
    source="Oiwa, Matsushima and Nakagawa 2011, (13), (14)",
    parameters=(ETA0, LAM._replace(grid=(1e-6, 1e-5, 1e-4, 1e-3)), P, V, STEP, SECOND),
    penalties=("l1",),
    rule=rule_aware,
    module=__name__,
    why=WHY_L1_ONLY,
)
