"""The optima that learners are compared with, over the first T rounds of a stream."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from sparseoco.kernels.structs import RowBatch
from sparseoco.offline.column_major import ColumnMajor
from sparseoco.offline.optimum import Optimum, Problem, minimise
from sparseoco.offline.partial_sums import Floats
from sparseoco.offline.passes import LocalPasses, Passes, PassRequest, PassResult, row_weights
from sparseoco.offline.regret.comparator import Comparator
from sparseoco.offline.weighted_passes import WeightedRowPasses
from sparseoco.storage.checkpoints import read_checkpoint, write_checkpoint
from sparseoco.storage.locations import Location

MIN_THRESHOLD = 1e-4


class Solution(NamedTuple):
    """An optimum: weights (features, outputs), the objective there, summed over outputs, its duality gap, and the
    intercepts (outputs,), 0 without them."""

    weights: Floats
    objective: float
    gap: float
    intercepts: Floats

    def write(self, path: Location) -> None:
        """Commit it, the nonzero weights only."""
        places = np.flatnonzero(self.weights)
        arrays = {
            "places": places,
            "values": self.weights.ravel()[places],
            "shape": np.array(self.weights.shape, np.int64),
            "sums": np.array([self.objective, self.gap]),
            "intercepts": self.intercepts,
        }
        write_checkpoint(path, {}, arrays.items())

    @classmethod
    def read(cls, path: Location) -> "Solution":
        """Read what `write` wrote. Raises `StorageError` for a corrupt file."""
        with read_checkpoint(path) as (_, read):
            weights = np.zeros(read("shape"))
            weights.ravel()[read("places")] = read("values")
            objective, gap = read("sums")
            return cls(weights, float(objective), float(gap), read("intercepts"))


class WeightedPasses:
    """Passes of one column that transform a weighted l1 norm to an unweighted one; h (features,).

    Σ_i h_i|w_i| = ‖v‖₁ for v = h∘w, and ⟨w, x⟩ = ⟨v, x/h⟩. Coordinates with h = 0, which the learner has never updated,
    are left out. If slopes are never 0, no example of the span has them; otherwise the minimum is over the coordinates
    that the learner has updated.
    """

    def __init__(self, passes: Passes, h: Floats) -> None:
        self.passes, self.shape, self.span = passes, passes.shape, passes.span
        self.inverse = np.divide(1.0, h, out=np.zeros_like(h), where=h > 0)

    def totals(self, weights: Floats, request: PassRequest) -> PassResult:
        """See `Passes.totals`."""
        found = self.passes.totals(weights * self.inverse[:, None], request)
        return found._replace(gradient=found.gradient * self.inverse[:, None])

    def slopes(self, result: PassResult) -> Floats:
        """See `Passes.slopes`."""
        return self.passes.slopes(result)

    def conjugates(self, result: PassResult, request: PassRequest, scale: Floats) -> Floats:
        """See `Passes.conjugates`."""
        return self.passes.conjugates(result, request, scale)

    def squares(self) -> Floats:
        """See `Passes.squares`."""
        return np.asarray(self.passes.squares() * self.inverse**2)

    def drop(self, result: PassResult) -> None:
        """See `Passes.drop`."""
        self.passes.drop(result)

    def sample_weights(self) -> Floats | None:
        """See `Passes.sample_weights`."""
        return self.passes.sample_weights()

    def columns(self) -> ColumnMajor | None:
        """See `Passes.columns`; a copy."""
        found = self.passes.columns()
        return (
            None
            if found is None
            else found._replace(counts=found.counts * np.repeat(self.inverse, np.diff(found.indptr)))
        )


def local_passes(
    rows: RowBatch, n_features: int, *, intercept: bool
) -> tuple[LocalPasses | WeightedRowPasses, NDArray[np.int64]]:
    """(passes over rows in this process, restricted to the features that occur; these features).

    All other weights are 0; the first rounds of a stream have few of its features.
    """
    indptr, indices, counts, labels, _ = rows
    seen = np.flatnonzero(np.bincount(indices, minlength=n_features))
    if not seen.size:
        seen = np.zeros(1, np.int64)  # solvers need a feature
    place = np.zeros(n_features, np.int32)
    place[seen] = np.arange(seen.size)
    matrix = csr_matrix((counts, place[indices], indptr), shape=(labels.size, seen.size), copy=False)
    if intercept:
        return WeightedRowPasses(matrix, labels, row_weights(rows), intercept=True, one_class=True), seen
    return LocalPasses.of(matrix, labels, weights=row_weights(rows)), seen


def find_optima(
    passes: Passes,
    loss: str,
    positive: Sequence[int],
    comparators: Sequence[Comparator],
    tol: float,
) -> list[Solution]:
    """The optimum of each comparator over the span of `passes`, solved together.

    The comparators differ in λ only; `positive` has the class of each output.
    """
    T = passes.span.stop - passes.span.start
    alphas = [comparator.alpha(T) for comparator in comparators]
    found = _solve(passes, loss, positive, comparators[0], alphas, tol)
    shape = passes.shape.n_features, len(positive)
    return [
        Solution(
            found.weights[i].reshape(shape),
            float(found.objective[i]),
            float(found.gap[i]),
            np.reshape(found.intercept[i], len(positive)),
        )
        for i in range(len(comparators))
    ]


def mean_thresholds(h: Floats, T: int) -> Floats:
    """(features, outputs): a learner's summed h over T rounds, raised as `find_weighted_optimum` says."""
    return np.asarray(np.maximum(h, MIN_THRESHOLD * h.max(axis=0)) / T)


def find_weighted_optimum(
    passes: Passes, loss: str, positive: Sequence[int], comparator: Comparator, tol: float, h: Floats
) -> Solution:
    """The optimum with the penalty λ·Σ_i h_i|w_i| for a learner's summed h (features, outputs), output by output.

    Each h_i is raised to at least `MIN_THRESHOLD` times the largest of its output. If a learner was certain of every
    example of a feature, its h is almost 0 (1e-93 was observed), its weight is almost free, and certifying the optimum
    would need equally small slopes. This increases the comparator's objective and decreases regret: by 0.01 % after 479
    rounds of film reviews and 0.9 % after 25,000, compared with a threshold of 1e-6.
    """
    T = passes.span.stop - passes.span.start
    mean = mean_thresholds(h, T)
    weights, objective, gap, intercepts = np.zeros_like(h), 0.0, 0.0, np.zeros(len(positive))
    for i, own in enumerate(positive):
        weighted = WeightedPasses(passes, mean[:, i])
        found = _solve(weighted, loss, [own], comparator, [comparator.alpha(T)], tol)
        weights[:, i], intercepts[i] = found.weights[0] * weighted.inverse, found.intercept[0]
        objective, gap = objective + float(found.objective[0]), gap + float(found.gap[0])
    return Solution(weights, objective, gap, intercepts)


def _solve(
    passes: Passes,
    loss: str,
    positive: Sequence[int],
    comparator: Comparator,
    alphas: Sequence[float],
    tol: float,
) -> Optimum:
    """The optimum, or the best point within the solver's passes; see its gap."""
    return minimise(passes, comparator_problem(loss, positive, comparator, alphas), tol=tol)


def comparator_problem(loss: str, positive: Sequence[int], comparator: Comparator, alphas: Sequence[float]) -> Problem:
    """The problem whose minimum is the comparator's loss and penalty, for each of some α."""
    box = math.inf if comparator.R is None else comparator.R
    return Problem(loss, tuple(alphas), comparator.l1_ratio, box, tuple(positive))
