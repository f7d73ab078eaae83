"""The penalties ψ of the objective: each proximal map once, as a scalar function for compiled loops.

`prox(v, a)` = argmin_w ½(w − v)² + a·ψ(w), where `a` is the weight of the penalty: a sum of steps times λ.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from sparseoco.core.errors import InputError
from sparseoco.learners.numerics import exp_of_negative

UNBOUNDED = np.float32(np.inf)  # of a type that does not widen float32 columns


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
    """v, the first argument of a prox: a kernel that sees the whole group does the rest, see `group_factor`."""
    return v


@register_jitable
def amount_alone(v, a):
    """a, the second argument of a prox."""
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


# Additive: maps of a, then of b, are one of a + b.


@register_jitable
def split_additive(a, params):
    return a, 0.0


@register_jitable
def scaled_additive(amount, scale):
    return amount * scale


@register_jitable
def repeated_additive(w, rate, due, prox):
    return prox(w, rate * due)


# ½w² is in ψ = λ(ρ|w| + (1 − ρ)w²/2): with κ = ρ/(1 − ρ) and b = a(1 − ρ), a map is |w| + κ ← (|w| + κ)/(1 + b).


@register_jitable
def split_decaying(a, params):
    return a * params.l1_ratio, a * (1.0 - params.l1_ratio)


@register_jitable
def repeated_decaying(w, kappa, due, prox):
    left = exp_of_negative(-due)
    return prox(w * left, kappa * (1.0 - left))


# A box: one projection is as good as many.


@register_jitable
def split_bounded(a, params):
    return params.R, 0.0


@register_jitable
def scaled_bounded(R, scale):
    return R if scale > 0 else UNBOUNDED


@register_jitable
def repeated_bounded(w, R, due, prox):
    return prox(w, scaled_bounded(R, due))


@register_jitable
def no_growth(r, a, p, inverse_p):
    """For learners that keep no norm of a coordinate's history."""
    return r


class Maps(NamedTuple):
    """The functions of a penalty, with which a learner's own are compiled."""

    prox: Callable[..., Any]
    """``prox(v, a)`` with the amount that `split` and `scaled` give."""
    preimage: Callable[..., Any]
    """``preimage(w, a)``: a number whose ``prox(·, a)`` is w, or comes nearest to it."""
    split: Callable[..., Any]
    """``split(a, params)``: (amount for `prox`, factor of ½w²) of a·ψ: (aρ, a(1 − ρ)), or (R, 0) for a box."""
    scaled: Callable[..., Any]
    """``scaled(amount, scale)``: the amount times a number that is not negative; for a box R, or ∞ at 0."""
    repeated: Callable[..., Any]
    """``repeated(w, rate, due, prox)``: w after all maps that are due; see `sparseoco.learners.lazy_prox`."""
    grow: Callable[..., Any] = no_growth
    """``grow(r, a, p, 1/p)``: the p-norm r of a coordinate's history with a appended (`sparseoco.learners.norms`)."""


ADDITIVE = Maps(soft, soft_preimage, split_additive, scaled_additive, repeated_additive)
DECAYING = Maps(soft, soft_preimage, split_decaying, scaled_additive, repeated_decaying)
GROUPED = ADDITIVE._replace(prox=value_alone, preimage=value_alone)
BOUNDED = Maps(clip, clip, split_bounded, scaled_bounded, repeated_bounded)


@dataclass(frozen=True)
class Penalty:
    """A penalty: its formula, and the functions its learners are compiled with."""

    name: str
    formula: str
    maps: Maps

    @property
    def decaying(self) -> bool:
        """Whether ½w² is in it, so that maps multiply instead of adding up: ρ = l1_ratio of it is l1, 0 for l2."""
        return self.maps is DECAYING

    @property
    def grouped(self) -> bool:
        """Whether a map is of all classes of a feature at once; else additive."""
        return self.maps is GROUPED

    @property
    def bounded(self) -> bool:
        """Whether it is a constraint |w_j| ≤ R, in which λ has no part."""
        return self.maps is BOUNDED

    @property
    def prox(self) -> Callable[..., Any]:
        """The proximal map."""
        return self.maps.prox


PENALTIES = {
    penalty.name: penalty
    for penalty in (
        Penalty("l1", "λ‖w‖₁", ADDITIVE),
        Penalty("l2", "λ‖w‖²/2", DECAYING),
        Penalty("elastic_net", "λ(ρ‖w‖₁ + (1 − ρ)‖w‖²/2), ρ = l1_ratio", DECAYING),
        Penalty("group", "λ Σ_j ‖w_j‖₂, w_j the weights of feature j for all classes", GROUPED),
        Penalty("box", "|w_j| ≤ R", BOUNDED),
    )
}


def penalty_values(
    penalty: Penalty, absolute: np.ndarray, squares: np.ndarray, norms: np.ndarray, ratio: np.ndarray
) -> np.ndarray:
    """(columns,): ψ without its λ of weights whose sizes are given as `kernels.count_nonzeros.measure` adds them up.

    `absolute`, `squares` (columns,), `norms` (groups,); `ratio` (columns,) is the l1_ratio of each column. A group's
    value is in the first of its columns.
    """
    if penalty.bounded:
        return np.zeros_like(absolute)
    if penalty.grouped:
        values = np.zeros((norms.size, absolute.size // norms.size))
        values[:, 0] = norms
        return values.ravel()
    if penalty.decaying:
        return ratio * absolute + (1.0 - ratio) * squares / 2
    return absolute


def find_penalty(name: str) -> Penalty:
    """The penalty of that name; `InputError` names the ones there are."""
    try:
        return PENALTIES[name]
    except (KeyError, TypeError):
        known = ", ".join(PENALTIES)
        raise InputError(f"penalty={name!r} is not known; choose one of {known}.", code="unknown-penalty") from None
