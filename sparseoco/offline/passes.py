"""Full passes over the rows of a corpus, and those of this process."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import scipy  # loads scipy.optimize and scipy.sparse when they are used
from numpy.typing import NDArray

from sparseoco.kernels.columns import ACCUMULATE, MARGINS, RESPOND_SMOOTHED, RowBatch, loss_kernels, with_intercept
from sparseoco.learners.losses import find_loss
from sparseoco.training.stream import MatrixRows, Order
from sparseoco.training.stream import RowSource as StreamSource

# ----------------------------------------------------------------------------------------------------------------------
# Data stored by columns, for methods that read all examples of one feature at a time.


CHUNK_NONZEROS = 1 << 22  # between two calls of `release`


class ColumnMajor(NamedTuple):
    """A matrix stored by columns, and the labels of its rows.

    indptr  (features + 1,) int64
    rows    (nonzeros,) int32 or int64, increasing within a column
    counts  (nonzeros,) any number type
    labels  (rows,) class indices, or numbers; float64 for kernels
    """

    indptr: NDArray[np.int64]
    rows: NDArray[Any]
    counts: NDArray[Any]
    labels: NDArray[Any]

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self.indptr.size - 1)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.labels.size)


def column_major(X: Any, y: NDArray[Any], *, intercept: bool = False) -> ColumnMajor:
    """A SciPy sparse matrix by columns, rows sorted; with an `intercept` as the last column."""
    csc = (scipy.sparse.hstack([X, np.ones((X.shape[0], 1), X.dtype)]) if intercept else X).tocsc()
    csc.sort_indices()
    counts = csc.data.astype(np.float64, copy=False) if csc.data.itemsize == 8 else csc.data  # no kernels for int64
    return ColumnMajor(csc.indptr.astype(np.int64), csc.indices, counts, np.asarray(y, np.float64))


def for_features(data: ColumnMajor, release: Callable[[], None], kernel: Callable[..., None], *arguments: Any) -> None:
    """Call ``kernel(first, stop, *arguments)`` for all features in order, and `release` every few million nonzeros."""
    first, n = 0, data.n_features
    while first < n:
        end = data.indptr[first] + CHUNK_NONZEROS
        stop = max(first + 1, int(np.searchsorted(data.indptr, end, side="right")) - 1)
        kernel(first, stop, *arguments)
        release()
        first = stop


# ----------------------------------------------------------------------------------------------------------------------
# The full-gradient pass: losses, slopes and the gradient of a linear model over a span of examples, in fixed order.
#
# A span is divided into *leaves*, equal ranges of positions whose number depends on the data only. A leaf is summed row
# by row; leaves are summed in a binary tree of fixed shape. So bits depend neither on which worker computes a leaf nor
# on which columns are computed together, and `LocalPasses` and `offline.cluster.passes.ClusterPasses` agree.
#
# Sample weights ω_i, where the source has them, multiply losses and slopes.
#
# Losses have one margin. Column c has y = +1 for the class ``positive[c]`` and −1 for the others (one-vs-rest);
# ``positive[c]`` = −1 uses the label itself as y (regression).


CHUNK_ROWS = 4096  # read from a source at a time
FEWEST_LEAVES, MOST_LEAVES = 4, 1024
SPREAD = 4  # nonzeros of a leaf per feature, by default

Floats = NDArray[np.float64]


class RowSource(StreamSource, Protocol):
    """Rows with random access: in memory (`Matrix`) or on a worker's disk (`store.corpus.Corpus`)."""

    def rows(self, start: int, stop: int) -> RowBatch:
        """Rows start..stop in document order."""


class Matrix(MatrixRows):
    """A CSR matrix, its labels and, unless all are 1, its sample weights, checked by the caller."""

    def __init__(self, X: Any, y: NDArray[Any], weights: Floats | None = None) -> None:
        # The types of stores, for which kernels are compiled; as those of the row pointers below.
        counts = X if X.dtype in (np.uint16, np.uint32, np.float64) else X.astype(np.float64)
        super().__init__(counts, np.asarray(y, np.float64), weights)

    def gather(self, rows: NDArray[np.int64]) -> RowBatch:
        """See `RowSource.gather`."""
        batch = super().gather(rows)
        return batch._replace(indptr=np.asarray(batch.indptr, np.int64))

    def rows(self, start: int, stop: int) -> RowBatch:
        """See `RowSource.rows`; views."""
        return self.gather(np.arange(start, stop))


