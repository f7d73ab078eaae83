"""Ranges of a corpus's rows in memory, from which they are read in any order."""

import numpy as np
from numpy.typing import NDArray

from sparseoco.kernels.order import gather
from sparseoco.kernels.structs import RowBatch


class RowRanges:
    """The rows of some ranges.

    Parameters
    ----------
    starts, stops : (ranges,) int64
        Row numbers, increasing; ranges do not overlap.
    rows : RowBatch
        Their rows, one range after the other; ``indptr`` starts at 0.
    """

    def __init__(self, starts: NDArray[np.int64], stops: NDArray[np.int64], rows: RowBatch) -> None:
        self._starts, self._before = starts, np.cumsum(stops - starts) - (stops - starts)
        for array in rows[:3]:
            array.flags.writeable = False  # the types of a mapped corpus, for which `gather` is compiled
        self._rows = rows

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self._rows.labels)

    def gather(self, rows: NDArray[np.int64]) -> RowBatch:
        """The rows with these numbers, in this order, in the format of `Corpus.rows`."""
        part = np.searchsorted(self._starts, rows, side="right") - 1
        own = rows - self._starts[part] + self._before[part]
        indptr, indices, values, labels, weights = self._rows
        gathered = RowBatch(*gather(own, indptr, indices, values, indptr))
        return gathered._replace(labels=labels[own], weights=None if weights is None else weights[own])

    def buffered(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> "RowRanges":
        """These rows are in memory: see `Corpus.buffered`."""
        return self
