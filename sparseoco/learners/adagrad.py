"""Primal-dual AdaGrad: dual averaging with per-coordinate steps, by the root of the sum of squared gradients.

    w_{t+1} = argmin_w (g_{1:t} + g̃_{t+1})·w + tψ(w) + w·H_t w/(2·eta),    H_t = δ + diag(√(Σ_{s≤t} (g_s − g̃_s)²))
            = −eta·soft(g_{1:t} + g̃_{t+1}, tλ)/H_t for ψ = λ‖w‖₁

Source: Duchi, Hazan and Singer (2011), the primal-dual update, where g̃ = 0; Mohri and Yang (2015), Corollary 1.2. With
predictions it is their Algorithm 2 with r_{0:t} = w·H_t w/(2·eta), Theorems 2 and 4; tψ is ψ_{1:t+1} with ψ_1 = 0.

With ψ = λ(ρ|w| + (1 − ρ)w²/2) it is −eta·soft(v, tλρ)/(H_t + eta·tλ(1 − ρ)), v = g_{1:t} + g̃_{t+1}; in a box,
−eta·v/H_t clipped. The parameter `schedule` replaces t by the sum of another sequence of penalties.

The prediction g̃_{t+1} is 0, the last gradient, or the mean of the feature's gradients: `predictions`.

Symbols: `G` = g_{1:t}; `root` = √(Σ (g − g̃)²); `stiff` = δ + eta·tλ(1 − ρ); `amount` = tλρ, or R of a box.

Why lazy is exact: a coordinate outside the support of g_t and of g̃_t adds 0 to both sums, and the weight is a function
of the sums and t. With last, one pending round, in which g = 0 and g̃ = g_last, adds to `root` alone.

Two numbers per coordinate; with last three, and one time stamp per feature; with mean four.

With model = truncated the steps are those of the truncated model (`contract.MODEL`), which start at w_t, so that the
update is not the primal-dual one but composite mirror descent, of the same source:

    w_{t+1} = prox_{ηψ}^{H_t}(w_t − min(η, ℓ_t/Σ_i g_{t,i}²/H_{t,i})·g_t/H_t),    H_t = δ + √(Σ_{s≤t} g_s²)

The prox is in the metric H_t: soft(·, ηλ/H_t), or clipped. Lazy is exact since a coordinate outside the support of g_t
keeps its H, and the proximal maps of a|w| add up: k pending rounds are soft(w, kηλ/H). With ½w² every coordinate would
decay at a rate of its own, a logarithm on every reading; it is not offered. `w` is the weight before that round's prox,
`elapsed` the rounds whose prox is pending. Two numbers per coordinate, one time stamp per feature.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from sparseoco.core.compile_cache import register_jitable
from sparseoco.learners.contract import (
    MODEL,
    PREDICT_GRADIENT,
    Algorithm,
    Rule,
    is_truncated,
    nonzero,
    round_clock,
    truncated_step,
    with_predictions,
)
from sparseoco.learners.losses import Loss
from sparseoco.learners.parameters import LAM, Parameter, positive
from sparseoco.learners.penalties import ONE, SCHEDULE, Penalty


class Params(NamedTuple):
    eta: float
    delta: float
    lam: float
    l1_ratio: float
    R: float


class Scalars(NamedTuple):
    eta: float
    stiff: float
    amount: float


class State(NamedTuple):
    G: float
    root: float


@register_jitable
def round_scalars(clock, params, maps):
    due = maps.total(clock.rounds) * params.lam
    amount, _ = maps.split(due, params)
    _, ridge = maps.split(params.eta * due, params)
    return Scalars(params.eta, params.delta + ridge, amount)


@register_jitable
def weight(state, elapsed, scalars, maps):
    """argmin_w G·w + tψ(w) + (δ + root)·w²/(2·eta)."""
    scale = scalars.eta / (scalars.stiff + state.root)
    return maps.prox(-state.G * scale, maps.scaled(scalars.amount, scale))


@register_jitable
def played(state, x, gradient, missed, scalars):
    """The state after a round with prediction error `missed` = g − g̃."""
    return State(state.G + gradient, math.sqrt(state.root * state.root + missed * missed))


@register_jitable
def update(state, elapsed, scalars, gradient, row, maps):
    return played(state, state.G, gradient, gradient, scalars)


@register_jitable
def unseen(state, g_tilde, elapsed, scalars, maps):
    return State(state.G, math.sqrt(state.root * state.root + g_tilde * g_tilde))


@register_jitable
def root_from_weight(w, scalars):
    """√(Σ g²) of gradients of size 1 and equal signs, for which w is about eta·√t; at least one gradient."""
    made, least = abs(w) / scalars.eta, nonzero(w)
    return made if made > least else least


@register_jitable
def state_from_weight(w, scalars, maps):
    root = root_from_weight(w, scalars)
    scale = scalars.eta / (scalars.stiff + root)
    return State(-maps.preimage(w, maps.scaled(scalars.amount, scale)) / scale, root)


RULES = with_predictions(
    Rule(Params, Scalars, State, round_scalars, update, weight=weight, state_from_weight=state_from_weight),
    played,
    unseen,
)


class StepState(NamedTuple):
    w: float
    root: float


@register_jitable
def step_scalars(clock, params, maps):
    amount, _ = maps.split(params.eta * params.lam, params)
    return Scalars(params.eta, params.delta, amount)


@register_jitable
def step_weight(state, elapsed, scalars, maps):
    amount = maps.scaled(scalars.amount, ONE / (scalars.stiff + state.root))
    return maps.repeated(state.w, amount, elapsed, maps.prox)


@register_jitable
def grown(state, gradient):
    """√(Σ_{s≤t} g_s²)."""
    return math.sqrt(state.root * state.root + gradient * gradient)


@register_jitable
def dual_term(state, x, gradient, scalars):
    """The coordinate's term of ‖g_t‖² in the dual of H_t."""
    return gradient * gradient / (scalars.stiff + grown(state, gradient))


