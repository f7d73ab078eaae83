"""A saved model, read for prediction."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import scipy  # loads scipy.special when it is used
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from sparseoco.core.errors import DamagedError, InputError
from sparseoco.storage.commit import digest_file
from sparseoco.storage.locations import Location
from sparseoco.storage.parquet import read_parquet_file
from sparseoco.store.labels import n_outputs
from sparseoco.store.manifest import FeatureTable, FieldEntry
from sparseoco.store.shards import Store
from sparseoco.store.weighting import Weighting
from sparseoco.text.options import TextOptions
from sparseoco.text.transform import Inputs, count_texts
from sparseoco.training.decisions.calibration import Calibration
from sparseoco.training.decisions.thresholds import Thresholds, predicted_labels
from sparseoco.training.metrics.scores import class_probabilities
from sparseoco.training.models.description import read_description
from sparseoco.training.models.features import ModelFeatures, check_weights, read_features, within_bounds
from sparseoco.training.models.files import find_model, source_digests


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
            self.calibration: Calibration | None = _optional(Calibration, described.get("calibration"), self.outputs)
            self.thresholds: Thresholds | None = _optional(Thresholds, described.get("threshold"), self.outputs)
            intercept = described["intercept"]
            self.has_intercept = intercept is not None
            self.intercepts = np.array(intercept if self.has_intercept else [0.0] * self.outputs, np.float64)
            if self.intercepts.shape != (self.outputs,):
                raise ValueError("another number of intercepts")
            fit, cuts = self.calibration, self.thresholds
            numbers = [*self.intercepts, *(fit.slopes + fit.offsets if fit else ()), *(cuts.margins if cuts else ())]
            if not within_bounds(np.array(numbers)):
                raise ValueError("a number that is not finite, or too large")
            if len(self.classes) == 1 or len(set(self.classes)) < len(self.classes):
                raise ValueError("one class, or one twice")
            if (self.label_kind == "numbers") != (not self.classes):
                raise ValueError("classes of numbers")
            if described.get("positive_class") not in (None, *self.classes):
                raise ValueError("a positive class that is no class")
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
        classes = self.classes[-self.outputs :] or ["value"]
        check_weights(folder / "weights.parquet", self.table, features.count, classes, has_idf=self.weighting.idf)

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
        return predicted_labels(margins, self._cuts, several=False)

    def decide_sets(self, margins: NDArray[np.float64]) -> NDArray[np.bool_]:
        """(rows, classes): the classes whose margin is above the class's threshold, 0 by default."""
        return predicted_labels(margins, self._cuts, several=True)

    @property
    def _cuts(self) -> NDArray[np.float64] | float:
        return 0.0 if self.thresholds is None else self.thresholds.margins

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
