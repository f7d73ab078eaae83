"""Scores of documents by one or several models, in parts, and the manifest that lists them."""

import hashlib
import json
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import lru_cache
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field

from sparseoco.core.errors import DamagedError, InputError, StorageError, unsupported
from sparseoco.core.logs import report_progress
from sparseoco.storage import commit
from sparseoco.storage.commit import FolderKind
from sparseoco.storage.locations import Location, location
from sparseoco.storage.tables import read_parquet_file, write_parquet
from sparseoco.store.entries import EntryTable, SourceEntry, SourceTable
from sparseoco.store.manifest import FileEntry, Record
from sparseoco.store.shards import n_outputs
from sparseoco.text.documents import BadRow, CountedDocuments, Documents
from sparseoco.text.options import OF_FILES, TextOptions
from sparseoco.text.passes import TextJob
from sparseoco.text.splits import Content, Split, read_split
from sparseoco.training.decisions import class_columns, named_labels
from sparseoco.training.models import DESCRIPTION, Model, find_model

# ----------------------------------------------------------------------------------------------------------------------
# The manifest of a folder of scores: what was scored, by which models, and the files that list its parts.


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
    sha256: commit.Sha256
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
        return commit.digest_value(self.model_dump(mode="json"))


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
    return _listed(path, commit.read_validated(path, ScoreManifest)) if path.exists() else None


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


def commit_scores(folder: Location, manifest: ScoreManifest) -> Listed:
    """Make scores visible, and remove the lists that they no longer name."""
    commit.commit_json(folder / MANIFEST, manifest.model_dump(mode="json"))
    entries = [manifest.part_listing, manifest.source_listing, *manifest.quarantine]
    for kind in ("parts", "sources", "quarantine"):
        remove_other_files(folder, {entry.file for entry in entries}, f"{kind}-*.parquet")
    return _listed(folder / MANIFEST, manifest)


def remove_other_files(folder: Location, names: Container[str], pattern: str = DIGEST_NAMES) -> None:
    """Remove the files of a folder that match a pattern, by default those that a digest names, except for some."""
    for path in folder.glob(pattern):
        if path.name not in names:
            commit.remove_file(path)


# ----------------------------------------------------------------------------------------------------------------------
# The scores of documents: columns of a table, by one or several models.
#
# id                            string
# row                           int64, number of the document's line, record or row in its file, from 1
# carried input columns         with their names
# label                         if it is asked for, see `sparseoco.training.decisions`
# prediction                    name of the class, list of names for several labels per document, float64 for numbers
# margin                        float64, of the second of two classes; of more classes a column for each, `margin
#     CLASS`
# probability                   likewise, if the model has probabilities
#
# With several models, the columns of each have its name and a dot before them.


_lock = Lock()
_NAME = re.compile(r"[A-Za-z0-9_-]+")


def model_entries(model: str, also: Sequence[str]) -> tuple[ModelEntry, ...]:
    """The present versions of a model and of further ones, each a folder or NAME=FOLDER.

    By default a model has the name of its folder, or of the run that it is the model of.

    Raises `InputError` for two models of the same name, and as `Model`.
    """
    named = [("", model)]
    for item in also:
        name, equals, folder = item.partition("=")
        named.append((name, folder) if equals and _NAME.fullmatch(name) else ("", item))
    found = []
    for name, folder in named:
        if not name:
            resolved = location(folder).resolve()
            name = resolved.name if resolved.name != "model" else resolved.parent.name
        path = find_model(folder).absolute()
        sha256 = commit.digest_file(path / DESCRIPTION)
        opened = Model(path)
        found.append(
            ModelEntry(
                name=name,
                folder=str(path),
                sha256=sha256,
                classes=tuple(opened.classes),
                positive_class=opened.description.get("positive_class"),
                label_sets=opened.is_multilabel,
                probabilities=opened.has_probabilities,
            )
        )
    names = [entry.name for entry in found]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"Two models have the name {name}: write NAME=MODEL.", code="invalid-option")
    return tuple(found)


@lru_cache(maxsize=16)  # all models of a run, so that no task reads one again
def describe_model(entry: ModelEntry) -> Model:
    """The model, without its vocabulary. Raises `InputError` if it was replaced, `StorageError`."""
    model = Model(entry.folder)
    if commit.digest_file(location(entry.folder) / DESCRIPTION) != entry.sha256:
        raise InputError(f"{entry.folder} was replaced while it was in use: run again.", code="model-replaced")
    return model


