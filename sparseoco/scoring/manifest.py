"""The manifest of a folder of scores: what was scored, by which models, and the files that list its parts."""

from collections.abc import Container, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pydantic import Field

from sparseoco.core.errors import DamagedError, StorageError
from sparseoco.storage.commit import Sha256, commit_json, digest_value, read_validated, remove_file
from sparseoco.storage.locations import Location
from sparseoco.storage.locks import FolderKind
from sparseoco.store.entries import EntryTable, SourceEntry, SourceTable
from sparseoco.store.manifest import FileEntry, Record
from sparseoco.store.shards import n_outputs

MANIFEST = "manifest.json"
SCHEMA_VERSION = 2
SCORES_FOLDER = FolderKind(
    "scores",
    (MANIFEST,),
    ("parts", "kept", "kept.json", "distribution.parquet", "scores.html", f"*-{'?' * 24}.parquet"),
)
DIGEST_NAMES = "[0-9a-f]" * 32 + ".*"
"""Matches the names of parts and kept files."""


class PartEntry(FileEntry):
    """A file of a split, its documents and the index of its source."""

    rows: int = Field(ge=0)
    source: int = Field(ge=0)


class PartTable(EntryTable[PartEntry]):
    """The parts of scores, or the kept files, in the order of the input."""

    entry = PartEntry
    schema = pa.schema(
        {"file": pa.string(), "sha256": pa.string(), "bytes": pa.int64(), "rows": pa.int64(), "source": pa.int64()}
    )
    repeated = ("source",)


class ScoredSource(SourceEntry):
    """A source, with the key of the version that was scored, on which the names of its parts depend."""

    key: str


class ScoredSourceTable(EntryTable[ScoredSource]):
    """The sources of scores, in the order of the input."""

    entry = ScoredSource
    schema = SourceTable.schema.append(pa.field("key", pa.string()))


class ModelEntry(Record):
    """A version of a model: its name in the columns, its folder, the SHA-256 of model.json, and what it predicts."""

    name: str
    folder: str
    sha256: Sha256
    classes: tuple[str, ...]
    positive_class: str | None
    label_sets: bool
    probabilities: bool

    @property
    def outputs(self) -> int:
        """Columns of margins."""
        return n_outputs(len(self.classes), label_sets=self.label_sets)


class ScoreManifest(Record):
    """What a folder of scores has; parts and sources are listed in two files, in the order of the input."""

    schema_version: int = SCHEMA_VERSION
    sparseoco: str
    models: tuple[ModelEntry, ...]
    options: dict[str, Any]
    """How documents are read."""
    labelled: bool
    shard_bytes: int = Field(ge=1)
    rows: int = Field(ge=0)
    n_parts: int = Field(ge=0)
    part_listing: FileEntry
    n_sources: int = Field(ge=0)
    source_listing: FileEntry
    quarantined_rows: int = Field(0, ge=0)
    quarantine: tuple[FileEntry, ...] = ()
    multiline_rows: int = Field(0, ge=0)
    missing: dict[str, int] = Field({})

    @property
    def digest(self) -> str:
        """Identifies the scores."""
        return digest_value(self.model_dump(mode="json"))


class Listed(NamedTuple):
    """A manifest with the tables that it names."""

    manifest: ScoreManifest
    parts: PartTable
    sources: ScoredSourceTable


def read_scores(folder: Location) -> Listed | None:
    """The manifest of a folder and its tables; None if it has none.

    Raises `DamagedError` if a file is missing or corrupt: scoring again reuses the parts.
    """
    path = folder / MANIFEST
    return _listed(path, read_validated(path, ScoreManifest)) if path.exists() else None


def _listed(path: Location, manifest: ScoreManifest) -> Listed:
    if manifest.schema_version != SCHEMA_VERSION:
        raise StorageError(
            f"{path} is of another version of sparseoco: score into a new folder.", code="format-version"
        )
    try:
        parts = PartTable.read(path.parent, manifest.part_listing)
        sources = ScoredSourceTable.read(path.parent, manifest.source_listing)
    except StorageError as error:
        raise damaged_scores(path) from error
    return Listed(manifest, parts, sources)


def damaged_scores(path: Location) -> DamagedError:
    """The error for a file of scores that is missing or corrupt, or whose content is not what lists it."""
    return DamagedError(
        f"{path}, or a file that it lists, is missing or corrupt: delete {MANIFEST} in the folder of the scores and "
        "score all inputs again; parts that are not corrupt are reused.",
        code="corrupt-file",
    )


def add_parts(
    folder: Location, before: Listed | None, parts: Sequence[PartEntry], sources: Sequence[ScoredSource]
) -> dict[str, Any]:
    """Write the files that list parts, by the position of their source among `sources`, and sources.

    Returns the fields of the manifest that name them.
    """
    first = 0 if before is None else len(before.sources)
    all_parts = PartTable.of(part.model_copy(update={"source": first + part.source}) for part in parts)
    all_sources = ScoredSourceTable.of(sources)
    if before is not None:
        all_parts, all_sources = before.parts + all_parts, before.sources + all_sources
    return {
        "n_parts": len(all_parts),
        "part_listing": all_parts.write(folder, "parts"),
        "n_sources": len(all_sources),
        "source_listing": all_sources.write(folder, "sources"),
    }


def commit_scores(folder: Location, manifest: ScoreManifest) -> Listed:
    """Make scores visible, and remove the lists that they no longer name."""
    commit_json(folder / MANIFEST, manifest.model_dump(mode="json"))
    entries = [manifest.part_listing, manifest.source_listing, *manifest.quarantine]
    for kind in ("parts", "sources", "quarantine"):
        remove_other_files(folder, {entry.file for entry in entries}, f"{kind}-*.parquet")
    return _listed(folder / MANIFEST, manifest)


def remove_other_files(folder: Location, names: Container[str], pattern: str = DIGEST_NAMES) -> None:
    """Remove the files of a folder that match a pattern, by default those that a digest names, except for some."""
    for path in folder.glob(pattern):
        if path.name not in names:
            remove_file(path)
