"""Inside a task: the worker that runs it."""

from pathlib import Path

from distributed import get_worker
from distributed.core import Status

from sparseoco.core.errors import SparseocoError
from sparseoco.store.corpus import Corpus, open_corpus
from sparseoco.store.shards import Store

ENDING = (Status.closing, Status.closing_gracefully, Status.closed, Status.failed)


def corpus_of(store: Store) -> Corpus:
    """The store as this worker has it laid out. Raises `StorageError` if it cannot be made."""
    return open_corpus(store, Path(get_worker().local_directory))


def end_with_worker() -> None:
    """Raises `SparseocoError` if the worker was asked to end: a task is a thread, and would outlive it."""
    if get_worker().status in ENDING:
        raise SparseocoError("The worker was asked to end.")
