"""The optimum with sample weights and an intercept: against scikit-learn, and by its certificate."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

from sparseoco import offline_optimum
from tests.support.errors import raises_code

pytestmark = pytest.mark.formulas


def data(classes: int = 2) -> tuple[sp.csr_matrix, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(90, 8)) * (rng.random((90, 8)) < 0.6)
    y = (X[:, :classes] + rng.normal(1.0, 1.0, (90, classes))).argmax(axis=1) if classes > 2 else X[:, 0] > -0.4
    return sp.csr_matrix(X), np.asarray(y, int), rng.choice([0.0, 0.5, 1.0, 3.0], 90)


@pytest.mark.parametrize("penalty", ["l1", "l2", "elastic_net"])
@pytest.mark.parametrize("weighted", [False, True])
def test_logistic_regression(penalty: str, weighted: bool) -> None:
    X, y, weights = data()
    alpha, own = 1.7, weights if weighted else None
    arguments = {"alpha": alpha, "penalty": penalty, "l1_ratio": 0.3, "tol": 1e-12, "fit_intercept": True}
    found = offline_optimum(X, y, sample_weight=own, **arguments)
    ratio = {"l1": 1.0, "l2": 0.0, "elastic_net": 0.3}[penalty]
    peer = LogisticRegression(C=1 / alpha, l1_ratio=ratio, solver="saga", tol=1e-12, max_iter=100_000)
    peer.fit(X, y, sample_weight=own)
    np.testing.assert_allclose(found.weights, peer.coef_[0], atol=1e-5)
    assert found.intercept == pytest.approx(peer.intercept_[0], abs=1e-5)
    assert found.converged
    assert found.gap <= 1e-9


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge", "hinge", "squared"])
def test_no_other_point_is_lower(loss: str) -> None:
    """The dual is a bound: of points around the optimum, intercepts included, none has a lower objective."""
    X, y, weights = data()
    y = y * 2.0 - 1.0
    arguments = {"loss": loss, "alpha": 0.8, "sample_weight": weights, "fit_intercept": True}
    found = offline_optimum(X, y, tol=1e-5 if loss == "hinge" else 1e-9, **arguments)
    values = {
        "logistic": lambda z: np.logaddexp(0, -y * z),
        "squared_hinge": lambda z: np.maximum(0, 1 - y * z) ** 2,
        "hinge": lambda z: np.maximum(0, 1 - y * z),
        "squared": lambda z: (z - y) ** 2 / 2,
    }[loss]

    def objective(w: np.ndarray, b: float) -> float:
        return float(weights @ values(X @ w + b) + 0.8 * np.abs(w).sum())

    assert found.objective == pytest.approx(objective(found.weights, found.intercept), rel=1e-9)
    assert found.converged
    rng = np.random.default_rng(0)
    for size in np.repeat([1.0, 0.1, 0.01, 1e-3], 20):
        w, b = found.weights + size * rng.normal(size=8), found.intercept + size * rng.normal()
        assert objective(w, b) >= found.dual


def test_whole_weights_are_repeated_rows_and_classes_are_apart() -> None:
    X, y, weights = data(3)
    weights = np.ceil(weights).astype(int)
    arguments = {"alpha": [2.0, 0.5], "n_classes": 3, "tol": 1e-10, "fit_intercept": True}
    found = offline_optimum(X, y, sample_weight=weights, **arguments)
    many = np.repeat(np.arange(90), weights)
    repeated = offline_optimum(X[many], y[many], **arguments)
    np.testing.assert_allclose(found.weights, repeated.weights, atol=1e-4)
    np.testing.assert_allclose(found.objective, repeated.objective, rtol=1e-9)
    assert found.intercept.shape == (2, 3)
    plain = offline_optimum(X, y, sample_weight=weights, **arguments | {"fit_intercept": False})
    assert not plain.intercept.any()
    assert (found.objective <= plain.objective).all()


def test_one_class_has_no_best_intercept() -> None:
    X, _, _ = data()
    with raises_code("one-class"):
        offline_optimum(X, np.ones(90), fit_intercept=True)
    with raises_code("invalid-sample-weights", "row 0"):
        offline_optimum(X, np.ones(90), sample_weight=-np.ones(90))
