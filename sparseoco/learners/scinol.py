"""ScInOL₂: scale-invariant online learning without a parameter; every coordinate bets on the sign of its gradients.

    M_t = max(M_{t−1}, |x_t|),    Ŝ_t = √(S²_{t−1} + M_t²),    θ_t = G_{t−1}/Ŝ_t
    w_t = sign(θ_t)·min(|θ_t|, 1)·η_{t−1}/(2Ŝ_t)
    G_t = G_{t−1} − g_t,    S²_t = S²_{t−1} + g_t²,    η_t = η_{t−1} − g_t w_t,    η_0 = 1

in every coordinate, g_t its gradient: the value x_t times the slope of the loss, which is at most 1.

Source: Kempka, Kotłowski and Warmuth (2019), Algorithm 2. Multiplying a feature by a number divides its weights by it.

A row's values are seen before it is predicted: M_t is part of w_t. The weights that are read are those of a row whose
values are not larger than any before. A sample weight multiplies the row's values, but for the margin.

The regret against u is at most Σ_i (1 − η_{T,i} + u_i·G_{T,i}), with equality for linear losses: η is the wealth of a
gambler who starts with 1, and stays above 0.

L1 is refused. Its λ·sign(w_t) would be a gradient in every round, also of features outside the row: η would then be a
product over these rounds without a closed form, so that a lazy update could not be exact. A soft threshold of G, as in
`rda`, is lazy, but η would not pay for the penalty, and no bound on regret with it would follow.

Symbols: `G`; `squares` = S²; `largest` = M; `wealth` = η.

Why lazy is exact: only the features of the row change, and the weight is a function of their state.

Four numbers per coordinate, no time stamp.
"""

import math
from typing import NamedTuple

import numpy as np

from sparseoco.core.compile_cache import register_jitable
from sparseoco.learners.contract import Algorithm, Rule
from sparseoco.learners.penalties import clip

ONE, HALF = np.float32(1), np.float32(0.5)  # so that arithmetic with float32 columns stays float32


class Params(NamedTuple):
    unused: float


class Scalars(NamedTuple):
    unused: float


class State(NamedTuple):
    G: float
    squares: float
    largest: float
    wealth: float


@register_jitable
def round_scalars(clock, params, maps):
    return Scalars(0.0)


@register_jitable
def see(state, x):
    """The state before a row with this value is predicted: M_t."""
    size = abs(x)
    return State(state.G, state.squares, size if size > state.largest else state.largest, state.wealth)


@register_jitable
def weight(state, elapsed, scalars, maps):
    scale = math.sqrt(state.squares + state.largest * state.largest)
    if scale == 0.0:
        return state.G
    return clip(state.G / scale, ONE) * state.wealth * HALF / scale


@register_jitable
def update(state, elapsed, scalars, gradient, row, maps):
    w = weight(state, elapsed, scalars, maps)
    squares = state.squares + gradient * gradient
    return State(state.G - gradient, squares, state.largest, state.wealth - gradient * w)


@register_jitable
def state_from_weight(w, scalars, maps):
    """One gradient of size 1 has been seen, and the wealth is what makes the weight w."""
    size = abs(w)
    if size == 0.0:
        return State(w, w, w, w + ONE)
    return State(w / size, size - size, w / w, size + size)


RULE = Rule(
    Params,
    Scalars,
    State,
    round_scalars,
    update,
    see=see,
    weight=weight,
    state_from_weight=state_from_weight,
    initial_state=(0.0, 0.0, 0.0, 1.0),
)
SCINOL = Algorithm(
    name="scinol",
    formula="w_t = clip(G/√(S² + M_t²), 1)·η/(2√(S² + M_t²)), G = −Σ g, S² = Σ g², η = 1 − Σ g·w, M_t = max |x|",
    source="Kempka, Kotłowski and Warmuth 2019, Algorithm 2 (ScInOL₂)",
    parameters=(),
    losses=("logistic", "hinge", "huber", "softmax", "multiclass_hinge"),
    rules=RULE,
    why="a penalty in every round would change its wealth without a closed form; it has none, which is penalty='l1'",
)
