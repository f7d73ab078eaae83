"""`learn_rows(…, margins_out=…)` records the margins that predicted each row, and changes nothing else."""

import numpy as np
import pytest
import scipy.sparse as sp

from sparseoco.training.learner import Learner

pytestmark = pytest.mark.formulas
ROWS, FEATURES = 60, 20


def data(classes: int) -> tuple[sp.csr_matrix, np.ndarray]:
    rng = np.random.default_rng(5)
    X = rng.integers(1, 4, (ROWS, FEATURES)) * (rng.random((ROWS, FEATURES)) < 0.2)
    return sp.csr_matrix(X), rng.integers(0, classes, ROWS)


@pytest.mark.parametrize(
    ("algorithm", "classes", "grid", "objective"),
    [
        ("cl-fobos", 2, {"lam": [0.0, 1e-3, 0.1]}, False),
        ("l-fobos", 2, {"lam": [1e-3, 0.1], "K": [7]}, True),  # whose stream is cut where all coordinates move
        ("cao-ftrl", 2, {"predict_gradient": ["none", "last"], "R": [0.1, 1.0]}, False),  # two blocks
        ("rda", 3, {"gamma": [0.3, 1.0]}, False),
        ("rda", 2, [{}], False),  # one column alone
    ],
)
def test_margins_are_recorded_before_each_update(algorithm, classes, grid, objective) -> None:
    X, y = data(classes)
    y = y.astype(np.float64)
    learner = Learner(algorithm, grid=grid, n_features=FEATURES, n_classes=classes, objective=objective)
    silent = Learner(algorithm, grid=grid, n_features=FEATURES, n_classes=classes, objective=objective)
    margins = np.full((ROWS, len(learner.configurations), learner.n_outputs), np.nan)
    learner.learn_rows(X.indptr, X.indices, X.data, y, margins_out=margins)
    for i in range(ROWS):
        row = X[i]
        np.testing.assert_array_equal(margins[i], silent.margins(row.indptr, row.indices, row.data)[0])
        silent.learn_rows(row.indptr, row.indices, row.data, y[i : i + 1])
    np.testing.assert_array_equal(learner.weights(), silent.weights())
    np.testing.assert_array_equal(learner.progress.loss_sum, silent.progress.loss_sum)
