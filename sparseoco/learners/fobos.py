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

With model = truncated the gradient step is min(η_t, ℓ_t/‖g_t‖²), see `contract.MODEL`; the prox keeps η_t, so that
pending rounds do not depend on it.

One number per coordinate, one time stamp per feature; with ½w² two numbers (w, P at the last update), no time stamp.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from sparseoco.core.compile_cache import register_jitable
from sparseoco.core.errors import unsupported
from sparseoco.learners.contract import (
    MODEL,
    Algorithm,
    GroupRule,
    Rule,
    derived,
    extended,
    is_truncated,
    start_clock,
    truncated_step,
    weight_as_state,
    with_zeros,
)
from sparseoco.learners.losses import Loss
from sparseoco.learners.parameters import ETA0, LAM, SECOND, STEP, Parameter, categorical, positive_int
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


@cache
def with_truncated_model(own: Rule) -> Rule:
    """The rule with min(η_t, ℓ_t/‖g_t‖²) for the step of the gradient."""
    Scalars, own_update = own.scalars, own.update

    def update(state, elapsed, scalars, gradient, row, maps):
        step = truncated_step(scalars.step, row.weight * row.loss, row.gradient_sq_norm)
        return own_update(state, elapsed, Scalars(step, *scalars[1:]), gradient, row, maps)

    return replace(own, update=derived(update, own_update, "truncated"), needs_row_norm=True, needs_loss=True)


def rule(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> Rule:
    groups = "penalty='group' joins the gradients of all classes, and a step is cut by the loss of one"
    if is_truncated("fobos", loss, parameters, groups if penalty.grouped else ""):
        return with_truncated_model(CHARGED if penalty.decaying else PLAIN)
    if penalty.decaying:
        return CHARGED
    K = parameters.get("K", 1)
    return replace(PLAIN, stored_weight_valid_for=float(K)) if K > 1 else PLAIN


def group_rule(loss: Loss, parameters: Mapping[str, Any]) -> GroupRule:
    """For groups of features; of l-fobos the clock has the period K."""
    is_truncated("fobos", loss, parameters, "a step is cut by the loss of one class, and groups join all")
    return GroupRule(lazy=False, postpones=False, averaged=False, start=start_clock(parameters))


FOBOS = Algorithm(
    name="fobos",
    formula="w_{t+1} = prox_{η_t ψ}(w_t − η_t g_t), η_t = eta0/√t; truncated: a step of min(η_t, ℓ_t/‖g_t‖²)",
    source="Togari and Yamashita 2016, Algorithm 2; Duchi and Singer 2009; truncated: Asi and Duchi 2019",
    parameters=(ETA0, LAM, STEP, MODEL),
    penalties=("l1", "l2", "elastic_net", "group", "box"),
    rules=rule,
    group_rules=group_rule,
)
SG_L1 = Algorithm(
    name="sg-l1",
    formula="w_{t+1} = soft(w_t − η_t g_t, η_{t+1/2} λ); with η_{t+1/2} = η_t it is fobos",
    source="Oiwa, Matsushima and Nakagawa 2011, (2), (4)",
    parameters=(ETA0, LAM, STEP, SECOND),
    rules=PLAIN,
    why="it is defined with l1; fobos is the same recursion with other penalties",
)


# ----------------------------------------------------------------------------------------------------------------------
# L-FOBOS: gradient steps, and every K rounds one proximal step of all coordinates for these K rounds.
#
#     w_{t+1} = w_t − η_t g_t,    then, if K divides t, w_{t+1} ← prox_{a ψ}(w_{t+1}), a = η_{t−K+1} + … + η_t
#
# Source: Togari and Yamashita (2016), Algorithm 3 and the aggregated form of (7); lazy evaluation after Langford et al.
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
    group_rules=group_rule,
)


