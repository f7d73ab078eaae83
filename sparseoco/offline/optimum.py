"""The offline optimum: the minimum of the regularised loss over all examples, certified by a duality gap."""

import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import scipy  # loads scipy.sparse when it is used
from numpy.typing import NDArray

from sparseoco.core.errors import InputError, unsupported
from sparseoco.core.option_models import validate
from sparseoco.kernels import newton
from sparseoco.kernels.newton import inner_product
from sparseoco.learners.losses import find_loss
from sparseoco.offline.passes import ColumnMajor, Floats, LocalPasses, Passes, PassRequest, PassResult, local_passes
from sparseoco.training.options import MAX_PASSES, TOLERANCE, OptimumOptions
from sparseoco.training.validation import (
    checked_groups,
    checked_labels,
    checked_rows,
    checked_sample_weights,
    output_shape,
)

# ----------------------------------------------------------------------------------------------------------------------
# The objective: a loss, values of alpha, a penalty α(ρ‖x‖₁ + (1 − ρ)‖x‖²/2) within |x_i| ≤ R, classes.


class Regulariser(NamedTuple):
    """h(x) = l1·‖x‖₁ + ½·l2·‖x‖² if all |x_i| ≤ box_i, else ∞."""

    l1: float
    l2: float
    box: Floats

    def value(self, x: Floats) -> float:
        """h(x) for x within the box."""
        return float((self.l1 * np.abs(x) + 0.5 * self.l2 * x * x).sum())

    def change(self, x: Floats, w: Floats) -> float:
        """h(x) − h(w), computed without cancellation."""
        return float((self.l1 * (np.abs(x) - np.abs(w)) + 0.5 * self.l2 * (x - w) * (x + w)).sum())

    def conjugate(self, g: Floats, scale: float) -> float:
        """h*(−scale·g) = max_x ⟨−scale·g, x⟩ − h(x), which is finite if `bounded` or scale·|g_i| ≤ l1."""
        over = np.maximum(np.abs(scale * g) - self.l1, 0.0)
        x = np.minimum(over / self.l2, self.box) if self.l2 > 0.0 else np.where(over > 0.0, self.box, 0.0)
        bounded = x < np.inf  # without a ridge and a box |u_i| is at most l1, up to rounding
        return float((over[bounded] * x[bounded] - 0.5 * self.l2 * x[bounded] ** 2).sum())

    @property
    def bounded(self) -> bool:
        """Whether h* is finite everywhere."""
        return self.l2 > 0.0 or bool(np.isfinite(self.box).all())


class OptimumProblem(NamedTuple):
    """Σ_j f_j(x) + α(ρ‖x‖₁ + (1 − ρ)‖x‖²/2), within |x_i| ≤ box, for every α and class; ρ = 1 for l1, 0 for l2."""

    loss: str
    alphas: tuple[float, ...]
    rho: float
    box: float
    positive: tuple[int, ...]
    """The class with y = +1 of each column of one α; −1 for regression."""

    @classmethod
    def of(cls, options: OptimumOptions, n_classes: int | None) -> "OptimumProblem":
        """The problem of options; `n_classes` is None for regression. Raises `InputError` if they do not fit."""
        found = find_loss(options.loss)
        if found.conjugate is None:
            other = f"one-vs-rest takes loss={found.joint!r}" if found.joint else "numbers take loss='squared'"
            raise unsupported(f"loss={options.loss!r} has no offline optimum here; {other}.")
        if found.regression != (n_classes is None):
            wanted = "numbers for labels" if found.regression else "classes for labels"
            raise InputError(f"loss={options.loss!r} needs {wanted}.", code="invalid-labels")
        outputs, response = output_shape(found, n_classes)
        positive = {"regression": (-1,), "binary": (1,)}.get(response, tuple(range(outputs)))
        rho = {"l1": 1.0, "l2": 0.0, "elastic_net": options.l1_ratio}[options.penalty]
        return cls(found.name, options.alphas, rho, math.inf if options.box is None else options.box, positive)

    @property
    def size(self) -> int:
        """Number of columns."""
        return len(self.alphas) * len(self.positive)

    def columns(self, ranges: Floats) -> list[tuple[int, Regulariser]]:
        """(positive class, penalty) of every column: the classes of the first α, then of the next; with `ranges`
        (features,) weights are within |x_i| ≤ box·ranges_i."""
        box = self.box * ranges
        return [
            (positive, Regulariser(alpha * self.rho, alpha * (1.0 - self.rho), box))
            for alpha in self.alphas
            for positive in self.positive
        ]


# ----------------------------------------------------------------------------------------------------------------------
# The duality gap, an upper bound on the suboptimality of a point.
#
# The dual of min_x Σ_j f_j(x) + h(x), f_j(x) = ℓ(⟨a_j, x⟩, y_j), is max_θ −Σ_j ℓ*(θ_j) − h*(−Aᵀθ) (Fenchel). Feasible
# points are scaled slopes s_j of a pass, θ = κ·s: κ = 1 if h* is finite everywhere, and the largest κ ≤ 1 with
# κ‖Aᵀs‖_∞ ≤ l1. Σ_j ℓ*(κs_j) needs only the slopes, h* only the gradient Aᵀs.
#
# `evaluate` makes a pass at one point of every column and records the best objective, the greatest lower bound, and
# whether the gap is closed. Both solvers use it: `quasi_newton`, by passes only, and `Newton`, on columns.


ARMIJO = 1e-4
ROUNDING = 1e-9  # relative to the objective at 0; smaller differences of sums are mostly rounding
INITIAL_WIDTH, WIDTH_FACTOR = 1.0, 0.25
SMOOTHING_SHARE = 0.5  # smooth the hinge less once smoothing causes this share of the gap
MAX_CURVATURE = {"logistic": 0.25, "squared": 1.0, "squared_hinge": 2.0, "hinge": 1.0}
"""The largest ℓ''; for the smoothed hinge, times its width."""
FEASIBLE = 1.0 - 2.0**-50  # so that rounding does not make a point infeasible


def certify(
    passes: Passes, result: PassResult, request: PassRequest, inner: Floats, penalties: list[Regulariser]
) -> tuple[Floats, Floats]:
    """Per column a lower bound on the optimum, by the best dual point of a pass, and the gap caused by smoothing the
    hinge; `inner` (columns,) is ⟨gradient, weights⟩."""
    columns = range(len(penalties))
    loss = find_loss(request.loss)
    scales = np.ones((2, len(penalties)))
    for c in columns:
        steepest = np.abs(result.gradient[:, c]).max(initial=0.0)
        feasible = min(1.0, FEASIBLE * penalties[c].l1 / steepest) if steepest > 0.0 else 1.0
        scales[0, c] = feasible
        scales[1, c] = 1.0 if penalties[c].bounded else feasible
    # Σ_j y_j·s_j for regression: s = z − y, so Σ y·s = ⟨g, w⟩ − Σ s², and Σ s² is twice the loss.
    linear = inner - 2.0 * result.loss_sum if loss.regression else np.zeros(len(penalties))
    duals = np.full_like(scales, -np.inf)
    for k, scale in enumerate(scales):
        if k and (scale == scales[0]).all():
            break
        conjugates = passes.conjugates(result, request, scale) + scale * linear
        for c in columns:
            duals[k, c] = -conjugates[c] - penalties[c].conjugate(np.ascontiguousarray(result.gradient[:, c]), scale[c])
    slack = np.zeros(len(penalties))
    if request.width:
        # For the smoothed hinge, Σ(½μa² − a) = ⟨g, w⟩ − Σ f_μ with a = |s|.
        total = -passes.conjugates(result, request, np.ones(len(penalties)))
        slack = result.exact_sum - result.loss_sum - (inner - result.loss_sum + total)
    return duals.max(axis=0), slack


