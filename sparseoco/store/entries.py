"""The shards and sources of a store as tables of columns: opening a store makes no object per entry."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.store.data_files import data_file_name
from sparseoco.store.manifest import FileEntry, Record

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

    schema: ClassVar[pa.Schema]
    repeated: ClassVar[Sequence[str]] = ()
    """Columns of few different values, which files store with a dictionary."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table.combine_chunks()

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Self:
        """The table of some entries."""
        return cls(pa.Table.from_pylist([cls._row(entry) for entry in entries], schema=cls.schema))

    @classmethod
    def _row(cls, entry: Entry) -> dict[str, Any]:
        return entry.model_dump()

    @classmethod
    def _entry(cls, row: dict[str, Any]) -> Entry:
        raise NotImplementedError

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
        (row,) = self.table.slice(index % len(self), 1).to_pylist()
        return self._entry(row)

    def __iter__(self) -> Iterator[Entry]:
        for batch in self.table.to_batches(max_chunksize=1024):
            yield from map(self._entry, batch.to_pylist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and bool(self.table.equals(other.table))

    __hash__ = None  # type: ignore[assignment]

    def column(self, name: str) -> NDArray[Any]:
        """(entries,): a column, null as 0."""
        values = self.table[name].fill_null(0)
        return values.to_numpy() if len(self) else np.empty(0, np.int64)


class ShardTable(EntryTable[ShardEntry]):
    """The shards of a store, in document order."""

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
    def _entry(cls, row: dict[str, Any]) -> ShardEntry:
        digest = row["sha256"].hex()
        return ShardEntry(**row | {"file": data_file_name(SHARD, digest), "sha256": digest})

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

    schema = pa.schema(
        {
            "path": pa.string(),
            "bytes": pa.int64(),
            "modified_ns": pa.int64(),
            "sha256": pa.string(),
            "rows": pa.int64(),
        }
    )

    @classmethod
    def _entry(cls, row: dict[str, Any]) -> SourceEntry:
        return SourceEntry(**row)


class IncrementTable(EntryTable[IncrementEntry]):
    """The versions of a store; version v is at index v − 1."""

    schema = pa.schema({"sha256": pa.string(), "rows": pa.int64(), "nonzeros": pa.int64(), "features": pa.int64()})

    @classmethod
    def _entry(cls, row: dict[str, Any]) -> IncrementEntry:
        return IncrementEntry(**row)


def _offsets(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    offsets = np.zeros(sizes.size + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets
