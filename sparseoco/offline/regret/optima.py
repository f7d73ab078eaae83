"""The minima that learners are compared with, over the first T rounds of a stream."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from sparseoco.offline.optimum import Optimum, Problem, minimise
from sparseoco.offline.passes import Csr, Floats, LocalPasses, Passes
from sparseoco.offline.regret.comparator import Comparator
from sparseoco.offline.regret.weighted import WeightedPasses
from sparseoco.storage.checkpoints import read_checkpoint, write_checkpoint
from sparseoco.storage.locations import Location

LEAST = 1e-4


class Solution(NamedTuple):
    """An optimum: weights (features, outputs), the objective there, summed over outputs, and how far off it may be."""

    weights: Floats
    objective: float
    gap: float

    def write(self, path: Location) -> None:
        """Commit it; of the weights what is not zero."""
        places = np.flatnonzero(self.weights)
        arrays = {
            "places": places,
            "values": self.weights.ravel()[places],
            "shape": np.array(self.weights.shape, np.int64),
            "sums": np.array([self.objective, self.gap]),
        }
        write_checkpoint(path, {}, arrays.items())

    @classmethod
    def read(cls, path: Location) -> "Solution":
        """What `write` left. Raises `StorageError` for a file that is not it."""
        with read_checkpoint(path) as (_, read):
            weights = np.zeros(read("shape"))
            weights.ravel()[read("places")] = read("values")
            objective, gap = read("sums")
            return cls(weights, float(objective), float(gap))


def passes_of_seen(rows: Csr, n_features: int) -> tuple[LocalPasses, NDArray[np.int64]]:
    """Passes over rows in this process, and the features that are in them: those the passes know, the others' weights
    being 0. The first rounds of a stream have a small part of its features."""
    indptr, indices, counts, labels = rows
    seen = np.flatnonzero(np.bincount(indices, minlength=n_features))
    if not seen.size:
        seen = np.zeros(1, np.int64)  # a solver wants something to do
    place = np.zeros(n_features, np.int32)
    place[seen] = np.arange(seen.size)
    matrix = csr_matrix((counts, place[indices], indptr), shape=(labels.size, seen.size), copy=False)
    return LocalPasses.of(matrix, labels), seen


def find_optima(
    passes: Passes,
    loss: str,
    positive: Sequence[int],
    comparators: Sequence[Comparator],
    tol: float,
) -> list[Solution]:
    """The optimum of each comparator over the span of `passes`, side by side.

    The comparators differ in λ alone; `positive` has the class of each output.
    """
    T = passes.span.stop - passes.span.start
    alphas = [comparator.alpha(T) for comparator in comparators]
    found = _solve(passes, loss, positive, comparators[0], alphas, tol)
    shape = passes.shape.n_features, len(positive)
    return [
        Solution(found.weights[i].reshape(shape), float(found.objective[i]), float(found.gap[i]))
        for i in range(len(comparators))
    ]


def find_weighed_optimum(
    passes: Passes, loss: str, positive: Sequence[int], comparator: Comparator, tol: float, h: Floats
) -> Solution:
    """The optimum of λ·Σ_i h_i|w_i| for the h (features, outputs) that a learner has summed up, output by output.

    An h_i of less than `LEAST` times the largest of its output counts as that: where a learner was sure of every
    example of a feature its h is next to 0 (1e-93 was seen), such weights are as good as free, and their optimum would
    be certified by slopes as small. What regret is said to be is the less for it, for the objective compared with is
    the greater: by 0.01 % of regret after 479 rounds of film reviews and 0.9 % after 25,000, against a millionth.
    """
    T = passes.span.stop - passes.span.start
    mean = np.maximum(h, LEAST * h.max(axis=0)) / T
    weights, objective, gap = np.zeros_like(h), 0.0, 0.0
    for i, own in enumerate(positive):
        weighed = WeightedPasses(passes, mean[:, i])
        found = _solve(weighed, loss, [own], comparator, [comparator.alpha(T)], tol)
        weights[:, i] = found.weights[0] * weighed.inverse
        objective, gap = objective + float(found.objective[0]), gap + float(found.gap[0])
    return Solution(weights, objective, gap)


def _solve(
    passes: Passes,
    loss: str,
    positive: Sequence[int],
    comparator: Comparator,
    alphas: Sequence[float],
    tol: float,
) -> Optimum:
    """The optimum, or as near to it as the solver's passes lead: its gap says how near."""
    box = math.inf if comparator.R is None else comparator.R
    problem = Problem(loss, tuple(alphas), comparator.l1_ratio, box, tuple(positive))
    return minimise(passes, problem, tol=tol)
