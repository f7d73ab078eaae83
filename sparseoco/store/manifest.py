"""The manifest of a store: one validated JSON document per version, never overwritten."""

import json
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from sparseoco.core.errors import StorageError
from sparseoco.storage.commit import commit_json, digest_value, read_bytes, read_files
from sparseoco.storage.locations import Location

SCHEMA_VERSION = 2
BATCH = 32  # manifests in memory at a time: each lists all shards of its version
_NAME = re.compile(r"manifest-\d{8}\.json")


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FileEntry(_Record):
    """A committed data file: its name in the store, its size and the SHA-256 of its bytes."""

    file: str
    bytes: int
    sha256: str


Column = Literal["weight", "group", "time"]
"""An optional column of the shards, with one number per document: its sample weight (float32), a hash of its group
(int64), its time (float64)."""


class ShardEntry(FileEntry):
    """A shard: its file, documents, nonzeros, dtype of counts, the index of its source, and, if documents have any
    number of labels, their sum."""

    rows: int
    nonzeros: int
    counts: str
    source: int = 0
    labels: int | None = None


class ClassEntry(_Record):
    """A class, fixed at the first ingest, and its number of documents."""

    name: str
    rows: int


class LabelTable(_Record):
    """The kind of labels: one index into `classes` per document, any number of them (multi), or a number."""

    kind: Literal["classes", "multi", "numbers"]
    classes: tuple[ClassEntry, ...] = ()


class FeatureTable(_Record):
    """The meaning of feature ids: rows of the vocabulary files, or hashes with files of their terms."""

    kind: Literal["vocabulary", "hashed"]
    count: int
    files: tuple[FileEntry, ...]
    hash_bits: int | None = None
    hash_seed: int | None = None


class FieldEntry(_Record):
    """A field of the records: its type, the cuts between the bins of a number, and the documents without a value."""

    name: str
    type: Literal["text", "category", "number"]
    cuts: tuple[float, ...] | None = None
    missing: int = 0


class SourceEntry(_Record):
    """A raw input: its path, and what detects a change."""

    path: str
    bytes: int
    modified_ns: int | None
    sha256: str
    rows: int


class Manifest(_Record):
    """The content of one version of a store, with the digests that verify it.

    Keys with a default were added within this format version, or are absent from most stores: further ones may follow.
    """

    schema_version: int
    version: int
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
    rows: int
    nonzeros: int
    empty_rows: int = 0
    dropped_terms: int = 0
    quarantined_rows: int = 0
    quarantine: tuple[FileEntry, ...] = ()
    multiline_rows: int = 0
    """Records of CSV and TSV that span several lines."""
    duplicate_rows: int = 0
    """Documents that were left out because their id occurred before."""
    sources: tuple[SourceEntry, ...]
    shards: tuple[ShardEntry, ...]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that affects a learner: shards, features, labels and options, but not the sources."""
        included = {"options_digest", "features", "frequencies", "labels", "columns", "shards"}
        return digest_value(self.model_dump(mode="json", include=included))


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
    paths = sorted(path for path in folder.glob("manifest-*.json") if _NAME.fullmatch(path.name))
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
        manifest = Manifest.model_validate_json(data)
    except ValidationError as error:
        _check_version(path, _version(data))
        where = ".".join(str(part) for part in error.errors()[0]["loc"]) or "the whole file"
        raise StorageError(
            f"{path} is corrupt (at {where}): ingest again into a new folder.", code="corrupt-file"
        ) from error
    _check_version(path, manifest.schema_version)
    return manifest


def _version(data: bytes) -> int:
    """The format version that a manifest names, this one if it cannot be read."""
    try:
        version = json.loads(data)["schema_version"]
    except (ValueError, KeyError, TypeError):
        return SCHEMA_VERSION
    return version if isinstance(version, int) else SCHEMA_VERSION


def _check_version(path: Location, version: int) -> None:
    if version != SCHEMA_VERSION:
        raise StorageError(
            f"{path} has format version {version}, and this version of sparseoco reads {SCHEMA_VERSION}: ingest again "
            "into a new folder.",
            code="format-version",
        )
