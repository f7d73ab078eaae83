"""Epoch methods on Dask: the bits of one process for any cluster, after any kill; cells and models as any block's."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from sparseoco.core.errors import SparseocoError
from sparseoco.core.logs import no_progress
from sparseoco.execution.clusters import ClusterOptions, WorkerShape, connect
from sparseoco.execution.pool import TaskError
from sparseoco.kernels.order import fold_rows
from sparseoco.offline.cluster import epochs as module
from sparseoco.offline.cluster.epochs import run_epoch_block
from sparseoco.offline.epochs import Coordinates, EpochProblem, SampledEpochs, fit_epochs
from sparseoco.offline.passes import LocalPasses, Span
from sparseoco.search.models import train_block
from sparseoco.store import corpus as corpus_module
from sparseoco.store import transpose as transpose_module
from sparseoco.store.corpus import open_corpus
from sparseoco.store.shards import Store, read_shards
from sparseoco.store.transpose import transpose
from sparseoco.training.block import Block
from sparseoco.training.models import Model
from sparseoco.training.search_tables import CURVES, FEATURE_SURVIVAL, METRICS_SCHEMA
from sparseoco.training.stream import NO_FOLD
from tests.offline.problems import (
    CAO_RCD_GRID,
    CLASS_WEIGHTS,
    DEALT,
    caos_erm_grid,
    coordinates,
    epoch_block,
    metrics,
    run_block,
    weighted_store,
    without_timings,
)
from tests.support.errors import raises_code
from tests.support.kills import check_under_kills
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
EPOCHS = {"caos-erm": 2, "cao-rcd": 3}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.open(make_store(tmp_path_factory.mktemp("store")))


def make_block(store: Store, grid: list[dict[str, Any]], *, fold: int = NO_FOLD, epochs: int = 2) -> Block:
    return epoch_block(store, "caos-erm", grid, epochs=epochs, fold=fold)


def cao_rcd_grid(**more: Any) -> list[dict[str, Any]]:
    return [entry | more for entry in CAO_RCD_GRID]


CASES = {
    **{
        f"{name}, {k} classes": ("caos-erm", "l1", caos_erm_grid(own), k)
        for name, own in VARIANTS.items()
        for k in (2, 3)
    },
    "cao-rcd, box": (
        "cao-rcd",
        "box",
        [{"R": R, "rounds": 150, "predict_gradient": "last", "scale": "max_abs"} for R in (0.3, 1.0)],
        2,
    ),
    "cao-rcd, l1": ("cao-rcd", "l1", cao_rcd_grid(batch=4), 3),
    "cao-rcd, elastic net": ("cao-rcd", "elastic_net", cao_rcd_grid(batch=4, partition="random"), 2),
}


@pytest.mark.parametrize(("name", "penalty", "grid", "classes"), CASES.values(), ids=CASES)
def test_the_cluster_has_the_bits_of_one_process(
    name: str, penalty: str, grid: list[dict[str, Any]], classes: int, client: Client, tmp_path: Path
) -> None:
    store, epochs = Store.open(make_store(tmp_path / "store", classes=classes)), EPOCHS[name]
    X, _ = read_shards(store.folder)
    block = epoch_block(store, name, grid, epochs=epochs, penalty=penalty)
    weights, tables = run_block(client, block, store, tmp_path)
    own = {"algorithm": name, "penalty": penalty, "grid": grid, "epochs": epochs, "seed": 5}
    fit = fit_epochs(X, store.labels(), n_classes=classes, **own)
    assert weights.any()
    assert weights.tobytes() == fit.weights.tobytes()
    figures = metrics(tables)
    np.testing.assert_allclose([row["objective"] for row in figures], fit.objective.T.ravel(), rtol=1e-12)
    halves = np.split(weights, 2, axis=1)
    assert [row["nonzeros"] for row in figures[epochs - 1 :: epochs]] == [np.count_nonzero(half) for half in halves]


def test_bits_do_not_depend_on_cluster_or_shards(client: Client, store: Store, tmp_path: Path) -> None:
    expected, _ = run_block(client, make_block(store, caos_erm_grid(DEALT)), store, tmp_path / "two")
    with connect(ClusterOptions(threads=1), tmp_path / "scratch") as one:
        finer = Store.open(make_store(tmp_path / "finer", shard_rows=23))
        weights, _ = run_block(one, make_block(finer, caos_erm_grid(DEALT)), finer, tmp_path / "one")
    assert weights.tobytes() == expected.tobytes()


def test_one_part_is_serial(client: Client, store: Store, tmp_path: Path) -> None:
    serial, _ = run_block(client, make_block(store, caos_erm_grid({"estimate": "corrected"})), store, tmp_path)
    alone, _ = run_block(client, make_block(store, caos_erm_grid({**DEALT, "parts": 1})), store, tmp_path)
    assert alone.tobytes() == serial.tobytes()


def test_metrics_of_a_fold(client: Client, store: Store, tmp_path: Path) -> None:
    """Held-out rows are neither learned nor drawn; the tables hold the metrics of the weights."""
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


@pytest.mark.parametrize(
    ("name", "grid", "fold"),
    [
        ("caos-erm", caos_erm_grid({}), NO_FOLD),
        ("caos-erm", caos_erm_grid(DEALT), NO_FOLD),
        ("cao-rcd", CAO_RCD_GRID, NO_FOLD),
        ("cao-rcd", CAO_RCD_GRID, 1),
    ],
    ids=["serial", "dealt", "cao-rcd", "cao-rcd, fold"],
)
def test_weights_and_an_intercept(
    name: str, grid: list[dict[str, Any]], fold: int, client: Client, tmp_path: Path
) -> None:
    """The objective has the weights of documents and classes; loss and error, as those of streams, do not."""
    store, sample_weights = weighted_store(tmp_path)
    X, labels, epochs = read_shards(store.folder)[0], store.labels(), EPOCHS[name]
    extended = {"epochs": epochs, "fold": fold, "class_weights": CLASS_WEIGHTS, "intercept": True}
    weights, tables = run_block(client, epoch_block(store, name, grid, **extended), store, tmp_path)
    if fold != NO_FOLD:
        sample_weights[fold_rows(5, 0, store.n_rows, fold, 4)] = 0.0
    arguments = {"algorithm": name, "grid": grid, "epochs": epochs, "seed": 5, "fit_intercept": True}
    fit = fit_epochs(X, labels, sample_weight=sample_weights, **arguments)
    assert weights.tobytes() == np.vstack([fit.weights, fit.intercepts[:, 0]]).tobytes()
    assert weights.tobytes() != fit_epochs(X, labels, **arguments).weights.tobytes()
    figures = metrics(tables)
    np.testing.assert_allclose([row["objective"] for row in figures], fit.objective.T.ravel(), rtol=1e-12)
    last = figures[epochs - 1 :: epochs]
    assert [row["nonzeros"] for row in last] == np.count_nonzero(fit.weights, axis=0).tolist()
    if fold == NO_FOLD:
        z = X @ fit.weights + fit.intercepts[:, 0]
        losses = np.logaddexp(0, -np.where(labels == 1, 1.0, -1.0)[:, None] * z)
        np.testing.assert_allclose([row["progressive_loss"] for row in last], losses.mean(axis=0), rtol=1e-12)
        one = epoch_block(store, name, grid[:1], **extended)
        train_block(client, one, store, tmp_path / "model", no_progress, {})
        assert Model(tmp_path / "model").intercepts.tolist() == fit.intercepts[0].tolist()


def dying(function: Callable[..., Any], steps: Iterator[int], moment: int, error: BaseException) -> Any:
    """The function, after which a run is killed at a moment."""

    def step(*arguments: Any) -> Any:
        result = function(*arguments)
        if next(steps) == moment:
            raise error
        return result

    return step


@pytest.mark.parametrize(
    "variant",
    [*(pytest.param(variant, marks=pytest.mark.slow) for variant in ({}, PREVIOUS)), DEALT],
    ids=["serial", "previous", "dealt"],
)
def test_a_killed_run_of_caos_erm_resumes_with_the_same_bits(
    variant: dict[str, Any], client: Client, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after each step: sizes, passes, rounds, states."""
    block = make_block(store, caos_erm_grid(variant))
    expected, _ = run_block(client, block, store, tmp_path / "whole")
    cells = without_timings(tmp_path / "whole" / "cells")
    for moment in range(7):
        folder, death = tmp_path / f"killed-{moment}", (iter(range(100)), moment, KeyboardInterrupt())
        with monkeypatch.context() as patch:
            for owner, name in (
                *((module.SampledOnCluster, name) for name in ("_row_sizes", "_start_rounds", "_load")),
                (module.ClusterPasses, "run"),
            ):
                patch.setattr(owner, name, dying(getattr(owner, name), *death))
            with pytest.raises(KeyboardInterrupt):
                run_block(client, block, store, folder)
        weights, _ = run_block(client, block, store, folder)
        assert weights.tobytes() == expected.tobytes()
        assert without_timings(folder / "cells") == cells


