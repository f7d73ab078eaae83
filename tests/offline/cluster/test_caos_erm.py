"""Epoch methods on Dask: the bits of one process for any cluster, after any kill; cells and models as any block's."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from sparseoco.core.errors import SparseocoError
from sparseoco.core.logs import no_progress
from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.kernels.order import fold_rows
from sparseoco.offline.cluster import methods as module
from sparseoco.offline.cluster.epochs import run_epoch_block
from sparseoco.offline.epochs import EpochProblem, SampledEpochs, fit_epochs
from sparseoco.offline.passes import LocalPasses, Span
from sparseoco.search.models import train_block
from sparseoco.storage.tables import CURVES, FEATURE_SURVIVAL, METRICS_SCHEMA
from sparseoco.store.shards import Store, read_shards
from sparseoco.training.block import Block
from sparseoco.training.models import Model
from sparseoco.training.stream import NO_FOLD
from tests.offline.epoch_blocks import (
    CLASS_WEIGHTS,
    DEALT,
    caos_erm_grid,
    epoch_block,
    metrics,
    run_block,
    weighted_store,
    without_timings,
)
from tests.support.errors import raises_code
from tests.support.stores import make_store

PREVIOUS = {"predict_gradient": "previous", "sample": "uniform", "batch": 2}
VARIANTS = {
    "serial": {},
    "mini-batches": {"batch": 4},
    "corrected": {"estimate": "corrected"},
    "corrected, dealt": DEALT,
    "dealt": {"placement": "dealt", "parts": 3},
    "previous": PREVIOUS,
    "previous, dealt": {**PREVIOUS, "placement": "dealt", "parts": 3},
}
EPOCHS = 2


def make_block(store: Store, grid: list[dict[str, Any]], *, fold: int = NO_FOLD, epochs: int = EPOCHS) -> Block:
    return epoch_block(store, "caos-erm", grid, epochs=epochs, fold=fold)


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("classes", [2, 3])
def test_same_bits_as_in_one_process(variant: dict[str, Any], classes: int, client: Client, tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path / "store", classes=classes))
    X, _ = read_shards(store.folder)
    block = make_block(store, caos_erm_grid(variant))
    weights, tables = run_block(client, block, store, tmp_path)
    fit = fit_epochs(X, store.labels(), grid=caos_erm_grid(variant), epochs=EPOCHS, seed=5, n_classes=classes)
    assert weights.any()
    assert weights.tobytes() == fit.weights.tobytes()
    figures = metrics(tables)
    np.testing.assert_allclose([row["objective"] for row in figures], fit.objective.T.ravel(), rtol=1e-12)
    outputs = weights.shape[1] // 2
    assert [row["nonzeros"] for row in figures[1::2]] == [
        np.count_nonzero(weights[:, :outputs]),
        np.count_nonzero(weights[:, outputs:]),
    ]


def test_bits_do_not_depend_on_cluster_or_shards(client: Client, tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    expected, _ = run_block(client, make_block(store, caos_erm_grid(DEALT)), store, tmp_path / "two")
    with connect(ClusterOptions(threads=1), tmp_path / "scratch") as one:
        finer = Store.open(make_store(tmp_path / "finer", shard_rows=23))
        weights, _ = run_block(one, make_block(finer, caos_erm_grid(DEALT)), finer, tmp_path / "one")
    assert weights.tobytes() == expected.tobytes()


def test_one_part_is_serial(client: Client, tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    serial, _ = run_block(client, make_block(store, caos_erm_grid({"estimate": "corrected"})), store, tmp_path)
    alone, _ = run_block(client, make_block(store, caos_erm_grid({**DEALT, "parts": 1})), store, tmp_path)
    assert alone.tobytes() == serial.tobytes()


def test_metrics_of_a_fold(client: Client, tmp_path: Path) -> None:
    """Held-out rows are neither learned nor drawn; the tables hold the metrics of the weights."""
    store = Store.open(make_store(tmp_path / "store"))
    block = make_block(store, caos_erm_grid({}), fold=1)
    weights, tables = run_block(client, block, store, tmp_path)
    X, labels = read_shards(store.folder)[0], store.labels()
    held_out = np.zeros(store.n_rows, bool)
    held_out[fold_rows(5, 0, store.n_rows, 1, 4)] = True
    passes = LocalPasses.of(X, labels, Span(seed=5, fold=1, folds=4))
    problem = EpochProblem.of("caos-erm", "logistic", "l1", caos_erm_grid({}), 2, store.n_features)
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
        assert sum(row["nonzeros"] for row in own["feature_survival"]) == metrics["nonzeros"]
        assert set(metrics) <= set(METRICS_SCHEMA.names)
        assert set(curve) <= set(CURVES.names)
        assert set(own["feature_survival"][0]) <= set(FEATURE_SURVIVAL.names)


@pytest.mark.parametrize("variant", [{}, DEALT], ids=["serial", "dealt"])
def test_weights_and_an_intercept(variant: dict[str, Any], client: Client, tmp_path: Path) -> None:
    """The objective has the weights of documents and classes; loss and error, as those of streams, do not."""
    store, sample_weights = weighted_store(tmp_path)
    X, labels = read_shards(store.folder)[0], store.labels()
    grid = caos_erm_grid(variant)
    extended = {"class_weights": CLASS_WEIGHTS, "intercept": True}
    weights, tables = run_block(
        client, epoch_block(store, "caos-erm", grid, epochs=EPOCHS, **extended), store, tmp_path
    )
    arguments = {"grid": grid, "epochs": EPOCHS, "seed": 5, "fit_intercept": True}
    fit = fit_epochs(X, labels, sample_weight=sample_weights, **arguments)
    assert weights.tobytes() == np.vstack([fit.weights, fit.intercepts[:, 0]]).tobytes()
    assert weights.tobytes() != fit_epochs(X, labels, **arguments).weights.tobytes()
    figures = metrics(tables)
    np.testing.assert_allclose([row["objective"] for row in figures], fit.objective.T.ravel(), rtol=1e-12)
    assert [row["nonzeros"] for row in figures[1::2]] == np.count_nonzero(fit.weights, axis=0).tolist()
    z = X @ fit.weights + fit.intercepts[:, 0]
    losses = np.logaddexp(0, -np.where(labels == 1, 1.0, -1.0)[:, None] * z)
    np.testing.assert_allclose([row["progressive_loss"] for row in figures[1::2]], losses.mean(axis=0), rtol=1e-12)

    one = epoch_block(store, "caos-erm", grid[:1], epochs=EPOCHS, **extended)
    train_block(client, one, store, tmp_path / "model", no_progress, {})
    assert Model(tmp_path / "model").intercepts.tolist() == fit.intercepts[0].tolist()


@pytest.mark.parametrize(
    "variant",
    [*(pytest.param(variant, marks=pytest.mark.slow) for variant in ({}, PREVIOUS)), DEALT],
    ids=["serial", "previous", "dealt"],
)
def test_a_killed_run_resumes_with_the_same_bits(
    variant: dict[str, Any], client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after each step: sizes, passes, rounds, states."""
    store = Store.open(make_store(tmp_path / "store"))
    block = make_block(store, caos_erm_grid(variant))
    expected, _ = run_block(client, block, store, tmp_path / "whole")
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
            for name in ("_row_sizes", "_start_rounds", "_load"):
                patch.setattr(module.SampledOnCluster, name, dying(getattr(module.SampledOnCluster, name)))
            patch.setattr(module.ClusterPasses, "run", dying(module.ClusterPasses.run))
            with pytest.raises(KeyboardInterrupt):
                run_block(client, block, store, folder)
        weights, _ = run_block(client, block, store, folder)
        assert weights.tobytes() == expected.tobytes()
        assert without_timings(folder / "cells") == cells


