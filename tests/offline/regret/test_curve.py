"""Curves against dense recursions, sums by brute force, slopes of known powers."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import linregress

from sparseoco.learners import find_algorithm
from sparseoco.offline.regret.bounds import (
    LinearSum,
    Mark,
    find_comparator,
    measure,
    sample_size,
    sampled_rounds,
    spread_marks,
)
from sparseoco.offline.regret.tables import fit_slope
from sparseoco.training.learner import Learner
from tests.offline.regret.dense_curves import (
    ALL_ROUNDS,
    FEATURES,
    MARKS,
    ROWS,
    data,
    dense_thresholds,
    first_epoch,
    iterates,
)
from tests.oracles.ftrl import penalty_totals
from tests.oracles.stream import VALUES
from tests.support.errors import raises_code

pytestmark = pytest.mark.formulas


def curve(name: str, samples: list[int], loss: str = "logistic", classes: int = 2, **parameters: Any) -> list[Mark]:
    X, y = data(classes)
    learner = Learner(name, loss=loss, grid=[parameters], n_features=FEATURES, n_classes=classes, objective=True)
    return list(measure(learner, first_epoch(X, y), MARKS, samples))


def losses(w: np.ndarray, y: np.ndarray, loss: str) -> np.ndarray:
    X, _ = data()
    return np.array([VALUES[loss](x @ v, b) for x, v, b in zip(X, w, y, strict=True)])


L1: list[tuple[str, dict[str, Any]]] = [
    ("cl-fobos", {"eta0": 0.5, "lam": 0.02}),
    ("fobos", {"eta0": 0.5, "lam": 0.02}),
    ("rda", {"gamma": 2.0, "lam": 0.02}),
]


@pytest.mark.parametrize(("name", "parameters", "loss"), [*((*entry, "logistic") for entry in L1), (*L1[0], "hinge")])
def test_sums_equal_those_of_the_dense_recursion(name: str, parameters: dict[str, Any], loss: str) -> None:
    y = 2.0 * data()[1] - 1
    w = iterates(name, y, loss, **parameters)
    loss_sum, penalty_sum = losses(w, y, loss).cumsum(), (parameters["lam"] * np.abs(w).sum(axis=1)).cumsum()
    for mark in curve(name, ALL_ROUNDS, loss, **parameters):
        assert mark.exact
        assert mark.penalty_error == 0
        assert mark.loss == pytest.approx(loss_sum[mark.T - 1], rel=1e-10)
        assert mark.penalty == pytest.approx(penalty_sum[mark.T - 1], rel=1e-10)


def test_penalties_with_squares_and_several_classes() -> None:
    _, labels = data(3)
    parameters: dict[str, Any] = {"eta0": 0.5, "lam": 0.02}
    expected = np.zeros(ROWS)
    for k in range(3):
        y = np.where(labels == k, 1.0, -1.0)
        w = iterates("fobos", y, "logistic", **parameters)
        expected += losses(w, y, "logistic").cumsum() + (0.02 * np.abs(w).sum(axis=1)).cumsum()
    for mark in curve("fobos", ALL_ROUNDS, classes=3, **parameters):
        assert mark.loss + mark.penalty == pytest.approx(expected[mark.T - 1], rel=1e-10)


@pytest.mark.parametrize(
    ("name", "parameters", "schedule"),
    [
        (name, parameters, schedule)
        for name, parameters in (
            ("cao-ftrl", {"R": 0.5, "lam": 0.2, "predict_gradient": "none"}),
            ("adagrad", {"eta": 0.5, "delta": 0.1, "lam": 0.2}),
        )
        for schedule in ("sqrt", "first")
    ],
)
def test_penalties_of_a_schedule(name: str, parameters: dict[str, Any], schedule: str) -> None:
    """λα_tψ(w_t) of every round, or of sampled ones within the error that they state."""
    w = iterates(name, 2.0 * data()[1] - 1, "logistic", **parameters, schedule=schedule)
    alpha = np.diff(penalty_totals(schedule)[: ROWS + 1])
    expected = (0.2 * alpha * np.abs(w).sum(axis=1)).cumsum()
    for mark in curve(name, ALL_ROUNDS, **parameters, schedule=schedule):
        assert mark.exact
        assert mark.penalty == pytest.approx(expected[mark.T - 1], rel=1e-10)
    for mark in curve(name, sampled_rounds(MARKS, 30), **parameters, schedule=schedule):
        assert not mark.exact
        assert abs(mark.penalty - expected[mark.T - 1]) <= 1e-12 + mark.penalty_error


@pytest.mark.parametrize(
    ("schedule", "alpha", "formula"),
    [("constant", 20.0, "Tλ‖w‖₁"), ("sqrt", 2.0, "√T·λ‖w‖₁"), ("first", 0.2, "λ‖w‖₁")],
)
def test_the_comparator_of_a_schedule(schedule: str, alpha: float, formula: str) -> None:
    parameters = find_algorithm("cao-ftrl").configuration({"lam": 0.2, "R": 0.5, "schedule": schedule})
    comparator = find_comparator("cao-ftrl", parameters, "logistic", "l1")
    assert comparator.alpha(100) == pytest.approx(alpha)
    assert comparator.formula == f"Σ_t f_t(w) + {formula}, |w_i| ≤ 0.5"


@pytest.mark.parametrize(
    ("name", "parameters", "dense"),
    [
        ("sgft", {"eta0": 0.5, "lam": 0.1, "p": 2, "V": 500.0}, {"second": "same"}),
        ("sgft-cumulative", {"eta0": 0.5, "lam": 0.1, "p": 2, "V": 500.0}, {"second": "same"}),
        ("stda", {"gamma": 2.0, "lam": 0.1, "p": 2, "V": 1e8}, {"by": "subgradient"}),
    ],
)
def test_a_penalty_weighted_by_each_coordinates_history(
    name: str, parameters: dict[str, Any], dense: dict[str, Any]
) -> None:
    """Oiwa et al. 2011, Theorem 1; 2012, (10), (19)."""
    y = 2.0 * data()[1] - 1
    w = iterates(name, y, "logistic", **parameters, **dense)
    h = dense_thresholds(name, w, y)
    penalty_sum = (0.1 * (h * np.abs(w)).sum(axis=1)).cumsum()
    for mark in curve(name, ALL_ROUNDS, **parameters):
        assert mark.exact
        assert mark.thresholds is not None
        assert mark.penalty == pytest.approx(penalty_sum[mark.T - 1], rel=1e-9)
        np.testing.assert_allclose(mark.thresholds[:, 0], h[: mark.T].sum(axis=0), rtol=1e-9)


@pytest.mark.parametrize(("name", "parameters"), [*L1[1:], ("stda", {"gamma": 2.0, "lam": 0.1})])
def test_samples_are_close_within_their_error(name: str, parameters: dict[str, Any]) -> None:
    exact = curve(name, ALL_ROUNDS, **parameters)
    sampled = curve(name, sampled_rounds(MARKS, 30), **parameters)
    assert [m.loss for m in sampled] == [m.loss for m in exact]
    for rough, true in zip(sampled, exact, strict=True):
        assert not rough.exact
        assert rough.penalty == pytest.approx(true.penalty, rel=0.05)
    assert 0 < abs(sampled[-1].penalty - exact[-1].penalty) < 3 * sampled[-1].penalty_error


def test_a_learner_that_diverges_has_no_marks_from_there_on() -> None:
    learner = Learner("fobos", grid=[{"eta0": 5e6, "lam": 0.0}], n_features=FEATURES)
    marks = list(measure(learner, first_epoch(*data()), MARKS, ALL_ROUNDS))
    assert learner.diverged[0] > 0
    assert all(learner.diverged[0] > mark.T for mark in marks)
    assert len(marks) < len(MARKS)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=40), st.data())
def test_linear_sums(values: list[float], draw: st.DataObject) -> None:
    """With every round known, the sum itself; otherwise the sum of the interpolation."""
    last = len(values)
    known = sorted({1, last, *draw.draw(st.lists(st.integers(1, last)))})
    total = LinearSum()
    for t in known:
        total.add(t, values[t - 1])
    lines = np.interp(np.arange(1, last + 1), known, [values[t - 1] for t in known])
    assert total.total == pytest.approx(lines.sum(), rel=1e-9, abs=1e-7)


@given(st.integers(1, 10**7), st.integers(2, 40), st.integers(2, 500))
def test_rounds(n_rows: int, number: int, samples: int) -> None:
    marks = spread_marks(n_rows, number)
    assert len(marks) <= number
    assert marks == sorted(set(marks))
    assert marks[-1] == n_rows
    assert marks[0] == min(50, n_rows)
    rounds = sampled_rounds(marks, samples)
    assert rounds == sorted(set(rounds))
    assert rounds[0] == 1
    assert {*marks} <= {*rounds}
    assert len(rounds) <= samples + len(marks) + 1
    if samples >= n_rows:
        assert rounds == list(range(1, n_rows + 1))


def test_the_number_of_samples() -> None:
    assert sample_size(50, 10, 10**6) == 50
    assert sample_size(10_000, 10**4, 10**6) == 64
    assert sample_size(10_000, 10**6, 10**5) == 160
    assert sample_size(10_000, 10**9, 10**5) == 2048


def test_the_slope_of_a_power_is_its_exponent() -> None:
    T = spread_marks(100_000)
    fit = fit_slope(T, [3.0 * t**0.5 for t in T], [0.0] * len(T))
    assert fit is not None
    assert fit.slope == pytest.approx(0.5)
    assert fit.error == pytest.approx(0, abs=1e-9)
    assert fit.at(400) == pytest.approx(60)
    assert (fit.points, fit.first) == (6, T[6])


def test_the_error_of_a_slope_is_that_of_least_squares() -> None:
    T = np.array([10, 20, 40, 80, 160, 320, 640, 1280])
    values = T**0.4 * np.exp(np.random.default_rng(0).normal(0, 0.1, T.size))
    fit = fit_slope(T.tolist(), values.tolist(), [0.0] * 8)
    expected = linregress(np.log(T[4:]), np.log(values[4:]))
    assert fit is not None
    assert fit.slope == pytest.approx(expected.slope)
    assert fit.error == pytest.approx(expected.stderr)


def test_uncertain_marks_are_left_out() -> None:
    T = [10, 20, 40, 80, 160, 320]
    assert fit_slope(T, [-1.0] * 6, [0.0] * 6) is None
    assert fit_slope(T, [1.0] * 6, [2.0] * 6) is None
    fit = fit_slope(T, [1, 1, 1, 4, 8, 16], [0.0] * 6)
    assert fit is not None
    assert fit.slope == pytest.approx(1)


@pytest.mark.parametrize(
    ("algorithm", "parameters", "penalty", "formula"),
    [
        ("fobos", {"lam": 0.1}, "l1", "Σ_t f_t(w) + Tλ‖w‖₁"),
        ("fobos", {"lam": 0.1}, "l2", "Σ_t f_t(w) + Tλ‖w‖²/2"),
        ("rda", {"lam": 0.1, "l1_ratio": 0.3}, "elastic_net", "Σ_t f_t(w) + Tλ(ρ‖w‖₁ + (1 − ρ)‖w‖²/2), ρ = 0.3"),
        ("fobos", {"R": 2.0}, "box", "Σ_t f_t(w), |w_i| ≤ 2"),
        ("cao-ftrl", {"lam": 0.1, "R": 1.0, "predict_gradient": "none"}, "l1", "Σ_t f_t(w) + Tλ‖w‖₁, |w_i| ≤ 1"),
        ("ao-gd", {"R": 1.0, "predict_gradient": "none"}, "l1", "Σ_t f_t(w), |w_i| ≤ 1"),
        ("sgft", {"lam": 0.1, "p": 2}, "l1", "Σ_t f_t(w) + λ·Σ_t‖h_t∘w‖₁"),
        ("stda", {"lam": 0.1, "p": 2}, "l1", "Σ_t f_t(w) + λ·Σ_t‖h_t∘w‖₁"),
        ("cao-rcd", {"R": 0.5, "scale": "none"}, "box", "Σ_j f_j(w), |w_i| ≤ 0.5"),
    ],
)
def test_comparators(algorithm: str, parameters: dict[str, Any], penalty: str, formula: str) -> None:
    assert find_comparator(algorithm, parameters, "logistic", penalty).formula == formula


@pytest.mark.parametrize(
    ("algorithm", "parameters", "loss", "penalty", "code"),
    [
        ("fobos", {"lam": 0.1}, "softmax", "l1", "unsupported-combination"),
        ("fobos", {"lam": 0.1}, "logistic", "group", "unsupported-combination"),
        ("ons", {}, "logistic", "l1", "unsupported-combination"),
        ("fobos", {"lam": 0.0}, "logistic", "l1", "no-comparator"),
        ("cao-rcd", {"alpha": 0.1, "R": 0.5, "scale": "max_abs"}, "logistic", "l1", "unsupported-combination"),
        ("cao-ftrl", {"lam": 0.1, "R": 0.5, "scale": "first"}, "logistic", "l1", "unsupported-combination"),
    ],
)
def test_missing_comparators(algorithm: str, parameters: dict[str, Any], loss: str, penalty: str, code: str) -> None:
    with raises_code(code):
        find_comparator(algorithm, parameters, loss, penalty)
