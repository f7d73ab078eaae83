"""SGFT: the subgradient method with frequency-aware truncation; a coordinate's own history sets its threshold.

    w_{t+1} = soft(w_t − η_t g_t, η_{t+1/2}·λ·h_t),    h_t = min(V, ‖(u_1, …, u_t)‖_p),    u_t = −η_t g_t

Source: Oiwa, Matsushima and Nakagawa (2011), (5), (6), lazy (11), (12); V bounds h only if p ≤ 2, (9).

Symbols: `w` is the weight after the last gradient step, before that round's truncation; `r` = ‖(u_1, …, u_t)‖_p,
including that round's u; `eta` = η_t; `rate` = eta0·λ; `elapsed` = Σ s_τ over the rounds whose truncation is pending,
η_{τ+1/2} = eta0·s_τ.

Why lazy is exact: a coordinate not in the row has u = 0, so h does not change, and soft-thresholds with one h add
up. h = 1 is SG-L1 (`fobos`).

Two numbers per coordinate, one time stamp per feature.
"""

import math
from typing import NamedTuple

import numpy as np

from sparseoco.core.compile_cache import register_jitable
from sparseoco.learners.contract import Algorithm, Rule, extended, nonzero
from sparseoco.learners.domains import order
from sparseoco.learners.fobos import truncation_clock
from sparseoco.learners.parameters import ETA0, LAM, LARGER_LAM, SECOND, STEP, Parameter, positive

NO_BOUND = 3e38  # the largest round number of float32


class Params(NamedTuple):
    eta0: float
    lam: float
    V: float
    p: float


class Scalars(NamedTuple):
    eta: float
    rate: float
    V: float
    p: float
    inverse_p: float


class State(NamedTuple):
    w: float
    r: float


@register_jitable
def round_scalars(clock, params, maps):
    V = params.V if params.p <= 2.0 else NO_BOUND
    return Scalars(params.eta0 * clock.step, params.eta0 * params.lam, V, params.p, 1.0 / params.p)


@register_jitable
def bounded_norm(r, V):
    """h = min(V, ‖·‖_p)."""
    return r if r < V else V


@register_jitable
def threshold(state, elapsed, scalars, maps):
    """The current h of a coordinate."""
    return bounded_norm(state.r, scalars.V)


@register_jitable
def weight(state, elapsed, scalars, maps):
    return maps.prox(state.w, scalars.rate * elapsed * threshold(state, elapsed, scalars, maps))


@register_jitable
def update(state, elapsed, scalars, gradient, row, maps):
    u = scalars.eta * gradient
    r = maps.grow(state.r, u, scalars.p, scalars.inverse_p)
    return State(weight(state, elapsed, scalars, maps) - u, r)


@register_jitable
def state_from_weight(w, scalars, maps):
    """A history of one step of size |w|."""
    return State(w, abs(w))


P = Parameter("p", 2, "order of the norm of a coordinate's history, ≥ 1 or inf", order, static=True)
V = Parameter("V", 500.0, "bound of h, for p ≤ 2", positive)
WHY_L1_ONLY = "it is defined by per-coordinate thresholds, and only l1 has thresholds"

RULE = Rule(
    Params,
    Scalars,
    State,
    round_scalars,
    update,
    weight=weight,
    state_from_weight=state_from_weight,
    clock_time=truncation_clock,
    threshold=threshold,
)
SGFT = Algorithm(
    name="sgft",
    formula="w_{t+1} = soft(w_t − η_t g_t, η_{t+1/2} λ h_t), h_t = min(V, ‖(u_1 … u_t)‖_p), u = −η g",
    source="Oiwa, Matsushima and Nakagawa 2011, (5), (6), (9), (12)",
    parameters=(ETA0, LARGER_LAM, P, V, STEP, SECOND),
    rules=RULE,
    why=WHY_L1_ONLY,
)


