"""What a task failed of is a sentence; what would stop every task is passed on as it is."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, KilledWorker

from sparseoco.core.errors import StorageError
from sparseoco.execution import pool as waiting
from sparseoco.execution.clusters import ClusterOptions, connect, spread_over, worker_shape
from sparseoco.execution.pool import TRIES, Awaited, TaskError, await_result, failure_reason, run_tasks, send
from sparseoco.search import epoch_jobs
from sparseoco.search.packing import Job
from sparseoco.search.tasks import ProgressTracker
from sparseoco.search.worker import Folders
from sparseoco.store.shards import Store
from sparseoco.training.block import Block
from tests.offline.epochs.test_cluster import block_of, grid_of
from tests.support.stores import make_store


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with connect(ClusterOptions(threads=2), tmp_path_factory.mktemp("scratch")) as client:
        yield client


def fail(error: Exception) -> None:
    raise error


def test_a_result_is_given_and_a_failure_said(client: Client) -> None:
    assert await_result(client, client.submit(sum, [1, 2]), "Adding failed") == 3
    with pytest.raises(TaskError, match=r"^Adding failed: out of memory\.$") as raised:
        await_result(client, client.submit(fail, MemoryError()), "Adding failed")
    assert failure_reason(raised.value) == "out of memory"
    with pytest.raises(StorageError, match=r"^The disk is full\.$"):
        await_result(client, client.submit(fail, StorageError("The disk is full.")), "Adding failed")
    with pytest.raises(StorageError):
        failure_reason(StorageError("The disk is full."))


def test_a_task_is_never_taken_for_another_of_its_name(client: Client) -> None:
    failed = send(client, "same", fail, MemoryError())
    with pytest.raises(TaskError):
        await_result(client, failed, "Adding failed")
    assert await_result(client, send(client, "same", sum, [1, 2]), "Adding failed") == 3
    assert failed.status == "error"  # it is held to the end


def test_a_result_that_takes_long_or_times_out_itself(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "WATCH_SECONDS", 0.05)
    assert Awaited(client, client.submit(slowly, 3, pure=False)).result() == 3
    with pytest.raises(TimeoutError, match="of its own"):
        Awaited(client, client.submit(fail, TimeoutError("of its own"))).result()


def slowly(value: int) -> int:
    time.sleep(0.3)
    return value


def test_tasks_whose_workers_die_are_tried_again_and_others_not(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "KilledWorker", LookupError)  # Dask's own does not survive being raised in a task
    calls = {
        "fine": (die_until, str(tmp_path / "fine"), 0),
        "late": (die_until, str(tmp_path / "late"), 2),
        "never": (die_until, str(tmp_path / "never"), TRIES),
        "wrong": (fail, ValueError("no")),
    }
    over: list[str] = []
    failed = run_tasks(client, calls, over.append)
    assert sorted(over) == sorted(calls)
    assert sorted(failed) == ["never", "wrong"]
    assert isinstance(failed["never"], LookupError)
    assert [(tmp_path / name).stat().st_size for name in ("fine", "late", "never")] == [1, 3, TRIES]


def die_until(path: str, deaths: int) -> None:
    """As if so many tries of a task had lost their workers; each leaves a byte."""
    with open(path, "a") as file:
        file.write(".")
    if Path(path).stat().st_size <= deaths:
        raise LookupError


def test_tasks_in_a_row_are_spread_in_runs(client: Client) -> None:
    places = [place["workers"] for place in spread_over(client, 4)]
    assert len(places) == 2 * worker_shape(client)[0] == 4
    assert places == sorted(places)


def test_a_block_whose_workers_die_is_halved_and_its_neighbours_come_through(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(make_store(tmp_path / "store", rows=30))
    block = block_of(store, grid_of({}), epochs=1)

    def run(client: Client, block: Block, *arguments: Any, **options: Any) -> bool:
        if block.configurations[0]["alpha"] == 1.0:
            raise TaskError("A pass failed", failure_reason(KilledWorker("leaves-0-1", None, 3)))
        return True

    monkeypatch.setattr(epoch_jobs, "run_epoch_block", run)
    meter = ProgressTracker("search", block.keys, store.n_rows, lambda *told: None)
    job = Job(block, (), resumable=False)
    failures = epoch_jobs.run_epoch_jobs(client, [job], store, Folders.of(tmp_path), meter, None)
    assert list(failures) == block.keys[:1]
    assert "its worker was killed" in failures[block.keys[0]]
