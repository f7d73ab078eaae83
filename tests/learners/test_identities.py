"""What the papers say of their methods: special cases that coincide, and regret within its bound."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from sparseoco.training.learner import Learner
from tests.oracles.stream import VALUES

pytestmark = pytest.mark.formulas
ROWS, FEATURES = 400, 25


def data(scale: float = 1.0) -> tuple[sp.csr_matrix, np.ndarray]:
    rng = np.random.default_rng(4)
    X = rng.normal(0, scale, (ROWS, FEATURES)) * (rng.random((ROWS, FEATURES)) < 1.0 / np.arange(1, FEATURES + 1))
    return sp.csr_matrix(X), (X @ rng.normal(size=FEATURES) + 0.3 * rng.normal(size=ROWS) > 0).astype(int)


def weights(name: str, **parameters: Any) -> np.ndarray:
    return (
        Learner(name, loss="hinge", grid=[parameters, parameters], n_features=FEATURES).partial_fit(*data()).weights()
    )


@pytest.mark.parametrize("name", ["l-fobos", "sg-l1"])
def test_other_names_for_fobos(name: str) -> None:
    """K = 1, and η_{t+1/2} = η_t: the same bits."""
    special: dict[str, Any] = {"K": 1} if name == "l-fobos" else {"second": "same"}
    assert weights(name, lam=0.01, **special).tobytes() == weights("fobos", lam=0.01).tobytes()


@pytest.mark.parametrize(("aware", "plain"), [("sgft", "sg-l1"), ("sgft-cumulative", "cumulative-l1")])
@pytest.mark.parametrize("second", ["same", "next"])
def test_a_history_that_is_the_same_for_all_is_no_history(aware: str, plain: str, second: str) -> None:
    """h = V for all coordinates from their first update on is h = 1 with λV for λ (sgft §3)."""
    V = 1e-6
    expected = weights(plain, lam=0.02, second=second)
    assert (expected == 0).any()
    np.testing.assert_allclose(weights(aware, lam=0.02 / V, V=V, p=1, second=second), expected, rtol=1e-10, atol=1e-12)


def test_without_penalty_primal_methods_are_one() -> None:
    names = ("subgradient", "l-fobos", "cl-fobos", "cumulative-l1", "sgft", "sgft-cumulative")
    for name in names:
        np.testing.assert_allclose(weights(name, lam=0.0), weights("fobos", lam=0.0), rtol=1e-12)


def test_frequency_aware_truncation_is_blind_to_units() -> None:
    """A feature whose values are 1000 times larger is truncated as much as the other (sgft §3): x → cx.

    Gradients are c times as large, the margins of so short a step hardly change, and so w → cw.
    """
    X, y = data()
    for name in ("sgft", "sgft-cumulative"):
        both = []
        for scale in (1.0, 1000.0):
            learner = Learner(name, loss="squared", grid={"lam": [0.01], "eta0": [1e-12]}, n_features=FEATURES)
            scaled = X @ sp.diags_array(np.where(np.arange(FEATURES) == 3, scale, 1.0))
            both.append(learner.partial_fit(sp.csr_matrix(scaled), y).weights()[3, 0])
        assert both[0] != 0
        assert both[1] / 1000 == pytest.approx(both[0], rel=1e-3)


def objective(X: np.ndarray, y: np.ndarray, w: np.ndarray, lam: float) -> float:
    return sum(VALUES["logistic"](x @ w, b) for x, b in zip(X, y, strict=True)) + len(y) * lam * float(np.abs(w).sum())


def minimum(X: np.ndarray, y: np.ndarray, lam: float) -> np.ndarray:
    """argmin of the whole objective, by proximal gradient steps."""
    w, step = np.zeros(X.shape[1]), 4 / np.linalg.norm(X, 2) ** 2
    for _ in range(20_000):
        g = X.T @ (-y / (1 + np.exp(y * (X @ w))))
        v = w - step * g
        w = np.sign(v) * np.maximum(np.abs(v) - step * len(y) * lam, 0)
    return w


@pytest.mark.parametrize("name", ["subgradient", "fobos"])
def test_regret_is_within_its_bound(name: str) -> None:
    """R(T) ≤ 2GD + (D²/(2c) + 7G²c)·√T for η_t = c/√t (Duchi and Singer 2009, as cl-fobos (16) has it)."""
    X, y = data(0.3)
    signs, lam, c = 2.0 * y - 1, 0.01, 0.5
    dense = X.toarray()
    best = minimum(dense, signs, lam)
    learner = Learner(name, grid={"lam": [lam], "eta0": [c]}, n_features=FEATURES)
    iterates = []
    for t in range(ROWS):
        iterates.append(learner.weights()[:, 0])
        learner.partial_fit(X[t], y[t : t + 1])
    incurred = learner.progress.loss_sum[0] + lam * sum(np.abs(w).sum() for w in iterates)
    D = max(np.linalg.norm(w - best) for w in iterates)
    G = max(np.linalg.norm(dense, axis=1).max(), lam * np.sqrt(FEATURES))
    regret = incurred - objective(dense, signs, best, lam)
    assert 0 < regret <= 2 * G * D + (D**2 / (2 * c) + 7 * G**2 * c) * np.sqrt(ROWS)
