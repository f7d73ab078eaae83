"""cao-rcd on Dask: the bits of one process for any cluster and store, after any kill."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from sparseoco.core.errors import InputError, SparseocoError
from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.kernels.order import fold_rows
from sparseoco.learners import find_algorithm
from sparseoco.learners.losses import find_loss
from sparseoco.offline import coordinate_tasks as module
from sparseoco.offline.coordinates import Coordinates, column_major
from sparseoco.offline.epoch_tasks import begin, run_epoch_block
from sparseoco.offline.epochs import fit_epochs
from sparseoco.search.model_task import train_epoch_block
from sparseoco.store import corpus as corpus_module
from sparseoco.store.corpus import open_corpus
from sparseoco.store.shards import Store, read_shards
from sparseoco.store.transpose import transpose
from sparseoco.training.block import NO_FOLD, Block, Cells, Setting, StreamPosition
from sparseoco.training.model import Model
from tests.support.stores import make_store

EPOCHS = 3
GRID = [{"alpha": alpha, "R": R, "rounds": 150, "predict": "last"} for alpha, R in ((0.5, 0.3), (5.0, 1.0))]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with connect(ClusterOptions(threads=2), tmp_path_factory.mktemp("scratch")) as client:
        yield client


def block_of(
    store: Store, grid: list[dict[str, Any]], *, fold: int = NO_FOLD, loss: str = "logistic", epochs: int = EPOCHS
) -> Block:
    setting = Setting(
        manifest=store.manifest.digest,
        loss=loss,
        penalty="l1",
        dtype="float32",
        fold=fold,
        folds=4 if fold != NO_FOLD else 1,
        epochs=epochs,
        seed=5,
        shuffle=True,
    )
    algorithm = find_algorithm("cao-rcd")
    configurations = tuple(algorithm.configuration(entry) for entry in grid)
    return Block(setting=setting, algorithm="cao-rcd", configurations=configurations)


def run(client: Client, block: Block, store: Store, folder: Path) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """The weights in the end, and the figures of each configuration and epoch."""
    assert run_epoch_block(client, block, store, folder / "cells", folder / "work", lambda rows: None, resumable=True)
    cells = Cells(folder / "cells", [block.setting])
    places = [StreamPosition(epoch, store.n_rows) for epoch in range(1, block.setting.epochs + 1)]
    tables = [cells.at(block.setting, name, place) for name in block.identities for place in places]
    assert all(own is not None for own in tables)
    weights = begin(client, block, store, folder / "work" / block.digest).weights()
    return weights, [own["metrics"][0] for own in tables if own is not None]


@pytest.mark.parametrize(("classes", "batch"), [(2, 1), (3, 4)])
def test_the_bits_of_one_process(classes: int, batch: int, client: Client, tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path / "store", classes=classes))
    X, _ = read_shards(store.folder)
    grid = [{**entry, "batch": batch} for entry in GRID]
    weights, figures = run(client, block_of(store, grid), store, tmp_path)
    fit = fit_epochs(X, store.labels(), algorithm="cao-rcd", grid=grid, epochs=EPOCHS, seed=5, n_classes=classes)
    assert weights.any()
    assert weights.tobytes() == fit.weights.tobytes()
    np.testing.assert_allclose([row["objective"] for row in figures], fit.objective.T.ravel(), rtol=1e-12)


def test_the_bits_of_any_cluster_store_and_company(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    expected, figures = run(client, block_of(store, GRID, loss="squared_hinge"), store, tmp_path / "two")
    monkeypatch.setattr(corpus_module, "MAPPED_BYTES", 0)  # as if it were large
    with connect(ClusterOptions(threads=1), tmp_path / "scratch") as one:
        finer = Store.open(make_store(tmp_path / "finer", shard_rows=23))
        for i in range(2):
            block = block_of(finer, GRID[i : i + 1], loss="squared_hinge")
            weights, own = run(one, block, finer, tmp_path / f"alone-{i}")
            assert weights[:, 0].tobytes() == expected[:, i].tobytes()
            assert own == figures[i * EPOCHS : (i + 1) * EPOCHS]


def test_what_is_held_out_is_not_learned_from(client: Client, tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    block = block_of(store, GRID, fold=1)
    weights, figures = run(client, block, store, tmp_path)
    X, labels = read_shards(store.folder)[0], store.labels()
    kept = np.ones(store.n_rows, bool)
    kept[fold_rows(5, 0, store.n_rows, 1, 4)] = False
    alone = Coordinates(
        column_major(X[kept], labels[kept]), block.configurations, loss=find_loss("logistic"), positive=[1], seed=5
    )
    for _ in range(EPOCHS):
        alone.play()
    np.testing.assert_array_equal(alone.weights(), weights)
    assert [row["held_out_rows"] for row in figures] == [(~kept).sum()] * 6
    sizes = np.diff(X.tocsc().indptr)
    expected = (1 + 150 * (alone.chances(0) * sizes).sum() / sizes.sum()) * kept.sum()
    assert figures[0]["rows"] == pytest.approx(expected, abs=0.5)
    assert figures[2]["rows"] == 3 * figures[0]["rows"]


def test_a_killed_run_goes_on_with_the_same_bits(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    block = block_of(store, GRID)
    expected, figures = run(client, block, store, tmp_path / "whole")
    play, write = Coordinates.play, module.write_checkpoint
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
            patch.setattr(module, "write_checkpoint", dying(write))
            with pytest.raises(SparseocoError, match="killed"):
                run(client, block, store, tmp_path / f"{moment}")
        weights, own = run(client, block, store, tmp_path / f"{moment}")
        assert weights.tobytes() == expected.tobytes()
        assert own == figures


def test_a_model(client: Client, tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    block = block_of(store, GRID[:1])
    for _ in range(2):
        train_epoch_block(client, block, store, tmp_path / "model", tmp_path / "work", lambda rows: None)
    model = Model(tmp_path / "model")
    weights = np.zeros(store.n_features)
    weights[model.table["feature_id"].to_numpy()] = model.table["weight"].to_numpy()
    fit = fit_epochs(
        read_shards(store.folder)[0], store.labels(), algorithm="cao-rcd", grid=GRID[:1], epochs=EPOCHS, seed=5
    )
    assert weights.tobytes() == fit.weights[:, 0].tobytes()
    assert not (tmp_path / "work").exists()


def test_what_does_not_fit_is_said(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    monkeypatch.setattr(module, "worker_shape", lambda client: (1, 10**4))
    with pytest.raises(InputError, match=r"cao-rcd needs 0.0 GB for 2 columns \(200 features, 300 documents\)"):
        run(client, block_of(store, GRID), store, tmp_path)


def test_a_large_corpus_is_mapped_and_let_go_of(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    columns = transpose(client, store, tmp_path)
    monkeypatch.setattr(corpus_module, "MAPPED_BYTES", 0)
    corpus = open_corpus(columns, tmp_path / "scratch")
    csc = read_shards(store.folder)[0].tocsc()
    for _ in range(2):
        for array, expected in zip(corpus.whole(), (csc.indptr, csc.indices, csc.data), strict=False):
            np.testing.assert_array_equal(array, expected)
        corpus.rest()
