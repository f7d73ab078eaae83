"""Epoch methods on Dask: the bits of one process for any cluster, after any kill; cells and models as any block's."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from sparseoco.core.errors import SparseocoError
from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.kernels.order import fold_rows
from sparseoco.learners import find_algorithm
from sparseoco.offline import sampled as sampled_module
from sparseoco.offline.epoch_tasks import begin, run_epoch_block
from sparseoco.offline.epochs import Problem, SampledEpochs, fit_epochs
from sparseoco.offline.passes import LocalPasses, Span
from sparseoco.search.model_task import train_epoch_block
from sparseoco.storage.commit import read_checksummed
from sparseoco.storage.metrics import CURVES, KEPT, METRICS
from sparseoco.store.shards import Store, read_shards
from sparseoco.training.block import NO_FOLD, Block, Cells, Setting, StreamPosition
from sparseoco.training.model import Model
from tests.support.stores import make_store

PARALLEL = {"estimate": "corrected", "placement": "parallel", "parts": 3}
WAYS = [{}, {"batch": 4}, {"estimate": "corrected"}, PARALLEL, {"placement": "dealt", "parts": 3}]
EPOCHS = 2


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with connect(ClusterOptions(threads=2), tmp_path_factory.mktemp("scratch")) as client:
        yield client


def block_of(store: Store, grid: list[dict[str, Any]], *, fold: int = NO_FOLD, epochs: int = EPOCHS) -> Block:
    algorithm = find_algorithm("caos-erm")
    setting = Setting(
        manifest=store.manifest.digest,
        loss="logistic",
        penalty="l1",
        dtype="float32",
        fold=fold,
        folds=4 if fold != NO_FOLD else 1,
        epochs=epochs,
        seed=5,
        shuffle=True,
    )
    configurations = tuple(algorithm.configuration(entry) for entry in grid)
    return Block(setting=setting, algorithm="caos-erm", configurations=configurations)


def grid_of(way: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"alpha": alpha, "R": R, **way} for alpha, R in ((1.0, 0.3), (5.0, 1.0))]


def run(client: Client, block: Block, store: Store, folder: Path) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """The weights in the end, and each configuration's tables."""
    told: list[int] = []
    assert run_epoch_block(client, block, store, folder / "cells", folder / "work", told.append, resumable=True)
    assert told == [store.n_rows * epoch for epoch in range(1, block.setting.epochs + 1)]
    cells = Cells(folder / "cells", [block.setting])
    tables = [
        cells.at(block.setting, name, StreamPosition(epoch, store.n_rows))
        for name in block.identities
        for epoch in range(1, block.setting.epochs + 1)
    ]
    return begin(client, block, store, folder / "work" / block.digest).weights(), tables  # type: ignore[return-value]


def without_timings(folder: Path) -> dict[str, Any]:
    cells = {path.name: read_checksummed(path) for path in folder.glob("*.json")}
    for cell in cells.values():
        for result in cell["results"]:
            assert result["tables"].pop("timings")[0]["seconds"] > 0
    return cells


@pytest.mark.parametrize("way", WAYS, ids=["serial", "mini-batches", "corrected", "parallel", "dealt"])
@pytest.mark.parametrize("classes", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_the_bits_of_one_process(way: dict[str, Any], classes: int, client: Client, tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path / "store", classes=classes))
    X, _ = read_shards(store.folder)
    block = block_of(store, grid_of(way))
    weights, tables = run(client, block, store, tmp_path)
    fit = fit_epochs(X, store.labels(), grid=grid_of(way), epochs=EPOCHS, seed=5, n_classes=classes)
    assert weights.any()
    assert weights.tobytes() == fit.weights.tobytes()
    figures = [own["metrics"][0] for own in tables]
    np.testing.assert_allclose([row["objective"] for row in figures], fit.objective.T.ravel(), rtol=1e-12)
    outputs = weights.shape[1] // 2
    assert [row["nonzeros"] for row in figures[1::2]] == [
        np.count_nonzero(weights[:, :outputs]),
        np.count_nonzero(weights[:, outputs:]),
    ]


