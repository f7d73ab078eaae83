"""Workers that crash, need too much memory or are suspended, schedulers that die, connections that break."""

import ctypes
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from distributed import Client

from sparseoco.core.errors import SparseocoError
from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.execution.pool import TaskPool
from sparseoco.pipeline import steps
from tests.faults.commands import DIVIDED, OPTIONS, tables
from tests.search.by_hand import cluster_by_hand
from tests.support.errors import raises_code
from tests.support.stores import make_store

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
    with connect(ClusterOptions(workers=2), tmp_path / "scratch") as client:
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
            workers = [p for p in psutil.Process().children() if "spawn_main" in " ".join(_command(p))]
            if workers:
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


def _command(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return list(process.cmdline())
    return []
