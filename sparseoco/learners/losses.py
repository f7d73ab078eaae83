"""The losses ℓ(z, y) of a margin z = ⟨w, x⟩: each formula once, as scalar functions for compiled loops.

A loss of one margin has `value(z, y)`, `slope(z, y)` = dℓ/dz and optionally `curvature(z, y)` = d²ℓ/dz²; a
classification loss takes y = ±1, a regression loss any number. With more than two classes it is applied one-vs-rest:
class k has y = +1 on its own examples and −1 on all others, and the loss of a row is the sum over the classes.

A joint loss is one loss of the margins z_k = ⟨w_k, x⟩ of all classes: `value(z, u, first, stop, truth)` reads
``z[first:stop]``, writes the slopes dℓ/dz_k to ``u[first:stop]`` and returns ℓ; `truth` is the index of the true class.

All arithmetic is in float64 whatever the dtype of the weights.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from sparseoco.core.compile_cache import register_jitable
from sparseoco.core.errors import InputError, unsupported
from sparseoco.learners.numerics import exp_of_negative, log1p_of_fraction

LEAST_VALUE = 1e-12


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
def logistic_curvature(z, y):
    """σ(z)(1 − σ(z)) = e/(1 + e)², e = exp(−|z|)."""
    e = exp_of_negative(-abs(z))
    return e / ((1.0 + e) * (1.0 + e))


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
def squared_hinge_curvature(z, y):
    """2 where yz < 1, else 0."""
    return 2.0 if y * z < 1.0 else 0.0


@register_jitable
def squared_value(z, y):
    """½(z − y)²."""
    return 0.5 * (z - y) * (z - y)


@register_jitable
def squared_slope(z, y):
    """z − y."""
    return z - y


@register_jitable
def squared_curvature(z, y):
    """1."""
    return 1.0


@register_jitable
def huber_value(z, y):
    """½r² where |r| ≤ 1, else |r| − ½, r = z − y."""
    r = abs(z - y)
    return 0.5 * r * r if r <= 1.0 else r - 0.5


@register_jitable
def huber_slope(z, y):
    """min(1, max(−1, z − y))."""
    r = z - y
    return 1.0 if r > 1.0 else (-1.0 if r < -1.0 else r)


@register_jitable
def return_value(z, y):
    """−z: the negative return. There is no label."""
    return -z


@register_jitable
def return_slope(z, y):
    """−1."""
    return -1.0


@register_jitable
def log_return_value(z, y):
    """−log max(z, 10⁻¹²)."""
    return -np.log(max(z, LEAST_VALUE))


@register_jitable
def log_return_slope(z, y):
    """−1/max(z, 10⁻¹²)."""
    return -1.0 / max(z, LEAST_VALUE)


@register_jitable
def logistic_conjugate(u):
    """a·log a + (1 − a)·log(1 − a), a = |u| ≤ 1."""
    a = abs(u)
    return (a * np.log(a) if a > 0.0 else 0.0) + ((1.0 - a) * np.log1p(-a) if a < 1.0 else 0.0)


@register_jitable
def hinge_conjugate(u):
    """−a, a = |u| ≤ 1."""
    return -abs(u)


@register_jitable
def squared_hinge_conjugate(u):
    """a²/4 − a, a = |u|."""
    a = abs(u)
    return 0.25 * a * a - a


@register_jitable
def squared_conjugate(u):
    """½u², without the term yu."""
    return 0.5 * u * u


@register_jitable
def smoothed_hinge_value(z, y, width):
    """The hinge with its corner rounded: m²/(2μ) for 0 < m < μ, m − μ/2 beyond, m = 1 − yz, μ = width.

    At most μ/2 below the hinge (Nesterov 2005, Smooth minimization of non-smooth functions).
    """
    m = 1.0 - y * z
    return 0.0 if m <= 0.0 else (0.5 * m * m / width if m < width else m - 0.5 * width)


@register_jitable
def smoothed_hinge_slope(z, y, width):
    """−y·min(1, max(0, (1 − yz)/μ))."""
    m = 1.0 - y * z
    return 0.0 if m <= 0.0 else (-y * m / width if m < width else -y)


@register_jitable
def smoothed_hinge_curvature(z, y, width):
    """1/μ where 0 < 1 − yz < μ, else 0."""
    m = 1.0 - y * z
    return 1.0 / width if 0.0 < m < width else 0.0


@register_jitable
def softmax(z, u, first, stop, truth):
    """log Σ_k exp(z_k) − z_truth; slopes exp(z_k) / Σ exp(z) − [k = truth]."""
    largest = float(z[first])
    for c in range(first + 1, stop):
        largest = max(largest, float(z[c]))
    total = 0.0
    for c in range(first, stop):
        total += exp_of_negative(float(z[c]) - largest)
    for c in range(first, stop):
        u[c] = exp_of_negative(float(z[c]) - largest) / total - (1.0 if c == truth else 0.0)
    return np.log(total) + (largest - float(z[truth]))


@register_jitable
def multiclass_hinge(z, u, first, stop, truth):
    """max(0, 1 − z_truth + z_r), r the best wrong class (the first on ties); slopes −1 and +1 if it is not 0."""
    rival = first if truth != first else first + 1
    for c in range(first, stop):
        u[c] = 0.0
        rival = c if c != truth and z[c] > z[rival] else rival
    loss = 1.0 - float(z[truth]) + float(z[rival])
    if loss > 0.0:
        u[truth], u[rival] = -1.0, 1.0
    return loss if loss > 0.0 else 0.0


@dataclass(frozen=True)
class Loss:
    """A loss and its properties."""

    name: str
    formula: str
    value: Callable[..., Any]
    slope: Callable[[Any, Any], Any] | None = None
    conjugate: Callable[[Any], Any] | None = None
    """ℓ*(u) = sup_z uz − ℓ(z, y) at feasible slopes u; for regression without its term yu."""
    curvature: Callable[[Any, Any], Any] | None = None
    """d²ℓ/dz², for losses with a piecewise differentiable slope that are not piecewise linear."""
    _: KW_ONLY
    slope_vanishes: bool = True
    """Whether dℓ/dz is 0 for some (z, y) in exact arithmetic. The logistic slope never is, even if it underflows."""
    nonnegative: bool = True
    """Whether its least value is 0, for every label."""
    regression: bool = False
    joint: str = ""
    """For a joint loss: the loss of one margin to use with two classes."""

    @property
    def bound(self) -> float:
        """A configuration has diverged once a |margin| exceeds this: targets may be large, but their squares still fit
        in float32."""
        return 1e12 if self.regression else 1e6


_LOSSES = (
    Loss(
        "logistic",
        "log(1 + exp(−yz))",
        logistic_value,
        logistic_slope,
        logistic_conjugate,
        logistic_curvature,
        slope_vanishes=False,
    ),
    Loss("hinge", "max(0, 1 − yz)", hinge_value, hinge_slope, hinge_conjugate),
    Loss(
        "squared_hinge",
        "max(0, 1 − yz)²",
        squared_hinge_value,
        squared_hinge_slope,
        squared_hinge_conjugate,
        squared_hinge_curvature,
    ),
    Loss(
        "squared",
        "½(z − y)²",
        squared_value,
        squared_slope,
        squared_conjugate,
        squared_curvature,
        regression=True,
    ),
    Loss("huber", "½r² for |r| ≤ 1, else |r| − ½, r = z − y", huber_value, huber_slope, regression=True),
    Loss("softmax", "log Σ_k exp(z_k) − z_y", softmax, slope_vanishes=False, joint="logistic"),
    Loss("multiclass_hinge", "max(0, 1 − z_y + max_{k≠y} z_k)", multiclass_hinge, joint="hinge"),
)
_PORTFOLIO_LOSSES = (
    Loss("return", "−z", return_value, return_slope, slope_vanishes=False, nonnegative=False, regression=True),
    Loss(
        "log_return",
        "−log z",
        log_return_value,
        log_return_slope,
        slope_vanishes=False,
        nonnegative=False,
        regression=True,
    ),
)
LOSSES = {loss.name: loss for loss in _LOSSES}
PORTFOLIO_LOSSES = {loss.name: loss for loss in _PORTFOLIO_LOSSES}
"""Losses of a portfolio w on the simplex: z = ⟨w, x⟩ is its return for returns x, or its growth for price relatives x.
Labels are ignored. Only dense learners take them."""


def find_loss(name: str, *, portfolio: bool = False) -> Loss:
    """The loss with this name, with `portfolio` also one of portfolios. Raises `InputError` if it is unknown."""
    losses = LOSSES | PORTFOLIO_LOSSES if portfolio else LOSSES
    try:
        return losses[name]
    except (KeyError, TypeError):
        message = f"loss={name!r} is not known; choose one of {', '.join(losses)}."
        raise InputError(message, code="unknown-loss") from None


# ----------------------------------------------------------------------------------------------------------------------
# Input checks of the portfolio losses.


def check_portfolio(loss: str, configurations: Sequence[Mapping[str, Any]], n_classes: int | None) -> None:
    """Raises `InputError` for labels, and for log_return outside the simplex."""
    if n_classes is not None:
        raise InputError(
            f"loss={loss!r} is a portfolio loss without classes: n_classes must be None.", code="invalid-labels"
        )
    if loss == "log_return" and any(configuration["domain"] != "simplex" for configuration in configurations):
        raise unsupported("loss='log_return' needs weights ≥ 0 that sum to 1: use domain=simplex.")


def check_relatives(X: Any) -> None:
    """Raises `InputError`, naming the first row (from 0), if a CSR matrix has a negative price relative."""
    below = np.flatnonzero(X.data < 0)
    if below.size:
        row = int(np.searchsorted(X.indptr, below[0], side="right")) - 1
        raise InputError(
            f"Row {row} has {X.data[below[0]]:g}: loss='log_return' takes price relatives ≥ 0.",
            code="invalid-input",
        )
