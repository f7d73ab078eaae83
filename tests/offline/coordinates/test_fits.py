"""Fits of cao-rcd: they approach the optimum, resume, and do not depend on what is beside them."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

from sparseoco import offline_optimum
from sparseoco.learners.losses import find_loss
from sparseoco.learners.penalties import find_penalty
from sparseoco.offline.coordinates import Coordinates, bytes_needed
from sparseoco.offline.epochs import fit_epochs
from sparseoco.offline.passes import column_major
from tests.offline.coordinates.oracle import objective
from tests.offline.coordinates.problems import parameters, random_problem
from tests.oracles.stream import VALUES
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
    best = objective(A, 2 * y - 1, VALUES["logistic"], alpha, peer.fit(A, y).coef_[0], ratio)
    assert np.abs(peer.coef_).max() < 2.0
    gaps = fit.objective[:, 0] / best - 1
    np.testing.assert_allclose(
        fit.objective[-1, 0], objective(A, 2 * y - 1, VALUES["logistic"], alpha, fit.weights[:, 0], ratio), rtol=1e-12
    )
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
    objective = np.logaddexp(0, -(2 * y - 1) * z).sum() + alpha * np.abs(fit.weights).sum()
    np.testing.assert_allclose(fit.objective[-1, 0], objective, rtol=1e-12)


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

    def begun() -> Coordinates:
        return Coordinates(column_major(X, y), own, loss=find_loss("logistic"), positive=[0, 1, 2], seed=7)

    whole, first, second = begun(), begun(), begun()
    for _ in range(4):
        whole.play()
    first.play()
    first.losses()
    first.play()
    for name, array in second.state().items():
        array[...] = first.state()[name]
    second.resume(2)
    second.play()
    second.play()
    for name, value in whole.state().items():
        np.testing.assert_array_equal(second.state()[name], value)
    np.testing.assert_array_equal(second.margins(), whole.margins())


def test_examples_that_are_not_kept_are_not_there() -> None:
    X, y = random_problem(90, 25)
    kept = np.random.default_rng(1).random(90) < 0.6
    own = [parameters(R=0.5, alpha=0.3, rounds=300, predict_gradient="half")]
    loss = find_loss("logistic")
    masked = Coordinates(column_major(X, y), own, loss=loss, positive=[1], seed=2, weights=kept)
    without = Coordinates(column_major(X[kept], y[kept]), own, loss=loss, positive=[1], seed=2)
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
    data = column_major(X, np.arange(n_rows) % 2)
    configurations = [parameters(rounds=rounds, predict_gradient="last")] * 2
    method = Coordinates(
        data, configurations, loss=find_loss("logistic"), penalty=find_penalty(penalty), positive=(1,), seed=0
    )
    (_, block), *_ = method._blocks
    held = (*block._state, method.weights())
    estimate = bytes_needed(n_rows, n_features, 2, rounds, penalty)
    assert 0.9 * estimate <= sum(array.nbytes for array in held) <= estimate
