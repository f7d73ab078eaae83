"""What the user sees of a fit: losses, R̄(T) and nonzero weights at marks."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from sparseoco.core.errors import StorageError
from sparseoco.training.learner import Learner
from tests.oracles.stream import ORACLES, VALUES

pytestmark = pytest.mark.formulas
ROWS, MARKS = 90, (0, 1, 7, 40, 90)
EXACT = {"cl-fobos": {}, "l-fobos": {"K": 7}, "cumulative-l1": {}, "sgft-cumulative": {"p": 1}}


def data() -> tuple[sp.csr_matrix, np.ndarray]:
    rng = np.random.default_rng(8)
    return sp.csr_matrix(rng.normal(0, 1, (ROWS, 9)) * (rng.random((ROWS, 9)) < 0.3)), rng.integers(0, 2, ROWS)


def objective(name: str, loss: str, parameters: dict) -> np.ndarray:
    """T·R̄(T) for T = 0 … ROWS, of the dense iterates."""
    X, y = data()
    signs = 2.0 * y - 1
    iterates = [np.zeros(9), *ORACLES[name](X.toarray(), signs, loss, **parameters)][:ROWS]
    each = [
        VALUES[loss](x @ w, b) + parameters["lam"] * np.abs(w).sum()
        for x, b, w in zip(X.toarray(), signs, iterates, strict=True)
    ]
    return np.concatenate([[0.0], np.cumsum(each)])


def train(learner: Learner) -> Learner:
    X, y = data()
    for start, stop in zip((0, *MARKS[:-1]), MARKS, strict=True):
        learner.partial_fit(X[start:stop], y[start:stop]).mark()
    return learner


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize("name", EXACT)
def test_the_average_objective_is_exact_where_the_iterate_is_stored(name: str, loss: str) -> None:
    grid = [{"lam": lam, **EXACT[name]} for lam in (0.0, 1e-3, 0.05, 2.0)]
    learner = train(Learner(name, loss=loss, grid=grid, n_features=9, objective=True))
    history = learner.history
    assert history.exact.all()
    assert history.rows.tolist() == list(MARKS)
    for i, parameters in enumerate(learner.configurations):
        expected = objective(name, loss, parameters)[list(MARKS)]
        np.testing.assert_allclose(history.objective[:, i] * history.rows, expected, rtol=1e-10, atol=1e-12)
    assert history.nonzeros[-1].tolist() == learner.nonzeros().tolist()


def test_elsewhere_the_objective_is_evaluated_at_marks() -> None:
    learner = Learner("fobos", grid={"lam": [0.01]}, n_features=9, objective=True)
    X, y = data()
    for row in range(ROWS):
        learner.mark()
        learner.partial_fit(X[row], y[row : row + 1])
    learner.mark()
    history = learner.history
    assert not history.exact.any()
    penalty = history.penalty[:, 0]
    assert penalty == pytest.approx(
        [
            0.01 * np.abs(w).sum()
            for w in [np.zeros(9), *ORACLES["fobos"](X.toarray(), 2.0 * y - 1, "logistic", 0.5, 0.01)]
        ]
    )
    between = (penalty[1:] + penalty[:-1]).sum() / 2
    assert history.objective[-1, 0] == pytest.approx(history.progressive_loss[-1, 0] + between / ROWS)
    assert history.objective[-1, 0] == pytest.approx(
        objective("fobos", "logistic", learner.configurations[0])[-1] / ROWS, rel=0.01
    )


@pytest.mark.parametrize(("penalty", "entry"), [("l2", {}), ("elastic_net", {"l1_ratio": 0.3}), ("box", {"R": 0.2})])
def test_penalties_at_marks(penalty: str, entry: dict) -> None:
    learner = train(Learner("fobos", penalty=penalty, grid=[entry], n_features=9, n_classes=2))
    w, (configuration,) = learner.weights(), learner.configurations
    ratio = {"l2": 0.0, "box": 0.0}.get(penalty, 0.3)
    value = configuration.get("lam", 0.0) * (ratio * np.abs(w).sum() + (1 - ratio) * (w**2).sum() / 2)
    assert learner.history.penalty[-1, 0] == pytest.approx(value)


@pytest.mark.parametrize("name", EXACT)
def test_history_is_saved_cut_and_written(name: str, tmp_path: Path) -> None:
    grid = [{"lam": lam} | EXACT[name] for lam in (1e-3, 0.05)]
    X, y = data()
    y = np.arange(ROWS) % 3

    def new() -> Learner:
        return Learner(name, loss="hinge", grid=grid, n_features=9, n_classes=3, objective=True)

    whole = new()
    whole.mark()
    whole.partial_fit(X, y).mark()
    pieces = new()
    pieces.mark()
    for start in range(0, ROWS, 11):
        pieces.partial_fit(X[start : start + 11], y[start : start + 11])
        pieces.save(tmp_path / "state")
        pieces = Learner.load(tmp_path / "state")
    pieces.mark()
    assert all(a.tobytes() == b.tobytes() for a, b in zip(whole.history, pieces.history, strict=True))
    plain = Learner(name, loss="hinge", grid=grid, n_features=9, n_classes=3).partial_fit(X, y)
    assert plain.weights().tobytes() == whole.weights().tobytes()
    whole.history.write(tmp_path / "history.parquet")
    table = pq.read_table(tmp_path / "history.parquet")
    assert table.equals(whole.history.table())
    assert table["nonzeros"].to_pylist() == whole.history.nonzeros.ravel().tolist()
    assert table["configuration"].to_pylist() == [0, 0, 0, 1, 1, 1] * 2
    assert table["output"].to_pylist() == [0, 1, 2] * 4
    with pytest.raises(StorageError):
        whole.history.write(tmp_path / "history.parquet" / "inside")
