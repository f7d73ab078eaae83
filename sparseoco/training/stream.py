"""The stream trainer: rows of a corpus, or of a matrix in memory, go to a learner in a reproducible order.

`stream` yields chunks of rows with the position after each; `train_stream` feeds them to a learner. Weights do not
depend on how a stream is cut into chunks, so a caller may stop after any of them: to measure, to save a checkpoint, to
decide.
"""

import copy
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from sparseoco.kernels.order import fold_rows
from sparseoco.kernels.structs import RowBatch
from sparseoco.training.orders import Windows, ordered_rows

NO_FOLD = -1
CHUNK_ROWS = 4096


class StreamPosition(NamedTuple):
    """A position in a stream: `position` rows into the epoch (from 1), rows of the held-out fold counted."""

    epoch: int
    position: int

    def rows_before(self, n_rows: int) -> int:
        """Rows of the stream before it, in all epochs, of `n_rows` each."""
        return (self.epoch - 1) * n_rows + self.position


START = StreamPosition(1, 0)


class FoldParts(Protocol):
    """Which rows of a source a fold learns and holds out, where that is not a hash of their number."""

    def learned(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each of these rows is learned."""

    def held_out(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each of these rows is held out."""


class Order(NamedTuple):
    """The order of rows, a new one in each epoch unless it is that of the store; one fold may be held out.

    The fold of a row is a hash of its number, or what `parts` says.
    """

    seed: int = 0
    range_rows: int = 0
    """See `sparseoco.training.orders`."""
    fold: int = NO_FOLD
    folds: int = 1
    parts: FoldParts | None = None

    def rows(self, epoch: int, n_rows: int, start: int, stop: int) -> NDArray[np.int64]:
        """Row numbers at positions start..stop of an epoch, without those of the held-out fold."""
        fold = self.fold if self.parts is None else NO_FOLD
        rows = ordered_rows(self.seed, epoch, self.range_rows, n_rows, start, stop, fold, self.folds)
        return rows if self.parts is None else rows[self.parts.learned(rows)]

    def held_out(self, start: int, stop: int) -> NDArray[np.int64]:
        """Row numbers of the held-out fold in start..stop, increasing; none without a fold."""
        if self.fold == NO_FOLD:
            return np.zeros(0, np.int64)
        if self.parts is not None:
            numbers = np.arange(start, stop)
            return numbers[self.parts.held_out(numbers)]
        rows: NDArray[np.int64] = fold_rows(self.seed, start, stop, self.fold, self.folds)
        return rows


class RowSource(Protocol):
    """Rows that can be read in any order: `sparseoco.store.corpus.Corpus`, `MatrixRows`."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""

    def gather(self, rows: NDArray[np.int64]) -> RowBatch:
        """The rows with these numbers, in this order."""

    def buffered(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> "RowSource":
        """A source of the rows in these increasing ranges: in memory, or this one where rows can be read at random."""


class DerivedRows:
    """Rows that are made of those of another source as they are read; subclasses define `gather`."""

    def __init__(self, source: RowSource) -> None:
        self._source = source

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self._source.n_rows

    def buffered(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> Self:
        """See `RowSource.buffered`."""
        own = copy.copy(self)
        own._source = self._source.buffered(starts, stops)
        return own


class MatrixRows:
    """The rows of a SciPy CSR matrix, their labels and, unless all are 1, their weights."""

    def __init__(self, matrix: Any, labels: NDArray[Any], weights: NDArray[Any] | None = None) -> None:
        self._matrix, self._labels, self._weights = matrix, labels, weights

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self._labels)

    def gather(self, rows: NDArray[np.int64]) -> RowBatch:
        """The rows with these numbers, in this order; without a copy where they are adjacent."""
        if rows.size and np.array_equal(rows, np.arange(rows[0], rows[0] + rows.size)):
            first, stop = int(rows[0]), int(rows[-1]) + 1
            indptr = self._matrix.indptr[first : stop + 1]
            entries = slice(int(indptr[0]), int(indptr[-1]))
            weights = None if self._weights is None else self._weights[first:stop]
            arrays = self._matrix.indices[entries], self._matrix.data[entries], self._labels[first:stop]
            return RowBatch(indptr - indptr[0], *arrays, weights)
        part = self._matrix[rows]
        weights = None if self._weights is None else self._weights[rows]
        return RowBatch(part.indptr, part.indices, part.data, self._labels[rows], weights)

    def buffered(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> "MatrixRows":
        """See `RowSource.buffered`."""
        return self


class StreamLearner(Protocol):
    """What learns from a stream: `Learner`, `Mixture`."""

    def learn_rows(self, indptr: Any, indices: Any, values: Any, labels: Any, weights: Any = None) -> None:
        """Learn rows in order."""


def stream(
    source: RowSource,
    order: Order,
    start: StreamPosition,
    goal: StreamPosition,
    marks: Sequence[int] = (),
    chunk_rows: int | None = None,
) -> Iterator[tuple[StreamPosition, RowBatch]]:
    """Chunks of rows from `start` to `goal`, each with the position after it.

    A chunk ends at each of `marks` (positions in an epoch), at the end of an epoch and after `chunk_rows` at most, by
    default `CHUNK_ROWS`. Where ranges of rows are permuted, it ends at the end of a window, too, whose rows are read
    into memory.
    """
    size = chunk_rows or CHUNK_ROWS
    n_rows, position = source.n_rows, start
    opened, window_end = source, None
    while position < goal:
        epoch, first = position
        if first == n_rows:
            epoch, first = epoch + 1, 0
        last = goal.position if epoch == goal.epoch else n_rows
        stop = min([last, (first // size + 1) * size, *(mark for mark in marks if mark > first)])
        if order.range_rows > 1:
            windows = Windows.of_epoch(order.seed, epoch, n_rows, order.range_rows)
            end = StreamPosition(epoch, windows.end(first))
            if end != window_end:
                opened = source  # so that only one window is in memory
                opened, window_end = source.buffered(*windows.ranges(first)), end
            stop = min(stop, end.position)
        position = StreamPosition(epoch, stop)
        yield position, opened.gather(order.rows(epoch, n_rows, first, stop))


def train_stream(
    learner: StreamLearner,
    source: RowSource,
    order: Order,
    start: StreamPosition,
    goal: StreamPosition,
    marks: Sequence[int] = (),
) -> Iterator[StreamPosition]:
    """Learn from `start` to `goal`; yields the position reached after each chunk of `stream`."""
    for position, rows in stream(source, order, start, goal, marks):
        learner.learn_rows(*rows)
        yield position


def curve_marks(n_rows: int) -> list[int]:
    """Positions in an epoch at which curves are recorded: evenly spaced in the logarithm, the last row included."""
    if n_rows == 0:
        return []
    spread = np.geomspace(min(50, n_rows), n_rows, 20)
    return sorted({round(float(position)) for position in spread} | {n_rows})
