"""The strongest features of a linear model, and rows with some features only.

The strength of feature j is ‖w_j‖²·Σ_t x_tj²/‖x_t‖²: its part in the margins of rows of norm 1, squared and summed over
classes and rows, if features were uncorrelated. So no feature is strong because of one long row.
"""

import numpy as np
from numpy.typing import NDArray

from sparseoco.kernels.structs import RowBatch
from sparseoco.training.stream import DerivedRows, RowSource

SHARE = 0.95
"""Of the sum of the strengths, which features are kept for if their number is not given."""


class MeasuredRows(DerivedRows):
    """Rows of a source; `squares` (features,) float64 sums x_tj²/‖x_t‖² over the rows that were read from it."""

    def __init__(self, source: RowSource, n_features: int) -> None:
        super().__init__(source)
        self.squares = np.zeros(n_features)

    def gather(self, rows: NDArray[np.int64]) -> RowBatch:
        """The rows with these numbers, in this order."""
        batch = self._source.gather(rows)
        values = np.square(batch.values, dtype=np.float64)
        sizes = np.diff(batch.indptr)
        norms = np.bincount(np.repeat(np.arange(sizes.size), sizes), values, sizes.size)
        np.add.at(self.squares, batch.indices, values / np.repeat(norms, sizes))
        return batch


class FeatureRows(DerivedRows):
    """Rows of a source with some features only; feature i is ``features[i]`` of the source.

    Values stay as they are: those of rows that were normalised are not normalised again.
    """

    def __init__(self, source: RowSource, features: NDArray[np.int64], n_features: int) -> None:
        super().__init__(source)
        self._ids = np.full(n_features, -1, np.int32 if features.size < 2**31 else np.int64)
        self._ids[features] = np.arange(features.size)

    def gather(self, rows: NDArray[np.int64]) -> RowBatch:
        """The rows with these numbers, in this order."""
        batch = self._source.gather(rows)
        ids = self._ids[batch.indices]
        kept = ids >= 0
        before = np.concatenate([[0], np.cumsum(kept)])
        return batch._replace(indptr=before[batch.indptr], indices=ids[kept], values=batch.values[kept])


def strongest_features(
    weights: NDArray[np.float64], squares: NDArray[np.float64], at_most: int | None = None
) -> NDArray[np.int64]:
    """The strongest features of a model, increasing; none with weight 0, and of equal ones the first.

    Parameters
    ----------
    weights : (features, outputs).
    squares : (features,), as `MeasuredRows` sums them.
    at_most : how many; by default as many as have `SHARE` of the sum of the strengths.
    """
    strength = np.square(weights).sum(axis=1) * squares
    order = np.argsort(-strength, kind="stable")[: np.count_nonzero(strength)]
    if at_most is None:
        sums = np.cumsum(strength[order])
        at_most = int(np.searchsorted(sums, SHARE * sums[-1])) + 1 if order.size else 0
    return np.sort(order[:at_most])
