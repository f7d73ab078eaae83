"""Manifest of a store: versions, segments, entries."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, Literal, Self, TypeVar, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from sparseoco.core.errors import DamagedError, StorageError
from sparseoco.kernels.columns import RowBatch
from sparseoco.kernels.order import gather
from sparseoco.storage.commit import (
    CHECKSUM,
    Count,
    commit_bytes,
    commit_json,
    digest_file,
    digest_value,
    parse_json,
    read_bytes,
    read_files,
)
from sparseoco.storage.locations import Location, storage_error
from sparseoco.storage.locks import FolderKind
from sparseoco.storage.remote import RemotePath, map_concurrently
from sparseoco.storage.tables import read_parquet

# ----------------------------------------------------------------------------------------------------------------------
# Ranges of a corpus's rows in memory, from which they are read in any order.


class RowRanges:
    """The rows of some ranges.

    Parameters
    ----------
    starts, stops : (ranges,) int64
        Row numbers, increasing; ranges do not overlap.
    rows : RowBatch
        Their rows, one range after the other; ``indptr`` starts at 0.
    """

    def __init__(self, starts: NDArray[np.int64], stops: NDArray[np.int64], rows: RowBatch) -> None:
        self._starts, self._before = starts, np.cumsum(stops - starts) - (stops - starts)
        for array in rows[:3]:
            array.flags.writeable = False  # the types of a mapped corpus, for which `gather` is compiled
        self._rows = rows

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self._rows.labels)

    def gather(self, rows: NDArray[np.int64]) -> RowBatch:
        """The rows with these numbers, in this order, in the format of `Corpus.rows`."""
        part = np.searchsorted(self._starts, rows, side="right") - 1
        own = rows - self._starts[part] + self._before[part]
        indptr, indices, values, labels, weights = self._rows
        gathered = RowBatch(*gather(own, indptr, indices, values, indptr))
        return gathered._replace(labels=labels[own], weights=None if weights is None else weights[own])

    def buffered(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> "RowRanges":
        """These rows are in memory: see `Corpus.buffered`."""
        return self


# ----------------------------------------------------------------------------------------------------------------------
# The manifest of a store: one checksummed JSON document per version, never overwritten.
#
# It grows with the logarithm of the number of ingests: shards and sources are listed in the files that it names.


SCHEMA_VERSION = 4
BATCH = 32  # manifests in memory at a time: a store may have one a day
SHA256 = r"^[0-9a-f]{64}$"
NAME = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*$"
"""Files are in the folder of the store, never outside it."""
STORE_FOLDER = FolderKind("a store", ("manifest-*.json",), (f"*-{'?' * 24}.parquet",))
_MANIFEST = re.compile(r"manifest-\d{8}\.json")


class Record(BaseModel):
    """A part of a manifest."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class FileEntry(Record):
    """A committed data file: its name in the store, its size and the SHA-256 of its bytes."""

    file: str = Field(pattern=NAME)
    bytes: Count
    sha256: str = Field(pattern=SHA256)


Column = Literal["weight", "group", "time"]
"""An optional column of the shards, with one number per document: its sample weight (float32), a hash of its group
(int64), its time (float64)."""


class ClassEntry(Record):
    """A class, fixed at the first ingest, and its number of documents."""

    name: str
    rows: Count


