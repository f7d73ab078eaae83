"""CAOS-FTRL: CAO-FTRL on a random sample of the rows, weighted by the inverse of their probabilities.

    x_{t+1} as `cao_ftrl`, with ĝ_t = (b_t/q_t)·g_t in place of g_t,    b_t = 1 with probability q_t, else 0

Source: Mohri and Yang (2015), Algorithm 3, Theorems 5 and 6; sampling as §3.2.2 and Corollary 6, p_j ∝ L_j.

The paper draws examples from a fixed set; a stream brings each row once. So the row of round t is drawn or not, and
E[ĝ_t | rows, draws so far] = g_t, which is all that Algorithm 3 requires. The probability is

- uniform: q_t = keep;
- lipschitz: q_t = min(1, keep·L_t/L̄_t), L_t = max_i |x_{t,i}| and L̄_t its mean over rows 1 … t: proportional to
  a bound on ‖∇f_t‖_∞ (the loss's constant cancels); about keep·t of t rows are drawn.

b_t is a hash of (seed, t): any worker reproduces it, columns with the same seed share their draws, and epochs draw
independently. A row that is not drawn is a round with ĝ_t = 0; it is still predicted, so progressive sums include all
rows.

Symbols, laziness and state: as `cao_ftrl`; `importance` = b_t/q_t, a factor of the gradient.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from sparseoco.core.compile_cache import register_jitable
from sparseoco.learners import cao_ftrl
from sparseoco.learners.cao_ftrl import REGULARIZER, SEPARABLE, WHY, R, Scalars
from sparseoco.learners.contract import Algorithm, Rule, derived, extended
from sparseoco.learners.losses import Loss
from sparseoco.learners.numerics import mix
from sparseoco.learners.parameters import LARGER_LAM, Parameter, categorical, positive, whole_number
from sparseoco.learners.penalties import SCHEDULE, Penalty
from sparseoco.learners.predictions import PREDICT_GRADIENT

DRAWS = np.uint64(3)  # distinct from the hash streams of row order and folds


Params = extended(cao_ftrl.Params, "keep", "sample", "seed")


SampledScalars = extended(Scalars, "importance")


@register_jitable
def drawn(seed, t):
    """A uniform number in [0, 1), a function of seed and round."""
    bits = mix(mix(mix(np.uint64(seed)) ^ DRAWS) ^ np.uint64(t))
    return float(bits >> np.uint64(11)) * 2.0**-53


@register_jitable
def importance(clock, params):
    """b_t/q_t of the current row."""
    q = params.keep
    if params.sample and clock.max_abs_sum > 0.0:
        q = min(1.0, params.keep * clock.max_abs * clock.rows_seen / clock.max_abs_sum)
    return 1.0 / q if drawn(params.seed, clock.rounds + 1.0) < q else 0.0


@register_jitable
def round_scalars(clock, params, maps):
    return SampledScalars(*cao_ftrl.round_scalars(clock, params, maps)[:], importance(clock, params))


def chance(value: Any) -> float:
    """A number in (0, 1]."""
    result = positive(value)
    if result > 1.0:
        raise ValueError("must be at most 1")
    return result


@cache
def sampled(own: Rule) -> Rule:
    """The rule with ĝ in place of g."""
    own_update = own.update

    def update(state, elapsed, scalars, gradient, row, maps):
        return own_update(state, elapsed, scalars, scalars.importance * gradient, row, maps)

    return replace(
        own,
        params=Params,
        scalars=SampledScalars,
        round_scalars=round_scalars,
        update=derived(update, own_update, "sampled"),
        needs_row_norm=True,
    )


def rule(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> Rule:
    return sampled(cao_ftrl.rule(loss, penalty, parameters))


CAOS_FTRL = Algorithm(
    name="caos-ftrl",
    formula="cao-ftrl on ĝ_t = (b_t/q_t)·g_t, P(b_t = 1) = q_t = keep or keep·L_t/L̄_t, L_t = max_i |x_{t,i}|",
    source="Mohri and Yang 2015, Algorithm 3, Theorems 5 and 6; sampling as Corollary 6",
    parameters=(
        R,
        LARGER_LAM,
        PREDICT_GRADIENT._replace(grid=()),
        REGULARIZER,
        SCHEDULE,
        Parameter("keep", 0.5, "expected fraction of the rows to learn from", chance),
        categorical(
            "sample",
            ("uniform", "lipschitz"),
            "probability of drawing a row: the same for all, or proportional to its largest |x|",
            default="lipschitz",
            static=False,
        ),
        Parameter("seed", 0, "seed of the draws, which depend on it and the round only", whole_number),
    ),
    penalties=SEPARABLE,
    rules=rule,
    why=WHY,
)
