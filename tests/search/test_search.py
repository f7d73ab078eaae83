"""Searches: the same tables whatever the shards, the grouping, kills and stages; who is left, and with which bits."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from distributed import Client

from sparseoco.core.errors import SparseocoError, StorageError
from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.kernels.order import epoch_rows
from sparseoco.learners import find_algorithm
from sparseoco.pipeline import steps
from sparseoco.search import run, selection, worker
from sparseoco.search.increments import EMPTY, IncrementResults, read_increment_results
from sparseoco.search.selection import choose
from sparseoco.search.worker import BlockRun, furthest_checkpoints, load_checkpoint, save_checkpoint
from sparseoco.storage.commit import read_json
from sparseoco.store.corpus import open_corpus
from sparseoco.store.shards import Store, read_shards
from sparseoco.store.weighting import FeatureOptions
from sparseoco.training.block import Block
from sparseoco.training.learner import Learner
from sparseoco.training.options import SIZED_GRID, Halving, SearchOptions
from sparseoco.training.search_tables import read_metrics
from sparseoco.training.stream import StreamPosition
from tests.support.commands import Cli
from tests.support.damage import forge
from tests.support.errors import raises_code
from tests.support.folders import GROUPED, TIMED, assert_same_folder
from tests.support.processes import wait_until
from tests.support.searches import TablesOf, block_of, cells, learn_up_to, plain_search, search_tables
from tests.support.stores import make_store, store_of

pytestmark = pytest.mark.usefixtures("early_rungs")
OPTIONS = plain_search(
    algorithms={
        "cl-fobos": {"lam": [1e-4, 1e-3, 1e-2], "eta0": [0.1, 1.0]},
        "stda": {"lam": [1e-3], "p": [2, "inf"]},
    },
    folds=3,
    epochs=2,
)
FEW = plain_search(algorithms={"cl-fobos": {"lam": [1e-4, 1e-3]}, "adagrad": {"lam": [1e-4]}}, folds=2, epochs=2)
NUMBERS = FEW.model_copy(
    update={"loss": "squared", "algorithms": {"fobos": {"lam": [1e-4, 1e-3]}, "adagrad": {"lam": [1e-4]}}}
)
WEIGHTINGS = FeatureOptions(tf=("log", "binary"), idf=(True, False), norm=("l2",))
DENSE = plain_search(
    algorithms={"ogd": {"D": [2.0, 10.0], "domain": ["ball", "simplex"]}, "ons": {"beta": [1e-3, 1e-1]}, "onseg": {}},
    folds=2,
)
LAM, ETA = [1e-4, 1e-3, 1e-2, 1e-1], [0.01, 0.1, 1.0]
STAGED = plain_search(algorithms={"cl-fobos": {"lam": LAM, "eta0": ETA}}, folds=3, epochs=2)
HALVED = STAGED.model_copy(update={"halving": Halving(factor=2)})
THIRD, LEFT = Halving(factor=3, rungs=(0.4,)), {"ok", "dropped"}
CUTS: dict[str, tuple[dict[str, Any], SearchOptions, set[str]]] = {
    "two classes": ({"rows": 150}, OPTIONS.model_copy(update={"folds": 2}), {"ok"}),
    "four classes": ({"rows": 150, "classes": 4}, OPTIONS, {"ok"}),
    "label sets": ({"rows": 150, "classes": 3, "kind": "multi"}, FEW, {"ok"}),
    "numbers": ({"kind": "numbers"}, NUMBERS, {"ok", "diverged"}),
    "halved weightings": ({"rows": 150}, FEW.model_copy(update={"features": WEIGHTINGS, "halving": THIRD}), LEFT),
    "dense learners": ({"rows": 150, "features": 24, "classes": 3}, DENSE, {"ok"}),
    "halving": ({"features": 40}, HALVED, LEFT),
}


@pytest.mark.fault(48)
@pytest.mark.parametrize("case", CUTS)
def test_any_shards_and_groups(tables_of: TablesOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    shape, options, statuses = CUTS[case]
    monkeypatch.setattr("sparseoco.search.worker._pays", lambda *_, **__: True)
    expected = tables_of(store_of(tmp_path / "a", shard_rows=300, **shape), "a-search", options)
    assert {row["status"] for row in expected["metrics"]} == statuses
    monkeypatch.setattr("sparseoco.search.packing.BLOCK_COLUMNS", 1)
    monkeypatch.setattr("sparseoco.training.stream.CHUNK_ROWS", 47)
    assert tables_of(store_of(tmp_path / "b", shard_rows=41, **shape), "b-search", options) == expected
    assert len(cells(tmp_path / "b-search")) > len(cells(tmp_path / "a-search"))


@pytest.mark.fault(11)
@pytest.mark.parametrize(
    ("options", "before"),
    [
        (OPTIONS, {"algorithms": {"stda": OPTIONS.algorithms["stda"]}}),
        (HALVED, {"algorithms": {"cl-fobos": {"lam": LAM[:2], "eta0": [0.01, 0.1, 1.0]}}}),
        (OPTIONS, {"epochs": 1}),
        (OPTIONS, {"seed": 1}),
        (FEW.model_copy(update={"features": WEIGHTINGS}), {"features": FeatureOptions(tf="log", idf=True, norm="l2")}),
    ],
    ids=["a grid", "a grid that is halved", "epochs", "another seed", "weightings"],
)
def test_a_grown_search(tables_of: TablesOf, tmp_path: Path, options: SearchOptions, before: dict[str, Any]) -> None:
    """Cells that are there stay as they are, and those of other settings are not used."""
    store = make_store(tmp_path / "store", rows=240, features=40)
    tables_of(store, "grown", options.model_copy(update=before))
    first = cells(tmp_path / "grown")
    expected = tables_of(store, "once", options)
    assert tables_of(store, "grown", options) == expected
    assert first.items() < cells(tmp_path / "grown").items()


def test_a_row_for_each_configuration_fold_and_epoch(tables_of: TablesOf, store: Path) -> None:
    """The progressive error ranks where nothing is held out."""
    metrics = tables_of(store, "search", OPTIONS)["metrics"]
    keys = [(row["configuration"], row["fold"], row["epoch"]) for row in metrics]
    assert keys == [(c, f, e) for c in range(8) for f in range(3) for e in (1, 2)]
    assert {row["status"] for row in metrics} == {"ok"}
    for fold in range(3):
        rows = next(row for row in metrics if row["fold"] == fold and row["epoch"] == 2)
        assert rows["rows"] + 2 * rows["held_out_rows"] == 2 * 300
    best = min(row["held_out_error"] for row in metrics)
    assert best < 0.1  # the classes are far apart
    metrics = tables_of(store, "search", OPTIONS.model_copy(update={"folds": 1, "epochs": 1}))["metrics"]
    assert all(row["held_out_rows"] == 0 and row["held_out_error"] is None for row in metrics)
    assert {row["rows"] for row in metrics} == {300}


@pytest.mark.fault(24)
def test_a_diverging_configuration_is_a_row_and_disturbs_nobody(tables_of: TablesOf, store: Path) -> None:
    calm = plain_search(algorithms={"fobos": {"lam": [0.0], "eta0": [0.5]}}, loss="squared_hinge", folds=2)
    both = calm.model_copy(update={"algorithms": {"fobos": {"lam": [0.0], "eta0": [0.5, 1e30]}}})
    expected = tables_of(store, "a", calm)["metrics"]
    metrics = tables_of(store, "b", both)["metrics"]
    assert [row for row in metrics if row["configuration"] == 0] == expected
    wild = [row for row in metrics if row["configuration"] == 1]
    assert {row["status"] for row in wild} == {"diverged"}
    assert all(row["reason"].startswith("diverged at row ") for row in wild)


@pytest.mark.fault(12)
def test_a_damaged_shard_stops_the_search_with_its_name(tables_of: TablesOf, client: Client, tmp_path: Path) -> None:
    """It can be repeated while the error is referenced, with its traceback and futures of blocks that failed too."""
    store = make_store(tmp_path / "store", rows=290)  # a corpus this process has not read yet
    shard = store / Store.open(store).shards[2].file
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1])
    with raises_code("corrupt-file", shard.name, kind=StorageError) as held:
        tables_of(store, "search", OPTIONS)
    wait_until(lambda: all(future.status != "pending" for future in list(client.futures.values())))
    shard.write_bytes(whole)
    assert {row["status"] for row in tables_of(store, "search", OPTIONS)["metrics"]} == {"ok"}
    assert held.tb is not None


@pytest.mark.fault(3)
def test_what_cannot_fit_is_refused_with_the_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparseoco.execution.options.MIN_MEMORY", 0)
    store = make_store(tmp_path / "store", features=3000)
    with (
        connect(ClusterOptions(threads=1, memory="10kB"), tmp_path) as small,
        raises_code("out-of-memory", "3,000 features × 1 columns"),
    ):
        search_tables(small, store, tmp_path / "search", OPTIONS)


@pytest.mark.fault(10)
def test_steps_leave_the_same_bytes_each_time(store: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        steps.search(store, tmp_path / name, OPTIONS, ClusterOptions(threads=1 if name == "a" else 2))
        steps.train_best(store, tmp_path / name, ClusterOptions(threads=1))
    for part in ("search", "model"):
        assert_same_folder(tmp_path / "a" / part, tmp_path / "b" / part)
    table = read_metrics(tmp_path / "a")
    assert table.num_rows == 48
    assert min(table["seconds"].to_pylist()) > 0
    best = json.loads((tmp_path / "a" / "search" / "best.json").read_bytes())
    curve = pq.read_table(tmp_path / "a" / "model" / "curve.parquet").to_pylist()
    assert curve[-1]["rows"] == 300 * best["epochs"]
    assert curve[-1]["nonzeros"] == pq.read_metadata(tmp_path / "a" / "model" / "weights.parquet").num_rows


def test_training_that_diverges_ends_with_the_reason(store: Path, tmp_path: Path) -> None:
    options = plain_search(algorithms={"fobos": {"lam": [0.0], "eta0": [1e30]}}, loss="squared_hinge")
    with raises_code("no-candidate", "completed no configuration", kind=SparseocoError):
        steps.search(store, tmp_path / "run", options, ClusterOptions(threads=1))
    assert set(read_metrics(tmp_path / "run")["status"].to_pylist()) == {"diverged"}  # with the reasons
    with raises_code("diverged", "fobos", kind=SparseocoError):
        steps.train(store, tmp_path / "m", options.configurations()[0], options, ClusterOptions(threads=1), epochs=1)


def test_a_default_grid_that_grew_is_as_one_that_was_given(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lam = find_algorithm("adagrad").grid["lam"][2:]
    monkeypatch.setitem(SIZED_GRID, "adagrad", {"lam": lam})  # one of the default grids, for it has fewer values
    options = plain_search(algorithms={"adagrad": {"lam": lam}}, folds=2, select="one-standard-error")
    cluster = ClusterOptions(threads=2)
    steps.search(store, tmp_path / "grown", options, cluster)
    wider = read_json(tmp_path / "grown" / "run.json")["search"]["algorithms"]
    assert wider["adagrad"]["lam"][:4] == [*lam, 1e-3]

    started, search = [], run.search_configurations

    def stopped(*arguments: Any) -> Any:
        started.append(arguments)
        if len(started) == 2:
            raise StorageError("no space", code="disk-full")
        return search(*arguments)

    monkeypatch.setattr(run, "search_configurations", stopped)
    with pytest.raises(StorageError):
        steps.search(store, tmp_path / "stopped", options, cluster)
    assert not (tmp_path / "stopped" / "search" / "best.json").exists()
    steps.search(store, tmp_path / "stopped", options, cluster)
    assert_same_folder(tmp_path / "stopped" / "search", tmp_path / "grown" / "search")

    steps.search(store, tmp_path / "given", options.model_copy(update={"algorithms": wider}), cluster)
    others = TIMED | GROUPED | {"best.json"}
    assert_same_folder(tmp_path / "given" / "search", tmp_path / "grown" / "search", without=others)
    notes = [read_json(tmp_path / name / "search/best.json")["notes"] for name in ("grown", "given")]
    assert "lam was also tried at 0.001" in notes[0][0]
    assert all("tried" not in note for note in notes[1])

    monkeypatch.setattr(selection.Leading, "improves_on", lambda *_: False)
    monkeypatch.setattr(run, "search_configurations", search)
    steps.search(store, tmp_path / "noise", options, cluster)
    assert read_json(tmp_path / "noise" / "run.json")["search"]["algorithms"]["adagrad"]["lam"] == lam
    assert "0.001, which is no better by more than noise" in read_json(tmp_path / "noise/search/best.json")["notes"][0]


# ----------------------------------------------------------------------------------------------------------------------
# Successive halving, a time limit, a culprit among others, memory.


RUNGS = (75, 150)  # of 300 rows; 38 is before the first 40


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("store"), features=40)  # few enough for errors that fall slowly


def rows_of(metrics: list[dict[str, Any]], configuration: int) -> list[dict[str, Any]]:
    return [row for row in metrics if row["configuration"] == configuration]


def figures_at(store: Path, options: SearchOptions, position: int, fold: int) -> list[tuple[float, float]]:
    """Each configuration's progressive error and loss so far, by a learner of all of them that is stopped there."""
    X, _ = read_shards(store)
    rows = epoch_rows(options.seed, 1, True, X.shape[0], 0, position, fold, options.folds)
    grid = [configuration.parameters for configuration in options.configurations()]
    learner = Learner("cl-fobos", grid=grid, n_features=X.shape[1], dtype=options.dtype, intercept=True)
    learner.partial_fit(X[rows], Store.open(store).labels()[rows])
    n, losses, errors = learner.progress
    return [(float(error / n), float(loss / n)) for loss, error in zip(losses, errors, strict=True)]


