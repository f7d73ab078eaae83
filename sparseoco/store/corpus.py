"""A store's rows as memory-mapped arrays, shared by the processes of a machine."""

import copy
import fcntl
import math
import mmap
import os
import stat
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from distributed import get_worker
from distributed.core import Status
from numpy.typing import NDArray

from sparseoco.core.errors import SparseocoError, StorageError
from sparseoco.kernels.columns import RowBatch
from sparseoco.kernels.order import gather, read_runs
from sparseoco.storage.locations import storage_errors
from sparseoco.storage.temporary import SharedFolder, boot
from sparseoco.store.manifest import Column
from sparseoco.store.shards import COLUMN_DTYPES, LabelSets, Store
from sparseoco.store.terms import TermWeights, term_weights
from sparseoco.store.weighting import COUNTS, Weighting

# ----------------------------------------------------------------------------------------------------------------------
# Arrays in files of their final size, written and read in parts by several processes.


class ArrayFile:
    """An array in a sparse file of its final size; closed when it is garbage-collected."""

    def __init__(self, path: Path, dtype: np.dtype[Any], size: int) -> None:
        self._path, self._dtype, self._size = path, dtype, size
        self.bytes = size * dtype.itemsize
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        weakref.finalize(self, os.close, self._descriptor)
        os.ftruncate(self._descriptor, max(self.bytes, 1))  # an empty file cannot be mapped

    def map(self) -> NDArray[Any]:
        """The array as a read-only memory map."""
        mapped = mmap.mmap(self._descriptor, 0, prot=mmap.PROT_READ)
        return np.ndarray((self._size,), self._dtype, mapped)

    def take(self, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[Any]:
        """A copy of entries starts[i]..starts[i] + sizes[i] for all i, concatenated."""
        itemsize = self._dtype.itemsize
        found = np.empty(int(sizes.sum()), self._dtype)
        if not read_runs(np.int32(self._descriptor), starts * itemsize, sizes * itemsize, found.view(np.uint8)):
            raise StorageError(
                f"{self._path} could not be read back: the disk fails, or the file was changed.", code="io-error"
            )
        return found

    def write(self, start: int, values: NDArray[Any]) -> None:
        """Write entries from `start` on. Raises `StorageError`, for example for a full disk."""
        data = np.ascontiguousarray(values, self._dtype).view(np.uint8).data
        offset = start * self._dtype.itemsize
        with storage_errors(self._path):
            while data:
                written = os.pwrite(self._descriptor, data, offset)
                data, offset = data[written:], offset + written

    def lock(self, entry: int) -> bool:
        """Lock an entry against other processes until `unlock` or process exit; returns whether that succeeded."""
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, entry)
        except OSError:
            return False
        return True

    def unlock(self, entry: int) -> None:
        """Release the lock of an entry."""
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, entry)


# ----------------------------------------------------------------------------------------------------------------------
# Ranges of a corpus's rows in memory, from which they are read in any order.


@dataclass(eq=False, repr=False)
class RowRanges:
    """The rows of some ranges.

    Parameters
    ----------
    starts, stops : (ranges,) int64
        Row numbers, increasing; ranges do not overlap.
    batch : RowBatch
        Their rows, one range after the other; ``indptr`` starts at 0.
    weigh : callable, optional
        What is made of rows that are read.
    """

    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    batch: RowBatch
    weigh: Callable[[RowBatch], RowBatch] | None

    def __post_init__(self) -> None:
        self._before = np.cumsum(self.stops - self.starts) - (self.stops - self.starts)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.batch.labels)

    def gather(self, rows: NDArray[np.int64]) -> RowBatch:
        """The rows with these numbers, in this order, in the format of `Corpus.rows`."""
        part = np.searchsorted(self.starts, rows, side="right") - 1
        own = rows - self.starts[part] + self._before[part]
        indptr, indices, values, labels, weights = self.batch
        gathered = RowBatch(*gather(own, indptr, indices, values, indptr))
        gathered = gathered._replace(labels=labels[own], weights=None if weights is None else weights[own])
        return gathered if self.weigh is None else self.weigh(gathered)

    def buffered(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> "RowRanges":
        """These rows are in memory: see `Corpus.buffered`."""
        return self


# ----------------------------------------------------------------------------------------------------------------------
# The folder that the processes of a host share.


def folder_on_host(parent: Path) -> Path:
    """The folder in `parent` that this user's processes on this host share; created if needed.

    Its name has the boot of the machine: hosts that see the same `parent` have folders of their own, and files that
    were not synced before a crash are not used. Containers on a host share one if they share `parent`.

    Raises `StorageError` if it cannot be created, is a link, or is not this user's alone.
    """
    folder = parent / f"sparseoco-{os.geteuid()}-{boot()}"
    with storage_errors(folder):
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700, parents=True)
        status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise StorageError(
            f"{folder} can be changed by other users: remove it, or start workers with another --local-directory.",
            code="unsafe-folder",
        )
    return folder


