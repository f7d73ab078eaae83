"""Rows as the compiled loops take them: in runs of a bounded size, values in the columns' dtype, read-only."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from sparseoco.kernels.intercept import with_intercept
from sparseoco.kernels.structs import Rows

CHUNK = 1 << 18  # nonzeros whose counts are cast to the columns' dtype at a time: a few percent of a cache


def row_chunks(
    indptr: Any, indices: Any, values: Any, dtype: np.dtype[Any], intercept: int | None = None
) -> Iterator[tuple[int, int, Rows]]:
    """Runs of the rows of CSR arrays with at most `CHUNK` nonzeros, or one row: (first, stop, rows).

    With `intercept`, every row has the value 1 at this index too.
    """
    indptr = np.asarray(indptr, np.int64)
    start, last = 0, len(indptr) - 1
    while start < last:
        stop = int(np.searchsorted(indptr, indptr[start] + CHUNK, side="right")) - 1
        stop = min(max(stop, start + 1), last)
        entries = slice(int(indptr[start]), int(indptr[stop]))
        part = np.ascontiguousarray(indices[entries]), np.ascontiguousarray(values[entries], dtype)
        rows = Rows(*map(frozen, (indptr[start : stop + 1], *part)))
        if intercept is not None:
            rows = Rows(*map(frozen, with_intercept(rows, intercept)))
        yield start, stop, rows
        start = stop


def frozen(array: np.ndarray) -> np.ndarray:
    """A read-only view: shards are read-only buffers, and kernels are compiled for one type of array."""
    view = array.view()
    view.flags.writeable = False
    return view
