"""Clusters for benchmarks whose scheduler and workers are processes of their own, so that the client's cost shows."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from distributed import Client

SECONDS = 120  # to start
ROOT = Path(__file__).parents[2]


@contextmanager
def cluster(folder: Path, workers: int, memory: str = "0") -> Iterator[Client]:
    """A client of `workers` processes with one thread each on loopback; `memory` as `dask worker` takes it."""
    file = folder / "scheduler.json"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    scheduler = ["distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
    worker = ["distributed.cli.dask_worker", "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    worker += ["--host", "127.0.0.1", "--memory-limit", memory, "--local-directory", str(folder / "scratch")]
    with ExitStack() as stack:
        for command in [scheduler, *[worker] * workers]:
            process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", *command, "--scheduler-file", str(file)],
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
        client = stack.enter_context(Client(scheduler_file=_when_written(file), timeout=SECONDS))
        client.wait_for_workers(workers, timeout=SECONDS)
        yield client


def _when_written(file: Path) -> str:
    end = time.monotonic() + SECONDS
    while not file.exists() and time.monotonic() < end:
        time.sleep(0.1)
    time.sleep(0.1)  # it is written in one piece, but not moved into place
    return str(file)
