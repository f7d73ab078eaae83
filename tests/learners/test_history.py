"""What the user sees of a fit: losses, R̄(T) and nonzero weights at marks."""

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
    for start, stop in zip((0, *MARKS[:-1]), MARKS, strict=True):
        learner.partial_fit(data[0][start:stop], data[1][start:stop]).mark()
    history = learner.history
    assert history.exact.all()
    assert history.rows.tolist() == list(MARKS)
    for i, parameters in enumerate(learner.configurations):
        expected = sums(data, name, loss, parameters)[list(MARKS)]
        np.testing.assert_allclose(history.objective[:, i] * history.rows, expected, rtol=1e-10, atol=1e-12)
    assert history.nonzeros[-1].tolist() == learner.nonzeros().tolist()


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
    learner.partial_fit(X, y, weights).mark()
    history = learner.history
    assert history.exact.all()
    assert history.rows.tolist() == [ROWS]
    assert history.progressive_loss[0, 0] == pytest.approx(watched.weighted_loss_sum[0] / ROWS)
    assert history.objective[0, 0] == pytest.approx((total + watched.weighted_loss_sum[0]) / ROWS, rel=1e-10)
    assert history.penalty[0, 0] == pytest.approx(0.01 * np.abs(learner.weights()).sum())
    assert history.nonzeros[0, 0] == np.count_nonzero(learner.weights()) == learner.nonzeros()[0]


def test_elsewhere_the_objective_is_evaluated_at_marks(data: tuple) -> None:
    learner = Learner("fobos", grid={"lam": [0.01]}, n_features=9, objective=True)
    for row in range(ROWS):
        learner.mark()
        learner.partial_fit(data[0][row], data[1][row : row + 1])
    learner.mark()
    history = learner.history
    assert not history.exact.any()
    penalty = history.penalty[:, 0]
    between = (penalty[1:] + penalty[:-1]).sum() / 2
    assert history.objective[-1, 0] == pytest.approx(history.progressive_loss[-1, 0] + between / ROWS)
    expected = sums(data, "fobos", "logistic", learner.configurations[0])[-1] / ROWS
    assert history.objective[-1, 0] == pytest.approx(expected, rel=0.01)
