"""The large solver of an optimum: coordinate descent on a quasi-Newton model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.kernels.newton import (
    FACTOR,
    GRAM,
    MODEL_CHANGE,
    NEWTON_DIRECTION,
    OUTSIDE_SLOPES,
    PAIR_PRODUCTS,
    STEEPEST,
    SWEEP,
    inner_product,
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
from sparseoco.offline.passes import Floats, Passes

# ----------------------------------------------------------------------------------------------------------------------
# The quasi-Newton metric: the Hessian of the loss, approximated from pairs of steps and gradient changes.
#
# Compact L-BFGS (Byrd, Nocedal & Schnabel 1994, Representations of quasi-Newton matrices, Theorem 2.3), from a
# diagonal D = σ·q with q_i = Σ_j a_{j,i}² instead of a multiple of the identity, because word counts, and so the
# curvatures of coordinates, differ by orders of magnitude.
#
#     B = D − [DS Y] M⁻¹ [DS Y]ᵀ,  M = ( SᵀDS  L ; Lᵀ  −diag(s_kᵀy_k) ),  L_kl = s_kᵀy_l for k > l, else 0


MOST_PAIRS, FEWEST_PAIRS = 30, 5
PAIR_BYTES = 1 << 30  # per column; limits the number of pairs
MIN_COSINE = 1e-12  # of a pair; less is only rounding
MIN_EIGENVALUE = 1e-10  # of M, relative to the largest; less means redundant pairs


class Model(NamedTuple):
    """B = diag(D) − Q·diag(J)·Qᵀ on the features `members`; `T` maps the pairs to Q."""

    members: NDArray[np.int64]
    D: Floats
    Q: Floats
    J: Floats
    T: Floats
    order: NDArray[np.int64]


def max_pairs(n_features: int) -> int:
    """Number of pairs per column; a pair takes 16 bytes per feature."""
    return min(max(PAIR_BYTES // (16 * n_features), FEWEST_PAIRS), MOST_PAIRS)


class Metric:
    """The last `pairs` pairs (s, y), scaled so that sᵀy = 1. `q` (features,) is positive."""

    def __init__(self, q: Floats) -> None:
        self.q = q
        self.pairs = max_pairs(q.size)
        self.S: Floats
        self.Y: Floats
        self.moved: NDArray[np.bool_]
        self.order: list[int]
        """Positions of the pairs in S and Y, the oldest first."""
        self.release()
        self.sqs, self.sy = np.zeros((self.pairs, self.pairs)), np.zeros((self.pairs, self.pairs))

    def add(self, s: Floats, y: Floats) -> None:
        """Store a pair unless it has no curvature; replaces the oldest if all positions are used."""
        curvature = inner_product(s, y)
        if not curvature > MIN_COSINE * np.sqrt(inner_product(s, s) * inner_product(y, y)):
            return
        place = self.order.pop(0) if len(self.order) == self.pairs else self._free_place()
        if not self.S.size:
            self.S, self.Y = np.zeros((self.q.size, self.pairs)), np.zeros((self.q.size, self.pairs))
            self.moved = np.zeros(self.q.size, np.bool_)
        scale = 1.0 / np.sqrt(curvature)
        s, y = scale * s, scale * y
        self.S[:, place], self.Y[:, place] = s, y
        self.moved |= s != 0.0
        out = np.zeros((3, self.pairs))
        PAIR_PRODUCTS(np.flatnonzero(self.moved), s, y, self.q, self.S, self.Y, out)
        self.sqs[place] = self.sqs[:, place] = out[0]
        self.sy[place], self.sy[:, place] = out[1], out[2]
        self.order.append(place)

    def release(self) -> None:
        """Drop all pairs and free their memory."""
        self.S, self.Y = np.zeros((0, self.pairs)), np.zeros((0, self.pairs))
        self.moved = np.zeros(0, np.bool_)
        self.order = []

    def _free_place(self) -> int:
        return min(set(range(self.pairs)) - set(self.order))

    def forget(self) -> None:
        """Drop all pairs."""
        self.order.clear()

    def sigma(self, members: NDArray[np.int64], otherwise: float) -> float:
        """σ = Σ_i y_i²/q_i over `members` for the last pair, an estimate of the largest curvature."""
        if not self.order:
            return otherwise
        y = self.Y[members, self.order[-1]]
        sigma = inner_product(y, y / self.q[members])
        return sigma if sigma > 0.0 else otherwise

    def model(self, members: NDArray[np.int64], sigma: float) -> Model:
        """B on some of the features; drops older pairs that are redundant."""
        while True:
            m = len(self.order)
            order = np.array(self.order, np.int64)
            pick = np.ix_(order, order)
            lower = np.tril(self.sy[pick], -1)
            M = np.block([[sigma * self.sqs[pick], lower], [lower.T, -np.eye(m)]]) if m else np.zeros((0, 0))
            values, vectors = np.linalg.eigh(M)
            if not m or np.abs(values).min() > MIN_EIGENVALUE * np.abs(values).max():
                break
            self.order.pop(0)
        T = vectors / np.sqrt(np.abs(values))
        D = sigma * self.q
        Q = np.empty((members.size, 2 * m))
        FACTOR(members, D, self.S, self.Y, order, T, Q)
        return Model(members, D[members], Q, np.sign(values), T, order)

    def outside_slopes(self, model: Model, sigma: float, g: Floats, v: Floats, rows: NDArray[np.int64]) -> Floats:
        """(rows,): the slope of the model at features with x_i = w_i, for v = J∘Qᵀ(x − w)."""
        out = np.empty(rows.size)
        OUTSIDE_SLOPES(rows, g, sigma * self.q, self.S, self.Y, model.order, model.T @ v, out)
        return out

    STATE = ("S", "Y", "order", "sqs", "sy")

    def state(self) -> dict[str, NDArray[Any]]:
        """The state as arrays."""
        return {"S": self.S, "Y": self.Y, "order": np.array(self.order, np.int64), "sqs": self.sqs, "sy": self.sy}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore what `state` returned."""
        self.S, self.Y, self.sqs, self.sy = (state[name].copy() for name in ("S", "Y", "sqs", "sy"))
        self.order = [int(place) for place in state["order"]]
        self.moved = (self.S != 0.0).any(axis=1)


