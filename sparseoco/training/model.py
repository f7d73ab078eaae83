"""A saved model: a folder of Parquet and JSON files that can be read without this package.

model.json        algorithm, parameters, classes, intercepts, calibration, threshold, text options, digests, …
weights.parquet   feature_id, feature, class, weight, count, documents, idf: the nonzero weights, with their names
vocabulary.parquet  see `training.model_features`
learner.npz       for stream learners, the complete state: training can be resumed from it bit for bit
curve.parquet     epoch, rows, progressive loss and error along the stream, nonzeros at the ends of epochs
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import scipy  # loads scipy.special when it is used
from numpy.typing import NDArray
from pydantic import Field
from scipy.sparse import csr_matrix
from typing_extensions import TypedDict

from sparseoco import __version__
from sparseoco.core.errors import DamagedError, InputError, StorageError
from sparseoco.storage.commit import commit_json, digest_file, digest_value, read_json, remove_file
from sparseoco.storage.locations import Location, is_inside, location
from sparseoco.storage.metrics import WEIGHTS, Row, write_result_table
from sparseoco.storage.parquet import read_parquet_file, write_parquet
from sparseoco.storage.validated import read_validated
from sparseoco.store.feature_subset import read_feature_subset
from sparseoco.store.labels import n_outputs
from sparseoco.store.manifest import FeatureTable, FieldEntry
from sparseoco.store.shards import Store
from sparseoco.store.term_weights import TermWeights, term_weights
from sparseoco.store.weighting import Weighting
from sparseoco.text.options import TextOptions
from sparseoco.text.transform import Inputs, count_texts
from sparseoco.training.decisions.calibration import Calibration
from sparseoco.training.decisions.thresholds import Thresholds
from sparseoco.training.learner import Learner
from sparseoco.training.metrics.scores import class_probabilities
from sparseoco.training.model_description import read_description
from sparseoco.training.model_features import ModelFeatures, check_weights, read_features, write_vocabulary

STATE = "learner.npz"
PROMOTED = "promoted.json"
"""The file in the folder of nightly runs that names the promoted model."""
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

    A model of a feature subset (`sparseoco.store.feature_subset`) is written as one of the whole store, with all other
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
        state = {"rounds": learner.rounds, "learner_sha256": digest_file(folder / STATE)}
    else:
        remove_file(folder / STATE)  # of a model that is replaced
    provenance = {
        "sparseoco": __version__,
        "store": store.manifest.digest,
        "rows": store.n_rows,
        "sources": store.manifest.n_sources,
        "sources_sha256": digest_value(store.sources.table["sha256"].to_pylist()),
    }
    commit_json(
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
            "features": {
                key: value for key, value in store.manifest.features.model_dump(mode="json").items() if key != "files"
            },
            "features_sha256": store.features_digest(),
            "nonzeros": len(table),
            "text": store.manifest.options,
            "provenance": provenance,
            "weights_sha256": digest_file(folder / "weights.parquet"),
        },
    )


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
            found = folder / read_validated(folder / PROMOTED, PromotedModel)["model"]
            if not is_inside(found, folder):
                raise StorageError(
                    f"{folder / PROMOTED} names a model outside its folder, through a link: run `sparseoco nightly` "
                    "again.",
                    code="outside-folder",
                )
        else:
            found = folder / "model"
    if not (found / "model.json").exists():
        raise _no_model(folder)
    return found


def _no_model(folder: Location) -> InputError:
    """The error of a folder without a model, which names a model nearby or the reason, if it can."""
    message = f"{folder} is not a model: it has no model.json."
    if (folder / "run.json").exists():
        message = f"{folder} has no model yet, because its run is not complete: run the same command again."
    elif isinstance(folder, Path):
        near = [path for parent in (folder.parent, folder.parent.parent) for path in (parent, parent / "model")]
        found = next((path for path in near if (path / "model.json").exists()), None)
        if found is not None:
            message = f"{folder} is not a model; did you mean {found}?"
        elif not folder.exists():
            message = f"{folder} does not exist: name the folder of a model or of a run."
    return InputError(message, code="missing-model")


def amend_model(folder: Location, entries: dict[str, Any]) -> None:
    """Set entries of the description of a model."""
    described = read_json(folder / "model.json")
    if described != described | entries:
        commit_json(folder / "model.json", described | entries)


def _optional(kind: type[Calibration | Thresholds], value: Any, outputs: int) -> Any:
    """The value of this type, of so many outputs; None if there is none. Raises `ValueError`."""
    if value is None:
        return None
    found = kind.model_validate(value)
    sizes = len(found.outputs) if isinstance(found, Thresholds) else found.outputs
    if sizes not in (outputs, None):
        raise ValueError("another number of outputs")
    return found


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
            entries = [FieldEntry.model_validate(entry) for entry in described.get("fields", ())]
            self.text = TextOptions.model_validate(described["text"]).with_cuts(entries)
            if "weighting" not in described:
                raise DamagedError(
                    f"{folder} was saved by another version of sparseoco: train again.", code="format-version"
                )
            self.weighting = Weighting.model_validate(described["weighting"])
            expected = described["weights_sha256"]
            self.calibration = _optional(Calibration, described.get("calibration"), self.outputs)
            self.thresholds = _optional(Thresholds, described.get("threshold"), self.outputs)
            intercept = described["intercept"]
            self.has_intercept = intercept is not None
            self.intercepts = np.array(intercept if self.has_intercept else [0.0] * self.outputs, np.float64)
            if self.intercepts.shape != (self.outputs,):
                raise ValueError("another number of intercepts")
            if len(self.classes) == 1 or len(set(self.classes)) < len(self.classes):
                raise ValueError("one class, or one twice")
            if (self.label_kind == "numbers") != (not self.classes):
                raise ValueError("classes of numbers")
            features = FeatureTable.model_validate({**described["features"], "files": ()})
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedError(
                f"{folder / 'model.json'} is corrupt or of another version: train again.", code="corrupt-model"
            ) from error
        if digest_file(folder / "weights.parquet") != expected:
            raise DamagedError(
                f"{folder}: weights.parquet is corrupt or being replaced: run again, or train again.",
                code="corrupt-model",
            )
        self.table = read_parquet_file(folder / "weights.parquet")
        check_weights(
            folder / "weights.parquet", self.table, features.count, self.classes[-self.outputs :] or ["value"]
        )

    @property
    def is_mixture(self) -> bool:
        """Whether it is a mixture of many configurations, saved as one linear model."""
        return bool(self.description["algorithm"] == "auto")

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
        return np.unique(np.asarray(self.table["feature_id"].to_numpy(), np.int64))

    @property
    def weights(self) -> NDArray[np.float64]:
        """(features, outputs) float64: a row for each of `feature_ids`."""
        return self._features[1]

    @cached_property
    def feature_names(self) -> list[str]:
        """The names of `feature_ids`."""
        _, first = np.unique(self.table["feature_id"].to_numpy(), return_index=True)
        names: list[str] = self.table["feature"].take(pa.array(first)).to_pylist()
        return names

    @cached_property
    def _features(self) -> tuple[ModelFeatures, NDArray[np.float64]]:
        ids, first, position = np.unique(self.table["feature_id"].to_numpy(), return_index=True, return_inverse=True)
        if self.outputs == 1:
            column = np.zeros(len(self.table), dtype=np.int64)
        else:
            order = {name: i for i, name in enumerate(self.classes)}
            column = np.array([order[name] for name in self.table["class"].to_pylist()], dtype=np.int64)
        weights = np.zeros((ids.size, self.outputs))
        weights[position, column] = self.table["weight"].to_numpy()
        terms = self.table["feature"].combine_chunks().take(pa.array(first))
        return read_features(self.folder, self.description, ids, terms, self.table["idf"].to_numpy()[first]), weights

    def values(self, texts: Inputs) -> csr_matrix:
        """What the weights multiply: (texts, features), a column for each of `feature_ids`."""
        features, _ = self._features
        return features.matrix(*count_texts(texts, features.counted, self.text))

    def margins(self, texts: Inputs) -> NDArray[np.float64]:
        """Margins ⟨w, x⟩ + b, (texts, outputs) float64."""
        features, weights = self._features
        return features.text_margins(texts, self.text, weights) + self.intercepts

    def count_margins(
        self, indptr: NDArray[np.int64], features: NDArray[Any], counts: NDArray[Any]
    ) -> NDArray[np.float64]:
        """Margins of rows of counts in CSR format, whose features are those of the store that it was trained on."""
        own, weights = self._features
        return own.margins(*own.select(indptr, features, counts), weights) + self.intercepts

    def predict(self, texts: Inputs) -> list[Any]:
        """The predicted class of each text, list of classes if there may be any number of them, or number."""
        return self.decide(self.margins(texts))

    def decide(self, margins: NDArray[np.float64]) -> list[Any]:
        """Predictions for margins: of two classes the second above the threshold (0 by default), of more the class
        of the largest margin; of any number all classes above their thresholds."""
        if not self.classes:
            return [float(value) for value in margins[:, 0]]
        if self.is_multilabel:
            return [[self.classes[k] for k in np.flatnonzero(row)] for row in self.decide_sets(margins)]
        return [self.classes[winner] for winner in self.decide_numbers(margins)]

    def decide_numbers(self, margins: NDArray[np.float64]) -> NDArray[np.int64]:
        """The number in `classes` of the predicted class of each row, as `decide`."""
        if self.outputs > 1:
            return np.asarray(margins.argmax(axis=1))
        cut = 0.0 if self.thresholds is None else self.thresholds.margins[0]
        return (margins[:, 0] > cut).astype(np.int64)

    def decide_sets(self, margins: NDArray[np.float64]) -> NDArray[np.bool_]:
        """(rows, classes): the classes whose margin is above the class's threshold, 0 by default."""
        cuts = 0.0 if self.thresholds is None else np.array(self.thresholds.margins)
        return np.asarray(margins > cuts)

    @property
    def positive(self) -> int:
        """The number of the positive one of two classes, to which metrics refer."""
        return int(self.description.get("positive", 1))

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