@register_jitable
def step_update(state, elapsed, scalars, gradient, row, maps):
    step, root = truncated_step(scalars.eta, row.weight * row.loss, row.state_sum), grown(state, gradient)
    return StepState(step_weight(state, elapsed, scalars, maps) - step * gradient / (scalars.stiff + root), root)


@register_jitable
def step_state_from_weight(w, scalars, maps):
    return StepState(w, root_from_weight(w, scalars))


TRUNCATED = Rule(
    Params,
    Scalars,
    StepState,
    step_scalars,
    step_update,
    weight=step_weight,
    state_from_weight=step_state_from_weight,
    clock_time=round_clock,
    needs_loss=True,
    row_term=dual_term,
)


def rule(loss: Loss, penalty: Penalty, configuration: Mapping[str, Any]) -> Rule:
    obstacle = ""
    if configuration["predict_gradient"] != "none":
        obstacle = "a predicted gradient comes without a loss; leave predict_gradient out"
    elif configuration["schedule"] != "constant":
        obstacle = "its penalty is that of each round; leave schedule out"
    elif penalty.decaying:
        obstacle = "with penalty='l2' or 'elastic_net' every weight would decay at a rate of its own"
    if is_truncated("adagrad", loss, configuration, obstacle):
        return TRUNCATED
    return RULES[configuration["predict_gradient"]]


ADAGRAD = Algorithm(
    name="adagrad",
    formula="w_{t+1} = argmin (g_{1:t} + g̃_{t+1})·w + tψ(w) + (δ + √(Σ_{s≤t} (g_s − g̃_s)²))·w²/(2·eta); "
    "truncated: prox_{ηψ}(w_t − min(η, ℓ_t/‖g_t‖²_{H⁻¹})·g_t/H_t)",
    source="Duchi, Hazan and Singer 2011; Mohri and Yang 2015, Corollary 1.2, Theorems 2 and 4; "
    "truncated: Asi and Duchi 2019",
    parameters=(
        Parameter("eta", 0.3, "step size; a coordinate steps eta/(delta + √Σg²)", positive, grid=(0.03, 0.1, 0.3, 1.0)),
        Parameter("delta", 1e-6, "added to the root, so that first steps are bounded", positive),
        LAM._replace(grid=(1e-6, 1e-5, 3e-5, 1e-4, 3e-4)),
        PREDICT_GRADIENT._replace(default="none", grid=()),
        SCHEDULE,
        MODEL,
    ),
    penalties=("l1", "l2", "elastic_net", "box"),
    rules=rule,
)
