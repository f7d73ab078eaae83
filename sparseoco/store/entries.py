"""The shards and sources of a store as tables of columns: opening a store makes no object per entry."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar, cast, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sparseoco.core.errors import StorageError
from sparseoco.storage.commit import commit_bytes, digest_file
from sparseoco.storage.locations import Location, storage_error
from sparseoco.storage.remote import RemotePath, map_concurrently
from sparseoco.storage.tables import read_parquet
from sparseoco.store.manifest import AGAIN, FileEntry, Record, corrupt_store

# ----------------------------------------------------------------------------------------------------------------------
# Data files of a store: Parquet tables that are named by their content, and verified when they are read.


def write_data_file(folder: Location, kind: str, table: pa.Table, **encoding: Any) -> FileEntry:
    """Write a table as a file of a kind, with the options of `pyarrow.parquet.write_table`; returns its entry."""
    sink = pa.BufferOutputStream()
    # Written once and read many times: LZ4 takes 12 to 33 % more space than zstd and half the time. No query uses
    # ranges, so there are no statistics.
    pq.write_table(table, sink, compression="lz4", write_statistics=False, **encoding)
    data = sink.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    name = data_file_name(kind, digest)
    path = folder / name
    entry = FileEntry(file=name, bytes=len(data), sha256=digest)
    if not isinstance(path, Path) or not is_written(folder, entry):  # uploading takes no longer than reading
        commit_bytes(path, data)
    return entry


def data_file_name(kind: str, digest: str) -> str:
    """The name of a file of a kind whose bytes have this SHA-256."""
    return f"{kind}-{digest[:24]}.parquet"


def read_verified(folder: Location, entry: FileEntry) -> bytes:
    """The content of a data file. Raises `StorageError` if it is missing or its SHA-256 is not the committed one."""
    path = folder / entry.file
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise StorageError(f"{path} is missing, but the manifest lists it. {AGAIN}", code="missing-file") from error
    except OSError as error:
        raise storage_error(error, path) from error
    if hashlib.sha256(data).hexdigest() != entry.sha256:
        raise corrupt_store(path, "its SHA-256 is not the committed one")
    return data


def read_table(folder: Location, entry: FileEntry, columns: Sequence[str] | None = None) -> pa.Table:
    """A data file as a table, or some of its columns. Raises `StorageError`."""
    return parse_table(folder / entry.file, read_verified(folder, entry), columns)


def parse_table(path: Location, data: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """The table of the verified content of a data file, as `read_parquet`. Raises `StorageError` if there is none."""
    try:
        return read_parquet(data, columns=columns)
    except pa.ArrowException as error:
        raise unlike_manifest(path, "it is not a table with the columns that are listed") from error


def unlike_manifest(path: object, fault: str) -> StorageError:
    """The error for a file that does not agree with the manifest that lists it; `fault` ends a sentence."""
    return corrupt_store(f"{path} or its manifest", fault)


def read_all_verified(folder: Location, entries: Sequence[FileEntry]) -> list[bytes]:
    """The contents of data files, remote ones requested concurrently. Raises `StorageError`."""
    if isinstance(folder, RemotePath) and len(entries) > 1:
        return map_concurrently(lambda entry: read_verified(folder, entry), entries)
    return [read_verified(folder, entry) for entry in entries]


def is_written(folder: Location, entry: FileEntry) -> bool:
    """Whether a data file exists with the content of its entry. Raises `StorageError` if it cannot be read."""
    path = folder / entry.file
    return path.exists() and digest_file(path) == entry.sha256


SHARD = "shard"
"""The kind of file of a shard."""


class ShardEntry(FileEntry):
    """A shard: its file, documents, nonzeros, dtype of counts, the index of its source, and, if documents have any
    number of labels, their sum."""

    rows: int
    nonzeros: int
    counts: str
    source: int = 0
    labels: int | None = None


class SourceEntry(Record):
    """A raw input: its path, and what detects a change."""

    path: str
    bytes: int
    modified_ns: int | None
    sha256: str
    rows: int


class IncrementEntry(Record):
    """What a version added to a store: the digest of the manifest of its increment, documents and nonzeros; and the
    number of features since then."""

    sha256: str
    rows: int
    nonzeros: int
    features: int


Entry = TypeVar("Entry", bound=Record)


class EntryTable(Sequence[Entry], Generic[Entry]):
    """Entries as the columns of an Arrow table; an entry is made when it is asked for.

    Parameters
    ----------
    table : pyarrow.Table
        Columns of `schema`.
    """

    entry: ClassVar[type[Record]]
    schema: ClassVar[pa.Schema]
    repeated: ClassVar[Sequence[str]] = ()
    """Columns of few different values, which files store with a dictionary."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table.combine_chunks()

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Self:
        """The table of some entries, which may be one already."""
        return (
            entries
            if isinstance(entries, cls)
            else cls(pa.Table.from_pylist([cls._row(entry) for entry in entries], schema=cls.schema))
        )

    @classmethod
    def _row(cls, entry: Entry) -> dict[str, Any]:
        return entry.model_dump()

    @classmethod
    def _fields(cls, row: dict[str, Any]) -> dict[str, Any]:
        """The fields of the entry of a row."""
        return row

    def _entries(self, table: pa.Table) -> "list[Entry]":
        return [cast(Entry, self.entry(**self._fields(row))) for row in table.to_pylist()]

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Entry | Self:
        if isinstance(index, slice):
            first, stop, step = index.indices(len(self))
            if step != 1:
                raise ValueError("a table of entries has no slices with a step")
            return type(self)(self.table.slice(first, max(stop - first, 0)))
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return self._entries(self.table.slice(index % len(self), 1))[0]

    def __iter__(self) -> Iterator[Entry]:
        for batch in self.table.to_batches(max_chunksize=1024):
            yield from self._entries(batch)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and bool(self.table.equals(other.table))

    __hash__ = None  # type: ignore[assignment]

    def column(self, name: str) -> NDArray[Any]:
        """(entries,): a column, null as 0."""
        values = self.table[name].fill_null(0)
        return values.to_numpy() if len(self) else np.empty(0, np.int64)