@dataclass(eq=False)
class ColumnProgress:
    """One problem, its next trial point, and the bounds on its minimum. Vectors are (features,)."""

    FIXED: ClassVar[tuple[str, ...]] = ("positive", "h")
    """The fields that are not state."""

    positive: int
    h: Regulariser
    trial: Floats
    best: Floats
    width: float = 0.0  # of the smoothed hinge
    intercept: float = 0.0  # at the trial point, and at the best one
    best_intercept: float = 0.0
    at_zero: float = 0.0  # the objective there
    objective: float = np.inf  # at the best point so far, without smoothing
    dual: float = -np.inf
    passes: int = 0
    done: bool = False
    converged: bool = False

    @property
    def gap(self) -> float:
        """Upper bound on the suboptimality of `best`; 0 if rounding makes it negative."""
        return max(0.0, self.objective - self.dual)

    def rest(self) -> None:
        """Release everything but the result, once the column is done."""
        self.trial = np.zeros(0)

    def state(self) -> dict[str, NDArray[Any]]:
        """The state as arrays: every field that changes."""
        return {own.name: np.atleast_1d(getattr(self, own.name)) for own in fields(self) if own.name not in self.FIXED}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `state` returned."""
        for name, value in state.items():
            setattr(self, name, value.copy() if isinstance(getattr(self, name), np.ndarray) else value.item())

    def record(self, objective: float, dual: float, tol: float, max_passes: int) -> None:
        """Record the result of a pass at the trial point."""
        self.passes += 1
        if self.passes == 1:
            self.at_zero = objective
        self.dual = max(self.dual, dual)
        if objective < self.objective:
            self.objective, self.best, self.best_intercept = objective, self.trial, self.intercept
        self.converged = self.gap <= tol * self.at_zero
        self.done = self.converged or self.passes >= max_passes


class Gap(NamedTuple):
    """A pass at one column's trial point; `loss_sum` and the gradient `g` are those of the (smoothed) loss."""

    g: Floats
    loss_sum: float
    oversmoothed: bool
    """Whether smoothing the hinge causes too large a share of the gap."""


def evaluate(passes: Passes, loss: str, columns: Sequence[ColumnProgress], tol: float, max_passes: int) -> list[Gap]:
    """One pass at the trial points of columns; records the results in them."""
    request = PassRequest(
        loss,
        tuple(column.positive for column in columns),
        tuple(column.width for column in columns) if loss == "hinge" else (),
    )
    result = passes.totals(np.stack([column.trial for column in columns], axis=1), request)
    gradients = [np.ascontiguousarray(result.gradient[:, c]) for c in range(len(columns))]
    inner = np.array([inner_product(g, column.trial) for g, column in zip(gradients, columns, strict=True)])
    duals, slack = certify(passes, result, request, inner, [column.h for column in columns])
    passes.drop(result)
    gaps = []
    for c, column in enumerate(columns):
        objective, dual = float(result.exact_sum[c]) + column.h.value(column.trial), float(duals[c])
        oversmoothed = column.width > 0.0 and float(slack[c]) >= SMOOTHING_SHARE * (objective - dual)
        column.intercept = 0.0 if result.intercepts is None else float(result.intercepts[c])
        column.record(objective, dual, tol, max_passes)
        gaps.append(Gap(gradients[c], float(result.loss_sum[c]), oversmoothed))
    return gaps


class Step(NamedTuple):
    """A step from w to w + step for the objective F = loss + h.

    gained       change of the loss
    first, last  ⟨gradient of the loss, step⟩ at both ends
    change       h(w + step) − h(w)
    """

    gained: float
    first: float
    last: float
    change: float

    def increase(self, scale: float) -> float:
        """F(w + step) − F(w), computed from the slopes at both ends if the difference of sums has cancelled (Hager &
        Zhang 2005)."""
        increase = self.gained + self.change
        return 0.5 * (self.first + self.last) + self.change if abs(increase) <= ROUNDING * scale else increase

    def is_decrease(self, least: float, scale: float) -> bool:
        """F(w + step) ≤ F(w) + 10⁻⁴·least (Tseng & Yun 2009, eq. 9); F being convex, last + change is no less."""
        return min(self.last + self.change, self.increase(scale)) <= ARMIJO * least


# ----------------------------------------------------------------------------------------------------------------------
# Solvers: columns with a state, steps of one pass, and the loop that takes them.


ColumnT = TypeVar("ColumnT", bound=ColumnProgress)


