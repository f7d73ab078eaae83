"""A store laid out for many passes: one CSR in memory-mapped files, made once per worker from the shards.

Parquet is for keeping; an epoch in a shuffled order wants rows at random. The operating system's page cache decides
what stays in memory, so a worker's own memory is bounded by features × columns, never by the corpus.
"""

import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.commit import storage_error
from sparseoco.drivers.order import gather
from sparseoco.shards import Store

KEPT = 2  # corpora a process keeps laid out; older ones are laid out again if asked for
_opened: dict[tuple[str, str], "Corpus"] = {}
_lock = threading.Lock()


class Corpus(NamedTuple):
    """All documents of a store, in document order: indptr (rows + 1,) int64, indices, counts, labels (rows,)."""

    indptr: NDArray[np.int64]
    indices: NDArray[Any]
    counts: NDArray[Any]
    labels: NDArray[Any]
    folder: Path

    def gather(self, rows: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """The rows named, as a CSR of their own with their labels."""
        return gather(rows, self.indptr, self.indices, self.counts, self.labels)  # type: ignore[no-any-return]

    @property
    def n_rows(self) -> int:
        """Number of documents."""
        return int(self.labels.shape[0])


def open_corpus(store: Store, scratch: Path) -> Corpus:
    """The corpus of a store, laid out under `scratch` by the first caller in this process.

    Raises `StorageError` for a damaged shard or a full scratch disk.
    """
    identity = (store.manifest.digest, str(scratch))
    with _lock:
        if identity not in _opened:
            try:
                scratch.mkdir(parents=True, exist_ok=True)
                while len(_opened) >= KEPT:
                    shutil.rmtree(_opened.pop(next(iter(_opened))).folder, ignore_errors=True)
                _opened[identity] = _lay_out(store, Path(tempfile.mkdtemp(prefix="corpus-", dir=scratch)))
            except OSError as error:
                raise storage_error(error, scratch) from error
        return _opened[identity]


def _lay_out(store: Store, folder: Path) -> Corpus:
    indptr = np.zeros(store.n_rows + 1, np.int64)
    labels = np.empty(store.n_rows, store.labels_dtype)
    row = nonzero = 0
    with (folder / "indices").open("wb") as indices_file, (folder / "counts").open("wb") as counts_file:
        for shard in range(len(store.manifest.shards)):
            part = store.read(shard)
            next_row = row + part.labels.size
            indptr[row + 1 : next_row + 1] = part.indptr[1:] + nonzero
            labels[row:next_row] = part.labels
            part.indices.tofile(indices_file)
            part.counts.astype(store.counts_dtype, copy=False).tofile(counts_file)
            row, nonzero = next_row, nonzero + part.indices.size
    indices = _map(folder / "indices", store.indices_dtype, nonzero)
    return Corpus(indptr, indices, _map(folder / "counts", store.counts_dtype, nonzero), labels, folder)


def _map(path: Path, dtype: np.dtype[Any], size: int) -> NDArray[Any]:
    return np.asarray(np.memmap(path, dtype, mode="r", shape=(size,))) if size else np.empty(0, dtype)
