"""The gap is never less than what is left to gain, and optima satisfy their optimality conditions."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from sparseoco import offline_optimum
from sparseoco.learners.losses import LOSSES
from sparseoco.offline.optimum import OptimumProblem, QuasiNewton
from sparseoco.offline.passes import LocalPasses
from tests.offline.optimum.problems import PENALTIES, SMOOTH, objective, problem

pytestmark = pytest.mark.formulas


def least(loss: str, X: Any, y: np.ndarray, alpha: float, rho: float, box: float | None) -> float:
    """The minimum by SciPy's L-BFGS-B over w = u − v, u, v ≥ 0: an upper bound of the least objective."""
    n = X.shape[1]

    def both(uv: np.ndarray) -> tuple[float, np.ndarray]:
        w = uv[:n] - uv[n:]
        slopes = np.array([LOSSES[loss].slope(z, t) for z, t in zip(X @ w, y, strict=True)])
        losses = sum(LOSSES[loss].value(z, t) for z, t in zip(X @ w, y, strict=True))
        g = X.T @ slopes + alpha * (1 - rho) * w
        value = losses + alpha * (rho * uv.sum() + (1 - rho) * (w @ w) / 2)
        return value, np.concatenate([g + alpha * rho, -g + alpha * rho])

    found = minimize(both, np.zeros(2 * n), jac=True, method="L-BFGS-B", bounds=[(0, box)] * 2 * n)
    return objective(loss, X, y, alpha, rho, found.x[:n] - found.x[n:])


@given(
    loss=st.sampled_from([*SMOOTH, "hinge"]),
    penalty=st.sampled_from(PENALTIES),
    alpha=st.sampled_from([0.03, 1.0, 8.0]),
    box=st.sampled_from([None, None, 0.2]),
    size=st.tuples(st.integers(1, 12), st.integers(1, 6)),
    seed=st.integers(0, 1000),
    passes=st.integers(1, 25),
)
@settings(max_examples=25, deadline=None)
def test_no_point_is_below_the_dual(
    loss: str,
    penalty: tuple[str, float],
    alpha: float,
    box: float | None,
    size: tuple[int, int],
    seed: int,
    passes: int,
) -> None:
    X, y = problem(loss, *size, seed)
    words = OptimumProblem.of(loss, [alpha], penalty[0], penalty[1], box, None if loss == "squared" else 2)
    labels = y if loss == "squared" else (y > 0).astype(np.float64)
    solver = QuasiNewton(LocalPasses.of(X, labels), words, tol=1e-9, max_passes=passes)
    while solver.active:
        solver.step()
    (column,) = solver.columns
    reached = objective(loss, X, y, alpha, penalty[1], column.best)
    assert np.abs(column.best).max() <= (box or np.inf)
    assert column.objective == pytest.approx(reached, rel=1e-12, abs=1e-12)
    assert (np.diff(column.history[:, 0]) <= 0).all()
    assert (np.diff(column.history[:, 1]) >= 0).all()
    rounding = 1e-11 * max(1.0, column.at_zero)
    assert column.dual <= reached + rounding
    assert column.dual <= least(loss, X, y, alpha, penalty[1], box) + rounding


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize(("penalty", "rho"), PENALTIES)
@pytest.mark.parametrize("box", [None, 0.15])
def test_the_optimality_conditions_hold(loss: str, penalty: str, rho: float, box: float | None) -> None:
    X, y = problem(loss, 120, 24, 3)
    alpha = 60.0 if loss == "squared" else 2.0
    found = offline_optimum(X, y, loss=loss, alpha=alpha, penalty=penalty, l1_ratio=rho, box=box, tol=1e-11)
    w, limit = found.weights, box or np.inf
    slopes = np.array([LOSSES[loss].slope(z, t) for z, t in zip(X @ w, y, strict=True)])
    g = X.T @ slopes + alpha * (1 - rho) * w
    l1, close = alpha * rho, 1e-3 * alpha
    inside = (w != 0) & (np.abs(w) < limit)
    assert found.converged
    assert (np.abs(g[w == 0]) <= l1 + close).all()
    np.testing.assert_allclose(g[inside], -l1 * np.sign(w[inside]), atol=close)
    at_box = np.abs(w) >= limit
    assert (-(g * np.sign(w))[at_box] >= l1 - close).all()
    assert inside.any()
    assert at_box.any() == (box is not None)
    assert (w == 0).any() == (penalty != "l2")


def test_the_requested_gap_is_reached_and_reported() -> None:
    X, y = problem("logistic", 300, 60, 1)
    at_zero = 300 * np.log(2)
    gaps = [offline_optimum(X, y, alpha=1.0, tol=tol) for tol in (1e-2, 1e-6, 1e-10)]
    for found, tol in zip(gaps, (1e-2, 1e-6, 1e-10), strict=True):
        assert found.gap <= tol * at_zero
        assert found.gap == pytest.approx(found.objective - found.dual, abs=1e-12)
    assert [found.passes for found in gaps] == sorted(found.passes for found in gaps)


def test_too_few_passes_raise_a_warning() -> None:
    X, y = problem("logistic", 300, 60, 1)
    with pytest.warns(UserWarning, match="did not reach tol=1e-06 for alpha=1"):
        found = offline_optimum(X, y, alpha=[100.0, 1.0], max_passes=3)
    assert found.converged.tolist() == [True, False]
    assert found.passes.tolist() == [found.passes[0], 3]


@pytest.mark.parametrize("penalty", ["l1", "l2"])
def test_the_hinge_is_certified_by_its_own_gap(penalty: str) -> None:
    X, y = problem("hinge", 60, 12, 5)
    found = offline_optimum(X, y, loss="hinge", alpha=1.0, penalty=penalty, tol=3e-3)
    assert found.objective == pytest.approx(
        objective("hinge", X, y, 1.0, 1.0 if penalty == "l1" else 0.0, found.weights), rel=1e-12
    )
    assert found.gap <= 3e-3 * 60


def test_nothing_to_learn_is_zero() -> None:
    X = sp.csr_matrix((0, 3))
    found = offline_optimum(X, np.zeros(0))
    assert found.converged
    assert not found.weights.any()
    assert found.gap == 0.0
    flat = offline_optimum(sp.csr_matrix(np.ones((4, 3))), np.zeros(4), loss="squared", alpha=1.0)
    assert flat.converged
    assert not flat.weights.any()
