"""Commands, workers, schedulers and servers that are killed, stopped or slow: the bytes of an undisturbed run."""

import ctypes
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import dask
import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest
from distributed import Client

from sparseoco.core.errors import SparseocoError, StorageError
from sparseoco.core.signals import MESSAGE
from sparseoco.execution.clusters import ClusterOptions, TaskPool, connect
from sparseoco.pipeline import steps
from sparseoco.pipeline.run_file import load_run_file
from sparseoco.store.shards import Store
from tests.faults.commands import BEFORE, COMMANDS, DIVIDED, OPTIONS, RESULTS, quick_run, tables, write_inputs
from tests.search.by_hand import cluster_by_hand
from tests.support.damage import failing_commit
from tests.support.errors import raises_code
from tests.support.folders import assert_same_folder, assert_same_results, folder_bytes
from tests.support.nightly_runs import arrive, soak
from tests.support.prefect_server import environment, flow_runs, prefect_server, running
from tests.support.processes import COMMAND, after, stop, worker_processes
from tests.support.stores import make_store
from tests.support.texts import write_run_file

# ----------------------------------------------------------------------------------------------------------------------
# Commands killed at random moments, all processes or one worker, and run again: the bytes of an undisturbed run.
#
# SPARSEOCO_CHAOS_KILLS is the number of kills of each command, SPARSEOCO_CHAOS_SEED the seed.


KILLS = int(os.environ.get("SPARSEOCO_CHAOS_KILLS", "4"))
SEED = os.environ.get("SPARSEOCO_CHAOS_SEED", "0")
ALSO = {
    "evaluate": ["evaluate", "run", "places.jsonl", "--predictions", "out/test.parquet"],
    "report": ["report", "run"],
}
WORKERS = {
    f"{name}, workers": " ".join(COMMANDS[name])
    .replace("--threads 1", "--workers 2")
    .replace("rich.toml", "workers.toml")
    .replace("nightly/places.toml", "nightly/workers.toml")
    .split()
    for name in ("ingest", "search", "train", "run", "nightly", "optimum", "regret", "score ids")
}
EVERY = {**COMMANDS, **ALSO, **WORKERS}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The inputs of all commands, a store and a run."""
    folder = tmp_path_factory.mktemp("inputs") / "work"
    write_inputs(folder, rows=1000)
    (folder / "tmp").mkdir()
    for command in BEFORE:
        assert _start(command, folder).wait() == 0, command
    arrive(folder / "nightly", 3)
    return folder


def _start(command: list[str], folder: Path) -> subprocess.Popen[bytes]:
    with (folder.parent / "output").open("ab") as output:
        return subprocess.Popen(
            [*COMMAND, *command],
            cwd=folder,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, "TMPDIR": str(folder / "tmp"), "PYTHONPATH": str(Path(__file__).parents[2])},
        )


def _kill(process: subprocess.Popen[bytes], choose: random.Random) -> None:
    """Kill a command with all its processes, or a worker."""
    workers = worker_processes(process.pid)
    if workers and choose.random() < 0.5:
        with suppress(psutil.NoSuchProcess):
            choose.choice(workers).kill()
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    psutil.wait_procs(workers, timeout=10)


class Undisturbed(NamedTuple):
    """A command that ran to its end: how long, what it left, and its result as it was before it."""

    command: list[str]
    seconds: float
    result: Path
    files: dict[str, bytes]
    before: Path | None

    def reset(self) -> None:
        shutil.rmtree(self.result, ignore_errors=True)
        if self.before is not None:
            shutil.copytree(self.before, self.result)


@pytest.fixture(params=EVERY)
def undisturbed(request: pytest.FixtureRequest, inputs: Path, tmp_path: Path) -> Undisturbed:
    result = inputs / RESULTS.get(request.param.partition(",")[0], "run" if request.param == "report" else "out")
    before = Path(shutil.copytree(result, tmp_path / "before")) if result.exists() else None
    started = time.monotonic()
    assert _start(EVERY[request.param], inputs).wait() == 0
    seconds = time.monotonic() - started
    found = Undisturbed(EVERY[request.param], seconds, result, folder_bytes(result), before)
    found.reset()
    return found


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.fault(1, 5, 62)
def test_killed_at_random_moments(undisturbed: Undisturbed, inputs: Path) -> None:
    choose, kills = random.Random(f"{SEED} {undisturbed.command}"), 0
    while kills < KILLS:
        process = _start(undisturbed.command, inputs)
        with suppress(subprocess.TimeoutExpired):
            process.wait(choose.uniform(0.3, 1.1) * undisturbed.seconds)
        _kill(process, choose)
        kills += 1
        if process.wait() == 0 or choose.random() < 0.3 or kills == KILLS:
            assert _start(undisturbed.command, inputs).wait() == 0, (SEED, kills)
            assert_same_folder(undisturbed.result, undisturbed.files, more=True, what=(SEED, kills))
            assert not list((inputs / "tmp").iterdir()), (SEED, kills)
            undisturbed.reset()
        else:
            assert process.returncode == -signal.SIGKILL, (SEED, kills)


@pytest.mark.slow
@pytest.mark.fault(6)
def test_stopped_at_random_moments(undisturbed: Undisturbed, inputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stop ends the command within ten seconds, in one sentence, and leaves nobody behind."""
    monkeypatch.chdir(inputs)
    choose, seconds, ends = random.Random(f"{undisturbed.command}"), 0.02, 0
    while True:
        number, group = choose.choice((signal.SIGINT, signal.SIGTERM)), choose.random() < 0.5
        end = stop(undisturbed.command, number, after(seconds), group=group)
        if end is None:
            break
        ends += 1
        assert end.said == f"sparseoco: {MESSAGE}\n", (seconds, number)
        assert end.code == 128 + number
        assert end.seconds < 10
        assert not end.alive
        seconds += choose.uniform(0.05, 0.3) + seconds / 10
        if choose.random() < 0.3:
            undisturbed.reset()
    assert ends
    assert_same_folder(undisturbed.result, undisturbed.files, more=True)
    undisturbed.reset()


