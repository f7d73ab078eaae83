"""AROW: adaptive regularization of weights; each weight has a Gaussian whose variance shrinks with updates.

    β_t = 1/(x_tᵀΣ_t x_t + r),    α_t = max(0, 1 − y_t x_tᵀμ_t)·β_t,    and if α_t > 0:
    μ_{t+1} = μ_t + α_t Σ_t y_t x_t,    Σ_{t+1} = Σ_t − β_t Σ_t x_t x_tᵀ Σ_t, only its diagonal; Σ_1 = I

Source: Crammer, Kulesza and Dredze (2009), Figure 1, with diagonal Σ. −y_t x_t is the gradient of the hinge loss.

A sample weight multiplies 1/r, the price of the row's loss in the problem that a round solves.

Symbols: `mu` = μ, `Sigma` = Σ_jj; `row.state_sum` = xᵀΣx. Features not seen yet have Σ_jj = 1.

Why lazy is exact: only the features of the row change, so the stored weight is current.

Two numbers per coordinate, no time stamp.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from sparseoco.core.compile_cache import register_jitable
from sparseoco.learners.contract import Algorithm, Rule
from sparseoco.learners.parameters import Parameter, positive

ONE: Any = np.float32(1)  # float32, so that arithmetic with float32 columns stays float32


class Params(NamedTuple):
    r: float


class Scalars(NamedTuple):
    r: float


class State(NamedTuple):
    mu: float
    Sigma: float


@register_jitable
def round_scalars(clock, params, maps):
    return Scalars(params.r)


@register_jitable
def variance(state, x, gradient, scalars):
    """The coordinate's term of xᵀΣx."""
    return state.Sigma * x * x


@register_jitable
def update(state, elapsed, scalars, gradient, row, maps):
    beta = ONE / (row.state_sum + scalars.r / row.weight)
    scaled = state.Sigma * row.x
    shrunk = state.Sigma - beta * scaled * scaled
    return State(
        state.mu - row.loss * beta * state.Sigma * gradient,
        shrunk if row.loss > 0 else state.Sigma,
    )


@register_jitable
def state_from_weight(w, scalars, maps):
    return State(w, ONE)


RULE = Rule(
    Params,
    Scalars,
    State,
    round_scalars,
    update,
    state_from_weight=state_from_weight,
    needs_loss=True,
    weighs_rows=True,
    row_term=variance,
    initial_state=(0.0, 1.0),
    stored_weight_valid_for=math.inf,
)
AROW = Algorithm(
    name="arow",
    formula="μ_{t+1} = μ_t + α_t Σ_t y_t x_t, Σ_jj ← Σ_jj − β_t (Σ_jj x_j)², β_t = 1/(xᵀΣx + r), α_t = ℓ_t β_t",
    source="Crammer, Kulesza and Dredze 2009, Figure 1, diagonal Σ",
    parameters=(
        Parameter(
            "r",
            1.0,
            "regularization: the larger, the slower weights and variances change",
            positive,
            grid=(0.1, 1.0, 10.0),
        ),
    ),
    losses=("hinge",),
    rules=RULE,
    why="it has no penalty; penalty='l1' means no penalty",
)
