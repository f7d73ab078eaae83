"""The solver of optima of large stores: coordinate descent on a quasi-Newton model."""

from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseoco.kernels import newton
from sparseoco.kernels.newton import inner_product
from sparseoco.offline import optimum
from sparseoco.offline.passes import Floats

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


def max_pairs(n_features: int) -> int:
    """Number of pairs per column; a pair takes 16 bytes per feature."""
    return min(max(PAIR_BYTES // (16 * n_features), FEWEST_PAIRS), MOST_PAIRS)


@dataclass(eq=False)
class Metric:
    """The last pairs (s, y), scaled so that sᵀy = 1, in columns of S and Y (features, pairs); `q` is positive."""

    q: Floats
    S: Floats
    Y: Floats
    moved: NDArray[np.bool_]
    """(features,): where a stored s was not 0."""
    order: NDArray[np.int64]
    """Positions of the pairs in S and Y, the oldest first."""
    sqs: Floats
    sy: Floats

    @classmethod
    def empty(cls, q: Floats) -> dict[str, Any]:
        """The fields without any pairs."""
        pairs = max_pairs(q.size)
        fields = {name: np.zeros((0, pairs)) for name in ("S", "Y")}
        fields |= {name: np.zeros((pairs, pairs)) for name in ("sqs", "sy")}
        return {"q": q, "moved": np.zeros(q.size, np.bool_), "order": np.zeros(0, np.int64), **fields}

    def add(self, s: Floats, y: Floats) -> None:
        """Store a pair unless it has no curvature; replaces the oldest if all positions are used."""
        curvature, pairs = inner_product(s, y), len(self.sqs)
        if not curvature > MIN_COSINE * np.sqrt(inner_product(s, s) * inner_product(y, y)):
            return
        if not self.S.size:
            self.S, self.Y = np.zeros((self.q.size, pairs)), np.zeros((self.q.size, pairs))
        if self.order.size == pairs:
            place, self.order = int(self.order[0]), self.order[1:]
        else:
            place = min(set(range(pairs)) - set(self.order.tolist()))
        scale = 1.0 / np.sqrt(curvature)
        s, y = scale * s, scale * y
        self.S[:, place], self.Y[:, place] = s, y
        self.moved |= s != 0.0
        out = np.zeros((3, pairs))
        newton.PAIR_PRODUCTS(np.flatnonzero(self.moved), s, y, self.q, self.S, self.Y, out)
        self.sqs[place] = self.sqs[:, place] = out[0]
        self.sy[place], self.sy[:, place] = out[1], out[2]
        self.order = np.append(self.order, place)

    def sigma(self, members: NDArray[np.int64], otherwise: float) -> float:
        """σ = Σ_i y_i²/q_i over `members` for the last pair, an estimate of the largest curvature."""
        if not self.order.size:
            return otherwise
        y = self.Y[members, self.order[-1]]
        sigma = inner_product(y, y / self.q[members])
        return sigma if sigma > 0.0 else otherwise

    def eigen(self, sigma: float) -> tuple[Floats, Floats]:
        """The eigenvalues and eigenvectors of M; drops older pairs that are redundant."""
        while True:
            m, pick = self.order.size, np.ix_(self.order, self.order)
            lower = np.tril(self.sy[pick], -1)
            M = np.block([[sigma * self.sqs[pick], lower], [lower.T, -np.eye(m)]]) if m else np.zeros((0, 0))
            values, vectors = np.linalg.eigh(M)
            if not m or np.abs(values).min() > MIN_EIGENVALUE * np.abs(values).max():
                return values, vectors
            self.order = self.order[1:]


# ----------------------------------------------------------------------------------------------------------------------
# Minimise Σ_j f_j(x) + h(x) by passes: proximal quasi-Newton steps to a duality gap, with many columns per pass.
#
# For rows on the workers of a cluster; with the rows in this process, `optimum.Newton` needs fewer passes.
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
# close smooth approximations; its gap is that of the hinge itself (`optimum`).
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


@dataclass(eq=False, kw_only=True)
class Column(optimum.ColumnProgress, Metric):
    """One problem, its metric and the state of its solver. Vectors are (features,); sums are those of the (smoothed)
    loss."""

    FIXED = (*optimum.ColumnProgress.FIXED, "q")

    w: Floats
    g: Floats
    direction: Floats
    loss_sum: float = np.inf
    decrease: float = 0.0  # Δ
    t: float = 1.0
    rejected: int = 0  # trials since the last accepted w

    def rest(self) -> None:
        """Release everything but the result."""
        self.trial = self.w = self.g = self.direction = np.zeros(0)
        self.S, self.Y, self.moved = self.S[:0].copy(), self.Y[:0].copy(), self.moved[:0].copy()


@dataclass(eq=False)
class QuasiNewton(optimum.Solver[Column]):
    """Minimises columns by passes alone, together as far as `memory` (bytes) and `SOLVER_BYTES` allow."""

    _: KW_ONLY
    memory: int = SOLVER_BYTES

    def __post_init__(self) -> None:
        super().__post_init__()
        size = self.squares.size
        self.width = max(1, min(self.memory, SOLVER_BYTES) // (8 * size * (2 * max_pairs(size) + VECTORS)))

    def column(self, positive: int, h: optimum.Regulariser, trial: Floats, best: Floats, width: float) -> Column:
        """See `Solver.column`."""
        own = {"w": trial, "g": trial, "direction": np.zeros(0), **Metric.empty(self.squares)}
        return Column(positive=positive, h=h, trial=trial, best=best, width=width, **own)

    def advance(self, column: Column, gap: optimum.Gap) -> None:
        """See `Solver.advance`."""
        g = gap.g
        if column.direction.size:
            step = column.trial - column.w
            column.add(step, g - column.g)
            change = column.h.change(column.trial, column.w)
            taken = optimum.Step(
                gap.loss_sum - column.loss_sum, inner_product(column.g, step), inner_product(g, step), change
            )
            if not taken.is_decrease(column.t * column.decrease, column.at_zero):
                # Rejected: first the model is solved again, with the new pair, later t is reduced.
                column.rejected += 1
                if column.rejected == 1:
                    self._solve_model(column)
                    return
                bend = taken.increase(column.at_zero) - column.t * column.decrease
                column.t *= min(0.5, max(0.1, -0.5 * column.t * column.decrease / bend)) if bend > 0.0 else 0.1
                if column.t < MIN_STEP:
                    self._restart(column)
                else:
                    column.trial = column.w + column.t * column.direction
                return
        column.w, column.g, column.loss_sum, column.rejected = column.trial, g, gap.loss_sum, 0
        if gap.oversmoothed:
            # The next pass is at the same point, with the loss less smoothed and without pairs.
            column.width *= optimum.WIDTH_FACTOR
            column.order = column.order[:0]
            column.direction = np.zeros(0)
            return
        self._solve_model(column)

    def _solve_model(self, column: Column) -> None:
        """The next trial: the minimum of the model at w."""
        curvature = optimum.MAX_CURVATURE[self.loss.name] / (column.width or 1.0)
        best = _minimise_model(column, curvature)
        column.direction, column.t = best - column.w, 1.0
        column.decrease = float(inner_product(column.g, column.direction) + column.h.change(best, column.w))
        column.trial = best
        if not column.decrease < 0.0:
            self._restart(column)

    def _restart(self, column: Column) -> None:
        """Continue without pairs; if there are none, only rounding is left and the column is done."""
        if not column.order.size:
            column.done = True
            return
        column.order = column.order[:0]
        self._solve_model(column)


def _minimise_model(column: Column, curvature: float) -> Floats:
    """argmin_x ⟨g, x − w⟩ + ½(x − w)ᵀB(x − w) + h(x), approximately; `curvature` is σ if there are no pairs yet."""
    w, g, h = column.w, column.g, column.h
    inside = (w != 0.0) | (np.abs(g) > h.l1)
    sigma = column.sigma(np.flatnonzero(inside), curvature)
    weight = 1.0 / np.sqrt(sigma * column.q)
    x, goal = w.copy(), -1.0
    for _ in range(ROUNDS):
        model = PairModel(column, np.flatnonzero(inside), x, sigma)
        if goal < 0.0:
            goal = EXACTNESS * model.largest(model.subgradients())
        model.minimise(goal)
        x[model.members] = model.x
        near = np.flatnonzero(~inside & (np.abs(g) > optimum.NEAR * h.l1))
        slopes = np.empty(near.size)  # of the model, where x_i = w_i
        pairs = column.S, column.Y, column.order
        newton.OUTSIDE_SLOPES(near, g, model.all_D, *pairs, model.T @ model.v, slopes)
        joining = near[(np.abs(slopes) - h.l1) * weight[near] > goal]
        if not joining.size:
            break
        inside[joining] = True
    return x


class PairModel(optimum.QuadraticModel):
    """m(x) = ⟨g, x − w⟩ + ½(x − w)ᵀB(x − w) + h(x) on some of the features, with `v` = J∘Qᵀ(x − w).

    B = diag(D) − Q·diag(J)·Qᵀ, where `T` maps the pairs to Q.
    """

    def __init__(self, column: Column, members: NDArray[np.int64], x: Floats, sigma: float) -> None:
        values, vectors = column.eigen(sigma)
        self.members, self.h = members, column.h._replace(box=column.h.box[members])
        self.T = vectors / np.sqrt(np.abs(values))
        self.all_D, self.J = sigma * column.q, np.sign(values)
        self.w, self.g, self.D, self.x = column.w[members], column.g[members], self.all_D[members], x[members]
        self.Q, self.v = np.empty((members.size, values.size)), np.zeros(values.size)
        newton.FACTOR(members, self.all_D, column.S, column.Y, column.order, self.T, self.Q)
        self.change(self.x, self.w, np.zeros_like(self.v), self.v)

    def change(self, new: Floats, x: Floats, v: Floats, moved: Floats) -> float:
        """m(new) − m(x), for the `v` of x; `moved` is set to the change of v."""
        parts = self.w, self.g, self.D, self.Q, self.J, self.h.l1, self.h.l2
        return float(newton.MODEL_CHANGE(new, x, *parts, v, moved))

    def minimise(self, goal: float) -> None:
        """Minimise m until no subgradient is larger than `goal`."""
        for _ in range(TURNS):
            newton.SWEEP(self.x, self.w, self.g, self.D, self.Q, self.J, *self.h, self.v)
            slopes = self.subgradients()
            if self.largest(slopes) <= goal:
                return
            self.newton(slopes)

    def subgradients(self) -> Floats:
        """The least subgradient of m at x."""
        out = np.empty_like(self.x)
        newton.STEEPEST(self.x, self.w, self.g, self.D, self.Q, *self.h, self.v, out)
        return out

    def largest(self, slopes: Floats) -> float:
        """The largest slope, in units of √D_i."""
        return float(np.abs(slopes / np.sqrt(self.D)).max(initial=0.0))

    def direction(self, free: NDArray[np.bool_], slopes: Floats) -> Floats:
        """See `QuadraticModel.direction`."""
        scale, pairs = 1.0 / (self.D + self.h.l2), self.J.size
        matrix, vector, direction = np.zeros((pairs, pairs)), np.zeros(pairs), np.zeros_like(self.x)
        newton.GRAM(self.Q, free, scale, -slopes, matrix, vector)
        with suppress(np.linalg.LinAlgError):
            solved = np.linalg.solve(np.diag(self.J) - matrix, vector)
            newton.NEWTON_DIRECTION(self.Q, free, scale, -slopes, solved, direction)
        return direction

    def move(self, x: Floats) -> bool:
        """See `QuadraticModel.move`."""
        moved = np.empty_like(self.v)
        lower = self.change(x, self.x, self.v, moved) < 0.0
        if lower:
            self.x, self.v = x, self.v + moved
        return lower
