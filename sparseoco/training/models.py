"""A saved model: its description, features, files and reading."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy  # loads scipy.sparse and scipy.special when they are used
from numpy.typing import NDArray
from pydantic import Field, FiniteFloat
from typing_extensions import TypedDict

from sparseoco import __version__
from sparseoco.core.errors import DamagedError, InputError, StorageError
from sparseoco.kernels.order import weighted_sums
from sparseoco.storage import commit
from sparseoco.storage.locations import Location, is_inside, location
from sparseoco.storage.tables import Row, read_parquet_file, write_parquet, write_result_table
from sparseoco.store.manifest import FeatureTable, FieldEntry
from sparseoco.store.shards import Store, increasing_fault, index_fault, n_outputs
from sparseoco.store.terms import FeatureSubset, TermWeights, read_feature_subset, term_weights, text_fields
from sparseoco.store.weighting import Weighting
from sparseoco.text.encoding import HashIndex
from sparseoco.text.options import TextOptions
from sparseoco.text.readers import Features, Inputs, count_texts
from sparseoco.text.vocabulary import Vocabulary
from sparseoco.training.decisions import Calibration, Thresholds, predicted_labels
from sparseoco.training.learner import Learner
from sparseoco.training.metrics import class_probabilities
from sparseoco.training.search_tables import WEIGHTS

# ----------------------------------------------------------------------------------------------------------------------
# model.json: what a saved model says of itself.


DESCRIPTION = "model.json"


@commit.with_other_keys
class Provenance(TypedDict):
    """What a model was trained on: the digest of the store, its documents, the number and digests of its sources."""

    store: str
    rows: commit.Count
    sources: commit.Count
    source_digests: NotRequired[list[Annotated[str, Field(pattern=r"^[0-9]{1,18}-[0-9a-f]{16}$")]]]


@commit.with_other_keys
class ModelDescription(TypedDict):
    """The content of model.json, as far as anything reads it."""

    algorithm: str
    parameters: dict[str, Any]
    classes: list[str]
    labels: Literal["classes", "multi", "numbers"]
    positive_class: NotRequired[str | None]
    intercept: list[FiniteFloat] | None
    features: dict[str, Any]
    features_sha256: commit.Sha256
    nonzeros: commit.Count
    text: dict[str, Any]
    provenance: Provenance
    weights_sha256: commit.Sha256
    weighting: NotRequired[dict[str, Any]]
    loss: NotRequired[str]
    penalty: NotRequired[str]
    dtype: NotRequired[Literal["float32", "float64"]]
    epochs: NotRequired[commit.Count]
    rounds: NotRequired[commit.Count]
    increment: NotRequired[commit.Count]
    positive: NotRequired[Literal[0, 1]]
    never_predicted: NotRequired[list[commit.Count]]
    fields: NotRequired[list[dict[str, Any]]]
    unseen_idf: NotRequired[commit.Moderate]
    learner_sha256: NotRequired[commit.Sha256]
    vocabulary_sha256: NotRequired[commit.Sha256]
    feature_groups: NotRequired[dict[str, Any]]
    warm_start: NotRequired[dict[str, Any]]
    features_from: NotRequired[dict[str, Any]]


def read_description(model: Location) -> dict[str, Any]:
    """The `ModelDescription` of the model in a folder. Raises `StorageError`."""
    return cast(dict[str, Any], commit.read_validated(model / DESCRIPTION, ModelDescription))


# ----------------------------------------------------------------------------------------------------------------------
# The features of a saved model: what is counted in a text, and the values that its weights multiply.
#
# Values need the idf of the features that have a nonzero weight, which is in weights.parquet. The norm of a row needs
# all the features that the model was trained on: they are in a file of their own.
#
# vocabulary.parquet  feature_id, feature, idf: of models with norm = "l2"; of hashed features those that occurred


VOCABULARY = "vocabulary.parquet"
VOCABULARY_SCHEMA = pa.schema([("feature_id", pa.int64()), ("feature", pa.string()), ("idf", pa.float64())])


def write_vocabulary(
    folder: Location, store: Store, subset: FeatureSubset | None, weights: TermWeights, used: NDArray[np.int64]
) -> dict[str, Any]:
    """Commit the features that norms need, if any; returns the keys of `model.json` that describe them.

    `used` are the features of the store that have a nonzero weight.
    """
    if weights.weighting.norm == "none":
        commit.remove_file(folder / VOCABULARY)  # of a model that is replaced
        return {}
    described: dict[str, Any] = {}
    hashed = (store if subset is None else subset.source).manifest.features.kind == "hashed"
    if subset is not None:
        ids, own = subset.features, np.arange(subset.features.size)
    elif not hashed:
        ids = own = np.arange(store.n_features)
    else:
        ids = own = np.union1d(store.present_frequencies()[0], used)  # a warm start may have weights of others
        unseen = np.setdiff1d(np.arange(min(store.n_features, ids.size + 1)), ids, assume_unique=True)
        if weights.idf.size and unseen.size:
            described["unseen_idf"] = float(weights.idf[unseen[0]])
    terms = pa.nulls(ids.size, pa.string()) if hashed else store.vocabulary()["term"].cast(pa.string())
    idf = pa.array(weights.idf[own]) if weights.idf.size else pa.nulls(ids.size, pa.float64())
    table = pa.Table.from_arrays([pa.array(ids, pa.int64()), terms, idf], schema=VOCABULARY_SCHEMA)
    write_parquet(folder / VOCABULARY, table)
    return described | {"vocabulary_sha256": commit.digest_file(folder / VOCABULARY)}


def within_bounds(values: NDArray[np.float64]) -> bool:
    """Whether numbers of a model are finite and at most `LARGEST`."""
    return bool((np.abs(values) <= commit.LARGEST).all())


def _unlike_model(path: Location, fault: str) -> DamagedError:
    return DamagedError(f"{path} or model.json is corrupt: {fault}. Train again.", code="corrupt-model")


Csr = tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]
"""Rows of counts: indptr, indices, counts."""


class ModelFeatures(NamedTuple):
    """How the documents of a model become rows of values.

    Parameters
    ----------
    counted : Features
        What is counted.
    values : TermWeights
        What is made of the counts.
    known : (features,) int64, or None
        The counted ids that have an idf, increasing; all others are like one more. None: every counted id has one.
    used : (counted or known features,) int32
        The row of `weights` of each of them, or −1.
    weights : (features with a nonzero weight, outputs) float64
        What the values are multiplied by.
    """

    counted: Features
    values: TermWeights
    known: NDArray[np.int64] | None
    used: NDArray[np.int32]
    weights: NDArray[np.float64]

    def margins(self, rows: Csr) -> NDArray[np.float64]:
        """(documents, outputs): `matrix` times the weights."""
        indices, values = self._weigh(rows)
        values = np.ascontiguousarray(values, np.float64)  # of any type: one kernel
        return np.asarray(weighted_sums(rows[0], indices, values, self.used, self.weights))

    def matrix(self, rows: Csr) -> "scipy.sparse.csr_matrix":
        """(documents, features with a nonzero weight): the values of counted documents."""
        indices, values = self._weigh(rows)
        columns = self.used[indices]
        kept = columns >= 0
        indptr = np.concatenate([[0], np.cumsum(kept)])[rows[0]]
        shape = len(indptr) - 1, len(self.weights)
        return scipy.sparse.csr_matrix((values[kept], columns[kept], indptr), shape=shape)

    def _weigh(self, rows: Csr) -> tuple[NDArray[Any], NDArray[Any]]:
        """The features of `values`, and the values, of counted documents."""
        indptr, indices, counts = rows
        if self.known is not None:
            places = np.searchsorted(self.known, indices)
            found = np.append(self.known, -1)[places] == indices
            indices = np.where(found, places, self.known.size).astype(indices.dtype)
        identity = self.values.weighting.is_identity
        return indices, counts if identity else self.values.values(indptr, indices, counts)


# ----------------------------------------------------------------------------------------------------------------------
# The files of a saved model: written, found, amended.
#
# A model is a folder of Parquet and JSON files that can be read without this package:
#
# model.json        algorithm, parameters, classes, intercepts, calibration, threshold, text options, digests, …
# weights.parquet   feature_id, feature, class, weight, count, documents, idf: the nonzero weights, with their names
# vocabulary.parquet  see above
# learner.npz       for stream learners, the complete state: training can be resumed from it bit for bit
# curve.parquet     epoch, rows, progressive loss and error along the stream, nonzeros at the ends of epochs


STATE = "learner.npz"
PROMOTED = "promoted.json"
"""The file in the folder of nightly runs that names the promoted model."""
MODEL_FOLDER = commit.FolderKind(
    "a model",
    ("model.json",),
    ("weights.parquet", "vocabulary.parquet", "curve.parquet", STATE),
)
SOURCES = 1000
"""Raw files whose digests a model has, at most."""
CURVE = pa.schema(
    [
        ("epoch", pa.int32()),
        ("rows", pa.int64()),
        ("progressive_loss", pa.float64()),  # mean since the first row
        ("progressive_error", pa.float64()),
        ("nonzeros", pa.int64()),  # at the ends of epochs, elsewhere null
    ]
)


def write_model(
    folder: Location,
    weights: NDArray[Any],
    store: Store,
    description: dict[str, Any],
    curve: Sequence[Row],
    learner: Learner | None = None,
    term_values: TermWeights | None = None,
    intercepts: NDArray[Any] | None = None,
) -> None:
    """Commit a model; `model.json` comes last and has digests of the rest.

    A model of a feature subset (`sparseoco.store.terms`) is written as one of the whole store, with all other
    weights 0; ``features_from`` in its description identifies the subset.

    Parameters
    ----------
    weights : (n_features, outputs).
    description : how it was trained: algorithm, parameters, loss, …
    curve : rows of `CURVE`.
    term_values : how the counts of the store were weighted, by default as the description says.
    intercepts : (outputs,), None without an intercept.
    learner : saved with the model if given. Its state is every slot of every feature, uncompressed: for one float32
        output 4 to 16 bytes per feature, and 8 more for learners with a time stamp per feature.
    """
    features, outputs = np.nonzero(weights)
    values = weights[features, outputs].astype(np.float64)
    weighting = Weighting.model_validate(description.get("weighting", {}))
    term_values = term_values or term_weights(store, weighting)
    idf = pa.array(term_values.idf[features]) if weighting.idf else pa.nulls(features.size, pa.float64())
    subset = read_feature_subset(store.folder)
    if store.manifest.fields:
        description = {**description, "fields": [entry.model_dump(mode="json") for entry in store.manifest.fields]}
    vocabulary = write_vocabulary(folder, store, subset, term_values, features)
    if subset is not None:
        store, features = subset.source, subset.features[features]
        description = {**description, "features_from": subset.description}
    classes = store.classes or ["value"]
    # Two classes share one column of weights: positive margins mean the second.
    names = np.array(classes[-1:] if weights.shape[1] == 1 else classes, dtype=object)
    used, position = np.unique(features, return_inverse=True)
    described = store.describe(used.astype(np.int64)).take(pa.array(position))
    table = pa.Table.from_arrays(
        [
            described["feature"],
            described["term"].cast(pa.string()),
            pa.array(names[outputs], pa.string()),
            pa.array(values),
            described["count"],
            described["documents"],
            idf,
        ],
        schema=WEIGHTS,
    )
    write_parquet(folder / "weights.parquet", table)
    write_result_table(folder / "curve.parquet", curve, CURVE)
    state: dict[str, Any] = {}
    if learner is not None:
        learner.save(folder / STATE)
        state = {"rounds": learner.rounds, "learner_sha256": commit.digest_file(folder / STATE)}
    else:
        commit.remove_file(folder / STATE)  # of a model that is replaced
    provenance = {
        "sparseoco": __version__,
        "store": store.manifest.digest,
        "rows": store.n_rows,
        "sources": store.manifest.n_sources,
        "sources_sha256": commit.digest_value(store.sources.table["sha256"].to_pylist()),
        "source_digests": source_digests(store),
    }
    commit.commit_json(
        folder / "model.json",
        {
            **description,
            **vocabulary,
            **state,
            "weighting": weighting.model_dump(mode="json"),
            "intercept": None if intercepts is None else intercepts.astype(np.float64).tolist(),
            "classes": store.classes,
            "labels": store.manifest.labels.kind,
            "positive_class": store.classes[description.get("positive", 1)] if len(store.classes) == 2 else None,
            "features": store.manifest.features.model_dump(mode="json", exclude={"files"}),
            "features_sha256": store.features_digest(),
            "nonzeros": len(table),
            "text": store.manifest.options,
            "provenance": provenance,
            "weights_sha256": commit.digest_file(folder / "weights.parquet"),
        },
    )


def source_digests(store: Store) -> list[str]:
    """The `source_digest` of each raw file of a store that is not empty, or of its newest `SOURCES`."""
    return [source_digest(source.bytes, source.sha256) for source in store.sources[-SOURCES:] if source.bytes]


def source_digest(size: int, sha256: str) -> str:
    """Identifies the content of a raw file: its size and the first 16 digits of its SHA-256."""
    return f"{size}-{sha256[:16]}"


class PromotedModel(TypedDict):
    """What promoted.json says of the deployed model, one of the folder models/."""

    model: Annotated[str, Field(pattern=r"^models/[0-9]{8,}$")]


def find_model(folder: str | Location) -> Location:
    """The model's folder: `folder` itself, the model of a run in it, or the promoted model of nightly runs.

    Raises `InputError` if there is none, `StorageError` if promoted.json is corrupt or names one outside the folder.
    """
    folder = location(folder)
    found = folder
    if not (folder / "model.json").exists():
        if (folder / PROMOTED).exists():
            found = folder / commit.read_validated(folder / PROMOTED, PromotedModel)["model"]
            if not is_inside(found, folder):
                raise StorageError(
                    f"{folder / PROMOTED} names a model outside its folder, through a link: run `sparseoco nightly` "
                    "again.",
                    code="outside-folder",
                )
        else:
            found = folder / "model"
    if (found / "model.json").exists():
        return found
    # The error names a model nearby or the reason, if it can.
    message = f"{folder} is not a model: it has no model.json."
    if (folder / "run.json").exists():
        message = f"{folder} has no model yet, because its run is not complete: run the same command again."
    elif isinstance(folder, Path):
        near = [path for parent in (folder.parent, folder.parent.parent) for path in (parent, parent / "model")]
        other = next((path for path in near if (path / "model.json").exists()), None)
        if other is not None:
            message = f"{folder} is not a model; did you mean {other}?"
        elif not folder.exists():
            message = f"{folder} does not exist: name the folder of a model or of a run."
    raise InputError(message, code="missing-model")


def amend_model(folder: Location, entries: dict[str, Any]) -> None:
    """Set entries of the description of a model."""
    described = commit.read_json(folder / "model.json")
    if described != described | entries:
        commit.commit_json(folder / "model.json", described | entries)


# ----------------------------------------------------------------------------------------------------------------------
# A saved model, read for prediction.


class Model:
    """A model opened for prediction.

    Parameters
    ----------
    folder : str or Location
        A model's folder, a run's folder, or that of nightly runs, whose promoted model is opened.

    Attributes
    ----------
    classes : list of str
        The names of the classes by index; empty for numbers.
    label_kind : {"classes", "multi", "numbers"}
        What it predicts for a text: one class, any number of classes, or a number.
    intercepts : (outputs,) float64
        0 without intercepts.
    calibration : Calibration or None
        Turns margins into probabilities.
    thresholds : Thresholds or None
        Above which margin a class is predicted, if not above 0.
    text : TextOptions
        The tokenizer that it was trained with.
    weighting : Weighting
        How it weights counts.
    table : pyarrow.Table
        The rows of `weights.parquet`.
    description : dict
        The content of `model.json`.

    Raises
    ------
    InputError
        If there is no model.
    StorageError
        If its files do not belong together.
    """

    def __init__(self, folder: str | Location) -> None:
        folder = find_model(folder)
        self.folder = folder
        described = read_description(folder)
        try:
            self.description = described
            self.classes: list[str] = described["classes"]
            self.label_kind: str = described["labels"]
            self._fields = [FieldEntry.model_validate(entry) for entry in described.get("fields", ())]
            self.text = TextOptions.model_validate(described["text"]).with_cuts(self._fields)
            if "weighting" not in described:
                raise DamagedError(
                    f"{folder} was saved by another version of sparseoco: train again.", code="format-version"
                )
            self.weighting = Weighting.model_validate(described["weighting"])
            fit, cuts = described.get("calibration"), described.get("threshold")
            self.calibration = fit = None if fit is None else Calibration.model_validate(fit)
            self.thresholds = cuts = None if cuts is None else Thresholds.model_validate(cuts)
            intercept = described["intercept"]
            self.has_intercept = intercept is not None
            self.intercepts = np.array(intercept if self.has_intercept else [0.0] * self.outputs, np.float64)
            numbers = [*self.intercepts, *(fit.slopes + fit.offsets if fit else ()), *(cuts.margins if cuts else ())]
            # One intercept, calibration and threshold per output; finite numbers; classes that suit the kind of labels.
            consistent = (
                self.intercepts.shape == (self.outputs,)
                and (fit is None or fit.outputs in (self.outputs, None))
                and (cuts is None or len(cuts.outputs) == self.outputs)
                and within_bounds(np.array(numbers))
                and len(self.classes) == len(set(self.classes)) != 1  # distinct, none or several
                and (self.label_kind == "numbers") == (not self.classes)  # only regression has none
                and described.get("positive_class") in (None, *self.classes)
            )
            if not consistent:
                raise ValueError("its values do not belong together")
            features = FeatureTable.model_validate({**described["features"], "files": ()})
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedError(
                f"{folder / 'model.json'} is corrupt or of another version: train again.", code="corrupt-model"
            ) from error
        if commit.digest_file(folder / "weights.parquet") != described["weights_sha256"]:
            raise DamagedError(
                f"{folder}: weights.parquet is corrupt or being replaced: run again, or train again.",
                code="corrupt-model",
            )
        self.table = read_parquet_file(folder / "weights.parquet")
        columns = ("feature_id", "feature", "class", "weight", *(["idf"] if self.weighting.idf else []))
        if not self.table.schema.equals(WEIGHTS) or any(self.table[name].null_count for name in columns):
            fault: str | None = "it is not a table of weights"
        elif not set(pc.unique(self.table["class"]).to_pylist()) <= set(self.classes[-self.outputs :] or ["value"]):
            fault = "it has a class that model.json does not have"
        elif not all(within_bounds(self.table[name].to_numpy()) for name in columns[3:]):
            fault = f"a weight or an idf is not finite, or larger than {commit.LARGEST:.0e}"
        else:  # ids and classes are used as positions
            fault = index_fault(self.table["feature_id"].to_numpy(), features.count)
        if fault is not None:
            raise _unlike_model(folder / "weights.parquet", fault)

    @property
    def is_multilabel(self) -> bool:
        """Whether it predicts any number of classes for a text."""
        return self.label_kind == "multi"

    @property
    def outputs(self) -> int:
        """Columns of weights: 1 for two classes or for regression, else one per class."""
        return n_outputs(len(self.classes), label_sets=self.is_multilabel)

    @property
    def feature_ids(self) -> NDArray[np.int64]:
        """Ids of the features that have a nonzero weight for any class, increasing (int64)."""
        return np.asarray(self._unique[0], np.int64)

    @property
    def weights(self) -> NDArray[np.float64]:
        """(features, outputs) float64: a row for each of `feature_ids`."""
        return self._features.weights

    @cached_property
    def feature_names(self) -> list[str]:
        """The names of `feature_ids`."""
        return list(self.table["feature"].take(pa.array(self._unique[1])).to_pylist())

    @cached_property
    def _unique(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """The features of the table, the first row of each, and the position of the feature of each row."""
        return np.unique(self.table["feature_id"].to_numpy(), return_index=True, return_inverse=True)

    @cached_property
    def _features(self) -> ModelFeatures:
        """Its features, of those of the vocabulary file if it has one. Raises `DamagedError` if that is another one."""
        ids, first, position = self._unique
        if self.outputs == 1:
            column = np.zeros(len(self.table), dtype=np.int64)
        else:
            order = {name: i for i, name in enumerate(self.classes)}
            column = np.array([order[name] for name in self.table["class"].to_pylist()], dtype=np.int64)
        weights = np.zeros((ids.size, self.outputs))
        weights[position, column] = self.table["weight"].to_numpy()
        described, normed = self.description["features"], self.weighting.norm != "none"
        hashed, path = described["kind"] == "hashed", self.folder / "weights.parquet"
        every, terms = ids, self.table["feature"].combine_chunks().take(pa.array(first))
        idf = self.table["idf"].to_numpy()[first]
        if normed:
            path = self.folder / VOCABULARY
            if not path.exists() or commit.digest_file(path) != self.description.get("vocabulary_sha256"):
                raise DamagedError(
                    f"{path} is missing or corrupt: it is not the file that the model was saved with.",
                    code="corrupt-model",
                )
            table = read_parquet_file(path)
            columns = ("feature_id", *([] if hashed else ["feature"]), *(["idf"] if self.weighting.idf else []))
            if not table.schema.equals(VOCABULARY_SCHEMA) or any(table[name].null_count for name in columns):
                raise _unlike_model(path, "it is not a table of features")
            every, terms, idf = table["feature_id"].to_numpy(), table["feature"], table["idf"].to_numpy()
            fault = increasing_fault(every, described["count"])
            if fault is None and self.weighting.idf and not within_bounds(idf):
                fault = "an idf is not finite, or too large"
            if fault is None and not np.isin(ids, every, assume_unique=True).all():
                fault = "a feature with a weight is missing"
            if fault is not None:
                raise _unlike_model(path, fault)
        used = np.full(every.size + 1, -1, np.int32)
        used[np.searchsorted(every, ids)] = np.arange(ids.size)
        others = hashed and normed and "features_from" not in self.description  # they count in the norm
        counted: Features
        if hashed:
            counted = HashIndex(every, described["hash_bits"], counts_others=others)
        else:
            try:
                counted = Vocabulary.from_terms(terms, self.text.naming)
            except ValueError as error:
                raise _unlike_model(path, str(error)) from error
        if others:
            idf = np.append(idf, self.description.get("unseen_idf", 1.0))
        values = TermWeights(self.weighting, idf, text_fields(terms, self._fields))
        return ModelFeatures(counted, values, every if others else None, used, weights)

    def values(self, texts: Inputs) -> "scipy.sparse.csr_matrix":
        """What the weights multiply: (texts, features), a column for each of `feature_ids`."""
        return self._features.matrix(count_texts(texts, self._features.counted, self.text))

    def margins(self, texts: Inputs) -> NDArray[np.float64]:
        """Margins ⟨w, x⟩ + b, (texts, outputs) float64."""
        return self._features.margins(count_texts(texts, self._features.counted, self.text)) + self.intercepts

    def predict(self, texts: Inputs) -> list[Any]:
        """The predicted class of each text, list of classes if there may be any number of them, or number."""
        return self.decide(self.margins(texts))

    def decide(self, margins: NDArray[np.float64]) -> list[Any]:
        """Predictions for margins: of two classes the second above the threshold (0 by default), of more the class
        of the largest margin; of any number all classes above their thresholds."""
        if not self.classes:
            return [float(value) for value in margins[:, 0]]
        if self.is_multilabel:
            return [[self.classes[k] for k in np.flatnonzero(row)] for row in self.labels(margins)]
        return [self.classes[winner] for winner in self.labels(margins)]

    def labels(self, margins: NDArray[np.float64]) -> NDArray[Any]:
        """As `decide`, the numbers of the predicted classes, or (rows, classes) whether a class is predicted."""
        cuts = 0.0 if self.thresholds is None else self.thresholds.margins
        return predicted_labels(margins, cuts, several=self.is_multilabel)

    @property
    def positive(self) -> int:
        """The number of the positive one of two classes, to which metrics refer."""
        return int(self.description.get("positive", 1))

    @property
    def never_predicted(self) -> list[str]:
        """The classes that it predicted for none of the held-out documents that have them, if that is known."""
        found = self.description.get("never_predicted", ())
        return [self.classes[k] for k in found if k < len(self.classes)]

    def learned_sources(self, where: Mapping[str, str]) -> set[str]:
        """The raw files, by `source_digest`, of which it has learned documents with these values of fields.

        There are none if it was trained on documents `where` one of these fields has another value.
        """
        if any(self.text.where.get(name, value) != value for name, value in where.items()):
            return set()
        return set(self.description["provenance"].get("source_digests", ()))

    def has_learned(self, store: Store) -> bool:
        """Whether it was trained on documents of a store, as far as it knows the digests of their raw files."""
        where = store.manifest.options.get("where") or {}
        same = self.description["provenance"]["store"] == store.manifest.digest
        return same or not self.learned_sources(where).isdisjoint(source_digests(store))

    @property
    def threshold_sentence(self) -> str:
        """For people: the thresholds and how they were chosen; empty if all are 0."""
        if self.thresholds is None or not self.classes:
            return ""
        return self.thresholds.sentence(self.classes[self.positive], reverse=self.positive == 0)

    @property
    def has_probabilities(self) -> bool:
        """Whether it has a calibration or a loss that gives probabilities."""
        return bool(self.classes) and (
            self.calibration is not None or self.description.get("loss") in ("logistic", "softmax")
        )

    def predict_proba(self, texts: Inputs) -> NDArray[np.float64]:
        """(texts, classes) float64: the probability of each class; see `probabilities`."""
        return self.probabilities(self.margins(texts))

    def probabilities(self, margins: NDArray[np.float64]) -> NDArray[np.float64]:
        """(rows, classes) float64: the probabilities of margins by the model's calibration.

        Without a calibration those of its loss: the sigmoid of the margin, or the softmax of a joint loss. If a text
        has any number of classes, each has a probability of its own, and they do not sum to 1.

        Raises
        ------
        InputError
            For a model that predicts numbers, or that has no calibration and a loss without probabilities.
        """
        loss = self.description.get("loss")
        if self.classes and self.calibration is not None:
            found = self.calibration.probabilities(margins)
            return np.concatenate([1 - found, found], axis=1) if self.outputs == 1 else found
        if not self.has_probabilities:
            raise InputError(
                f"{self.folder} has no probabilities: "
                + ("it predicts numbers." if not self.classes else "train it again, with documents to calibrate on."),
                code="no-probabilities",
            )
        if self.is_multilabel:
            return np.asarray(scipy.special.expit(margins))
        return class_probabilities(margins, joint=loss == "softmax")