def test_a_corrupt_state_is_ignored(client: Client, tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    block = make_block(store, caos_erm_grid({}))
    expected, _ = run_block(client, block, store, tmp_path)
    (state,) = (tmp_path / "work" / block.digest).glob("state-*.npz")
    content = bytearray(state.read_bytes())
    content[len(content) // 2] ^= 1
    state.write_bytes(content)
    longer = make_block(store, caos_erm_grid({}), epochs=3)
    assert longer.digest == block.digest
    weights, _ = run_block(client, longer, store, tmp_path)
    again, _ = run_block(client, longer, store, tmp_path / "again")
    assert weights.tobytes() == again.tobytes() != expected.tobytes()


def test_it_stops_when_asked_and_leaves_only_the_last_state(client: Client, tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    block = make_block(store, caos_erm_grid({}), epochs=3)
    reported: list[int] = []
    folders = tmp_path / "cells", tmp_path / "work"
    assert not run_epoch_block(client, block, store, *folders, reported.append, stopped=lambda: len(reported) == 1)
    own = tmp_path / "work" / block.digest
    assert sorted(path.name for path in own.glob("state-*")) == [f"state-1.{kind}" for kind in ("json", "npy", "npz")]
    assert not list(own.glob("passes/*"))
    assert run_epoch_block(client, block, store, *folders, reported.append)
    assert not own.exists()
    shutil.rmtree(store.folder)  # what is in its cells is not run again
    assert run_epoch_block(client, block, store, *folders, reported.append)
    assert len(reported) == 4


def test_a_model(client: Client, tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    block = make_block(store, caos_erm_grid(DEALT)[:1])
    for _ in range(2):
        train_block(client, block, store, tmp_path / "model", no_progress, {})
    model = Model(tmp_path / "model")
    X, _ = read_shards(store.folder)
    fit = fit_epochs(X, store.labels(), grid=caos_erm_grid(DEALT)[:1], epochs=EPOCHS, seed=5)
    weights = np.zeros(store.n_features)
    weights[model.table["feature_id"].to_numpy()] = model.table["weight"].to_numpy()
    assert weights.tobytes() == fit.weights[:, 0].tobytes()
    assert (model.description["algorithm"], model.description["epochs"]) == ("caos-erm", EPOCHS)
    assert not (tmp_path / "model" / ".work").exists()


def test_a_diverging_configuration_is_reported(client: Client, tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    wild = [{"R": 1e9, "alpha": 0.0}, {"R": 0.3}]
    weights, tables = run_block(client, make_block(store, wild), store, tmp_path)
    assert [own["metrics"][0]["status"] for own in tables] == ["diverged", "diverged", "ok", "ok"]
    assert tables[0]["metrics"][0]["reason"].startswith("diverged in round ")
    alone, _ = run_block(client, make_block(store, wild[1:]), store, tmp_path / "alone")
    assert weights[:, 1].tobytes() == alone[:, 0].tobytes()
    with raises_code("diverged", "caos-erm", "smaller R", kind=SparseocoError):
        train_block(client, make_block(store, wild[:1]), store, tmp_path / "model", no_progress, {})
    assert not (tmp_path / "model" / ".work").exists()