# ----------------------------------------------------------------------------------------------------------------------
# Minimise Σ_j f_j(x) + h(x) by passes: proximal quasi-Newton steps to a duality gap, with many columns per pass.
#
# For rows on the workers of a cluster; with the rows in this process, `newton` needs fewer passes.
#
# Every column (a value of α and a class) is a separate problem with its own steps, line search and pairs; a pass
# evaluates the trial point of every unfinished column. Columns are independent, so bits do not depend on their
# grouping.
#
# From w, x⁺ is the minimum of the quadratic model (`_minimise_model`), and the trial w + t·d, d = x⁺ − w, is taken if
#
#     F(w + t·d) ≤ F(w) + 10⁻⁴·t·Δ,  Δ = ⟨g, d⟩ + h(x⁺) − h(w) < 0
#
# (Tseng & Yun 2009, A coordinate gradient descent method for nonsmooth separable minimization, eq. 9). If a difference
# of sums has cancelled, the slopes at both ends decide (Hager & Zhang 2005). The gradient of a rejected trial also
# gives a pair: the model is first solved again with it, then t is reduced. The hinge is minimised through increasingly
# close smooth approximations; its gap is that of the hinge itself (`optimum_problem`).
#
# The model is minimised by coordinate descent over a working set, which finds the coordinates that are zero or at the
# box, and by Newton's method for the values of the others (the model's matrix is a diagonal and a few columns, so that
# its inverse is cheap). Features outside the working set whose slope in the model passes l1 join it (Zhong, Yen,
# Dhillon & Ravikumar 2014, Proximal quasi-Newton for computationally intensive l1-regularized M-estimators; Scheinberg
# & Tang 2016, Practical inexact proximal quasi-Newton method with global complexity analysis).