def test_the_bits_of_any_cluster_and_store(client: Client, tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    expected, _ = run(client, block_of(store, grid_of(PARALLEL)), store, tmp_path / "two")
    with connect(ClusterOptions(threads=1), tmp_path / "scratch") as one:
        finer = Store.open(make_store(tmp_path / "finer", shard_rows=23))
        weights, _ = run(one, block_of(finer, grid_of(PARALLEL)), finer, tmp_path / "one")
    assert weights.tobytes() == expected.tobytes()


def test_one_part_is_serial(client: Client, tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    serial, _ = run(client, block_of(store, grid_of({"estimate": "corrected"})), store, tmp_path)
    alone, _ = run(client, block_of(store, grid_of({**PARALLEL, "parts": 1})), store, tmp_path)
    assert alone.tobytes() == serial.tobytes()


def test_figures_of_a_fold(client: Client, tmp_path: Path) -> None:
    """What is held out is neither learned from nor drawn; what stands in the tables is what the weights give."""
    store = Store.open(make_store(tmp_path / "store"))
    block = block_of(store, grid_of({}), fold=1)
    weights, tables = run(client, block, store, tmp_path)
    X, labels = read_shards(store.folder)[0], store.labels()
    held_out = np.zeros(store.n_rows, bool)
    held_out[fold_rows(5, 0, store.n_rows, 1, 4)] = True
    passes = LocalPasses.of(X, labels, Span(seed=5, fold=1, folds=4))
    problem = Problem.of("caos-erm", "logistic", "l1", grid_of({}), 2, store.n_features)
    alone = SampledEpochs(problem, passes, 5)
    alone.play()
    alone.play()
    assert alone.weights().tobytes() == weights.tobytes()
    z, y = X @ weights, np.where(labels == 1, 1.0, -1.0)
    losses, wrong = np.logaddexp(0, -y[:, None] * z), (z > 0) != (y > 0)[:, None]
    for i, own in enumerate(tables[1::2]):
        (metrics,), (curve,) = own["metrics"], own["curves"]
        assert metrics["rows"] == curve["rows"] == 2 * 2 * (~held_out).sum()
        assert metrics["held_out_rows"] == held_out.sum()
        assert metrics["held_out_loss"] == pytest.approx(losses[held_out, i].mean())
        assert metrics["held_out_error"] == pytest.approx(wrong[held_out, i].mean())
        assert metrics["progressive_loss"] == curve["progressive_loss"] == pytest.approx(losses[~held_out, i].mean())
        assert metrics["progressive_error"] == pytest.approx(wrong[~held_out, i].mean())
        assert metrics["status"] == "ok"
        assert sum(row["kept"] for row in own["kept"]) == metrics["nonzeros"]
        assert set(metrics) <= set(METRICS.names)
        assert set(curve) <= set(CURVES.names)
        assert set(own["kept"][0]) <= set(KEPT.names)


@pytest.mark.parametrize("way", [pytest.param({}, marks=pytest.mark.slow), PARALLEL], ids=["serial", "parallel"])
def test_a_killed_run_goes_on_with_the_same_bits(
    way: dict[str, Any], client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after each thing that is done once: sizes, passes, rounds, states."""
    store = Store.open(make_store(tmp_path / "store"))
    block = block_of(store, grid_of(way))
    expected, _ = run(client, block, store, tmp_path / "whole")
    cells = without_timings(tmp_path / "whole" / "cells")
    for moment in range(7):
        folder = tmp_path / f"killed-{moment}"
        steps = iter(range(100))

        def dying(function: Any, moment: int = moment, steps: Iterator[int] = steps) -> Any:
            def step(*arguments: Any) -> Any:
                result = function(*arguments)
                if next(steps) == moment:
                    raise KeyboardInterrupt
                return result

            return step

        with monkeypatch.context() as patch:
            for name in ("_sizes", "_rounds", "_take_up"):
                patch.setattr(
                    sampled_module.SampledOnCluster, name, dying(getattr(sampled_module.SampledOnCluster, name))
                )
            patch.setattr(sampled_module.ClusterPasses, "run", dying(sampled_module.ClusterPasses.run))
            with pytest.raises(KeyboardInterrupt):
                run(client, block, store, folder)
        weights, _ = run(client, block, store, folder)
        assert weights.tobytes() == expected.tobytes()
        assert without_timings(folder / "cells") == cells


def test_a_damaged_state_costs_time_only(client: Client, tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    block = block_of(store, grid_of({}))
    expected, _ = run(client, block, store, tmp_path)
    (state,) = (tmp_path / "work" / block.digest).glob("state-*.npz")
    content = bytearray(state.read_bytes())
    content[len(content) // 2] ^= 1
    state.write_bytes(content)
    longer = block_of(store, grid_of({}), epochs=3)
    assert longer.digest == block.digest
    weights, _ = run(client, longer, store, tmp_path)
    again, _ = run(client, longer, store, tmp_path / "again")
    assert weights.tobytes() == again.tobytes() != expected.tobytes()


def test_it_stops_when_asked_and_leaves_no_more_than_is_needed(client: Client, tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    block = block_of(store, grid_of({}), epochs=3)
    told: list[int] = []
    folders = tmp_path / "cells", tmp_path / "work"
    assert not run_epoch_block(client, block, store, *folders, told.append, stopped=lambda: len(told) == 1)
    own = tmp_path / "work" / block.digest
    assert [path.name for path in own.glob("state-*")] == ["state-1.npz"]
    assert not list(own.glob("passes/*"))
    assert run_epoch_block(client, block, store, *folders, told.append)
    assert not own.exists()
    shutil.rmtree(store.folder)  # what is in its cells is not run again
    assert run_epoch_block(client, block, store, *folders, told.append)
    assert len(told) == 4


def test_a_model(client: Client, tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    block = block_of(store, grid_of(PARALLEL)[:1])
    for _ in range(2):
        train_epoch_block(client, block, store, tmp_path / "model", tmp_path / "work", lambda rows: None)
    model = Model(tmp_path / "model")
    X, _ = read_shards(store.folder)
    fit = fit_epochs(X, store.labels(), grid=grid_of(PARALLEL)[:1], epochs=EPOCHS, seed=5)
    weights = np.zeros(store.n_features)
    weights[model.table["feature_id"].to_numpy()] = model.table["weight"].to_numpy()
    assert weights.tobytes() == fit.weights[:, 0].tobytes()
    assert (model.description["algorithm"], model.description["epochs"]) == ("caos-erm", EPOCHS)
    assert not (tmp_path / "work").exists()


def test_what_diverges_is_said(client: Client, tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    wild = [{"R": 1e9, "alpha": 0.0}, {"R": 0.3}]
    weights, tables = run(client, block_of(store, wild), store, tmp_path)
    assert [own["metrics"][0]["status"] for own in tables] == ["diverged", "diverged", "ok", "ok"]
    assert tables[0]["metrics"][0]["reason"].startswith("diverged in round ")
    alone, _ = run(client, block_of(store, wild[1:]), store, tmp_path / "alone")
    assert weights[:, 1].tobytes() == alone[:, 0].tobytes()
    with pytest.raises(SparseocoError, match=r"caos-erm diverged in round .*: choose a smaller R"):
        train_epoch_block(
            client, block_of(store, wild[:1]), store, tmp_path / "model", tmp_path / "work", lambda rows: None
        )
    assert not (tmp_path / "work").exists()
