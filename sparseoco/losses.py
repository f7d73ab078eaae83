"""The losses ℓ(z, y) of a margin z = ⟨w, x⟩: each formula once, as scalar functions for compiled loops.

A loss of one margin gives `value(z, y)` and `slope(z, y)` = dℓ/dz; a classification loss takes y = ±1, a regression
loss any number. With more than two classes such a loss is applied one-vs-rest: class k sees y = +1 on its own
examples and −1 on all others, and the loss of a row is the sum over the classes.

All arithmetic is in float64 whatever the type of the weights.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numba.extending import register_jitable

from sparseoco.errors import InputError
from sparseoco.functions import exp_of_negative, log1p_of_fraction


@register_jitable
def logistic_value(z, y):
    """log(1 + exp(−yz)) = log(1 + exp(−|z|)) + max(0, −yz)."""
    m = y * z
    return log1p_of_fraction(exp_of_negative(-abs(m))) + (-m if m < 0.0 else 0.0)


@register_jitable
def logistic_slope(z, y):
    """−y / (1 + exp(yz))."""
    m = y * z
    e = exp_of_negative(-abs(m))
    return -y * (e if m > 0.0 else 1.0) / (1.0 + e)


@register_jitable
def hinge_value(z, y):
    """max(0, 1 − yz)."""
    m = 1.0 - y * z
    return m if m > 0.0 else 0.0


@register_jitable
def hinge_slope(z, y):
    """−y where yz < 1, else 0."""
    return -y if y * z < 1.0 else 0.0


@register_jitable
def squared_hinge_value(z, y):
    """max(0, 1 − yz)²."""
    m = 1.0 - y * z
    return m * m if m > 0.0 else 0.0


@register_jitable
def squared_hinge_slope(z, y):
    """−2y·max(0, 1 − yz)."""
    m = 1.0 - y * z
    return -2.0 * y * m if m > 0.0 else 0.0


@register_jitable
def squared_value(z, y):
    """½(z − y)²."""
    return 0.5 * (z - y) * (z - y)


@register_jitable
def squared_slope(z, y):
    """z − y."""
    return z - y


@dataclass(frozen=True)
class Loss:
    """A loss of one margin and what the learners must know of it.

    `slope_vanishes`: whether dℓ/dz is exactly 0 for some (z, y) in exact arithmetic; the logistic slope never is, so
    it is not treated as zero even where it underflows.
    `bound`: a configuration whose |margin| passes it has diverged.
    """

    name: str
    formula: str
    value: Callable[[Any, Any], Any]
    slope: Callable[[Any, Any], Any]
    slope_vanishes: bool
    bound: float
    regression: bool = False


MARGIN_BOUND = 1e6  # a classifier this sure of anything is running away
NUMBER_BOUND = 1e12  # targets may be large numbers; squares still fit float32

LOSSES = {
    loss.name: loss
    for loss in (
        Loss("logistic", "log(1 + exp(−yz))", logistic_value, logistic_slope, False, MARGIN_BOUND),
        Loss("hinge", "max(0, 1 − yz)", hinge_value, hinge_slope, True, MARGIN_BOUND),
        Loss("squared_hinge", "max(0, 1 − yz)²", squared_hinge_value, squared_hinge_slope, True, MARGIN_BOUND),
        Loss("squared", "½(z − y)²", squared_value, squared_slope, True, NUMBER_BOUND, regression=True),
    )
}


def find_loss(name: str) -> Loss:
    """The loss of that name; `InputError` names the ones there are."""
    try:
        return LOSSES[name]
    except (KeyError, TypeError):
        raise InputError(f"loss={name!r} is not known; choose one of {', '.join(LOSSES)}.") from None