MIN_STEP = 1e-10  # shorter steps give up the direction
SOLVER_BYTES = 2 << 30  # of vectors in this process at a time, at most
VECTORS = 6  # per column, without its pairs
EXACTNESS = 1e-3  # least subgradient of a solved model, relative to that at w
TURNS = 40  # of coordinate descent and Newton steps
ROUNDS = 8  # of growing the working set
HALVINGS = 12
NEAR = 0.5  # of l1; features with a smaller slope are unlikely to leave 0 in one step, and can in the next


@dataclass(eq=False, kw_only=True)
class Column(ColumnProgress):
    """One problem and the state of its solver. Vectors are (features,); sums are those of the (smoothed) loss."""

    FIXED = (*ColumnProgress.FIXED, "metric")

    metric: Metric
    w: Floats
    g: Floats
    loss_sum: float = np.inf
    direction: Floats = field(default_factory=lambda: np.zeros(0))
    decrease: float = 0.0  # Δ
    t: float = 1.0
    rejected: int = 0  # trials since the last accepted w

    def state(self) -> dict[str, NDArray[Any]]:
        """See `ColumnProgress.state`."""
        return super().state() | {f"metric.{name}": value for name, value in self.metric.state().items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `state` returned."""
        self.metric.restore({name: state[f"metric.{name}"] for name in Metric.STATE})
        super().restore({name: value for name, value in state.items() if not name.startswith("metric.")})

    def rest(self) -> None:
        """Release everything but the result."""
        self.metric.release()
        self.trial = self.w = self.g = self.direction = np.zeros(0)


class QuasiNewton(Solver[Column]):
    """Minimises columns by passes alone, together as far as `memory` (bytes) and `SOLVER_BYTES` allow."""

    def __init__(
        self,
        passes: Passes,
        problem: OptimumProblem,
        *,
        tol: float = TOLERANCE,
        max_passes: int = MAX_PASSES,
        memory: int = SOLVER_BYTES,
    ) -> None:
        super().__init__(passes, problem, tol, max_passes)
        size = self.squares.size
        self.width = max(1, min(memory, SOLVER_BYTES) // (8 * size * (2 * max_pairs(size) + VECTORS)))

    def column(self, positive: int, h: Regulariser, trial: Floats, best: Floats, width: float) -> Column:
        """See `Solver.column`."""
        return Column(positive, h, trial, best, width, metric=Metric(self.squares), w=trial, g=trial)

    def advance(self, column: Column, gap: Gap) -> None:
        """See `Solver.advance`."""
        g = gap.g
        if column.direction.size:
            step = column.trial - column.w
            column.metric.add(step, g - column.g)
            change = column.h.change(column.trial, column.w)
            taken = Step(gap.loss_sum - column.loss_sum, inner_product(column.g, step), inner_product(g, step), change)
            if not taken.is_decrease(column.t * column.decrease, column.at_zero):
                self._reject(column, taken.increase(column.at_zero))
                return
        column.w, column.g, column.loss_sum, column.rejected = column.trial, g, gap.loss_sum, 0
        if gap.oversmoothed:
            # The next pass is at the same point, with the loss less smoothed.
            column.width *= WIDTH_FACTOR
            column.metric.forget()
            column.direction = np.zeros(0)
            return
        self._solve_model(column)

    def _reject(self, column: Column, increase: float) -> None:
        """Reject a trial at which the objective rose by `increase`: first solve the model again, later reduce t."""
        column.rejected += 1
        if column.rejected == 1:
            self._solve_model(column)
            return
        bend = increase - column.t * column.decrease
        column.t *= min(0.5, max(0.1, -0.5 * column.t * column.decrease / bend)) if bend > 0.0 else 0.1
        if column.t < MIN_STEP:
            self._restart(column)
        else:
            column.trial = column.w + column.t * column.direction

    def _solve_model(self, column: Column) -> None:
        """The next trial: the minimum of the model at w."""
        curvature = MAX_CURVATURE[self.loss.name] / (column.width or 1.0)
        best = _minimise_model(column.w, column.g, column.metric, column.h, curvature)
        column.direction, column.t = best - column.w, 1.0
        column.decrease = float(inner_product(column.g, column.direction) + column.h.change(best, column.w))
        column.trial = best
        if not column.decrease < 0.0:
            self._restart(column)

    def _restart(self, column: Column) -> None:
        """Continue without pairs; if there are none, only rounding is left and the column is done."""
        if not column.metric.order:
            column.done = True
            return
        column.metric.forget()
        self._solve_model(column)


def _minimise_model(w: Floats, g: Floats, metric: Metric, h: Regulariser, curvature: float) -> Floats:
    """argmin_x ⟨g, x − w⟩ + ½(x − w)ᵀB(x − w) + h(x), approximately; `curvature` is σ if there are no pairs yet."""
    inside = (w != 0.0) | (np.abs(g) > h.l1)
    sigma = metric.sigma(np.flatnonzero(inside), curvature)
    weight = 1.0 / np.sqrt(sigma * metric.q)
    x, goal = w.copy(), -1.0
    for _ in range(ROUNDS):
        members = np.flatnonzero(inside)
        model = metric.model(members, sigma)
        part, start = x[members], (w[members], g[members], model, h)
        v = np.zeros(model.J.size)
        if goal < 0.0:
            goal = EXACTNESS * _largest(_least_subgradients(part, *start, v) * weight[members])
        _solve(part, *start, v, weight[members], goal)
        x[members] = part
        near = np.flatnonzero(~inside & (np.abs(g) > NEAR * h.l1))
        far = metric.outside_slopes(model, sigma, g, v, near)
        joining = near[(np.abs(far) - h.l1) * weight[near] > goal]
        if not joining.size:
            break
        inside[joining] = True
    return x


def _least_subgradients(x: Floats, w: Floats, g: Floats, model: Model, h: Regulariser, v: Floats) -> Floats:
    """The least subgradient of the model at x; times a weight, in units of √D_i."""
    out = np.empty_like(x)
    STEEPEST(x, w, g, model.D, model.Q, *h, v, out)
    return out


def _largest(values: Floats) -> float:
    return float(np.abs(values).max(initial=0.0))


def _solve(
    x: Floats, w: Floats, g: Floats, model: Model, h: Regulariser, v: Floats, weight: Floats, goal: float
) -> None:
    """Minimise the model over its members from x, in place; `v` is set to match x."""
    MODEL_CHANGE(x, w, w, g, model.D, model.Q, model.J, h.l1, h.l2, np.zeros_like(v), v)
    for _ in range(TURNS):
        SWEEP(x, w, g, model.D, model.Q, model.J, *h, v)
        slopes = _least_subgradients(x, w, g, model, h, v)
        if _largest(slopes * weight) <= goal:
            return
        _newton_step(x, w, g, model, h, v, slopes)


def _newton_step(x: Floats, w: Floats, g: Floats, model: Model, h: Regulariser, v: Floats, slopes: Floats) -> None:
    """A Newton step in the coordinates that are neither zero nor at the box; none changes its sign."""
    free = (x != 0.0) & (np.abs(x) < h.box) if h.l1 > 0.0 else np.abs(x) < h.box
    scale = 1.0 / (model.D + h.l2)
    r = model.J.size
    matrix, vector = np.zeros((r, r)), np.zeros(r)
    GRAM(model.Q, free, scale, -slopes, matrix, vector)
    try:
        solved = np.linalg.solve(np.diag(model.J) - matrix, vector)
    except np.linalg.LinAlgError:
        return
    direction = np.empty_like(x)
    NEWTON_DIRECTION(model.Q, free, scale, -slopes, solved, direction)
    step, moved = 1.0, np.empty(r)
    for _ in range(HALVINGS):
        new = np.clip(x + step * direction, -h.box, h.box)
        if h.l1 > 0.0:
            new[new * x < 0.0] = 0.0
        if MODEL_CHANGE(new, x, w, g, model.D, model.Q, model.J, h.l1, h.l2, v, moved) < 0.0:
            x[:] = new
            v += moved
            return
        step *= 0.5
