"""Sample weights, label sets and numbers of a store reach the learners, with equal bits however the work is cut."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from distributed import Client

from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.kernels.order import epoch_rows, fold_rows
from sparseoco.pipeline import steps
from sparseoco.store.shards import Store, read_shards
from sparseoco.training.learner import Learner
from sparseoco.training.mixture import Mixture
from sparseoco.training.models import Model
from sparseoco.training.options import Configuration, MixtureOptions
from tests.support.searches import plain_search
from tests.support.stores import make_store, with_columns

KINDS = ("classes", "numbers", "multi")
GRID: dict[str, Any] = {"adagrad": {"eta": [0.1, 1.0], "lam": [1e-4]}, "cl-fobos": {"eta0": [0.01], "lam": [1e-4]}}
ROWS = 120


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with connect(ClusterOptions(threads=2), tmp_path_factory.mktemp("scratch")) as client:
        yield client


def store_of(folder: Path, kind: str, *, shard_rows: int = 100) -> Path:
    source = make_store(folder / "source", rows=ROWS, features=60, classes=3, shard_rows=shard_rows)
    return with_columns(source, folder / "store", multilabel=kind == "multi", numbers=kind == "numbers")


def options(kind: str, **changes: Any) -> Any:
    loss = "squared" if kind == "numbers" else "logistic"
    return plain_search(**{"algorithms": GRID, "loss": loss, "folds": 2, "epochs": 2, "seed": 3} | changes)


def learner_of(store: Store, algorithm: str, grid: Any, loss: str) -> Learner:
    return Learner(
        algorithm,
        loss=loss,
        grid=grid,
        n_features=store.n_features,
        n_classes=store.n_classes,
        multilabel=store.is_multilabel,
        dtype="float32",
        intercept=True,
    )


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("kind", KINDS)
def test_searches(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The metrics of learners that are given the weights by hand, for any shards and blocks, in one run or two."""
    found = []
    for name, shard_rows, columns, epochs in (("a", 100, 64, (2,)), ("b", 37, 1, (1, 2))):
        monkeypatch.setattr("sparseoco.search.packing.BLOCK_COLUMNS", columns)
        store = store_of(tmp_path / name, kind, shard_rows=shard_rows)
        for last in epochs:
            steps.search(store, tmp_path / name / "run", options(kind, epochs=last), ClusterOptions())
        found.append(pq.read_table(tmp_path / name / "run" / "search" / "metrics.parquet").to_pylist())
    assert found[0] == found[1]
    opened, (X, _) = Store.open(store), read_shards(store)
    labels, weights = opened.labels(), opened.column("weight")
    learner = learner_of(opened, "adagrad", [{"eta": 1.0, "lam": 1e-4}], options(kind).loss)
    for epoch in (1, 2):
        before = learner.progress
        rows = epoch_rows(3, epoch, True, ROWS, 0, ROWS, 0, 2)
        learner.partial_fit(X[rows], labels[rows], weights[rows])
    row = next(r for r in found[0] if r["configuration"] == 1 and r["fold"] == 0 and r["epoch"] == 2)
    losses = learner.progress.loss_sum - before.loss_sum
    assert row["progressive_loss"] == float(losses[0] / (learner.progress.rows - before.rows))
    held_out = fold_rows(3, 0, ROWS, 0, 2)
    margins = learner.decision_function(X[held_out])[:, 0]
    if kind == "numbers":
        residuals = margins[:, 0].astype(float) - labels[held_out]
        assert row["held_out_rmse"] == pytest.approx(np.sqrt(np.mean(residuals**2)))
        assert row["held_out_error"] is None
    elif kind == "multi":
        wrong = ((margins > 0) != labels[held_out].toarray()).any(axis=1)
        assert row["held_out_error"] == np.mean(wrong)
    else:
        assert row["held_out_error"] == np.mean(margins.argmax(axis=1) != labels[held_out])


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("kind", KINDS)
def test_mixtures_and_features_of_a_model(tmp_path: Path, kind: str) -> None:
    store = store_of(tmp_path, kind)
    opened, (X, _) = Store.open(store), read_shards(store)
    rows = epoch_rows(3, 1, True, ROWS, 0, ROWS, -1, 1)
    data = X[rows], opened.labels()[rows], opened.column("weight")[rows]
    chosen = options(kind)
    steps.train_auto(store, tmp_path / "auto", chosen, MixtureOptions(keep="mixture"), ClusterOptions(), epochs=1)
    shape: dict[str, Any] = {"n_classes": opened.n_classes, "multilabel": opened.is_multilabel, "dtype": "float32"}
    mixture = Mixture(GRID, loss=chosen.loss, n_features=opened.n_features, intercept=True, **shape).partial_fit(*data)
    np.testing.assert_array_equal(weights_of(tmp_path / "auto", opened), mixture.weights())
    # A model of the strongest features of that one.
    parameters = {"eta": 1.0, "lam": 1e-2}
    configuration = Configuration(number=0, algorithm="adagrad", parameters=parameters | {"delta": 1e-6})
    steps.train(store, tmp_path / "first", configuration, chosen, ClusterOptions(), epochs=1)
    kept = Model(tmp_path / "first").feature_ids
    restricted = options(kind, features_from=str(tmp_path / "first"))
    steps.train(store, tmp_path / "second", configuration, restricted, ClusterOptions(), epochs=1)
    learner = learner_of(opened, "adagrad", [parameters], chosen.loss)
    learner = Learner(**learner.description | {"n_features": kept.size}).partial_fit(data[0][:, kept], *data[1:])
    expected = np.zeros((opened.n_features, learner.n_outputs))
    expected[kept] = learner.weights()
    np.testing.assert_array_equal(weights_of(tmp_path / "second", opened), expected)


def weights_of(folder: Path, store: Store) -> np.ndarray:
    """(n_features, outputs) of a saved model."""
    weights = np.zeros((store.n_features, store.n_outputs))
    for row in Model(folder).table.to_pylist():
        column = store.classes.index(row["class"]) if store.n_outputs > 1 else 0
        weights[row["feature_id"], column] = row["weight"]
    return weights