class Scorer(NamedTuple):
    """A model and the prefix of its columns."""

    model: Model
    prefix: str = ""

    def columns(self, margins: NDArray[np.float64]) -> dict[str, pa.Array]:
        """The columns of documents with these margins, (documents, outputs)."""
        model = self.model
        predicted = named_labels(model.labels(margins), model.classes) if model.classes else pa.array(margins[:, 0])
        columns = {f"{self.prefix}prediction": predicted}
        columns |= zip(_column_names(model, "margin", self.prefix), _arrays(margins), strict=True)
        if model.has_probabilities:
            found = model.probabilities(margins)
            found = found[:, 1:] if model.outputs == 1 else found
            columns |= zip(_column_names(model, "probability", self.prefix), _arrays(found), strict=True)
        return columns


def _column_names(model: Model | ModelEntry, kind: str, prefix: str) -> list[str]:
    """The names of the columns of margins or probabilities of a model."""
    return [prefix + name for name in class_columns(kind, model.classes, model.outputs)]


def _arrays(values: NDArray[np.float64]) -> list[pa.Array]:
    return [pa.array(np.ascontiguousarray(column)) for column in values.T]


def column_prefix(name: str, models: int) -> str:
    """How the columns of a model with this name begin, if so many models score the same text."""
    return f"{name}." if models > 1 else ""


def reading_options(models: Sequence[Model], reading: Mapping[str, Any], *, labelled: bool = False) -> TextOptions:
    """How documents are read: as the text of the first model, with the differences in `reading`.

    The options that describe the training files themselves (`OF_FILES`, and the format) do not apply to others.

    Raises `InputError` for models that were trained with other options of reading, or with other classes if labels are
    read.
    """
    first = models[0]
    own = {"classes": None, "holdout": 0.0, "format": "auto"}
    text = TextOptions.of({**first.text.plain(), **own, **OF_FILES, **reading}).without_columns()
    for model in models[1:]:
        names = ("text_field", "id_field", "header", *(("label_field",) if labelled else ()))
        other = [name for name in names if name not in reading and getattr(model.text, name) != getattr(text, name)]
        if _field_types(model.text) != _field_types(text):
            other = ["fields"]
        if other:
            raise unsupported(
                f"{model.folder} was trained with another {other[0]} than {first.folder}, with which the documents are "
                "read: score with each by itself."
            )
        if labelled and (model.classes, model.label_kind) != (first.classes, first.label_kind):
            raise unsupported(
                f"{model.folder} has other classes than {first.folder}: with labels, score with each by itself."
            )
    if not labelled:
        if "label_field" in reading:
            raise unsupported("label_field is for labels, which are not read: set labelled too.")
        return text.model_copy(update={"unlabelled": True})
    return text.with_classes(first.classes) if first.classes else text


def _field_types(options: TextOptions) -> dict[str, str]:
    return {name: field.type for name, field in options.fields.items()}


def check_columns(models: Sequence[ModelEntry], columns: Sequence[str], *, labelled: bool) -> None:
    """Raises `InputError` for an input column that has the name of a column of the scores."""
    own = {"id", "row", *(["label"] if labelled else [])}
    for model in models:
        prefix = column_prefix(model.name, len(models))
        own |= {f"{prefix}prediction", *_column_names(model, "margin", prefix)}
        own |= {*_column_names(model, "probability", prefix)}
    for name in columns:
        if name in own:
            raise InputError(f"columns: the scores have a column {name} of their own.", code="invalid-option")


def score_documents(scorers: Sequence[Scorer], documents: Documents | CountedDocuments) -> pa.Table:
    """The table of the scores of documents."""
    columns: dict[str, Any] = {"id": documents.ids.cast(pa.string()), "row": pa.array(documents.lines, pa.int64())}
    columns |= documents.carried
    if documents.labels is not None:
        labels: Any = documents.labels
        columns["label"] = labels.cast(pa.list_(pa.string())) if isinstance(labels, pa.ListArray) else labels
    for scorer in scorers:
        columns |= scorer.columns(scorer.model.margins(documents))
    return pa.table(columns)


