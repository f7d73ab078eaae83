"""What a learner measures: losses, R̄(T) and nonzero weights."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from sparseoco.training.learner import Learner
from tests.oracles.stream import ORACLES, VALUES

pytestmark = pytest.mark.formulas
ROWS, MARKS = 90, (0, 1, 7, 40, 90)
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
    return sp.csr_matrix(rng.normal(0, 1, (ROWS, 9)) * (rng.random((ROWS, 9)) < 0.3)), rng.integers(0, 2, ROWS)


def sums(data: tuple, name: str, loss: str, parameters: dict[str, Any]) -> np.ndarray:
    """T·R̄(T) for T = 0 … ROWS, of the dense iterates."""
    X, signs = data[0].toarray(), 2.0 * data[1] - 1
    iterates = [np.zeros(9), *ORACLES[name](X, signs, loss, **parameters)][:ROWS]
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
    weights, total = np.linspace(0, 2, ROWS), 0.0
    for each in (learner, watched):
        each.start_from(np.linspace(-0.1, 0.1, 9)[:, None], 100, [0.05])
    for t in range(ROWS):
        total += 0.01 * np.abs(watched.weights()).sum()
        watched.partial_fit(X[t], y[t : t + 1], weights[t : t + 1])
    found = learner.partial_fit(X, y, weights).measure()
    assert found.rows == ROWS
    assert found.progressive_loss[0] == pytest.approx(watched.weighted_loss_sum[0] / ROWS)
    assert found.objective[0] == pytest.approx((total + watched.weighted_loss_sum[0]) / ROWS, rel=1e-10)
    assert found.penalty[0] == pytest.approx(0.01 * np.abs(learner.weights()).sum())
    assert found.nonzeros[0] == np.count_nonzero(learner.weights()) == learner.nonzeros()[0]


def test_elsewhere_there_is_no_objective(data: tuple) -> None:
    learner = Learner("fobos", grid={"lam": [0.01]}, n_features=9, objective=True)
    found = learner.partial_fit(*data).measure()
    assert np.isnan(found.objective).all()
    assert found.penalty[0] == pytest.approx(0.01 * np.abs(learner.weights()).sum())
