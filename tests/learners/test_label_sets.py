"""Rows with any number of labels: the weights of one binary learner per class, bit for bit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from sparseoco.training.learner import Learner
from sparseoco.training.mixture import Mixture
from tests.support.errors import raises_code

pytestmark = pytest.mark.formulas
ROWS, FEATURES, CLASSES = 120, 40, 3
CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("adagrad", "logistic", {"eta": [0.3, 3.0], "lam": 1e-3}),
    ("cl-fobos", "hinge", {"eta0": [0.1, 1.0], "lam": 1e-2}),
    ("passive-aggressive", "hinge", {"C": [0.1, 1.0]}),
    ("arow", "hinge", {}),
]


@pytest.fixture(scope="module")
def rows() -> tuple[sp.csr_matrix, np.ndarray, np.ndarray]:
    random = np.random.default_rng(2)
    X = sp.random(ROWS, FEATURES, 0.15, "csr", np.float32, random, lambda n: random.integers(1, 4, n))
    truth = (X @ random.normal(size=(FEATURES, CLASSES)) > 1.0).astype(np.int64)
    return X, truth, random.integers(0, 3, ROWS).astype(np.float64)


@pytest.mark.parametrize(("algorithm", "loss", "grid"), CASES, ids=[case[0] for case in CASES])
@pytest.mark.parametrize("classes", [2, CLASSES])
def test_equal_to_a_learner_per_class(
    algorithm: str, loss: str, grid: dict[str, Any], classes: int, rows: tuple[sp.csr_matrix, np.ndarray, np.ndarray]
) -> None:
    X, truth, weights = rows
    truth = truth[:, :classes]
    options: dict[str, Any] = {
        "loss": loss, "grid": grid, "n_features": FEATURES, "dtype": "float32", "intercept": True,
    }  # fmt: skip
    together = Learner(algorithm, n_classes=classes, multilabel=True, **options)
    together.partial_fit(X, sp.csr_matrix(truth), weights)
    size = len(together.configurations)
    errors, losses = np.zeros((size, ROWS), bool), np.zeros(size)
    for k in range(classes):
        alone = Learner(algorithm, n_classes=2, **options)
        margins = np.empty((ROWS, size, 1), np.float32)
        alone.learn_rows(X.indptr, X.indices, X.data, truth[:, k], weights, margins_out=margins)
        for q in range(size):
            np.testing.assert_array_equal(together.weights_of(q)[:, k], alone.weights_of(q)[:, 0])
        np.testing.assert_array_equal(together.intercepts()[:, k], alone.intercepts()[:, 0])
        errors |= ((margins[:, :, 0] > 0) != (truth[:, k : k + 1] == 1)).T
        losses += alone.progress.loss_sum
    np.testing.assert_array_equal(together.progress.error_count, errors.sum(axis=1))
    np.testing.assert_allclose(together.progress.loss_sum, losses)


def test_forms_of_labels(rows: tuple[sp.csr_matrix, np.ndarray, np.ndarray], tmp_path: Path) -> None:
    """An indicator matrix, sparse or dense, and lists of indices; in parts, saved and loaded."""
    X, truth, _ = rows
    options: dict[str, Any] = {"grid": {"eta": 1.0}, "n_features": FEATURES, "n_classes": CLASSES, "multilabel": True}
    lists = [np.flatnonzero(row).tolist() for row in truth]
    assert [] in lists
    whole = Learner("adagrad", **options).partial_fit(X, truth)
    for labels in (sp.csr_matrix(truth), truth.astype(bool), lists):
        np.testing.assert_array_equal(Learner("adagrad", **options).partial_fit(X, labels).weights(), whole.weights())
    Learner("adagrad", **options).partial_fit(X[:50], lists[:50]).save(tmp_path / "half.npz")
    half = Learner.load(tmp_path / "half.npz").partial_fit(X[50:], lists[50:])
    np.testing.assert_array_equal(half.weights(), whole.weights())
    half.save(tmp_path / "half.npz")
    whole.save(tmp_path / "whole.npz")
    assert (tmp_path / "half.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()


@pytest.mark.parametrize("by", ["error", "loss"])
def test_a_mixture_of_label_sets(by: str, rows: tuple[sp.csr_matrix, np.ndarray, np.ndarray], tmp_path: Path) -> None:
    X, truth, _ = rows
    options: dict[str, Any] = {"n_features": FEATURES, "n_classes": CLASSES, "multilabel": True, "by": by}
    mixture = Mixture({"adagrad": {"eta": [0.03, 0.3, 3.0]}}, **options)
    for _ in range(10):
        mixture.partial_fit(X, truth)
    assert np.mean((mixture.predict(X) != truth).any(axis=1)) < 0.2
    mixture.save(tmp_path)
    np.testing.assert_array_equal(Mixture.load(tmp_path).weights(), mixture.weights())


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"loss": "softmax"}, "unsupported-combination"),
        ({"loss": "squared"}, "unsupported-combination"),
        ({"n_classes": None}, "unsupported-combination"),
        ({"algorithm": "ons", "grid": {}}, "unsupported-combination"),
    ],
)
def test_what_is_refused(options: dict[str, Any], code: str) -> None:
    with raises_code(code):
        Learner(**{"algorithm": "adagrad", "n_features": 3, "n_classes": 3, "multilabel": True} | options)


@pytest.mark.parametrize(
    "labels", [[0, 1], [[0], [3]], [[0], [-1]], ["01", "1"], np.eye(3), np.array([[0, 2, 0], [0, 0, 0]]), [[0]]]
)
def test_labels_that_are_refused(labels: Any) -> None:
    learner = Learner("adagrad", n_features=3, n_classes=3, multilabel=True)
    with raises_code("invalid-labels"):
        learner.partial_fit(sp.csr_matrix(np.ones((2, 3))), labels)
    assert learner.rounds == 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_huber_is_the_loss_of_numbers_with_outliers(dtype: str) -> None:
    """Nearer to the truth than squared where a tenth of the numbers is far off."""
    random = np.random.default_rng(4)
    X = sp.random(600, 10, 0.5, "csr", np.float64, random)
    truth = random.normal(size=10)
    y = X @ truth + np.where(random.random(600) < 0.1, 50.0, 0.0)
    distances = {}
    for loss in ("huber", "squared"):
        learner = Learner(
            "adagrad", loss=loss, grid={"eta": 0.3, "lam": 0.0}, n_features=10, n_classes=None, dtype=dtype
        )
        for _ in range(10):
            learner.partial_fit(X, y)
        distances[loss] = np.linalg.norm(learner.weights()[:, 0] - truth)
        assert not learner.diverged.any()
    assert distances["huber"] < 0.3 * distances["squared"]
