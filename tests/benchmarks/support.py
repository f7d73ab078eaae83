"""What benchmarks share: clocks, processes, a matrix to time on, counters of opens and requests, clusters."""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pyarrow as pa
import scipy.sparse as sp
from distributed import Client

from tests.search.by_hand import cluster_by_hand

ROOT = Path(__file__).parents[2]


# ----------------------------------------------------------------------------------------------------------------------
# Clocks, and processes to time.


def in_turns(
    works: dict[Any, Callable[[], object]], *, turns: int = 3, clock: Callable[[], float] = time.perf_counter
) -> dict[Any, float]:
    """The least seconds of each work; they take turns, so that a busy machine is busy for all."""
    seconds: dict[Any, list[float]] = {name: [] for name in works}
    for name, work in turns * list(works.items()):
        started = clock()
        work()
        seconds[name].append(clock() - started)
    return {name: min(own) for name, own in seconds.items()}


def least(work: Callable[[], object], **options: Any) -> float:
    """The least seconds of some calls of one work, with the options of `in_turns`."""
    return in_turns({"": work}, **options)[""]


def children_seconds() -> float:
    """A clock: user and system time of the processes that have ended."""
    now = os.times()
    return now.children_user + now.children_system


def python(folder: Path, *arguments: Any, given: str = "", check: bool = True) -> str:
    """What a Python process prints."""
    command = [sys.executable, *map(str, arguments)]
    run = subprocess.run(command, cwd=folder, input=given, capture_output=True, text=True, check=check)
    return run.stdout


def exponent(sizes: list[int], costs: list[float]) -> float:
    """The slope of the logarithm of the cost over that of the size."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0]) if len(sizes) > 1 else float("nan")


# ----------------------------------------------------------------------------------------------------------------------
# A matrix to time on: words drawn by Zipf's law.


def zipf(rows: int, features: int, words: int = 100, seed: int = 0) -> tuple[sp.csr_matrix, np.ndarray]:
    """`words` a row, word of rank r with probability ∝ 1/r."""
    rng = np.random.default_rng(seed)
    cumulative = np.cumsum(1.0 / np.arange(1, features + 1))
    drawn = np.searchsorted(cumulative, rng.random(rows * words) * cumulative[-1])
    indptr = np.arange(0, rows * words + 1, words)
    X = sp.csr_matrix((np.ones(rows * words, np.uint16), np.minimum(drawn, features - 1), indptr), (rows, features))
    X.sum_duplicates()
    X.indices = X.indices.astype(np.int32)
    X.indptr = X.indptr.astype(np.int32)
    return X, rng.integers(0, 2, rows)


# ----------------------------------------------------------------------------------------------------------------------
# Counts what a process opens and requests: `install` it in every process of a cluster, then read `counters`.


REQUESTS = ("get", "get_range", "get_ranges", "put", "head", "delete", "list", "list_with_delimiter")
_counts: Counter[str] = Counter()
_folders: list[str] = []


def install(folder: str) -> None:
    """Count opens of files below a folder, and requests to object stores, from now on."""
    if not _folders:
        sys.addaudithook(_audit)
        for name in REQUESTS:
            setattr(obstore, name, _counted(getattr(obstore, name), "requests"))
        pa.memory_map = _counted(pa.memory_map, "opens")
    _folders.append(folder)
    _counts.clear()


def counters() -> dict[str, int]:
    """Opens, requests, bytes read and written by system calls, and the peak of memory in bytes."""
    with open("/proc/self/io") as file:
        transferred = {name: int(value) for name, value in (line.split(":") for line in file)}
    with open("/proc/self/status") as file:  # ru_maxrss would include the process that started this one
        peak = next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))
    return dict(_counts) | {"read": transferred["rchar"], "written": transferred["wchar"], "peak": peak}


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str) and arguments[0].startswith(_folders[-1]):
        _counts["opens"] += 1


def _counted(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @wraps(function)
    def counted(*arguments: Any, **options: Any) -> Any:
        _counts[name] += 1
        return function(*arguments, **options)

    return counted


# ----------------------------------------------------------------------------------------------------------------------
# Clusters for benchmarks whose scheduler and workers are processes of their own, so that the client's cost shows.


SECONDS = 120  # to start


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[Client]:
    """A client of `workers` processes with one thread each on loopback, without a limit of memory."""
    with (
        cluster_by_hand(folder, workers=workers, nannies=False, memory="0") as started,
        Client(started.address, timeout=SECONDS) as client,
    ):
        client.wait_for_workers(workers, timeout=SECONDS)
        yield client