@dataclass(eq=False)
class Solver(ABC, Generic[ColumnT]):
    """Minimises columns; `step` is one pass, after which `state` can be stored.

    A column is done at a gap of `tol`, relative to its objective at 0, or after `max_passes`. `width` columns are
    solved at a time. `saved` is what `state` returned; `ranges` (features,) are factors of the box, 1 by default.
    """

    width = 1

    passes: Passes
    problem: OptimumProblem
    _: KW_ONLY
    tol: float = TOLERANCE
    max_passes: int = MAX_PASSES
    saved: Mapping[str, NDArray[Any]] | None = None
    ranges: Floats | None = None

    def __post_init__(self) -> None:
        problem, state, self.loss = self.problem, self.saved, find_loss(self.problem.loss)
        self.squares = self.passes.squares() if state is None else state["squares"]
        self.squares[self.squares == 0.0] = 1.0  # features in no example, whose weights stay 0
        start = np.zeros(self.squares.size), np.zeros(self.squares.size)
        smoothing = INITIAL_WIDTH if problem.loss == "hinge" else 0.0
        columns = problem.columns(np.ones(self.squares.size) if self.ranges is None else self.ranges)
        self.columns: list[ColumnT] = [self.column(positive, h, *start, smoothing) for positive, h in columns]
        for i, column in enumerate(self.columns if state is not None else ()):
            column.restore({name: (state or {})[f"{i}.{name}"] for name in column.state()})

    @abstractmethod
    def column(self, positive: int, h: Regulariser, trial: Floats, best: Floats, width: float) -> ColumnT:
        """A column before its first pass, which is at 0."""

    @abstractmethod
    def advance(self, column: ColumnT, gap: Gap) -> None:
        """Use a pass at the trial point of a column: find its next trial point, or mark the column as done."""

    @property
    def active(self) -> list[ColumnT]:
        """The columns that the next pass evaluates; none once all are done."""
        return [column for column in self.columns if not column.done][: self.width]

    def step(self) -> None:
        """One pass at every active column's trial point, and the next trial points."""
        active = self.active
        for column, gap in zip(
            active, evaluate(self.passes, self.loss.name, active, self.tol, self.max_passes), strict=True
        ):
            if not column.done:
                self.advance(column, gap)
            if column.done:
                column.rest()

    def state(self) -> dict[str, NDArray[Any]]:
        """What a solver that is given it continues from with the same bits."""
        states = [column.state() for column in self.columns]
        columns = {f"{i}.{name}": value for i, state in enumerate(states) for name, value in state.items()}
        return {"squares": self.squares, **columns}


def solve(solver: Solver[Any], check: Callable[[], None] = lambda: None, seconds: float = math.inf) -> bool:
    """Take the steps of a solver, for about some seconds of work; returns whether all columns are done.

    `check` is called before every step.
    """
    end = time.monotonic() + seconds
    while solver.active:
        check()
        solver.step()
        if time.monotonic() > end:
            break
    return not solver.active


HALVINGS = 12


class QuadraticModel(ABC):
    """A quadratic model of the loss at w plus h, and the point x that steps move to its minimum."""

    h: Regulariser
    x: Floats

    def newton(self, slopes: Floats) -> None:
        """A Newton step in the coordinates that are neither zero nor at the box; none changes its sign."""
        inside, box = np.abs(self.x) < self.h.box, self.h.box
        direction = self.direction(inside & (self.x != 0.0) if self.h.l1 > 0.0 else inside, slopes)
        step = 1.0
        for _ in range(HALVINGS):
            x = np.clip(self.x + step * direction, -box, box)
            if self.h.l1 > 0.0:
                x[x * self.x < 0.0] = 0.0
            if self.move(x):
                return
            step *= 0.5

    @abstractmethod
    def direction(self, free: NDArray[np.bool_], slopes: Floats) -> Floats:
        """The Newton direction in the coordinates that are `free`, for subgradients `slopes`; else 0."""

    @abstractmethod
    def move(self, x: Floats) -> bool:
        """Move to x if the model is lower there; returns whether it is."""


# ----------------------------------------------------------------------------------------------------------------------
# Minimise Σ_j f_j(x) + h(x) over rows in this process: proximal Newton steps to a duality gap, column by column.
#
# From w, x⁺ is the minimum of the quadratic model with the loss's own second derivatives (`RowModel`), and the
# first w + t·d, d = x⁺ − w, t = 1, ½, ¼, …, that decreases the objective enough (`Step`) is taken; the line search
# needs only margins, z + t·Ad (Friedman, Hastie & Tibshirani 2010; Yuan, Ho & Lin 2012, An improved GLMNET for
# l1-regularized logistic regression, Algorithm 2; Lee, Sun & Saunders 2014, Proximal Newton-type methods for minimizing
# composite functions). A pass at w gives the gradient, the objective and the gap, with its certificate. The hinge is
# minimised through increasingly close smooth approximations.
#
# The model is minimised by coordinate descent over a working set, which finds the coordinates that are zero or at the
# box, and by conjugate gradients for the values of the others, where descent alone is slow: words are correlated, so
# that the model is far from diagonal (Friedman, Hastie & Tibshirani 2010; Dembo, Eisenstat & Steihaug 1982, Inexact
# Newton methods; Byrd, Chin, Nocedal & Oztoprak 2016, A family of second-order methods for convex l1-regularized
# optimization).
#
# Every column (a value of α and a class) is solved separately: its bits do not depend on the others.


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


