"""Sums over some of the rows: losses, and a gradient that stores only the features that occur while these are few.

Both forms of a gradient add up to the same bits. Sums start from +0.0, so no entry is ever −0.0, and an absent feature
adds +0.0, which changes nothing.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DENSE_SHARE = 0.5  # of the features; where more occur, all are stored


class FeatureSums(NamedTuple):
    """An array (n_features, columns): the rows `values` of the sorted `features`, else 0; all rows if that is None."""

    n_features: int
    features: NDArray[np.int64] | None
    values: Floats

    def __add__(self, other: Any) -> "FeatureSums":
        if self.features is None or other.features is None:
            dense, sparse = (self, other) if self.features is None else (other, self)
            if sparse.features is None:
                return self._replace(values=self.values + other.values)
            values = np.array(dense.values)
            values[sparse.features] += sparse.values
            return dense._replace(values=values)
        features = np.union1d(self.features, other.features)
        if features.size > DENSE_SHARE * self.n_features:
            total: FeatureSums = self._replace(features=None, values=self.dense()) + other
            return total
        values = np.zeros((features.size, self.values.shape[1]))
        values[np.searchsorted(features, self.features)] = self.values
        values[np.searchsorted(features, other.features)] += other.values
        return FeatureSums(self.n_features, features, values)

    def dense(self) -> Floats:
        """(n_features, columns)."""
        if self.features is None:
            return self.values
        out = np.zeros((self.n_features, self.values.shape[1]))
        out[self.features] = self.values
        return out

    def of(self, first: int, last: int) -> "FeatureSums":
        """The features first..last, numbered from 0."""
        if self.features is None:
            return FeatureSums(last - first, None, self.values[first:last])
        begin, end = np.searchsorted(self.features, [first, last])
        return FeatureSums(last - first, self.features[begin:end] - first, self.values[begin:end])


class Partial(NamedTuple):
    """Sums over some rows. `loss_sum` and `exact_sum` (columns,), `gradient` (features, columns)."""

    loss_sum: Floats
    exact_sum: Floats
    gradient: FeatureSums

    def __add__(self, other: Any) -> "Partial":
        return Partial(*(a + b for a, b in zip(self, other, strict=True)))

    def of(self, first: int, last: int) -> "Partial":
        """The same sums with the gradient of the features first..last."""
        return self._replace(gradient=self.gradient.of(first, last))


class GradientBuffer:
    """Zeros (n_features, columns) that leaves, one after another, are summed in.

    With `sparse`, `take` finds the features that occurred since the last one, and the array is used again.
    """

    def __init__(self, n_features: int, columns: int, *, sparse: bool) -> None:
        self.values = np.zeros((n_features, columns))
        self._seen = np.zeros(n_features, np.bool_) if sparse else None

    def occur(self, indices: NDArray[Any]) -> None:
        """Features that the caller adds to."""
        if self._seen is not None:
            self._seen[indices] = True

    def take(self) -> FeatureSums:
        """The sums; the array is then 0 again."""
        n_features = len(self.values)
        if self._seen is None:
            taken, self.values = self.values, np.zeros_like(self.values)
            return FeatureSums(n_features, None, taken)
        features = np.flatnonzero(self._seen)
        found = FeatureSums(n_features, features, self.values[features])
        self.values[features], self._seen[features] = 0.0, False
        return found