class WithIntercept:
    """The rows of a source with the intercept as their last feature, which has this number."""

    def __init__(self, source: RowSource, feature: int) -> None:
        self._source, self._feature = source, feature

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self._source.n_rows

    def buffered(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> StreamSource:
        """See `RowSource.buffered`."""
        source: Any = self._source.buffered(starts, stops)
        return WithIntercept(source, self._feature)

    def rows(self, start: int, stop: int) -> RowBatch:
        """See `RowSource.rows`."""
        return self._extended(self._source.rows(start, stop))

    def gather(self, rows: NDArray[np.int64]) -> RowBatch:
        """See `RowSource.gather`."""
        return self._extended(self._source.gather(rows))

    def _extended(self, batch: RowBatch) -> RowBatch:
        rows = with_intercept(*batch[:3], self._feature)
        return batch._replace(indptr=rows.indptr, indices=rows.indices, values=rows.values)


class Span(NamedTuple):
    """Positions start..stop of an epoch's stream, as `training.stream.Order.rows` returns them; all rows by default.

    The order is that of (seed, epoch, range_rows), by default document order. Rows of the held-out `fold` of `folds`
    are left out (−1: no fold). ``stop`` = −1 is the end.
    """

    seed: int = 0
    epoch: int = 1
    range_rows: int = 0
    fold: int = -1
    folds: int = 1
    start: int = 0
    stop: int = -1

    def within(self, n_rows: int) -> "Span":
        """The same span with its end filled in."""
        return self._replace(stop=n_rows if self.stop == -1 else self.stop)

    def rows(self, n_rows: int, start: int, stop: int) -> NDArray[np.int64]:
        """Row numbers at positions start..stop of a corpus of `n_rows`, without those of the held-out fold."""
        order = Order(self.seed, self.range_rows, self.fold, self.folds)
        return order.rows(self.epoch, n_rows, start, stop)


WHOLE = Span()


class Shape(NamedTuple):
    """Size of the whole corpus."""

    n_rows: int
    n_features: int
    nonzeros: int

    def with_intercept(self) -> "Shape":
        """The size with one more feature, which every row has."""
        return Shape(self.n_rows, self.n_features + 1, self.nonzeros + self.n_rows)


class PassRequest(NamedTuple):
    """What a pass computes: the loss, the class with y = +1 of every column, and the smoothing of the hinge.

    `positive` (columns,); `width` (columns,) is empty unless the hinge is smoothed (`losses.smoothed_hinge_value`).
    Then `loss_sum` and slopes are those of the smoothed loss and `exact_sum` is that of the hinge; else they are equal.
    """

    loss: str
    positive: tuple[int, ...]
    width: tuple[float, ...] = ()

    def columns(self, first: int, last: int) -> "PassRequest":
        """The same for some of the columns."""
        return self._replace(positive=self.positive[first:last], width=self.width[first:last])


class Partial(NamedTuple):
    """Sums over some rows. `loss_sum` and `exact_sum` (columns,), `gradient` (features, columns)."""

    loss_sum: Floats
    exact_sum: Floats
    gradient: Floats

    def __add__(self, other: Any) -> "Partial":
        return Partial(*(a + b for a, b in zip(self, other, strict=True)))


class PassResult(NamedTuple):
    """Sums as in `Partial`, and the slopes or their files."""

    loss_sum: Floats
    exact_sum: Floats
    gradient: Floats
    slopes: tuple[Any, ...]
    intercepts: Floats | None = None
    """(columns,): the best intercepts at the weights, for passes that fit them."""


class Passes(ABC):
    """Passes over one span of one corpus, the interface solvers use: `LocalPasses`, or those of a cluster.

    With `factors` (features,) the passes are over rows whose values are multiplied by those of their features.
    """

    shape: Shape
    span: Span
    factors: Floats | None = None

    def totals(self, weights: Floats, request: PassRequest) -> PassResult:
        """One pass at `weights` (features, columns)."""
        if self.factors is None:
            return self._totals(weights, request)
        factors = self.factors[:, None]
        result = self._totals(weights * factors, request)
        return result._replace(gradient=result.gradient * factors)

    def squares(self) -> Floats:
        """(features,): Σ_i ω_i·x_{i,j}² over the span."""
        squares = self._squares()
        return squares if self.factors is None else np.asarray(squares * self.factors**2)

    def scaled(self, factors: Floats) -> Self:
        """The same passes with these factors."""
        scaled = copy(self)
        scaled.factors = factors
        return scaled

    @abstractmethod
    def conjugates(self, result: PassResult, request: PassRequest, scale: Floats) -> Floats:
        """(columns,): Σ_i ω_i·ℓ*(scale_c·s_{i,c}/ω_i) over the slopes of a pass, without the term in y for numbers."""

    def drop(self, result: PassResult) -> None:  # noqa: B027
        """Delete the files of a pass, if there are any."""

    @abstractmethod
    def _totals(self, weights: Floats, request: PassRequest) -> PassResult:
        """`totals` without factors."""

    @abstractmethod
    def _squares(self) -> Floats:
        """`squares` without factors."""


class Leaves(NamedTuple):
    """The division of a span into leaves. It depends on the data only.

    A leaf has about `nonzeros` nonzeros, one per feature at least, so that adding its gradient takes no longer than
    computing it; by default `SPREAD` per feature. The methods whose bits depend on it are defined by it.
    """

    span: Span
    shape: Shape
    nonzeros: int | None = None

    def bounds(self) -> list[tuple[int, int]]:
        """The (start, stop) positions of each leaf: 2^k equal ranges, some empty in a tiny corpus."""
        span = self.span.within(self.shape.n_rows)
        size = span.stop - span.start
        n_rows, n_features, nonzeros = self.shape
        each = SPREAD * n_features if self.nonzeros is None else max(self.nonzeros, n_features)
        wanted = nonzeros * size // max(1, n_rows) // each
        count = 1 << (min(max(wanted, FEWEST_LEAVES), MOST_LEAVES).bit_length() - 1)
        return [(span.start + size * i // count, span.start + size * (i + 1) // count) for i in range(count)]


def row_weights(rows: RowBatch) -> Floats:
    """(rows,) float64, the type that kernels are compiled for: the sample weights of rows, 1 where they have none."""
    return np.ones(len(rows.labels)) if rows.weights is None else np.asarray(rows.weights, np.float64)


def respond(request: PassRequest, z: Floats, labels: Floats, weights: Floats, total: Partial) -> Floats:
    """(rows, columns): the slopes of rows at the margins z, times their weights; losses are added to `total`."""
    loss_sum, exact_sum, _ = total
    slopes, positive = np.empty_like(z), np.array(request.positive, np.int64)
    if request.width:
        RESPOND_SMOOTHED(z, labels, weights, positive, np.array(request.width), slopes, loss_sum, exact_sum)
    else:
        loss_kernels(find_loss(request.loss)).respond(z, labels, weights, positive, slopes, loss_sum)
        exact_sum[:] = loss_sum
    return slopes


def leaf_conjugates(loss: str, slopes: Floats, weights: Floats | None, scale: Floats) -> Floats:
    """(columns,): Σ_i ω_i·ℓ*(scale_c·s_{i,c}/ω_i) of one leaf, row by row."""
    out = np.zeros(scale.size)
    weights = np.ones(len(slopes)) if weights is None else weights
    loss_kernels(find_loss(loss)).conjugate_sums(slopes, weights, scale, out)
    return out


def tree_sum(leaf: Any, first: int, last: int) -> Any:
    """leaf(first) + … + leaf(last − 1) as a balanced tree, holding one partial sum per level."""
    if last - first == 1:
        return leaf(first)
    middle = (first + last) // 2
    return tree_sum(leaf, first, middle) + tree_sum(leaf, middle, last)


Bounds = tuple[int, int]
"""The start and the end of a leaf."""
Keep = Callable[[int, Floats], object]
"""Gets the number of a leaf and its slopes."""


class SpanRows(NamedTuple):
    """The rows of a source at the positions of a span."""

    source: RowSource
    span: Span = WHOLE

    def chunks(self, start: int, stop: int) -> Iterator[RowBatch]:
        """The rows at positions start..stop, `CHUNK_ROWS` positions at a time."""
        for first in range(start, stop, CHUNK_ROWS):
            last = min(first + CHUNK_ROWS, stop)
            if not self.span.range_rows and self.span.fold < 0:  # a range of rows in document order
                yield self.source.rows(first, last)
            else:
                yield self.source.gather(self.span.rows(self.source.n_rows, first, last))

    def totals(self, bounds: Bounds, weights: Floats, request: PassRequest) -> tuple[Partial, Floats]:
        """(sums, slopes (rows, columns)) of one leaf, summed row by row."""
        columns = weights.shape[1]
        total = Partial(np.zeros(columns), np.zeros(columns), np.zeros(weights.shape))
        slopes = [np.empty((0, columns))]
        for rows in self.chunks(*bounds):
            z, labels = np.empty((len(rows.labels), columns)), np.asarray(rows.labels, np.float64)
            MARGINS(*rows[:3], weights, z)
            slopes.append(respond(request, z, labels, row_weights(rows), total))
            ACCUMULATE(*rows[:3], slopes[-1], total.gradient)
        return total, np.concatenate(slopes)

    def squares(self, bounds: Bounds, n_features: int) -> Partial:
        """Σ_i ω_i·x_{i,j}² of one leaf, row by row, in place of the gradient of one column."""
        squares = np.zeros((n_features, 1))
        for rows in self.chunks(*bounds):
            if rows.weights is not None:
                rows = rows._replace(values=rows.values * np.repeat(np.sqrt(row_weights(rows)), np.diff(rows.indptr)))
            np.add.at(squares[:, 0], rows.indices, rows.values.astype(np.float64) ** 2)
        return Partial(np.zeros(1), np.zeros(1), squares)

    def sample_weights(self, bounds: Bounds) -> Floats | None:
        """(rows,): the sample weights of the positions of one leaf; None if all are 1."""
        if self.source.rows(0, 0).weights is None:
            return None
        return np.concatenate([np.zeros(0), *(row_weights(rows) for rows in self.chunks(*bounds))])

    def sum(self, leaves: Sequence[Bounds], weights: Floats, request: PassRequest | None, keep: Keep) -> Partial:
        """The sums of leaves at weights (features, columns); of squares if `request` is None."""

        def leaf(i: int) -> Partial:
            if request is None:
                return self.squares(leaves[i], len(weights))
            total, slopes = self.totals(leaves[i], weights, request)
            keep(i, slopes)
            return total

        return tree_sum(leaf, 0, len(leaves))  # type: ignore[no-any-return]


class LocalPasses(Passes):
    """Passes in this process; slopes stay in memory."""

    def __init__(self, source: RowSource, shape: Shape, span: Span = WHOLE) -> None:
        self.source, self.shape = source, shape
        self.span = span.within(shape.n_rows)
        self._rows = SpanRows(source, self.span)
        self._bounds = Leaves(self.span, shape).bounds()

    @classmethod
    def of(cls, X: Any, y: NDArray[Any], weights: Floats | None = None, *, intercept: bool = False) -> "LocalPasses":
        """Passes over a checked CSR matrix, its labels and sample weights; an `intercept` is the last feature."""
        source: RowSource = Matrix(X, y, weights)
        shape = Shape(int(X.shape[0]), int(X.shape[1]), int(X.nnz))
        if intercept:
            source, shape = WithIntercept(source, shape.n_features), shape.with_intercept()
        return cls(source, shape)

    def _totals(self, weights: Floats, request: PassRequest) -> PassResult:
        slopes: list[Floats] = []
        exact = np.ascontiguousarray(weights, np.float64)
        total = self._rows.sum(self._bounds, exact, request, lambda _, own: slopes.append(own))
        return PassResult(*total, tuple(slopes))

    def _squares(self) -> Floats:
        zeros = np.zeros((self.shape.n_features, 1))
        return np.asarray(self._rows.sum(self._bounds, zeros, None, lambda *_: None).gradient[:, 0])

    def slopes(self, result: PassResult) -> Floats:
        """(rows, columns): ω·ℓ'(z) of every row of the span, in the order of the span."""
        return np.concatenate(result.slopes)

    def conjugates(self, result: PassResult, request: PassRequest, scale: Floats) -> Floats:
        """See `Passes.conjugates`."""
        leaves = zip(result.slopes, self._leaf_weights, strict=True)
        parts = [leaf_conjugates(request.loss, slopes, weights, scale) for slopes, weights in leaves]
        return np.asarray(tree_sum(parts.__getitem__, 0, len(parts)))

    @cached_property
    def _leaf_weights(self) -> list[Floats | None]:
        return [self._rows.sample_weights(bounds) for bounds in self._bounds]

    def sample_weights(self) -> Floats | None:
        """(rows,): the weights of the span's rows; None if all are 1."""
        return self._rows.sample_weights((self.span.start, self.span.stop))

    def columns(self) -> ColumnMajor:
        """The span by columns, a copy."""
        rows = self.source.gather(self.span.rows(self.source.n_rows, self.span.start, self.span.stop))
        shape = (len(rows.labels), self.shape.n_features)
        matrix = scipy.sparse.csr_matrix((rows.values, rows.indices, rows.indptr), shape=shape, copy=False)
        data = column_major(matrix, rows.labels)
        if self.factors is None:
            return data
        return data._replace(counts=data.counts * np.repeat(self.factors, np.diff(data.indptr)))


# ----------------------------------------------------------------------------------------------------------------------
# Passes over rows in this process that fit an intercept.
#
# The intercept b has no penalty, so that the objective of the weights is min_b Σ_j ω_j·ℓ(⟨a_j, x⟩ + b, y_j) + h(x). A
# pass finds b by its stationary condition Σ_j θ_j = 0, θ_j = ω_j·ℓ'(z_j, y_j): exactly the constraint that an
# unpenalised coordinate adds to the dual, so that the slopes of a pass, scaled or not, are feasible up to rounding.


FARTHEST = 1e9


class InterceptPasses(LocalPasses):
    """Passes over a checked CSR matrix, all of it one leaf.

    If all labels are of one class, some losses are least at an infinite intercept: then it is one at which they are 0.
    """

    def __init__(self, X: Any, y: NDArray[Any], weights: Floats | None) -> None:
        super().__init__(Matrix(X, y, weights), Shape(int(X.shape[0]), int(X.shape[1]), int(X.nnz)))
        self._bounds = [(0, self.shape.n_rows)]
        self._batch = self.source.rows(0, self.shape.n_rows)
        self._weights = row_weights(self._batch)

    def _totals(self, weights: Floats, request: PassRequest) -> PassResult:
        """The losses and slopes are at the best intercepts."""
        z = np.empty((self.shape.n_rows, weights.shape[1]))
        MARGINS(*self._batch[:3], np.ascontiguousarray(weights, np.float64), z)
        columns = range(z.shape[1])
        intercepts = np.array([self._best_intercept(z[:, c : c + 1], request.columns(c, c + 1)) for c in columns])
        total = Partial(np.zeros(len(columns)), np.zeros(len(columns)), np.zeros(weights.shape))
        slopes = respond(request, z + intercepts, self._batch.labels, self._weights, total)
        ACCUMULATE(*self._batch[:3], slopes, total.gradient)
        return PassResult(*total, (slopes,), intercepts)

    def _best_intercept(self, z: Floats, request: PassRequest) -> float:
        """The root of Σ_j ω_j·ℓ'(z_j + b, y_j), which increases with b."""
        sums = Partial(np.zeros(1), np.zeros(1), np.zeros((0, 1)))

        def total(b: float) -> float:
            return float(respond(request, z + b, self._batch.labels, self._weights, sums).sum())

        low, high = -1.0, 1.0
        while total(low) > 0.0 and low > -FARTHEST:
            low *= 2.0
        while total(high) < 0.0 and high < FARTHEST:
            high *= 2.0
        if total(high) <= 0.0:
            return high
        if total(low) >= 0.0:
            return low
        return float(scipy.optimize.brentq(total, low, high, xtol=1e-15, rtol=1e-15))


def local_passes(X: Any, y: NDArray[Any], weights: Floats | None, *, fit_intercept: bool) -> LocalPasses:
    """Passes over a checked matrix in this process."""
    return InterceptPasses(X, y, weights) if fit_intercept else LocalPasses.of(X, y, weights)