# ----------------------------------------------------------------------------------------------------------------------
# Parts: the scores of the documents of one split, in a Parquet file that is named by all it depends on.


PARTS = "parts"
BATCH = 64  # parts of a task
FACTS = b"sparseoco"
"""The key of the metadata of a part: what was read besides the documents, as JSON."""


class Part(NamedTuple):
    """The part of a split.

    Parameters
    ----------
    split : Split
    entry : PartEntry
        Its source is the position of the split's.
    bad : list of BadRow
    multiline : int
        Documents that span several lines.
    missing : dict
        Documents without a value, by field.
    digest : str
        Of the files of documents in files of their own.
    """

    split: Split
    entry: PartEntry
    bad: list[BadRow]
    multiline: int
    missing: dict[str, int]
    digest: str


class Scoring(NamedTuple):
    """Scoring documents, the work on each split of a corpus (see `sparseoco.text.passes.Work`).

    Parameters
    ----------
    out : str
        The folder of the scores.
    models : tuple of ModelEntry
    options : TextOptions
        How documents are read.
    labelled : bool
        Whether labels are read too.
    """

    out: str
    models: tuple[ModelEntry, ...]
    options: TextOptions
    labelled: bool
    step: str = "score"

    def path(self, split: Split) -> str:
        """The file of the part of a split, named by all it depends on."""
        names = [[model.name, model.sha256] for model in self.models]
        key = commit.digest_value([split.key, names, self.labelled])[:32]
        return str(location(self.out) / PARTS / f"{key}.parquet")

    def run(self, split: Split, content: Content | None) -> Part:
        """Score a split."""
        path = location(self.path(split))
        documents = read_split(split, self.options, labelled=self.labelled, content=content)
        with _lock:  # a process reads the models once, not by several threads at once
            scorers = [Scorer(describe_model(own), column_prefix(own.name, len(self.models))) for own in self.models]
            for scorer in scorers:
                _ = scorer.model.weights  # reads the vocabulary
        table = score_documents(scorers, documents)
        facts = {
            "bad": documents.bad,
            "multiline": documents.multiline.size,
            "missing": documents.missing if isinstance(documents, Documents) else {},
            "digest": documents.digest if isinstance(documents, Documents) else "",
        }
        write_parquet(path, table.replace_schema_metadata({FACTS: json.dumps(facts).encode()}))
        return _part(split, path, table.num_rows, facts)

    def describe(self, split: Split) -> Part:
        """The part in an existing file. Raises `DamagedError` if it is corrupt."""
        path = location(self.path(split))
        table = read_part(path)
        return _part(split, path, table.num_rows, json.loads(table.schema.metadata[FACTS]))


def _part(split: Split, path: Location, rows: int, facts: dict[str, Any]) -> Part:
    return Part(split, part_entry(path, rows, split.source), **facts | {"bad": [BadRow(*row) for row in facts["bad"]]})


def part_entry(path: Location, rows: int, source: int) -> PartEntry:
    """The entry of a written file. Raises `StorageError`."""
    data = commit.read_bytes(path)  # one request for the size and the digest
    sha256 = hashlib.sha256(data).hexdigest()
    return PartEntry(file=path.name, bytes=len(data), sha256=sha256, rows=rows, source=source)


def read_part(path: Location, columns: Sequence[str] | None = None) -> pa.Table:
    """The table of a part, or some of its columns.

    Raises `DamagedError` if it is missing or corrupt, or the file of another part, `StorageError` if it cannot be read.
    """
    try:
        return read_parquet_file(path, columns=columns)
    except DamagedError as error:
        raise damaged_scores(path) from error


def over_parts(job: TextJob, parts: PartTable, step: str, task: Callable[..., Any], *arguments: Any) -> Iterator[Any]:
    """The results of `task(folder, parts, *arguments)` for a few parts each, in order, with progress."""
    starts = range(0, len(parts), BATCH)
    calls = ((task, str(job.out), list(parts[first : first + BATCH]), *arguments) for first in starts)
    for done, found in enumerate(job.tasks.in_order(calls, 4 * job.tasks.width), 1):
        report_progress(step, min(done * BATCH, len(parts)), len(parts))
        yield found
