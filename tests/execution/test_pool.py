"""Tasks on workers, how they are interrupted, and the options of clusters."""

import threading
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pytest
from distributed import Client, Future, KilledWorker, Nanny

from sparseoco.cli.options import cluster_options
from sparseoco.core.errors import SparseocoError, StorageError
from sparseoco.execution import clusters as module
from sparseoco.execution.clusters import ClusterOptions, TaskError, TaskPool, connect, failure_reason, worker_shape
from sparseoco.pipeline.run_file import load_cluster_file, load_run_file
from sparseoco.search import runner as search_tasks
from sparseoco.search.packing import Job
from sparseoco.search.runner import ProgressTracker, run_epoch_jobs
from sparseoco.search.worker import Folders
from sparseoco.store.shards import Session, Store
from sparseoco.training.block import Block
from tests.offline.problems import caos_erm_grid, epoch_block
from tests.support.errors import raises_code
from tests.support.stores import make_store
from tests.support.texts import RUN_FILE

# ----------------------------------------------------------------------------------------------------------------------
# The task pool: results and errors of tasks, retries, splits, deadlines; what is started when something fails.


@pytest.fixture
def pool(client: Client) -> TaskPool:
    return TaskPool(client, "Adding failed")


def fail(error: Exception) -> None:
    raise error


def test_a_result_and_a_failure(pool: TaskPool) -> None:
    assert pool.call(sum, [1, 2]) == 3
    with raises_code("out-of-memory", "Adding failed: out of memory.", kind=TaskError) as caught:
        pool.call(fail, MemoryError())
    assert failure_reason(caught.value) == "out of memory"
    with raises_code("task-failed", "ValueError: no", kind=TaskError):
        pool.call(fail, ValueError("no"))


def test_errors_that_every_task_would_meet_are_raised_as_they_are(pool: TaskPool) -> None:
    full = StorageError("The disk is full.", code="disk-full")
    with raises_code("disk-full", full, kind=StorageError):
        pool.call(fail, full)
    with pytest.raises(StorageError):
        failure_reason(full)
    with raises_code("io-error", "Input/output error", kind=StorageError):
        pool.call(fail, OSError(5, "Input/output error"))


def test_a_new_task_runs_although_an_old_future_of_its_name_is_referenced(pool: TaskPool) -> None:
    failed = pool.submit(fail, MemoryError())
    with pytest.raises(TaskError):
        pool.result(failed)
    assert pool.submit(fail, MemoryError()).key != failed.key
    assert failed.status == "error"  # it is held to the end


