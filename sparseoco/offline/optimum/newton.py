"""The minimum of Σ_j f_j(x) + h(x) on rows that are at hand: proximal Newton steps to a duality gap, column by column.

From w, x⁺ is the minimum of the quadratic model with the loss's own second derivatives (`descent`), and the first of
w + t·d, d = x⁺ − w, t = 1, ½, ¼, …, is taken that descends (`found.Step`); it is searched on margins alone, z + t·Ad
(Friedman, Hastie & Tibshirani 2010; Yuan, Ho & Lin 2012, An improved GLMNET for l1-regularized logistic regression,
Algorithm 2; Lee, Sun & Saunders 2014, Proximal Newton-type methods for minimizing composite functions). A pass at w
gives the gradient, the objective and the gap, with the certificate of `solver`. The hinge is minimised with its corner
rounded, less and less.

Every column (a value of α and a class) is on its own: its bits do not depend on which others there are.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseoco.kernels.newton import newton_kernels
from sparseoco.kernels.quadratic import INNER
from sparseoco.learners.losses import find_loss
from sparseoco.offline.coordinates import ColumnMajor
from sparseoco.offline.optimum.descent import Model, product
from sparseoco.offline.optimum.found import (
    MAX_PASSES,
    NARROWING,
    STEEPNESS,
    TOLERANCE,
    WIDEST,
    Found,
    Look,
    Step,
    checked_ends,
    look,
)
from sparseoco.offline.optimum.problem import Problem
from sparseoco.offline.passes import Floats, Passes

SHORTEST = 2.0**-40  # the step below which rounding is all that is left
FLOOR = {"hinge": 1e-4}  # of the largest ℓ'': the least that a row is taken to have
LOWEST = 1e-12
STALLED = 0.5  # of the subgradients at the w before
FORCING, FINEST, COARSEST = 0.9, 1e-3, 0.3
"""How exactly a model is solved: a share of the subgradients at w that is the less the nearer the minimum is (Eisenstat
& Walker 1996, Choosing the forcing terms in an inexact Newton method, choice 2)."""


@dataclass(eq=False)
class Column(Found):
    """One problem and where its solver stands."""

    effort: int = 1  # of solving models: twice as much after each that did not help
    left: float = 0.0  # what the subgradients of the last model at its w summed up to


class Newton:
    """Columns on their way to their minima, one after another; `step` is one pass and what is made of it.

    `data` has the rows of `passes` by columns; `start` is (features, columns). A column is done at a gap of `tol`,
    relative to its objective at 0, or after `max_passes`.

    Raises `InputError` for a tolerance or a number of passes that has no meaning.
    """

    def __init__(
        self,
        passes: Passes,
        data: ColumnMajor,
        problem: Problem,
        *,
        tol: float = TOLERANCE,
        max_passes: int = MAX_PASSES,
        start: Floats | None = None,
    ) -> None:
        checked_ends(tol, max_passes)
        self.passes, self.tol, self.max_passes, self.start = passes, tol, max_passes, start
        self.data = data._replace(counts=_compact(data.counts))
        self.loss = find_loss(problem.loss)
        q = passes.squares()
        q[q == 0.0] = 1.0  # of features that no example has: their weights stay 0
        self.weight = 1.0 / np.sqrt(q)
        nowhere = np.zeros(q.size)
        width = WIDEST if problem.loss == "hinge" else 0.0
        self.columns = [Column(p, h, nowhere, nowhere, width) for p, h in problem.columns]

    @property
    def active(self) -> list[Column]:
        """The column that the next pass looks at, if there is one."""
        return [column for column in self.columns if not column.done][:1]

    def step(self) -> None:
        """One pass at the active column's point, and its next one."""
        (column,) = self.active
        (seen,) = look(self.passes, self.loss.name, [column], self.tol, self.max_passes)
        if not column.done:
            self._advance(column, seen)
        if column.done:
            column.trial = np.zeros(0)

    def _advance(self, column: Column, seen: Look) -> None:
        if self.start is not None and column.passes == 1:
            column.trial = np.ascontiguousarray(self.start[:, self.columns.index(column)])
        elif seen.rounded:
            column.width *= NARROWING  # the next pass is at the same point, of the loss with the sharper corner
            column.left = 0.0
        else:
            found = self._next(column, seen.g)
            if found is None:
                column.done = True
            else:
                column.trial = found

    def _next(self, column: Column, g: Floats) -> Floats | None:
        """The next point, or None where rounding is all that is left."""
        w, h, labels = column.trial, column.h, np.asarray(self.data.labels, np.float64)
        y = labels if column.positive < 0 else np.where(labels == column.positive, 1.0, -1.0)
        kernels = newton_kernels(self.loss)
        z, c = product(self.data, w), np.empty_like(y)
        floor = FLOOR.get(self.loss.name, LOWEST) * STEEPNESS[self.loss.name] / (column.width or 1.0)
        kernels.curvatures(z, y, column.width, floor, c)
        model = Model(self.data, h, self.weight, w, g, c)
        _, left = model.subgradients()
        if left > STALLED * column.left > 0.0:
            column.effort *= 2
        share = max(FORCING * (left / column.left) ** 2, FINEST) if column.left > 0.0 else COARSEST
        column.left = left
        best = model.minimise(min(share, COARSEST) * left, column.effort)
        direction = best - w
        first = float(INNER(g, direction))
        decrease = first + h.change(best, w)
        if not decrease < 0.0:
            return None
        delta, t, trial = product(self.data, direction), 1.0, best
        while t > SHORTEST:
            gained, last = kernels.line(z, delta, y, t, column.width)
            if Step(gained, t * first, t * last, h.change(trial, w)).descends(t * decrease, column.at_zero):
                return trial
            t *= 0.5
            trial = w + t * direction
        return None


def _compact(counts: NDArray[Any]) -> NDArray[Any]:
    """The same numbers in a byte each where they fit, else in float64: what is read sets the pace."""
    if counts.size and counts.min() >= 0 and counts.max() <= 255:
        small = counts.astype(np.uint8)
        if (small == counts).all():
            return small
    return counts.astype(np.float64)
