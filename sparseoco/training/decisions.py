"""From margins to decisions: calibration, thresholds, predictions."""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy  # loads scipy.special when it is used
from numpy.typing import NDArray
from pydantic import model_validator

from sparseoco.core.errors import DamagedError, unsupported
from sparseoco.storage.commit import Moderate
from sparseoco.storage.locations import Location
from sparseoco.storage.tables import read_parquet_file
from sparseoco.store.manifest import Record
from sparseoco.training.learner import Learner
from sparseoco.training.metrics import exact_curve, never_predicted, ratios
from sparseoco.training.options import ThresholdRule

# ----------------------------------------------------------------------------------------------------------------------
# Probabilities from margins: sigmoids for two classes or several labels, one temperature for many classes.
#
# Both minimise the log loss of margins that the model was not trained on, with Platt's targets: of n rows of a class
# the model would be right for n + 1 of n + 2, so that a fit on rows that are all right stays finite.


Floats = NDArray[np.float64]
Objective = Callable[[Floats], tuple[float, Floats, Floats]]
"""Value, gradient and Hessian at a point."""

RIDGE = 1e-12  # of the trace of a Hessian
TOLERANCE = 1e-10
STEPS = 100


class Calibration(Record, allow_inf_nan=False):
    """A map from margins to probabilities that keeps their order.

    Parameters
    ----------
    method : "sigmoid" for p_k = 1/(1 + exp(−(slope_k·z_k + offset_k))), "temperature" for p = softmax(slope·z).
    slopes : one per output, ≥ 0; for a temperature T the one number 1/T.
    offsets : one per output; none for a temperature.
    rows : documents it was fitted on.
    """

    method: Literal["sigmoid", "temperature"]
    slopes: tuple[Moderate, ...]
    offsets: tuple[Moderate, ...] = ()
    rows: int = 0

    @model_validator(mode="after")
    def _consistent(self) -> "Calibration":
        expected = len(self.slopes) if self.method == "sigmoid" else 0
        if not self.slopes or len(self.offsets) != expected or min(self.slopes) < 0:
            raise ValueError("slopes and offsets do not belong together")
        if self.method == "temperature" and len(self.slopes) != 1:
            raise ValueError("a temperature has one slope")
        return self

    @property
    def outputs(self) -> int | None:
        """Margins of a row; None for a temperature, which takes any number."""
        return None if self.method == "temperature" else len(self.slopes)

    def probabilities(self, margins: NDArray[Any]) -> Floats:
        """(rows, outputs) probabilities of margins; with one output, of the second class."""
        if self.method == "temperature":
            return np.asarray(scipy.special.softmax(self.slopes[0] * margins, axis=1))
        return np.asarray(scipy.special.expit(np.array(self.slopes) * margins + np.array(self.offsets)))

    def chances_of_error(self, margins: NDArray[Any]) -> Floats:
        """(rows,): the probability that what margins predict, without a threshold, is not the label or label set."""
        p = self.probabilities(margins)
        if self.method == "temperature":
            return np.asarray(1 - p[np.arange(len(p)), margins.argmax(axis=1)])
        return np.asarray(1 - np.where(margins > 0, p, 1 - p).prod(axis=1))


def fit_calibration(margins: NDArray[Any], labels: NDArray[Any]) -> Calibration | None:
    """The calibration of held-out margins; None without rows.

    Parameters
    ----------
    margins : (rows, outputs).
    labels : (rows,) class indices, or (rows, outputs) booleans for several labels per row.

    Notes
    -----
    Sigmoids are those of Platt (1999) by the Newton method of Lin, Lin and Weng (2007), as scikit-learn's. A slope that
    would be negative is 0: probabilities are the share of the class, and never contradict the order of margins.
    """
    margins = np.asarray(margins, np.float64)
    if not len(margins):
        return None
    if labels.ndim == 1 and margins.shape[1] > 1:
        slope = fit_inverse_temperature(margins, labels)
        return Calibration(method="temperature", slopes=(slope,), rows=len(margins))
    truth = labels[:, None] > 0 if labels.ndim == 1 else labels.astype(bool)
    fits = [fit_sigmoid(z, own) for z, own in zip(margins.T, truth.T, strict=True)]
    slopes, offsets = zip(*fits, strict=True)
    return Calibration(method="sigmoid", slopes=slopes, offsets=offsets, rows=len(margins))


