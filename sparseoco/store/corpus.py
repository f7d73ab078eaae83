"""A store laid out for many passes: one CSR in four plain files, made from the shards as they are wanted.

Parquet is for keeping; an epoch in a shuffled order wants rows at random. The operating system's page cache decides
what stays in memory: a small corpus is mapped, of a large one rows are copied out of the files, so a worker's own
memory is bounded by features × columns, never by the corpus.

Where a shard's rows go is known beforehand, and what is written there is a function of the shard. So threads and
processes may share a folder: one byte a shard says that it is there, and whoever dies while writing leaves that byte
as it was.
"""

import fcntl
import mmap
import os
import shutil
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.errors import StorageError
from sparseoco.execution.settings import SHARED
from sparseoco.kernels.order import gather
from sparseoco.kernels.reading import read_runs
from sparseoco.storage.commit import storage_error
from sparseoco.store.shards import Store

Csr = tuple[NDArray[np.int64], NDArray[Any], NDArray[Any], NDArray[Any]]

KEPT = 2  # corpora a process keeps open; older ones are opened again if asked for
MAPPED_BYTES = 256 << 20  # a larger corpus is not mapped
_opened: dict[tuple[str, str], "Corpus"] = {}
_lock = threading.Lock()


class Corpus:
    """All documents of a store, in document order, laid out in `folder` shard by shard when first asked for.

    Threads may share it. Raises `StorageError` for a damaged shard or a full disk.
    """

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._folder = folder
        entries = store.manifest.shards
        self._starts = np.cumsum([0, *(entry.rows for entry in entries)], dtype=np.int64)
        self._offsets = np.cumsum([0, *(entry.nonzeros for entry in entries)], dtype=np.int64)
        rows, nonzeros = int(self._starts[-1]), int(self._offsets[-1])
        self._indptr = _File(folder / "indptr", np.dtype(np.int64), rows + 1)
        self._indices = _File(folder / "indices", store.indices_dtype, nonzeros)
        self._counts = _File(folder / "counts", store.counts_dtype, nonzeros)
        self._labels = _File(folder / "labels", store.labels_dtype, rows)
        self._ready = _File(folder / "ready", np.dtype(np.uint8), len(entries))
        self._flags = self._ready.map()
        self._locks = [threading.Lock() for _ in entries]
        self._complete = False
        files = (self._indptr, self._indices, self._counts, self._labels)
        self._maps = tuple(file.map() for file in files) if sum(file.bytes for file in files) <= MAPPED_BYTES else None
        self._whole = self._maps

    @property
    def n_rows(self) -> int:
        """Number of documents."""
        return int(self._starts[-1])

    def rows(self, start: int, stop: int) -> Csr:
        """Documents start..stop as a CSR of their own: indptr (from 0), indices, counts, labels."""
        first, last = np.searchsorted(self._starts, [start, stop - 1], side="right") - 1
        self._lay_out(range(first, last + 1) if start < stop else ())
        indptr = self._indptr.read(start, stop + 1)
        begin, end = int(indptr[0]), int(indptr[-1])
        return (
            indptr - begin,
            self._indices.read(begin, end),
            self._counts.read(begin, end),
            self._labels.read(start, stop),
        )

    def gather(self, rows: NDArray[np.int64]) -> Csr:
        """The documents named, in that order, as `rows` gives them."""
        if not self._complete:
            self._lay_out(np.unique(np.searchsorted(self._starts, rows, side="right") - 1).tolist())
        if self._maps is not None:
            return gather(rows, *self._maps)  # type: ignore[no-any-return]
        bounds = self._indptr.take(rows, np.full(rows.size, 2)).reshape(-1, 2)
        starts, sizes = np.ascontiguousarray(bounds[:, 0]), bounds[:, 1] - bounds[:, 0]
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        labels = self._labels.take(rows, np.ones(rows.size, np.int64))
        return indptr, self._indices.take(starts, sizes), self._counts.take(starts, sizes), labels

    def whole(self) -> Csr:
        """All documents in read-only maps, for who goes through them in an order that nobody knows beforehand.

        What is read of a large corpus counts as the process's own memory until it is let go of: see `rest`.
        """
        self._lay_out(range(len(self._locks)))
        if self._whole is None:
            self._whole = tuple(file.map() for file in (self._indptr, self._indices, self._counts, self._labels))
        indptr, indices, counts, labels = self._whole
        return indptr, indices, counts, labels

    def rest(self) -> None:
        """Let go of what was read of a large corpus: it stays in the system's cache, if there is room."""
        if self._maps is None and self._whole is not None:
            for array in self._whole:
                array.base.madvise(mmap.MADV_DONTNEED)  # type: ignore[union-attr]

    def _lay_out(self, shards: Sequence[int]) -> None:
        """Make sure that these shards are there: first those that nobody is at, then those that are not done yet.

        Another thread is waited for; another process, which may have been stopped, is not: both write the same.
        """
        if self._complete:
            return
        for last in (False, True):
            for shard in shards:
                if not self._flags[shard]:
                    with self._held(shard, last=last) as held:
                        if held and not self._flags[shard]:
                            self._write(shard)
        self._complete = bool(self._flags.all())

    @contextmanager
    def _held(self, shard: int, *, last: bool) -> Iterator[bool]:
        """Hold a shard against other threads and, but the `last` time, other processes; gives whether it is held."""
        if not self._locks[shard].acquire(blocking=last):
            yield False
            return
        try:
            locked = self._ready.lock(shard)
            try:
                yield locked or last
            finally:
                if locked:
                    self._ready.unlock(shard)
        finally:
            self._locks[shard].release()

    def _write(self, shard: int) -> None:
        part = self._store.read(shard)
        row, nonzero = int(self._starts[shard]), int(self._offsets[shard])
        if (row + part.labels.size, nonzero + part.indices.size) != (self._starts[shard + 1], self._offsets[shard + 1]):
            name = self._store.manifest.shards[shard].file
            raise StorageError(f"{name} does not hold the documents that the manifest tells of: ingest again.")
        self._indptr.write(row, part.indptr + nonzero)  # its first entry is the last of the shard before
        self._indices.write(nonzero, part.indices)
        self._counts.write(nonzero, part.counts)
        self._labels.write(row, part.labels)
        self._ready.write(shard, np.ones(1, np.uint8))


