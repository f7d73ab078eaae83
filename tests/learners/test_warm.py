"""Learners that start from weights have them and continue as the dense recursion does; what learners measure.

test_invariance has that they continue with the same bits.
"""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sparseoco.learners import ALGORITHMS
from sparseoco.training.learner import Learner
from tests.learners.cases import FEATURES, PENALISED, ROWS, Case, at_a_jump, hard_configurations, labels, rows
from tests.oracles.losses import SLOPES, VALUES
from tests.oracles.stream import ORACLES
from tests.support.errors import raises_code

pytestmark = pytest.mark.formulas
PRIMAL = {"subgradient", "fobos", "sg-l1", "l-fobos", "cl-fobos", "cumulative-l1", "sgft", "sgft-cumulative"}


def case_of(name: str, penalty: str, kind: str) -> Case:
    return Case(name, penalty, "hinge", "classes" if penalty == "group" else kind)


def new(case: Case) -> Learner:
    """Before its first row, with nothing given."""
    return Learner(**case.new().description)


@pytest.fixture(scope="module")
def given_weights() -> np.ndarray:
    """Of which a third are zero and some beyond a box of 0.1; a feature in five has none."""
    rng = np.random.default_rng(5)
    weights = rng.normal(0, 0.1, (FEATURES, 3))
    weights[rng.random(weights.shape) < 0.3] = 0.0
    weights[::5] = 0.0
    return weights


