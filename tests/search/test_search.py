import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from distributed import Client

from sparseoco.core.errors import SparseocoError, StorageError
from sparseoco.core.logs import no_progress
from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.pipeline import steps
from sparseoco.search import results as block_run
from sparseoco.search.runner import search_configurations
from sparseoco.storage.tables import read_metrics
from sparseoco.store.shards import Store
from sparseoco.training.options import SearchOptions
from tests.search.options import OPTIONS
from tests.support.errors import raises_code
from tests.support.searches import plain_search
from tests.support.stores import make_store

DETERMINED = ("metrics.parquet", "curves.parquet", "feature_survival.parquet", "best.json")


def search(client: Client, store: Path, folder: Path, options: SearchOptions = OPTIONS) -> dict[str, Any]:
    configurations = options.configurations()
    tables = search_configurations(client, configurations, options, Store.open(store), folder, no_progress)
    del tables["timings"]
    return tables


def cells(folder: Path) -> dict[str, int]:
    """The cells of a search, and when they were written."""
    return {path.name: path.stat().st_mtime_ns for path in (folder / "cells").iterdir()}


def test_a_row_for_each_configuration_fold_and_epoch(client: Client, tmp_path: Path) -> None:
    metrics = search(client, make_store(tmp_path / "store"), tmp_path / "search")["metrics"]
    keys = [(row["configuration"], row["fold"], row["epoch"]) for row in metrics]
    assert keys == [(c, f, e) for c in range(9) for f in range(3) for e in (1, 2)]
    assert {row["status"] for row in metrics} == {"ok"}
    for fold in range(3):
        rows = next(row for row in metrics if row["fold"] == fold and row["epoch"] == 2)
        assert rows["rows"] + 2 * rows["held_out_rows"] == 2 * 300
    best = min(row["held_out_error"] for row in metrics)
    assert best < 0.1  # the classes are far apart


@pytest.mark.fault(48)
@pytest.mark.parametrize("classes", [2, 4])
def test_the_same_tables_for_any_shards_and_grouping(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, classes: int
) -> None:
    first = make_store(tmp_path / "a", classes=classes, shard_rows=300)
    second = make_store(tmp_path / "b", classes=classes, shard_rows=41)
    expected = search(client, first, tmp_path / "a-search")
    monkeypatch.setattr("sparseoco.search.packing.BLOCK_COLUMNS", 1)
    monkeypatch.setattr("sparseoco.training.stream.CHUNK_ROWS", 7)
    assert search(client, second, tmp_path / "b-search") == expected
    assert len(cells(tmp_path / "b-search")) == 54
    assert len(cells(tmp_path / "a-search")) < 54


