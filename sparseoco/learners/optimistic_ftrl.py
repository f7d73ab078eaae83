"""Optimistic FTRL with a self-concordant barrier of the box |x_i| < R.

    x_{t+1} = argmin_x (g_{1:t} + g̃_{t+1})·x + eta·ℛ(x),    ℛ(x) = −Σ_i log(1 − (x_i/R)²)

Source: Rakhlin and Sridharan (2013); Mohri and Yang (2015), Corollary 1.3: Algorithm 1 with r_0 = eta·ℛ, r_t = ψ_t = 0
for t ≥ 1. The paper takes any self-concordant ℛ; this one is a sum over coordinates, least at 0, where it is 0.

Per coordinate, with v = g_{1:t} + g̃_{t+1}, v + 2·eta·x/(R² − x²) = 0: v·x² − 2·eta·x − v·R² = 0, whose root in the box
is

    x_{t+1} = −v·R²/(eta + √(eta² + v²R²)).

The prediction g̃_{t+1} is 0, the last gradient, or the mean of the feature's gradients: `predictions`.

Symbols: `G` = g_{1:t}.

Why lazy is exact: a coordinate outside the support of g_t adds 0 to G, and the weight is a function of G + g̃. With
last, g̃ is 0 if the feature was not in the last row.

One number per coordinate; with last two, and one time stamp per feature; with mean three.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from sparseoco.core.compile_cache import register_jitable
from sparseoco.learners.cao_ftrl import WHY_PLAIN
from sparseoco.learners.contract import PREDICT_GRADIENT, Algorithm, Rule, with_predictions
from sparseoco.learners.parameters import Parameter, positive
from sparseoco.learners.penalties import clip

INSIDE: Any = np.float32(1 - 2.0**-10)  # start weights outside the box become ±R times this: ℛ(±R) is infinite


class Params(NamedTuple):
    R: float
    eta: float


class Scalars(NamedTuple):
    R: float
    eta: float


class State(NamedTuple):
    G: float


@register_jitable
def round_scalars(clock, params, maps):
    return Scalars(params.R, params.eta)


@register_jitable
def weight(state, elapsed, scalars, maps):
    """argmin_x G·x − eta·log(1 − (x/R)²); clipped, because of rounding only."""
    u = state.G * scalars.R
    return clip(-u * scalars.R / (scalars.eta + math.sqrt(scalars.eta * scalars.eta + u * u)), scalars.R)


@register_jitable
def played(state, x, gradient, missed, scalars):
    return State(state.G + gradient)


@register_jitable
def update(state, elapsed, scalars, gradient, row, maps):
    return State(state.G + gradient)


@register_jitable
def unseen(state, g_tilde, elapsed, scalars, maps):
    return state


@register_jitable
def state_from_weight(w, scalars, maps):
    """The sum of gradients whose minimum is w, or the nearest point that is well inside the box."""
    R = scalars.R
    x = clip(w, R * INSIDE)
    return State(-2.0 * scalars.eta * x / ((R - x) * (R + x)))


RULES = with_predictions(
    Rule(Params, Scalars, State, round_scalars, update, weight=weight, state_from_weight=state_from_weight),
    played,
    unseen,
)


OPTIMISTIC_FTRL = Algorithm(
    name="optimistic-ftrl",
    formula="x_{t+1} = argmin (g_{1:t} + g̃_{t+1})·x − eta·Σ_i log(1 − (x_i/R)²)",
    source="Rakhlin and Sridharan 2013; Mohri and Yang 2015, Corollary 1.3",
    parameters=(
        Parameter("R", 1.0, "bound of every |weight|", positive, grid=(0.1, 1.0)),
        Parameter("eta", 1.0, "weight of the barrier ℛ; steps near 0 are R²/(2·eta)", positive, grid=(0.3, 3.0, 30.0)),
        PREDICT_GRADIENT._replace(grid=()),
    ),
    rules=lambda loss, penalty, configuration: RULES[configuration["predict_gradient"]],
    why=WHY_PLAIN,
)
