"""What all blocks of columns share: evaluation of rows, and weights by runs of features in bounded memory."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np

from sparseoco.kernels.binding import COUNT_NONZEROS, EVALUATE, MEASURE
from sparseoco.kernels.responses import response_of
from sparseoco.kernels.structs import Rows
from sparseoco.learners.losses import Loss
from sparseoco.learners.penalties import Penalty, penalty_values


def unit_weights(rows: int) -> np.ndarray:
    """(rows,) sample weights of 1."""
    weights = np.ones(rows)
    weights.flags.writeable = False
    return weights


def by_row(labels: np.ndarray) -> np.ndarray:
    """Labels as kernels take them: (rows, 1), or (rows, classes) for sets of classes."""
    return labels if labels.ndim == 2 else labels[:, None]


RUN_BYTES = 1 << 20
"""Weights materialised at a time, small enough for the CPU cache."""


class ColumnBlock(ABC):
    """A block of `columns` columns of weights, `outputs` adjacent ones per configuration, padded to `width`."""

    n_features: int
    columns: int
    outputs: int
    width: int
    dtype: np.dtype
    loss: Loss
    response: str

    @abstractmethod
    def margins(self, rows: Rows) -> np.ndarray:
        """(rows, width), including padding."""

    @abstractmethod
    def weights(self, first: int, stop: int) -> np.ndarray:
        """(stop − first, columns): the weights of a run of features."""

    def evaluate(self, rows: Rows, labels: np.ndarray, loss_sum: np.ndarray, error_count: np.ndarray) -> np.ndarray:
        """Add each row's loss and error to the sums, in row order; the loss becomes NaN if a margin is not finite.

        Returns the margins (rows, width), padding included.
        """
        failed = np.zeros(len(loss_sum), np.int64)
        z, u = self.margins(rows), np.zeros(self.width, self.dtype)
        respond = response_of(self.loss, self.response, self.dtype.name)
        EVALUATE(z, by_row(labels), respond, self.outputs, failed, loss_sum, error_count, u)
        loss_sum[failed > 0] = np.nan
        return z

    def weight_runs(self) -> Iterator[tuple[int, int, np.ndarray]]:
        """Runs of features in order, with their weights (stop − first, columns), in bounded memory."""
        for first, stop in self.feature_runs():
            yield first, stop, self.weights(first, stop)

    def nonzeros(self, bins: np.ndarray, n_bins: int) -> np.ndarray:
        """(n_bins, columns) int64: the number of nonzero weights by the bin of their feature."""
        out = np.zeros((n_bins, self.columns), np.int64)
        for first, stop, weights in self.weight_runs():
            COUNT_NONZEROS(weights, bins[first:stop], out)
        return out

    def features_used(self) -> np.ndarray:
        """(configurations,) int64: the number of features with a nonzero weight for any output."""
        out = np.zeros(self.columns // self.outputs, np.int64)
        for first, stop, weights in self.weight_runs():
            out += (weights != 0).reshape(stop - first, -1, self.outputs).any(axis=2).sum(axis=0)
        return out

    def measure(self, penalty: Penalty, ratio: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(ψ without λ, number of nonzero weights), each (columns,); `ratio` is the l1_ratio of each column."""
        count = self.nonzeros(np.zeros(self.n_features, np.int64), 1)[0]
        return penalty_values(penalty, *self._sizes(), ratio), count

    def _sizes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Σ_j |w_j| and Σ_j w_j² per column, Σ_j ‖w_j‖₂ per configuration."""
        sizes = np.zeros(self.columns), np.zeros(self.columns), np.zeros(self.columns // self.outputs)
        for _, _, weights in self.weight_runs():
            MEASURE(weights, *sizes)
        return sizes

    def feature_runs(self) -> Iterator[tuple[int, int]]:
        """Runs of features, in order, whose weights take at most `RUN_BYTES`."""
        length = max(1, RUN_BYTES // (self.width * self.dtype.itemsize))
        for first in range(0, self.n_features, length):
            yield first, min(first + length, self.n_features)
