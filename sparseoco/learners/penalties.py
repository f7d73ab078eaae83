"""The penalties ψ of the objective: each proximal map once, as a scalar function for compiled loops.

`prox(v, a)` = argmin_w ½(w − v)² + a·ψ(w), where `a` is the weight of the penalty: a sum of steps times λ.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba.extending import register_jitable

from sparseoco.core.errors import InputError


@register_jitable
def soft(v, a):
    """sign(v)·max(|v| − a, 0) for a ≥ 0: the prox of a|w|.

    Written as v minus v clipped to [−a, a], which is the same value, three vector instructions, and +0 where the
    weight is truncated.
    """
    low = v if v < a else a
    return v - (low if low > -a else -a)


@register_jitable
def soft_preimage(w, a):
    """w + sign(w)·a: of the numbers whose soft(·, a) is w, the one nearest to 0."""
    return w + a if w > 0 else (w - a if w < 0 else w)


@register_jitable
def clip(v, R):
    """v in [−R, R]: the prox of a box for any weight; a NaN stays one."""
    low = R if v > R else v
    return -R if low < -R else low


@register_jitable
def value_alone(v, a):
    """v, of which a loop that sees the whole group takes its share: see `group_factor`, `group_growth`."""
    return v


@register_jitable
def amount_alone(v, a):
    """a, for the same loop."""
    return a


@register_jitable
def group_factor(square, a):
    """max(0, 1 − a/‖v‖) for ‖v‖² = square: the prox of a‖w‖₂ is v times this. A NaN stays one."""
    norm = math.sqrt(square)
    return 0.0 if norm <= a else 1.0 - a / norm


@register_jitable
def group_growth(square, a):
    """1 + a/‖w‖ for ‖w‖² = square, and 1 for w = 0: w times this is what the prox of a‖w‖₂ takes to w."""
    return 1.0 + a / math.sqrt(square) if square > 0.0 else 1.0


@dataclass(frozen=True)
class Penalty:
    """A penalty: its formula, the proximal map its learners are compiled with, and how maps of it follow each other.

    `preimage(w, a)` is a number whose ``prox(·, a)`` is w, or comes nearest to it.

    `kind` is one of
    additive: prox of a, then of b, is prox of a + b;
    decaying: ½w² is in it, whose maps multiply: ψ = λ(ρ|w| + (1 − ρ)w²/2), written with `soft`, ρ = 0 for l2;
    grouped: additive, but the map is of all classes of a feature at once;
    bounded: any number of maps are one, ``prox(v, R)``, and λ has no part.
    """

    name: str
    formula: str
    prox: Callable[[Any, Any], Any]
    preimage: Callable[[Any, Any], Any]
    kind: str = "additive"


PENALTIES = {
    penalty.name: penalty
    for penalty in (
        Penalty("l1", "λ‖w‖₁", soft, soft_preimage),
        Penalty("l2", "λ‖w‖²/2", soft, soft_preimage, "decaying"),
        Penalty("elastic_net", "λ(ρ‖w‖₁ + (1 − ρ)‖w‖²/2), ρ = l1_ratio", soft, soft_preimage, "decaying"),
        Penalty(
            "group", "λ Σ_j ‖w_j‖₂, w_j the weights of feature j for all classes", value_alone, value_alone, "grouped"
        ),
        Penalty("box", "|w_j| ≤ R", clip, clip, "bounded"),
    )
}


def penalty_values(
    penalty: Penalty, absolute: np.ndarray, squares: np.ndarray, norms: np.ndarray, ratio: np.ndarray
) -> np.ndarray:
    """(columns,): ψ without its λ of weights whose sizes are given as `drivers.tally.measure` adds them up.

    `absolute`, `squares` (columns,), `norms` (groups,); `ratio` (columns,) is the l1_ratio of each column. A group's
    value is in the first of its columns.
    """
    if penalty.kind == "bounded":
        return np.zeros_like(absolute)
    if penalty.kind == "grouped":
        values = np.zeros((norms.size, absolute.size // norms.size))
        values[:, 0] = norms
        return values.ravel()
    if penalty.kind == "decaying":
        return ratio * absolute + (1.0 - ratio) * squares / 2
    return absolute


def find_penalty(name: str) -> Penalty:
    """The penalty of that name; `InputError` names the ones there are."""
    try:
        return PENALTIES[name]
    except (KeyError, TypeError):
        raise InputError(f"penalty={name!r} is not known; choose one of {', '.join(PENALTIES)}.") from None