class RowModel(QuadraticModel):
    """m(x) = ⟨g, x − w⟩ + ½ Σ_i c_i⟨a_i, x − w⟩² + h(x), c > 0 (rows,).

    `weight` (features,) scales subgradients to comparable units.
    """

    def __init__(self, data: ColumnMajor, h: Regulariser, weight: Floats, w: Floats, g: Floats, c: Floats) -> None:
        self.data, self.h, self.weight, self.w, self.g, self.c = data, h, weight, w, g, c
        self.x, self.r = w.copy(), np.zeros_like(c)
        self.members = np.flatnonzero((w != 0.0) | (np.abs(g) > NEAR * h.l1))
        self.curvatures, self.accuracy = np.zeros_like(w), (RESIDUAL, ITERATIONS)
        newton.COLUMN_CURVATURES(self.members, data, c, self.curvatures)

    def minimise(self, goal: float, effort: int) -> Floats:
        """Minimise m approximately, until the norm of `subgradients` is at most `goal` or `effort` ≥ 1 is spent."""
        for _ in range(TURNS):
            newton.SWEEP_COLUMNS(self.members, self.data, self.c, self.g, self.curvatures, *self.h, self.x, self.r)
            slopes, residual = self.subgradients()
            if residual <= goal:
                break
            self.accuracy = max(RESIDUAL, SHARE * goal / residual), min(effort * ITERATIONS, MAX_ITERATIONS)
            self.newton(slopes)
        return self.x

    def subgradients(self) -> tuple[Floats, float]:
        """The least subgradient of m at x over the working set, and its weighted 1-norm."""
        slopes, out = np.zeros_like(self.w), np.zeros_like(self.w)
        newton.COLUMN_SLOPES(self.members, self.data, self.g, self.r, slopes)
        newton.LEAST_SUBGRADIENTS(self.members, self.x, slopes, *self.h, out)
        return out, inner_product(self.weight, np.abs(out))

    def direction(self, free: NDArray[np.bool_], slopes: Floats) -> Floats:
        """See `QuadraticModel.direction`; by conjugate gradients."""
        direction, self.now = np.zeros_like(self.x), self.value(self.x, self.r)
        chosen = np.flatnonzero(free & (self.curvatures + self.h.l2 > 0.0))
        newton.CONJUGATE_GRADIENTS(
            chosen, self.data, self.c, self.curvatures, self.h.l2, slopes, *self.accuracy, direction
        )
        return direction

    def move(self, x: Floats) -> bool:
        """See `QuadraticModel.move`."""
        r = self.c * product(self.data, x - self.w)
        lower = self.value(x, r) < self.now
        if lower:
            self.x, self.r = x, r
        return lower

    def value(self, x: Floats, r: Floats) -> float:
        """m(x) − h(w)."""
        return float(inner_product(self.g, x - self.w) + 0.5 * inner_product(r, r / self.c)) + self.h.change(x, self.w)


def product(data: ColumnMajor, v: Floats) -> Floats:
    """A·v (rows,)."""
    out = np.zeros(data.n_rows)
    newton.PRODUCT(np.flatnonzero(v), data, v, out)
    return out


@dataclass(eq=False)
class NewtonColumn(ColumnProgress):
    """One problem and the state of its solver."""

    effort: int = 1  # for solving models; doubled after an ineffective one
    residual: float = 0.0  # sum of the subgradients of the last model at its w


