"""What other processes do with stores and folders. They import this module, which loads little besides the store."""

import asyncio
import atexit
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from distributed import Worker

from sparseoco.storage.temporary import SharedFolder
from sparseoco.store.corpus import Corpus, host_folder, open_corpus, worker_corpus
from sparseoco.store.shards import Store
from tests.support.processes import forks_with, wait_until

PROCESSES = forks_with(__name__)


@contextmanager
def slow_reads(seconds: float, log: Path) -> Iterator[None]:
    """Every shard that is decoded takes so long, and is a line of the log: the process, the shard."""
    original = Store.read

    def slow(self: Store, shard: int, *, ids: bool = False) -> Any:
        with log.open("a") as file:
            file.write(f"{os.getpid()} {shard}\n")
        time.sleep(seconds)
        return original(self, shard, ids=ids)

    with patch.object(Store, "read", slow):
        yield


def read_slowly(folder: str, scratch: str) -> None:
    with slow_reads(0.05, Path(scratch) / "log"):
        corpus = Corpus(Store.open(folder), Path(scratch))
        corpus.rows(0, corpus.n_rows)


def open_on_worker(folder: str) -> str:
    return str(open_corpus(Store.open(folder), host_folder())._folder)


def hold(parent: str, name: str, seconds: float) -> None:
    folder = SharedFolder(Path(parent), name)
    (folder.path / f"{os.getpid()}").touch()
    time.sleep(seconds)


def open_and_release(parent: str, times: int) -> None:
    for _ in range(times):
        folder = SharedFolder(Path(parent), "corpus")
        own = folder.path / f"{os.getpid()}"
        own.touch()
        assert own.exists()
        folder.release()


def work(address: str, scratch: str) -> None:
    """A worker of one thread, for the scheduler at this address, until it ends."""

    async def run() -> None:
        async with Worker(address, nthreads=1, local_directory=scratch) as worker:
            await worker.finished()

    asyncio.run(run())
    atexit._run_exitfuncs()  # which a fork leaves out


def lay_out(folder: str, log: str, seed: int) -> tuple[int, float]:
    """Read all rows in a random order, once both workers have begun."""
    with slow_reads(0.1, Path(log)):
        corpus = worker_corpus(Store.open(folder))
        Path(f"{log}-{seed}").touch()
        wait_until(lambda: all(Path(f"{log}-{other}").exists() for other in range(2)))
        rows = corpus.gather(np.random.default_rng(seed).permutation(corpus.n_rows))
    return os.getpid(), float(rows.values.sum())
