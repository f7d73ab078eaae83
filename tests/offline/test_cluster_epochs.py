"""Epoch methods on Dask: the bits of one process for any cluster, after any kill; cells and models as any block's."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from sparseoco.core.errors import SparseocoError
from sparseoco.execution.clusters import ClusterOptions, TaskError, WorkerShape, connect
from sparseoco.kernels.order import fold_rows
from sparseoco.offline.cluster import epochs as module
from sparseoco.offline.cluster.passes import read_rows
from sparseoco.offline.epochs import AveragedEpochs, EpochProblem, SampledEpochs, fit_epochs
from sparseoco.offline.passes import Span
from sparseoco.search.run import train_block
from sparseoco.storage.commit import read_json
from sparseoco.store.shards import Session, Store, read_shards
from sparseoco.training.block import Block, Cells
from sparseoco.training.models import Model
from sparseoco.training.search_tables import CURVES, FEATURE_SURVIVAL, METRICS_SCHEMA
from sparseoco.training.stream import NO_FOLD, StreamPosition
from tests.offline import problems
from tests.offline.problems import local_passes_over
from tests.support.damage import flip
from tests.support.errors import raises_code
from tests.support.models import dense_weights
from tests.support.stores import make_store, with_columns

DEALT = {"estimate": "corrected", "placement": "dealt", "parts": 3}
CLASS_WEIGHTS = (0.5, 2.25)
CAO_RCD_GRID = [
    {"alpha": alpha, "R": R, "rounds": 150, "predict_gradient": "last"} for alpha, R in ((0.5, 0.3), (5.0, 1.0))
]
PREVIOUS = {**problems.PREVIOUS, "sample": "uniform", "batch": 2}
LAST = {"predict_gradient": "last", "rounds": 90}
VARIANTS = {
    "sampled": {"estimate": "sampled"},
    "random mini-batches": {"batch": 4, "partition": "random"},
    "corrected, dealt": DEALT,
    "last": LAST | {"estimate": "sampled"},
    "last, dealt": {**LAST, "batch": 2, "partition": "random", "placement": "dealt", "parts": 3},
    "previous": PREVIOUS,
    "previous, dealt": {**PREVIOUS, "placement": "dealt", "parts": 3},
}
ADAPTIVE = problems.caos_erm_grid({**DEALT, "sample": "adaptive", "batch": 2, "partition": "random"})[:1]
EPOCHS = {"caos-erm": 2, "optimistic-averaging": 3, "cao-rcd": 3}


def run_block(client: Client, block: Block, store: Store, folder: Path) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """The final weights, intercepts included, and the tables of each configuration and epoch."""
    reported: list[int] = []
    session = Session(client, store)
    assert module.run_epoch_block(session, block, folder / "cells", folder / "work", reported.append, resumable=True)
    assert reported == [store.n_rows * epoch for epoch in range(1, block.setting.epochs + 1)]
    cells = Cells(folder / "cells", [block.setting.digest])
    ends = [StreamPosition(epoch, store.n_rows) for epoch in range(1, block.setting.epochs + 1)]
    tables = [cells.at(block.setting.digest, name, end) for name in block.identities for end in ends]
    assert all(own is not None for own in tables)
    method: Any = module.begin(session, block, folder / "work" / block.digest)
    return np.array(read_rows(method.weights_file)), tables  # type: ignore[return-value]


def metrics(tables: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [own["metrics"][0] for own in tables]


def without_timings(folder: Path) -> dict[str, Any]:
    cells = {path.name: read_json(path) for path in folder.glob("*.json")}
    for cell in cells.values():
        for result in cell["results"]:
            assert result["tables"].pop("timings")[0]["seconds"] > 0
    return cells


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Store]:
    """By their number of classes."""
    return {k: Store.open(make_store(tmp_path_factory.mktemp("store"), classes=k)) for k in (2, 3)}


@pytest.fixture(scope="module")
def store(stores: dict[int, Store]) -> Store:
    return stores[2]


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with connect(ClusterOptions(threads=1), tmp_path_factory.mktemp("scratch")) as client:
        yield client


Run = Callable[..., tuple[np.ndarray, list[dict[str, Any]]]]


@pytest.fixture
def run(client: Client, store: Store, tmp_path: Path) -> Run:
    """``run(block, folder)``: a block of the store on the cluster, in a folder of the test."""
    return lambda block, folder="": run_block(client, block, store, tmp_path / folder)


Grid = list[dict[str, Any]]
AVERAGED = problems.caos_erm_grid({})
METHODS = {"caos-erm": problems.caos_erm_grid(DEALT), "optimistic-averaging": AVERAGED, "cao-rcd": CAO_RCD_GRID}
each_method = pytest.mark.parametrize(("name", "grid"), METHODS.items(), ids=METHODS)


def block_of(store: Store, name: str, grid: Grid, **more: Any) -> Block:
    return problems.epoch_block(store, name, grid, **{"epochs": EPOCHS[name]} | more)


def cao_rcd_grid(**more: Any) -> list[dict[str, Any]]:
    return [entry | more for entry in CAO_RCD_GRID]


CASES = {
    **{
        f"{name}, {2 + i % 2} classes": ("caos-erm", "l1", problems.caos_erm_grid(own), 2 + i % 2)
        for i, (name, own) in enumerate(VARIANTS.items())
    },
    **{
        f"optimistic-averaging, {penalty}": ("optimistic-averaging", penalty, grid, k)
        for penalty, grid, k in (("l1", AVERAGED, 3), ("box", [{"R": R} for R in (0.3, 1.0)], 2))
    },
    "cao-rcd, box": (
        "cao-rcd",
        "box",
        [{"R": R, "rounds": 150, "predict_gradient": "last", "scale": "max_abs"} for R in (0.3, 1.0)],
        2,
    ),
    "adaptive": ("caos-erm", "l1", ADAPTIVE, 3),
    "cao-rcd, l1": ("cao-rcd", "l1", cao_rcd_grid(batch=4), 3),
    "cao-rcd, elastic net": ("cao-rcd", "elastic_net", cao_rcd_grid(batch=4, partition="random"), 2),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_cluster_has_the_bits_of_one_process(
    case: tuple[Any, ...], client: Client, stores: dict[int, Store], tmp_path: Path
) -> None:
    name, penalty, grid, classes = case
    store, epochs = stores[classes], EPOCHS[name]
    X, _ = read_shards(store.folder)
    block = problems.epoch_block(store, name, grid, epochs=epochs, penalty=penalty)
    weights, tables = run_block(client, block, store, tmp_path)
    own = {"algorithm": name, "penalty": penalty, "grid": grid, "epochs": epochs, "seed": 5}
    fit = fit_epochs(X, store.labels(), n_classes=classes, **own)
    assert weights.any()
    assert weights.tobytes() == fit.weights.tobytes()
    figures = metrics(tables)
    np.testing.assert_allclose([row["objective"] for row in figures], fit.objective.T.ravel(), rtol=1e-12)
    halves = np.split(weights, len(grid), axis=1)
    assert [row["nonzeros"] for row in figures[epochs - 1 :: epochs]] == [np.count_nonzero(half) for half in halves]


@pytest.mark.parametrize("name", METHODS)
def test_bits_do_not_depend_on_cluster_shards_or_grid(
    name: str, run: Run, single: Client, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = METHODS[name]
    expected, tables = run(block_of(store, name, grid), "two")
    monkeypatch.setattr("sparseoco.store.corpus.MAPPED_BYTES", 0)  # as if it were large
    finer = Store.open(make_store(tmp_path / "finer", shard_rows=23))
    weights, own = run_block(single, block_of(finer, name, grid[1:]), finer, tmp_path / "alone")
    assert weights[:, 0].tobytes() == expected[:, 1].tobytes()
    assert metrics(own) == metrics(tables)[EPOCHS[name] :]


def test_one_part_is_serial(run: Run, store: Store) -> None:
    own = (problems.caos_erm_grid({"estimate": "corrected"}), problems.caos_erm_grid({**DEALT, "parts": 1}))
    serial, alone = (run(block_of(store, "caos-erm", grid))[0] for grid in own)
    assert alone.tobytes() == serial.tobytes()


@pytest.mark.parametrize("name", METHODS)
def test_held_out_rows_are_neither_learned_nor_drawn(name: str, run: Run, store: Store) -> None:
    """The tables hold the metrics of the weights."""
    grid, epochs = CAO_RCD_GRID if name == "cao-rcd" else problems.caos_erm_grid({}), EPOCHS[name]
    block = block_of(store, name, grid, fold=1)
    weights, tables = run(block)
    X, labels = read_shards(store.folder)[0], store.labels()
    held_out = np.zeros(store.n_rows, bool)
    held_out[fold_rows(5, 0, store.n_rows, 1, 4)] = True
    n = (~held_out).sum()
    alone: Any
    if name != "cao-rcd":
        problem = EpochProblem.of(name, "logistic", "l1", grid, 2, store.n_features)
        learned = local_passes_over(X, labels, Span(seed=5, fold=1, folds=4))
        sampled = name == "caos-erm"
        alone = SampledEpochs(problem, learned, 5) if sampled else AveragedEpochs(problem, learned)
        examples = n * (1 + sampled)
    else:
        alone = problems.coordinates(X[~held_out], labels[~held_out], *block.configurations, seed=5)
        sizes = np.diff(X.tocsc().indptr)
        examples = (1 + 150 * (alone.draws.sampling.chances * sizes).sum() / sizes.sum()) * n
    for _ in range(epochs):
        alone.play()
    assert alone.weights().tobytes() == weights.tobytes()
    z, y = X @ weights, np.where(labels == 1, 1.0, -1.0)
    losses, wrong = np.logaddexp(0, -y[:, None] * z), (z > 0) != (y > 0)[:, None]
    for i, own in enumerate(tables[epochs - 1 :: epochs]):
        (row,), (curve,) = own["metrics"], own["curves"]
        assert row["rows"] == curve["rows"] == pytest.approx(epochs * examples, abs=0.5 * epochs)
        assert row["held_out_rows"] == held_out.sum()
        for prefix, part in (("held_out", held_out), ("progressive", ~held_out)):
            assert row[f"{prefix}_loss"] == pytest.approx(losses[part, i].mean())
            assert row[f"{prefix}_error"] == pytest.approx(wrong[part, i].mean())
        assert curve["progressive_loss"] == row["progressive_loss"]
        state = alone.state if name == "cao-rcd" else alone._method.state
        assert row["data_bound"] == pytest.approx(4 * grid[i]["R"] * state[:, 1, i].sum())
        assert row["status"] == "ok"
        assert sum(bins["nonzeros"] for bins in own["feature_survival"]) == row["nonzeros"]
        assert set(row) <= set(METRICS_SCHEMA.names)
        assert set(curve) <= set(CURVES.names)
        assert set(own["feature_survival"][0]) <= set(FEATURE_SURVIVAL.names)


@pytest.mark.parametrize(
    ("name", "grid", "fold"),
    [
        ("caos-erm", problems.caos_erm_grid({}), NO_FOLD),
        ("caos-erm", problems.caos_erm_grid(DEALT), NO_FOLD),
        ("optimistic-averaging", AVERAGED, 1),
        ("cao-rcd", CAO_RCD_GRID, NO_FOLD),
        ("cao-rcd", CAO_RCD_GRID, 1),
    ],
    ids=["serial", "dealt", "averaged, fold", "cao-rcd", "cao-rcd, fold"],
)
def test_weights_and_an_intercept(name: str, grid: Grid, fold: int, client: Client, tmp_path: Path) -> None:
    """The objective has the weights of documents and classes; loss and error, as those of streams, do not."""
    store = Store.open(with_columns(make_store(tmp_path / "plain"), tmp_path / "weighted"))
    X, labels, epochs = read_shards(store.folder)[0], store.labels(), EPOCHS[name]
    sample_weights = np.array(CLASS_WEIGHTS)[labels] * (np.arange(store.n_rows) % 4) / 2
    extended = {"epochs": epochs, "fold": fold, "class_weights": CLASS_WEIGHTS, "intercept": True}
    weights, tables = run_block(client, problems.epoch_block(store, name, grid, **extended), store, tmp_path)
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
        one = problems.epoch_block(store, name, grid[:1], **extended)
        train_block(Session(client, store), one, tmp_path / "model", {})
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
    ("name", "grid"),
    [
        *(pytest.param("caos-erm", problems.caos_erm_grid(way), marks=pytest.mark.slow) for way in ({}, PREVIOUS)),
        ("caos-erm", ADAPTIVE),
        ("optimistic-averaging", AVERAGED),
        ("cao-rcd", cao_rcd_grid()[:1]),
    ],
    ids=["serial", "previous", *METHODS],
)
def test_a_killed_run_resumes_with_the_same_bits(
    name: str, grid: Grid, run: Run, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after each step of two epochs: sizes, passes, rounds, states."""
    block = block_of(store, name, grid, epochs=2)
    expected, _ = run(block, "whole")
    cells = without_timings(tmp_path / "whole" / "cells")
    steps = [(module.SampledOnCluster, step) for step in ("_row_sizes", "_start_rounds", "_load")]
    steps += [
        (owner, step)
        for owner in (module.AveragedOnCluster, module.CoordinatesOnCluster)
        for step in ("_play", "_load")
    ]
    for moment in range(7 if name == "caos-erm" else 4):
        folder, death = f"killed-{moment}", (iter(range(100)), moment, KeyboardInterrupt())
        with monkeypatch.context() as patch:
            for owner, step in (*steps, (module.ClusterPasses, "run")):
                patch.setattr(owner, step, dying(getattr(owner, step), *death))
            with pytest.raises(KeyboardInterrupt):
                run(block, folder)
        weights, _ = run(block, folder)
        assert weights.tobytes() == expected.tobytes()
        assert without_timings(tmp_path / folder / "cells") == cells


