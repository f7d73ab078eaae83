"""Counts of documents in bins of equal width, which can be merged in any order: the result depends on all values alone.

Probabilities have `PROBABILITY_BINS` bins. Other scores have bins from i · 2^k to (i + 1) · 2^k with the smallest scale
k for which at most `MAX_BINS` bins contain all values: counts at a finer scale are merged to a coarser one exactly.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

PROBABILITY_BINS: Final = 50
MAX_BINS: Final = 256
KEYS: Final = ("source", "prediction", "label", "bin")
SCHEMA: Final = pa.schema(
    {
        "source": pa.int64(),
        "prediction": pa.string(),
        "label": pa.string(),
        "bin": pa.int64(),
        "documents": pa.int64(),
        "kept": pa.int64(),
    }
)
_EDGES: Final = np.arange(PROBABILITY_BINS + 1) / PROBABILITY_BINS
_LARGEST: Final = 2.0**1023  # larger and infinite values count as it: bounds are finite
_PRECISION: Final = 52  # bits of i: floor(value / 2^k) is exact
_SMALLEST: Final = 2.0**-12  # of smaller values alone, bins are no finer


class BinCounts(NamedTuple):
    """Documents of each source, predicted class, label and bin, and those that are kept: a table of `SCHEMA`."""

    scale: int
    table: pa.Table


def bin_numbers(values: NDArray[np.float64], *, probability: bool) -> tuple[int, NDArray[np.int64]]:
    """The scale for some values, at least one, and (rows,) the number i of the bin of each."""
    if probability:
        return 0, np.searchsorted(_EDGES[1:-1], values, side="right").astype(np.int64)
    values = np.clip(values, -_LARGEST, _LARGEST)
    ends = np.array([values.min(), values.max()])
    scale = int(np.frexp(max(np.abs(ends).max(), _SMALLEST))[1]) - _PRECISION
    while np.ptp(_floor(ends, scale)) >= MAX_BINS:
        scale += 1
    return scale, _floor(values, scale)


def bin_bounds(numbers: NDArray[np.int64], scale: int, *, probability: bool) -> tuple[NDArray[np.float64], ...]:
    """(rows,): the lower and upper bounds of bins."""
    if probability:
        return _EDGES[numbers], _EDGES[numbers + 1]
    return np.ldexp(numbers.astype(np.float64), scale), np.ldexp(numbers + 1.0, scale)


def count_bins(
    values: NDArray[np.float64],
    source: int,
    predictions: pa.Array,
    labels: pa.Array,
    kept: NDArray[np.bool_],
    *,
    probability: bool,
) -> BinCounts:
    """The counts of documents, at least one, of one source."""
    scale, numbers = bin_numbers(values, probability=probability)
    ones = np.ones(len(values), np.int64)
    columns = [np.full(len(values), source), predictions, labels, numbers, ones, kept.astype(np.int64)]
    return BinCounts(scale, _added(pa.table([pa.array(column) for column in columns], schema=SCHEMA)))


def merge_counts(counts: Sequence[BinCounts]) -> BinCounts:
    """The sum of counts, at least one."""
    scale = max(found.scale for found in counts)
    table = _added(pa.concat_tables([_coarser(found.table, scale - found.scale) for found in counts]))
    numbers = table["bin"].to_numpy()
    low, high, shift = int(numbers.min()), int(numbers.max()), 0
    while (high >> shift) - (low >> shift) >= MAX_BINS:
        shift += 1
    return BinCounts(scale + shift, _added(_coarser(table, shift)) if shift else table)


class RunningCounts:
    """The sum of any number of counts, of which few are in memory at a time."""

    def __init__(self) -> None:
        self._pending: list[BinCounts] = []

    def add(self, counts: BinCounts) -> None:
        """Add counts to the sum."""
        self._pending.append(counts)
        # The sum is made again when it could at least double: the work is linear in all counts.
        first, *others = self._pending
        if sum(own.table.num_rows for own in others) > first.table.num_rows:
            self._pending = [merge_counts(self._pending)]

    def total(self) -> BinCounts | None:
        """The sum, None if there were no counts."""
        return merge_counts(self._pending) if self._pending else None


def _floor(values: NDArray[np.float64], scale: int) -> NDArray[np.int64]:
    """floor(value / 2^scale), also where the quotient underflows."""
    numbers = np.floor(np.ldexp(values, -scale))
    return np.where(values < 0, np.minimum(numbers, -1), numbers).astype(np.int64)


def _coarser(table: pa.Table, shift: int) -> pa.Table:
    """Counts whose scale is larger by `shift`."""
    if not shift:
        return table
    numbers = table["bin"].to_numpy() >> min(shift, 63)
    return table.set_column(table.column_names.index("bin"), "bin", pa.array(numbers))


def _added(table: pa.Table) -> pa.Table:
    """One row for each of `KEYS`."""
    sums = [(name, "sum") for name in ("documents", "kept")]
    found = table.group_by(list(KEYS), use_threads=False).aggregate(sums)
    return found.rename_columns([name.removesuffix("_sum") for name in found.column_names]).select(SCHEMA.names)
