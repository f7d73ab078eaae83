"""The problem of an optimum, and the certificate of a solution: its duality gap."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.kernels.newton import inner_product
from sparseoco.learners.losses import find_loss
from sparseoco.offline.passes import Floats, Passes, PassRequest, PassResult

# ----------------------------------------------------------------------------------------------------------------------
# The objective: a loss, values of alpha, a penalty α(ρ‖x‖₁ + (1 − ρ)‖x‖²/2) within |x_i| ≤ R, classes.


PENALTIES = ("l1", "l2", "elastic_net")


class Regulariser(NamedTuple):
    """h(x) = l1·‖x‖₁ + ½·l2·‖x‖² if all |x_i| ≤ box, else ∞."""

    l1: float
    l2: float
    box: float

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
        return self.l2 > 0.0 or bool(np.isfinite(self.box))


class OptimumProblem(NamedTuple):
    """Σ_j f_j(x) + α(ρ‖x‖₁ + (1 − ρ)‖x‖²/2), within |x_i| ≤ box, for every α and class; ρ = 1 for l1, 0 for l2."""

    loss: str
    alphas: tuple[float, ...]
    rho: float
    box: float
    positive: tuple[int, ...]
    """The class with y = +1 of each column of one α; −1 for regression."""

    @classmethod
    def of(
        cls,
        loss: str,
        alphas: Sequence[float],
        penalty: str,
        l1_ratio: float,
        box: float | None,
        n_classes: int | None,
    ) -> "OptimumProblem":
        """A checked problem; `n_classes` is None for regression. Raises `InputError` for invalid arguments."""
        found = find_loss(loss)
        if found.conjugate is None:
            other = f"one-vs-rest takes loss={found.joint!r}" if found.joint else "numbers take loss='squared'"
            raise InputError(
                f"loss={loss!r} has no offline optimum here; {other}.",
                code="unsupported-combination",
            )
        if found.regression != (n_classes is None):
            wanted = "numbers for labels" if found.regression else "classes for labels"
            raise InputError(f"loss={loss!r} needs {wanted}.", code="invalid-labels")
        if penalty not in PENALTIES:
            raise InputError(
                f"penalty={penalty!r} has no offline optimum here; choose one of {', '.join(PENALTIES)}, and `box` "
                "for bounds.",
                code="unsupported-combination",
            )
        if penalty == "elastic_net" and not _number(l1_ratio, 0.0, 1.0):
            raise InputError(f"l1_ratio={l1_ratio!r} must be a number from 0 to 1.", code="invalid-option")
        if box is not None and not (_number(box, 0.0, math.inf) and box > 0.0):
            raise InputError(f"box={box!r} must be a number above 0.", code="invalid-option")
        if not alphas:
            raise InputError("There is no value of alpha to find the optimum for.", code="invalid-option")
        for alpha in alphas:
            if not (_number(alpha, 0.0, math.inf) and (alpha > 0.0 or box is not None)):
                raise InputError(
                    f"alpha={alpha!r} must be a number above 0 (or 0 within a box).", code="invalid-option"
                )
        if n_classes is not None and (isinstance(n_classes, bool) or n_classes != int(n_classes) or n_classes < 2):
            raise InputError(f"n_classes={n_classes!r} must be a whole number of at least 2.", code="invalid-option")
        positive = (-1,) if n_classes is None else (1,) if n_classes == 2 else tuple(range(n_classes))
        rho = {"l1": 1.0, "l2": 0.0, "elastic_net": float(l1_ratio)}[penalty]
        limit = math.inf if box is None else float(box)
        return cls(found.name, tuple(float(alpha) for alpha in alphas), rho, limit, positive)

    @property
    def columns(self) -> list[tuple[int, Regulariser]]:
        """(positive class, penalty) of every column: the classes of the first α, then of the next."""
        return [
            (positive, Regulariser(alpha * self.rho, alpha * (1.0 - self.rho), self.box))
            for alpha in self.alphas
            for positive in self.positive
        ]


def _number(value: Any, low: float, high: float) -> bool:
    try:
        return not isinstance(value, bool) and math.isfinite(value) and low <= value <= high
    except TypeError:
        return False


# ----------------------------------------------------------------------------------------------------------------------
# The duality gap, an upper bound on the suboptimality of a point.
#
# The dual of min_x Σ_j f_j(x) + h(x), f_j(x) = ℓ(⟨a_j, x⟩, y_j), is max_θ −Σ_j ℓ*(θ_j) − h*(−Aᵀθ) (Fenchel). Feasible
# points are scaled slopes s_j of a pass, θ = κ·s: κ = 1 if h* is finite everywhere, and the largest κ ≤ 1 with
# κ‖Aᵀs‖_∞ ≤ l1. Σ_j ℓ*(κs_j) needs only the slopes, h* only the gradient Aᵀs.
#
# `evaluate` makes a pass at one point of every column and records the best objective, the greatest lower bound, and
# whether the gap is closed. Both solvers use it: `quasi_newton`, by passes only, and `newton`, on columns.


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
    history: Floats = field(default_factory=lambda: np.zeros((0, 3)))
    """(passes, 3): the least objective, the greatest dual and the nonzeros of the best point after each pass."""

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
            setattr(self, name, value if isinstance(getattr(self, name), np.ndarray) else value.item())

    def record(self, objective: float, dual: float, tol: float, max_passes: int) -> None:
        """Record the result of a pass at the trial point."""
        self.passes += 1
        if self.passes == 1:
            self.at_zero = objective
        self.dual = max(self.dual, dual)
        if objective < self.objective:
            self.objective, self.best, self.best_intercept = objective, self.trial, self.intercept
        now = np.array([[self.objective, self.dual, float(np.count_nonzero(self.best))]])
        self.history = np.concatenate([self.history, now])
        self.converged = self.gap <= tol * self.at_zero
        self.done = self.converged or self.passes >= max_passes


class Gap(NamedTuple):
    """A pass at one column's trial point; `loss_sum` and the gradient `g` are those of the (smoothed) loss."""

    g: Floats
    loss_sum: float
    oversmoothed: bool
    """Whether smoothing the hinge causes too large a share of the gap."""