@pytest.mark.parametrize(
    ("name", "penalty", "kind", "rounds"),
    [
        (name, penalty, kind, (1, 1000)[number // 2 % 2])
        for number, (name, penalty) in enumerate(PENALISED)
        for turn, kind in enumerate(("two classes", "label sets"))
        if ALGORITHMS[name].penalties == ("l1",) or number % 2 == turn  # a kind of labels in turn
    ],
)
def test_weights_are_those_given(name: str, penalty: str, kind: str, rounds: int, given_weights: np.ndarray) -> None:
    """And intercepts, and what is in a box of the learner is; label sets are learned in float32."""
    case = case_of(name, penalty, kind)
    learner = new(case)
    weights, many = given_weights[:, : learner.n_outputs], len(case.grid)
    R = np.repeat([entry.get("R", np.inf) for entry in learner.configurations], learner.n_outputs)
    R = R * (1 - 2.0**-10) if name == "optimistic-ftrl" else R  # its barrier is infinite at the wall
    expected = np.clip(np.tile(weights, many), -R, R)
    intercepts = np.tile(np.linspace(-0.009, 0.009, learner.n_outputs), (many, 1)) if learner.intercept else None
    assert not learner.decision_function(rows()).any()
    assert learner.start_from(weights, rounds, intercepts) is learner
    near = {"rtol": 1e-12} if learner.dtype == np.float64 else {"rtol": 1e-4, "atol": 1e-6}
    if name in PRIMAL:
        assert learner.weights().tobytes() == expected.astype(learner.dtype).tobytes()
    else:
        np.testing.assert_allclose(learner.weights(), expected, **near)
    np.testing.assert_allclose(learner.intercepts(), 0.0 if intercepts is None else intercepts, **near)
    assert (learner.weights()[expected == 0] == 0).all()
    margins = (rows() @ expected).reshape(ROWS, many, -1) + learner.intercepts()
    np.testing.assert_allclose(learner.decision_function(rows()), margins, rtol=1e-4, atol=1e-5)
    assert learner.progress.rows == 0
    case.learn(learner, 0, ROWS)
    assert learner.progress.rows == ROWS
    assert learner.rounds == ROWS + rounds
    assert np.isfinite(learner.weights()).all()


@pytest.mark.parametrize(("name", "penalty"), PENALISED)
def test_slots_of_weights_that_are_zero_are_those_of_features_never_seen(
    name: str, penalty: str, given_weights: np.ndarray
) -> None:
    """But for clocks: a feature whose weights are all zero learns as one that a learner of many rows never saw."""
    case = case_of(name, penalty, "two classes")
    learner, rested = new(case), new(case)
    learner.start_from(given_weights[:, : learner.n_outputs], 50)
    rested.partial_fit(sp.csr_matrix((50, FEATURES)), np.zeros(50, int))
    for (_, block), (_, fresh) in zip(learner._blocks, rested._blocks, strict=True):
        np.testing.assert_array_equal(block.clock[:9], fresh.clock[:9])
        np.testing.assert_array_equal(block.per_column_sums, fresh.per_column_sums)
        if not block.per_column_sums.size:  # P of the penalty's decay is a clock, kept among the slots
            np.testing.assert_array_equal(block.state[:FEATURES:5], fresh.state[:FEATURES:5])


def last_row_of(oracle: Any, rows: int, weights: np.ndarray, parameters: dict[str, Any], touched: float) -> np.ndarray:
    """The one row that takes the recursion from nothing to these weights at that round, found by bisection; `touched`
    where they are 0."""
    low, high = np.full(weights.size, -1e6), np.full(weights.size, 1e6)
    for _ in range(60):
        middle = (low + high) / 2
        X = np.zeros((rows, weights.size))
        X[-1] = middle
        *_, w = oracle(X, np.ones(rows), "given", **parameters)
        low, high = np.where(w > weights, middle, low), np.where(w > weights, high, middle)
    return np.where(weights == 0, touched, high)


@pytest.mark.parametrize(
    ("name", "penalty"),
    [
        (name, penalty)
        for name, penalty in PENALISED
        if name in (PRIMAL - {"sgft", "sgft-cumulative"}) | {"rda"} and penalty != "group"
    ],
)
@settings(max_examples=6, deadline=None)
@given(data=st.data(), loss=st.sampled_from(["hinge", "logistic"]))
def test_it_continues_as_the_dense_recursion(name: str, penalty: str, data: st.DataObject, loss: str) -> None:
    rows = data.draw(st.integers(1, 8))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    parameters = data.draw(hard_configurations(ALGORITHMS[name], penalty))
    parameters |= {"model": "linear"} if "model" in parameters else {}  # the rows before are slopes, without a loss
    weights = rng.normal(0, 0.5, 6).clip(-0.9 * parameters.get("R", 9), 0.9 * parameters.get("R", 9))
    if penalty == "l1":  # others have no row that leaves 0 at 0
        weights[rng.random(6) < 0.3] = 0.0
    X = rng.normal(0, 1, (25, 6)) * (rng.random((25, 6)) < 0.3)
    y = rng.integers(0, 2, 25)
    grid = [parameters, parameters]
    learner = Learner(name, loss=loss, penalty=penalty, grid=grid, n_features=6)
    learner.start_from(weights[:, None], rows)
    own = parameters if penalty == "l1" else parameters | {"penalty": penalty}
    before = np.zeros((rows, 6))
    touched = 1e-9 if name == "cl-fobos" and parameters.get("lam") else 0.0  # it owes nothing for the rounds before
    before[-1] = last_row_of(ORACLES[name], rows, weights, own, touched)
    slopes = np.ones(rows + 25)  # set for the oracle from its own margins
    oracle = ORACLES[name](np.vstack([before, X]), slopes, "given", **own)
    for _ in range(rows):
        w = next(oracle)
    assume(np.allclose(w, weights, atol=1e-9))  # else a charge larger than any row in reach
    for t, x in enumerate(X):
        slopes[rows + t] = SLOPES[loss](x @ w, 2.0 * y[t] - 1)
        last, w = w, next(oracle)
        assume(np.abs(w).max() < 1e4)
        assume(not at_a_jump(name, last[:, None], w[:, None]))
        learner.partial_fit(sp.csr_matrix(x[None]), y[t : t + 1])
        np.testing.assert_allclose(learner.weights()[:, 0], w, rtol=1e-8, atol=1e-8)


def test_rounds_are_counted_from_the_start(given_weights: np.ndarray) -> None:
    warm, cold = (Learner("fobos", loss="squared", grid={"eta0": 1e9}, n_features=FEATURES) for _ in range(2))
    warm.start_from(given_weights[:, :1], 2).partial_fit(rows(), labels("two classes"))
    assert 0 < warm.diverged[0] <= cold.partial_fit(rows(), labels("two classes")).diverged[0] + 1
    mean = Learner("cl-fobos", loss="squared", grid={"average": "iterates", "eta0": 1.0, "lam": 0.0}, n_features=1)
    assert mean.start_from([[2.0]], 3).weights()[0, 0] == 2.0
    mean.partial_fit(sp.csr_matrix([[1.0]]), [1])  # x_4 = 2, x_5 = 2 − (2 − 1)/√4
    assert mean.partial_fit(sp.csr_matrix([[0.0]]), [1]).weights()[0, 0] == pytest.approx((4 * 2.0 + 1.5) / 5)


def test_what_does_not_fit_is_refused(given_weights: np.ndarray) -> None:
    def group(dtype: str = "float64") -> Learner:
        return Learner("fobos", penalty="group", grid=[{}, {}], n_features=FEATURES, n_classes=3, dtype=dtype)

    weights, learner = given_weights, group()
    for count in (0, -1, 2.5, True):
        with raises_code("invalid-option", f"rows={count!r}"):
            learner.start_from(weights, count)
    for bad in (weights[:, 0], weights[:5], weights[:, :2], weights.astype(str)):
        with raises_code("invalid-weights", bad.shape, (FEATURES, 3), (FEATURES, 6)):
            learner.start_from(bad, 10)
    for value in (np.nan, np.inf, -np.inf):
        worse = weights.copy()
        worse[3, 1] = value
        with raises_code("invalid-weights", "float64"):
            learner.start_from(worse, 10)
    with raises_code("invalid-weights", "float32"):
        group("float32").start_from(weights * 1e60, 10)
    with raises_code("invalid-weights"):
        learner.start_from(weights, 10, np.ones((2, 3)))  # it has no intercepts
    assert not learner.weights().any()
    with raises_code("already-learned"):
        learner.partial_fit(rows()[:1], [0]).start_from(weights, 10)
    with raises_code("already-learned"):
        group().start_from(weights, 10).start_from(weights, 10)


# ----------------------------------------------------------------------------------------------------------------------
# What a learner measures: losses, R̄(T) and nonzero weights.


ROUNDS, MARKS = 90, (0, 1, 7, 40, 90)
EXACT: dict[str, dict[str, Any]] = {
    "cl-fobos": {},
    "l-fobos": {"K": 7},
    "cumulative-l1": {},
    "sgft-cumulative": {"p": 1},
}
"""Learners whose iterate is stored."""


@pytest.fixture(scope="module")
def data() -> tuple[sp.csr_matrix, np.ndarray]:
    rng = np.random.default_rng(8)
    return sp.csr_matrix(rng.normal(0, 1, (ROUNDS, 9)) * (rng.random((ROUNDS, 9)) < 0.3)), rng.integers(0, 2, ROUNDS)


def sums(data: tuple, name: str, loss: str, parameters: dict[str, Any]) -> np.ndarray:
    """T·R̄(T) for T = 0 … ROUNDS, of the dense iterates."""
    X, signs = data[0].toarray(), 2.0 * data[1] - 1
    iterates = [np.zeros(9), *ORACLES[name](X, signs, loss, **parameters)][:ROUNDS]
    rounds = zip(X, signs, iterates, strict=True)
    return np.cumsum([0.0, *(VALUES[loss](x @ w, b) + parameters["lam"] * np.abs(w).sum() for x, b, w in rounds)])


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize("name", EXACT)
def test_the_average_objective_is_exact_where_the_iterate_is_stored(name: str, loss: str, data: tuple) -> None:
    grid = [{"lam": lam, **EXACT[name]} for lam in (0.0, 1e-3, 0.05, 2.0)]
    learner = Learner(name, loss=loss, grid=grid, n_features=9, objective=True)
    expected = [sums(data, name, loss, parameters) for parameters in learner.configurations]
    for start, stop in zip((0, *MARKS[:-1]), MARKS, strict=True):
        found = learner.partial_fit(data[0][start:stop], data[1][start:stop]).measure()
        assert found.rows == stop
        totals = [own[stop] for own in expected]
        np.testing.assert_allclose(found.objective * stop, totals, rtol=1e-10, atol=1e-12)
    assert found.nonzeros.tolist() == learner.nonzeros().tolist()


@pytest.mark.parametrize("average", ["none", "iterates"])
@pytest.mark.parametrize("name", EXACT)
def test_objectives_of_weighted_rows_after_a_start_leave_the_intercept_out(
    name: str, average: str, data: tuple
) -> None:
    """R̄(T) is of the iterates also where their mean is what is read."""
    X, y = data
    mean = {"average": average} if name == "cl-fobos" else {}
    arguments: dict[str, Any] = {"n_features": 9, "intercept": True}
    learner = Learner(name, grid=[{"lam": 0.01, **EXACT[name], **mean}], objective=True, **arguments)
    watched = Learner(name, grid=[{"lam": 0.01, **EXACT[name]}], **arguments)
    weights, total = np.linspace(0, 2, ROUNDS), 0.0
    for each in (learner, watched):
        each.start_from(np.linspace(-0.1, 0.1, 9)[:, None], 100, [0.05])
    for t in range(ROUNDS):
        total += 0.01 * np.abs(watched.weights()).sum()
        watched.partial_fit(X[t], y[t : t + 1], weights[t : t + 1])
    found = learner.partial_fit(X, y, weights).measure()
    assert found.rows == ROUNDS
    assert found.progressive_loss[0] == pytest.approx(watched.weighted_loss_sum[0] / ROUNDS)
    assert found.objective[0] == pytest.approx((total + watched.weighted_loss_sum[0]) / ROUNDS, rel=1e-10)
    assert found.penalty[0] == pytest.approx(0.01 * np.abs(learner.weights()).sum())
    assert found.nonzeros[0] == np.count_nonzero(learner.weights()) == learner.nonzeros()[0]


def test_elsewhere_there_is_no_objective(data: tuple) -> None:
    learner = Learner("fobos", grid={"lam": [0.01]}, n_features=9, objective=True)
    found = learner.partial_fit(*data).measure()
    assert np.isnan(found.objective).all()
    assert found.penalty[0] == pytest.approx(0.01 * np.abs(learner.weights()).sum())