# ----------------------------------------------------------------------------------------------------------------------
# CL-FOBOS: FOBOS with component-wise lazy evaluation; only the support of the gradient is touched.
#
#     for i in the support of g_t:  w_{t+1} = prox_{a ψ}(w_t − η_t g_t),  a = Σ η_τ over the rounds since i's last
#     update, including this one; other coordinates do not change.   η_t = eta0/√t
#
# Source: Togari and Yamashita (2016), Algorithm 4, (8)–(10); the mean of the iterates: Theorem 2.
#
# Symbols: `w` is the iterate itself; `step` = η_t; `rate` = eta0·λ; `elapsed` = Σ 1/√τ over the rounds since the
# feature was last in a row, including this one; `pending` = the part of that sum not applied yet.
#
# Why lazy is exact: the algorithm is lazy by definition, so the stored weight is current. If the slope is exactly
# zero (hinge), the support of g_t is empty and the prox is postponed: `pending` accumulates it per column, so that
# features still have a single time stamp. The logistic slope is never treated as zero, even if it underflows.
#
# With ½w² in the penalty the maps of Step 2 multiply, as in `fobos`: the prox of a coordinate uses the growth of P
# since its last prox, which is postponed automatically when the slope is zero.
#
# Groups (the extension of §1 to blocks of variables): i is a feature and x^(i) its weights of all classes; it is in
# I_t if the gradient of any class is nonzero. The prox needs all of them, so `w` is x̂^(i), before the prox of its
# last update, and `due` = a/eta0 of that prox, which the kernel applies on reading and before the next update.
#
# With average = iterates the weights that are read are x̄_T = (x_1 + … + x_T)/T, while rows are predicted with x_t:
#
#     x̄_T = x_{T+1} − m_T/T,    m_T = Σ_{t ≤ T} t(x_{t+1} − x_t),
#
# and only coordinates that change add to `moment` = m.
#
# One number per coordinate (two if the slope can vanish, with ½w², or with groups, three with both; one more with the
# mean of iterates), one time stamp per feature (none with ½w²).


# `charge` is P, including this round.
LazyChargeScalars = extended(ChargeScalars, "past_charge")


PendingState = extended(State, "pending")
GroupState = extended(State, "due")
GroupPendingState = extended(GroupState, "pending")


@register_jitable
def step_clock(clock):
    return clock.step_sum + clock.step


@register_jitable
def time_after_update(clock):
    """As after a round with the feature."""
    return clock.step_sum


@register_jitable
def update_lazy(state, elapsed, scalars, gradient, row, maps):
    return State(maps.repeated(state.w - scalars.step * gradient, scalars.rate, elapsed, maps.prox))


@register_jitable
def update_pending(state, elapsed, scalars, gradient, row, maps):
    due = state.pending + elapsed
    stepped = update_lazy(state, due, scalars, gradient, row, maps)
    postponed = gradient == 0
    return PendingState(state.w if postponed else stepped.w, due if postponed else state.pending - state.pending)


@register_jitable
def round_scalars_lazy_charge(clock, params, maps):
    ratio, charge = params.l1_ratio, advance_charge(clock, params).charge
    return LazyChargeScalars(params.eta0 * clock.step, ratio / (1.0 - ratio), charge, params.charge)


@register_jitable
def update_lazy_charge(state, elapsed, scalars, gradient, row, maps):
    stepped = update_lazy(state, scalars.charge - state.charge, scalars, gradient, row, maps)
    return ChargeState(stepped.w, scalars.charge)


@register_jitable
def update_charge_vanishing(state, elapsed, scalars, gradient, row, maps):
    stepped = update_lazy_charge(state, elapsed, scalars, gradient, row, maps)
    postponed = gradient == 0
    return ChargeState(state.w if postponed else stepped.w, state.charge if postponed else stepped.charge)


@register_jitable
def state_from_weight_lazy_charge(w, scalars, maps):
    return ChargeState(w, scalars.past_charge)


@register_jitable
def weight_group(state, elapsed, scalars, maps):
    return maps.repeated(state.w, scalars.rate, state.due, maps.prox)


@register_jitable
def update_group(state, elapsed, scalars, gradient, row, maps):
    """The kernel has applied the prox that was due."""
    return GroupState(state.w - scalars.step * gradient, elapsed)


@register_jitable
def update_group_pending(state, elapsed, scalars, gradient, row, maps):
    due, zero = state.pending + elapsed, elapsed - elapsed
    if row.gradient_sq_norm == 0 or row.x == 0:
        return GroupPendingState(state.w, zero, due)
    return GroupPendingState(state.w - scalars.step * gradient, due, zero)


@register_jitable
def mean_of_iterates(state, elapsed, scalars, maps):
    """x̄_T, T = t − 1 rounds done."""
    done = scalars.t - 1
    return state.w - state.moment / done if done > 0 else state.w


