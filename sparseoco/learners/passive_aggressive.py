"""PA: passive-aggressive learning; the smallest change of the weights that makes the row's loss 0, or a part of it.

    w_{t+1} = w_t − τ_t ∇ℓ_t,    τ_t = ℓ_t/‖∇ℓ_t‖²  (PA),    min(C, ℓ_t/‖∇ℓ_t‖²)  (PA-I),
                                 ℓ_t/(‖∇ℓ_t‖² + 1/(2C))  (PA-II)

Source: Crammer, Dekel, Keshet, Shalev-Shwartz and Singer (2006), Figure 1; with the multiclass hinge loss, the update
of §8, in which the gradient is −x_t for the true class and x_t for its best rival, so that ‖∇ℓ_t‖² = 2‖x_t‖².

A sample weight multiplies C, the price of the row's loss in the problem that a round solves; PA has no such price.

Symbols: `cap` = C or ∞, `damping` = 1/(2C) or 0; `rate` = τ_t. A row without features changes nothing.

Why lazy is exact: only the features of the row change, so the stored weight is current.

One number per coordinate, no time stamp.
"""

import math
from typing import NamedTuple

from sparseoco.core.compile_cache import register_jitable
from sparseoco.learners.contract import Algorithm, Rule
from sparseoco.learners.parameters import Parameter, categorical, positive

VARIANTS = ("PA", "PA-I", "PA-II")


class Params(NamedTuple):
    C: float
    variant: float


class Scalars(NamedTuple):
    cap: float
    damping: float


class State(NamedTuple):
    w: float


@register_jitable
def round_scalars(clock, params, maps):
    cap = params.C if params.variant == 1.0 else math.inf
    return Scalars(cap, 0.5 / params.C if params.variant == 2.0 else 0.0)


@register_jitable
def update(state, elapsed, scalars, gradient, row, maps):
    damped = row.gradient_sq_norm + scalars.damping / row.weight
    rate = row.loss / damped if damped > 0 else row.loss
    cap = scalars.cap * row.weight
    return State(state.w - (rate if rate < cap else cap) * gradient)


RULE = Rule(
    Params,
    Scalars,
    State,
    round_scalars,
    update,
    needs_row_norm=True,
    needs_loss=True,
    weighs_rows=True,
    stored_weight_valid_for=math.inf,
)
PASSIVE_AGGRESSIVE = Algorithm(
    name="passive-aggressive",
    formula="w_{t+1} = w_t − τ_t ∇ℓ_t, τ_t = ℓ_t/‖∇ℓ_t‖² (PA), at most C (PA-I), or ℓ_t/(‖∇ℓ_t‖² + 1/(2C)) (PA-II)",
    source="Crammer, Dekel, Keshet, Shalev-Shwartz and Singer 2006, Figure 1, §8",
    parameters=(
        Parameter(
            "C",
            0.1,
            "aggressiveness: upper bound of τ (PA-I), or 1/(2C) is added to ‖∇ℓ‖² (PA-II)",
            positive,
            grid=(0.001, 0.01, 0.1, 1.0),
        ),
        categorical("variant", VARIANTS, "how τ is limited; PA ignores C", default="PA-I", static=False),
    ),
    losses=("hinge", "multiclass_hinge"),
    rules=RULE,
    why="it has no penalty; penalty='l1' means no penalty",
)