def test_a_corrupt_state_is_ignored(client: Client, store: Store, tmp_path: Path) -> None:
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


@pytest.mark.parametrize(("name", "grid"), [("caos-erm", caos_erm_grid(DEALT)[:1]), ("cao-rcd", CAO_RCD_GRID[:1])])
def test_a_model(name: str, grid: list[dict[str, Any]], client: Client, tmp_path: Path) -> None:
    store, epochs = Store.open(make_store(tmp_path / "store")), EPOCHS[name]
    block = epoch_block(store, name, grid, epochs=epochs)
    for _ in range(2):
        train_block(client, block, store, tmp_path / "model", no_progress, {})
    model = Model(tmp_path / "model")
    X, _ = read_shards(store.folder)
    fit = fit_epochs(X, store.labels(), algorithm=name, grid=grid, epochs=epochs, seed=5)
    weights = np.zeros(store.n_features)
    weights[model.table["feature_id"].to_numpy()] = model.table["weight"].to_numpy()
    assert weights.tobytes() == fit.weights[:, 0].tobytes()
    assert (model.description["algorithm"], model.description["epochs"]) == (name, epochs)
    assert not (tmp_path / "model" / ".work").exists()


def test_a_diverging_configuration_is_reported(client: Client, store: Store, tmp_path: Path) -> None:
    wild = [{"R": 1e9, "alpha": 0.0}, {"R": 0.3}]
    weights, tables = run_block(client, make_block(store, wild), store, tmp_path)
    assert [own["metrics"][0]["status"] for own in tables] == ["diverged", "diverged", "ok", "ok"]
    assert tables[0]["metrics"][0]["reason"].startswith("diverged in round ")
    alone, _ = run_block(client, make_block(store, wild[1:]), store, tmp_path / "alone")
    assert weights[:, 1].tobytes() == alone[:, 0].tobytes()
    with raises_code("diverged", "caos-erm", "smaller R", kind=SparseocoError):
        train_block(client, make_block(store, wild[:1]), store, tmp_path / "model", no_progress, {})
    assert not (tmp_path / "model" / ".work").exists()


# ----------------------------------------------------------------------------------------------------------------------
# cao-rcd on Dask: the bits of one process for any cluster and store, after any kill.


def cao_rcd(
    store: Store, grid: list[dict[str, Any]] = CAO_RCD_GRID, *, fold: int = NO_FOLD, loss: str = "logistic"
) -> Block:
    return epoch_block(store, "cao-rcd", grid, epochs=EPOCHS["cao-rcd"], fold=fold, loss=loss)


def run(client: Client, block: Block, store: Store, folder: Path) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """The final weights, and the metrics of each configuration and epoch."""
    weights, tables = run_block(client, block, store, folder)
    return weights, metrics(tables)


def test_bits_do_not_depend_on_cluster_shards_or_grid(
    client: Client, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, figures = run(client, cao_rcd(store, loss="squared_hinge"), store, tmp_path / "two")
    monkeypatch.setattr(corpus_module, "MAPPED_BYTES", 0)  # as if it were large
    with connect(ClusterOptions(threads=1), tmp_path / "scratch") as one:
        finer = Store.open(make_store(tmp_path / "finer", shard_rows=23))
        for i in range(2):
            part = cao_rcd(finer, CAO_RCD_GRID[i : i + 1], loss="squared_hinge")
            weights, own = run(one, part, finer, tmp_path / f"alone-{i}")
            assert weights[:, 0].tobytes() == expected[:, i].tobytes()
            assert own == figures[3 * i : 3 * i + 3]


def test_held_out_rows_are_not_learned(client: Client, store: Store, tmp_path: Path) -> None:
    own = cao_rcd(store, fold=1)
    weights, figures = run(client, own, store, tmp_path)
    X, labels = read_shards(store.folder)[0], store.labels()
    kept = np.ones(store.n_rows, bool)
    kept[fold_rows(5, 0, store.n_rows, 1, 4)] = False
    alone = coordinates(X[kept], labels[kept], *own.configurations, seed=5)
    for _ in range(3):
        alone.play()
    np.testing.assert_array_equal(alone.weights(), weights)
    assert [row["held_out_rows"] for row in figures] == [(~kept).sum()] * 6
    sizes = np.diff(X.tocsc().indptr)
    expected = (1 + 150 * (alone.sampling(0).chances * sizes).sum() / sizes.sum()) * kept.sum()
    assert figures[0]["rows"] == pytest.approx(expected, abs=0.5)
    assert figures[2]["rows"] == 3 * figures[0]["rows"]


def test_a_killed_run_of_cao_rcd_resumes_with_the_same_bits(
    client: Client, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = cao_rcd(store)
    expected, figures = run(client, own, store, tmp_path / "whole")
    play, write = Coordinates.play, module.commit_state
    for moment in range(2 * EPOCHS["cao-rcd"]):
        death = iter(range(100)), moment, RuntimeError("killed")
        with monkeypatch.context() as patch:
            patch.setattr(Coordinates, "play", dying(play, *death))
            patch.setattr(module, "commit_state", dying(write, *death))
            with raises_code("task-failed", "killed", kind=TaskError):
                run(client, own, store, tmp_path / f"{moment}")
        weights, again = run(client, own, store, tmp_path / f"{moment}")
        assert weights.tobytes() == expected.tobytes()
        assert again == figures


def test_a_block_that_does_not_fit_is_refused(
    client: Client, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "worker_shape", lambda client: WorkerShape(1, 10**4, 1))
    with raises_code("out-of-memory", "cao-rcd", "2 columns", "200 features", "300 documents"):
        run(client, cao_rcd(store), store, tmp_path)


def test_a_large_corpus_is_memory_mapped(
    client: Client, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = transpose(client, store, tmp_path)
    monkeypatch.setattr(corpus_module, "MAPPED_BYTES", 0)
    corpus = open_corpus(columns, tmp_path / "scratch")
    csc = read_shards(store.folder)[0].tocsc()
    for _ in range(2):
        for array, expected in zip(corpus.whole(), (csc.indptr, csc.indices, csc.data), strict=False):
            np.testing.assert_array_equal(array, expected)
        corpus.rest()


# ----------------------------------------------------------------------------------------------------------------------
# Workers killed at random moments change no bit of an epoch method's result.


@pytest.mark.slow
@pytest.mark.parametrize(("kills", "seed"), [(1, 0), (20, 1)])
def test_caos_erm_with_killed_workers(store: Store, tmp_path: Path, kills: int, seed: int) -> None:
    block = epoch_block(store, "caos-erm", caos_erm_grid(DEALT), epochs=8)
    with connect(ClusterOptions(threads=2), tmp_path / "scratch") as client:
        expected, _ = run_block(client, block, store, tmp_path / "whole")
    cells = without_timings(tmp_path / "whole" / "cells")
    with connect(ClusterOptions(workers=2, threads=1), tmp_path / "processes") as client:

        def run_once(folder: Path) -> None:
            weights, _ = run_block(client, block, store, folder)
            assert weights.tobytes() == expected.tobytes()
            assert without_timings(folder / "cells") == cells

        check_under_kills(tmp_path / "runs", run_once, kills=kills, seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize(("kills", "seed"), [(2, 0), (20, 1)])
def test_cao_rcd_with_workers_killed_also_during_the_transpose(
    tmp_path: Path, kills: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transpose_module, "RANGE_NONZEROS", 400)
    store = Store.open(make_store(tmp_path / "store", shard_rows=30))
    block = epoch_block(store, "cao-rcd", CAO_RCD_GRID, epochs=8)
    with connect(ClusterOptions(threads=2), tmp_path / "scratch") as client:
        expected, tables = run_block(client, block, store, tmp_path / "whole")

    def transposed_files(folder: Path) -> list[str]:
        return sorted(path.name for path in next((folder / "work").glob("columns-*")).iterdir())

    with connect(ClusterOptions(workers=2, threads=1), tmp_path / "processes") as client:

        def run_once(folder: Path) -> None:
            weights, found = run_block(client, block, store, folder)
            assert weights.tobytes() == expected.tobytes()
            assert metrics(found) == metrics(tables)
            assert transposed_files(folder) == transposed_files(tmp_path / "whole")

        check_under_kills(tmp_path / "runs", run_once, kills=kills, seed=seed)
