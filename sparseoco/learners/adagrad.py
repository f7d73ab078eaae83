"""Primal-dual AdaGrad: dual averaging with per-coordinate steps, by the root of the sum of squared gradients.

    w_{t+1} = argmin_w g_{1:t}·w + tψ(w) + w·H_t w/(2·eta),    H_t = δ + diag(√(Σ_{s≤t} g_s²))
            = −eta·soft(g_{1:t}, tλ)/H_t for ψ = λ‖w‖₁

Source: Duchi, Hazan and Singer (2011), the primal-dual update; Mohri and Yang (2015), Corollary 1.2.

With ψ = λ(ρ|w| + (1 − ρ)w²/2) it is −eta·soft(g_{1:t}, tλρ)/(H_t + eta·tλ(1 − ρ)); in a box, −eta·g_{1:t}/H_t clipped.

Symbols: `G` = g_{1:t}; `root` = √(Σ g²); `stiff` = δ + eta·tλ(1 − ρ); `amount` = tλρ, or R of a box.

Why lazy is exact: a coordinate outside the support of g_t adds 0 to both sums, and the weight is a function of the sums
and t.

Two numbers per coordinate, no time stamp.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from numba.extending import register_jitable

from sparseoco.learners.contract import Algorithm, Rule, nonzero
from sparseoco.learners.losses import Loss
from sparseoco.learners.parameters import LAM, Parameter, positive
from sparseoco.learners.penalties import Penalty


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
    due = clock.rounds * params.lam
    amount, _ = maps.split(due, params)
    _, ridge = maps.split(params.eta * due, params)
    return Scalars(params.eta, params.delta + ridge, amount)


@register_jitable
def weight(state, elapsed, scalars, maps):
    scale = scalars.eta / (scalars.stiff + state.root)
    return maps.prox(-state.G * scale, maps.scaled(scalars.amount, scale))


@register_jitable
def update(state, elapsed, scalars, gradient, row, maps):
    return State(state.G + gradient, math.sqrt(state.root * state.root + gradient * gradient))


@register_jitable
def state_from_weight(w, scalars, maps):
    """√(Σ g²) of gradients of size 1 and equal signs, for which w is about eta·√t; at least one gradient."""
    made, least = abs(w) / scalars.eta, nonzero(w)
    root = made if made > least else least
    scale = scalars.eta / (scalars.stiff + root)
    return State(-maps.preimage(w, maps.scaled(scalars.amount, scale)) / scale, root)


def rule(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> Rule:
    return Rule(
        params=Params,
        scalars=Scalars,
        state=State,
        round_scalars=round_scalars,
        weight=weight,
        update=update,
        state_from_weight=state_from_weight,
        maps=penalty.maps,
    )


ADAGRAD = Algorithm(
    name="adagrad",
    formula="w_{t+1} = argmin g_{1:t}·w + tψ(w) + (δ + √(Σ_{s≤t} g_s²))·w²/(2·eta)",
    source="Duchi, Hazan and Singer 2011; Mohri and Yang 2015, Corollary 1.2",
    parameters=(
        Parameter("eta", 0.3, "step size; a coordinate steps eta/(delta + √Σg²)", positive, grid=(0.03, 0.1, 0.3, 1.0)),
        Parameter("delta", 1e-6, "added to the root, so that first steps are bounded", positive),
        LAM._replace(grid=(1e-6, 1e-5, 3e-5, 1e-4, 3e-4)),
    ),
    penalties=("l1", "l2", "elastic_net", "box"),
    rule=rule,
)
