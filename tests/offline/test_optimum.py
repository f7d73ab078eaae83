"""The gap is never less than what is left to gain, and optima satisfy their optimality conditions."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from sparseoco import offline_optimum
from sparseoco.learners.losses import LOSSES, smoothed_hinge_curvature, smoothed_hinge_slope
from sparseoco.offline.optimum import Newton, OptimumProblem, minimise
from sparseoco.offline.options import OptimumOptions
from sparseoco.offline.passes import LocalPasses, Span
from sparseoco.offline.quasi_newton import QuasiNewton
from tests.offline.problems import PENALTIES, SMOOTH, minimum, objective, problem
from tests.support.errors import raises_code


def problem_of(loss: str, alpha: float, penalty: str = "l1", rho: float = 0.5, box: float | None = None) -> Any:
    ratio = {"l1_ratio": rho} if penalty == "elastic_net" else {}
    options = OptimumOptions(alphas=(alpha,), loss=loss, penalty=penalty, box=box, **ratio)
    return OptimumProblem.of(options, None if loss == "squared" else 2)


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
    labels = y if loss == "squared" else (y > 0).astype(np.float64)
    solver = QuasiNewton(LocalPasses.of(X, labels), problem_of(loss, alpha, *penalty, box), tol=1e-9, max_passes=passes)
    (column,) = solver.columns
    history = []
    while solver.active:
        solver.step()
        history.append((column.objective, -column.dual))
    reached = objective(loss, X, y, alpha, penalty[1], column.best)
    assert np.abs(column.best).max() <= (box or np.inf)
    assert column.objective == pytest.approx(reached, rel=1e-12, abs=1e-12)
    assert (np.diff(history, axis=0) <= 0).all()
    rounding = 1e-11 * max(1.0, column.at_zero)
    assert column.dual <= reached + rounding
    least = minimum(X, y, np.full(X.shape[1], alpha), box, loss=loss, rho=penalty[1])
    assert column.dual <= least + rounding


EXTENDED = [("logistic", penalty) for penalty, _ in PENALTIES] + [("squared_hinge", "l1"), ("squared", "l1")]


@pytest.mark.parametrize(
    ("loss", "penalty", "box", "extended"),
    [
        *((loss, penalty, box, False) for loss in SMOOTH for penalty, _ in PENALTIES for box in (None, 0.15)),
        *((loss, penalty, None, True) for loss, penalty in EXTENDED),
    ],
)
def test_the_optimality_conditions_hold(loss: str, penalty: str, box: float | None, extended: bool) -> None:
    """`extended`: with weights of rows and an intercept, whose condition is that the slopes add up to 0."""
    rho = dict(PENALTIES)[penalty]
    X, y = problem(loss, 120, 24, 3)
    alpha = 60.0 if loss == "squared" else 2.0
    weights = np.random.default_rng(4).choice([0.0, 0.5, 1.0, 3.0] if extended else [1.0], 120)
    own = {"sample_weight": weights if extended else None, "fit_intercept": extended, "tol": 1e-11}
    found = offline_optimum(X, y, loss=loss, alpha=alpha, penalty=penalty, l1_ratio=rho, box=box, **own)
    w, limit = found.weights, box or np.inf
    slopes = weights * [LOSSES[loss].slope(z, t) for z, t in zip(X @ w + found.intercept, y, strict=True)]
    g = X.T @ slopes + alpha * (1 - rho) * w
    assert (found.intercept != 0) == extended
    assert not extended or abs(slopes.sum()) <= 1e-3
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


@pytest.mark.formulas
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


# ----------------------------------------------------------------------------------------------------------------------
# Newton steps on rows at hand: second derivatives, the same minima as by passes alone, and what is degenerate.


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
    X, y = problem(loss, 50, 12, 4)
    numbers = loss == "squared"
    words = problem_of(loss, 20.0 if numbers else 1.5, penalty, rho, box)
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


def test_a_column_has_the_bits_it_has_alone() -> None:
    X, y = problem("logistic", 80, 30, 9)
    together = offline_optimum(X, y, alpha=[3.0, 0.3], tol=1e-8)
    for i, alpha in enumerate((3.0, 0.3)):
        alone = offline_optimum(X, y, alpha=alpha, tol=1e-8)
        np.testing.assert_array_equal(together.weights[i], alone.weights)


@pytest.mark.parametrize("scale", [1.0, 300.0, 0.5])
def test_rows_of_a_span_by_columns_are_those_of_its_passes(scale: float) -> None:
    X, y = problem("logistic", 70, 12, 8)
    labels, span = (y > 0).astype(np.float64), Span(seed=3, range_rows=1, stop=50)
    words = problem_of("logistic", 0.5)
    rows = span.rows(70, 0, 50)
    part = minimise(LocalPasses.of(X * scale, labels, span), words, tol=1e-9)
    whole = minimise(LocalPasses.of((X * scale)[rows], labels[rows]), words, tol=1e-9)
    assert part.converged.all()
    np.testing.assert_array_equal(part.weights, whole.weights)


# ----------------------------------------------------------------------------------------------------------------------
# The optimum with sample weights and an intercept, by its certificate.


def data(classes: int = 2) -> tuple[sp.csr_matrix, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(90, 8)) * (rng.random((90, 8)) < 0.6)
    y = (X[:, :classes] + rng.normal(1.0, 1.0, (90, classes))).argmax(axis=1) if classes > 2 else X[:, 0] > -0.4
    return sp.csr_matrix(X), np.asarray(y, int), rng.choice([0.0, 0.5, 1.0, 3.0], 90)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge", "hinge", "squared"])
def test_no_other_point_is_lower(loss: str) -> None:
    """The dual is a bound: of points around the optimum, intercepts included, none has a lower objective."""
    X, y, weights = data()
    y = y * 2.0 - 1.0
    arguments = {"loss": loss, "alpha": 0.8, "sample_weight": weights, "fit_intercept": True}
    found = offline_optimum(X, y, tol=1e-4 if loss == "hinge" else 1e-9, **arguments)
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
    arguments = {"alpha": [2.0, 0.5], "n_classes": 3, "tol": 1e-9, "fit_intercept": True}
    found = offline_optimum(X, y, sample_weight=weights, **arguments)
    many = np.repeat(np.arange(90), weights)
    repeated = offline_optimum(X[many], y[many], **arguments)
    np.testing.assert_allclose(found.weights, repeated.weights, atol=1e-4)
    np.testing.assert_allclose(found.objective, repeated.objective, rtol=1e-9)
    assert found.intercept.shape == (2, 3)
    plain = offline_optimum(X, y, sample_weight=weights, **arguments | {"fit_intercept": False})
    assert not plain.intercept.any()
    assert (found.objective <= plain.objective).all()


def test_one_class_has_a_large_intercept_and_what_has_no_meaning_is_refused() -> None:
    X, _, _ = data()
    found = offline_optimum(X, np.ones(90), fit_intercept=True)
    assert found.converged
    assert found.objective < 1e-9
    assert found.intercept > 20
    with raises_code("invalid-sample-weights", "row 0"):
        offline_optimum(X, np.ones(90), sample_weight=-np.ones(90))
    with raises_code("invalid-option", "penalty", "elastic_net"):
        offline_optimum(X, np.ones(90), penalty="group")
