"""Streams of dense rows, and what dense recursions compute on them."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import linregress

from sparseoco.offline.bounds import NoBound, regret_bound
from sparseoco.offline.passes import LocalPasses
from sparseoco.offline.regret import bounds
from sparseoco.offline.regret.bounds import fit_slope
from sparseoco.offline.regret.run import comparator_problem, find_optimum, weight_factors
from sparseoco.training.learner import Learner
from sparseoco.training.stream import MatrixRows, Order, curve_marks
from tests.bounds.play import bound_of
from tests.oracles.ftrl import penalty_totals
from tests.oracles.losses import SLOPES, VALUES, labels_of, rows_of, unpenalised
from tests.oracles.stream import ORACLES
from tests.support.errors import raises_code

pytestmark = pytest.mark.formulas

ROWS, FEATURES = 90, 9
MARKS = [3, 20, 41, ROWS]
ALL_ROUNDS = list(range(1, ROWS + 1))


def data(classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    return rng.normal(0, 1, (ROWS, FEATURES)) * (rng.random((ROWS, FEATURES)) < 0.3), rng.integers(0, classes, ROWS)


def first_epoch(X: np.ndarray, y: np.ndarray) -> bounds.FirstEpoch:
    return bounds.FirstEpoch(MatrixRows(sp.csr_matrix(X), y), Order())


def iterates(name: str, y: np.ndarray, loss: str, **parameters: Any) -> np.ndarray:
    """(ROWS, features): w_1 … w_T."""
    X, _ = data()
    return np.array([np.zeros(FEATURES), *ORACLES[name](X, y, loss, **parameters)][:ROWS])


def dense_thresholds(
    name: str, w: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None, p: float | str = 2
) -> np.ndarray:
    """(ROWS, features): h_t without V, sgft (5) and stda (14). With `weights` of the rows w ends with an intercept."""
    X, _ = data()
    full = X if weights is None else np.column_stack([X, np.ones(ROWS)])
    slopes = SLOPES["logistic"](np.einsum("ti,ti->t", full, w), y)
    slopes = slopes if weights is None else weights * slopes
    eta = 1.0 if name == "stda" else 0.5 / np.sqrt(np.arange(1, ROWS + 1))[:, None]
    steps = np.abs(eta * slopes[:, None] * X)
    return np.array([np.linalg.norm(steps[: t + 1], np.inf if p == "inf" else float(p), axis=0) for t in range(ROWS)])


# ----------------------------------------------------------------------------------------------------------------------
# Curves against dense recursions, sums by brute force, slopes of known powers.


def curve(
    name: str, samples: list[int], loss: str = "logistic", classes: int = 2, **parameters: Any
) -> list[bounds.Mark]:
    X, y = data(classes)
    learner = Learner(name, loss=loss, grid=[parameters], n_features=FEATURES, n_classes=classes, objective=True)
    return list(bounds.measure(learner, first_epoch(X, y), MARKS, samples))


CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("fobos", {"eta0": 0.5, "lam": 0.02}, {}),
    ("cl-fobos", {"eta0": 0.5, "lam": 0.02}, {}),
    ("rda", {"gamma": 2.0, "lam": 0.02}, {}),
    ("sgft", {"eta0": 0.5, "lam": 0.1, "p": 2, "V": 500.0}, {"second": "same"}),
    ("stda", {"gamma": 2.0, "lam": 0.1, "p": 2, "V": 1e8}, {"by": "subgradient"}),
    ("adagrad", {"eta": 0.1, "delta": 0.5, "lam": 0.02}, {}),
    ("ftrl-proximal", {"R": 1.5, "lam": 0.02}, {}),
]
"""Learners, their parameters, and those of the dense recursion alone."""
L1 = [(name, parameters) for name, parameters, _ in CASES[:3]]
SCHEDULED: list[tuple[str, dict[str, Any]]] = [
    (name, parameters | {"schedule": schedule})
    for name, parameters in (
        ("cao-ftrl", {"R": 0.5, "lam": 0.2, "predict_gradient": "none"}),
        ("adagrad", {"eta": 0.5, "delta": 0.1, "lam": 0.2}),
    )
    for schedule in ("sqrt", "first")
]
HISTORY: list[tuple[str, dict[str, Any]]] = [
    (name, {"eta0": 0.5, "lam": 0.1, "p": 2, "V": 500.0, "second": "same"}) for name in ("sgft", "sgft-cumulative")
] + [("stda", {"gamma": 2.0, "lam": 0.1, "p": 2, "V": 1e8, "by": "subgradient"})]


@pytest.mark.parametrize(
    ("name", "parameters", "loss", "classes"),
    [
        *((*entry, "logistic", 2) for entry in (*L1, *SCHEDULED, *HISTORY)),
        (*L1[1], "hinge", 2),
        (*L1[0], "logistic", 3),
    ],
)
def test_sums_equal_those_of_the_dense_recursion(
    name: str, parameters: dict[str, Any], loss: str, classes: int
) -> None:
    """λα_tψ(w_t) of every round, also with the history of every coordinate (Oiwa et al. 2011, Theorem 1; 2012, (10),
    (19)); and of sampled rounds close to that, within the error that they state."""
    labels, expected = data(classes)[1], np.zeros((2, ROWS))
    alpha = np.diff(penalty_totals(parameters.get("schedule", "constant"))[: ROWS + 1])[:, None]
    for k in range(classes) if classes > 2 else [1]:
        y = np.where(labels == k, 1.0, -1.0)
        w = iterates(name, y, loss, **parameters)
        h = dense_thresholds(name, w, y) if (name, parameters) in HISTORY else alpha
        penalties = parameters["lam"] * (h * np.abs(w)).sum(axis=1)
        losses = VALUES[loss](np.einsum("ti,ti->t", data()[0], w), y)
        expected += losses.cumsum(), penalties.cumsum()
    exact = curve(name, ALL_ROUNDS, loss, classes, **parameters)
    for mark in exact:
        assert mark.exact
        assert mark.penalty_error == 0
        assert [mark.loss, mark.penalty] == pytest.approx(expected[:, mark.T - 1], rel=1e-9)
        if mark.thresholds is not None:
            np.testing.assert_allclose(mark.thresholds[:, 0], h[: mark.T].sum(axis=0), rtol=1e-9)
    if name.startswith("sgft"):
        return
    scheduled = "schedule" in parameters
    for mark, true in zip(
        curve(name, bounds.sampled_rounds(MARKS, 30), loss, classes, **parameters), exact, strict=True
    ):
        off = abs(mark.penalty - true.penalty)
        assert mark.exact == (name == "cl-fobos")  # whose penalty is summed in every round
        assert mark.loss == true.loss
        assert off <= (1e-12 + mark.penalty_error if scheduled else 0.05 * true.penalty)
    assert mark.exact or scheduled or 0 < off < 3 * mark.penalty_error


def test_a_learner_that_diverges_has_no_marks_from_there_on() -> None:
    learner = Learner("fobos", grid=[{"eta0": 5e6, "lam": 0.0}], n_features=FEATURES)
    marks = list(bounds.measure(learner, first_epoch(*data()), MARKS, ALL_ROUNDS))
    assert learner.diverged[0] > 0
    assert all(learner.diverged[0] > mark.T for mark in marks)
    assert len(marks) < len(MARKS)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=40), st.data())
def test_linear_sums(values: list[float], draw: st.DataObject) -> None:
    """With every round known, the sum itself; otherwise the sum of the interpolation."""
    last = len(values)
    known = sorted({1, last, *draw.draw(st.lists(st.integers(1, last)))})
    total = bounds.LinearSum()
    for t in known:
        total.add(t, values[t - 1])
    lines = np.interp(np.arange(1, last + 1), known, [values[t - 1] for t in known])
    assert total.total == pytest.approx(lines.sum(), rel=1e-9, abs=1e-7)


@given(st.integers(1, 10**7), st.integers(2, 40), st.integers(2, 500))
def test_rounds(n_rows: int, number: int, samples: int) -> None:
    marks = curve_marks(n_rows, number)
    assert len(marks) <= number
    assert marks == sorted(set(marks))
    assert marks[-1] == n_rows
    assert marks[0] == min(50, n_rows)
    rounds = bounds.sampled_rounds(marks, samples)
    assert rounds == sorted(set(rounds))
    assert rounds[0] == 1
    assert {*marks} <= {*rounds}
    assert len(rounds) <= samples + len(marks) + 1
    if samples >= n_rows:
        assert rounds == list(range(1, n_rows + 1))


def test_the_number_of_samples() -> None:
    assert bounds.sample_size(50, 10, 10**6) == 50
    assert bounds.sample_size(10_000, 10**4, 10**6) == 64
    assert bounds.sample_size(10_000, 10**6, 10**5) == 160
    assert bounds.sample_size(10_000, 10**9, 10**5) == 2048


def test_the_slope_of_a_power_is_its_exponent_and_its_error_that_of_least_squares() -> None:
    T = curve_marks(100_000, bounds.MARKS)
    fit: Any = fit_slope(T, [3.0 * t**0.5 for t in T], [0.0] * len(T))
    assert fit[:2] == pytest.approx((0.5, 0.0), abs=1e-9)
    assert fit.at(400) == pytest.approx(60)
    assert (fit.points, fit.first) == (6, T[6])
    rounds = 10 * 2 ** np.arange(8)
    values = rounds**0.4 * np.exp(np.random.default_rng(0).normal(0, 0.1, 8))
    expected = linregress(np.log(rounds[4:]), np.log(values[4:]))
    fit = fit_slope(rounds.tolist(), values.tolist(), [0.0] * 8)
    assert fit[:2] == pytest.approx((expected.slope, expected.stderr))


def test_uncertain_marks_are_left_out() -> None:
    T = [10, 20, 40, 80, 160, 320]
    assert fit_slope(T, [-1.0] * 6, [0.0] * 6) is None
    assert fit_slope(T, [1.0] * 6, [2.0] * 6) is None
    fit: Any = fit_slope(T, [1, 1, 1, 4, 8, 16], [0.0] * 6)
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
        ("cao-rcd", {"R": 0.5, "scale": "max_abs"}, "box", "Σ_j f_j(w), |w_i| ≤ 0.5/max_j |a_{j,i}|"),
        *(
            ("cao-ftrl", {"lam": 0.2, "R": 0.5, "schedule": schedule, "predict_gradient": "none"}, "l1", formula)
            for schedule, formula in (
                ("sqrt", "Σ_t f_t(w) + √T·λ‖w‖₁, |w_i| ≤ 0.5"),
                ("first", "Σ_t f_t(w) + λ‖w‖₁, |w_i| ≤ 0.5"),
            )
        ),
    ],
)
def test_comparators(algorithm: str, parameters: dict[str, Any], penalty: str, formula: str) -> None:
    comparator = bounds.find_comparator(algorithm, parameters, "logistic", penalty)
    assert comparator.formula == formula
    total = 100 if algorithm == "cao-rcd" else penalty_totals(parameters.get("schedule", "constant"))[100]
    assert comparator.alpha(100) == pytest.approx(parameters.get("lam", 0.0) * total)


def test_the_penalty_of_a_comparator() -> None:
    comparator = bounds.Comparator(0.3, 0.4, None, own_history=False, schedule="sqrt")
    assert comparator.penalty(9, np.array([[2.0], [-1.0]])) == pytest.approx(3 * 0.3 * (0.4 * 3 + 0.6 * 5 / 2))


@pytest.mark.parametrize(
    ("algorithm", "parameters", "loss", "penalty", "code"),
    [
        ("fobos", {"lam": 0.1}, "softmax", "l1", "unsupported-combination"),
        ("fobos", {"lam": 0.1}, "hinge", "group", "unsupported-combination"),
        ("ons", {}, "logistic", "l1", "unsupported-combination"),
        ("fobos", {"lam": 0.0}, "logistic", "l1", "no-comparator"),
    ],
)
def test_missing_comparators(algorithm: str, parameters: dict[str, Any], loss: str, penalty: str, code: str) -> None:
    with raises_code(code):
        bounds.find_comparator(algorithm, parameters, loss, penalty)


# ----------------------------------------------------------------------------------------------------------------------
# Bounds measured along a stream against those of the dense recursion; passes of weighted norms.


ALL_CASES = [pytest.param(*case, id=case[0]) for case in CASES] + [
    # λ so large that U exceeds G
    pytest.param(name, parameters | {"p": p, "lam": 8.0}, dense, id=f"{name}, p = {p}")
    for name, parameters, dense in CASES
    if "p" in parameters
    for p in (1, 3, "inf")
]


def comparators() -> dict[int, np.ndarray]:
    rng = np.random.default_rng(5)
    return {T: rng.normal(0, 1, (FEATURES, 1)) * (rng.random((FEATURES, 1)) < 0.5) for T in MARKS}


def quantities(
    name: str, parameters: dict[str, Any], w: np.ndarray, T: int, x: np.ndarray, weights: np.ndarray | None = None
) -> dict[str, float]:
    """As `bounds.QUANTITIES` says, of the dense iterates w_1 … w_T; the slope of the loss taken as 1 in G.

    With `weights` of the rows the last coordinate is the intercept.
    """
    X, labels = data()
    y, lam, each, whole = 2.0 * labels - 1, parameters["lam"], np.ones(ROWS), w
    if weights is not None:
        X, y, each = rows_of(X, weights, intercept=True), labels_of(y, weights), weights
    X, w, y, each = X[:T], w[:T], y[:T], each[:T, None]
    g = np.array([SLOPES["logistic"](a @ v, b) for a, v, b in zip(X, w, y, strict=True)])[:, None] * X
    root = np.sqrt((g**2).sum(axis=0))
    found = {
        "D": np.linalg.norm(w - x, axis=1).max(),
        "x": np.linalg.norm(x),
        "G": np.linalg.norm(each * X, axis=1).max(),
        "G_inf": np.abs(each * X).max(),
        "U": lam * np.sqrt((X[:, :FEATURES] != 0).any(axis=0).sum()),
        "n": X.shape[1],
        "spread": lam * np.abs(np.abs(w) - np.abs(x))[:, :FEATURES].sum(axis=1).max(),
        "S": lam * np.abs(w[:, :FEATURES]).max(),
        "Delta": root.sum(),
        "root": root.sum(),
        "x_root": ((parameters.get("delta", 0.0) + root) * x**2).sum(),
    }
    X, w = X[:, :FEATURES], w[:, :FEATURES]
    if name in ("sgft", "stda"):
        h = dense_thresholds(name, whole, 2.0 * labels - 1, weights, parameters["p"])[T - 1]
        found |= {"U": lam * np.linalg.norm(h), "peak": lam * (h * np.abs(w).max(axis=0)).sum()}
    if name == "cl-fobos":
        steps, last = 1 / np.sqrt(np.arange(1, T + 1)), np.zeros(FEATURES, int)
        charges, gaps = [], []
        for t in range(1, T + 1):
            here = np.flatnonzero(X[t - 1])
            charges.append(np.linalg.norm([steps[last[i] : t].sum() / steps[t - 1] for i in here]))
            gaps += [t - last[i] for i in here]
            last[here] = t
        found |= {"U": lam * max(charges), "K": max(gaps + [T - last[i] for i in np.flatnonzero(last)])}
    return found


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weights and an intercept"])
@pytest.mark.parametrize(("name", "parameters", "dense"), ALL_CASES)
def test_bounds_equal_those_of_the_dense_recursion(
    name: str, parameters: dict[str, Any], dense: dict[str, Any], weighted: bool
) -> None:
    (X, labels), x, b, weights = data(), comparators(), None, None
    w = iterates(name, 2.0 * labels - 1, "logistic", **parameters, **dense)
    if weighted:
        weights = np.random.default_rng(9).choice([0.0, 0.37, 1.0, 2.9], ROWS)
        b = {T: np.array([0.1 * T / ROWS + 0.3]) for T in MARKS}
        rows, y = rows_of(X, weights, intercept=True), labels_of(2.0 * labels - 1, weights)
        own = unpenalised(parameters | dense, FEATURES + 1)
        w = np.array([np.zeros(FEATURES + 1), *ORACLES[name](rows, y, "logistic", **own)][:ROWS])
    learner = Learner(name, grid=[parameters], n_features=FEATURES, intercept=weighted)
    bound = bound_of(name, learner.configurations[0])
    rounds = bounds.FirstEpoch(MatrixRows(sp.csr_matrix(X), labels, weights), Order())
    measured = dict(bounds.measure_bounds(learner, rounds, ALL_ROUNDS, x, b))
    assert list(measured) == MARKS
    for T in MARKS:
        full = x[T][:, 0] if b is None else np.append(x[T][:, 0], b[T])
        expected = bound.value(T, quantities(name, parameters, w, T, full, weights))
        assert measured[T] == pytest.approx(float(expected), rel=1e-9)


def test_an_intercept_without_a_penalty_keeps_its_regularizer() -> None:
    """The bound of regularizer = none has 4RΔ of the intercept; regret exceeds what is left without that."""
    R, lam = 0.5, 500.0
    grid = [{"R": R, "lam": lam, "regularizer": "none", "predict_gradient": "none"}]
    X, labels = 0.01 * data()[0], np.ones(ROWS, np.int64)
    learner, new = (Learner("cao-ftrl", penalty="l2", grid=grid, n_features=FEATURES, intercept=True) for _ in "ab")
    incurred, squares = 0.0, 0.0
    for row in X:
        w, b = learner.weights()[:, 0], learner.intercepts()[0, 0]
        incurred += np.logaddexp(0, -(row @ w + b)) + lam * w @ w / 2
        squares += SLOPES["logistic"](row @ w + b, 1.0) ** 2
        learner.partial_fit(sp.csr_matrix(row[None]), labels[:1])
    x, b = {ROWS: np.zeros((FEATURES, 1))}, {ROWS: np.array([R])}
    measured = dict(bounds.measure_bounds(new, first_epoch(X, labels), ALL_ROUNDS, x, b))[ROWS]
    features = FEATURES * (1 + np.log(ROWS)) / lam
    assert measured == pytest.approx(features + 4 * R * np.sqrt(squares), rel=1e-9)
    assert features < incurred - ROWS * np.logaddexp(0, -R) <= measured


def test_bounds_add_up_over_outputs_and_samples_lower_them() -> None:
    X, y = data(3)
    grid = [{"lam": 0.02}]
    x = {ROWS: np.random.default_rng(1).normal(0, 0.1, (FEATURES, 3))}

    def measured(samples: list[int], labels: np.ndarray, classes: int, of: dict[int, np.ndarray]) -> float:
        learner = Learner("fobos", grid=grid, n_features=FEATURES, n_classes=classes)
        return dict(bounds.measure_bounds(learner, first_epoch(X, labels), samples, of))[ROWS]

    single = [measured(ALL_ROUNDS, (y == k).astype(int), 2, {ROWS: x[ROWS][:, k : k + 1]}) for k in range(3)]
    assert measured(ALL_ROUNDS, y, 3, x) == pytest.approx(sum(single))
    fewer = measured(bounds.sampled_rounds([ROWS], 10), y, 3, x)
    assert 0.8 * sum(single) < fewer <= sum(single)


def test_unmeasured_quantities_have_a_reason() -> None:
    fobos = regret_bound("fobos", {"eta0": 0.5, "lam": 0.1, "step": "sqrt"})
    assert bounds.measurable(fobos, "hinge") is fobos
    assert "grow with the margin" in bounds.measurable(fobos, "squared_hinge").why
    lazy = regret_bound("cl-fobos", {"eta0": 0.5, "lam": 0.1, "step": "sqrt"})
    assert bounds.measurable(lazy, "logistic") is lazy
    assert isinstance(bounds.measurable(lazy, "hinge"), NoBound)
    learner = Learner("cumulative-l1", grid=[{"lam": 0.1}], n_features=FEATURES)
    assert list(bounds.measure_bounds(learner, first_epoch(*data()), ALL_ROUNDS, comparators())) == []


def test_a_learner_that_diverges_has_no_bounds_from_there_on() -> None:
    learner = Learner("rda", grid=[{"gamma": 1e-9, "lam": 0.0}], n_features=FEATURES)
    assert list(bounds.measure_bounds(learner, first_epoch(*data()), ALL_ROUNDS, comparators())) == []
    assert 0 < learner.diverged[0] <= MARKS[0]


def test_the_optimum_for_tiny_thresholds_is_certified() -> None:
    """A learner that is sure of every example of a feature has an h of almost 0 there."""
    X, labels = data()
    h = np.random.default_rng(2).uniform(0.1, 3, (FEATURES, 1)) * ROWS
    h[:3] = [[1e-140], [1e-30], [0.0]]
    passes = LocalPasses.of(sp.csr_matrix(X), labels.astype(np.float64))
    comparator = bounds.Comparator(0.05, 1.0, None, own_history=True)
    problem = comparator_problem("logistic", (1,), comparator, ROWS)
    found = find_optimum(passes, problem, 1e-4, weight_factors(h, ROWS))
    at_zero = ROWS * np.log(2)
    assert found.gap <= 1e-4 * at_zero
    y, a = 2.0 * labels - 1, 0.05 * h[:, 0]
    w = found.weights[:, 0]
    value = np.logaddexp(0, -y * (X @ w)).sum() + a @ np.abs(w)
    assert found.objective - 1e-3 * at_zero <= value <= found.objective
    assert np.abs(w[:3]).min() > 0.3


@pytest.mark.parametrize("name", ["fobos", "cl-fobos"])
def test_bounds_of_steps_in_proportion_to_1_over_t(name: str) -> None:
    """With an intercept, whose distance from the comparator's is a quantity; U is of elastic net."""
    X, labels = data()
    lam, ratio, b = 0.4, 0.5, 0.7
    grid = [{"eta0": 5.0, "lam": lam, "step": "inverse", "l1_ratio": ratio}]
    learner, again = (
        Learner(name, penalty="elastic_net", grid=grid, n_features=FEATURES, intercept=True) for _ in range(2)
    )
    x = np.random.default_rng(1).normal(0, 0.1, FEATURES)
    w = []
    for row, label in zip(sp.csr_matrix(X), labels, strict=True):
        w.append(np.append(again.weights(), again.intercepts()))
        again.partial_fit(row, [label])
    iterates, full = np.array(w), np.append(x, b)
    last, K = np.zeros(FEATURES, int), 0
    for t, row in enumerate(X != 0, start=1):
        K = max(K, (t - last)[row].max(initial=0))
        last[row] = t
    seen = np.sqrt(np.count_nonzero(last))
    found = {
        "x": np.linalg.norm(full),
        "D": np.linalg.norm(iterates - full, axis=1).max(),
        "D_b": np.abs(iterates[:, -1] - b).max(),
        "G": np.linalg.norm(np.hstack([X, np.ones((ROWS, 1))]), axis=1).max(),
        "U": lam * (ratio * seen + (1 - ratio) * np.linalg.norm(iterates[:, :-1], axis=1).max()),
        "K": max(K, (ROWS - last)[last > 0].max()),
    }
    bound = bound_of(name, learner.configurations[0], "elastic_net")
    measured = dict(
        bounds.measure_bounds(learner, first_epoch(X, labels), ALL_ROUNDS, {ROWS: x[:, None]}, {ROWS: np.array([b])})
    )
    assert measured[ROWS] == pytest.approx(float(bound.value(ROWS, found)), rel=1e-9)
