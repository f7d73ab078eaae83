"""The manifest of a store: one checksummed JSON document per version, never overwritten.

It does not grow with the number of ingests: shards and sources are listed in files that it names.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from sparseoco.core.errors import DamagedError, StorageError
from sparseoco.storage.commit import (
    Count,
    FolderKind,
    Sha256,
    commit_json,
    digest_value,
    parse_json,
    read_files,
    remove_file,
)
from sparseoco.storage.locations import Location

SCHEMA_VERSION = 5
BATCH = 32  # manifests in memory at a time: a store may have one a day
NAME = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*$"
"""Files are in the folder of the store, never outside it."""
STORE_FOLDER = FolderKind("a store", ("manifest-*.json",), (f"*-{'?' * 24}.parquet",))
AGAIN = "Restore it, or ingest again into a new folder."
_MANIFEST = re.compile(r"manifest-\d{8}\.json")


class Record(BaseModel):
    """A part of a manifest."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class FileEntry(Record):
    """A committed data file: its name in the store, its size and the SHA-256 of its bytes."""

    file: str = Field(pattern=NAME)
    bytes: Count
    sha256: Sha256


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

    @model_validator(mode="after")
    def _check(self) -> "FeatureTable":
        if (self.kind == "hashed") != (self.hash_bits is not None):
            raise ValueError("hashed features have bits, and no others do")
        if self.hash_bits is not None and self.count != 1 << self.hash_bits:
            raise ValueError("there are not 2^hash_bits features")
        return self


class FieldEntry(Record):
    """A field of the records: its type, the cuts between the bins of a number, and the documents without a value."""

    name: str
    type: Literal["text", "category", "number", "vector"]
    cuts: tuple[float, ...] | None = None
    missing: Count = 0


class ShardTotals(Record):
    """Sums over consecutive shards (see `sparseoco.store.entries.shard_totals`)."""

    n_shards: Count
    rows: Count
    nonzeros: Count
    bytes: Count
    shards_digest: Sha256


class Manifest(ShardTotals):
    """One version of a store: what its features, labels and columns mean, sums, and the digests that verify its files.

    Its shards are the last `n_shards` of the listing. Keys with a default were added within this format version, or
    are absent from most stores: further ones may follow.
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
    shard_listing: FileEntry
    added: ShardTotals
    """The shards that are not in the previous version."""
    n_sources: Count = 0
    source_listing: FileEntry | None = None
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
        if self.added.n_shards > self.n_shards:
            raise ValueError("more shards are added than there are")
        bits = self.features.hash_bits
        if bits is not None and self.options.get("hash_bits", bits) != bits:
            raise ValueError("the hashed features are not those of the options")
        return self

    @property
    def digest(self) -> str:
        """SHA-256 of everything that affects a learner: shards, features, labels and options, but not the sources."""
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


def latest_manifest(folder: Location) -> Manifest | None:
    """The newest manifest of a store, or None. Raises `StorageError` if it is corrupt or of another format."""
    paths = sorted(path for path in folder.glob("manifest-*.json") if _MANIFEST.fullmatch(path.name))
    return next(_read(paths[-1:]), None)


def read_manifest(folder: Location, version: int) -> Manifest:
    """The manifest of a version of a store. Raises `StorageError`."""
    return next(_read([_path(folder, version)]))


def read_manifests(folder: Location, last: int) -> Iterator[Manifest]:
    """The manifests of versions 1 to `last`, in order, read in batches. Raises `StorageError`."""
    for first in range(1, last + 1, BATCH):
        paths = [_path(folder, version) for version in range(first, min(first + BATCH, last + 1))]
        yield from _read(paths)


def remove_version(folder: Location, version: int) -> None:
    """Remove the newest version of a store: the one before is the newest then. Files that it alone lists are left."""
    remove_file(_path(folder, version))


def corrupt_store(what: object, fault: str) -> StorageError:
    """The error for a file of a store that is damaged; `fault` ends a sentence."""
    return StorageError(f"{what} is corrupt: {fault}. {AGAIN}", code="corrupt-file")


def _path(folder: Location, version: int) -> Location:
    return folder / f"manifest-{version:08d}.json"


def _read(paths: Sequence[Location]) -> Iterator[Manifest]:
    for path, data in zip(paths, read_files(paths), strict=True):
        try:
            value = parse_json(path, data)
        except DamagedError as error:
            raise corrupt_store(path, "its checksum does not match") from error
        if value.get("schema_version") != SCHEMA_VERSION:
            raise StorageError(
                f"{path} has format version {value.get('schema_version')}, and this version of sparseoco reads "
                f"{SCHEMA_VERSION}: ingest again into a new folder.",
                code="format-version",
            )
        try:
            manifest = Manifest.model_validate(value)
        except ValidationError as error:
            where = ".".join(str(part) for part in error.errors()[0]["loc"]) or "the whole file"
            raise corrupt_store(path, f"at {where}") from error
        if path.name != _path(path.parent, manifest.version).name:
            raise corrupt_store(path, f"it is that of version {manifest.version}")
        yield manifest