@cache
def with_moment(own: Rule) -> Rule:
    """The rule with one more number per coordinate, m, and the mean of the iterates as the weight that is read.

    For rules that store the iterate and change only the coordinates of a row.
    """
    Scalars, State = extended(own.scalars, "t"), extended(own.state, "moment")
    own_scalars, own_update, own_state = own.round_scalars, own.update, own.state_from_weight

    def round_scalars(clock, params, maps):
        return Scalars(*own_scalars(clock, params, maps)[:], clock.rounds + 1.0)

    def update(state, elapsed, scalars, gradient, row, maps):
        new = own_update(state, elapsed, scalars, gradient, row, maps)
        return State(*new[:], state.moment + scalars.t * (new.w - state.w))

    def state_from_weight(w, scalars, maps):
        """The rounds before have had this weight."""
        return State(*own_state(w, scalars, maps)[:], w - w)

    return replace(
        own,
        scalars=Scalars,
        state=State,
        round_scalars=derived(round_scalars, own_scalars, "with_moment"),
        update=derived(update, own_update, "with_moment"),
        state_from_weight=derived(state_from_weight, own_state, "with_moment"),
        reported=mean_of_iterates,
        weight_is_float64=True,
    )


LAZY = Rule(
    Params,
    Scalars,
    State,
    round_scalars,
    update_lazy,
    clock_time=step_clock,
    time_after_update=time_after_update,
    stored_weight_valid_for=math.inf,
)
PENDING = replace(LAZY, state=PendingState, update=update_pending, state_from_weight=with_zeros(weight_as_state, 1))
LAZY_CHARGED = Rule(
    Params,
    LazyChargeScalars,
    ChargeState,
    round_scalars_lazy_charge,
    update_lazy_charge,
    state_from_weight=state_from_weight_lazy_charge,
    per_column_sums=CHARGE,
    advance=advance_charge,
    stored_weight_valid_for=math.inf,
)
CHARGED_PENDING = replace(LAZY_CHARGED, update=update_charge_vanishing)
GROUP = replace(
    LAZY,
    state=GroupState,
    weight=weight_group,
    update=update_group,
    state_from_weight=with_zeros(weight_as_state, 1),
    stored_weight_valid_for=0.0,
)
GROUP_PENDING = replace(
    GROUP,
    state=GroupPendingState,
    update=update_group_pending,
    state_from_weight=with_zeros(weight_as_state, 2),
    needs_row_norm=True,
    needs_loss=True,
)


def rule_lazy(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> Rule:
    """The rules named pending are for losses whose slope can vanish."""
    averaged = parameters["average"] != "none"
    if penalty.grouped and averaged:
        raise unsupported(
            "cl-fobos has no average='iterates' with penalty='group': the prox of a group is applied on reading, "
            "so that the sum of its iterates is not known."
        )
    if penalty.grouped:
        return GROUP_PENDING if loss.slope_vanishes else GROUP
    if penalty.decaying:
        own = CHARGED_PENDING if loss.slope_vanishes else LAZY_CHARGED
    else:
        own = PENDING if loss.slope_vanishes and not penalty.bounded else LAZY
    return with_moment(own) if averaged else own


def lazy_group_rule(loss: Loss, parameters: Mapping[str, Any]) -> GroupRule:
    """For groups of features, of which the mean of iterates is known, too."""
    averaged = parameters["average"] != "none"
    return GroupRule(lazy=True, postpones=loss.slope_vanishes, averaged=averaged, start=start_clock(parameters))


AVERAGE = categorical(
    "average",
    ("none", "iterates"),
    "weights that are read and saved: the last iterate, or the mean of all; rows are learned with the iterate",
)
CL_FOBOS = Algorithm(
    name="cl-fobos",
    formula="on the support of g_t: w_{t+1} = prox_{a ψ}(w_t − η_t g_t), a = Σ η_τ since its last; η_t = eta0/√t",
    source="Togari and Yamashita 2016, Algorithm 4, (10), Theorem 2",
    parameters=(ETA0, LAM, STEP, AVERAGE),
    penalties=FOBOS.penalties,
    rules=rule_lazy,
    group_rules=lazy_group_rule,
)
