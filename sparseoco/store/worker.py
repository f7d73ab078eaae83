"""The worker that runs a task: its corpora, the files of its host, and whether it is closing."""

import fcntl
import time
from pathlib import Path
from typing import Any

import numpy as np
from distributed import get_worker
from distributed.core import Status

from sparseoco.core.errors import SparseocoError
from sparseoco.storage.commit import committed
from sparseoco.storage.locations import Location
from sparseoco.storage.remote import RemotePath
from sparseoco.store.corpus import AnyCorpus, weighted_corpus
from sparseoco.store.shards import Store
from sparseoco.store.shared_folder import folder_on_host
from sparseoco.store.term_weights import term_weights
from sparseoco.store.weighting import COUNTS, Weighting

FETCH_SECONDS = 60.0  # to wait for another process that fetches a file, and may be suspended
CLOSING = (Status.closing, Status.closing_gracefully, Status.closed, Status.failed)


def worker_corpus(store: Store, weighting: Weighting = COUNTS, dtype: Any = np.float64) -> AnyCorpus:
    """The weighted corpus of a store on this worker. Raises `StorageError` if its files cannot be written."""
    weights = term_weights(store, weighting)
    return weighted_corpus(store, host_folder(), weights, dtype)


def check_worker_running() -> None:
    """Raises `SparseocoError` if the worker is closing: the thread of a task would keep it alive."""
    if get_worker().status in CLOSING:
        raise SparseocoError("The worker is closing.", code="worker-closing")


def host_folder() -> Path:
    """The folder that the workers of this host share, see `folder_on_host`.

    They do if they were started with the same local directory; Dask makes a folder for each worker in it. Raises
    `StorageError`.
    """
    return folder_on_host(Path(get_worker().local_directory).parent)


def host_file(path: Location, folder: Path) -> Path:
    """A local file with the content of `path`: itself, or one copy in `folder` that the processes of a host share.

    Raises `StorageError` if it cannot be downloaded.
    """
    if not isinstance(path, RemotePath):
        return Path(str(path))
    copy, end = folder / path.name, time.monotonic() + FETCH_SECONDS
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{path.name}.lock").open("w") as lock:  # of this open file, so that threads wait for each other
        while not copy.exists():
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() < end:
                    time.sleep(0.02)
                    continue
            if not copy.exists():
                with committed(copy, sync=False) as temporary:
                    path.download(temporary)
    return copy