def fit_sigmoid(margins: Floats, positive: NDArray[np.bool_]) -> tuple[float, float]:
    """Slope and offset of the sigmoid with the least log loss."""
    n_positive, n_negative = positive.sum(), (~positive).sum()
    targets = np.where(positive, (n_positive + 1) / (n_positive + 2), 1 / (n_negative + 2))
    scale = _scale(margins)
    z = margins / scale

    def objective(point: Floats) -> tuple[float, Floats, Floats]:
        raw = point[0] * z + point[1]
        p = scipy.special.expit(raw)
        residual, curvature = p - targets, p * (1 - p)
        value = float((np.logaddexp(0, raw) - targets * raw).sum())
        mixed = (curvature * z).sum()
        hessian = np.array([[(curvature * z * z).sum(), mixed], [mixed, curvature.sum()]])
        return value, np.array([(residual * z).sum(), residual.sum()]), hessian

    slope, offset = _minimum(objective, np.array([0.0, np.log((n_positive + 1) / (n_negative + 1))]))
    if slope <= 0:
        share = float(targets.mean())
        return 0.0, float(np.log(share / (1 - share)))
    return float(slope / scale), float(offset)


def fit_inverse_temperature(margins: Floats, labels: NDArray[Any]) -> float:
    """1/T, T the temperature with the least log loss; 0 if no temperature is better than equal probabilities."""
    rows, outputs = margins.shape
    scale = _scale(margins)
    z = (margins - margins.max(axis=1, keepdims=True)) / scale
    missed = 1 / (rows + 2) / (outputs - 1)
    wanted = missed * (z.sum(axis=1) - z[np.arange(rows), labels])
    wanted += (1 - missed * (outputs - 1)) * z[np.arange(rows), labels]

    def objective(point: Floats) -> tuple[float, Floats, Floats]:
        raw = point[0] * z
        p = scipy.special.softmax(raw, axis=1)
        mean = (p * z).sum(axis=1)
        variance = (p * (z - mean[:, None]) ** 2).sum(axis=1)
        value = float((scipy.special.logsumexp(raw, axis=1) - point[0] * wanted).sum())
        return value, np.array([(mean - wanted).sum()]), np.array([[variance.sum()]])

    return max(float(_minimum(objective, np.zeros(1))[0]), 0.0) / scale


def _scale(margins: Floats) -> float:
    """The size of margins: fits do not depend on their unit."""
    return float(np.sqrt(np.mean(margins**2))) or 1.0


def _minimum(objective: Objective, point: Floats) -> Floats:
    """The minimum of a convex function of few variables: Newton's method, each step halved until it improves."""
    for _ in range(STEPS):
        value, gradient, hessian = objective(point)
        step = np.linalg.solve(hessian + RIDGE * (np.trace(hessian) or 1.0) * np.eye(len(point)), gradient)
        decrease, size = float(gradient @ step), 1.0
        if decrease <= TOLERANCE * abs(value):
            return np.asarray(point - step)  # this close, the error is squared by the last step
        while size > TOLERANCE and objective(point - size * step)[0] > value - 1e-4 * size * decrease:
            size /= 2
        point = point - size * step
    return point


# ----------------------------------------------------------------------------------------------------------------------
# Thresholds by rule: the margin above which a document belongs to a class, chosen on held-out margins.
#
# A threshold lies between two different margins, so that documents with equal margins are predicted alike.


LEAST_F1 = 0.1
"""If the greatest F1 of a class of label sets is below this, only margins above all that were seen are predicted."""


class Threshold(Record, allow_inf_nan=False):
    """A threshold for the margins of one output, and what it gave on the rows it was chosen on.

    Parameters
    ----------
    margin : a row belongs to the class (of two, to the second) if its margin is greater.
    precision, recall, f1 : of the positive class.
    share : of the rows that were predicted positive.
    reached : whether the rule's precision or recall, or of label sets an F1 of `LEAST_F1`, was reached; if not, the
        threshold has the greatest precision, or predicts no row.
    """

    margin: Moderate
    precision: float
    recall: float
    f1: float
    share: float
    reached: bool = True


