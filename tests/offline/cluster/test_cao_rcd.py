"""cao-rcd on Dask: the bits of one process for any cluster and store, after any kill."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from sparseoco.core.logs import no_progress
from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.execution.pool import TaskError
from sparseoco.kernels.order import fold_rows
from sparseoco.learners.losses import find_loss
from sparseoco.offline.cluster import methods as module
from sparseoco.offline.coordinates import Coordinates
from sparseoco.offline.epochs import fit_epochs
from sparseoco.offline.passes import column_major
from sparseoco.search.models import train_block
from sparseoco.store import corpus as corpus_module
from sparseoco.store.corpus import open_corpus
from sparseoco.store.shards import Store, read_shards
from sparseoco.store.transpose import transpose
from sparseoco.training.block import Block
from sparseoco.training.models import Model
from sparseoco.training.stream import NO_FOLD
from tests.offline.epoch_blocks import CAO_RCD_GRID, CLASS_WEIGHTS, epoch_block, metrics, run_block, weighted_store
from tests.support.errors import raises_code
from tests.support.stores import make_store

EPOCHS = 3
GRID = CAO_RCD_GRID


def block(store: Store, grid: list[dict[str, Any]] = GRID, *, fold: int = NO_FOLD, loss: str = "logistic") -> Block:
    return epoch_block(store, "cao-rcd", grid, epochs=EPOCHS, fold=fold, loss=loss)


def run(client: Client, block: Block, store: Store, folder: Path) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """The final weights, and the metrics of each configuration and epoch."""
    weights, tables = run_block(client, block, store, folder)
    return weights, metrics(tables)


@pytest.mark.parametrize(
    ("classes", "batch", "partition", "penalty", "scale"),
    [
        (2, 1, "consecutive", "box", "max_abs"),
        (3, 4, "consecutive", "l1", "none"),
        (2, 4, "random", "elastic_net", "none"),
    ],
)
def test_same_bits_as_in_one_process(
    classes: int, batch: int, partition: str, penalty: str, scale: str, client: Client, tmp_path: Path
) -> None:
    store = Store.open(make_store(tmp_path / "store", classes=classes))
    X, _ = read_shards(store.folder)
    grid = [{**entry, "batch": batch, "partition": partition, "scale": scale} for entry in GRID]
    if penalty == "box":
        grid = [{name: value for name, value in entry.items() if name != "alpha"} for entry in grid]
    weights, figures = run(client, epoch_block(store, "cao-rcd", grid, epochs=EPOCHS, penalty=penalty), store, tmp_path)
    own = {"algorithm": "cao-rcd", "penalty": penalty, "grid": grid, "epochs": EPOCHS, "seed": 5}
    fit = fit_epochs(X, store.labels(), n_classes=classes, **own)
    assert weights.any()
    assert weights.tobytes() == fit.weights.tobytes()
    np.testing.assert_allclose([row["objective"] for row in figures], fit.objective.T.ravel(), rtol=1e-12)


def test_bits_do_not_depend_on_cluster_shards_or_grid(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    expected, figures = run(client, block(store, GRID, loss="squared_hinge"), store, tmp_path / "two")
    monkeypatch.setattr(corpus_module, "MAPPED_BYTES", 0)  # as if it were large
    with connect(ClusterOptions(threads=1), tmp_path / "scratch") as one:
        finer = Store.open(make_store(tmp_path / "finer", shard_rows=23))
        for i in range(2):
            part = block(finer, GRID[i : i + 1], loss="squared_hinge")
            weights, own = run(one, part, finer, tmp_path / f"alone-{i}")
            assert weights[:, 0].tobytes() == expected[:, i].tobytes()
            assert own == figures[i * EPOCHS : (i + 1) * EPOCHS]


def test_held_out_rows_are_not_learned(client: Client, tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    own = block(store, GRID, fold=1)
    weights, figures = run(client, own, store, tmp_path)
    X, labels = read_shards(store.folder)[0], store.labels()
    kept = np.ones(store.n_rows, bool)
    kept[fold_rows(5, 0, store.n_rows, 1, 4)] = False
    alone = Coordinates(
        column_major(X[kept], labels[kept]), own.configurations, loss=find_loss("logistic"), positive=[1], seed=5
    )
    for _ in range(EPOCHS):
        alone.play()
    np.testing.assert_array_equal(alone.weights(), weights)
    assert [row["held_out_rows"] for row in figures] == [(~kept).sum()] * 6
    sizes = np.diff(X.tocsc().indptr)
    expected = (1 + 150 * (alone.chances(0) * sizes).sum() / sizes.sum()) * kept.sum()
    assert figures[0]["rows"] == pytest.approx(expected, abs=0.5)
    assert figures[2]["rows"] == 3 * figures[0]["rows"]


@pytest.mark.parametrize("fold", [NO_FOLD, 1])
def test_weights_and_an_intercept(fold: int, client: Client, tmp_path: Path) -> None:
    store, sample_weights = weighted_store(tmp_path)
    X, labels = read_shards(store.folder)[0], store.labels()
    own = epoch_block(store, "cao-rcd", GRID, epochs=EPOCHS, fold=fold, class_weights=CLASS_WEIGHTS, intercept=True)
    weights, figures = run(client, own, store, tmp_path)
    if fold != NO_FOLD:
        sample_weights[fold_rows(5, 0, store.n_rows, 1, 4)] = 0.0
    fit = fit_epochs(
        X,
        labels,
        algorithm="cao-rcd",
        grid=GRID,
        epochs=EPOCHS,
        seed=5,
        sample_weight=sample_weights,
        fit_intercept=True,
    )
    assert weights.tobytes() == np.vstack([fit.weights, fit.intercepts[:, 0]]).tobytes()
    np.testing.assert_allclose([row["objective"] for row in figures], fit.objective.T.ravel(), rtol=1e-12)


def test_a_killed_run_resumes_with_the_same_bits(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    own = block(store)
    expected, figures = run(client, own, store, tmp_path / "whole")
    play, write = Coordinates.play, module.commit_state
    for moment in range(2 * EPOCHS):
        steps = iter(range(100))

        def dying(function: Callable[..., Any], moment: int = moment, steps: Iterator[int] = steps) -> Any:
            def step(*arguments: Any) -> None:
                function(*arguments)
                if next(steps) == moment:
                    raise RuntimeError("killed")

            return step

        with monkeypatch.context() as patch:
            patch.setattr(Coordinates, "play", dying(play))
            patch.setattr(module, "commit_state", dying(write))
            with raises_code("task-failed", "killed", kind=TaskError):
                run(client, own, store, tmp_path / f"{moment}")
        weights, again = run(client, own, store, tmp_path / f"{moment}")
        assert weights.tobytes() == expected.tobytes()
        assert again == figures


def test_a_model(client: Client, tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    own = block(store, GRID[:1])
    for _ in range(2):
        train_block(client, own, store, tmp_path / "model", no_progress, {})
    model = Model(tmp_path / "model")
    weights = np.zeros(store.n_features)
    weights[model.table["feature_id"].to_numpy()] = model.table["weight"].to_numpy()
    fit = fit_epochs(
        read_shards(store.folder)[0], store.labels(), algorithm="cao-rcd", grid=GRID[:1], epochs=EPOCHS, seed=5
    )
    assert weights.tobytes() == fit.weights[:, 0].tobytes()
    assert not (tmp_path / "model" / ".work").exists()


def test_a_block_that_does_not_fit_is_refused(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    monkeypatch.setattr(module, "worker_shape", lambda client: (1, 10**4))
    with raises_code("out-of-memory", "cao-rcd", "2 columns", "200 features", "300 documents"):
        run(client, block(store, GRID), store, tmp_path)


def test_a_large_corpus_is_memory_mapped(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    columns = transpose(client, store, tmp_path)
    monkeypatch.setattr(corpus_module, "MAPPED_BYTES", 0)
    corpus = open_corpus(columns, tmp_path / "scratch")
    csc = read_shards(store.folder)[0].tocsc()
    for _ in range(2):
        for array, expected in zip(corpus.whole(), (csc.indptr, csc.indices, csc.data), strict=False):
            np.testing.assert_array_equal(array, expected)
        corpus.rest()
