"""A learner that is given more features continues, bit for bit, as one that had them from the first row on."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from sparseoco.learners import dense_learners, find_algorithm
from sparseoco.learners.penalties import find_penalty
from sparseoco.training.learner import Learner
from tests.learners.streams import PENALISED
from tests.support.errors import raises_code

pytestmark = pytest.mark.formulas
ROWS, BEFORE, AFTER = 120, 25, 40


@pytest.fixture(scope="module")
def data() -> tuple[sp.csr_matrix, np.ndarray]:
    """Rows whose first half has none of the later features."""
    rng = np.random.default_rng(5)
    X = rng.integers(1, 5, (ROWS, AFTER)) * (rng.random((ROWS, AFTER)) < 0.2)
    X[: ROWS // 2, BEFORE:] = 0
    return sp.csr_matrix(X), rng.integers(0, 3, ROWS)


def grid(name: str, penalty: str) -> list[dict[str, object]]:
    algorithm = find_algorithm(name).under(find_penalty(penalty))
    own = [parameter.name for parameter in algorithm.parameters]
    return [{"lam": lam} for lam in (0.0, 1e-3, 1e-2)] if "lam" in own else [{}]


def check_growth(folder: Path, data: tuple, learner: dict[str, object], *, start: int = 0) -> None:
    X, y = data
    y = y if learner["n_classes"] == 3 else y % 2
    half = ROWS // 2
    small, whole = (Learner(**learner, n_features=n) for n in (BEFORE, AFTER))
    if start:
        weights = np.zeros((AFTER, small.n_outputs))
        weights[:BEFORE] = np.random.default_rng(1).normal(0, 0.1, (BEFORE, small.n_outputs))
        small.start_from(weights[:BEFORE], start)
        whole.start_from(weights, start)
    small.partial_fit(X[:half, :BEFORE], y[:half]).mark()
    small.save(folder / "small")
    grown = Learner.load(folder / "small", n_features=AFTER).partial_fit(X[half:], y[half:])
    whole.partial_fit(X[:half], y[:half]).mark()
    whole.partial_fit(X[half:], y[half:])
    grown.save(folder / "grown")
    whole.save(folder / "whole")
    assert (folder / "grown").read_bytes() == (folder / "whole").read_bytes()


@pytest.mark.parametrize(("dtype", "classes", "start"), [("float32", 3, 100), ("float64", 2, 0)])
@pytest.mark.parametrize(("name", "penalty"), PENALISED)
def test_more_features(
    name: str, penalty: str, dtype: str, classes: int, start: int, data: tuple, tmp_path: Path
) -> None:
    """The history too, and also after a start from weights."""
    classes = 3 if penalty == "group" else classes
    learner = {"algorithm": name, "penalty": penalty, "grid": grid(name, penalty), "n_classes": classes, "dtype": dtype}
    check_growth(tmp_path, data, learner | {"objective": penalty == "l1"}, start=start)


def test_learners_that_cannot_grow(data: tuple, tmp_path: Path) -> None:
    Learner("fobos", n_features=BEFORE).save(tmp_path / "small")
    with raises_code("fewer-features", 25, 24):
        Learner.load(tmp_path / "small", n_features=24)
    for name in dense_learners():
        Learner(name, n_features=BEFORE).save(tmp_path / name)
        assert Learner.load(tmp_path / name, n_features=BEFORE).n_features == BEFORE
        with raises_code("more-features", name):
            Learner.load(tmp_path / name, n_features=AFTER)
