"""The inputs of the papers' bounds (`sparseoco.offline.bounds.QUANTITIES`), measured along a stream.

From the rows: the largest ‖x_t‖₂ and max |x_{t,i}|, which bound the gradients of losses whose slope is at most 1; the
features seen; the longest gaps between the rounds of a feature. From the iterates, in the sampled rounds: their
distance from each mark's comparator. From the learner's state, at the marks: `bounds.state_quantities`.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sparseoco.kernels.structs import RowBatch
from sparseoco.learners.cao_rcd import lipschitz
from sparseoco.learners.losses import find_loss
from sparseoco.learners.penalties import find_penalty
from sparseoco.offline.bounds import Bound, NoBound, regret_bound, state_quantities
from sparseoco.offline.regret.curve import FirstEpoch
from sparseoco.training.learner import Learner

Floats = NDArray[np.float64]
FROM_GRADIENTS = {"G", "G_inf"}
FROM_GAPS = {"K", "spread", "S"}


class SparseComparator:
    """A comparator x (features, outputs), stored as its nonzero entries, and its intercepts b (outputs,)."""

    def __init__(self, x: Floats, b: Floats) -> None:
        self.x, self.b = x, b
        self.rows, self.columns = np.nonzero(x)
        self.values = x[self.rows, self.columns]
        self.square = (x**2).sum(axis=0)

    def distance(self, w: Floats, square: Floats, b: Floats) -> Floats:
        """(outputs,) ‖(w, b) − (x, own b)‖₂, given ‖w‖₂²."""
        cross = np.bincount(self.columns, w[self.rows, self.columns] * self.values, self.x.shape[1])
        return np.asarray(np.hypot(np.sqrt(np.maximum(square - 2 * cross + self.square, 0.0)), b - self.b))

    def spread(self, w: Floats, total: Floats) -> Floats:
        """(outputs,) Σ_i ||w_i| − |x_i||, given ‖w‖₁."""
        here, there = np.abs(w[self.rows, self.columns]), np.abs(self.values)
        return total + np.bincount(self.columns, np.abs(here - there) - here, self.x.shape[1])


class _RowQuantities:
    """Quantities of the rows seen so far, times their sample weights, and with the 1 of an intercept."""

    def __init__(self, n_features: int, gaps: bool, intercept: bool) -> None:
        self.gaps, self.one = gaps, float(intercept)
        self.t = 0
        self.norm = self.largest = 0.0
        self.seen = np.zeros(n_features, bool)
        self.last = np.zeros(n_features, np.int64)  # the last round of each feature
        self.longest = 0
        self.charge = 0.0  # largest ‖c_t‖₂ of cl-fobos: c_{t,i} = (Σ η since i's last round)/η_t
        self.steps = np.zeros(1)  # Σ_{τ≤t} 1/√τ

    def observe(self, rows: RowBatch) -> None:
        indptr, indices, counts, _, weights = rows
        size = len(indptr) - 1
        if size == 0:
            return
        values, one = np.asarray(counts, np.float64), np.full(size, self.one)
        bounds = np.asarray(indptr, np.int64) - indptr[0]
        if weights is not None:  # a row of weight 0 is a round without features
            one *= weights
            values = values * np.repeat(weights, np.diff(bounds))
            learned = values != 0.0
            values, indices = values[learned], indices[learned]
            bounds = np.concatenate([[0], np.cumsum(learned)])[bounds]
        sums = np.concatenate([[0.0], np.cumsum(values**2)])
        self.norm = max(self.norm, float(np.sqrt((np.diff(sums[bounds]) + one**2).max())))
        self.largest = max(self.largest, float(np.abs(values).max(initial=0.0)), float(one.max()))
        self.seen[indices] = True
        if self.gaps:
            more = 1 / np.sqrt(np.arange(self.t + 1, self.t + size + 1))
            self.steps = np.concatenate([self.steps, self.steps[-1] + np.cumsum(more)])
            for i in range(size):
                t, row = self.t + i + 1, indices[bounds[i] : bounds[i + 1]]
                self.longest = max(self.longest, int((t - self.last[row]).max(initial=0)))
                charged = (self.steps[t] - self.steps[self.last[row]]) * np.sqrt(t)
                self.charge = max(self.charge, float(np.linalg.norm(charged)))
                self.last[row] = t
        self.t += size

    def longest_gap(self) -> int:
        """The longest gap between rounds of a feature seen so far, including the current gaps."""
        return max(self.longest, int((self.t - self.last[self.seen]).max(initial=0)))


def measurable(bound: Bound | NoBound, loss: str) -> Bound | NoBound:
    """The bound if its quantities can be measured, else the reason why not."""
    if isinstance(bound, NoBound):
        return bound
    if FROM_GRADIENTS & set(bound.needs) and not lipschitz(find_loss(loss)):
        return NoBound(f"The theorem needs a bound on the gradients, and those of {loss} grow with the margin.")
    if FROM_GAPS & set(bound.needs) and find_loss(loss).slope_vanishes:
        return NoBound(
            "K is not measured for losses whose slope can be 0, because rounds may then update no coordinates."
        )
    return bound


def measure_bounds(
    learner: Learner,
    rounds: FirstEpoch,
    samples: Sequence[int],
    optima: Mapping[int, Floats],
    intercepts: Mapping[int, Floats] | None = None,
) -> Iterator[tuple[int, float]]:
    """(T, bound on the regret after T rounds, all outputs together) at each mark, a key of `optima`.

    Learns the stream with a new learner of one configuration, as `curve.measure`; `optima` are the comparators
    (features, outputs) and `intercepts` theirs (outputs,), 0 by default. The intercept is a coordinate without a
    penalty. Yields nothing if there is no theorem or the intercept is outside its box, and stops when the learner
    diverges.
    """
    parameters = learner.configurations[0]
    bound = measurable(regret_bound(learner.algorithm, parameters, learner.penalty), learner.loss)
    if isinstance(bound, NoBound):
        return
    outputs = learner.n_outputs
    comparators = {
        T: SparseComparator(np.asarray(x, np.float64), np.zeros(outputs) if intercepts is None else intercepts[T])
        for T, x in sorted(optima.items())
    }
    rows = _RowQuantities(learner.n_features, gaps="K" in bound.needs, intercept=learner.intercept)
    peaks = np.zeros((learner.n_features, outputs))
    norm = np.zeros(outputs)
    D, D_b, spread = ({T: np.zeros(outputs) for T in comparators} for _ in range(3))
    for t in samples:
        rounds.learn(learner, t - 1, rows.observe)
        w, b = np.asarray(learner.weights_of(0), np.float64), np.asarray(learner.intercepts()[0], np.float64)
        size = np.abs(w)
        np.maximum(peaks, size, out=peaks)
        square, total = np.einsum("jc,jc->c", w, w), size.sum(axis=0)
        norm = np.maximum(norm, np.sqrt(square))
        for T, x in comparators.items():
            if t <= T:
                D[T] = np.maximum(D[T], x.distance(w, square, b))
                D_b[T] = np.maximum(D_b[T], np.abs(b - x.b))
                if rows.gaps:
                    spread[T] = np.maximum(spread[T], x.spread(w, total))
        if t in comparators:
            rounds.learn(learner, t, rows.observe)
            if learner.diverged[0]:
                return
            lam = parameters.get("lam", 0.0)
            quantities = {
                "D": D[t],
                "D_b": D_b[t],
                "G": rows.norm,
                "G_inf": rows.largest,
                "U": _subgradients(learner, rows, norm),
                "K": rows.longest_gap(),
                "spread": lam * spread[t],
                "S": lam * peaks.max(axis=0),
                **state_quantities(learner, 0, comparators[t].x, peaks, comparators[t].b),
            }
            if bound.radius is not None and np.abs(comparators[t].b).max() > bound.radius:
                continue
            yield t, float(np.sum(np.broadcast_to(bound.value(t, quantities), outputs)))


def _subgradients(learner: Learner, rows: _RowQuantities, norm: Floats) -> Floats:
    """(outputs,) U: the largest norm of a subgradient of the penalty; not for learners with thresholds."""
    parameters = learner.configurations[0]
    lam = parameters.get("lam", 0.0)
    if rows.gaps and not find_penalty(learner.penalty).decaying:
        return np.full(norm.shape, lam * rows.charge)
    ratio = {"l2": 0.0, "elastic_net": parameters.get("l1_ratio", 1.0)}.get(learner.penalty, 1.0)
    return np.asarray(lam * (ratio * np.sqrt(rows.seen.sum()) + (1 - ratio) * norm))
