"""Fits of cao-rcd: they approach the optimum, resume, and do not depend on what is beside them."""

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, Ridge
from sklearn.svm import LinearSVC

from sparseoco import offline_optimum
from sparseoco.offline.epochs import bytes_needed, fit_epochs
from tests.offline.problems import coordinates, objective, parameters, problem, random_problem
from tests.support.errors import raises_code


@pytest.mark.parametrize(
    ("batch", "penalty", "ratio"), [(1, "l1", 1.0), (3, "l1", 1.0), (1, "l2", 0.0), (3, "elastic_net", 0.5)]
)
def test_the_objective_falls_to_the_optimum(batch: int, penalty: str, ratio: float) -> None:
    X, labels = random_problem(200, 40)
    y, alpha = (labels > 0).astype(np.int64), 8.0
    grid = {"alpha": alpha, "R": 2.0, "batch": batch, "rounds": 2000}  # 0.5 is the default l1_ratio
    fit = fit_epochs(X, y, algorithm="cao-rcd", penalty=penalty, grid=grid, epochs=30)
    A = X.toarray().astype(float)
    peer = LogisticRegression(
        l1_ratio=ratio, C=1 / alpha, solver="saga", fit_intercept=False, tol=1e-10, max_iter=20000
    )
    best = objective("logistic", A, 2 * y - 1, alpha, ratio, peer.fit(A, y).coef_[0])
    assert np.abs(peer.coef_).max() < 2.0
    gaps = fit.objective[:, 0] / best - 1
    expected = objective("logistic", A, 2 * y - 1, alpha, ratio, fit.weights[:, 0])
    np.testing.assert_allclose(fit.objective[-1, 0], expected, rtol=1e-12)
    assert -1e-9 < gaps[-1] < 1e-2
    assert gaps[-1] < gaps[0] / 5  # it falls as 1/√t: 30 epochs are 5.5 times as good as one


def test_the_objective_with_an_intercept_falls_to_its_optimum() -> None:
    X, labels = random_problem(200, 40)
    y, alpha = (labels > 0).astype(np.int64), 8.0
    grid = {"alpha": alpha, "R": 2.0, "rounds": 2000}
    fit = fit_epochs(X, y, algorithm="cao-rcd", grid=grid, epochs=30, fit_intercept=True)
    optimum = offline_optimum(X, y, alpha=alpha, fit_intercept=True, tol=1e-9)
    assert abs(optimum.intercept) < 2.0
    assert -1e-9 < fit.objective[-1, 0] / optimum.objective - 1 < 1e-2
    assert fit.weights.shape == (40, 1)
    z = X @ fit.weights[:, 0] + fit.intercepts[0, 0]
    expected = np.logaddexp(0, -(2 * y - 1) * z).sum() + alpha * np.abs(fit.weights).sum()
    np.testing.assert_allclose(fit.objective[-1, 0], expected, rtol=1e-12)


def test_columns_share_draws_and_nothing_else() -> None:
    """More than two classes, α and R side by side, in any company: the bits of each alone."""
    X, y = random_problem(120, 30)
    grid = {"alpha": [0.0, 0.3, 2.0], "R": [0.1, 0.7], "predict_gradient": ["none", "last"], "rounds": 200}
    for loss in ("logistic", "squared_hinge"):
        together = fit_epochs(X, y, algorithm="cao-rcd", loss=loss, grid=grid, epochs=3, n_classes=3)
        for i, configuration in enumerate(together.configurations):
            alone = fit_epochs(X, y, algorithm="cao-rcd", loss=loss, grid=[configuration], epochs=3, n_classes=3)
            np.testing.assert_array_equal(alone.weights, together.weights[:, 3 * i : 3 * i + 3])
            np.testing.assert_array_equal(alone.objective[:, 0], together.objective[:, i])