class Thresholds(Record):
    """The thresholds of a model: one for two classes, one per class for several labels per document.

    Parameters
    ----------
    rule : how they were chosen.
    rows : documents they were chosen on.
    """

    rule: ThresholdRule
    outputs: tuple[Threshold, ...]
    rows: int

    @property
    def margins(self) -> Floats:
        """(outputs,) float64: the margins that must be exceeded."""
        return np.array([output.margin for output in self.outputs])

    def sentence(self, positive: str, *, reverse: bool = False) -> str:
        """For people; `positive` is the positive one of two classes, with `reverse` the first of them."""
        rule = "F1" if self.rule.rule == "f1" else str(self.rule)
        chosen = f"chosen by {rule} on {self.rows:,} held-out documents"
        if self.rule.since:
            chosen += f" (by default, since {self.rule.since})"
        if len(self.outputs) > 1:
            return f"one threshold for each class, {chosen}"
        (own,) = self.outputs
        margin = -own.margin if reverse else own.margin
        return f"{positive} above a margin of {margin:.4g}, {chosen}"


def check_has_threshold(rule: ThresholdRule, outputs: int, *, several: bool) -> None:
    """Raises `InputError` for more than two classes of which every document has one, not `several`."""
    if outputs > 1 and not several:
        raise unsupported(
            f"threshold {rule}: of more than two classes the one with the largest margin is predicted, without a "
            "threshold."
        )


def choose_thresholds(rule: ThresholdRule, margins: NDArray[Any], labels: NDArray[Any], positive: int) -> Thresholds:
    """Thresholds by a rule.

    The greatest F1 of a class with few documents among many classes is often that of predicting a large share of all
    rows, and a few such classes drown the others: below `LEAST_F1` none is predicted (SCutFBR.1: Yang 2001, A study of
    thresholding strategies for text categorization).

    Parameters
    ----------
    margins : (rows, outputs), at least one row.
    labels : (rows,) 0 or 1, of which `positive` is the positive class; or (rows, outputs) booleans.

    Raises
    ------
    InputError
        As `check_has_threshold`.
    """
    several = labels.ndim == 2
    check_has_threshold(rule, margins.shape[1], several=several)
    truth = labels if several else (labels == positive)[:, None]
    outputs = tuple(
        choose_threshold(rule, z, own, reverse=not several and positive == 0, least_f1=LEAST_F1 if several else 0.0)
        for z, own in zip(margins.T, truth.astype(bool).T, strict=True)
    )
    return Thresholds(rule=rule, outputs=outputs, rows=len(margins))


def predicted_labels(margins: NDArray[Any], cuts: Floats | float, *, several: bool) -> NDArray[Any]:
    """(rows,) class indices: of two classes the second above its cut, of more the largest margin; of `several` labels
    (rows, classes) booleans.

    Parameters
    ----------
    margins : (rows, outputs).
    cuts : the margins that must be exceeded.
    """
    if several:
        return np.asarray(margins > cuts)
    if margins.shape[1] > 1:
        return np.asarray(margins.argmax(axis=1))
    return np.asarray((margins > cuts)[:, 0], np.int64)


def choose_threshold(
    rule: ThresholdRule, margins: NDArray[Any], positive: NDArray[np.bool_], *, reverse: bool, least_f1: float = 0.0
) -> Threshold:
    """The threshold of the margins of one output by a rule.

    f1        the greatest F1
    precision the greatest recall among thresholds with at least this precision
    recall    the greatest precision among thresholds with at least this recall
    top       the largest share of the rows that is at most this share

    Among equals, the one that predicts the fewest rows.

    Parameters
    ----------
    margins, positive : (rows,), at least one row.
    reverse : whether the positive class is the one of small margins (the first of two).
    least_f1 : no row is predicted if the greatest F1 is below this.
    """
    scores = np.asarray(-margins if reverse else margins, np.float64)
    curve = exact_curve(scores, positive)
    # The cut i predicts the rows of the i largest scores.
    hits, predicted = np.append(0, curve.tps), np.append(0, curve.tps + curve.fps)
    precision, recall = ratios(hits, predicted), ratios(hits, np.full_like(hits, curve.positives))
    f1 = ratios(2 * hits, predicted + curve.positives)
    value, best, reached = rule.value or 0.0, 0, True
    if rule.rule == "f1":
        reached = bool(f1.max() >= least_f1)
        best = int(f1.argmax()) if reached else 0
    elif rule.rule == "precision":
        reached = bool((precision >= value).any())
        best = int((np.where(precision >= value, recall, -1.0) if reached else precision).argmax())
    elif rule.rule == "recall":
        best = int(np.where(recall >= value, precision, -1.0).argmax())
        reached = bool(recall[best] >= value)
    else:
        best = int((predicted / len(scores) <= value).nonzero()[0][-1])
    # A margin such that exactly the first `best` scores are above it; with `reverse`, exactly their margins are not.
    distinct = np.unique(scores)[::-1]
    above = distinct[best - 1] if best else np.nextafter(distinct[0], np.inf)
    below = distinct[best] if best < len(distinct) else np.nextafter(distinct[-1], -np.inf)
    low, high = (-above, -below) if reverse else (below, above)
    middle = low / 2 + high / 2
    return Threshold(
        margin=float(middle if low <= middle < high else low),
        precision=float(precision[best]),
        recall=float(recall[best]),
        f1=float(f1[best]),
        share=float(predicted[best] / len(scores)),
        reached=reached,
    )