class Newton(Solver[NewtonColumn]):
    """Minimises columns one after another, over passes whose rows are in this process.

    An intercept that `passes` fit is fixed within a step.
    """

    passes: LocalPasses

    def __post_init__(self) -> None:
        super().__post_init__()
        data, weights = self.passes.columns(), self.passes.sample_weights()
        self.data = data._replace(counts=_compact(data.counts))
        self.sample_weight = np.ones(data.n_rows) if weights is None else weights
        self.weight = 1.0 / np.sqrt(self.squares)

    def column(self, positive: int, h: Regulariser, trial: Floats, best: Floats, width: float) -> NewtonColumn:
        """See `Solver.column`."""
        return NewtonColumn(positive, h, trial, best, width)

    def advance(self, column: NewtonColumn, gap: Gap) -> None:
        """See `Solver.advance`."""
        if gap.oversmoothed:
            column.width *= WIDTH_FACTOR  # the next pass is at the same point, with the loss less smoothed
            column.residual = 0.0
            return
        g, w, h, labels = gap.g, column.trial, column.h, self.data.labels
        y = labels if column.positive < 0 else np.where(labels == column.positive, 1.0, -1.0)
        kernels = newton.newton_kernels(self.loss)
        z, c = product(self.data, w) + column.intercept, np.empty_like(y)
        floor = FLOOR.get(self.loss.name, LOWEST) * MAX_CURVATURE[self.loss.name] / (column.width or 1.0)
        kernels.curvatures(z, y, column.width, floor, c)
        c *= np.maximum(self.sample_weight, LOWEST)
        model = RowModel(self.data, h, self.weight, w, g, c)
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
            column.done = True
            return
        delta, t, trial = product(self.data, direction), 1.0, best
        while t > MIN_STEP:
            gained, last = kernels.line(z, delta, y, self.sample_weight, t, column.width)
            if Step(gained, t * first, t * last, h.change(trial, w)).is_decrease(t * decrease, column.at_zero):
                column.trial = trial
                return
            t *= 0.5
            trial = w + t * direction
        column.done = True  # steps are lost in rounding


def _compact(counts: NDArray[Any]) -> NDArray[Any]:
    """The same numbers as uint8 if they fit, else as float64: memory bandwidth limits the speed."""
    if counts.size and counts.min() >= 0 and counts.max() <= 255:
        small = counts.astype(np.uint8)
        if (small == counts).all():
            return small
    return counts.astype(np.float64)


# ----------------------------------------------------------------------------------------------------------------------
# The optimum of a matrix.


class Optimum(NamedTuple):
    """The minimum of Σ_j f_j(x) + α·ψ(x) for each α, and its certificate.

    For a single α instead of a list, fields have no first axis.

    Attributes
    ----------
    weights : (alphas, features), or (alphas, features, classes) for more than two classes
        The minimisers.
    objective : (alphas,)
        The objective at the weights, summed over the classes.
    dual : (alphas,)
        A lower bound on the minimum, from the dual.
    gap : (alphas,)
        `objective` − `dual`, an upper bound on the suboptimality.
    passes : (alphas,)
        Passes over the data until the last class converged.
    converged : (alphas,)
        Whether every class reached the gap `tol`.
    intercept : (alphas,), or (alphas, classes)
        0 without an intercept.
    """

    weights: Any
    objective: Any
    dual: Any
    gap: Any
    passes: Any
    converged: Any
    intercept: Any