def test_a_larger_grid_runs_only_what_is_new(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store(tmp_path / "store")
    before = search(client, store, tmp_path / "search")
    old = cells(tmp_path / "search")
    grown = OPTIONS.model_copy(update={"algorithms": {"rda": {"lam": [1e-3]}, **OPTIONS.algorithms}})
    after = search(client, store, tmp_path / "search", grown)
    new = cells(tmp_path / "search")
    assert old.items() < new.items()
    assert len(new) - len(old) == 6
    moved = [row | {"configuration": row["configuration"] + 1} for row in before["metrics"]]
    assert after["metrics"][6:] == moved


@pytest.mark.fault(11)
def test_changed_options_never_meet_old_results(client: Client, tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    first = search(client, store, tmp_path / "search")
    second = search(client, store, tmp_path / "search", OPTIONS.model_copy(update={"seed": 1}))
    assert first["metrics"] != second["metrics"]


def test_progressive_error_ranks_where_nothing_is_held_out(client: Client, tmp_path: Path) -> None:
    options = OPTIONS.model_copy(update={"folds": 1, "epochs": 1})
    metrics = search(client, make_store(tmp_path / "store"), tmp_path / "search", options)["metrics"]
    assert all(row["held_out_rows"] == 0 and row["held_out_error"] is None for row in metrics)
    assert {row["rows"] for row in metrics} == {300}


@pytest.mark.fault(24)
def test_a_diverging_configuration_is_a_row_and_disturbs_nobody(client: Client, tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    calm = plain_search(algorithms={"fobos": {"lam": [0.0], "eta0": [0.5]}}, loss="squared_hinge", folds=2)
    both = calm.model_copy(update={"algorithms": {"fobos": {"lam": [0.0], "eta0": [0.5, 1e30]}}})
    expected = search(client, store, tmp_path / "a", calm)["metrics"]
    metrics = search(client, store, tmp_path / "b", both)["metrics"]
    assert [row for row in metrics if row["configuration"] == 0] == expected
    wild = [row for row in metrics if row["configuration"] == 1]
    assert {row["status"] for row in wild} == {"diverged"}
    assert all(row["reason"].startswith("diverged at row ") for row in wild)


@pytest.mark.fault(3)
def test_a_block_that_fails_becomes_rows_with_the_reason(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = block_run.Learner

    def learner(algorithm: str, **settings: Any) -> Any:
        if algorithm == "stda":
            raise MemoryError
        return whole(algorithm, **settings)

    monkeypatch.setattr(block_run, "Learner", learner)
    store = make_store(tmp_path / "store")
    metrics = search(client, store, tmp_path / "search")["metrics"]
    failed = [row for row in metrics if row["algorithm"] == "stda"]
    assert len(failed) == 9
    assert {(row["status"], row["reason"]) for row in failed} == {("failed", "out of memory")}
    assert {row["status"] for row in metrics if row["algorithm"] != "stda"} == {"ok"}
    monkeypatch.undo()
    assert {row["status"] for row in search(client, store, tmp_path / "search")["metrics"]} == {"ok"}


@pytest.mark.fault(12)
def test_a_damaged_shard_stops_the_search_with_its_name(client: Client, tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", rows=290)  # a corpus this process has not read yet
    shard = store / Store.open(store).shards[2].file
    shard.write_bytes(shard.read_bytes()[:-1])
    with raises_code("corrupt-file", shard.name, kind=StorageError):
        search(client, store, tmp_path / "search")


def test_a_failed_search_can_be_repeated_while_its_error_is_referenced(client: Client, tmp_path: Path) -> None:
    """An error keeps its traceback, and with it futures of blocks that failed with the first."""
    folder = make_store(tmp_path / "store", rows=280)  # a corpus this process has not read yet
    shard = folder / Store.open(folder).shards[0].file
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-10])
    with pytest.raises(StorageError) as held:
        search(client, folder, tmp_path / "search")
    while any(future.status == "pending" for future in list(client.futures.values())):
        time.sleep(0.01)
    shard.write_bytes(whole)
    assert {row["status"] for row in search(client, folder, tmp_path / "search")["metrics"]} == {"ok"}
    assert held.tb is not None


@pytest.mark.fault(3)
def test_what_cannot_fit_is_refused_with_the_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparseoco.execution.options.MIN_MEMORY", 0)
    store = make_store(tmp_path / "store", features=3000)
    with (
        connect(ClusterOptions(threads=1, memory="10kB"), tmp_path) as small,
        raises_code("out-of-memory", "3,000 features × 1 columns"),
    ):
        search(small, store, tmp_path / "search")


@pytest.mark.fault(10)
def test_steps_leave_the_same_bytes_each_time(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    for name in ("a", "b"):
        steps.search(store, tmp_path / name, OPTIONS, ClusterOptions(threads=1 if name == "a" else 2))
        steps.train_best(store, tmp_path / name, ClusterOptions(threads=1))
    for file in [*(f"search/{name}" for name in DETERMINED), "run.json", "model/model.json", "model/weights.parquet"]:
        if file != "run.json":
            assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file
    table = read_metrics(tmp_path / "a")
    assert table.num_rows == 54
    assert min(table["seconds"].to_pylist()) > 0
    best = json.loads((tmp_path / "a" / "search" / "best.json").read_bytes())
    curve = pq.read_table(tmp_path / "a" / "model" / "curve.parquet").to_pylist()
    assert curve[-1]["rows"] == 300 * best["epochs"]
    assert curve[-1]["nonzeros"] == pq.read_metadata(tmp_path / "a" / "model" / "weights.parquet").num_rows


def test_training_that_diverges_ends_with_the_reason(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    options = plain_search(algorithms={"fobos": {"lam": [0.0], "eta0": [1e30]}}, loss="squared_hinge")
    with raises_code("diverged", "fobos", kind=SparseocoError):
        steps.train(store, tmp_path / "m", options.configurations()[0], options, ClusterOptions(threads=1), epochs=1)


SCRIPT = """
import sys
from pathlib import Path
from sparseoco.pipeline import steps
from sparseoco.search import packing as module
from sparseoco.execution.clusters import ClusterOptions
from tests.search.options import OPTIONS
if __name__ == "__main__":
    module.BLOCK_COLUMNS = 1
    folder = Path(sys.argv[1])
    cluster = ClusterOptions(workers=2) if sys.argv[2] == "processes" else ClusterOptions(threads=2)
    steps.search(folder / "store", folder / "run", OPTIONS, cluster)
"""


def test_killed_at_any_moment_and_run_again_it_ends_with_the_same_bytes(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    steps.search(store, tmp_path / "whole", OPTIONS, ClusterOptions(threads=2))
    cells = tmp_path / "run" / "search" / "cells"
    for wanted in (1, 9, 20):
        command = [sys.executable, "-c", SCRIPT, str(tmp_path), "threads"]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
            while process.poll() is None and len(list(cells.glob("*.json"))) < wanted:
                time.sleep(0.002)
            process.kill()
        assert not (tmp_path / "run" / "search" / "metrics.parquet").exists()
    kept = {path: path.stat().st_mtime_ns for path in cells.glob("*.json")}
    subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path), "threads"], check=True)
    assert all(path.stat().st_mtime_ns == when for path, when in kept.items())
    for file in DETERMINED:
        assert (tmp_path / "run" / "search" / file).read_bytes() == (tmp_path / "whole" / "search" / file).read_bytes()


@pytest.mark.fault(1)
@pytest.mark.slow
@pytest.mark.parametrize("kills", [3, 20])
def test_killed_workers_change_nothing(tmp_path: Path, kills: int) -> None:
    store = make_store(tmp_path / "store")
    steps.search(store, tmp_path / "whole", OPTIONS, ClusterOptions(threads=2))
    with subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path), "processes"]) as process:
        killed = 0
        while process.poll() is None:
            workers = _children_of(process.pid)
            cells = len(list((tmp_path / "run" / "search" / "cells").glob("*.json")))
            if cells > 2 * killed and workers and killed < kills:
                os.kill(workers[killed % len(workers)], signal.SIGKILL)
                killed += 1
            time.sleep(0.02)
    assert process.returncode == 0
    assert killed
    for file in DETERMINED:
        assert (tmp_path / "run" / "search" / file).read_bytes() == (tmp_path / "whole" / "search" / file).read_bytes()


def _children_of(parent: int) -> list[int]:
    """Worker processes: children whose command line says multiprocessing spawn."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            ppid = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
            command = (path / "cmdline").read_bytes()
        except OSError:
            continue
        if ppid == parent and b"spawn_main" in command:
            found.append(int(path.name))
    return found