def test_a_run_resumes_from_its_state() -> None:
    X, y = random_problem(80, 20)
    own = [parameters(R=0.5, alpha=a, rounds=70, batch=2, predict_gradient="last") for a in (0.1, 1.0)]

    whole, first, second = (coordinates(X, y, *own, positive=(0, 1, 2), seed=7) for _ in range(3))
    for _ in range(4):
        whole.play()
    first.play()
    first.losses()
    first.play()
    second.state[...], second.epoch = first.state, 2
    second.play()
    second.play()
    np.testing.assert_array_equal(second.state, whole.state)
    np.testing.assert_array_equal(second.margins(), whole.margins())


def test_examples_that_are_not_kept_are_not_there() -> None:
    X, y = random_problem(90, 25)
    kept = np.random.default_rng(1).random(90) < 0.6
    own = parameters(R=0.5, alpha=0.3, rounds=300, predict_gradient="half")
    masked, without = coordinates(X, y, own, seed=2, weights=kept), coordinates(X[kept], y[kept], own, seed=2)
    for method in (masked, without):
        method.play()
    np.testing.assert_array_equal(masked.weights(), without.weights())
    np.testing.assert_array_equal(masked.losses(), without.losses())
    np.testing.assert_allclose(masked.margins(), X @ masked.weights(), atol=1e-12)


def test_a_row_of_weight_2_is_two_rows() -> None:
    """Bounds, draws and gradients are sums over rows: iterates are the same too. A weight of 0 leaves a row out."""
    X, labels = random_problem(90, 25)
    y, weights = (labels > 0).astype(np.int64), np.random.default_rng(1).choice([0, 1, 2], 90)
    grid = {"R": 0.7, "alpha": 0.3, "rounds": 300, "predict_gradient": "last"}
    rows = np.repeat(np.arange(90), weights)
    for loss in ("logistic", "squared_hinge"):
        arguments = {"algorithm": "cao-rcd", "loss": loss, "grid": grid, "epochs": 3}
        once, twice = fit_epochs(X, y, sample_weight=weights, **arguments), fit_epochs(X[rows], y[rows], **arguments)
        np.testing.assert_allclose(once.weights, twice.weights, atol=1e-9)
        np.testing.assert_allclose(once.objective, twice.objective, rtol=1e-9)


def test_no_documents_to_learn_from() -> None:
    fit = fit_epochs(sp.csr_matrix((3, 4)), np.array([0, 1, 1]), algorithm="cao-rcd", epochs=2)
    np.testing.assert_array_equal(fit.weights, np.zeros((4, 1)))
    np.testing.assert_allclose(fit.objective, np.full((2, 1), 3 * np.log(2)))


def test_what_has_no_meaning_is_refused() -> None:
    X, y = random_problem(30, 5)
    with raises_code("unsupported-combination", "cao-rcd"):
        fit_epochs(X, y, algorithm="cao-rcd", loss="softmax", n_classes=3)
    with raises_code("unsupported-combination", "cao-rcd", "l1"):
        fit_epochs(X, y, algorithm="cao-rcd", penalty="group", n_classes=3)
    with raises_code("invalid-parameter", "rounds='all'"):
        fit_epochs(X, y > 0, algorithm="cao-rcd", grid={"rounds": "all"})


@pytest.mark.parametrize("penalty", ["l1", "l2"])
@pytest.mark.parametrize("rounds", ["pass", 5000])
def test_the_memory_estimate_is_that_of_the_arrays(rounds: Any, penalty: str) -> None:
    n_rows, n_features = 60, 40
    X = sp.random(n_rows, n_features, 0.2, "csr", random_state=3)
    configurations = [parameters(rounds=rounds, predict_gradient="last")] * 2
    method = coordinates(X, np.arange(n_rows) % 2, *configurations, penalty=penalty)
    held = (*method._work, method.weights())
    estimate = bytes_needed(n_rows, n_features, 2, rounds, penalty)
    assert 0.9 * estimate <= sum(array.nbytes for array in held) <= estimate


# ----------------------------------------------------------------------------------------------------------------------
# The offline optimum agrees with scikit-learn's solvers, to 1e-6 of the objective. Compiled: they take many passes.


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