# ----------------------------------------------------------------------------------------------------------------------
# How a model decides: the calibration and the threshold in its description, from margins it has not learned.


ROWS = 100_000
"""The most documents whose progressive margins a calibration is fitted on."""
SHARE = 0.2
"""Of the rows of a stream, the last of its first pass, which a calibration is fitted on."""


@dataclass(eq=False)
class PredictingLearner:
    """Learns rows with a learner; `record` receives the margins (rows, configurations, outputs) with which they were
    predicted, and their labels.

    Parameters
    ----------
    first, last : only the rows first, …, last − 1 of the stream, counted from 0, are recorded.
    """

    learner: Learner
    record: Callable[[NDArray[Any], NDArray[Any]], object]
    first: int = 0
    last: int = sys.maxsize
    seen: int = field(default=0, init=False)
    """Rows so far."""

    def learn_rows(self, indptr: Any, indices: Any, values: Any, labels: Any, weights: Any = None) -> None:
        """As `Learner.learn_rows`."""
        start, self.seen = self.seen, self.seen + len(labels)
        if self.seen <= self.first or start >= self.last:
            self.learner.learn_rows(indptr, indices, values, labels, weights)
            return
        shape = len(labels), len(self.learner.configurations), self.learner.n_outputs
        margins = np.empty(shape, self.learner.dtype)
        self.learner.learn_rows(indptr, indices, values, labels, weights, margins_out=margins)
        chosen = slice(max(self.first - start, 0), self.last - start)
        self.record(margins[chosen], labels[chosen])


class MarginRecorder(PredictingLearner):
    """A learner of one configuration with the margins with which rows `first`, …, `last` − 1 were predicted."""

    def __init__(self, learner: Learner, first: int, last: int) -> None:
        super().__init__(learner, lambda *recorded: self._recorded.append(recorded), first, last)
        self._recorded: list[tuple[NDArray[Any], NDArray[Any]]] = []

    @classmethod
    def of_first_pass(cls, learner: Learner, n_rows: int) -> "MarginRecorder":
        """Of the last rows of the first pass: they are new, and the weights no longer those of a start."""
        return cls(learner, n_rows - min(round(SHARE * n_rows), ROWS), n_rows)

    def rules(self, threshold: ThresholdRule | None = None, positive: int = 1) -> dict[str, Any]:
        """The `decision_rules` of what was recorded; none for numbers and without rows."""
        if not self._recorded or self.learner.n_classes is None:
            return {}
        margins, labels = map(np.concatenate, zip(*self._recorded, strict=True))
        return decision_rules(margins[:, 0], labels, threshold, positive)


def decision_rules(
    margins: NDArray[Any], labels: NDArray[Any], threshold: ThresholdRule | None, positive: int
) -> dict[str, Any]:
    """The entries `calibration`, `threshold` and `never_predicted` of a model's description; none without rows.

    The threshold is None without a rule. Of the classes of these rows, `never_predicted` has the indices of those that
    are predicted for no row.

    Parameters
    ----------
    margins : (rows, outputs).
    labels : (rows,) class indices, or (rows, outputs) booleans for several labels per document.
    positive : index of the positive one of two classes.
    """
    calibration = fit_calibration(margins, labels)
    if calibration is None:
        return {}
    chosen = None if threshold is None else choose_thresholds(threshold, margins, labels, positive)
    predicted = predicted_labels(margins, 0.0 if chosen is None else chosen.margins, several=labels.ndim == 2)
    return {
        "calibration": calibration.model_dump(mode="json"),
        "threshold": chosen and chosen.model_dump(mode="json"),
        "never_predicted": never_predicted(labels, predicted),
    }