def check_stopping(tol: float, max_passes: int) -> None:
    """Raises `InputError` for an invalid tolerance or number of passes."""
    if not 0.0 < tol < 1.0:
        raise InputError(f"tol={tol!r} must be between 0 and 1.", code="invalid-option")
    if isinstance(max_passes, bool) or max_passes != int(max_passes) or max_passes < 1:
        raise InputError(f"max_passes={max_passes!r} must be a whole number of at least 1.", code="invalid-option")


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


class Solver(ABC, Generic[ColumnT]):
    """Minimises columns; `step` is one pass, after which `state` can be stored.

    A column is done at a gap of `tol`, relative to its objective at 0, or after `max_passes`. `width` columns are
    solved at a time.

    Raises `InputError` for an invalid tolerance or number of passes.
    """

    columns: list[ColumnT]
    width = 1

    def __init__(self, passes: Passes, problem: OptimumProblem, tol: float, max_passes: int) -> None:
        check_stopping(tol, max_passes)
        self.passes, self.loss, self.tol, self.max_passes = passes, find_loss(problem.loss), tol, max_passes
        self.squares = passes.squares()
        self.squares[self.squares == 0.0] = 1.0  # features in no example, whose weights stay 0
        start = np.zeros(self.squares.size), np.zeros(self.squares.size)
        smoothing = INITIAL_WIDTH if problem.loss == "hinge" else 0.0
        self.columns = [self.column(positive, h, *start, smoothing) for positive, h in problem.columns]

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
        """Every column's state as arrays, from which `restore` resumes with the same bits."""
        states = [column.state() for column in self.columns]
        return {f"{i}.{name}": value for i, state in enumerate(states) for name, value in state.items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `state` returned."""
        for i, column in enumerate(self.columns):
            first = f"{i}."
            column.restore({name[len(first) :]: value for name, value in state.items() if name.startswith(first)})


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
