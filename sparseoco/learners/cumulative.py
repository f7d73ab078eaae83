"""Cumulative truncation: each coordinate is truncated by the total penalty so far, less what it has already received.

    for j in x_t:  v = w_t − η_t g_t,    w_{t+1} = max(0, v − (h_t u_t + q_{t−1}))  where v ≥ 0
                                         w_{t+1} = min(0, v + (h_t u_t − q_{t−1}))  where v < 0
                   q_t = q_{t−1} + (w_{t+1} − v),    u_t = λ(η_{3/2} + … + η_{t+1/2})

with h = 1 (`cumulative-l1`) or h_t = min(V, ‖(u_1, …, u_t)_j‖_p) of `sgft` (`sgft-cumulative`).

Source: Tsuruoka, Tsujii and Ananiadou (2009); Oiwa, Matsushima and Nakagawa (2011), §4, (13), (14), where q on the
right of (13) is its value before the round.

Symbols: `w`, `q`, `r` = ‖(u_1, …, u_t)_j‖_p; `eta` = η_t; `total` = u_t of the current round, `past` = u_{t−1}.

Why lazy is exact: only the features of the row are truncated, so the stored weight is current.

Two numbers per coordinate, three with h; no time stamp.
"""

import math
from typing import NamedTuple

import numpy as np

from sparseoco.core.compile_cache import register_jitable
from sparseoco.learners.contract import Algorithm, Rule, extended, nonzero
from sparseoco.learners.parameters import ETA0, LAM, LARGER_LAM, SECOND, STEP
from sparseoco.learners.sgft import NO_BOUND, P, V, bounded_norm, threshold
from sparseoco.learners.sgft import Params as AwareParams

ZERO = np.float32(0)  # float32, so that arithmetic with float32 columns stays float32


class Params(NamedTuple):
    eta0: float
    lam: float


class Scalars(NamedTuple):
    eta: float
    total: float
    past: float


class State(NamedTuple):
    w: float
    q: float


AwareScalars = extended(Scalars, "V", "p", "inverse_p")


AwareState = extended(State, "r")


@register_jitable
def round_scalars(clock, params, maps):
    rate = params.eta0 * params.lam
    total = rate * (clock.truncation_sum + clock.truncation_step)
    return Scalars(params.eta0 * clock.step, total, rate * clock.truncation_sum)


@register_jitable
def truncated(v, total, q):
    """w_{t+1} of (13)."""
    low = v - (total + q)
    high = v + (total - q)
    low = low if low > ZERO else ZERO
    high = high if high < ZERO else ZERO
    return low if v >= ZERO else high


@register_jitable
def update(state, elapsed, scalars, gradient, row, maps):
    v = state.w - scalars.eta * gradient
    w = truncated(v, scalars.total, state.q)
    return State(w, state.q + (w - v))


@register_jitable
def state_from_weight(w, scalars, maps):
    """q = −sign(w)·u: a nonzero weight has received the penalty of all rounds done."""
    return State(w, -math.copysign(nonzero(w), w) * scalars.past)


@register_jitable
def round_scalars_aware(clock, params, maps):
    eta, total, past = round_scalars(clock, params, maps)
    return AwareScalars(eta, total, past, params.V if params.p <= 2.0 else NO_BOUND, params.p, 1.0 / params.p)


@register_jitable
def update_aware(state, elapsed, scalars, gradient, row, maps):
    r = maps.grow(state.r, scalars.eta * gradient, scalars.p, scalars.inverse_p)
    v = state.w - scalars.eta * gradient
    w = truncated(v, scalars.total * bounded_norm(r, scalars.V), state.q)
    return AwareState(w, state.q + (w - v), r)


@register_jitable
def state_from_weight_aware(w, scalars, maps):
    """A history of one step of size |w| that has received all of h·u."""
    r = abs(w)
    paid = scalars.past * bounded_norm(r, scalars.V)
    return AwareState(w, -math.copysign(nonzero(w), w) * paid, r)


RULE = Rule(
    Params, Scalars, State, round_scalars, update, state_from_weight=state_from_weight, stored_weight_valid_for=math.inf
)
AWARE_RULE = Rule(
    AwareParams,
    AwareScalars,
    AwareState,
    round_scalars_aware,
    update_aware,
    state_from_weight=state_from_weight_aware,
    stored_weight_valid_for=math.inf,
    threshold=threshold,
)
WHY_L1_ONLY = (
    "its running total of penalties, (14), needs a penalty that subtracts the same from every weight, as only l1 does"
)

CUMULATIVE_L1 = Algorithm(
    name="cumulative-l1",
    formula="on x_t: v = w_t − η_t g_t is truncated by u_t less the truncation so far, u_t = λ Σ η",
    source="Tsuruoka, Tsujii and Ananiadou 2009; Oiwa, Matsushima and Nakagawa 2011, (13), (14) with h = 1",
    parameters=(ETA0, LAM, STEP, SECOND),
    penalties=("l1",),
    rules=RULE,
    why=WHY_L1_ONLY,
)
SGFT_CUMULATIVE = Algorithm(
    name="sgft-cumulative",
    formula="on x_t: v = w_t − η_t g_t is truncated by h_t u_t less the truncation so far; h_t as sgft",
    source="Oiwa, Matsushima and Nakagawa 2011, (13), (14)",
    parameters=(ETA0, LARGER_LAM, P, V, STEP, SECOND),
    penalties=("l1",),
    rules=AWARE_RULE,
    why=WHY_L1_ONLY,
)
