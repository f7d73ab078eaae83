"""Data stored by columns, for methods that read all examples of one feature at a time."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import hstack

CHUNK_NONZEROS = 1 << 22  # between two calls of `release`


class ColumnMajor(NamedTuple):
    """A matrix stored by columns, and the labels of its rows.

    indptr  (features + 1,) int64
    rows    (nonzeros,) int32 or int64, increasing within a column
    counts  (nonzeros,) any number type
    labels  (rows,) class indices, or numbers
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
    csc = (hstack([X, np.ones((X.shape[0], 1), X.dtype)]) if intercept else X).tocsc()
    csc.sort_indices()
    return ColumnMajor(csc.indptr.astype(np.int64), csc.indices, csc.data, y)


def for_features(data: ColumnMajor, release: Callable[[], None], kernel: Callable[..., None], *arguments: Any) -> None:
    """Call ``kernel(first, stop, *arguments)`` for all features in order, and `release` every few million nonzeros."""
    first, n = 0, data.n_features
    while first < n:
        end = data.indptr[first] + CHUNK_NONZEROS
        stop = max(first + 1, int(np.searchsorted(data.indptr, end, side="right")) - 1)
        kernel(first, stop, *arguments)
        release()
        first = stop


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A read-only view, the type of memory-mapped columns, so that kernels are compiled once."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