# ----------------------------------------------------------------------------------------------------------------------
# A local copy of a store for random access: one CSR matrix in binary files, decoded shard by shard on demand.
#
# An epoch in shuffled order reads rows at random, for which Parquet is slow. The page cache of the operating system
# decides what stays in memory: a small corpus is memory-mapped, and rows of a large one are copied, so the memory of a
# worker does not grow with the corpus.
#
# The position of every shard is known in advance, and the bytes written there depend on the shard alone. So threads and
# processes share a folder, and the work: one byte per shard is set when it is complete, and stays unset if its writer
# dies.


MAX_OPEN = 2  # corpora that a process keeps open
PATIENCE = 20.0  # seconds to wait for a shard that another process decodes: longer than that takes
POLL_SECONDS = 0.005
MAPPED_BYTES = 256 << 20  # a larger corpus is not mapped
_opened: dict[tuple[str, str], tuple["Corpus", SharedFolder]] = {}
_lock = threading.Lock()


class Corpus:
    """All documents of a store, in document order.

    Safe to share between threads. Methods raise `StorageError` for a corrupt shard or a full disk.

    Parameters
    ----------
    store : Store
        The store.
    folder : Path
        The folder of its files; it may be shared with other processes.
    """

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._starts, self._offsets = store.shards.row_offsets, store.shards.nonzero_offsets
        rows, nonzeros = int(self._starts[-1]), int(self._offsets[-1])
        self._indptr = ArrayFile(folder / "indptr", np.dtype(np.int64), rows + 1)
        self._indices = ArrayFile(folder / "indices", store.indices_dtype, nonzeros)
        self._counts = ArrayFile(folder / "counts", store.counts_dtype, nonzeros)
        self._label_starts: NDArray[np.int64] | None = None  # of each shard, if documents have any number of labels
        if store.is_multilabel:
            self._label_starts = store.shards.label_offsets
            self._labels = ArrayFile(folder / "label_indptr", np.dtype(np.int64), rows + 1)
            self._label_sets = ArrayFile(folder / "label_sets", store.labels_dtype, int(self._label_starts[-1]))
        else:
            self._labels = ArrayFile(folder / "labels", store.labels_dtype, rows)
        self._columns = {name: ArrayFile(folder / name, COLUMN_DTYPES[name], rows) for name in store.manifest.columns}
        self._ready = ArrayFile(folder / "ready", np.dtype(np.uint8), store.n_shards)
        self._flags = self._ready.map()
        self._locks = [threading.Lock() for _ in range(store.n_shards)]
        files = (self._indptr, self._indices, self._counts, self._labels)
        self._maps = tuple(file.map() for file in files) if sum(file.bytes for file in files) <= MAPPED_BYTES else None
        self._whole = self._maps
        self._weigh: Callable[[RowBatch], RowBatch] | None = None

    def weighted(self, weights: TermWeights, dtype: Any = np.float64) -> "Corpus":
        """The corpus with weights of terms instead of counts, computed when rows are read.

        Parameters
        ----------
        weights : TermWeights
            What is made of the counts.
        dtype : numpy dtype
            Of the weights, float32 or float64; they are computed in float64.
        """
        own = copy.copy(self)
        own._weigh = lambda rows: rows._replace(values=weights.values(rows.indptr, rows.indices, rows.values, dtype))
        return own

    @property
    def n_rows(self) -> int:
        """Number of documents."""
        return int(self._starts[-1])

    def rows(self, start: int, stop: int) -> RowBatch:
        """Documents start..stop; indptr starts at 0."""
        return self.ranges(np.array([start], np.int64), np.array([stop], np.int64))

    def ranges(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> RowBatch:
        """Documents starts[i]..stops[i] for all i, concatenated; each range is one read of every array."""
        rows = self._ranges(starts, stops)
        return rows if self._weigh is None else self._weigh(rows)

    def _ranges(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> RowBatch:
        """The counts of `ranges`."""
        self._decode_ranges(starts, stops)
        sizes = stops - starts
        indptr, begin, nonzeros = _runs(self._indptr, starts, sizes)
        counts = self._indices.take(begin, nonzeros), self._counts.take(begin, nonzeros)
        return self._completed(RowBatch(indptr, *counts, self._labels.take(starts, sizes)), starts, sizes)

    def buffered(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> "Corpus | RowRanges":
        """These increasing ranges of documents for access in any order: in memory, unless the corpus is mapped."""
        if self._maps is not None:
            return self
        self._decode_ranges(starts, stops)
        return RowRanges(starts, stops, self._ranges(starts, stops), self._weigh)

    def gather(self, rows: NDArray[np.int64]) -> RowBatch:
        """The given documents, in that order, in the format of `rows`."""
        self._decode_ranges(rows, rows + 1)
        if self._maps is None:
            first = np.diff(rows, prepend=-2) != 1  # of a run of adjacent documents
            return self.ranges(rows[first], rows[np.roll(first, -1)] + 1)
        batch = self._completed(RowBatch(*gather(rows, *self._maps)), rows, np.ones(rows.size, np.int64))
        return batch if self._weigh is None else self._weigh(batch)

    def column(self, name: Column) -> NDArray[Any] | None:
        """An optional column of all documents, as a read-only memory map; None if the store has none."""
        if name not in self._columns:
            return None
        self._decode(range(len(self._locks)))
        return self._columns[name].map()

    def _completed(self, rows: RowBatch, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> RowBatch:
        """Runs of rows that are decoded, with their sample weights, and with label sets as (rows, classes)."""
        if "weight" in self._columns:
            rows = rows._replace(weights=self._columns["weight"].take(starts, sizes))
        if self._label_starts is None:
            return rows
        indptr, begin, counts = _runs(self._labels, starts, sizes)
        sets = LabelSets(indptr, self._label_sets.take(begin, counts))
        return rows._replace(labels=sets.indicator(len(self._store.classes)))

    def whole(self) -> RowBatch:
        """The counts of all documents as read-only memory maps, for access in an order that is not known in advance.

        Pages that were read from a large corpus count as memory of the process until `rest` is called.
        """
        self._decode(range(len(self._locks)))
        if self._whole is None:
            self._whole = tuple(file.map() for file in (self._indptr, self._indices, self._counts, self._labels))
        return self._completed(RowBatch(*self._whole), np.zeros(1, np.int64), np.array([self.n_rows]))

    def rest(self) -> None:
        """Release the pages of a large corpus to the page cache."""
        if self._maps is None and self._whole is not None:
            for array in self._whole:
                array.base.madvise(mmap.MADV_DONTNEED)  # type: ignore[union-attr]

    def _decode_ranges(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> None:
        """Decode the shards of these ranges of documents, see `_decode`."""
        if not self._flags.all():
            own = starts < stops
            opened = np.zeros(len(self._locks) + 1, np.int64)
            np.add.at(opened, np.searchsorted(self._starts, starts[own], side="right") - 1, 1)
            np.add.at(opened, np.searchsorted(self._starts, stops[own] - 1, side="right"), -1)
            self._decode(np.flatnonzero(np.cumsum(opened)).tolist())

    def _decode(self, shards: Sequence[int]) -> None:
        """Decode these shards, together with other threads and processes: each takes what no one else is decoding.

        Waits for the shards that others are decoding. A process may be suspended: after `PATIENCE` seconds its shards
        are decoded here as well, to the same bytes.
        """
        until = math.inf
        while shards := [shard for shard in shards if not self._take(shard, force=time.monotonic() > until)]:
            until = min(until, time.monotonic() + PATIENCE)
            time.sleep(POLL_SECONDS)

    def _take(self, shard: int, *, force: bool = False) -> bool:
        """Decode a shard unless another thread or, without `force`, process is doing so; returns whether it is done."""
        if not self._flags[shard] and self._locks[shard].acquire(blocking=False):
            try:
                locked = self._ready.lock(shard)
                try:
                    if (locked or force) and not self._flags[shard]:
                        self._write(shard)
                finally:
                    if locked:
                        self._ready.unlock(shard)
            finally:
                self._locks[shard].release()
        return bool(self._flags[shard])

    def _write(self, shard: int) -> None:
        part = self._store.read(shard)
        row, nonzero = int(self._starts[shard]), int(self._offsets[shard])
        labels = part.labels
        if self._label_starts is not None:
            start = int(self._label_starts[shard])
            self._label_sets.write(start, labels.classes)
            labels = labels.indptr + start
        self._labels.write(row, labels)
        self._indptr.write(row, part.indptr + nonzero)  # its first entry is the last one of the shard before
        self._indices.write(nonzero, part.indices)
        self._counts.write(nonzero, part.counts)
        for name, file in self._columns.items():
            file.write(row, part.columns[name])
        self._ready.write(shard, np.ones(1, np.uint8))


def _runs(
    indptr: ArrayFile, starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Runs of rows of a CSR matrix: their own indptr, the first entry and the number of entries of each run."""
    bounds = indptr.take(starts, sizes + 1)
    last = np.cumsum(sizes + 1) - 1
    begin = bounds[last - sizes]
    lengths = np.delete(np.diff(bounds), last[:-1])  # without the steps between runs
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]), begin, bounds[last] - begin


def weighted_corpus(store: Store, scratch: Path, weights: TermWeights, dtype: Any = np.float64) -> Corpus:
    """The corpus of a store with weights of terms; counts as they are if the weighting changes none.

    Raises `StorageError` if its files cannot be written.
    """
    corpus = open_corpus(store, scratch)
    return corpus if weights.weighting.is_identity else corpus.weighted(weights, dtype)


def open_corpus(store: Store, scratch: Path) -> Corpus:
    """The counts of a store.

    Parameters
    ----------
    store : Store
        The store.
    scratch : Path
        The folder of its files, in a folder that other processes may use too; the last one removes it.

    Returns
    -------
    Corpus
        The corpus, from a cache of the process if it is open already.

    Raises
    ------
    StorageError
        If its files cannot be written.
    """
    digest = store.manifest.digest
    identity = (digest, str(scratch))
    with _lock:
        if identity not in _opened:
            with storage_errors(scratch):
                while len(_opened) >= MAX_OPEN:
                    _opened.pop(next(iter(_opened)))[1].release()
                folder = SharedFolder(scratch, f"corpus-{digest[:32]}")
                _opened[identity] = Corpus(store, folder.path), folder
        return _opened[identity][0]


# ----------------------------------------------------------------------------------------------------------------------
# The worker that runs a task: its corpora, the folder of its host, and whether it is closing.


CLOSING = (Status.closing, Status.closing_gracefully, Status.closed, Status.failed)


def worker_corpus(store: Store, weighting: Weighting = COUNTS, dtype: Any = np.float64) -> Corpus:
    """The weighted corpus of a store on this worker. Raises `StorageError` if its files cannot be written."""
    return weighted_corpus(store, host_folder(), term_weights(store, weighting), dtype)


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
