"""A store laid out for many passes: one CSR in memory-mapped files, made once per worker from the shards.

Parquet is for keeping; an epoch in a shuffled order wants rows at random. The operating system's page cache decides
what stays in memory, so a worker's own memory is bounded by features × columns, never by the corpus.
"""

import tempfile
import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.commit import storage_error
from sparseoco.shards import Store

_opened: dict[tuple[str, str], "Corpus"] = {}
_lock = threading.Lock()


class Corpus(NamedTuple):
    """All documents of a store, in document order: indptr (rows + 1,) int64, indices, counts, labels (rows,)."""

    indptr: NDArray[np.int64]
    indices: NDArray[Any]
    counts: NDArray[Any]
    labels: NDArray[Any]

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
                _opened[identity] = _lay_out(store, Path(tempfile.mkdtemp(prefix="corpus-", dir=scratch)))
            except OSError as error:
                raise storage_error(error, scratch) from error
        return _opened[identity]


def forget_corpora() -> None:
    """Let go of every corpus opened in this process; the files belong to the scratch folder's owner."""
    with _lock:
        _opened.clear()


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
    return Corpus(indptr, indices, _map(folder / "counts", store.counts_dtype, nonzero), labels)


def _map(path: Path, dtype: np.dtype[Any], size: int) -> NDArray[Any]:
    return np.memmap(path, dtype, mode="r", shape=(size,)) if size else np.empty(0, dtype)
