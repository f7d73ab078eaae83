"""The stream of rows that a learner is trained on: order, class weights, pruning."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.kernels.columns import RowBatch
from sparseoco.kernels.order import FOLD_STREAM, epoch_rows, fold_rows, key
from sparseoco.learners.numerics import mix

# ----------------------------------------------------------------------------------------------------------------------
# The order of a stream: as stored, all rows permuted, or ranges of rows permuted in windows, which read sequentially.
#
# The order is one number, ``range_rows``:
#
# - 0: rows as they are stored;
# - 1: a permutation of all rows, see `sparseoco.kernels.order.epoch_rows`;
# - r > 1: ranges of r adjacent rows are dealt to windows, and the rows of each window are permuted. The ranges are
#   cut into as many strata as a window has ranges, each of adjacent ranges; a window takes one random range of every
#   stratum. So every window has rows of the whole corpus, also where it is sorted by class, and reads each of its
#       ranges
#   at once.
#
# Every order is a pure function of seed, epoch, number of rows and ``range_rows``.


RANGE_NONZEROS: Final = 3 << 16
"""Nonzeros of a range, on average: a read of more than 1 MB."""
WINDOW_RANGES: Final = 32
"""Ranges of a window, whose rows are in memory: 6.3 million nonzeros."""
BLOCKS_FROM: Final = 1_000_000
"""Rows from which on ranges are permuted by default."""

Integers = NDArray[np.int64]


def range_rows_of(shuffle: str | bool, n_rows: int, nonzeros: int) -> int:
    """``range_rows`` of a corpus of this size for ``"none"``, ``"rows"``, ``"blocks"`` or ``"auto"``.

    "auto", or True, is "blocks" from `BLOCKS_FROM` rows on and "rows" below; False is "none".
    """
    if shuffle in ("none", False):
        return 0
    if shuffle == "rows" or (shuffle != "blocks" and n_rows < BLOCKS_FROM):
        return 1
    return max(2, -(-RANGE_NONZEROS * n_rows // max(nonzeros, 1)))


def order_name(range_rows: int) -> str:
    """``"none"``, ``"rows"`` or ``"blocks"``."""
    return ("none", "rows", "blocks")[min(range_rows, 2)]


class Windows:
    """The windows of an epoch.

    Parameters
    ----------
    seed, epoch : what the order is drawn by.
    n_rows, range_rows : rows of the corpus, and of each range but the last one.
    """

    def __init__(self, seed: int, epoch: int, n_rows: int, range_rows: int) -> None:
        ranges = -(-n_rows // range_rows)
        self._count = max(1, -(-ranges // WINDOW_RANGES))  # of windows, and of ranges in a stratum
        self._seed = int(np.random.SeedSequence((seed, epoch)).generate_state(1, np.uint64)[0] >> 1)
        self._n_rows, self._range_rows = n_rows, range_rows
        strata = -(-ranges // self._count)
        chosen = [s * self._count + self._permuted(s, self._count, 0, self._count) for s in range(strata)]
        self._ranges = np.array(chosen, np.int64).reshape(strata, self._count)
        starts, stops = self._bounds(self._ranges)
        self._ends: Integers = np.cumsum((stops - starts).sum(axis=0), dtype=np.int64)

    def end(self, position: int) -> int:
        """The end of the window that has this position."""
        return int(self._ends[self._window(position)])

    def ranges(self, position: int) -> tuple[Integers, Integers]:
        """Starts and stops of the ranges of rows in the window that has this position, increasing; none is empty."""
        starts, stops = self._bounds(np.sort(self._ranges[:, self._window(position)]))
        return starts[starts < stops], stops[starts < stops]

    def rows(self, start: int, stop: int) -> Integers:
        """Row numbers at positions start..stop, all in one window."""
        window = self._window(start)
        first = 0 if window == 0 else int(self._ends[window - 1])
        size = int(self._ends[window]) - first
        starts, stops = self.ranges(start)
        places = self._permuted(WINDOW_RANGES + window, size, start - first, stop - first)
        ends: Integers = np.cumsum(stops - starts)
        part = np.searchsorted(ends, places, side="right")
        return np.asarray(stops[part] - (ends[part] - places))

    def _window(self, position: int) -> int:
        return int(np.searchsorted(self._ends, position, side="right"))

    def _bounds(self, ranges: Integers) -> tuple[Integers, Integers]:
        """Starts and stops of ranges, empty for those beyond the last row."""
        starts = np.minimum(ranges * self._range_rows, self._n_rows)
        return starts, np.minimum(starts + self._range_rows, self._n_rows)

    def _permuted(self, number: int, size: int, start: int, stop: int) -> Integers:
        """Entries start..stop of permutation `number` of 0 … size − 1."""
        return epoch_rows(self._seed, number, True, size, start, stop, -1, 1)  # type: ignore[no-any-return]


_windows = lru_cache(maxsize=8)(Windows)


# ----------------------------------------------------------------------------------------------------------------------
# The stream trainer: rows of a corpus, or of a matrix in memory, go to a learner in a reproducible order.
#
# `stream` yields chunks of rows with the position after each; `train` feeds them to a learner. Weights do not
# depend on how a stream is cut into chunks, so a caller may stop after any of them: to measure, to save a checkpoint,
#     to
# decide.


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


class Order(NamedTuple):
    """The order of rows, a new one in each epoch unless it is that of the store; one fold may be held out.

    The fold of a row is a hash of its number, or what `fold_of` says.
    """

    seed: int = 0
    range_rows: int = 0
    """See `sparseoco.training.stream`."""
    fold: int = NO_FOLD
    folds: int = 1
    fold_of: Callable[[Integers], Integers] | None = None
    """The fold that holds out each of these rows; of folds by time −1 for the rows before the first."""
    by_time: bool = False
    """Whether a fold learns from the folds before it only."""

    def rows(self, epoch: int, n_rows: int, start: int, stop: int) -> NDArray[np.int64]:
        """Row numbers at positions start..stop of an epoch, without those of the held-out fold."""
        fold = self.fold if self.fold_of is None else NO_FOLD
        rows: Integers
        learned: NDArray[np.bool_]
        if self.range_rows <= 1:
            rows = epoch_rows(self.seed, epoch, bool(self.range_rows), n_rows, start, stop, fold, self.folds)
        else:
            windows = _windows(self.seed, epoch, n_rows, self.range_rows)
            parts = [np.zeros(0, np.int64)]
            while start < stop:
                end = min(stop, windows.end(start))
                parts.append(windows.rows(start, end))
                start = end
            rows = np.concatenate(parts)
            if fold != NO_FOLD:
                with np.errstate(over="ignore"):  # of hashes
                    hashes = mix(key(self.seed, FOLD_STREAM, 0) ^ rows.astype(np.uint64))
                learned = hashes % np.uint64(self.folds) != np.uint64(fold)
                rows = rows[learned]
        if self.fold_of is None:
            return rows
        folds = self.fold_of(rows)
        learned = folds < self.fold if self.by_time else folds != self.fold
        return rows[learned]

    def held_out(self, start: int, stop: int) -> NDArray[np.int64]:
        """Row numbers of the held-out fold in start..stop, increasing; none without a fold."""
        if self.fold == NO_FOLD:
            return np.zeros(0, np.int64)
        if self.fold_of is not None:
            numbers: Integers = np.arange(start, stop)
            chosen: NDArray[np.bool_] = self.fold_of(numbers) == self.fold
            return numbers[chosen]
        return np.asarray(fold_rows(self.seed, start, stop, self.fold, self.folds))


class RowSource(Protocol):
    """Rows that can be read in any order: `sparseoco.store.corpus.Corpus`, `MatrixRows`."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""

    def gather(self, rows: NDArray[np.int64]) -> RowBatch:
        """The rows with these numbers, in this order."""

    def buffered(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> "RowSource":
        """A source of the rows in these increasing ranges: in memory, or this one where rows can be read at random."""


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


class Passes(NamedTuple):
    """The passes over rows that are learned: from `start` to `goal`, in an order."""

    order: Order
    goal: StreamPosition
    start: StreamPosition = START
    marks: Sequence[int] = ()
    """Positions in an epoch at which there is a state, beside those after each chunk."""
    class_weights: Sequence[float] | None = None
    chunk_rows: int | None = None
    """Rows of a chunk at most, by default `CHUNK_ROWS`."""


def stream(source: RowSource, passes: Passes) -> Iterator[tuple[StreamPosition, RowBatch]]:
    """Chunks of rows of passes, each with the position after it.

    A chunk ends at each mark, at the end of an epoch and after `chunk_rows`. Where ranges of rows are permuted, it ends
    at the end of a window, too, whose rows are read into memory.
    """
    source, order, goal = class_weighted(source, passes.class_weights), passes.order, passes.goal
    size = passes.chunk_rows or CHUNK_ROWS
    n_rows, position = source.n_rows, passes.start
    opened, window_end = source, None
    while position < goal:
        epoch, first = position
        if first == n_rows:
            epoch, first = epoch + 1, 0
        last = goal.position if epoch == goal.epoch else n_rows
        stop = min([last, (first // size + 1) * size, *(mark for mark in passes.marks if mark > first)])
        if order.range_rows > 1:
            windows = _windows(order.seed, epoch, n_rows, order.range_rows)
            end = StreamPosition(epoch, windows.end(first))
            if end != window_end:
                opened = source  # so that only one window is in memory
                opened, window_end = source.buffered(*windows.ranges(first)), end
            stop = min(stop, end.position)
        position = StreamPosition(epoch, stop)
        yield position, opened.gather(order.rows(epoch, n_rows, first, stop))


def train(learn_rows: Callable[..., None], rows: RowSource, passes: Passes) -> Iterator[StreamPosition]:
    """The loop of training: the rows of passes are learned; yields the position of each state, after every chunk.

    `learn_rows` is that of a `Learner`, or of what records its predictions.

    Searches, models, folds, parts, nightly runs and estimators all train by this function. Epoch methods are
    spread over the cluster instead (`sparseoco.offline.cluster`).
    """
    for position, batch in stream(rows, passes):
        learn_rows(*batch)
        yield position


def curve_marks(n_rows: int, number: int = 20) -> list[int]:
    """At most `number` positions in an epoch at which curves are recorded: from 50 on, evenly spaced in the logarithm,
    the last row included."""
    if n_rows == 0:
        return []
    spread = np.geomspace(min(50, n_rows), n_rows, number)
    return sorted({round(float(position)) for position in spread} | {n_rows})


# ----------------------------------------------------------------------------------------------------------------------
# Weights of classes, as factors of the sample weights of their rows.


def balanced_weights(class_rows: Sequence[int]) -> tuple[float, ...]:
    """n/(K·n_k) for each class, of the n rows of the K classes that have any; 1 for others."""
    total, present = sum(class_rows), sum(rows > 0 for rows in class_rows)
    return tuple(total / (present * rows) if rows else 1.0 for rows in class_rows)


def named_class_weights(weights: Mapping[Any, float], classes: Sequence[Any]) -> tuple[float, ...]:
    """The weight of each class by its name, 1 where none is given. Raises `InputError` for an unknown class."""
    for name in weights:
        if name not in classes:
            raise InputError(
                f"class_weight names a class {name!r} that does not exist: there are {', '.join(map(str, classes))}.",
                code="unknown-class",
            )
    return tuple(float(weights.get(name, 1.0)) for name in classes)


class ClassWeighted:
    """The rows of a source with their weights times those of their classes."""

    def __init__(self, source: RowSource, class_weights: Sequence[float]) -> None:
        self._source, self._class_weights = source, class_weights
        self._weights = np.array(class_weights, np.float64)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self._source.n_rows

    def gather(self, rows: NDArray[np.int64]) -> RowBatch:
        """The rows with these numbers, in this order."""
        batch = self._source.gather(rows)
        weights = self._weights[batch.labels.astype(np.int64)]
        return batch._replace(weights=weights if batch.weights is None else weights * batch.weights)

    def rows(self, start: int, stop: int) -> RowBatch:
        """Rows start..stop."""
        return self.gather(np.arange(start, stop))

    def buffered(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> "ClassWeighted":
        """See `RowSource.buffered`."""
        return ClassWeighted(self._source.buffered(starts, stops), self._class_weights)


def class_weighted(source: RowSource, class_weights: Sequence[float] | None) -> RowSource:
    """`ClassWeighted`, or the source itself without class weights."""
    return source if class_weights is None else ClassWeighted(source, class_weights)
