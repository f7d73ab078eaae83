"""The order of a stream: as stored, all rows permuted, or ranges of rows permuted in windows, which read sequentially.

The order is one number, ``range_rows``:

- 0: rows as they are stored;
- 1: a permutation of all rows, see `sparseoco.kernels.order.epoch_rows`;
- r > 1: ranges of r adjacent rows are dealt to windows, and the rows of each window are permuted. The ranges are
  cut into as many strata as a window has ranges, each of adjacent ranges; a window takes one random range of every
  stratum. So every window has rows of the whole corpus, also where it is sorted by class, and reads each of its ranges
  at once.

Every order is a pure function of seed, epoch, number of rows and ``range_rows``.
"""

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.compile_cache import compiled
from sparseoco.kernels.order import FOLD_STREAM, epoch_rows, key
from sparseoco.learners.numerics import mix

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


def ordered_rows(
    seed: int, epoch: int, range_rows: int, n_rows: int, start: int, stop: int, fold: int, folds: int
) -> Integers:
    """Row numbers at positions start..stop of an epoch, without those of the held-out fold (−1: no fold)."""
    if range_rows <= 1:
        return epoch_rows(seed, epoch, bool(range_rows), n_rows, start, stop, fold, folds)  # type: ignore[no-any-return]
    windows = Windows.of_epoch(seed, epoch, n_rows, range_rows)
    parts = [np.zeros(0, np.int64)]
    while start < stop:
        end = min(stop, windows.end(start))
        parts.append(windows.rows(start, end))
        start = end
    rows = np.concatenate(parts)
    return rows if fold < 0 else rows[_learned(rows, seed, fold, folds)]


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

    @staticmethod
    @lru_cache(maxsize=8)
    def of_epoch(seed: int, epoch: int, n_rows: int, range_rows: int) -> "Windows":
        """The windows, from a cache."""
        return Windows(seed, epoch, n_rows, range_rows)

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
        rows: Integers = stops[part] - (ends[part] - places)
        return rows

    def _window(self, position: int) -> int:
        return int(np.searchsorted(self._ends, position, side="right"))

    def _bounds(self, ranges: Integers) -> tuple[Integers, Integers]:
        """Starts and stops of ranges, empty for those beyond the last row."""
        starts = np.minimum(ranges * self._range_rows, self._n_rows)
        return starts, np.minimum(starts + self._range_rows, self._n_rows)

    def _permuted(self, number: int, size: int, start: int, stop: int) -> Integers:
        """Entries start..stop of permutation `number` of 0 … size − 1."""
        return epoch_rows(self._seed, number, True, size, start, stop, -1, 1)  # type: ignore[no-any-return]


def _learned_kernel(rows, seed, fold, folds):  # type: ignore[no-untyped-def]
    own = key(seed, FOLD_STREAM, 0)
    out = np.empty(rows.size, np.bool_)
    for i in range(rows.size):
        out[i] = mix(own ^ np.uint64(rows[i])) % np.uint64(folds) != np.uint64(fold)
    return out


_learned = compiled(_learned_kernel, [])
