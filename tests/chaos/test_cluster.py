"""Workers, schedulers and Prefect servers that crash, are slow or suspended, and connections that break."""

import ctypes
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import dask
import numpy as np
import psutil
import pytest
from distributed import Client

from sparseoco.core.errors import SparseocoError
from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.execution.pool import TaskPool
from sparseoco.pipeline import steps
from sparseoco.pipeline import steps as run_steps
from sparseoco.pipeline.run_file import load_run_file
from tests.faults.commands import DIVIDED, OPTIONS, tables
from tests.search.by_hand import cluster_by_hand
from tests.support.errors import raises_code
from tests.support.folders import assert_same_results
from tests.support.prefect_server import environment, flow_runs, prefect_server, running
from tests.support.processes import worker_processes
from tests.support.stores import make_store
from tests.support.texts import write_run_file

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
        run_steps.run_all(load_run_file(tmp_path / "places.toml"))
    else:
        assert code == 0, said[-2000:]
    (tmp_path / "command").mkdir()
    run_steps.run_all(load_run_file(write_run_file(tmp_path / "command")))
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