def offline_optimum(
    X: Any,
    y: Any,
    *,
    loss: str = "logistic",
    alpha: float | Sequence[float] = 1.0,
    penalty: str = "l1",
    l1_ratio: float = 0.5,
    box: float | None = None,
    tol: float = TOLERANCE,
    max_passes: int = MAX_PASSES,
    n_classes: int = 2,
    sample_weight: Any = None,
    fit_intercept: bool = False,
    groups: Any = None,
) -> Optimum:
    """Minimise Σ_j f_j(x) + α·ψ(x) over the rows of a SciPy sparse matrix.

    By proximal Newton steps or, with groups, by proximal gradient steps.

    Memory: one copy of X, by columns.

    Parameters
    ----------
    X : (rows, features) sparse matrix
    y : (rows,) array
        ±1, or 0 and 1; class indices for `n_classes` > 2, one binary problem per class (one-vs-rest); numbers for
        ``loss="squared"``.
    loss : {"logistic", "squared", "squared_hinge", "hinge"}
    alpha : float or sequence of float
        Weight of the penalty; 1/C in scikit-learn. Values of a sequence are solved one after another.
    penalty : {"l1", "l2", "elastic_net", "group"}
        ψ = ‖x‖₁; ½‖x‖²; ρ‖x‖₁ + ½(1 − ρ)‖x‖², ρ = `l1_ratio`; or Σ_G ‖x_G‖₂ over `groups`, for all losses but the
        hinge, without a box.
    box : float, optional
        Also require |x_i| ≤ box.
    tol : float
        Duality gap to reach, relative to the objective at x = 0. The hinge is minimised through smooth approximations
        and takes ten times as many passes: use 1e-3 or 1e-4.
    sample_weight : (rows,) array, optional
        Factors ≥ 0 of the losses f_j.
    fit_intercept : bool
        Minimise over an intercept too, which the penalty and the box leave out.
    groups : (features,) array, optional
        With ``penalty="group"``: the group of each feature, an integer. A group has the weights of its features for all
        classes. By default each feature is a group.

    Returns
    -------
    Optimum

    Warns
    -----
    UserWarning
        `max_passes` passes did not reach the gap; see `converged` for which alpha.

    Raises
    ------
    InputError
        An argument is unknown, invalid or does not fit the others.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_matrix
    >>> X = csr_matrix([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 2.0]])
    >>> found = offline_optimum(X, np.array([1, 0, 1, 0]), alpha=0.5)
    >>> found.weights.round(2), bool(found.converged)
    (array([ 1.43, -0.61]), True)
    """
    alphas = np.atleast_1d(alpha).tolist()
    grouped = penalty == "group"
    if grouped and (loss not in SMOOTH_LOSSES or box is not None):
        known = ", ".join(SMOOTH_LOSSES)
        raise unsupported(f"penalty='group' has an optimum here without a box and for loss={known}, not for {loss}.")
    own = "l1" if grouped else penalty
    values = {"alphas": alphas, "loss": loss, "penalty": own, "box": box, "tol": tol, "max_passes": max_passes}
    options = validate(OptimumOptions, values | ({"l1_ratio": l1_ratio} if penalty == "elastic_net" else {}))
    numbers = find_loss(loss).regression
    problem = OptimumProblem.of(options, None if numbers else n_classes)
    if not scipy.sparse.issparse(X) or X.ndim != 2:
        raise InputError(f"X must be a SciPy sparse matrix of rows, not {type(X).__name__}.", code="invalid-input")
    if X.shape[1] < 1:
        raise InputError("X has no features: there is nothing to optimise.", code="no-features")
    matrix = checked_rows(X, X.shape[1], np.dtype(np.float64))
    labels = checked_labels(y, matrix.shape[0], None if numbers else n_classes)
    several = np.ndim(alpha) > 0
    weights = checked_sample_weights(sample_weight, matrix.shape[0])
    passes = local_passes(matrix, labels, weights, fit_intercept=fit_intercept)
    if not grouped:
        found = minimise(passes, problem, tol=tol, max_passes=max_passes)
    else:
        members = checked_groups(np.arange(matrix.shape[1]) if groups is None else groups, matrix.shape[1])
        each = [problem._replace(alphas=(one,)) for one in alphas]
        optima = [minimise_groups(passes, one, members, tol=tol, max_passes=max_passes) for one in each]
        found = Optimum(*(np.concatenate(field) for field in zip(*optima, strict=True)))
    unfinished = [f"{a:g}" for a, fine in zip(alphas, found.converged, strict=True) if not fine]
    if unfinished:
        warnings.warn(
            f"The duality gap did not reach tol={tol:g} for alpha={', '.join(unfinished)} (see `gap`): increase "
            "max_passes or tol.",
            stacklevel=2,
        )
    return found if several else Optimum(*(field[0] for field in found))


def minimise(passes: LocalPasses, problem: OptimumProblem, **options: Any) -> Optimum:
    """The optimum of a problem over rows in this process, or the best point within the solver's passes.

    `options` are those of `Newton`.
    """
    solver = Newton(passes, problem, **options)
    solve(solver)
    return solved(solver.columns, problem)


# ----------------------------------------------------------------------------------------------------------------------
# The optimum with groups: Σ_j f_j(x) + α Σ_G ‖x_G‖₂ over the features of a group and all classes, for smooth losses.
#
# The dual point of a pass is κ·s with the largest κ ≤ 1 for which κ‖(Aᵀs)_G‖₂ ≤ α for every G. Steps are proximal
# gradient steps whose length is that of Barzilai and Borwein, and which may increase the objective for some passes
# (Wright, Nowak and Figueiredo 2009, Sparse reconstruction by separable approximation): as few passes as a quasi-Newton
# method here, without a model of the loss whose prox has no closed form.


