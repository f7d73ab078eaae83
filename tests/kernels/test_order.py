import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparseoco.kernels.order import epoch_rows, fold_rows, gather


@given(seed=st.integers(0, 2**63 - 1), epoch=st.integers(1, 100), n_rows=st.integers(1, 3000))
def test_an_epoch_is_a_permutation(seed: int, epoch: int, n_rows: int) -> None:
    rows = epoch_rows(seed, epoch, True, n_rows, 0, n_rows, -1, 1)
    assert np.array_equal(np.sort(rows), np.arange(n_rows))


@given(cuts=st.lists(st.integers(0, 500), max_size=5), fold=st.integers(-1, 3))
def test_any_cut_of_an_epoch_gives_the_same_stream(cuts: list[int], fold: int) -> None:
    whole = epoch_rows(3, 2, True, 500, 0, 500, fold, 4)
    edges = [0, *sorted(cuts), 500]
    parts = [epoch_rows(3, 2, True, 500, a, b, fold, 4) for a, b in itertools.pairwise(edges)]
    assert np.array_equal(np.concatenate(parts), whole)


def test_folds_part_the_rows_evenly_and_an_epoch_leaves_exactly_its_fold_out() -> None:
    n_rows, folds = 20_000, 5
    held_out = [fold_rows(7, 0, n_rows, fold, folds) for fold in range(folds)]
    assert np.array_equal(np.sort(np.concatenate(held_out)), np.arange(n_rows))
    assert all(abs(rows.size - n_rows / folds) < 5 * np.sqrt(n_rows / folds) for rows in held_out)
    learned = epoch_rows(7, 1, True, n_rows, 0, n_rows, 2, folds)
    assert np.array_equal(np.sort(np.concatenate([learned, held_out[2]])), np.arange(n_rows))


def test_epochs_and_seeds_give_unrelated_orders() -> None:
    orders = [epoch_rows(seed, epoch, True, 5000, 0, 5000, -1, 1) for seed in (0, 1) for epoch in (1, 2)]
    orders.append(np.arange(5000))
    for i, first in enumerate(orders):
        for second in orders[:i]:
            assert abs(np.corrcoef(first, second)[0, 1]) < 0.08  # 5.6 standard deviations


def test_document_order_where_nothing_is_shuffled() -> None:
    assert np.array_equal(epoch_rows(1, 1, False, 10, 2, 7, -1, 1), np.arange(2, 7))


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_gather_takes_the_rows_named(index: type) -> None:
    indptr = np.array([0, 2, 2, 5])
    indices = np.array([1, 4, 0, 2, 3], dtype=index)
    counts = np.array([1, 2, 3, 4, 5], dtype=np.uint16)
    out = gather(np.array([2, 1, 0]), indptr, indices, counts, np.array([7, 8, 9], dtype=np.int32))
    expected = ([0, 3, 3, 5], [0, 2, 3, 1, 4], [3, 4, 5, 1, 2], [9, 8, 7])
    assert [part.tolist() for part in out] == [list(part) for part in expected]
    assert out[1].dtype == index