class LabelTable(Record):
    """The kind of labels: one index into `classes` per document, any number of them (multi), or a number."""

    kind: Literal["classes", "multi", "numbers"]
    classes: tuple[ClassEntry, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> "LabelTable":
        names = {entry.name for entry in self.classes}
        if len(names) < len(self.classes) or (self.kind == "numbers" and names):
            raise ValueError("a class is named twice, or is one of numbers")
        return self


class FeatureTable(Record):
    """The meaning of feature ids: rows of the vocabulary files, or hashes with files of their terms."""

    kind: Literal["vocabulary", "hashed"]
    count: int = Field(ge=1, lt=1 << 63)
    files: tuple[FileEntry, ...]
    hash_bits: int | None = Field(None, ge=1, le=62)
    hash_seed: int | None = Field(None, ge=0, lt=2**64)

    @model_validator(mode="after")
    def _check(self) -> "FeatureTable":
        hashing = self.hash_bits, self.hash_seed
        if (self.kind == "hashed") != (None not in hashing) or (self.kind == "vocabulary" and hashing != (None, None)):
            raise ValueError("hashed features have bits and a seed, and no others do")
        if self.hash_bits is not None and self.count != 1 << self.hash_bits:
            raise ValueError("there are not 2^hash_bits features")
        return self


class FieldEntry(Record):
    """A field of the records: its type, the cuts between the bins of a number, and the documents without a value."""

    name: str
    type: Literal["text", "category", "number"]
    cuts: tuple[float, ...] | None = None
    missing: Count = 0


class Segment(FileEntry):
    """A file of consecutive entries of shards or sources, and their number."""

    entries: int = Field(ge=1, lt=1 << 63)


class ShardTotals(Record):
    """Sums over consecutive shards: their number, documents, nonzeros and bytes, and the chain of their digests.

    See `sparseoco.store.segments.chain_digest`.
    """

    n_shards: Count
    rows: Count
    nonzeros: Count
    bytes: Count
    shards_digest: str = Field(pattern=SHA256)


class Manifest(ShardTotals):
    """One version of a store: what its features, labels and columns mean, sums, and the digests that verify its files.

    Shards and sources are listed in segments (see `sparseoco.store.segments`); those of the version are the last
    `n_shards` and `n_sources` entries. Keys with a default were added within this format version, or are absent from
    most stores: further ones may follow.
    """

    schema_version: int
    version: int = Field(ge=1)
    sparseoco: str
    options: dict[str, Any]
    options_digest: str
    features: FeatureTable
    frequencies: FileEntry | None = None
    """Document frequencies, if those of the vocabulary files are not those of all documents."""
    labels: LabelTable
    columns: tuple[Column, ...] = ()
    """Optional columns of every shard."""
    fields: tuple[FieldEntry, ...] = ()
    """Fields of the records, of stores that have more than one text."""
    shard_segments: tuple[Segment, ...]
    added: ShardTotals
    """The shards that are not in the previous version."""
    n_sources: Count = 0
    source_segments: tuple[Segment, ...] = ()
    increment_segments: tuple[Segment, ...] = ()
    """What each version added, from the first to this one; none if this is the first."""
    shard_bytes: int | None = Field(None, ge=1)
    """Raw text per shard in the first ingest; None if the store was not made from text."""
    empty_rows: Count = 0
    dropped_terms: Count = 0
    quarantined_rows: Count = 0
    quarantine: tuple[FileEntry, ...] = ()
    multiline_rows: Count = 0
    """Documents of CSV and TSV that span several lines."""
    duplicate_rows: Count = 0
    """Documents that were left out because their id occurred before."""

    @model_validator(mode="after")
    def _check(self) -> "Manifest":
        for listed, segments in ((self.n_shards, self.shard_segments), (self.n_sources, self.source_segments)):
            if listed != sum(segment.entries for segment in segments):
                raise ValueError("the segments do not have the entries that are counted")
        if self.added.n_shards > self.n_shards:
            raise ValueError("more shards are added than there are")
        bits = self.features.hash_bits
        if bits is not None and self.options.get("hash_bits", bits) != bits:
            raise ValueError("the hashed features are not those of the options")
        return self

    @property
    def digest(self) -> str:
        """SHA-256 of everything that affects a learner: shards, features, labels and options, but not the sources.

        It does not depend on how entries are grouped in segments.
        """
        included = {"options_digest", "features", "frequencies", "labels", "columns", "n_shards", "shards_digest"}
        return digest_value(self.model_dump(mode="json", include=included))

    @property
    def increment(self) -> "Manifest":
        """The manifest with only the shards that the previous version does not have."""
        return self.model_copy(update=dict(self.added))


def commit_manifest(folder: Location, manifest: Manifest) -> None:
    """Make a new version of the store visible.

    Raises `StorageError` if another writer has committed this version first.
    """
    path = _path(folder, manifest.version)
    try:
        commit_json(path, manifest.model_dump(mode="json"), replace=False)
    except FileExistsError as error:
        raise StorageError(
            f"{folder}: another run committed version {manifest.version} first; run again.", code="version-conflict"
        ) from error


REMOVED: Final[dict[str, Any]] = {"hash_seed": 0, "index_base": "auto", "max_inflation": 1000}
"""Options of earlier versions of which only this value, the default, is still read."""


def current_options(options: Mapping[str, Any], source: object) -> dict[str, Any]:
    """The options of a store or model without those of earlier versions.

    Raises `StorageError` if one of these was not the default.
    """
    for name, value in REMOVED.items():
        if options.get(name, value) != value:
            raise StorageError(
                f"{source} was made with {name} = {options[name]}, which this version of sparseoco does not have: make "
                "it again without the option.",
                code="removed-option",
            )
    return {name: value for name, value in options.items() if name not in REMOVED}


def latest_manifest(folder: Location) -> Manifest | None:
    """The newest manifest of a store, or None. Raises `StorageError` if it is corrupt or of another format."""
    paths = sorted(path for path in folder.glob("manifest-*.json") if _MANIFEST.fullmatch(path.name))
    return _parsed(paths[-1], read_bytes(paths[-1])) if paths else None


def read_manifest(folder: Location, version: int) -> Manifest:
    """The manifest of a version of a store. Raises as `latest_manifest`, also if it is missing."""
    path = _path(folder, version)
    return _parsed(path, read_bytes(path))


def read_manifests(folder: Location, last: int) -> Iterator[Manifest]:
    """The manifests of versions 1 to `last`, in order, read in batches. Raises as `read_manifest`."""
    for first in range(1, last + 1, BATCH):
        paths = [_path(folder, version) for version in range(first, min(first + BATCH, last + 1))]
        yield from map(_parsed, paths, read_files(paths))


def _path(folder: Location, version: int) -> Location:
    return folder / f"manifest-{version:08d}.json"


def _parsed(path: Location, data: bytes) -> Manifest:
    try:
        value = parse_json(path, data)
    except DamagedError as error:
        _check_former_version(path, data)
        raise StorageError(
            f"{path} is corrupt: its checksum does not match. Restore it, or ingest again into a new folder.",
            code="corrupt-file",
        ) from error
    _check_version(path, value.get("schema_version"))
    try:
        manifest = Manifest.model_validate(value)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"]) or "the whole file"
        raise StorageError(
            f"{path} is corrupt (at {where}): ingest again into a new folder.", code="corrupt-file"
        ) from error
    for options in (manifest.options, {"hash_seed": manifest.features.hash_seed or 0}):
        current_options(options, path.parent)
    if path.name != _path(path.parent, manifest.version).name:
        raise StorageError(
            f"{path} is corrupt: it is that of version {manifest.version}. Ingest again into a new folder.",
            code="corrupt-file",
        )
    return manifest


def _check_former_version(path: Location, data: bytes) -> None:
    """Raises `StorageError` for a manifest without a checksum that names another format version."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(value, dict) and CHECKSUM not in value and isinstance(value.get("schema_version"), int):
        _check_version(path, value["schema_version"])


def _check_version(path: Location, version: Any) -> None:
    if version != SCHEMA_VERSION:
        raise StorageError(
            f"{path} has format version {version}, and this version of sparseoco reads {SCHEMA_VERSION}: ingest again "
            "into a new folder.",
            code="format-version",
        )


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
        raise StorageError(
            f"{path} is missing, but the manifest lists it. Ingest again into a new folder.", code="missing-file"
        ) from error
    except OSError as error:
        raise storage_error(error, path) from error
    if hashlib.sha256(data).hexdigest() != entry.sha256:
        raise StorageError(
            f"{path} is corrupt: its SHA-256 is not the committed one. Ingest again into a new folder.",
            code="corrupt-file",
        )
    return data


def read_table(folder: Location, entry: FileEntry, columns: Sequence[str] | None = None) -> pa.Table:
    """A data file as a table, or some of its columns. Raises as `read_verified`."""
    return parse_table(folder / entry.file, read_verified(folder, entry), columns)


def parse_table(
    path: Location, data: bytes, columns: Sequence[str] | None = None, where: pc.Expression | None = None
) -> pa.Table:
    """The table of the verified content of a data file, as `read_parquet`. Raises `StorageError` if there is none."""
    try:
        return read_parquet(data, columns=columns, where=where)
    except pa.ArrowException as error:
        raise unlike_manifest(path, "it is not a table with the columns that are listed") from error


def unlike_manifest(path: Location, fault: str) -> StorageError:
    """The error for a file that does not agree with the manifest that lists it; `fault` ends a sentence."""
    return StorageError(
        f"{path} or its manifest is corrupt: {fault}. Ingest again into a new folder.", code="corrupt-file"
    )


def read_all_verified(folder: Location, entries: Sequence[FileEntry]) -> list[bytes]:
    """The contents of data files, remote ones requested concurrently. Raises as `read_verified`."""
    if isinstance(folder, RemotePath) and len(entries) > 1:
        return map_concurrently(lambda entry: read_verified(folder, entry), entries)
    return [read_verified(folder, entry) for entry in entries]


def is_written(folder: Location, entry: FileEntry) -> bool:
    """Whether a data file exists with the content of its entry. Raises `StorageError` if it cannot be read."""
    path = folder / entry.file
    return path.exists() and digest_file(path) == entry.sha256


# ----------------------------------------------------------------------------------------------------------------------
# The shards and sources of a store as tables of columns: opening a store makes no object per entry.


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
