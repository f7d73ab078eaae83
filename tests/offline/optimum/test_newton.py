"""Newton steps on rows at hand: second derivatives, the same minima as by passes alone, and what is degenerate."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from sparseoco import offline_optimum
from sparseoco.learners.losses import LOSSES, smoothed_hinge_curvature, smoothed_hinge_slope
from sparseoco.offline.optimum import Newton, OptimumProblem, QuasiNewton, minimise
from sparseoco.offline.passes import LocalPasses, Span
from tests.offline.optimum.problems import PENALTIES, SMOOTH, problem

pytestmark = pytest.mark.formulas


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_a_curvature_is_the_slopes_own_slope(loss: str, y: float) -> None:
    own: Any = LOSSES[loss]
    for z in (-30.0, -2.3, -0.4, 0.0, 0.7, 3.1, 30.0):
        change = (own.slope(z + 1e-5, y) - own.slope(z - 1e-5, y)) / 2e-5
        assert own.curvature(z, y) == pytest.approx(change, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("z", [-1.0, 0.6, 0.9, 1.2])
def test_the_rounded_hinges_curvature_is_its_slopes_own_slope(z: float) -> None:
    change = (smoothed_hinge_slope(z + 1e-6, 1.0, 0.5) - smoothed_hinge_slope(z - 1e-6, 1.0, 0.5)) / 2e-6
    assert smoothed_hinge_curvature(z, 1.0, 0.5) == pytest.approx(change, abs=1e-8)


def both(X: Any, labels: np.ndarray, words: OptimumProblem, tol: float) -> tuple[Newton, QuasiNewton]:
    passes = LocalPasses.of(X, labels)
    found = Newton(passes, words, tol=tol), QuasiNewton(passes, words, tol=tol)
    for solver in found:
        while solver.active:
            solver.step()
    return found


@pytest.mark.parametrize("loss", [*SMOOTH, "hinge"])
@pytest.mark.parametrize(("penalty", "rho"), PENALTIES)
@pytest.mark.parametrize("box", [None, 0.15])
def test_both_methods_find_the_same_minimum(loss: str, penalty: str, rho: float, box: float | None) -> None:
    X, y = problem(loss, 90, 20, 4)
    numbers = loss == "squared"
    words = OptimumProblem.of(loss, [20.0 if numbers else 1.5], penalty, rho, box, None if numbers else 2)
    tol = 5e-3 if loss == "hinge" else 1e-9
    (newton,), (passes,) = (s.columns for s in both(X, y if numbers else (y > 0).astype(np.float64), words, tol))
    assert newton.converged
    assert passes.converged
    assert newton.at_zero == passes.at_zero
    assert max(newton.dual, passes.dual) <= min(newton.objective, passes.objective) + 1e-12 * newton.at_zero
    assert newton.passes <= passes.passes + 3


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_separable_rows_and_hardly_a_penalty(loss: str) -> None:
    X, y = problem(loss, 30, 90, 2)
    found = offline_optimum(X, y, loss=loss, alpha=1e-7, tol=1e-6)
    assert found.converged
    assert np.isfinite(found.weights).all()
    assert (np.sign(X @ found.weights) == y).all()


def test_columns_that_are_empty_and_columns_that_are_alike() -> None:
    X, y = problem("logistic", 100, 15, 6)
    alone = offline_optimum(X, y, alpha=1.0, tol=1e-10)
    thrice = sp.hstack([X, X, sp.csr_matrix((100, 2)), X]).tocsr()
    found = offline_optimum(thrice, y, alpha=1.0, tol=1e-10)
    assert found.converged
    assert not found.weights[30:32].any()
    assert found.objective == pytest.approx(alone.objective, rel=1e-9)


def test_one_class_only() -> None:
    X, _ = problem("logistic", 50, 8, 0)
    found = offline_optimum(X, np.ones(50), alpha=0.5, tol=1e-8)
    assert found.converged
    assert found.objective < 50 * np.log(2)
    assert (X @ found.weights >= 0).all()


def test_no_penalty_needs_a_box() -> None:
    X, y = problem("logistic", 40, 60, 3)
    found = offline_optimum(X, y, alpha=0.0, box=0.3, tol=1e-8)
    assert found.converged
    assert (np.abs(found.weights) <= 0.3).all()
    assert (np.abs(found.weights) == 0.3).any()


def test_a_column_has_the_bits_it_has_alone_and_a_start_is_taken() -> None:
    X, y = problem("logistic", 80, 30, 9)
    together = offline_optimum(X, y, alpha=[3.0, 0.3], tol=1e-8)
    for i, alpha in enumerate((3.0, 0.3)):
        alone = offline_optimum(X, y, alpha=alpha, tol=1e-8)
        np.testing.assert_array_equal(together.weights[i], alone.weights)
        assert offline_optimum(X, y, alpha=alpha, tol=1e-7, start=alone.weights).passes == 2


@pytest.mark.parametrize("scale", [1.0, 300.0, 0.5])
def test_rows_of_a_span_by_columns_are_those_of_its_passes(scale: float) -> None:
    X, y = problem("logistic", 70, 12, 8)
    labels, span = (y > 0).astype(np.float64), Span(seed=3, range_rows=1, stop=50)
    words = OptimumProblem.of("logistic", [0.5], "l1", 0.5, None, 2)
    rows = span.rows(70, 0, 50)
    part = minimise(LocalPasses.of(X * scale, labels, span), words, tol=1e-9)
    whole = minimise(LocalPasses.of((X * scale)[rows], labels[rows]), words, tol=1e-9)
    assert part.converged.all()
    np.testing.assert_array_equal(part.weights, whole.weights)
