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


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("algorithm", ["cl-fobos", "subgradient", "adagrad"])
def test_margins_are_of_the_current_weights(algorithm: str, dtype: str) -> None:
    """Reading margins keeps the weights, and whatever changes the state drops them."""
    X, y = data(2)
    arguments = {"n_features": FEATURES, "dtype": dtype, "intercept": True}
    learner, silent = (Learner(algorithm, **arguments) for _ in range(2))

    def check() -> None:
        z = learner.decision_function(X)[:, 0, 0]
        np.testing.assert_allclose(z, X @ silent.weights()[:, 0] + silent.intercepts()[0, 0], rtol=1e-5, atol=1e-6)
        assert learner.weights().tobytes() == silent.weights().tobytes()
        assert learner.intercepts().tobytes() == silent.intercepts().tobytes()

    check()
    for each in (learner, silent):
        each.start_from(np.linspace(-0.1, 0.1, FEATURES)[:, None], 3, [0.05])
    check()
    for each in (learner, silent):
        each.partial_fit(X, y)
    check()
