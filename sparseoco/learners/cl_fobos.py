"""CL-FOBOS: FOBOS with component-wise lazy evaluation; only the support of the gradient is touched.

    for i in the support of g_t:  w_{t+1} = prox_{a ψ}(w_t − η_t g_t),  a = Σ η_τ over the rounds since i's last update,
    including this one; other coordinates do not change.   η_t = eta0/√t

Source: Togari and Yamashita (2016), Algorithm 4, (8)–(10).

Symbols: `w` is the iterate itself; `step` = η_t; `rate` = eta0·λ; `elapsed` = Σ 1/√τ over the rounds since the feature
was last in a row, including this one; `pending` = the part of that sum not applied yet.

Why lazy is exact: the algorithm is lazy by definition, so the stored weight is current. If the slope is exactly zero
(hinge), the support of g_t is empty and the prox is postponed: `pending` accumulates it per column, so that features
still have a single time stamp. The logistic slope is never treated as zero, even if it underflows.

With ½w² in the penalty the maps of Step 2 multiply, as in `fobos`: the prox of a coordinate uses the growth of P since
its last prox, which is postponed automatically when the slope is zero.

One number per coordinate (two if the slope can vanish, or with ½w²), one time stamp per feature (none with ½w²).
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from numba.extending import register_jitable

from sparseoco.learners.contract import Algorithm, Rule, start_clock, weight_as_state
from sparseoco.learners.fobos import (
    CHARGE,
    ChargeState,
    Params,
    Scalars,
    State,
    advance_charge,
    round_scalars,
)
from sparseoco.learners.losses import Loss
from sparseoco.learners.parameters import ETA0, LAM, STEP
from sparseoco.learners.penalties import Penalty


class ChargeScalars(NamedTuple):
    step: float
    rate: float
    charge: float
    """P, including this round."""
    past_charge: float


class PendingState(NamedTuple):
    w: float
    pending: float


@register_jitable
def step_clock(clock):
    return clock.step_sum + clock.step


@register_jitable
def settled_time(clock):
    """As after a round with the feature."""
    return clock.step_sum


@register_jitable
def update(state, elapsed, scalars, gradient, row, maps):
    return State(maps.repeated(state.w - scalars.step * gradient, scalars.rate, elapsed, maps.prox))


@register_jitable
def update_pending(state, elapsed, scalars, gradient, row, maps):
    due = state.pending + elapsed
    stepped = update(state, due, scalars, gradient, row, maps)
    postponed = gradient == 0
    return PendingState(state.w if postponed else stepped.w, due if postponed else state.pending - state.pending)


@register_jitable
def state_from_weight_pending(w, scalars, maps):
    return PendingState(w, w - w)


@register_jitable
def round_scalars_charge(clock, params, maps):
    ratio, charge = params.l1_ratio, advance_charge(clock, params).charge
    return ChargeScalars(params.eta0 * clock.step, ratio / (1.0 - ratio), charge, params.charge)


@register_jitable
def update_charge(state, elapsed, scalars, gradient, row, maps):
    stepped = update(state, scalars.charge - state.charge, scalars, gradient, row, maps)
    return ChargeState(stepped.w, scalars.charge)


@register_jitable
def update_charge_vanishing(state, elapsed, scalars, gradient, row, maps):
    stepped = update_charge(state, elapsed, scalars, gradient, row, maps)
    postponed = gradient == 0
    return ChargeState(state.w if postponed else stepped.w, state.charge if postponed else stepped.charge)


@register_jitable
def state_from_weight_charge(w, scalars, maps):
    return ChargeState(w, scalars.past_charge)


def rule(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> Rule:
    start = start_clock(parameters)
    if penalty.decaying:
        return Rule(
            params=Params,
            scalars=ChargeScalars,
            state=ChargeState,
            round_scalars=round_scalars_charge,
            update=update_charge_vanishing if loss.slope_vanishes else update_charge,
            state_from_weight=state_from_weight_charge,
            maps=penalty.maps,
            running=CHARGE,
            advance=advance_charge,
            start=start,
            iterate_valid_rounds=math.inf,
        )
    pending = loss.slope_vanishes and not penalty.bounded
    return Rule(
        params=Params,
        scalars=Scalars,
        state=PendingState if pending else State,
        round_scalars=round_scalars,
        update=update_pending if pending else update,
        state_from_weight=state_from_weight_pending if pending else weight_as_state,
        maps=penalty.maps,
        clock_time=step_clock,
        settled_time=settled_time,
        start=start,
        iterate_valid_rounds=math.inf,
    )


CL_FOBOS = Algorithm(
    name="cl-fobos",
    formula="on the support of g_t: w_{t+1} = prox_{a ψ}(w_t − η_t g_t), a = Σ η_τ since its last; η_t = eta0/√t",
    source="Togari and Yamashita 2016, Algorithm 4, (10)",
    parameters=(ETA0, LAM, STEP),
    penalties=("l1", "l2", "elastic_net", "box"),
    rule=rule,
    why="its prox is applied per coordinate, on the support of the gradient",
)
