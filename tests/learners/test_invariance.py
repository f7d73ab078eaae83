"""The same bits however the stream is cut, whichever columns are trained together, wherever it is saved."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from sparseoco.learners import ALGORITHMS, streaming
from sparseoco.training.learner import Learner
from tests.learners.grids import CASES, FEATURES, LAMS, ROWS, SHARED, WILD, bits, configurations, new


@pytest.mark.fault(48)
@pytest.mark.parametrize(("name", "loss", "dtype"), CASES)
def test_any_cut_of_the_stream(name: str, loss: str, dtype: str, data: tuple) -> None:
    X, y = data
    whole = new(name, loss, dtype).partial_fit(X, y)
    for cuts in ([1], [150], [3, 4, 5, 299], range(1, ROWS)):
        pieces = new(name, loss, dtype)
        edges = [0, *cuts, ROWS]
        for a, b in itertools.pairwise(edges):
            pieces.partial_fit(X[a:b], y[a:b])
        assert bits(pieces) == bits(whole)


@pytest.mark.parametrize(("name", "loss", "dtype"), SHARED)
def test_columns_alone_or_with_others(name: str, loss: str, dtype: str, data: tuple) -> None:
    X, y = data
    four = configurations(name)
    many = new(name, loss, dtype, four * 8).partial_fit(X, y)
    for i, configuration in enumerate(four):
        alone = new(name, loss, dtype, [configuration]).partial_fit(X, y)
        assert alone.weights().tobytes() == many.weights_of(i).tobytes() == many.weights_of(28 + i).tobytes()
        assert alone.progress.loss_sum[0] == many.progress.loss_sum[i]


@pytest.mark.parametrize(("name", "loss", "dtype"), CASES)
def test_reading_never_writes(name: str, loss: str, dtype: str, data: tuple, tmp_path: Path) -> None:
    X, y = data
    quiet, watched = new(name, loss, dtype), new(name, loss, dtype)
    for a in range(0, ROWS, 50):
        quiet.partial_fit(X[a : a + 50], y[a : a + 50])
        watched.partial_fit(X[a : a + 50], y[a : a + 50])
        watched.weights()
        watched.decision_function(X)
        watched.evaluate(X.indptr, X.indices, X.data, y)
        watched.nonzeros()
        watched.save(tmp_path / "state")
    assert bits(quiet) == bits(watched)


@pytest.mark.parametrize(("name", "loss", "dtype"), CASES)
@pytest.mark.parametrize("classes", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_save_and_load_anywhere(name: str, loss: str, dtype: str, classes: int, data: tuple, tmp_path: Path) -> None:
    X, y = data
    y = np.arange(ROWS) % classes if classes > 2 else y
    whole = new(name, loss, dtype, classes=classes).partial_fit(X, y)
    moved = new(name, loss, dtype, classes=classes)
    for a in range(0, ROWS, 97):
        moved.save(tmp_path / "state")
        moved = Learner.load(tmp_path / "state").partial_fit(X[a : a + 97], y[a : a + 97])
    assert bits(moved) == bits(whole)
    moved.save(tmp_path / "moved")
    whole.save(tmp_path / "whole")
    assert (tmp_path / "moved").read_bytes() == (tmp_path / "whole").read_bytes()


@pytest.mark.fault(48)
def test_many_threads(data: tuple) -> None:
    X, y = data
    expected = bits(new("stda", "logistic", "float32").partial_fit(X, y))
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: bits(new("stda", "logistic", "float32").partial_fit(X, y)), range(8)))
    assert set(results) == {expected}


def test_evaluation_does_not_depend_on_the_cut(data: tuple) -> None:
    X, y = data
    learner = new("fobos", "logistic", "float32").partial_fit(X, y)
    losses, errors = learner.evaluate(X.indptr, X.indices, X.data, y)
    parts = np.zeros(len(LAMS)), np.zeros(len(LAMS), np.int64)
    for a in range(0, ROWS, 7):
        rows = X[a : a + 7]
        learner.evaluate(rows.indptr, rows.indices, rows.data, y[a : a + 7], *parts)
    assert parts[0].tobytes() == losses.tobytes()
    assert parts[1].tolist() == errors.tolist()
    z = learner.decision_function(X)[:, :, 0]
    assert errors.tolist() == ((z > 0) != (y[:, None] > 0)).sum(axis=0).tolist()


@pytest.mark.parametrize(
    ("name", "step"),
    [
        (name, p.name)
        for name in streaming()
        for p in ALGORITHMS[name].parameters
        if p.name in WILD and (name, p.name) != ("optimistic-ftrl", "eta")  # a large weight of its barrier: small steps
    ],
)
def test_a_diverging_neighbour_changes_no_bit(name: str, step: str, data: tuple) -> None:
    X, y = data
    own = [parameter.name for parameter in ALGORITHMS[name].parameters]
    grid = configurations(name)[:3]
    loss = "hinge" if "hinge" in ALGORITHMS[name].loss_names else None
    alone = Learner(name, loss=loss, grid=grid, n_features=FEATURES).partial_fit(X, y)
    wild = {step: WILD[step]} | ({"lam": 0.0} if "lam" in own else {})
    together = Learner(name, loss=loss, grid=[*grid, wild], n_features=FEATURES).partial_fit(X, y)
    assert together.diverged[:-1].tolist() == [0] * len(grid)
    assert 2 <= together.diverged[-1] <= 10
    assert together.weights(range(len(grid))).tobytes() == alone.weights().tobytes()
    assert np.isfinite(together.progress.loss_sum).all()
