"""The same bits however the stream is cut, whichever columns are trained together, wherever it is saved."""

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sparseoco.learners import ALGORITHMS, streaming
from sparseoco.training.learner import Learner
from tests.learners.grids import CASES, FEATURES, LAMS, ROWS, WILD, bits, configurations, labels, new

pytestmark = pytest.mark.formulas


@pytest.mark.fault(48)
@pytest.mark.parametrize(("name", "loss", "dtype", "classes"), CASES)
def test_any_cut_of_the_stream(
    name: str, loss: str, dtype: str, classes: int, data: tuple, saved: Callable[[Learner], bytes]
) -> None:
    X, y = data[0], labels(classes)
    whole, rows = new(name, loss, dtype, classes=classes).partial_fit(X, y), new(name, loss, dtype, classes=classes)
    for i in range(ROWS):
        rows.partial_fit(X[i], y[i : i + 1])
    assert saved(rows) == saved(whole)


@pytest.mark.parametrize(("name", "loss", "dtype", "classes"), CASES)
def test_reading_saving_and_loading_change_nothing(
    name: str, loss: str, dtype: str, classes: int, data: tuple, saved: Callable[[Learner], bytes], tmp_path: Path
) -> None:
    X, y = data[0], labels(classes)
    whole = new(name, loss, dtype, classes=classes).partial_fit(X, y)
    pieces, few = new(name, loss, dtype, classes=classes), X[:9]
    for a, b in itertools.pairwise([0, 1, 4, 60, ROWS]):
        pieces.save(tmp_path / "state")
        pieces = Learner.load(tmp_path / "state").partial_fit(X[a:b], y[a:b])
        pieces.weights()
        pieces.decision_function(few)
        pieces.evaluate(few.indptr, few.indices, few.data, y[:9])
        pieces.nonzeros()
    assert bits(pieces) == bits(whole)
    assert saved(pieces) == saved(whole)


@pytest.mark.parametrize(("name", "loss", "dtype", "classes"), CASES)
def test_columns_alone_or_with_others(name: str, loss: str, dtype: str, classes: int, data: tuple) -> None:
    X, y, four = data[0], labels(classes), configurations(name)
    many = new(name, loss, dtype, four * 2, classes).partial_fit(X, y)
    for i, configuration in enumerate(four):
        alone = new(name, loss, dtype, [configuration], classes).partial_fit(X, y)
        assert alone.weights().tobytes() == many.weights_of(i).tobytes() == many.weights_of(4 + i).tobytes()
        assert alone.progress.loss_sum[0] == many.progress.loss_sum[i]


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
