"""CAOS-FTRL: CAO-FTRL that learns from a sample of the rows, each weighed by one over its chance.

    x_{t+1} as `cao_ftrl`, with ĝ_t = (b_t/q_t)·g_t for g_t,    b_t = 1 with chance q_t, else 0

Source: Mohri and Yang (2015), Algorithm 3 and Theorem 5; sampling as §3.2.2 and Corollary 6, p_j ∝ L_j.

The paper draws examples from a set that it holds; a stream brings each row once, in its order. So it is the row of
round t that is drawn or not, and E[ĝ_t | rows, draws so far] = g_t, which is all that Algorithm 3 asks. The chance is

- uniform: q_t = keep;
- lipschitz: q_t = min(1, keep·L_t/L̄_t), L_t = max_i |x_{t,i}| and L̄_t its mean over the rows seen, 1 … t: a row
  counts in proportion to its bound on ‖∇f_t‖_∞ (the loss's constant cancels), and about keep·t rows are drawn of t.

b_t is a hash of (seed, t): any worker repeats it, columns of one seed share their draws, and a row drawn again in a
later epoch is drawn anew. A row that is not drawn is a round like any other, with ĝ_t = 0; it is still predicted, so
progressive sums run over all rows.

Symbols, laziness and state: as `cao_ftrl`; `importance` = b_t/q_t.
"""

import operator
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from sparseoco.learners import cao_ftrl
from sparseoco.learners.cao_ftrl import PREDICT, SEPARABLE, WHY, R, scalars_of_round
from sparseoco.learners.contract import Algorithm, Rule
from sparseoco.learners.losses import Loss
from sparseoco.learners.numerics import mix
from sparseoco.learners.parameters import LARGER_LAM, Parameter, categorical, positive
from sparseoco.learners.penalties import Penalty

DRAWS = np.uint64(3)  # a stream of hashes apart from the order of rows and the folds


class Params(NamedTuple):
    R: float
    lam: float
    l1_ratio: float
    keep: float
    sample: float
    seed: float


@register_jitable
def drawn(seed, t):
    """A number of [0, 1), uniform over seeds and rounds."""
    bits = mix(mix(mix(np.uint64(seed)) ^ DRAWS) ^ np.uint64(t))
    return float(bits >> np.uint64(11)) * 2.0**-53


@register_jitable
def importance(clock, params):
    """b_t/q_t of the row that is played."""
    q = params.keep
    if params.sample and clock.max_abs_sum > 0.0:
        q = min(1.0, params.keep * clock.max_abs * clock.rows_seen / clock.max_abs_sum)
    return 1.0 / q if drawn(params.seed, clock.rounds + 1.0) < q else 0.0


@register_jitable
def round_scalars(clock, params, maps):
    l1, ridge = maps.split(params.lam, params)
    return scalars_of_round(params.R, l1, ridge, clock.rounds + 1.0, importance(clock, params))


def chance(value: Any) -> float:
    """A number of (0, 1]."""
    result = positive(value)
    if result > 1.0:
        raise ValueError("must be at most 1")
    return result


def seed(value: Any) -> int:
    """A whole number that a float64 holds exactly, from 0."""
    try:
        result = operator.index(value)
    except TypeError:
        raise ValueError("must be a whole number") from None
    if not 0 <= result < 2**53:
        raise ValueError("must be at least 0 and below 2**53")
    return result


def rule(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> Rule:
    own = cao_ftrl.rule(loss, penalty, parameters)
    return replace(own, params=Params, round_scalars=round_scalars, needs_row_norm=True)


CAOS_FTRL = Algorithm(
    name="caos-ftrl",
    formula="cao-ftrl on ĝ_t = (b_t/q_t)·g_t, b_t = 1 with chance q_t = keep or keep·L_t/L̄_t, L_t = max_i |x_{t,i}|",
    source="Mohri and Yang 2015, Algorithm 3, Theorem 5; sampling as Corollary 6",
    parameters=(
        R,
        LARGER_LAM,
        PREDICT._replace(grid=()),
        Parameter("keep", 0.5, "expected share of the rows that are learned from", chance),
        categorical(
            "sample",
            ("uniform", "lipschitz"),
            "probability of drawing a row: the same for all, or proportional to its largest |x|",
            default="lipschitz",
            static=False,
        ),
        Parameter("seed", 0, "of the draws, which are a function of it and of the round", seed),
    ),
    penalties=SEPARABLE,
    rule=rule,
    why=WHY,
)
