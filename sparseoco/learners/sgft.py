"""SGFT: the subgradient method with frequency-aware truncation, a coordinate's own history setting its threshold.

    w_{t+1} = soft(w_t − η_t g_t, η_{t+1/2}·λ·h_t),    h_t = min(V, ‖(u_1, …, u_t)‖_p),    u_t = −η_t g_t

Source: Oiwa, Matsushima and Nakagawa (2011), (5), (6), lazy (11), (12); V bounds h where p ≤ 2 only, (9).

Symbols: `w` is what the last gradient step left, its own round's truncation still due; `r` = ‖(u_1, …, u_t)‖_p, that
round's u included; `eta` = η_t; `rate` = eta0·λ; `slept` = Σ s_τ over the rounds whose truncation
is due, η_{τ+1/2} = eta0·s_τ.

Why lazy is exact: a sleeping coordinate has u = 0, so h stands still, and soft-thresholds with one h add up. h = 1 is
SG-L1 (`fobos`).

Two slots a coordinate, one stamp a feature.
"""

from collections.abc import Mapping
from typing import Any

from numba.extending import register_jitable

from sparseoco.learners.contract import ETA0, LAM, SECOND, STEP, Algorithm, Parameter, Rule, begin, no_time, positive
from sparseoco.learners.fobos import time
from sparseoco.learners.losses import Loss
from sparseoco.learners.norms import growth_of_order, order
from sparseoco.learners.penalties import Penalty

NO_BOUND = 3e38  # the largest round number of float32


@register_jitable
def tick(clock, hyper):
    eta0, lam, V, p = hyper
    return (eta0 * clock.s, eta0 * lam, V if p <= 2.0 else NO_BOUND, p, 1.0 / p)


@register_jitable
def threshold(r, V):
    """h = min(V, ‖·‖_p)."""
    return r if r < V else V


@register_jitable
def threshold_now(slots, slept, now, prox, parts):
    _, r = slots
    _, _, V, _, _ = now
    return threshold(r, V)


@register_jitable
def weight(slots, slept, now, prox, parts):
    w, r = slots
    _, rate, V, _, _ = now
    return prox(w, rate * slept * threshold(r, V))


@register_jitable
def observe(slots, slept, now, g, x, prox, parts):
    _, r = slots
    eta, _, _, p, inverse_p = now
    grow, _ = parts
    return (weight(slots, slept, now, prox, parts) - eta * g, grow(r, eta * g, p, inverse_p))


@register_jitable
def from_weight(w, now, preimage, parts):
    """A history of one step of size |w|."""
    return (w, abs(w))


def rule(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> Rule:
    return Rule(
        time,
        tick,
        weight,
        observe,
        slots=("w", "r"),
        hyper=("eta0", "lam", "V", "p"),
        ticks=5,
        stamped=True,
        parts=(growth_of_order(parameters["p"]), no_time),
        start=begin(parameters),
        threshold=threshold_now,
        from_weight=from_weight,
    )


P = Parameter("p", 2, "order of the norm of a coordinate's history, ≥ 1 or inf", order, static=True)
V = Parameter("V", 500.0, "bound of h, for p ≤ 2", positive)
WHY_L1_ONLY = "its thresholds are what makes it, and only l1 has thresholds"

SGFT = Algorithm(
    name="sgft",
    formula="w_{t+1} = soft(w_t − η_t g_t, η_{t+1/2} λ h_t), h_t = min(V, ‖(u_1 … u_t)‖_p), u = −η g",
    source="Oiwa, Matsushima and Nakagawa 2011, (5), (6), (9), (12)",
    parameters=(ETA0, LAM._replace(grid=(1e-6, 1e-5, 1e-4, 1e-3)), P, V, STEP, SECOND),
    penalties=("l1",),
    rule=rule,
    module=__name__,
    why=WHY_L1_ONLY,
)
