"""The strongest features of a model, and rows with some features only: as on the columns of the matrix."""

import numpy as np
import pytest
import scipy.sparse as sp

from sparseoco.training.stream import FeatureRows, MatrixRows, MeasuredRows, strongest_features

RANDOM = np.random.default_rng(0)
MATRIX = sp.random(30, 12, 0.3, "csr", random_state=1, dtype=np.float32)
LABELS = RANDOM.integers(0, 2, 30)


def test_rows_of_some_features_are_columns_of_the_matrix() -> None:
    features, rows = np.array([1, 4, 5, 11]), RANDOM.permutation(30)[:20]
    source = FeatureRows(MatrixRows(MATRIX, LABELS), features, 12)
    batch = source.gather(rows)
    found = sp.csr_matrix((batch.values, batch.indices, batch.indptr), shape=(20, 4))
    assert (found != MATRIX[rows][:, features]).nnz == 0
    assert source.n_rows == 30
    np.testing.assert_array_equal(batch.labels, LABELS[rows])


def test_squares_are_summed_over_the_rows_that_are_read() -> None:
    source = MeasuredRows(MatrixRows(MATRIX, LABELS), 12)
    for rows in (np.arange(0, 13), np.arange(13, 30)):
        source.gather(rows)
    dense = MATRIX.toarray().astype(float) ** 2
    norms = dense.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(source.squares, (dense / np.where(norms, norms, 1)).sum(axis=0))


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_strongest_have_the_largest_part_in_the_margins(outputs: int) -> None:
    weights, squares = RANDOM.normal(size=(50, outputs)), RANDOM.random(50)
    weights[::7] = 0
    strength = (weights**2).sum(axis=1) * squares
    for at_most in (1, 10, 1000):
        found = strongest_features(weights, squares, at_most)
        assert len(found) == min(at_most, np.count_nonzero(strength))
        assert (np.diff(found) > 0).all()
        assert strength[found].min() >= np.delete(strength, found).max()
    share = strongest_features(weights, squares)
    assert strength[share].sum() >= 0.95 * strength.sum() > strength[share].sum() - strength[share].min()
    assert strongest_features(np.zeros((50, outputs)), squares).size == 0