@pytest.mark.parametrize("kept", [True, False])
def test_halving_is_ranking_by_hand_at_each_rung(
    tables_of: TablesOf, narrow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    """Whether checkpoints are loaded or the stream is learned again."""
    monkeypatch.setattr(worker, "_pays", lambda *_, **__: kept)
    got = tables_of(narrow, "halving", HALVED)
    whole = tables_of(narrow, "whole", STAGED)
    alive = list(range(len(LAM) * len(ETA)))
    for rung in RUNGS:
        folds = [figures_at(narrow, STAGED, rung, fold) for fold in range(3)]
        by_hand = sorted(alive, key=lambda c: (*np.mean([fold[c] for fold in folds], axis=0), c))
        for dropped in by_hand[len(alive) // 2 :]:
            rows = rows_of(got["metrics"], dropped)
            assert [row["status"] for row in rows] == ["dropped"] * 3
            assert {row["reason"] for row in rows} == {f"dropped at row {rung} by successive halving"}
            had = [(row["progressive_error"], row["progressive_loss"]) for row in rows]
            assert had == [fold[dropped] for fold in folds]
            assert all(row["nonzeros"] is not None and row["held_out_error"] is None for row in rows)
        alive = sorted(by_hand[: len(alive) // 2])
    assert len(alive) == 3
    for table in ("metrics", "curves", "feature_survival"):
        for survivor in alive:
            assert rows_of(got[table], survivor) == rows_of(whole[table], survivor)
    assert choose(got["metrics"], "best").configuration in alive
    assert not (tmp_path / "halving" / "checkpoints").exists()


def test_resume_out_of_time(tables_of: TablesOf, narrow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = HALVED.model_copy(update={"epochs": 6, "folds": 2})
    expected = tables_of(narrow, "whole", options)
    monkeypatch.setattr(worker, "_pays", lambda *_, **__: True)
    monkeypatch.setattr(worker, "POLL_SECONDS", 0)
    monkeypatch.setattr("sparseoco.training.stream.CHUNK_ROWS", 50)
    runs, limit, unfinished = 0, 0.05, True
    while unfinished:
        limited = options.model_copy(update={"time_limit": limit})
        got = tables_of(narrow, "limited", limited)
        left = [row for row in got["metrics"] if row["status"] == "unfinished"]
        unfinished = bool(left)
        assert {row["reason"] for row in left} <= {f"not finished within the time limit of {limit:g} s"}
        runs, limit = runs + 1, limit * 1.6
    assert runs > 2
    assert got == expected
    assert not (tmp_path / "limited" / "stop").exists()


def test_a_failing_task_is_isolated(tables_of: TablesOf, narrow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, bad = worker.Learner, STAGED.configurations()[5]

    def learner(algorithm: str, *, grid: Any, **settings: Any) -> Any:
        if any(parameters == bad.parameters for parameters in grid):
            raise MemoryError
        return whole(algorithm, grid=grid, **settings)

    expected = tables_of(narrow, "whole", STAGED)["metrics"]
    monkeypatch.setattr(worker, "Learner", learner)
    got = tables_of(narrow, "culprit", STAGED)["metrics"]
    assert {(row["status"], row["reason"]) for row in rows_of(got, bad.number)} == {("failed", "out of memory")}
    assert [row for row in got if row["configuration"] != bad.number] == [
        row for row in expected if row["configuration"] != bad.number
    ]
    halved = tables_of(narrow, "halved", HALVED)["metrics"]
    assert {row["status"] for row in rows_of(halved, bad.number)} == {"failed"}
    assert sum(row["status"] == "ok" for row in halved) >= 2 * 3 * 2
    monkeypatch.undo()
    assert tables_of(narrow, "culprit", STAGED)["metrics"] == expected


def test_blocks_fit_memory(tables_of: TablesOf, narrow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for part in ("PROCESS_BYTES", "CHUNK_BYTES", "FEATURE_BYTES", "MAPPED_BYTES"):
        monkeypatch.setattr(f"sparseoco.search.packing.{part}", 0)
    grid = {"cl-fobos": {"lam": [10.0**-k for k in range(1, 7)], "eta0": [0.1 * k for k in range(1, 9)]}}
    wide = STAGED.model_copy(update={"algorithms": grid, "folds": 2, "epochs": 1})
    expected = tables_of(narrow, "search", wide)
    cells = set((tmp_path / "search" / "cells").iterdir())
    column = 40 * (8 + 1 + 8)  # for each feature a state, a share of a stamp, and the weight of an evaluation
    held_out = 8 * (Store.open(narrow).n_rows // 2)
    small = wide.model_copy(update={"max_memory": 2 * (16 * (column + held_out) + 8 * 40)})  # for two tasks
    assert tables_of(narrow, "search", small) == expected
    assert set((tmp_path / "search" / "cells").iterdir()) == cells  # memory is no part of what a result is
    assert tables_of(narrow, "small", small) == expected
    widths = [len(read_json(path)["results"]) for path in (tmp_path / "small" / "cells").iterdir()]
    assert widths == [16] * 6
    with raises_code("out-of-memory", "--max-memory"):
        tables_of(narrow, "none", wide.model_copy(update={"max_memory": 2 * column}))


def test_an_epoch_method_runs_in_full_beside_halving(tables_of: TablesOf, narrow: Path, tmp_path: Path) -> None:
    both = {**HALVED.algorithms, "caos-erm": {"alpha": [0.1, 1.0], "R": [1.0]}}
    options = HALVED.model_copy(update={"algorithms": both, "folds": 2})
    metrics = tables_of(narrow, "both", options)["metrics"]
    alone = tables_of(narrow, "alone", HALVED.model_copy(update={"folds": 2}))["metrics"]
    assert [row for row in metrics if row["algorithm"] == "cl-fobos"] == alone
    rows = [row for row in metrics if row["algorithm"] == "caos-erm"]
    assert [(row["epoch"], row["status"]) for row in rows] == [(1, "ok"), (2, "ok")] * 4
    assert tables_of(narrow, "both", options)["metrics"] == metrics
    assert not (tmp_path / "both" / "checkpoints").exists()


def test_the_command_lists_unfinished_configurations(narrow: Path, tmp_path: Path, cli: Cli) -> None:
    run = tmp_path / "run"
    grid = "--algorithm cl-fobos --grid lam=1e-4,1e-3,1e-2,1e-1 --grid eta0=0.1,1 --folds 2 --halving 2 --epochs 4"
    limits = ("--loss", "logistic", "--max-memory", "1GB", "--threads", 1)
    command = ("search", narrow, "--out", run, *grid.split(), *limits)
    assert "unfinished" not in cli(*command).out
    page = (run / "report" / "report.html").read_text()
    assert page.count("<td>dropped</td>") == 2 * 6  # in both tables
    assert "by successive halving" in page
    # A cell is of another shape, though its checksum matches, and the time is over at once.
    forge(min((run / "search" / "cells").glob("*-2-300.json")), ("results", 0, "tables", "metrics"), [])
    assert cli("status", run, "--json").out
    assert "configurations unfinished" in cli(*command, "--time-limit", "0.000001").out
    assert "to finish those at the time limit" in (run / "report" / "report.html").read_text()


# ----------------------------------------------------------------------------------------------------------------------
# Checkpoints of blocks within a stream: loaded as saved, or ignored.


GRID = {"lam": [1e-4, 1e-2], "eta0": [0.1, 1.0]}


@pytest.fixture
def kept(tmp_path: Path) -> tuple[Path, Block, BlockRun]:
    """A folder with the state of a block in the middle of its stream."""
    store = Store.open(make_store(tmp_path / "store"))
    block = block_of(plain_search(algorithms={"cl-fobos": GRID}, folds=1), store)
    run = BlockRun.new(block, store)
    learn_up_to(run, open_corpus(store, tmp_path), StreamPosition(1, 100))
    save_checkpoint(tmp_path / "states", run)
    return tmp_path / "states", block, run


def test_a_state_is_loaded_as_saved(kept: tuple[Path, Block, BlockRun]) -> None:
    folder, block, run = kept
    found = load_checkpoint(folder, block, StreamPosition(1, 200))
    assert found.position == (1, 100)
    assert found.epoch_start.rows == run.epoch_start.rows
    assert found.curves == run.curves
    assert np.array_equal(found.learner.weights(), run.learner.weights())
    assert load_checkpoint(folder, block, StreamPosition(1, 99)) is None


def test_a_state_that_cannot_be_read_now_is_learned_again(kept: tuple[Path, Block, BlockRun]) -> None:
    """A nightly run, whose next increment starts from it, would stop instead."""
    folder, block, _ = kept
    (path,) = folder.glob("*.json")
    path.unlink()
    path.mkdir()
    assert load_checkpoint(folder, block, StreamPosition(1, 200)) is None
    with pytest.raises(StorageError):
        furthest_checkpoints(folder, [block.setting.digest], strict=True)


@pytest.mark.fault(52)
def test_the_state_of_another_fold_is_not_believed(tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    options = plain_search(algorithms={"cl-fobos": GRID}, folds=2)
    blocks = [block_of(options, store, fold) for fold in (0, 1)]
    for block in blocks:
        run = BlockRun.new(block, store)
        learn_up_to(run, open_corpus(store, tmp_path), StreamPosition(1, 100))
        save_checkpoint(tmp_path / "states", run)
    first, second = (tmp_path / "states").glob("*.learner")
    first.write_bytes(second.read_bytes())
    found = [load_checkpoint(tmp_path / "states", block, StreamPosition(1, 200)) for block in blocks]
    assert [state is None for state in found].count(True) == 1


# ----------------------------------------------------------------------------------------------------------------------
# The results of increments in one file: what the cells said, whatever was added first.


NAMES = ["a", "b", "c"]


def cell(version: int, name: str) -> dict[str, Any] | None:
    """The metrics of a configuration in an increment; one has none in the second, one has diverged."""
    if (version, name) == (2, "b"):
        return None
    diverged = name == "c" and version > 2
    return {
        "epoch": 1,
        "progressive_loss": None if diverged else version / 3 + ord(name) / 7,
        "progressive_error": None if name == "a" else 1 / (version + 1),
        "nonzeros": 10**15 + version,
        "features": version,
        "status": "diverged" if diverged else "ok",
        "reason": f"diverged at row {7}" if diverged else "",
    }


def digests(last: int) -> list[str]:
    return [f"setting {version}" for version in range(1, last + 1)]


def check(results: IncrementResults, last: int) -> None:
    every = {(version, name): cell(version, name) for version in range(1, last + 1) for name in NAMES}
    assert results.rows == {key: {k: v for k, v in row.items() if k != "epoch"} for key, row in every.items() if row}


def test_rows_are_those_of_the_cells(tmp_path: Path) -> None:
    results = EMPTY
    for last, names in [(1, ["a"]), (3, ["a", "c"]), (3, ["c", "b", "a"]), (6, NAMES)]:
        results = results.extended(f"plan {last}", digests(last), names, cell)
        results.write(tmp_path)
        results = read_increment_results(tmp_path)
    check(results, 6)
    assert (results.plan, list(results.settings)) == ("plan 6", digests(6))
    check(EMPTY.extended("plan 6", digests(6), NAMES, cell), 6)


def test_only_what_is_missing_is_asked_for() -> None:
    results, asked = EMPTY.extended("", digests(5), NAMES, cell), []

    def find(version: int, name: str) -> dict[str, Any] | None:
        asked.append((version, name))
        return cell(version, name)

    results.extended("", digests(6), NAMES, find)
    assert sorted(asked) == [(2, "b"), (6, "a"), (6, "b"), (6, "c")]