def test_a_slow_result_and_a_timeout_of_the_task_itself(pool: TaskPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECK_SECONDS", 0.05)
    assert module.SubmittedTask(pool, pool.submit(slowly, 3)).result() == 3
    with raises_code("io-error", "of its own", kind=StorageError):
        pool.call(fail, TimeoutError("of its own"))


def slowly(value: int) -> int:
    time.sleep(0.3)
    return value


def test_a_task_that_fails_as_its_wait_ends_raises_its_own_error(pool: TaskPool) -> None:
    late = Mock(status="error", **{"result.side_effect": TimeoutError, "exception.return_value": ValueError("its own")})
    with raises_code("task-failed", "ValueError: its own", kind=TaskError):
        pool.result(late)


def test_results_of_many_tasks_in_order(pool: TaskPool) -> None:
    assert pool.map(divmod, [(i, 7) for i in range(20)]) == [divmod(i, 7) for i in range(20)]
    with raises_code("task-failed", "ZeroDivisionError", kind=TaskError):
        pool.map(divmod, [(1, 1), (1, 0)])


def test_a_sum_has_a_fixed_shape(pool: TaskPool) -> None:
    values = [[i] for i in range(5)]
    assert pool.result(pool.tree([pool.submit(list, value) for value in values])) == [0, 1, 2, 3, 4]


def test_tasks_of_dead_workers_are_tried_again(pool: TaskPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KilledWorker", LookupError)  # Dask's own does not survive being raised in a task
    calls = {
        "fine": (die_until, str(tmp_path / "fine"), 0),
        "late": (die_until, str(tmp_path / "late"), 2),
        "never": (die_until, str(tmp_path / "never"), module.TRIES),
        "wrong": (fail, ValueError("no")),
    }
    done: list[int] = []
    failures = pool.run_all(calls, done.append)
    assert done == [0, 1, 2, 3, 4]
    assert sorted(failures) == ["never", "wrong"]
    assert isinstance(failures["never"].__cause__, LookupError)
    assert [(tmp_path / name).stat().st_size for name in ("fine", "late", "never")] == [1, 3, module.TRIES]


def die_until(path: str, deaths: int) -> None:
    """As if so many attempts had lost their workers; each leaves a byte."""
    with open(path, "a") as file:
        file.write(".")
    if Path(path).stat().st_size <= deaths:
        raise LookupError


def test_a_failing_task_is_split_until_it_is_alone(pool: TaskPool) -> None:
    def start(numbers: list[int]) -> Future:
        return pool.submit(refuse_three, numbers)

    def split(numbers: list[int]) -> list[list[int]]:
        middle = len(numbers) // 2
        return [numbers[:middle], numbers[middle:]] if middle else [numbers]

    outcomes = list(pool.run([[0, 1, 2, 3], [4, 5]], start, split=split))
    assert [outcome.task for outcome in outcomes if outcome.failure] == [[3]]
    assert sorted(outcome.task for outcome in outcomes if outcome.error is None) == [[0, 1], [2], [4, 5]]
    assert [outcome.task for outcome in outcomes if not outcome.final] == [[0, 1, 2, 3], [2, 3]]


def refuse_three(numbers: list[int]) -> None:
    if 3 in numbers:
        raise ValueError("three")


def test_at_the_deadline_tasks_are_asked_to_stop_and_failures_are_not_final(
    pool: TaskPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = threading.Event()
    monkeypatch.setattr(module, "stopped_by_test", stopped, raising=False)
    begun = time.monotonic()
    outcomes = list(pool.run([1, 2], lambda task: pool.submit(wait_for_stop), deadline=begun + 0.5, stop=stopped.set))
    assert time.monotonic() - begun < 10
    assert [outcome.failure for outcome in outcomes] == [None, None]
    assert all(isinstance(outcome.error, ValueError) for outcome in outcomes)


def wait_for_stop() -> None:
    """Runs in this process."""
    assert module.stopped_by_test.wait(30)  # type: ignore[attr-defined]
    raise ValueError("stopped")


def test_a_deadline_that_is_over_stops_at_once(pool: TaskPool) -> None:
    stops: list[int] = []
    list(pool.run([1], lambda task: pool.submit(slowly, task), deadline=0.0, stop=lambda: stops.append(1)))
    assert stops == [1]


def test_pending_tasks_are_cancelled_when_one_fails(pool: TaskPool, tmp_path: Path) -> None:
    def start(i: int) -> Future:
        return pool.submit(leave_file, str(tmp_path / str(i)), i)

    try:
        for outcome in pool.run(range(50), start):
            pool.check(outcome)
    except TaskError as error:
        kept = error  # with the frames it came through
    time.sleep(1.0)
    assert kept.code == "task-failed"
    assert len(list(tmp_path.iterdir())) < 40


def leave_file(path: str, number: int) -> None:
    if number == 0:
        raise ValueError("first")
    time.sleep(0.1)
    Path(path).touch()


def test_a_task_whose_result_was_lost_is_waited_for_again(pool: TaskPool) -> None:
    """Its worker died after the task had ended, before its outcome was read."""
    futures: list[Future] = []

    def start(task: int) -> Future:
        futures.append(pool.submit(slowly, task))
        return futures[-1]

    statuses = iter(["lost", "pending", "finished"])
    status = Future.status
    with patch.object(Future, "status", property(lambda future: next(statuses, status.__get__(future)))):
        (outcome,) = pool.run([7], start)
    assert outcome.final
    assert pool.result(futures[0]) == 7


def test_a_lost_task_means_a_lost_cluster(pool: TaskPool) -> None:
    def start(task: int) -> Future:
        future = pool.submit(slowly, task)
        pool.client.cancel([future])
        return future

    with raises_code("cluster-lost", kind=SparseocoError):
        list(pool.run([1], start))
    future = pool.submit(slowly, 1)
    pool.client.cancel([future])
    with raises_code("cluster-lost", kind=SparseocoError):
        pool.result(future)


def test_consecutive_tasks_are_placed_together(client: Client) -> None:
    hosts = [placement["workers"] for placement in module.placements(client, 4)]
    assert len(hosts) == 2 * worker_shape(client)[0] == 4
    assert hosts == sorted(hosts)


def test_an_epoch_block_whose_workers_die_is_halved_and_the_rest_succeeds(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(make_store(tmp_path / "store", rows=30))
    block = epoch_block(store, "caos-erm", caos_erm_grid({}), epochs=1)

    def run(session: Session, block: Block, *arguments: Any, **options: Any) -> bool:
        if block.configurations[0]["alpha"] == 1.0:
            raise TaskError("A pass failed", failure_reason(KilledWorker("leaves-0-1", None, 3)))
        return True

    monkeypatch.setattr(search_tasks, "run_epoch_block", run)
    tracker = ProgressTracker(Session(client, store), "search", block.keys, store.n_rows)
    job = Job(block, (), resumable=False)
    failures = run_epoch_jobs(tracker, [job], Folders.of(tmp_path), None)
    assert list(failures) == block.keys[:1]
    assert "its worker was killed" in failures[block.keys[0]]


# ----------------------------------------------------------------------------------------------------------------------


class ForeignStop(BaseException):
    """Raised by the signal handler of another program."""


def test_workers_are_killed_at_a_stop_and_none_is_restarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, instantiate = [], Nanny.instantiate

    async def count(nanny: Nanny) -> Any:
        started.append(nanny)
        return await instantiate(nanny)

    monkeypatch.setattr(Nanny, "instantiate", count)
    with pytest.raises(ForeignStop), connect(ClusterOptions(workers=1), tmp_path):
        (nanny,) = started
        process = nanny.process.process
        raise ForeignStop
    assert process.exitcode == -9
    assert len(started) == 1


# ----------------------------------------------------------------------------------------------------------------------
# The `[cluster]` table: in a run file, in a file of its own, on the command line.


FILE = """
workers = 8
threads = 4
memory = "16GB"
"""


def write(folder: Path, text: str, name: str = "cluster.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_cluster_file_means_the_same_as_the_table(tmp_path: Path) -> None:
    alone = load_cluster_file(write(tmp_path, FILE))
    assert alone == ClusterOptions(workers=8, threads=4, memory="16GB")
    before = RUN_FILE.partition("[cluster]")[0]
    (tmp_path / "runs").mkdir()
    for text in (f'cluster = "../cluster.toml"\n{before}', f"{before}\n[cluster]\n{FILE}"):
        assert load_run_file(write(tmp_path / "runs", text, "run.toml")).cluster == alone


def test_the_command_line_overrides_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, FILE)
    assert cluster_options(file, {}) == load_cluster_file(file)
    assert cluster_options(file, {"workers": 3}) == ClusterOptions(workers=3, threads=4, memory="16GB")
    elsewhere = ClusterOptions(scheduler="tcp://127.0.0.1:8786")
    for named in (file, None):
        assert cluster_options(named, {"scheduler": "tcp://127.0.0.1:8786"}) == elsewhere
    assert cluster_options(None, {}) == ClusterOptions()
