"""The worker that runs a task: its corpora, and whether it is closing."""

from pathlib import Path
from typing import Any

import numpy as np
from distributed import get_worker
from distributed.core import Status

from sparseoco.core.errors import SparseocoError
from sparseoco.store.corpus import AnyCorpus, weighted_corpus
from sparseoco.store.shards import Store
from sparseoco.store.term_weights import term_weights
from sparseoco.store.weighting import COUNTS, Weighting

CLOSING = (Status.closing, Status.closing_gracefully, Status.closed, Status.failed)


def worker_corpus(store: Store, weighting: Weighting = COUNTS, dtype: Any = np.float64) -> AnyCorpus:
    """The weighted corpus of a store on this worker. Raises `StorageError` if its files cannot be written."""
    weights = term_weights(store, weighting)
    return weighted_corpus(store, Path(get_worker().local_directory), weights, dtype)


def check_worker_running() -> None:
    """Raises `SparseocoError` if the worker is closing: the thread of a task would keep it alive."""
    if get_worker().status in CLOSING:
        raise SparseocoError("The worker is closing.", code="worker-closing")
