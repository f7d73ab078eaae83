"""The data files of a store, and its shards and sources as tables of columns, which its listings have."""

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

from sparseoco import __version__
from sparseoco.core.errors import StorageError
from sparseoco.storage.commit import commit_bytes, digest_file, digest_value
from sparseoco.storage.locations import Location, storage_errors
from sparseoco.storage.tables import read_parquet
from sparseoco.store.manifest import AGAIN, SCHEMA_VERSION, FileEntry, Manifest, Record, ShardTotals, corrupt_store

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
    name = f"{kind}-{digest[:24]}.parquet"
    path = folder / name
    entry = FileEntry(file=name, bytes=len(data), sha256=digest)
    if not isinstance(path, Path) or not is_written(folder, entry):  # uploading takes no longer than reading
        commit_bytes(path, data)
    return entry


def read_verified(folder: Location, entry: FileEntry) -> bytes:
    """The content of a data file. Raises `StorageError` if it is missing or its SHA-256 is not the committed one."""
    path = folder / entry.file
    try:
        with storage_errors(path, but=FileNotFoundError):
            data = path.read_bytes()
    except FileNotFoundError as error:
        raise StorageError(f"{path} is missing, but the manifest lists it. {AGAIN}", code="missing-file") from error
    if hashlib.sha256(data).hexdigest() != entry.sha256:
        raise corrupt_store(path, "its SHA-256 is not the committed one")
    return data


def read_table(folder: Location, entry: FileEntry, columns: Sequence[str] | None = None) -> pa.Table:
    """A data file as a table, or some of its columns. Raises `StorageError`, also if there is no such table."""
    data = read_verified(folder, entry)
    try:
        return read_parquet(data, columns=columns)
    except pa.ArrowException as error:
        raise unlike_manifest(folder / entry.file, "it is not a table with the columns that are listed") from error


def unlike_manifest(path: object, fault: str) -> StorageError:
    """The error for a file that does not agree with the manifest that lists it; `fault` ends a sentence."""
    return corrupt_store(f"{path} or its manifest", fault)


def is_written(folder: Location, entry: FileEntry) -> bool:
    """Whether a data file exists with the content of its entry. Raises `StorageError` if it cannot be read."""
    path = folder / entry.file
    return path.exists() and digest_file(path) == entry.sha256


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
    """Columns of few different values, which listings store with a dictionary."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table.combine_chunks()

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Self:
        """The table of some entries, which may be one already."""
        if isinstance(entries, cls):
            return entries
        return cls(pa.Table.from_pylist([entry.model_dump() for entry in entries], schema=cls.schema))

    def _entries(self, table: pa.Table) -> "list[Entry]":
        return [cast(Entry, self.entry(**row)) for row in table.to_pylist()]

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Entry | Self:
        if isinstance(index, slice):
            first, stop, _ = index.indices(len(self))
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

    def __add__(self, others: Self) -> Self:
        return type(self)(pa.concat_tables([self.table, others.table]))

    def write(self, folder: Location, kind: str) -> FileEntry:
        """Write the listing of a version: a file of all its entries."""
        return write_data_file(folder, kind, self.table, use_dictionary=list(self.repeated))

    @classmethod
    def read(cls, folder: Location, listing: FileEntry | None) -> Self:
        """The entries of a listing; none without one. Raises `StorageError` if it is missing or corrupt."""
        table = cls.schema.empty_table() if listing is None else read_table(folder, listing)
        if not table.schema.equals(cls.schema):
            raise unlike_manifest(folder / listing.file, "it is no such listing")  # type: ignore[union-attr]
        return cls(table)

    def column(self, name: str) -> NDArray[Any]:
        """(entries,): a column, null as 0."""
        return self.table[name].fill_null(0).to_numpy() if len(self) else np.empty(0, np.int64)


class ShardTable(EntryTable[ShardEntry]):
    """The shards of a store, in document order."""

    entry = ShardEntry
    schema = pa.schema(
        {
            "file": pa.string(),
            "bytes": pa.int64(),
            "sha256": pa.string(),
            "rows": pa.int64(),
            "nonzeros": pa.int64(),
            "counts": pa.string(),
            "source": pa.int64(),
            "labels": pa.int64(),
        }
    )
    repeated = ("counts", "source")

    @classmethod
    def of_version(cls, folder: Location, manifest: Manifest) -> Self:
        """The shards of a version of a store, or of its increment: the last ones that are listed.

        Raises `StorageError` if the listing is missing or corrupt, or its entries cannot be those of the manifest.
        """
        listed = cls.read(folder, manifest.shard_listing)
        table = listed[len(listed) - manifest.n_shards :]
        totals = [len(table), *(int(table.column(name).sum()) for name in ("rows", "nonzeros", "bytes"))]
        numbers = [table.column(name) for name in ("rows", "nonzeros", "bytes", "source", "labels")]
        if totals != [manifest.n_shards, manifest.rows, manifest.nonzeros, manifest.bytes] or any(
            column.min(initial=0) < 0 for column in numbers
        ):
            path = folder / manifest.shard_listing.file
            raise unlike_manifest(path, f"the shards are not those of version {manifest.version}")
        return table

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


def _offsets(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])


# ----------------------------------------------------------------------------------------------------------------------
# Listings: each version of a store has a file that lists all its shards, and one for its sources.


def add_entries(
    folder: Location, previous: Manifest | None, shards: Iterable[ShardEntry], sources: Iterable[SourceEntry] = ()
) -> dict[str, Any]:
    """Write the listings of a new version of a store.

    Parameters
    ----------
    folder : Location
        The folder of the store.
    previous : Manifest or None
        The version to which entries are added; None for the first one.
    shards, sources : iterable of ShardEntry, SourceEntry
        The new entries.

    Returns
    -------
    dict
        The fields of the `Manifest` of the new version that depend on its shards and sources.

    Raises
    ------
    StorageError
        If the listing of the previous version is corrupt, or a listing cannot be written.
    """
    new_shards, all_sources = ShardTable.of(shards), SourceTable.of(sources)
    all_shards = new_shards
    if previous is not None:
        all_shards = ShardTable.of_version(folder, previous) + new_shards
        all_sources = SourceTable.read(folder, previous.source_listing) + all_sources
    return {
        **dict(shard_totals(all_shards)),
        "added": shard_totals(new_shards),
        "shard_listing": all_shards.write(folder, "shards"),
        "n_sources": len(all_sources),
        "source_listing": all_sources.write(folder, "sources") if len(all_sources) else None,
    }


def first_manifest(
    folder: Location, shards: Iterable[ShardEntry], sources: Iterable[SourceEntry] = (), **described: Any
) -> Manifest:
    """The manifest of the first version of a store, whose listings are written; `described` has its other fields."""
    return Manifest(
        schema_version=SCHEMA_VERSION,
        version=1,
        sparseoco=__version__,
        **described,
        **add_entries(folder, None, shards, sources),
    )


def shard_totals(shards: ShardTable) -> ShardTotals:
    """The sums over shards, and the digest of their files, rows and nonzeros."""
    return ShardTotals(
        n_shards=len(shards),
        rows=int(shards.row_offsets[-1]),
        nonzeros=int(shards.nonzero_offsets[-1]),
        bytes=int(shards.column("bytes").sum()),
        shards_digest=digest_value(shards.table.select(["sha256", "rows", "nonzeros"]).to_pydict()),
    )
