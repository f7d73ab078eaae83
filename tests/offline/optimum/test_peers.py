"""The offline optimum agrees with scikit-learn's solvers, to 1e-6 of the objective. Compiled: they take many passes."""

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, Ridge
from sklearn.svm import LinearSVC

from sparseoco import offline_optimum
from tests.offline.optimum.problems import objective, problem

ALPHAS = (0.1, 1.0, 10.0)


@pytest.fixture(scope="module")
def text() -> tuple[Any, np.ndarray]:
    """Counts whose features are as unevenly frequent as words."""
    random = np.random.default_rng(0)
    rows, features = 400, 500
    chance = np.minimum(0.6, 3.0 / np.arange(1, features + 1))
    X = sp.csr_matrix(np.where(random.random((rows, features)) < chance, random.geometric(0.6, (rows, features)), 0))
    truth = random.normal(size=features) * (random.random(features) < 0.1)
    return X, np.where(X @ truth + random.normal(size=rows) > 0, 1.0, -1.0)


def agrees(X: Any, y: np.ndarray, loss: str, rho: float, alpha: float, found: Any, theirs: np.ndarray) -> None:
    ours = objective(loss, X, y, alpha, rho, found.weights)
    peer = objective(loss, X, y, alpha, rho, theirs.ravel())
    assert found.objective == pytest.approx(ours, rel=1e-12)
    assert found.dual <= peer
    assert ours <= peer * (1 + 1e-9) + found.gap
    assert abs(ours - peer) <= 1e-6 * peer


def logistic(X: Any, y: np.ndarray, **settings: Any) -> np.ndarray:
    """scikit-learn's words for a penalty differ from version to version; what it says of them is not our matter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(LogisticRegression(fit_intercept=False, random_state=0, **settings).fit(X, y).coef_)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_l1_logistic_is_liblinears(text: tuple[Any, np.ndarray], alpha: float) -> None:
    X, y = text
    found = offline_optimum(X, y, alpha=alpha, tol=1e-7)
    theirs = logistic(X, y, l1_ratio=1.0, solver="liblinear", C=1 / alpha, tol=1e-10, max_iter=5000)
    agrees(X, y, "logistic", 1.0, alpha, found, theirs)


@pytest.mark.parametrize(("penalty", "rho"), [("l1", 1.0), ("elastic_net", 0.3), ("l2", 0.0)])
def test_logistic_is_sagas(penalty: str, rho: float) -> None:
    X, y = problem("logistic", 200, 40, 0)
    found = offline_optimum(X, y, alpha=2.0, penalty=penalty, l1_ratio=rho, tol=1e-8)
    theirs = logistic(X, y, l1_ratio=rho, solver="saga", C=0.5, tol=1e-9, max_iter=50_000)
    agrees(X, y, "logistic", rho, 2.0, found, theirs)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_l2_logistic_is_lbfgs(text: tuple[Any, np.ndarray], alpha: float) -> None:
    X, y = text
    found = offline_optimum(X, y, alpha=alpha, penalty="l2", tol=1e-7)
    theirs = logistic(X, y, l1_ratio=0.0, solver="lbfgs", C=1 / alpha, tol=1e-8, max_iter=5000)
    agrees(X, y, "logistic", 0.0, alpha, found, theirs)


@pytest.mark.parametrize(("penalty", "rho"), [("l1", 1.0), ("elastic_net", 0.4), ("l2", 0.0)])
def test_squared_is_the_lasso_the_elastic_net_and_ridge(penalty: str, rho: float) -> None:
    X, y = problem("squared", 300, 60, 2)
    alpha, n = 5.0, 300
    found = offline_optimum(X, y, loss="squared", alpha=alpha, penalty=penalty, l1_ratio=rho, tol=1e-9)
    peer: Any = {  # theirs is of the mean, but for Ridge, whose penalty has no half
        "l1": Lasso(alpha / n, fit_intercept=False, tol=1e-12, max_iter=100_000),
        "elastic_net": ElasticNet(alpha / n, l1_ratio=rho, fit_intercept=False, tol=1e-12, max_iter=100_000),
        "l2": Ridge(alpha, fit_intercept=False, tol=1e-12),
    }[penalty]
    agrees(X, y, "squared", rho, alpha, found, peer.fit(X.astype(np.float64), y).coef_)


@pytest.mark.parametrize("alpha", ALPHAS[1:])
def test_squared_hinge_is_linear_svcs(text: tuple[Any, np.ndarray], alpha: float) -> None:
    X, y = text
    found = offline_optimum(X, y, loss="squared_hinge", alpha=alpha, tol=1e-7)
    theirs = LinearSVC(
        penalty="l1", dual=False, loss="squared_hinge", C=1 / alpha, fit_intercept=False, tol=1e-8, max_iter=20_000
    )
    agrees(X, y, "squared_hinge", 1.0, alpha, found, theirs.fit(X, y).coef_)


def test_hinge_is_linear_svcs_within_its_gap() -> None:
    X, y = problem("hinge", 80, 12, 7)
    found = offline_optimum(X, y, loss="hinge", alpha=1.0, penalty="l2", tol=2e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs = LinearSVC(loss="hinge", C=1.0, fit_intercept=False, tol=1e-8, max_iter=1_000_000).fit(X, y).coef_
    peer = objective("hinge", X, y, 1.0, 0.0, theirs.ravel())
    assert found.dual <= peer
    assert found.objective <= peer + found.gap
    assert found.gap <= 2e-3 * 80


def test_classes_are_one_against_the_rest() -> None:
    X, _ = problem("logistic", 200, 30, 1)
    labels = np.random.default_rng(1).integers(0, 3, 200)
    found = offline_optimum(X, labels, alpha=[0.5, 4.0], n_classes=3)
    assert found.weights.shape == (2, 30, 3)
    for a, alpha in enumerate((0.5, 4.0)):
        alone = [offline_optimum(X, (labels == k).astype(float), alpha=alpha) for k in range(3)]
        np.testing.assert_array_equal(found.weights[a], np.stack([one.weights for one in alone], axis=1))
        assert found.objective[a] == pytest.approx(sum(one.objective for one in alone), rel=1e-14)


def test_light_penalties_take_few_passes() -> None:
    X, y = problem("logistic", 60, 300, 1)
    for alpha in (1e-1, 1e-3):
        found = offline_optimum(X, y, alpha=alpha, tol=1e-6)
        assert found.converged
        assert found.passes <= 40
