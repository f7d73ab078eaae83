"""Minimise Σ_j f_j(x) + h(x) over rows in this process: proximal Newton steps to a duality gap, column by column.

From w, x⁺ is the minimum of the quadratic model with the loss's own second derivatives (`QuadraticModel`), and the
first w + t·d, d = x⁺ − w, t = 1, ½, ¼, …, that decreases the objective enough (`Step`) is taken; the line search
needs only margins, z + t·Ad (Friedman, Hastie & Tibshirani 2010; Yuan, Ho & Lin 2012, An improved GLMNET for
l1-regularized logistic regression, Algorithm 2; Lee, Sun & Saunders 2014, Proximal Newton-type methods for minimizing
composite functions). A pass at w gives the gradient, the objective and the gap, with its certificate. The hinge is
minimised through increasingly close smooth approximations.

The model is minimised by coordinate descent over a working set, which finds the coordinates that are zero or at the
box, and by conjugate gradients for the values of the others, where descent alone is slow: words are correlated, so that
the model is far from diagonal (Friedman, Hastie & Tibshirani 2010; Dembo, Eisenstat & Steihaug 1982,
Inexact Newton methods; Byrd, Chin, Nocedal & Oztoprak 2016, A family of second-order methods for convex l1-regularized
optimization).

Every column (a value of α and a class) is solved separately: its bits do not depend on the others.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseoco.kernels.newton import (
    COLUMN_CURVATURES,
    COLUMN_SLOPES,
    CONJUGATE_GRADIENTS,
    LEAST_SUBGRADIENTS,
    PRODUCT,
    SWEEP_COLUMNS,
    inner_product,
    newton_kernels,
)
from sparseoco.offline.optimum_problem import (
    MAX_CURVATURE,
    WIDTH_FACTOR,
    ColumnProgress,
    Gap,
    OptimumProblem,
    Regulariser,
    Solver,
    Step,
)
from sparseoco.offline.options import MAX_PASSES, TOLERANCE
from sparseoco.offline.passes import ColumnMajor, Floats, LocalPasses

MIN_STEP = 2.0**-40  # shorter steps are lost in rounding
FLOOR = {"hinge": 1e-4}  # lower bound on a row's ℓ'', relative to the largest
LOWEST = 1e-12
STALLED = 0.5  # of the subgradients at the previous w
FORCING, FINEST, COARSEST = 0.9, 1e-3, 0.3
"""Accuracy of a model's solution: a fraction of the subgradients at w that decreases near the minimum (Eisenstat &
Walker 1996, Choosing the forcing terms in an inexact Newton method, choice 2)."""
NEAR = 0.5  # of l1; features with a smaller slope are unlikely to leave 0 in one step, and can in the next
TURNS = 3  # of coordinate descent and conjugate gradients
RESIDUAL, SHARE, ITERATIONS = 0.1, 0.3, 30  # of conjugate gradients
MAX_ITERATIONS = 1000  # of conjugate gradients
HALVINGS = 12


class QuadraticModel:
    """m(x) = ⟨g, x − w⟩ + ½ Σ_i c_i⟨a_i, x − w⟩² + h(x), c > 0 (rows,), and the current minimiser x.

    `weight` (features,) scales subgradients to comparable units.
    """

    def __init__(self, data: ColumnMajor, h: Regulariser, weight: Floats, w: Floats, g: Floats, c: Floats) -> None:
        self.data, self.h, self.weight, self.w, self.g, self.c = data, h, weight, w, g, c
        self.x, self.r = w.copy(), np.zeros_like(c)
        self.members = np.flatnonzero((w != 0.0) | (np.abs(g) > NEAR * h.l1))
        self.curvatures = np.zeros_like(w)
        COLUMN_CURVATURES(self.members, data, c, self.curvatures)

    def minimise(self, goal: float, effort: int) -> Floats:
        """Minimise m approximately, until the norm of `subgradients` is at most `goal` or `effort` ≥ 1 is spent."""
        for _ in range(TURNS):
            SWEEP_COLUMNS(self.members, self.data, self.c, self.g, self.curvatures, *self.h, self.x, self.r)
            slopes, residual = self.subgradients()
            if residual <= goal:
                break
            self.newton(slopes, max(RESIDUAL, SHARE * goal / residual), min(effort * ITERATIONS, MAX_ITERATIONS))
        return self.x

    def subgradients(self) -> tuple[Floats, float]:
        """The least subgradient of m at x over the working set, and its weighted 1-norm."""
        slopes, out = np.zeros_like(self.w), np.zeros_like(self.w)
        COLUMN_SLOPES(self.members, self.data, self.g, self.r, slopes)
        LEAST_SUBGRADIENTS(self.members, self.x, slopes, *self.h, out)
        return out, inner_product(self.weight, np.abs(out))

    def newton(self, slopes: Floats, residual: float, iterations: int) -> None:
        """A Newton step in the coordinates that are neither zero nor at the box; none changes its sign."""
        inside = np.abs(self.x) < self.h.box
        free = np.flatnonzero(inside & (self.x != 0.0) if self.h.l1 > 0.0 else inside)
        free = free[self.curvatures[free] + self.h.l2 > 0.0]
        direction, step = np.zeros_like(self.x), 1.0
        matrix = (self.data, self.c, self.curvatures, self.h.l2)
        CONJUGATE_GRADIENTS(free, *matrix, slopes, residual, iterations, direction)
        now = self.value(self.x, self.r)
        for _ in range(HALVINGS):
            x = np.clip(self.x + step * direction, -self.h.box, self.h.box)
            if self.h.l1 > 0.0:
                x[x * self.x < 0.0] = 0.0
            r = self.c * product(self.data, x - self.w)
            if self.value(x, r) < now:
                self.x, self.r = x, r
                return
            step *= 0.5

    def value(self, x: Floats, r: Floats) -> float:
        """m(x) − h(w)."""
        return float(inner_product(self.g, x - self.w) + 0.5 * inner_product(r, r / self.c)) + self.h.change(x, self.w)


def product(data: ColumnMajor, v: Floats) -> Floats:
    """A·v (rows,)."""
    out = np.zeros(data.n_rows)
    PRODUCT(np.flatnonzero(v), data, v, out)
    return out


@dataclass(eq=False)
class Column(ColumnProgress):
    """One problem and the state of its solver."""

    effort: int = 1  # for solving models; doubled after an ineffective one
    residual: float = 0.0  # sum of the subgradients of the last model at its w


class Newton(Solver[Column]):
    """Minimises columns one after another, over passes whose rows are in this process.

    `start` is (features, columns). An intercept that `passes` fit is fixed within a step.
    """

    def __init__(
        self,
        passes: LocalPasses,
        problem: OptimumProblem,
        *,
        tol: float = TOLERANCE,
        max_passes: int = MAX_PASSES,
        start: Floats | None = None,
    ) -> None:
        super().__init__(passes, problem, tol, max_passes)
        data = passes.columns()
        self.data, self.start = data._replace(counts=_compact(data.counts)), start
        weights = passes.sample_weights()
        self.sample_weight = np.ones(data.n_rows) if weights is None else weights
        self.weight = 1.0 / np.sqrt(self.squares)

    def column(self, positive: int, h: Regulariser, trial: Floats, best: Floats, width: float) -> Column:
        """See `Solver.column`."""
        return Column(positive, h, trial, best, width)

    def advance(self, column: Column, gap: Gap) -> None:
        """See `Solver.advance`."""
        if self.start is not None and column.passes == 1:
            column.trial = np.ascontiguousarray(self.start[:, self.columns.index(column)])
        elif gap.oversmoothed:
            column.width *= WIDTH_FACTOR  # the next pass is at the same point, with the loss less smoothed
            column.residual = 0.0
        else:
            point = self._next(column, gap.g)
            if point is None:
                column.done = True
            else:
                column.trial = point

    def _next(self, column: Column, g: Floats) -> Floats | None:
        """The next point, or None if steps are lost in rounding."""
        w, h, labels = column.trial, column.h, self.data.labels
        y = labels if column.positive < 0 else np.where(labels == column.positive, 1.0, -1.0)
        kernels = newton_kernels(self.loss)
        z, c = product(self.data, w) + column.intercept, np.empty_like(y)
        floor = FLOOR.get(self.loss.name, LOWEST) * MAX_CURVATURE[self.loss.name] / (column.width or 1.0)
        kernels.curvatures(z, y, column.width, floor, c)
        c *= np.maximum(self.sample_weight, LOWEST)
        model = QuadraticModel(self.data, h, self.weight, w, g, c)
        _, residual = model.subgradients()
        if residual > STALLED * column.residual > 0.0:
            column.effort *= 2
        share = max(FORCING * (residual / column.residual) ** 2, FINEST) if column.residual > 0.0 else COARSEST
        column.residual = residual
        best = model.minimise(min(share, COARSEST) * residual, column.effort)
        direction = best - w
        first = inner_product(g, direction)
        decrease = first + h.change(best, w)
        if not decrease < 0.0:
            return None
        delta, t, trial = product(self.data, direction), 1.0, best
        while t > MIN_STEP:
            gained, last = kernels.line(z, delta, y, self.sample_weight, t, column.width)
            if Step(gained, t * first, t * last, h.change(trial, w)).is_decrease(t * decrease, column.at_zero):
                return trial
            t *= 0.5
            trial = w + t * direction
        return None


def _compact(counts: NDArray[Any]) -> NDArray[Any]:
    """The same numbers as uint8 if they fit, else as float64: memory bandwidth limits the speed."""
    if counts.size and counts.min() >= 0 and counts.max() <= 255:
        small = counts.astype(np.uint8)
        if (small == counts).all():
            return small
    return counts.astype(np.float64)