def test_a_task_that_dies_after_its_work_is_repeated(run: Run, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    block = block_of(store, "cao-rcd", CAO_RCD_GRID)
    expected, _ = run(block, "whole")
    with monkeypatch.context() as patch:
        patch.setattr(module, "commit_state", dying(module.commit_state, iter(range(9)), 1, RuntimeError("killed")))
        with raises_code("task-failed", "killed", kind=TaskError):
            run(block, "killed")
    weights, _ = run(block, "killed")
    assert weights.tobytes() == expected.tobytes()


def test_a_corrupt_state_is_ignored(run: Run, store: Store, tmp_path: Path) -> None:
    block = block_of(store, "caos-erm", problems.caos_erm_grid({}))
    expected, _ = run(block)
    (state,) = (tmp_path / "work" / block.digest).glob("epoch-*.npz")
    flip(state)
    longer = block_of(store, "caos-erm", problems.caos_erm_grid({}), epochs=3)
    assert longer.digest == block.digest
    (weights, _), (again, _) = run(longer), run(longer, "again")
    assert weights.tobytes() == again.tobytes() != expected.tobytes()


def test_it_stops_when_asked_and_leaves_only_the_last_state(client: Client, tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    block = block_of(store, "caos-erm", problems.caos_erm_grid({}), epochs=3)
    reported: list[int] = []
    session, folders = Session(client, store), (tmp_path / "cells", tmp_path / "work")
    assert not module.run_epoch_block(session, block, *folders, reported.append, stopped=lambda: len(reported) == 1)
    own = tmp_path / "work" / block.digest
    assert sorted(path.name for path in own.glob("epoch-*")) == [f"epoch-1.{kind}" for kind in ("json", "npy", "npz")]
    assert not list(own.glob("passes/*"))
    assert module.run_epoch_block(session, block, *folders, reported.append)
    assert not own.exists()
    shutil.rmtree(store.folder)  # what is in its cells is not run again
    assert module.run_epoch_block(session, block, *folders, reported.append)
    assert len(reported) == 4


@each_method
def test_a_model(name: str, grid: Grid, client: Client, store: Store, tmp_path: Path) -> None:
    epochs = EPOCHS[name]
    block = problems.epoch_block(store, name, grid[:1], epochs=epochs)
    for _ in range(2):
        train_block(Session(client, store), block, tmp_path / "model", {})
    model = Model(tmp_path / "model")
    X, _ = read_shards(store.folder)
    fit = fit_epochs(X, store.labels(), algorithm=name, grid=grid[:1], epochs=epochs, seed=5)
    assert dense_weights(model, store.n_features).tobytes() == fit.weights.tobytes()
    assert (model.description["algorithm"], model.description["epochs"]) == (name, epochs)
    assert not (tmp_path / "model" / ".work").exists()


def test_a_diverging_configuration_is_reported(run: Run, client: Client, store: Store, tmp_path: Path) -> None:
    wild = [{"R": 1e9, "alpha": 0.0}, {"R": 0.3}]
    weights, tables = run(block_of(store, "caos-erm", wild))
    assert [own["metrics"][0]["status"] for own in tables] == ["diverged", "diverged", "ok", "ok"]
    assert tables[0]["metrics"][0]["reason"].startswith("diverged in round ")
    alone, _ = run(block_of(store, "caos-erm", wild[1:]), "alone")
    assert weights[:, 1].tobytes() == alone[:, 0].tobytes()
    with raises_code("diverged", "caos-erm", "smaller R", kind=SparseocoError):
        train_block(Session(client, store), block_of(store, "caos-erm", wild[:1]), tmp_path / "model", {})
    assert not (tmp_path / "model" / ".work").exists()


def test_a_block_that_does_not_fit_is_refused(run: Run, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "worker_shape", lambda client: WorkerShape(1, 10**4, 1))
    block = block_of(store, "cao-rcd", [{"R": 1.0}, {"R": 2.0}])
    with raises_code("out-of-memory", "cao-rcd", "2 columns", "200 features", "300 documents"):
        run(block)
