"""Averages of parts: spans that cover an epoch, and the weighted mean by the rows that have a feature."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import random_array

from sparseoco.training.folds import CountedRows, PartWeights, WeightAverage, part_span
from sparseoco.training.stream import MatrixRows


@given(n_rows=st.integers(0, 10**12), parts=st.integers(1, 50))
def test_parts_cover_an_epoch_and_differ_by_one_row_at_most(n_rows: int, parts: int) -> None:
    spans = [part_span(n_rows, parts, part) for part in range(parts)]
    assert (spans[0][0], spans[-1][1]) == (0, n_rows)
    assert all(before[1] == after[0] for before, after in pairwise(spans))
    sizes = [stop - start for start, stop in spans]
    assert max(sizes) - min(sizes) <= 1


@given(seed=st.integers(0, 1000), parts=st.integers(1, 6))
def test_a_weight_is_the_mean_over_the_rows_that_have_its_feature(seed: int, parts: int) -> None:
    random = np.random.default_rng(seed)
    counts, weights = random.integers(0, 3, (parts, 9)), random.normal(size=(parts, 9, 2)).astype(np.float32)
    before = random.normal(size=(9, 2)).astype(np.float32)
    average = WeightAverage(before)
    for n, w in zip(counts, weights, strict=True):
        seen = np.flatnonzero(n)
        average.add(PartWeights(seen, n[seen], w[seen]))
    found = average.weights()
    assert found.dtype == np.float32
    for j in range(9):
        if counts[:, j].any():
            np.testing.assert_allclose(
                found[j], np.average(weights[:, j], axis=0, weights=counts[:, j]), rtol=1e-6, atol=1e-7
            )
        else:
            assert np.array_equal(found[j], before[j])


def test_rows_are_counted_by_feature() -> None:
    X = random_array((50, 20), density=0.2, rng=np.random.default_rng(0), format="csr")
    counted = CountedRows(MatrixRows(X, np.zeros(50)), 20)
    counted.gather(np.arange(30))
    counted.buffered(np.array([40]), np.array([45])).gather(np.arange(40, 45))
    assert np.array_equal(counted.counts, (X[np.r_[:30, 40:45]] != 0).sum(axis=0))
