"""Learners that start from weights have those weights, and continue as the dense recursion does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sparseoco.learners import ALGORITHMS, streaming
from sparseoco.learners.penalties import PENALTIES
from sparseoco.training.learner import Learner
from tests.learners.checks import TOLERANCE, at_a_jump
from tests.learners.streams import PENALISED, configurations
from tests.oracles.stream import ORACLES, SLOPES
from tests.support.errors import raises_code

pytestmark = pytest.mark.formulas
FEATURES, ROWS = 40, 120
PRIMAL = {"subgradient", "fobos", "sg-l1", "l-fobos", "cl-fobos", "cumulative-l1", "sgft", "sgft-cumulative"}
GRIDS: dict[str, list[dict[str, Any]]] = {
    "l-fobos": [{"K": 7}],
    "stda": [{"by": by} for by in ("subgradient", "feature")],
    "adagrad": [{"predict_gradient": predict} for predict in ("none", "last", "mean")] + [{"schedule": "sqrt"}],
    "optimistic-ftrl": [{"predict_gradient": predict} for predict in ("none", "last", "mean")],
    "cao-ftrl": [{"predict_gradient": predict} for predict in ("none", "last", "mean")]
    + [{"regularizer": regularizer, "schedule": "sqrt"} for regularizer in ("centred", "none")],
}


@pytest.fixture(scope="module")
def data() -> tuple[sp.csr_matrix, np.ndarray, np.ndarray]:
    """Rows, labels of two classes, and weights of which a third are zero and some beyond a box of 0.1."""
    rng = np.random.default_rng(5)
    X = sp.csr_matrix(rng.integers(1, 4, (ROWS, FEATURES)) * (rng.random((ROWS, FEATURES)) < 0.15))
    weights = rng.normal(0, 0.1, (FEATURES, 3))
    weights[rng.random(weights.shape) < 0.3] = 0.0
    weights[::5] = 0.0
    return X, rng.integers(0, 2, ROWS), weights


def new(name: str, penalty: str, grid: Any = None, dtype: str = "float64", objective: bool = False) -> Learner:
    """Of one output, or of three where the penalty needs them."""
    loss = "hinge" if penalty in ("l1", "group") else "logistic"
    grid = GRIDS.get(name, [{}, {}]) if grid is None else grid
    classes = 3 if penalty == "group" else 2
    return Learner(
        name,
        loss=loss,
        penalty=penalty,
        grid=grid,
        n_features=FEATURES,
        n_classes=classes,
        dtype=dtype,
        objective=objective,
    )


@pytest.mark.parametrize(("name", "penalty"), PENALISED)
@pytest.mark.parametrize("rows", [1, 1000])
def test_weights_are_those_given(name: str, penalty: str, rows: int, data: tuple) -> None:
    X, y, weights = data
    learner = new(name, penalty)
    weights = weights[:, : learner.n_outputs]
    many = len(learner.configurations)
    own = learner.configurations[0]
    # What the learner can hold: those beyond its box are at the wall.
    expected = np.tile(np.clip(weights, -own["R"], own["R"]) if "R" in own else weights, many)
    assert learner.start_from(weights, rows) is learner
    if name in PRIMAL:
        assert learner.weights().tobytes() == expected.tobytes()
    else:
        np.testing.assert_allclose(learner.weights(), expected, rtol=1e-12)
    assert (learner.weights()[expected == 0] == 0).all()
    assert learner.progress.rows == 0
    learner.partial_fit(X, y)
    assert learner.progress.rows == ROWS
    assert np.isfinite(learner.weights()).all()
    assert not learner.diverged.any()


@pytest.mark.parametrize(("name", "penalty"), PENALISED)
def test_slots_of_weights_that_are_zero_are_those_of_features_never_seen(name: str, penalty: str, data: tuple) -> None:
    """But for clocks: a feature whose weights are all zero learns as one that a learner of many rows never saw."""
    learner, rested = new(name, penalty), new(name, penalty)
    learner.start_from(data[2][:, : learner.n_outputs], 50)
    rested.partial_fit(sp.csr_matrix((50, FEATURES)), np.zeros(50, int))
    for (_, block), (_, fresh) in zip(learner._blocks, rested._blocks, strict=True):
        np.testing.assert_array_equal(block.clock[:9], fresh.clock[:9])
        np.testing.assert_array_equal(block.per_column_sums, fresh.per_column_sums)
        if not block.per_column_sums.size:  # P of the penalty's decay is a clock, kept among the slots
            np.testing.assert_array_equal(block.state[::5], fresh.state[::5])


@pytest.mark.parametrize(("name", "penalty"), PENALISED)
def test_the_same_bits_for_any_cut_and_company(name: str, penalty: str, data: tuple, tmp_path: Path) -> None:
    X, y, weights = data
    grid = [entry | {"lam": lam} for entry in GRIDS.get(name, [{}]) for lam in (1e-4, 1e-2)]
    if "lam" not in new(name, penalty).configurations[0]:
        grid = GRIDS.get(name, [{}]) * 2
    whole = new(name, penalty, grid)
    weights = weights[:, : whole.n_outputs]
    whole.start_from(weights, 300).partial_fit(X, y)
    each = np.tile(weights, len(grid))
    pieces = new(name, penalty, grid).start_from(each, 300)
    for a in range(0, ROWS, 31):
        pieces.save(tmp_path / "state")
        pieces = Learner.load(tmp_path / "state").partial_fit(X[a : a + 31], y[a : a + 31])
    assert pieces.weights().tobytes() == whole.weights().tobytes()
    assert pieces.progress.loss_sum.tobytes() == whole.progress.loss_sum.tobytes()
    assert pieces.progress.rows == ROWS
    alone = new(name, penalty, grid[1:2]).start_from(weights, 300)
    chosen = new(name, penalty, grid).start_from(weights, 300).select([1])
    for learner in (alone, chosen):
        assert learner.partial_fit(X, y).weights().tobytes() == whole.weights_of(1).tobytes()


@pytest.mark.parametrize("name", streaming())
def test_float32(name: str, data: tuple) -> None:
    X, y, weights = data
    weights = weights[:, :1]
    learner = new(name, "l1", [{}], "float32")
    R = learner.configurations[0].get("R", np.inf)
    learner.start_from(weights, 10_000)
    np.testing.assert_allclose(learner.weights(), np.clip(weights, -R, R), rtol=1e-4, atol=1e-6)
    assert np.isfinite(learner.partial_fit(X, y).weights()).all()


def last_row_of(oracle: Any, rows: int, weights: np.ndarray, parameters: dict[str, Any], touched: float) -> np.ndarray:
    """The one row that takes the recursion from nothing to these weights at that round, found by bisection; `touched`
    where they are 0."""
    low, high = np.full(weights.size, -1e6), np.full(weights.size, 1e6)
    for _ in range(110):
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
@pytest.mark.parametrize("loss", ["hinge", "logistic"])
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_it_continues_as_the_dense_recursion(name: str, penalty: str, loss: str, data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 8))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    parameters = data.draw(configurations(ALGORITHMS[name].under(PENALTIES[penalty])))
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


@pytest.mark.parametrize("name", ["stda", "sgft", "sgft-cumulative"])
@pytest.mark.parametrize("p", [1, 1.5, 3, "inf"])
def test_every_norm(name: str, p: Any, data: tuple) -> None:
    X, y, weights = data
    learner = new(name, "l1", [{"p": p, "lam": lam} for lam in (0.0, 0.01)]).start_from(weights[:, :1], 40)
    np.testing.assert_allclose(learner.weights(), weights[:, [0, 0]], rtol=1e-12)
    assert np.isfinite(learner.partial_fit(X, y).weights()).all()


@pytest.mark.parametrize("name", ["cl-fobos", "l-fobos", "cumulative-l1"])
def test_an_exact_objective_continues(name: str, data: tuple) -> None:
    X, y, weights = data
    learner = new(name, "l1", [{"lam": 0.01}], objective=True).start_from(weights[:, :1], 100)
    watched = new(name, "l1", [{"lam": 0.01}]).start_from(weights[:, :1], 100)
    total = 0.0
    for t in range(ROWS):
        total += 0.01 * np.abs(watched.weights()).sum()
        watched.partial_fit(X[t], y[t : t + 1])
    learner.partial_fit(X, y).mark()
    assert learner.history.exact.all()
    assert learner.history.rows.tolist() == [ROWS]
    expected = (total + watched.progress.loss_sum[0]) / ROWS
    assert learner.history.objective[0, 0] == pytest.approx(expected, rel=TOLERANCE["rtol"])


def test_rounds_are_counted_from_the_start(data: tuple) -> None:
    X, y, weights = data
    learner = Learner("fobos", loss="squared", grid={"eta0": 1e9}, n_features=FEATURES)
    cold = Learner("fobos", loss="squared", grid={"eta0": 1e9}, n_features=FEATURES)
    learner.start_from(weights[:, :1], 2)
    assert 0 < learner.partial_fit(X, y).diverged[0] <= cold.partial_fit(X, y).diverged[0] + 1


def test_what_does_not_fit_is_refused(data: tuple) -> None:
    X, y, weights = data
    learner = new("fobos", "group", [{}, {}])
    for rows in (0, -1, 2.5, True):
        with raises_code("invalid-option", f"rows={rows!r}"):
            learner.start_from(weights, rows)
    for bad in (weights[:, 0], weights[:5], weights[:, :2], weights.astype(str)):
        with raises_code("invalid-weights", bad.shape, (40, 3), (40, 6)):
            learner.start_from(bad, 10)
    for value in (np.nan, np.inf, -np.inf):
        worse = weights.copy()
        worse[3, 1] = value
        with raises_code("invalid-weights", "float64"):
            learner.start_from(worse, 10)
    with raises_code("invalid-weights", "float32"):
        new("fobos", "group", [{}], "float32").start_from(weights * 1e60, 10)
    assert not learner.weights().any()
    with raises_code("already-learned"):
        learner.partial_fit(X[:1], y[:1]).start_from(weights, 10)
    with raises_code("already-learned"):
        new("fobos", "group").start_from(weights, 10).start_from(weights, 10)
