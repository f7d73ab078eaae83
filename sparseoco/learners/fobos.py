"""FOBOS: in every round a gradient step, then the proximal map of every coordinate.

    w_{t+1} = prox_{η_t ψ}(w_t − η_t g_t),    η_t = eta0/√t

Source: Togari and Yamashita (2016), Algorithm 2, (5)–(6); the recursion SG-L1 of Oiwa et al. (2011), (4), is the same.

Symbols: `w` is the weight after the last gradient step, before that round's prox; `step` = η_t; `rate` = eta0·λ;
`elapsed` = Σ 1/√τ over the rounds whose prox is pending.

Why lazy is exact: outside the support of g_t only the prox is applied, and the proximal maps of a|w| add up (Property
1 there): soft(soft(w, a), b) = soft(w, a + b). So all pending rounds are one soft-threshold with the sum of the steps,
eta0·λ times a difference of a sum that all columns share. The prox of an update's own round is pending too, so reading
never writes. For a box, repeated projections equal one, and `rate` is its R.

With ½w² in the penalty the maps do not add up (Property 1 does not hold for it) but multiply: with b_τ = η_τ λ(1 − ρ)
and κ = ρ/(1 − ρ) a round is |w| + κ ← (|w| + κ)/(1 + b_τ), down to w = 0. Let P = Σ log(1 + b_τ) over the rounds done,
stored per column as `charge`, and D its growth over the pending rounds; then w ← soft(w·e^−D, κ(1 − e^−D)), which
cannot underflow. Here `rate` is κ, and D replaces `elapsed`.

One number per coordinate, one time stamp per feature; with ½w² two numbers (w, P at the last update), no time stamp.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from sparseoco.core.compile_cache import register_jitable
from sparseoco.learners.contract import Algorithm, Rule, extended
from sparseoco.learners.losses import Loss
from sparseoco.learners.parameters import ETA0, LAM, SECOND, STEP, Parameter, positive_int
from sparseoco.learners.penalties import Penalty


class Params(NamedTuple):
    eta0: float
    lam: float
    l1_ratio: float
    R: float
    charge_all: float
    """P over all rounds done."""
    charge: float
    """P after the last round that is a multiple of K."""


CHARGE = ("charge_all", "charge")


class Scalars(NamedTuple):
    step: float
    rate: float


class State(NamedTuple):
    w: float


ChargeScalars, ChargeState = extended(Scalars, "charge"), extended(State, "charge")


@register_jitable
def truncation_clock(clock):
    return clock.truncated_sum


@register_jitable
def round_scalars(clock, params, maps):
    rate, _ = maps.split(params.eta0 * params.lam, params)
    return Scalars(params.eta0 * clock.step, rate)


@register_jitable
def weight(state, elapsed, scalars, maps):
    return maps.repeated(state.w, scalars.rate, elapsed, maps.prox)


@register_jitable
def update(state, elapsed, scalars, gradient, row, maps):
    return State(weight(state, elapsed, scalars, maps) - scalars.step * gradient)


@register_jitable
def advance_charge(clock, params):
    """Add this round's log(1 + b_t)."""
    growth = math.log1p(params.eta0 * clock.truncation_step * params.lam * (1.0 - params.l1_ratio))
    charge_all = params.charge_all + growth
    charge = charge_all if (clock.rounds + 1.0) % clock.period == 0.0 else params.charge
    return Params(params.eta0, params.lam, params.l1_ratio, params.R, charge_all, charge)


@register_jitable
def round_scalars_charge(clock, params, maps):
    return ChargeScalars(params.eta0 * clock.step, params.l1_ratio / (1.0 - params.l1_ratio), params.charge)


@register_jitable
def weight_charge(state, elapsed, scalars, maps):
    return weight(state, scalars.charge - state.charge, scalars, maps)


@register_jitable
def update_charge(state, elapsed, scalars, gradient, row, maps):
    return ChargeState(weight_charge(state, elapsed, scalars, maps) - scalars.step * gradient, scalars.charge)


@register_jitable
def state_from_weight_charge(w, scalars, maps):
    return ChargeState(w, scalars.charge)


PLAIN = Rule(Params, Scalars, State, round_scalars, update, weight=weight, clock_time=truncation_clock)
CHARGED = Rule(
    Params,
    ChargeScalars,
    ChargeState,
    round_scalars_charge,
    update_charge,
    weight=weight_charge,
    state_from_weight=state_from_weight_charge,
    weight_is_float64=True,
    per_column_sums=CHARGE,
    advance=advance_charge,
)


def rule(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> Rule:
    if penalty.decaying:
        return CHARGED
    K = parameters.get("K", 1)
    return replace(PLAIN, stored_weight_valid_for=float(K)) if K > 1 else PLAIN


FOBOS = Algorithm(
    name="fobos",
    formula="w_{t+1} = prox_{η_t ψ}(w_t − η_t g_t), η_t = eta0/√t",
    source="Togari and Yamashita 2016, Algorithm 2; Duchi and Singer 2009",
    parameters=(ETA0, LAM, STEP),
    penalties=("l1", "l2", "elastic_net", "group", "box"),
    rules=rule,
)
SG_L1 = Algorithm(
    name="sg-l1",
    formula="w_{t+1} = soft(w_t − η_t g_t, η_{t+1/2} λ); with η_{t+1/2} = η_t it is fobos",
    source="Oiwa, Matsushima and Nakagawa 2011, (2), (4)",
    parameters=(ETA0, LAM, STEP, SECOND),
    penalties=("l1",),
    rules=PLAIN,
    why="it is defined with l1; fobos is the same recursion with other penalties",
)


# ----------------------------------------------------------------------------------------------------------------------
# L-FOBOS: gradient steps, and every K rounds one proximal step of all coordinates for these K rounds.
#
#     w_{t+1} = w_t − η_t g_t,    then, if K divides t, w_{t+1} ← prox_{a ψ}(w_{t+1}), a = η_{t−K+1} + … + η_t
#
# Source: Togari and Yamashita (2016), Algorithm 3 and the aggregated form of (7); lazy evaluation after Langford et
#     al.
# (2009).
#
# Symbols and lazy updates are those of `fobos`, with a clock that advances every K rounds: the sum of the steps up to
# the last multiple of K is applied. K = 1 is FOBOS, bit for bit.
#
# One number per coordinate, one time stamp per feature.


L_FOBOS = Algorithm(
    name="l-fobos",
    formula="w_{t+1} = w_t − η_t g_t; if K divides t then prox_{a ψ}, a the sum of the last K steps",
    source="Togari and Yamashita 2016, Algorithm 3, (7)",
    parameters=(
        ETA0,
        LAM,
        Parameter("K", 100, "rounds between two proximal steps", positive_int, static=True, grid=(10, 100, 1000)),
        STEP,
    ),
    penalties=FOBOS.penalties,
    rules=rule,
)