class _File:
    """An array in a file of its final size, holes where nothing was written; it is closed when it is let go."""

    def __init__(self, path: Path, dtype: np.dtype[Any], size: int) -> None:
        self._path, self._dtype, self._size = path, dtype, size
        self.bytes = size * dtype.itemsize
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        weakref.finalize(self, os.close, self._descriptor)
        os.ftruncate(self._descriptor, max(self.bytes, 1))  # what is empty cannot be mapped

    def map(self) -> NDArray[Any]:
        """The array, read-only, as it is and will be."""
        mapped = mmap.mmap(self._descriptor, 0, prot=mmap.PROT_READ)
        return np.ndarray((self._size,), self._dtype, mapped)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """A copy of entries start..stop."""
        return self.take(np.array([start], np.int64), np.array([stop - start], np.int64))

    def take(self, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[Any]:
        """A copy of sizes[i] entries from starts[i] on, run after run."""
        itemsize = self._dtype.itemsize
        found = np.empty(int(sizes.sum()), self._dtype)
        if not read_runs(np.int32(self._descriptor), starts * itemsize, sizes * itemsize, found.view(np.uint8)):
            raise StorageError(f"{self._path} could not be read back: the disk fails, or it was changed.")
        return found

    def write(self, start: int, values: NDArray[Any]) -> None:
        """Put entries from `start` on. Raises `StorageError`, for a full disk above all."""
        data = np.ascontiguousarray(values, self._dtype).view(np.uint8).data
        offset = start * self._dtype.itemsize
        try:
            while data:
                written = os.pwrite(self._descriptor, data, offset)
                data, offset = data[written:], offset + written
        except OSError as error:
            raise storage_error(error, self._path) from error

    def lock(self, entry: int) -> bool:
        """Keep other processes from an entry until `unlock`, or this one ends; gives whether that could be done."""
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, entry)
        except OSError:
            return False
        return True

    def unlock(self, entry: int) -> None:
        """Undo `lock`."""
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, entry)


def open_corpus(store: Store, scratch: Path) -> Corpus:
    """The corpus of a store, in a folder of `scratch` or, in workers of our own, in one that they share.

    Raises `StorageError` if it cannot be made there.
    """
    digest = store.manifest.digest
    shared = os.environ.get(SHARED)
    parent = scratch if shared is None else Path(shared)
    identity = (digest, str(parent))
    with _lock:
        if identity not in _opened:
            try:
                while len(_opened) >= KEPT:
                    oldest = _opened.pop(next(iter(_opened)))
                    if shared is None:
                        shutil.rmtree(oldest._folder, ignore_errors=True)
                folder = parent / f"corpus-{digest[:32]}"
                folder.mkdir(parents=True, exist_ok=True)
                _opened[identity] = Corpus(store, folder)
            except OSError as error:
                raise storage_error(error, parent) from error
        return _opened[identity]