@pytest.mark.usefixtures("early_rungs")
@pytest.mark.fault(2)
@pytest.mark.slow
def test_a_configuration_that_kills_its_worker_is_isolated(tmp_path: Path) -> None:
    """One configuration ends its worker's process each time; the others succeed."""
    store = make_store(tmp_path / "store", features=40)
    options = OPTIONS.model_copy(update={"halving": None, "epochs": 1, "folds": 2})
    steps.search(store, tmp_path / "whole", options, ClusterOptions(threads=1))
    poison = {"distributed.worker.preload": ["tests.faults.poison"], "distributed.scheduler.allowed-failures": 0}
    with dask.config.set(poison):
        steps.search(store, tmp_path / "run", options, ClusterOptions(workers=2))
    expected, got = (pq.read_table(tmp_path / n / "search" / "metrics.parquet").to_pylist() for n in ("whole", "run"))
    bad = [row for row in got if row["configuration"] == 5]
    assert {row["status"] for row in bad} == {"failed"}
    assert all("its worker was killed" in row["reason"] for row in bad)
    assert [r for r in got if r["configuration"] != 5] == [r for r in expected if r["configuration"] != 5]


# ----------------------------------------------------------------------------------------------------------------------
# Many small runs in one process, every other one disturbed: the same bytes, and no open file or memory more.


