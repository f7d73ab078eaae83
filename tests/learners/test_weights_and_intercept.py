"""Sample weights, and the intercept, a feature of every row that no penalty sees; test_battery has dense iterates."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from sparseoco.learners import dense_learners, streaming
from sparseoco.training.learner import Learner
from tests.learners.grids import FEATURES, ROWS, configurations
from tests.support.errors import raises_code

pytestmark = pytest.mark.formulas


def parts(learner: Learner) -> list[bytes]:
    arrays = (learner.weights(), learner.intercepts(), *learner.progress, learner.weighted_loss_sum)
    return [np.asarray(array).tobytes() for array in arrays]


@pytest.mark.parametrize("name", streaming())
def test_no_bit_depends_on_cuts_company_saving_or_growth(name: str, data: tuple, tmp_path: Path) -> None:
    X, y = data
    weights = np.random.default_rng(5).choice([0.0, 0.3, 1.0, 4.0], ROWS)
    four = configurations(name)

    def new(among: list[dict[str, Any]], features: int = FEATURES) -> Learner:
        return Learner(name, loss="hinge", grid=among, n_features=features, intercept=True)

    whole = new(four).partial_fit(X, y, weights)
    assert whole.intercepts().all()
    cut = new(four)
    for a in range(0, ROWS, 37):
        cut.save(tmp_path / "state")
        rows = slice(a, a + 37)
        cut = Learner.load(tmp_path / "state").partial_fit(X[rows], y[rows], weights[rows])
    assert parts(cut) == parts(whole)
    many = new(four * 2).partial_fit(X, y, weights)
    assert parts(many.select(range(4, 8))) == parts(whole)
    grown = new(four).partial_fit(X[:60], y[:60], weights[:60])
    grown.save(tmp_path / "state")
    grown = Learner.load(tmp_path / "state", n_features=FEATURES + 3)
    wide = sp.csr_matrix((X.data, X.indices, X.indptr), (ROWS, FEATURES + 3))
    grown.partial_fit(wide[60:], y[60:], weights[60:])
    assert grown.intercepts().tobytes() == whole.intercepts().tobytes()
    assert grown.weights()[:FEATURES].tobytes() == whole.weights().tobytes()


@pytest.mark.parametrize("name", ["adagrad", "cl-fobos", "arow", "passive-aggressive"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ones_weigh_nothing_and_zeros_are_rows_without_features(name: str, dtype: str, data: tuple) -> None:
    X, y = data

    def new() -> Learner:
        return Learner(name, loss="hinge", grid=configurations(name), n_features=FEATURES, dtype=dtype)

    assert parts(new().partial_fit(X, y)) == parts(new().partial_fit(X, y, np.ones(ROWS)))
    zero = np.arange(ROWS) % 3 == 0
    empty = sp.diags_array((~zero).astype(float)) @ X
    empty = sp.csr_matrix(empty)
    empty.eliminate_zeros()
    weighed, emptied = new().partial_fit(X, y, ~zero), new().partial_fit(empty, y)
    assert weighed.weights().tobytes() == emptied.weights().tobytes()
    assert weighed.rounds == ROWS


@pytest.mark.parametrize("name", streaming())
def test_starting_from_weights_and_intercepts(name: str) -> None:
    grid = configurations(name)
    rng = np.random.default_rng(3)
    weights, intercepts = rng.uniform(-0.009, 0.009, (FEATURES, 4)), rng.uniform(-0.009, 0.009, (4, 1))
    learner = Learner(name, loss="hinge", grid=grid, n_features=FEATURES, intercept=True)
    learner.start_from(weights, 7, intercepts)
    np.testing.assert_allclose(learner.weights(), weights, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(learner.intercepts(), intercepts, rtol=1e-9, atol=1e-12)
    with raises_code("invalid-weights"):
        Learner(name, loss="hinge", n_features=3).start_from(np.ones((3, 1)), 1, [0.1])


def test_marks_leave_the_intercept_out_and_weigh_losses(data: tuple) -> None:
    X, y = data
    weights = np.linspace(0, 2, ROWS)
    for name in ("cl-fobos", "l-fobos"):
        learner = Learner(name, grid={"lam": 1e-2}, n_features=FEATURES, intercept=True, objective=True)
        penalty = 0.0
        for t in range(ROWS):
            penalty += 1e-2 * np.abs(learner.weights()).sum()
            learner.partial_fit(X[t], y[t : t + 1], weights[t : t + 1])
        learner.mark()
        history = learner.history
        assert history.exact.all()
        assert history.progressive_loss[0, 0] == pytest.approx(learner.weighted_loss_sum[0] / ROWS)
        assert history.objective[0, 0] - history.progressive_loss[0, 0] == pytest.approx(penalty / ROWS)
        assert history.penalty[0, 0] == pytest.approx(1e-2 * np.abs(learner.weights()).sum())
        assert history.nonzeros[0, 0] == np.count_nonzero(learner.weights()) == learner.nonzeros()[0]


@pytest.mark.parametrize(("name", "penalty"), [*((name, "l1") for name in dense_learners()), ("fobos", "box")])
def test_convex_sets_leave_no_room_for_an_intercept(name: str, penalty: str) -> None:
    with raises_code("unsupported-combination"):
        Learner(name, penalty=penalty, n_features=3, intercept=True)


@pytest.mark.parametrize("bad", [[1.0], [1.0, -0.5], [1.0, np.nan], [1.0, np.inf], ["a", "b"]])
def test_weights_are_checked(bad: list[Any]) -> None:
    learner = Learner("fobos", n_features=2)
    with raises_code("invalid-sample-weights"):
        learner.partial_fit(sp.csr_matrix(np.eye(2)), [0, 1], bad)
    assert learner.rounds == 0
