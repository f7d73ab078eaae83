"""What a store of shards says of itself: one JSON document, validated, numbered and put if absent."""

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from sparseoco.core.errors import StorageError
from sparseoco.storage.commit import commit_json, digest_value, read_bytes, read_files
from sparseoco.storage.locations import Location

SCHEMA_VERSION = 1
AT_ONCE = 32  # manifests held at a time: each names all shards there were
_NAME = re.compile(r"manifest-\d{8}\.json")


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FileEntry(_Record):
    """A committed data file: its name in the store, its size and the SHA-256 of its bytes."""

    file: str
    bytes: int
    sha256: str


class ShardEntry(FileEntry):
    """A shard: its file, documents, nonzeros, the type of its counts, and which source it came from."""

    rows: int
    nonzeros: int
    counts: str
    source: int = 0


class ClassEntry(_Record):
    """A class frozen at the first ingest, with the documents seen of it."""

    name: str
    rows: int


class LabelTable(_Record):
    """What the labels are: class indices into `classes`, or numbers."""

    kind: Literal["classes", "numbers"]
    classes: tuple[ClassEntry, ...] = ()


class FeatureTable(_Record):
    """What a feature id means: a row of the vocabulary file, or a hash named by side tables."""

    kind: Literal["vocabulary", "hashed"]
    count: int
    files: tuple[FileEntry, ...]
    hash_bits: int | None = None
    hash_seed: int | None = None


class SourceEntry(_Record):
    """A raw input: where it was, and enough to tell whether it has changed."""

    path: str
    bytes: int
    modified_ns: int | None
    sha256: str
    rows: int


class Manifest(_Record):
    """All that a reader needs to trust the store."""

    schema_version: int
    version: int
    sparseoco: str
    options: dict[str, Any]
    options_digest: str
    features: FeatureTable
    labels: LabelTable
    rows: int
    nonzeros: int
    empty_rows: int = 0
    dropped_terms: int = 0
    quarantined_rows: int = 0
    quarantine: tuple[FileEntry, ...] = ()
    sources: tuple[SourceEntry, ...]
    shards: tuple[ShardEntry, ...]

    @cached_property
    def digest(self) -> str:
        """A name for what can be learned from it: shards, features, labels and options, wherever the text came from."""
        return digest_value(self.model_dump(mode="json", include={"options_digest", "features", "labels", "shards"}))


def commit_manifest(folder: Location, manifest: Manifest) -> None:
    """Make a new version of the store visible.

    Raises `StorageError` if another writer has committed this version first.
    """
    path = _path(folder, manifest.version)
    try:
        commit_json(path, manifest.model_dump(mode="json"), replace=False)
    except FileExistsError as error:
        raise StorageError(f"{folder}: another run committed version {manifest.version} first; run again.") from error


def latest_manifest(folder: Location) -> Manifest | None:
    """The newest manifest of a store, or None where there is none.

    Raises `StorageError` for a manifest that cannot be understood.
    """
    paths = sorted(path for path in folder.glob("manifest-*.json") if _NAME.fullmatch(path.name))
    return _parsed(paths[-1], read_bytes(paths[-1])) if paths else None


def read_manifest(folder: Location, version: int) -> Manifest:
    """The manifest of a version of a store. Raises `StorageError` if it is missing or cannot be understood."""
    path = _path(folder, version)
    return _parsed(path, read_bytes(path))


def read_manifests(folder: Location, last: int) -> Iterator[Manifest]:
    """Those of versions 1 to `last`, in order; some of them are asked for at once, all would be too many to hold.

    Raises as `read_manifest`.
    """
    for first in range(1, last + 1, AT_ONCE):
        paths = [_path(folder, version) for version in range(first, min(first + AT_ONCE, last + 1))]
        yield from map(_parsed, paths, read_files(paths))


def _path(folder: Location, version: int) -> Location:
    return folder / f"manifest-{version:08d}.json"


def _parsed(path: Location, data: bytes) -> Manifest:
    try:
        manifest = Manifest.model_validate_json(data)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"]) or "the whole file"
        raise StorageError(f"{path} is damaged or of another version (at {where}); ingest again.") from error
    if manifest.schema_version != SCHEMA_VERSION:
        raise StorageError(
            f"{path} has schema version {manifest.schema_version}; this sparseoco reads {SCHEMA_VERSION}."
        )
    return manifest
