"""λ_max against scikit-learn, dense formulas and the optimum itself."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from scipy.sparse import csr_matrix
from sklearn.svm import l1_min_c

from sparseoco import offline_optimum
from sparseoco.kernels.columns import RowBatch
from sparseoco.learners.losses import find_loss
from sparseoco.offline.cluster.optimum import lambda_max, lambda_max_of
from sparseoco.offline.passes import Matrix
from sparseoco.store.shards import Store, read_shards
from sparseoco.store.weighting import COUNTS, Weighting
from tests.support.stores import make_store, with_values

RANDOM = np.random.default_rng(0)
X = csr_matrix(RANDOM.poisson(0.4, (90, 25)) * RANDOM.random(25))
LABELS = RANDOM.integers(0, 3, 90)
BINARY = (LABELS > 0).astype(np.int64)


def found(y: np.ndarray, loss: str, **options: bool) -> float:
    outputs = 1 if y.dtype == float or y.max() < 2 else int(y.max()) + 1
    return lambda_max_of(Matrix(X, y), X.shape[1], find_loss(loss), outputs, **options)


@pytest.mark.parametrize(("loss", "theirs"), [("logistic", "log"), ("squared_hinge", "squared_hinge")])
def test_without_intercept_as_scikit_learn(loss: str, theirs: str) -> None:
    expected = 1 / l1_min_c(X, BINARY, loss=theirs, fit_intercept=False) / len(BINARY)
    assert found(BINARY, loss) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge", "hinge"])
def test_all_weights_are_0_from_it_on(loss: str) -> None:
    largest = found(BINARY, loss) * len(BINARY)
    for factor, nonzeros in ((1.001, False), (0.98, True)):
        optimum = offline_optimum(X, BINARY, loss=loss, alpha=factor * largest, tol=1e-9)
        assert np.any(np.abs(optimum.weights) > 1e-9) == nonzeros, factor


def test_the_intercept_is_the_best_one() -> None:
    share = BINARY.mean()
    slopes = {"logistic": share - BINARY, "squared_hinge": 4 * (share - BINARY) / 1.0}
    y = 2 * BINARY - 1
    b = 2 * share - 1
    slopes["squared_hinge"] = -2 * y * (1 - y * b)
    for loss, s in slopes.items():
        assert found(BINARY, loss, intercept=True) == pytest.approx(np.abs(X.T @ s).max() / len(y), rel=1e-9), loss
    numbers = RANDOM.normal(3.0, 1.0, 90)
    expected = np.abs(X.T @ (numbers - numbers.mean())).max() / 90
    assert found(numbers, "squared", intercept=True) == pytest.approx(expected, rel=1e-12)
    assert found(numbers, "squared") == pytest.approx(np.abs(X.T @ numbers).max() / 90, rel=1e-12)


@pytest.mark.parametrize("intercept", [False, True])
def test_many_classes(intercept: bool) -> None:
    truth = (LABELS[:, None] == np.arange(3)).astype(float)
    shares = truth.mean(axis=0)
    one_vs_rest = X.T @ ((shares if intercept else 0.5) - truth)
    softmax = X.T @ ((shares if intercept else 1 / 3) - truth)
    for loss, gradient in (("logistic", one_vs_rest), ("softmax", softmax)):
        assert found(LABELS, loss, intercept=intercept) == pytest.approx(np.abs(gradient).max() / 90, rel=1e-9)
        norms = np.linalg.norm(gradient, axis=1).max() / 90
        assert found(LABELS, loss, intercept=intercept, grouped=True) == pytest.approx(norms, rel=1e-9)


def test_sample_weights() -> None:
    weights = RANDOM.integers(0, 3, 90).astype(np.float64)

    class Weighted(Matrix):
        def gather(self, rows: np.ndarray) -> RowBatch:
            return super().gather(rows)._replace(weights=weights[rows])

    share = (weights * BINARY).sum() / weights.sum()
    expected = np.abs(X.T @ (weights * (share - BINARY))).max() / 90
    source: Any = Weighted(X, BINARY)
    assert lambda_max_of(source, 25, find_loss("logistic"), 1, intercept=True) == pytest.approx(expected, rel=1e-9)


def test_of_a_store(client: Client, tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", rows=150, features=60, classes=3)
    weighting = Weighting(tf="log", idf=True, norm="l2")
    (tmp_path / "values").mkdir()
    values = with_values(store, tmp_path / "values", weighting)
    expected = Matrix(read_shards(values)[0], Store.open(values).labels())
    assert lambda_max(client, Store.open(store), weighting, "logistic") == lambda_max_of(
        expected, 60, find_loss("logistic"), 3
    )
    assert lambda_max(client, Store.open(store), COUNTS, "logistic") != lambda_max_of(
        expected, 60, find_loss("logistic"), 3
    )
    doubled = lambda_max(client, Store.open(store), weighting, "logistic", (2.0, 2.0, 2.0), intercept=True)
    single = lambda_max_of(expected, 60, find_loss("logistic"), 3, intercept=True)
    assert doubled == pytest.approx(2 * single, rel=1e-12)
