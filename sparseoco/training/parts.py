"""Iterative parameter mixing: K learners on K disjoint parts of every epoch, averaged after it.

Part p of an epoch is the positions ⌊np/K⌋ … ⌊n(p + 1)/K⌋ of its stream of n rows. Feature j then has the weight

    w_j = Σ_p n_{p,j} w_{p,j} / Σ_p n_{p,j},

where n_{p,j} is the number of rows of part p that have it; one that no part has seen keeps its weight, and the
intercept is in every row. All parts of the next epoch start from these weights (`Learner.start_from`), at the mean of
their rounds. Sums run in the order of the parts, so that bits depend on K and the order of the stream only.

References
----------
McDonald, Hall and Mann 2010, "Distributed training strategies for the structured perceptron", §3.2.
Agarwal, Chapelle, Dudík and Langford 2014, "A reliable effective terascale linear learning system", §2.2, who average
the weights of a feature by what each part has seen of it.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.kernels.structs import RowBatch
from sparseoco.training.stream import DerivedRows, RowSource

Floats = NDArray[np.floating]


def part_span(n_rows: int, parts: int, part: int) -> tuple[int, int]:
    """Positions start..stop of a part, numbered from 0, in an epoch."""
    return n_rows * part // parts, n_rows * (part + 1) // parts


class CountedRows(DerivedRows):
    """Rows of a source; `counts` (features,) int64 are the rows that were read from it with each feature."""

    def __init__(self, source: RowSource, n_features: int) -> None:
        super().__init__(source)
        self.counts = np.zeros(n_features, np.int64)

    def gather(self, rows: NDArray[np.int64]) -> RowBatch:
        """The rows with these numbers, in this order."""
        batch = self._source.gather(rows)
        np.add.at(self.counts, batch.indices, 1)
        return batch


class PartWeights(NamedTuple):
    """The weights of a part after its epoch."""

    features: NDArray[np.int64]
    """(seen,): the features that its rows have, increasing."""
    counts: NDArray[np.int64]
    """(seen,): in how many of them."""
    weights: Floats
    """(seen, columns)."""


class WeightAverage:
    """The weights of parts, averaged by the counts of each feature; one part is in memory at a time.

    Parameters
    ----------
    before : (features, columns)
        The weights of features that no part has seen; the result has their dtype. Sums are float64.
    """

    def __init__(self, before: Floats) -> None:
        self._before = before
        self._sums = np.zeros(before.shape, np.float64)
        self._counts = np.zeros(len(before), np.int64)

    def add(self, part: PartWeights) -> None:
        """Add the next part."""
        self._sums[part.features] += part.counts[:, None] * part.weights.astype(np.float64)
        self._counts[part.features] += part.counts

    def weights(self) -> Floats:
        """(features, columns): the average."""
        seen = self._counts > 0
        averaged = self._before.copy()
        averaged[seen] = self._sums[seen] / self._counts[seen, None]
        return averaged
