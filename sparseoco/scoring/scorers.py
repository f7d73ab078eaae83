"""The scores of documents: columns of a table, by one or several models.

id                            string
row                           int64, number of the document's line, record or row in its file, from 1
carried input columns         with their names
label                         if it is asked for, see `sparseoco.training.decisions.predictions`
prediction                    name of the class, list of names for several labels per document, float64 for numbers
margin                        float64, of the second of two classes; of more classes a column for each, `margin CLASS`
probability                   likewise, if the model has probabilities

With several models, the columns of each have its name and a dot before them.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.storage.commit import digest_file
from sparseoco.storage.locations import location
from sparseoco.text.documents import CountedDocuments, Documents
from sparseoco.text.options import OF_FILES, TextOptions
from sparseoco.training.decisions.predictions import class_columns, named_labels
from sparseoco.training.models.description import DESCRIPTION
from sparseoco.training.models.files import find_model
from sparseoco.training.models.model import Model

_lock = Lock()
_NAME = re.compile(r"[A-Za-z0-9_-]+")


class ModelVersion(NamedTuple):
    """A model that tasks open: its name in the columns, its folder, and the SHA-256 of its model.json."""

    name: str
    folder: str
    sha256: str

    @classmethod
    def of(cls, name: str, folder: str) -> "ModelVersion":
        """The present version of a model. Raises as `Model`."""
        found = find_model(folder).absolute()
        return cls(name, str(found), digest_file(found / DESCRIPTION))

    def describe(self) -> Model:
        """The model, without its vocabulary. Raises `InputError` if it was replaced, and as `Model`."""
        return _describe(self)

    def open(self) -> Model:
        """The model, which a process reads once. Raises as `describe`."""
        with _lock:  # not by several threads at once
            model = _describe(self)
            _ = model.weights  # reads the vocabulary
            return model


def model_versions(model: str, also: Sequence[str]) -> list[ModelVersion]:
    """The present versions of a model and of further ones, each a folder or NAME=FOLDER.

    By default a model has the name of its folder, or of the run that it is the model of.

    Raises `InputError` for two models of the same name, and as `Model`.
    """
    found = [ModelVersion.of(_default_name(model), model)]
    for item in also:
        name, equals, folder = item.partition("=")
        named = bool(equals) and _NAME.fullmatch(name) is not None
        found.append(ModelVersion.of(name, folder) if named else ModelVersion.of(_default_name(item), item))
    names = [version.name for version in found]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"Two models have the name {name}: write NAME=MODEL.", code="invalid-option")
    return found


def _default_name(folder: str) -> str:
    path = location(folder).resolve()
    return path.name if path.name != "model" else path.parent.name


@lru_cache(maxsize=16)  # all models of a run, so that no task reads one again
def _describe(version: ModelVersion) -> Model:
    model = Model(version.folder)
    if digest_file(location(version.folder) / DESCRIPTION) != version.sha256:
        raise InputError(f"{version.folder} was replaced while it was in use: run again.", code="model-replaced")
    return model


class Scorer(NamedTuple):
    """A model and the prefix of its columns."""

    model: Model
    prefix: str = ""

    def names(self, kind: str) -> list[str]:
        """The names of its columns of margins or probabilities."""
        model = self.model
        return [self.prefix + name for name in class_columns(kind, model.classes, model.outputs)]

    @property
    def own_names(self) -> list[str]:
        """The names of all its columns."""
        return [f"{self.prefix}prediction", *self.names("margin"), *self.names("probability")]

    def columns(self, margins: NDArray[np.float64]) -> dict[str, pa.Array]:
        """The columns of documents with these margins, (documents, outputs)."""
        model = self.model
        columns = {f"{self.prefix}prediction": self._predictions(margins)}
        columns |= zip(self.names("margin"), _arrays(margins), strict=True)
        if model.has_probabilities:
            found = model.probabilities(margins)
            found = found[:, 1:] if model.outputs == 1 else found
            columns |= zip(self.names("probability"), _arrays(found), strict=True)
        return columns

    def _predictions(self, margins: NDArray[np.float64]) -> pa.Array:
        model = self.model
        if not model.classes:
            return pa.array(margins[:, 0])
        decide = model.decide_sets if model.is_multilabel else model.decide_numbers
        return named_labels(decide(margins), model.classes)


def _arrays(values: NDArray[np.float64]) -> list[pa.Array]:
    return [pa.array(np.ascontiguousarray(column)) for column in values.T]


def open_scorers(versions: Sequence[ModelVersion]) -> list[Scorer]:
    """The scorers of some models."""
    return named_scorers(versions, [version.open() for version in versions])


def named_scorers(versions: Sequence[ModelVersion], models: Sequence[Model]) -> list[Scorer]:
    """The scorers of opened models, of which several have their names as prefixes."""
    prefixes = [column_prefix(version.name, len(versions)) for version in versions]
    return [Scorer(model, prefix) for model, prefix in zip(models, prefixes, strict=True)]


def column_prefix(name: str, models: int) -> str:
    """How the columns of a model with this name begin, if so many models score the same text."""
    return f"{name}." if models > 1 else ""


def reading_options(
    models: Sequence[Model], reading: Mapping[str, Any], columns: Sequence[str] = (), *, labelled: bool = False
) -> TextOptions:
    """How documents are read: as the text of the first model, with the differences in `reading`, and with `columns`.

    The options that describe the training files themselves (`OF_FILES`, and the format) do not apply to others.

    Raises `InputError` for models that were trained with other options of reading, or with other classes if labels are
    read.
    """
    first = models[0]
    own = {"classes": None, "holdout": 0.0, "format": "auto"}
    text = TextOptions.of({**first.text.plain(), **own, **OF_FILES, **reading}).without_columns()
    text = text.model_copy(update={"carried": tuple(columns)})
    for model in models[1:]:
        names = ("text_field", "id_field", "header", "quoting", *(("label_field",) if labelled else ()))
        other = [name for name in names if name not in reading and getattr(model.text, name) != getattr(text, name)]
        if _field_types(model.text) != _field_types(text):
            other = ["fields"]
        if other:
            raise InputError(
                f"{model.folder} was trained with another {other[0]} than {first.folder}, with which the documents are "
                "read: score with each by itself.",
                code="unsupported-combination",
            )
        if labelled and (model.classes, model.label_kind) != (first.classes, first.label_kind):
            raise InputError(
                f"{model.folder} has other classes than {first.folder}: with labels, score with each by itself.",
                code="unsupported-combination",
            )
    if not labelled:
        for name in {"label_field", "label_depth"} & set(reading):
            raise InputError(
                f"{name} is for labels, which are not read: set labelled too.", code="unsupported-combination"
            )
        return text.model_copy(update={"label_depth": 0})
    return text.with_classes(first.classes) if first.classes else text


def _field_types(options: TextOptions) -> dict[str, str]:
    return {name: field.type for name, field in options.fields.items()}


def check_columns(scorers: Sequence[Scorer], columns: Sequence[str], *, labelled: bool) -> None:
    """Raises `InputError` for an input column that has the name of a column of the scores."""
    own = {"id", "row", *(["label"] if labelled else []), *(name for scorer in scorers for name in scorer.own_names)}
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
