"""Orders of a stream: permutations that any cut gives alike, and that read ranges of rows at once."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import random_array

from sparseoco.kernels.columns import RowBatch
from sparseoco.kernels.order import epoch_rows, fold_rows
from sparseoco.training.stream import (
    BLOCKS_FROM,
    START,
    WINDOW_RANGES,
    ClassWeighted,
    FeatureRows,
    MatrixRows,
    MeasuredRows,
    Order,
    RowSource,
    StreamPosition,
    Windows,
    order_name,
    ordered_rows,
    range_rows_of,
    stream,
)

ROWS = 1000


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**63 - 1),
    n_rows=st.integers(1, 3000),
    range_rows=st.integers(2, 40),
    cuts=st.lists(st.integers(0, 3000), max_size=4),
    fold=st.integers(-1, 2),
)
def test_any_cut_gives_the_same_permutation_of_the_learned_rows(
    seed: int, n_rows: int, range_rows: int, cuts: list[int], fold: int
) -> None:
    edges = [0, *sorted(min(cut, n_rows) for cut in cuts), n_rows]
    parts = [ordered_rows(seed, 2, range_rows, n_rows, a, b, fold, 3) for a, b in itertools.pairwise(edges)]
    rows = np.concatenate(parts)
    assert np.array_equal(rows, ordered_rows(seed, 2, range_rows, n_rows, 0, n_rows, fold, 3))
    held_out = fold_rows(seed, 0, n_rows, fold, 3) if fold >= 0 else np.zeros(0, np.int64)
    assert np.array_equal(np.sort(np.concatenate([rows, held_out])), np.arange(n_rows))


@settings(deadline=None)
@given(n_rows=st.integers(1, 5000), range_rows=st.integers(2, 30), seed=st.integers(0, 100))
def test_a_window_is_the_rows_of_its_ranges(n_rows: int, range_rows: int, seed: int) -> None:
    windows, position, read = Windows(seed, 1, n_rows, range_rows), 0, []
    while position < n_rows:
        starts, stops = windows.ranges(position)
        own = np.concatenate([np.arange(a, b) for a, b in zip(starts, stops, strict=True)])
        assert starts.size <= WINDOW_RANGES
        assert (starts % range_rows == 0).all()
        assert (stops[:-1] <= starts[1:]).all()
        assert np.array_equal(np.sort(windows.rows(position, windows.end(position))), own)
        read.append(own)
        position = windows.end(position)
    assert np.array_equal(np.sort(np.concatenate(read)), np.arange(n_rows))


def test_every_window_has_rows_of_the_whole_corpus() -> None:
    n_rows, range_rows = 100_000, 50  # 2,000 ranges, 63 windows
    windows, position = Windows(3, 1, n_rows, range_rows), 0
    while position < n_rows:
        starts, _ = windows.ranges(position)
        assert np.diff(np.concatenate([[0], starts, [n_rows]])).max() <= 2 * n_rows / (WINDOW_RANGES - 1)
        position = windows.end(position)


def test_epochs_and_seeds_give_unrelated_orders() -> None:
    orders = [ordered_rows(seed, epoch, 4, 20_000, 0, 20_000, -1, 1) for seed in (0, 1) for epoch in (1, 2)]
    for first, second in itertools.combinations([*orders, np.arange(20_000)], 2):
        assert abs(np.corrcoef(first, second)[0, 1]) < 0.04  # 5.6 standard deviations


def test_orders_of_rows_and_none_are_those_of_the_kernel() -> None:
    assert np.array_equal(ordered_rows(5, 2, 1, 99, 3, 80, 1, 4), epoch_rows(5, 2, True, 99, 3, 80, 1, 4))
    assert np.array_equal(ordered_rows(5, 2, 0, 99, 3, 80, -1, 1), np.arange(3, 80))


def test_the_default_depends_on_the_size_of_the_data_only() -> None:
    assert [range_rows_of(name, ROWS, 10) for name in ("none", False, "rows", "auto", True)] == [0, 0, 1, 1, 1]
    assert range_rows_of("auto", BLOCKS_FROM - 1, 10) == 1
    for name in ("auto", True, "blocks"):
        assert range_rows_of(name, BLOCKS_FROM, 100 * BLOCKS_FROM) == 1967  # of 196,608 nonzeros
    assert range_rows_of("blocks", ROWS, 10**9) == 2
    assert [order_name(number) for number in (0, 1, 2, 1967)] == ["none", "rows", "blocks", "blocks"]


class Buffered(MatrixRows):
    """Rows that are only read in the ranges that are in memory."""

    def __init__(self, *arrays: Any) -> None:
        super().__init__(*arrays)
        self.reads: list[list[tuple[int, int]]] = []
        self.allowed = np.zeros(0, np.int64)

    def buffered(self, starts: np.ndarray, stops: np.ndarray) -> "Buffered":
        self.reads.append(list(zip(starts.tolist(), stops.tolist(), strict=True)))
        self.allowed = np.concatenate([np.arange(a, b) for a, b in self.reads[-1]])
        return self

    def gather(self, rows: np.ndarray) -> RowBatch:
        assert np.isin(rows, self.allowed).all()
        return super().gather(rows)


@pytest.mark.parametrize("chunk", [None, 7])
def test_a_stream_reads_every_range_once(chunk: int | None) -> None:
    X = random_array((ROWS, 30), density=0.2, rng=np.random.default_rng(1), format="csr")
    y = np.arange(ROWS) % 2
    order, end, rows = Order(4, 6, 1, 3), StreamPosition(2, ROWS), Buffered(X, y)
    source: RowSource = FeatureRows(MeasuredRows(ClassWeighted(rows, (2.0, 1.0)), 30), np.arange(5), 30)
    parts = [batch for _, batch in stream(source, order, START, end, (10, 400), chunk)]
    expected = np.concatenate([order.rows(epoch, ROWS, 0, ROWS) for epoch in (1, 2)])
    assert np.array_equal(np.concatenate([part.labels for part in parts]), y[expected])
    assert np.array_equal(np.concatenate([part.values for part in parts]), X[expected][:, :5].data)
    for epoch in (rows.reads[: len(rows.reads) // 2], rows.reads[len(rows.reads) // 2 :]):
        bounds = sorted(itertools.chain.from_iterable(epoch))
        assert bounds == [(first, min(first + 6, ROWS)) for first in range(0, ROWS, 6)]


def test_a_stream_that_resumes_in_a_window_continues_as_if_it_had_not_stopped() -> None:
    source, order = MatrixRows(random_array((ROWS, 3), format="csr"), np.arange(ROWS)), Order(4, 3)
    whole = [label for _, rows in stream(source, order, START, StreamPosition(1, ROWS)) for label in rows.labels]
    stop = StreamPosition(1, 333)
    parts = [
        label
        for bounds in ((START, stop), (stop, StreamPosition(1, ROWS)))
        for _, rows in stream(source, order, *bounds)
        for label in rows.labels
    ]
    assert parts == whole
