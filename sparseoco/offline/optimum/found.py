"""What a pass at a point says of one problem's minimum: the best point, the greatest bound, and whether they have met.

Both methods, by passes alone (`solver`) and on columns at hand (`newton`), look at their points with this.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sparseoco.core.errors import InputError
from sparseoco.kernels.quadratic import INNER
from sparseoco.offline.optimum.certificate import certify
from sparseoco.offline.optimum.regulariser import Regulariser
from sparseoco.offline.passes import Floats, Passes, PassRequest

TOLERANCE, MAX_PASSES = 1e-6, 2000
DECREASE = 1e-4
ROUNDING = 1e-9  # of the objective at 0: smaller differences of sums have few digits left
WIDEST, NARROWING = 1.0, 0.25
ROUNDED = 0.5  # the hinge's corner is made sharper once the rounding has this share of the gap
STEEPNESS = {"logistic": 0.25, "squared": 1.0, "squared_hinge": 2.0, "hinge": 1.0}
"""The largest ℓ''; of the rounded hinge, times the width of its corner."""


def _nothing() -> Floats:
    return np.zeros(0)


@dataclass(eq=False)
class Found:
    """One problem, the next point to be looked at, and what is known of its minimum. Vectors are (features,)."""

    positive: int
    h: Regulariser
    trial: Floats
    best: Floats
    width: float = 0.0  # of the hinge's corner
    at_zero: float = 0.0  # the objective there
    objective: float = np.inf  # of the best point seen, of the loss itself
    dual: float = -np.inf
    passes: int = 0
    done: bool = False
    converged: bool = False
    history: Floats = field(default_factory=lambda: np.zeros((0, 3)))
    """(passes, 3): the least objective, the greatest dual and the nonzeros of the best point, after every pass."""

    @property
    def gap(self) -> float:
        """How far above the optimum `best` can be; rounding may make it less than 0, which it is not."""
        return max(0.0, self.objective - self.dual)

    def take(self, objective: float, dual: float, tol: float, max_passes: int) -> None:
        """A pass found this at the trial point."""
        self.passes += 1
        if self.passes == 1:
            self.at_zero = objective
        self.dual = max(self.dual, dual)
        if objective < self.objective:
            self.objective, self.best = objective, self.trial
        now = np.array([[self.objective, self.dual, float(np.count_nonzero(self.best))]])
        self.history = np.concatenate([self.history, now])
        self.converged = self.gap <= tol * self.at_zero
        self.done = self.converged or self.passes >= max_passes


class Look(NamedTuple):
    """A pass at one column's trial point; `loss_sum` and `g` are of the loss that is minimised, its corner rounded."""

    g: Floats
    loss_sum: float
    rounded: bool
    """Whether the rounding of the corner has too large a share of the gap."""


def checked_ends(tol: float, max_passes: int) -> None:
    """Raises `InputError` for a tolerance or a number of passes that has no meaning."""
    if not 0.0 < tol < 1.0:
        raise InputError(f"tol={tol!r} must be between 0 and 1.", code="invalid-option")
    if isinstance(max_passes, bool) or max_passes != int(max_passes) or max_passes < 1:
        raise InputError(f"max_passes={max_passes!r} must be a whole number of at least 1.", code="invalid-option")


def look(passes: Passes, loss: str, columns: Sequence[Found], tol: float, max_passes: int) -> list[Look]:
    """One pass at the trial points of columns, which take what it says."""
    question = PassRequest(
        loss,
        tuple(column.positive for column in columns),
        tuple(column.width for column in columns) if loss == "hinge" else (),
    )
    totals = passes.totals(np.stack([column.trial for column in columns], axis=1), question)
    gradients = [np.ascontiguousarray(totals.gradient[:, c]) for c in range(len(columns))]
    inner = np.array([INNER(g, column.trial) for g, column in zip(gradients, columns, strict=True)])
    certificate = certify(passes, totals, question, inner, [column.h for column in columns])
    passes.drop(totals)
    looks = []
    for c, column in enumerate(columns):
        objective, dual = float(totals.exact_sum[c]) + column.h.value(column.trial), float(certificate.dual[c])
        rounded = column.width > 0.0 and float(certificate.slack[c]) >= ROUNDED * (objective - dual)
        column.take(objective, dual, tol, max_passes)
        looks.append(Look(gradients[c], float(totals.loss_sum[c]), rounded))
    return looks


class Step(NamedTuple):
    """From w to w + step: of F, the sum of the loss and h.

    gained       what the loss gains
    first, last  ⟨gradient of the loss, step⟩ at both ends
    change       h(w + step) − h(w)
    """

    gained: float
    first: float
    last: float
    change: float

    def rise(self, scale: float) -> float:
        """F(w + step) − F(w); what is too small to be seen in a difference of sums is told from the slopes at both ends
        (Hager & Zhang 2005)."""
        rise = self.gained + self.change
        return 0.5 * (self.first + self.last) + self.change if abs(rise) <= ROUNDING * scale else rise

    def descends(self, least: float, scale: float) -> bool:
        """F(w + step) ≤ F(w) + 10⁻⁴·least (Tseng & Yun 2009, eq. 9); F being convex, last + change is no less."""
        return min(self.last + self.change, self.rise(scale)) <= DECREASE * least
