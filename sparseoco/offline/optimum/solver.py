"""The minimum of Σ_j f_j(x) + h(x) by passes: proximal quasi-Newton steps to a duality gap, many columns in one pass.

This is the method where rows are elsewhere, on the workers of a cluster; where they are in this process, `newton` takes
fewer passes to the same gap.

Every column (a value of α and a class) is a problem of its own, with its own steps, line search and pairs; a pass looks
at the next trial point of every column that is not done. Nothing a column does depends on another, so its bits do not
depend on what it is grouped with.

From w, x⁺ is the minimum of the quadratic model (`subproblem`), and the trial w + t·d, d = x⁺ − w, is taken where

    F(w + t·d) ≤ F(w) + 10⁻⁴·t·Δ,  Δ = ⟨g, d⟩ + h(x⁺) − h(w) < 0

(Tseng & Yun 2009, A coordinate gradient descent method for nonsmooth separable minimization, eq. 9). What is too small
to be seen in a difference of sums is told from the slopes at both ends (Hager & Zhang 2005). The gradient of a trial
not taken is a pair like any other: the model is made again with it, then t is lowered. The hinge is minimised with its
corner rounded, less and less, while its gap stays that of the hinge itself (`certificate`).
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseoco.kernels.quadratic import INNER
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
from sparseoco.offline.optimum.metric import Metric, pairs_of
from sparseoco.offline.optimum.problem import Problem
from sparseoco.offline.optimum.subproblem import minimise_model
from sparseoco.offline.passes import Floats, Passes

SHORTEST = 1e-10  # the step below which a direction is given up
SOLVER_BYTES = 2 << 30  # of vectors of features kept in this process at a time
VECTORS = 6  # of a column, beside its pairs


@dataclass(eq=False, kw_only=True)
class Column(Found):
    """One problem and where its solver stands. Vectors are (features,); sums are of the loss that is minimised."""

    metric: Metric
    w: Floats
    g: Floats
    loss_sum: float = np.inf
    direction: Floats = field(default_factory=lambda: np.zeros(0))
    decrease: float = 0.0  # Δ
    t: float = 1.0
    refused: int = 0  # trials since w was taken

    SCALARS = (
        "width",
        "loss_sum",
        "at_zero",
        "decrease",
        "t",
        "refused",
        "objective",
        "dual",
        "passes",
        "done",
        "converged",
    )

    VECTORS = ("trial", "w", "g", "best", "direction", "history")

    def rest(self) -> None:
        """Keep the result alone."""
        self.metric.release()
        self.trial = self.w = self.g = self.direction = np.zeros(0)


class Solver:
    """Columns on their way to their minima; `step` is one pass, after which `state` says all there is to say.

    A column is done at a gap of `tol`, relative to its objective at 0, or after
    `max_passes`. As many columns go on at a time as have room in `SOLVER_BYTES`.

    Raises `InputError` for a tolerance or a number of passes that has no meaning.
    """

    def __init__(
        self,
        passes: Passes,
        problem: Problem,
        *,
        tol: float = TOLERANCE,
        max_passes: int = MAX_PASSES,
    ) -> None:
        checked_ends(tol, max_passes)
        self.passes, self.loss, self.tol, self.max_passes = passes, problem.loss, tol, max_passes
        q = passes.squares()
        q[q == 0.0] = 1.0  # of features that no example has: their weights stay 0
        nowhere = np.zeros(q.size)
        self.columns = [
            Column(p, h, nowhere, nowhere, metric=Metric(q), w=nowhere, g=nowhere) for p, h in problem.columns
        ]
        self._width = max(1, SOLVER_BYTES // (8 * q.size * (2 * pairs_of(q.size) + VECTORS)))
        if self.loss == "hinge":
            for column in self.columns:
                column.width = WIDEST

    @property
    def active(self) -> list[Column]:
        """The columns that the next pass looks at."""
        return [column for column in self.columns if not column.done][: self._width]

    def step(self) -> None:
        """One pass at every active column's trial point, and their next ones."""
        active = self.active
        for column, seen in zip(active, look(self.passes, self.loss, active, self.tol, self.max_passes), strict=True):
            if not column.done:
                self._advance(column, seen)
            if column.done:
                column.rest()

    def _advance(self, column: Column, seen: Look) -> None:
        """What one column makes of a pass at its trial point."""
        g = seen.g
        if column.direction.size:
            step = column.trial - column.w
            column.metric.add(step, g - column.g)
            change = column.h.change(column.trial, column.w)
            taken = Step(seen.loss_sum - column.loss_sum, INNER(column.g, step), INNER(g, step), change)
            if not taken.descends(column.t * column.decrease, column.at_zero):
                self._refuse(column, taken.rise(column.at_zero))
                return
        column.w, column.g, column.loss_sum, column.refused = column.trial, g, seen.loss_sum, 0
        if seen.rounded:
            # The next pass is at the same point, of the loss with the sharper corner.
            column.width *= NARROWING
            column.metric.forget()
            column.direction = np.zeros(0)
            return
        self._aim(column)

    def _refuse(self, column: Column, rise: float) -> None:
        """The trial was no good: the objective rose by `rise`. Aim anew once, then take shorter steps."""
        column.refused += 1
        if column.refused == 1:
            self._aim(column)
            return
        bend = rise - column.t * column.decrease
        column.t *= min(0.5, max(0.1, -0.5 * column.t * column.decrease / bend)) if bend > 0.0 else 0.1
        if column.t < SHORTEST:
            self._aim_afresh(column)
        else:
            column.trial = column.w + column.t * column.direction

    def _aim(self, column: Column) -> None:
        """The next trial: the minimum of the model at w."""
        steepness = STEEPNESS[self.loss] / (column.width or 1.0)
        best = minimise_model(column.w, column.g, column.metric, column.h, steepness)
        column.direction, column.t = best - column.w, 1.0
        column.decrease = float(INNER(column.g, column.direction) + column.h.change(best, column.w))
        column.trial = best
        if not column.decrease < 0.0:
            self._aim_afresh(column)

    def _aim_afresh(self, column: Column) -> None:
        """Without what the pairs say; if that is of no use either, rounding is all that is left."""
        if not column.metric.order:
            column.done = True
            return
        column.metric.forget()
        self._aim(column)

    def state(self) -> dict[str, NDArray[Any]]:
        """Every column's state as arrays, from which `restore` goes on with the same bits."""
        found: dict[str, NDArray[Any]] = {}
        for i, column in enumerate(self.columns):
            found[f"{i}.scalars"] = np.array([float(getattr(column, name)) for name in Column.SCALARS])
            found |= {f"{i}.{name}": getattr(column, name) for name in Column.VECTORS}
            found |= {f"{i}.metric.{name}": value for name, value in column.metric.state().items()}
        return found

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Stand where `state` was taken."""
        for i, column in enumerate(self.columns):
            for name, value in zip(Column.SCALARS, state[f"{i}.scalars"], strict=True):
                setattr(column, name, type(getattr(column, name))(value))
            for name in Column.VECTORS:
                setattr(column, name, state[f"{i}.{name}"])
            column.metric.restore({name: state[f"{i}.metric.{name}"] for name in Metric.STATE})