# ----------------------------------------------------------------------------------------------------------------------
# Tables of predictions on documents that a model has not learned: `search/held_out.parquet` and `test.parquet`.
#
# id       string
# fold     int32, of held-out documents only
# label    string, the name of the class; a list of names for several labels per document; a float64 for numbers
# margin   float64; of more than two classes a column for each, `margin CLASS`


class Predictions(NamedTuple):
    """The columns of a table of predictions.

    Parameters
    ----------
    ids : of the documents.
    folds : (rows,) int32, or None.
    labels : (rows,) class indices or numbers, or (rows, classes) booleans for several labels per document.
    margins : (rows, outputs) float64.
    """

    ids: pa.StringArray
    folds: NDArray[np.int32] | None
    labels: NDArray[Any]
    margins: NDArray[np.float64]


def class_columns(kind: str, classes: Sequence[str], outputs: int) -> list[str]:
    """The names of columns with one value per output, such as margins."""
    return [kind] if outputs == 1 else [f"{kind} {name}" for name in classes]


def predictions_table(found: Predictions, classes: Sequence[str]) -> pa.Table:
    """The table of predictions; without `classes`, labels are numbers."""
    columns: dict[str, Any] = {"id": found.ids.cast(pa.string())}
    if found.folds is not None:
        columns["fold"] = pa.array(found.folds, pa.int32())
    columns["label"] = named_labels(found.labels, classes)
    names = class_columns("margin", classes, found.margins.shape[1])
    columns |= {
        name: pa.array(np.ascontiguousarray(column, np.float64))
        for name, column in zip(names, found.margins.T, strict=True)
    }
    return pa.table(columns)


def named_labels(labels: NDArray[Any], classes: Sequence[str]) -> pa.Array:
    """Labels as in `Predictions`, with the names of their classes."""
    if not classes:
        return pa.array(np.asarray(labels, np.float64))
    names = pa.array(classes, pa.string())
    if labels.ndim == 1:
        return names.take(pa.array(labels, pa.int32()))
    rows, numbers = np.nonzero(labels)
    offsets = np.searchsorted(rows, np.arange(len(labels) + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), names.take(pa.array(numbers)))


def is_predictions(path: Location) -> bool:
    """Whether a file is a table of predictions, of any model."""
    with suppress(DamagedError):
        first, *names = (name for name in read_parquet_file(path).column_names if name != "fold")
        return [first, *names[:1]] == ["id", "label"] and all(name.startswith("margin") for name in names[1:])
    return False


def read_predictions(path: Location, classes: Sequence[str]) -> Predictions:
    """Read a table of predictions of a model of these classes; none for numbers.

    Raises
    ------
    DamagedError
        If the file is not such a table, or of a model of other classes.
    StorageError
        If it is missing or cannot be read.
    """
    table = read_parquet_file(path)
    names = [name for name in table.column_names if name.startswith("margin")]
    try:
        if names != class_columns("margin", classes, len(names)):
            raise ValueError
        margins = np.stack([table[name].cast(pa.float64()).to_numpy() for name in names], axis=1)
        if not np.isfinite(margins).all():
            raise ValueError
        return Predictions(
            table["id"].combine_chunks(),
            table["fold"].to_numpy() if "fold" in table.column_names else None,
            numbered_labels(table["label"].combine_chunks(), classes),
            margins,
        )
    except (KeyError, ValueError, pa.ArrowException) as error:
        raise DamagedError(f"{path} is corrupt or of another model: run again.", code="corrupt-file") from error


def numbered_labels(labels: pa.Array, classes: Sequence[str]) -> NDArray[Any]:
    """Labels as in `Predictions`: class indices, booleans or, without classes, numbers.

    Raises `ValueError` for a label that is not one of the classes, or missing.
    """
    if not classes:
        return np.asarray(labels.cast(pa.float64()).to_numpy(zero_copy_only=False))
    several = pa.types.is_list(labels.type)
    found = pc.index_in(labels.flatten() if several else labels, pa.array(classes, pa.string()))
    if found.null_count or labels.null_count:
        raise ValueError
    numbers = found.to_numpy(zero_copy_only=False)
    if not several:
        return np.asarray(numbers)
    truth = np.zeros((len(labels), len(classes)), np.bool_)
    truth[np.repeat(np.arange(len(labels)), labels.value_lengths().to_numpy(zero_copy_only=False)), numbers] = True
    return truth