# ----------------------------------------------------------------------------------------------------------------------
# Cumulative truncation: each coordinate is truncated by the total penalty so far, less what it has already received.
#
#     for j in x_t:  v = w_t − η_t g_t,    w_{t+1} = max(0, v − (h_t u_t + q_{t−1}))  where v ≥ 0
#                                          w_{t+1} = min(0, v + (h_t u_t − q_{t−1}))  where v < 0
#                    q_t = q_{t−1} + (w_{t+1} − v),    u_t = λ(η_{3/2} + … + η_{t+1/2})
#
# with h = 1 (`cumulative-l1`) or h_t = min(V, ‖(u_1, …, u_t)_j‖_p) of `sgft` (`sgft-cumulative`).
#
# Source: Tsuruoka, Tsujii and Ananiadou (2009); Oiwa, Matsushima and Nakagawa (2011), §4, (13), (14), where q on the
# right of (13) is its value before the round.
#
# Symbols: `w`, `q`, `r` = ‖(u_1, …, u_t)_j‖_p; `eta` = η_t; `total` = u_t of the current round, `past` = u_{t−1}.
#
# Why lazy is exact: only the features of the row are truncated, so the stored weight is current.
#
# Two numbers per coordinate, three with h; no time stamp.


ZERO = np.float32(0)  # float32, so that arithmetic with float32 columns stays float32


class CumulativeParams(NamedTuple):
    eta0: float
    lam: float


class CumulativeScalars(NamedTuple):
    eta: float
    total: float
    past: float


class CumulativeState(NamedTuple):
    w: float
    q: float


AwareScalars = extended(CumulativeScalars, "V", "p", "inverse_p")


AwareState = extended(CumulativeState, "r")


@register_jitable
def round_scalars_cumulative(clock, params, maps):
    rate = params.eta0 * params.lam
    total = rate * (clock.truncation_sum + clock.truncation_step)
    return CumulativeScalars(params.eta0 * clock.step, total, rate * clock.truncation_sum)


@register_jitable
def truncated(v, total, q):
    """w_{t+1} of (13)."""
    low = v - (total + q)
    high = v + (total - q)
    low = low if low > ZERO else ZERO
    high = high if high < ZERO else ZERO
    return low if v >= ZERO else high


@register_jitable
def update_cumulative(state, elapsed, scalars, gradient, row, maps):
    v = state.w - scalars.eta * gradient
    w = truncated(v, scalars.total, state.q)
    return CumulativeState(w, state.q + (w - v))


@register_jitable
def state_from_weight_cumulative(w, scalars, maps):
    """q = −sign(w)·u: a nonzero weight has received the penalty of all rounds done."""
    return CumulativeState(w, -math.copysign(nonzero(w), w) * scalars.past)


@register_jitable
def round_scalars_aware(clock, params, maps):
    eta, total, past = round_scalars_cumulative(clock, params, maps)
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


CUMULATIVE_RULE = Rule(
    CumulativeParams,
    CumulativeScalars,
    CumulativeState,
    round_scalars_cumulative,
    update_cumulative,
    state_from_weight=state_from_weight_cumulative,
    stored_weight_valid_for=math.inf,
)
AWARE_RULE = Rule(
    Params,
    AwareScalars,
    AwareState,
    round_scalars_aware,
    update_aware,
    state_from_weight=state_from_weight_aware,
    stored_weight_valid_for=math.inf,
    threshold=threshold,
)
WHY_ONE_AMOUNT = (
    "its running total of penalties, (14), needs a penalty that subtracts the same from every weight, as only l1 does"
)

CUMULATIVE_L1 = Algorithm(
    name="cumulative-l1",
    formula="on x_t: v = w_t − η_t g_t is truncated by u_t less the truncation so far, u_t = λ Σ η",
    source="Tsuruoka, Tsujii and Ananiadou 2009; Oiwa, Matsushima and Nakagawa 2011, (13), (14) with h = 1",
    parameters=(ETA0, LAM, STEP, SECOND),
    rules=CUMULATIVE_RULE,
    why=WHY_ONE_AMOUNT,
)
SGFT_CUMULATIVE = Algorithm(
    name="sgft-cumulative",
    formula="on x_t: v = w_t − η_t g_t is truncated by h_t u_t less the truncation so far; h_t as sgft",
    source="Oiwa, Matsushima and Nakagawa 2011, (13), (14)",
    parameters=(ETA0, LARGER_LAM, P, V, STEP, SECOND),
    rules=AWARE_RULE,
    why=WHY_ONE_AMOUNT,
)
