"""The penalties ψ: each proximal map once, as a scalar function for compiled loops.

`prox(v, a)` = argmin_w ½(w − v)² + a·ψ(w), where `a` is the weight of the penalty: a sum of steps times λ.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sparseoco.core.compile_cache import register_jitable
from sparseoco.core.errors import InputError
from sparseoco.learners.numerics import exp_of_negative
from sparseoco.learners.parameters import categorical

UNBOUNDED = np.float32(np.inf)  # float32, so that arithmetic with float32 columns stays float32
ONE: Any = np.float32(1)  # float32, so that arithmetic with float32 columns stays float32


@register_jitable
def soft(v, a):
    """sign(v)·max(|v| − a, 0) for a ≥ 0: the prox of a|w|.

    Written as v minus v clipped to [−a, a]: the same value in three vector instructions, and +0 for truncated weights.
    """
    low = v if v < a else a
    return v - (low if low > -a else -a)


@register_jitable
def soft_preimage(w, a):
    """w + sign(w)·a: the smallest number whose soft(·, a) is w."""
    return w + a if w > 0 else (w - a if w < 0 else w)


@register_jitable
def clip(v, R):
    """v clipped to [−R, R]: the prox of a box for any weight; NaN propagates."""
    low = R if v > R else v
    return -R if low < -R else low


@register_jitable
def value_alone(v, a):
    """v, the first argument of a prox: for groups the kernel applies the prox itself, see `group_factor`."""
    return v


@register_jitable
def amount_alone(v, a):
    """a, the second argument of a prox."""
    return a


@register_jitable
def group_factor(square, a):
    """max(0, 1 − a/‖v‖) for ‖v‖² = square: the prox of a‖w‖₂ is v times this. NaN propagates."""
    norm = math.sqrt(square)
    return 0.0 if norm <= a else 1.0 - a / norm


@register_jitable
def group_growth(square, a):
    """1 + a/‖w‖ for ‖w‖² = square, and 1 for w = 0: the prox of a‖w‖₂ maps w times this to w."""
    return 1.0 + a / math.sqrt(square) if square > 0.0 else 1.0


# Additive: the map of a followed by the map of b is the map of a + b.


@register_jitable
def split_additive(a, params):
    return a, 0.0


@register_jitable
def scaled_additive(amount, scale):
    return amount * scale


@register_jitable
def repeated_additive(w, rate, due, prox):
    return prox(w, rate * due)


# Decaying, ψ = λ(ρ|w| + (1 − ρ)w²/2): with κ = ρ/(1 − ρ) and b = a(1 − ρ), a map is |w| + κ ← (|w| + κ)/(1 + b).


@register_jitable
def split_decaying(a, params):
    return a * params.l1_ratio, a * (1.0 - params.l1_ratio)


@register_jitable
def repeated_decaying(w, kappa, due, prox):
    left = exp_of_negative(-due)
    return prox(w * left, kappa * (1.0 - left))


# Bounded: repeated projections onto a box equal one.


@register_jitable
def split_bounded(a, params):
    return params.R, 0.0


@register_jitable
def scaled_bounded(R, scale):
    return R if scale > 0 else UNBOUNDED


@register_jitable
def repeated_bounded(w, R, due, prox):
    return prox(w, scaled_bounded(R, due))


# The penalties ψ_t = α_tψ of a sequence: ψ_{1:t} = total(t)·ψ.


@register_jitable
def total_constant(t):
    """t: ψ_t = ψ."""
    return t


@register_jitable
def total_sqrt(t):
    """√t: ψ_t = (√t − √(t − 1))ψ."""
    return math.sqrt(t)


@register_jitable
def total_first(t):
    """1 from the first round on, 0 before: ψ_1 = ψ, all others 0."""
    return min(t, ONE)


@register_jitable
def no_growth(r, a, p, inverse_p):
    """`grow` of learners without a norm of each coordinate's history."""
    return r


class PenaltyFunctions(NamedTuple):
    """The functions of a penalty that are compiled into a learner."""

    prox: Callable[..., Any]
    """``prox(v, a)`` with the amount that `split` and `scaled` return."""
    preimage: Callable[..., Any]
    """``preimage(w, a)``: a number whose ``prox(·, a)`` is w or as close as possible."""
    split: Callable[..., Any]
    """``split(a, params)``: a·ψ as (amount for `prox`, factor of ½w²): (aρ, a(1 − ρ)), or (R, 0) for a box."""
    scaled: Callable[..., Any]
    """``scaled(amount, scale)``: the amount times a scale ≥ 0; for a box R, or ∞ if the scale is 0."""
    repeated: Callable[..., Any]
    """``repeated(w, rate, due, prox)``: w after all pending maps; see `sparseoco.learners.fobos`."""
    grow: Callable[..., Any] = no_growth
    """``grow(r, a, p, 1/p)``: the p-norm r of a coordinate's history with a appended (`sparseoco.learners.domains`)."""
    total: Callable[..., Any] = total_constant
    """``total(t)``: Σ_{s≤t} α_s of a sequence of penalties α_tψ, see `SCHEDULE`."""


ADDITIVE = PenaltyFunctions(soft, soft_preimage, split_additive, scaled_additive, repeated_additive)
DECAYING = PenaltyFunctions(soft, soft_preimage, split_decaying, scaled_additive, repeated_decaying)
GROUPED = ADDITIVE._replace(prox=value_alone, preimage=value_alone)
BOUNDED = PenaltyFunctions(clip, clip, split_bounded, scaled_bounded, repeated_bounded)

TOTALS = {"constant": total_constant, "sqrt": total_sqrt, "first": total_first}
SCHEDULE = categorical(
    "schedule",
    tuple(TOTALS),
    "sum of the penalties ψ_1 … ψ_t: tψ (each is ψ), √t·ψ (decreasing), or ψ (only the first is not 0)",
)


@dataclass(frozen=True)
class Penalty:
    """A penalty: its formula and its functions for compiled code."""

    name: str
    formula: str
    maps: PenaltyFunctions

    @property
    def decaying(self) -> bool:
        """Whether it contains ½w², so that maps multiply instead of adding up; ρ = l1_ratio, 0 for l2."""
        return self.maps is DECAYING

    @property
    def grouped(self) -> bool:
        """Whether its prox acts on all classes of a feature together."""
        return self.maps is GROUPED

    @property
    def bounded(self) -> bool:
        """Whether it is a constraint |w_j| ≤ R, without λ."""
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
    """(columns,): ψ without λ, from the sums that `kernels.count_nonzeros.measure` computes.

    `absolute`, `squares` (columns,), `norms` (groups,); `ratio` (columns,), the l1_ratio of each column. The value of a
    group is in its first column.
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
    """The penalty with this name. Raises `InputError` if it is unknown."""
    try:
        return PENALTIES[name]
    except (KeyError, TypeError):
        known = ", ".join(PENALTIES)
        raise InputError(f"penalty={name!r} is not known; choose one of {known}.", code="unknown-penalty") from None