SMOOTH_LOSSES = tuple(name for name in MAX_CURVATURE if name != "hinge")
MEMORY = 10
"""Objectives that a step is compared with: the largest of the last so many."""
SHORTEST, LONGEST = 1e-6, 1e6
"""Inverse lengths of steps, relative to the first one."""


class GroupPoint(NamedTuple):
    """A pass at weights x (features, outputs)."""

    x: Floats
    gradient: Floats
    objective: float
    dual: float
    intercepts: Floats


def minimise_groups(
    passes: Passes, problem: OptimumProblem, groups: NDArray[np.int64], *, tol: float, max_passes: int = MAX_PASSES
) -> Optimum:
    """The optimum of a problem of one α with rho = 1, in which `groups` (features,) replace the l1 norm's coordinates.

    The loss is one of `SMOOTH_LOSSES`.
    """
    (alpha,), outputs, loss = problem.alphas, len(problem.positive), find_loss(problem.loss)
    request = PassRequest(problem.loss, problem.positive, ())

    def norms(x: Floats) -> Floats:
        return np.sqrt(np.bincount(groups, (x * x).sum(axis=1)))

    def prox(x: Floats, a: float) -> Floats:
        sizes = norms(x)
        factors = 1.0 - np.divide(a, sizes, out=np.ones_like(sizes), where=sizes > a)
        return np.asarray(x * factors[groups, None])

    def evaluate_at(x: Floats) -> GroupPoint:
        result = passes.totals(x, request)
        steepest = float(norms(result.gradient).max(initial=0.0))
        scale = np.full(outputs, min(1.0, FEASIBLE * alpha / steepest) if steepest > 0.0 else 1.0)
        linear = (result.gradient * x).sum(axis=0) - 2.0 * result.loss_sum if loss.regression else np.zeros(outputs)
        dual = -float((passes.conjugates(result, request, scale) + scale * linear).sum())
        passes.drop(result)
        objective = float(result.loss_sum.sum()) + alpha * float(norms(x).sum())
        intercepts = np.zeros(outputs) if result.intercepts is None else result.intercepts
        return GroupPoint(x, result.gradient, objective, dual, intercepts)

    now = best = evaluate_at(np.zeros((groups.size, outputs)))
    at_zero, dual, count, recent = now.objective, now.dual, 1, [now.objective]
    first = inverse = MAX_CURVATURE[problem.loss] * max(float(passes.squares().max(initial=0.0)), 1.0)
    while best.objective - dual > tol * at_zero and count < max_passes:
        trial = evaluate_at(prox(now.x - now.gradient / inverse, alpha / inverse))
        count, dual = count + 1, max(dual, trial.dual)
        best = trial if trial.objective < best.objective else best
        move = trial.x - now.x
        square = float((move * move).sum())
        if trial.objective > max(recent[-MEMORY:]) - ARMIJO * inverse * square / 2:
            inverse *= 2.0
            continue
        if square > 0.0:
            curvature = float((move * (trial.gradient - now.gradient)).sum()) / square
            inverse = min(max(curvature, SHORTEST * first), LONGEST * first)
        now = trial
        recent.append(now.objective)
    gap = max(0.0, best.objective - dual)
    shape = (1, -1) if outputs == 1 else (1, groups.size, outputs)
    values = (best.objective, dual, gap, count, gap <= tol * at_zero)
    objective, lower, open_gap, read, converged = (np.array([value]) for value in values)
    intercepts = best.intercepts[:1] if outputs == 1 else best.intercepts[None]
    return Optimum(best.x.reshape(shape), objective, lower, open_gap, read, converged, intercepts)


def solved(columns: Sequence[ColumnProgress], problem: OptimumProblem) -> Optimum:
    """The current result of a solver, by α."""
    shape = (len(problem.alphas), len(problem.positive))
    weights = np.stack([column.best for column in columns]).reshape(*shape, -1)

    def by_alpha(name: str) -> NDArray[Any]:
        return np.array([getattr(column, name) for column in columns]).reshape(shape)

    return Optimum(
        weights[:, 0] if shape[1] == 1 else weights.transpose(0, 2, 1).copy(),
        by_alpha("objective").sum(axis=1),
        by_alpha("dual").sum(axis=1),
        by_alpha("gap").sum(axis=1),
        by_alpha("passes").max(axis=1),
        by_alpha("converged").all(axis=1),
        by_alpha("best_intercept")[:, 0] if shape[1] == 1 else by_alpha("best_intercept"),
    )