RUNS = int(os.environ.get("SPARSEOCO_CHAOS_RUNS", "60"))
WARM = 10  # runs, after which everything is loaded
GROWTH = 30 << 20  # bytes of memory, of all further runs


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.fault(39)
def test_many_runs_with_faults(tmp_path: Path) -> None:
    """A full disk at one commit after the other, a repeated run, and a shard cut short."""
    whole = quick_run(tmp_path / "whole")
    steps.run_all(whole)
    process, files, memory = psutil.Process(), 0, 0
    for number in range(RUNS):
        run = quick_run(tmp_path / f"{number}")
        with failing_commit(number % 15 + 1), pytest.raises(SparseocoError):
            steps.run_all(run)
        steps.run_all(run)
        assert_same_folder(Path(str(run.out)), Path(str(whole.out)), more=True, what=number)
        shard = next(Path(str(run.store)).glob("shard-*.parquet"))
        data = shard.read_bytes()
        shard.write_bytes(data[: len(data) * number // RUNS])
        with raises_code("corrupt-file", shard, kind=StorageError):
            Store.open(run.store).read(0)
        if number == WARM:
            files, memory = process.num_fds(), process.memory_info().rss
    assert process.num_fds() <= files
    assert process.memory_info().rss <= memory + GROWTH


# ----------------------------------------------------------------------------------------------------------------------
# Nightly runs, one after the other into one folder: run 1,000 costs as much as an early one.


KEEP = {"window = 2": "window = 2\nkeep_models = 5"}


@pytest.mark.chaos
@pytest.mark.fault(60)
def test_opens_and_bytes_do_not_grow_with_the_runs(tmp_path: Path) -> None:
    """Counts, not clocks, which `test_many_runs` reads. A run that promotes a model opens more files than others."""
    costs = list(soak(tmp_path, 10, **KEEP))
    early, late = costs[3:6], costs[-3:]
    for counted in ("opens", "listings"):
        most = [max(getattr(cost, counted) for cost in part) for part in (early, late)]
        assert most[1] < most[0] + 15, [getattr(cost, counted) for cost in costs]
    grown = [later.bytes - before.bytes for before, later in pairwise(costs)]
    assert median(grown[-3:]) < 1.25 * median(grown[2:5]), grown
    assert len({cost.descriptors for cost in costs[3:]}) == 1


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.fault(39, 60)
@pytest.mark.parametrize(("runs", "varied"), [(1000, False), (200, True)])
def test_many_runs(tmp_path: Path, runs: int, varied: bool) -> None:
    """Processor time, opens, files, descriptors and memory of the last runs against early ones."""
    costs = list(soak(tmp_path, runs, varied=varied, **KEEP))
    early, late, middle = costs[10:30], costs[-20:], costs[runs // 2]
    # Every input file is looked at, twice: 1.8 times at 1,000 files.
    assert median(cost.seconds for cost in late) < 2 * median(cost.seconds for cost in early)
    assert median(cost.opens for cost in late) < 1.5 * median(cost.opens for cost in early)
    assert {cost.descriptors for cost in costs[3:]} == {costs[3].descriptors}
    assert costs[-1].rss - middle.rss < 32 << 20
    second, last = (costs[k * runs // 4 - 1].bytes - costs[(k - 1) * runs // 4 - 1].bytes for k in (2, 4))
    assert last < 1.5 * second  # of four quarters: linear


# ----------------------------------------------------------------------------------------------------------------------
# Workers that crash, need too much memory or are suspended, schedulers that die, connections that break.


LONG = DIVIDED.model_copy(update={"epochs": 40, "algorithms": {**DIVIDED.algorithms, **OPTIONS.algorithms}})


def segfault(marker: str, deaths: int) -> int:
    """Read from address 0, the first `deaths` times."""
    with open(marker, "a") as file:
        file.write(".")
    if Path(marker).stat().st_size <= deaths:
        ctypes.string_at(0)
    return 7


def allocate(size: int) -> int:
    """Need so many bytes, until the nanny sees it."""
    held = np.ones(size, np.uint8)
    time.sleep(20)
    return int(held[0])


@pytest.mark.chaos
@pytest.mark.fault(2)
def test_a_segmentation_fault_ends_a_worker_and_not_the_run(tmp_path: Path) -> None:
    once = dask.config.set({"distributed.scheduler.allowed-failures": 1})
    with once, connect(ClusterOptions(workers=2), tmp_path / "scratch") as client:
        pool = TaskPool(client)
        assert pool.call(segfault, str(tmp_path / "once"), 1) == 7
        with raises_code("worker-killed", kind=SparseocoError):
            pool.call(segfault, str(tmp_path / "always"), 1000)
        assert pool.call(sum, [1, 2]) == 3


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.fault(3)
def test_a_worker_beyond_its_memory_is_killed_and_its_task_fails_by_name(tmp_path: Path) -> None:
    with connect(ClusterOptions(workers=1, memory="600MB"), tmp_path / "scratch") as client:
        with raises_code("worker-killed", kind=SparseocoError):
            TaskPool(client).call(allocate, 1_200_000_000)
        assert TaskPool(client).call(sum, [1, 2]) == 3


def disturbed(store: Path, out: Path, cluster: ClusterOptions, disturb: Callable[[threading.Event], None]) -> None:
    """A search while `disturb` runs in a thread, until the event that it is given is set."""
    over = threading.Event()
    thread = threading.Thread(target=disturb, args=(over,))
    thread.start()
    try:
        steps.search(store, out, LONG, cluster)
    finally:
        over.set()
        thread.join()


def first_cell(out: Path, over: threading.Event) -> None:
    """Wait until the first cell of a search is written."""
    while not over.wait(0.005) and not list((out / "search" / "cells").glob("*.json")):
        pass


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, and an undisturbed search of it."""
    folder = tmp_path_factory.mktemp("whole")
    steps.search(
        make_store(folder / "store", rows=3000, features=40), folder / "whole", LONG, ClusterOptions(threads=2)
    )
    return folder


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.fault(4)
def test_a_scheduler_that_is_killed_ends_the_run_which_resumes(tmp_path: Path, whole: Path) -> None:
    seconds: list[float] = []
    with cluster_by_hand(tmp_path) as cluster:

        def kill(over: threading.Event) -> None:
            first_cell(tmp_path / "run", over)
            cluster.processes[0].kill()
            seconds.append(time.monotonic())

        with raises_code("cluster-lost", kind=SparseocoError):
            disturbed(whole / "store", tmp_path / "run", ClusterOptions(scheduler=cluster.address), kill)
        assert time.monotonic() - seconds[0] < 90
    assert not (tmp_path / "run" / "search" / "metrics.parquet").exists()
    steps.search(whole / "store", tmp_path / "run", LONG, ClusterOptions(threads=1))
    assert tables(tmp_path / "run") == tables(whole / "whole")


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.fault(37)
def test_a_suspended_worker_delays_nothing_for_good(tmp_path: Path, whole: Path) -> None:
    """One after the other of the two workers is stopped for three seconds."""
    stops = 0

    def suspend(over: threading.Event) -> None:
        nonlocal stops
        first_cell(tmp_path / "run", over)
        while not over.wait(0.3):
            if workers := worker_processes():
                with suppress(psutil.Error):
                    workers[stops % len(workers)].suspend()
                    over.wait(3)
                    workers[stops % len(workers)].resume()
                    stops += 1

    disturbed(whole / "store", tmp_path / "run", ClusterOptions(workers=2), suspend)
    assert stops
    assert tables(tmp_path / "run") == tables(whole / "whole")


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.fault(38)
def test_connections_that_break_change_nothing(tmp_path: Path, whole: Path) -> None:
    """All connections that others have opened to a worker are aborted, again and again."""
    breaks = 0
    with cluster_by_hand(tmp_path) as cluster, Client(cluster.address, set_as_default=False) as client:

        def abort(dask_worker: Any) -> int:
            comms = list(dask_worker._comms)
            for comm in comms:
                dask_worker.loop.add_callback(comm.abort)
            return len(comms)

        def cut(over: threading.Event) -> None:
            nonlocal breaks
            first_cell(tmp_path / "run", over)
            while not over.wait(0.5):
                with suppress(OSError):  # it was this one
                    breaks += sum(client.run(abort, on_error="ignore").values())

        disturbed(whole / "store", tmp_path / "run", ClusterOptions(scheduler=cluster.address), cut)
    assert breaks
    assert tables(tmp_path / "run") == tables(whole / "whole")


# ----------------------------------------------------------------------------------------------------------------------
# A flow whose Prefect server dies, answers late or has a locked database leaves the files of the command.


LATENESS = 0.3  # seconds, of every piece of an answer


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.fault(7)
@pytest.mark.parametrize("server", ["killed", "late", "locked"])
def test_a_flow_whose_server_is(tmp_path: Path, server: str) -> None:
    with ExitStack() as stack:
        address = reached = stack.enter_context(prefect_server(tmp_path / "server"))
        if server == "late":
            reached = stack.enter_context(_late(address))
        env = environment(tmp_path / "home", PREFECT_API_URL=reached)
        command = [sys.executable, "-m", "sparseoco.flows.pipeline", str(write_run_file(tmp_path))]
        process = stack.enter_context(running(command, tmp_path / "flow.log", env))
        while server != "late" and process.poll() is None and not list((tmp_path / "run/search/cells").glob("*")):
            time.sleep(0.01)
        if server == "killed":
            _kill_server()
        elif server == "locked":
            with closing(sqlite3.connect(tmp_path / "server" / "prefect.db", timeout=60)) as database:
                database.execute("BEGIN EXCLUSIVE")
                time.sleep(15)
                database.rollback()
        code, said = process.wait(600), (tmp_path / "flow.log").read_text()
        if server == "late":
            assert [run["state_type"] for run in flow_runs(address)] == ["COMPLETED"]
    if code and server == "killed":  # the files are complete, or the same command resumes
        assert "Traceback" not in said.splitlines()[-1]
        steps.run_all(load_run_file(tmp_path / "places.toml"))
    else:
        assert code == 0, said[-2000:]
    steps.run_all(load_run_file(write_run_file(tmp_path / "command")))
    assert tables(tmp_path / "run") == tables(tmp_path / "command" / "run")
    assert_same_results(tmp_path / "run", tmp_path / "command" / "run")


def _kill_server() -> None:
    """Kill the Prefect server that this process has started, with its children."""
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if "server" in child.cmdline() and "prefect" in child.cmdline():
                for own in [*child.children(recursive=True), child]:
                    own.kill()


@contextmanager
def _late(address: str) -> Iterator[str]:
    """The address of a proxy that forwards every piece of an answer `LATENESS` late."""
    port = int(address.rpartition(":")[2].partition("/")[0])
    with ThreadPoolExecutor(100) as threads, socket.create_server(("127.0.0.1", 0)) as listener:

        def forward(source: socket.socket, target: socket.socket, wait: float) -> None:
            with suppress(OSError):
                while data := source.recv(65536):
                    time.sleep(wait)
                    target.sendall(data)
            with suppress(OSError):
                target.shutdown(socket.SHUT_RDWR)

        def serve(near: socket.socket) -> None:
            with near, socket.create_connection(("127.0.0.1", port)) as far:
                other = threads.submit(forward, near, far, 0.0)
                forward(far, near, LATENESS)
                other.result()

        def accept() -> None:
            with suppress(OSError):
                while True:
                    threads.submit(serve, listener.accept()[0])

        threads.submit(accept)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/api"
        listener.shutdown(socket.SHUT_RDWR)