class ShardTable(EntryTable[ShardEntry]):
    """The shards of a store, in document order."""

    entry = ShardEntry
    schema = pa.schema(
        {
            "sha256": pa.binary(32),
            "bytes": pa.int64(),
            "rows": pa.int64(),
            "nonzeros": pa.int64(),
            "counts": pa.string(),
            "source": pa.int64(),
            "labels": pa.int64(),
        }
    )
    repeated = ("counts", "source")

    @classmethod
    def _row(cls, entry: ShardEntry) -> dict[str, Any]:
        return entry.model_dump(exclude={"file"}) | {"sha256": bytes.fromhex(entry.sha256)}

    @classmethod
    def _fields(cls, row: dict[str, Any]) -> dict[str, Any]:
        digest = row["sha256"].hex()
        return row | {"file": data_file_name(SHARD, digest), "sha256": digest}

    @cached_property
    def row_offsets(self) -> NDArray[np.int64]:
        """(shards + 1,): the number of the first document of each shard, and of all documents."""
        return _offsets(self.column("rows"))

    @cached_property
    def nonzero_offsets(self) -> NDArray[np.int64]:
        """(shards + 1,): the nonzeros before each shard, and of all documents."""
        return _offsets(self.column("nonzeros"))

    @cached_property
    def label_offsets(self) -> NDArray[np.int64]:
        """(shards + 1,): the labels before each shard, and of all documents, if those have any number of labels."""
        return _offsets(self.column("labels"))

    @property
    def counts_dtypes(self) -> list[str]:
        """The dtypes of counts that occur."""
        return sorted(pc.unique(self.table["counts"]).to_pylist())

    @property
    def digests(self) -> NDArray[np.uint8]:
        """(shards, 32): the SHA-256 of each file."""
        column = self.table["sha256"].combine_chunks()
        if not len(self):
            return np.empty((0, 32), np.uint8)
        data = np.frombuffer(column.buffers()[1], np.uint8)
        return data[32 * column.offset : 32 * (column.offset + len(self))].reshape(-1, 32)


class SourceTable(EntryTable[SourceEntry]):
    """The sources of a store, by index."""

    entry = SourceEntry
    schema = pa.schema(
        {
            "path": pa.string(),
            "bytes": pa.int64(),
            "modified_ns": pa.int64(),
            "sha256": pa.string(),
            "rows": pa.int64(),
        }
    )


class IncrementTable(EntryTable[IncrementEntry]):
    """The versions of a store; version v is at index v − 1."""

    entry = IncrementEntry
    schema = pa.schema({"sha256": pa.string(), "rows": pa.int64(), "nonzeros": pa.int64(), "features": pa.int64()})


def _offsets(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    offsets = np.zeros(sizes.size + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets
