"""Metrics of predictions: added chunk by chunk, in bounded memory, for many configurations at once.

With classes they equal scikit-learn's on these predictions and scores:

- two classes: the second class if the margin is positive; F1, precision, recall and the metrics of a ranking refer to
  the positive class;
- more classes: the class of the largest margin; ROC AUC and average precision are means over the classes that occur,
  each against the rest. The score of a class is its margin, of a joint loss log p/(1 − p) of its softmax probability;
- label sets: every class on its own, predicted where its margin is positive; the error counts rows whose set is not
  exactly right, and the log loss is a mean over rows and classes.

The log loss is that of the probabilities of `class_probabilities`: σ(z) of two classes, softmax of a joint loss, else
σ(z_k)/Σσ(z). They are what a logistic or softmax model was fitted to; for other losses they are just a sigmoid of the
margin.

ROC AUC, average precision, precision at a recall and recall at a precision are exact up to `EXACT_VALUES` scores (rows
× outputs) of a configuration. Beyond, scores are counted in `BINS` fixed bins of z/(1 + |z|), rows in one bin counting
as ties; `rank_bound` is then the largest possible error of ROC AUC and average precision, while precision at a recall
and recall at a precision are never above the exact ones.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sparseoco.storage.metric_names import COMPUTED, LEVELS, METRICS, Kind
from sparseoco.storage.metrics import Row
from sparseoco.store.shards import Store
from sparseoco.training.metrics import loops
from sparseoco.training.metrics.ranking import (
    Curve,
    exact_curve,
    histogram_curve,
    precision_at_recall,
    ranking,
    recall_at_precision,
)

EXACT_VALUES: Final = 1 << 18
BINS: Final = 1 << 11


def label_kind(n_classes: int | None, *, label_sets: bool = False) -> Kind:
    """The kind of labels with this number of classes; None for numbers."""
    if n_classes is None or n_classes == 0:
        return "numbers"
    return "label sets" if label_sets else "two classes" if n_classes <= 2 else "classes"


def store_label_kind(store: Store) -> Kind:
    """The kind of labels of a store."""
    return label_kind(len(store.classes), label_sets=store.manifest.labels.kind == "multi")


def class_probabilities(margins: NDArray[Any], *, joint: bool) -> NDArray[np.float64]:
    """Probabilities (rows, classes) of margins (rows, outputs): both of two classes, summing to 1."""
    if margins.shape[1] == 1:
        margins = np.concatenate([np.zeros_like(margins), margins], axis=1)
        joint = True
    out = np.empty((len(margins), 1, margins.shape[1]))
    loops.class_probabilities(np.ascontiguousarray(margins)[:, None], joint, out)
    return out[:, 0]


def score_bytes(outputs: int, n_rows: int, itemsize: int) -> int:
    """Bytes that `Scores` of one configuration hold, for `n_rows` rows."""
    exact = n_rows * outputs <= EXACT_VALUES
    return n_rows * outputs * itemsize if exact else outputs * 2 * BINS * 8


class Scores:
    """The metrics of many configurations, from their margins and the labels.

    Parameters
    ----------
    kind : what is predicted.
    n_rows : the most rows that will be added; it decides whether rankings are exact.
    outputs : margins of a configuration: 1 for two classes and numbers, else one per class.
    configurations : number of configurations.
    dtype : of the margins.
    joint : whether the loss is one of all classes.
    positive : index of the positive one of two classes.
    """

    def __init__(
        self,
        kind: Kind,
        n_rows: int,
        outputs: int,
        configurations: int,
        *,
        dtype: Any = np.float64,
        joint: bool = False,
        positive: int = 1,
    ) -> None:
        self.kind: Kind = kind
        self.joint, self.positive, self.n_rows = joint, positive, 0
        n_classes = 2 if kind == "two classes" else outputs
        self.counts = np.zeros((configurations, 3, n_classes), np.int64)
        self._log_loss = np.zeros(configurations)
        self._wrong = np.zeros(configurations + 1, np.int64)
        self._absolute, self._squares, self._moments = np.zeros(configurations), np.zeros(configurations), np.zeros(3)
        self._broken = np.zeros(configurations, bool)
        self._exact = n_rows * outputs <= EXACT_VALUES
        held = 0 if kind == "numbers" else n_rows if self._exact else 0
        # Scores of an output are adjacent, to be sorted.
        self._scores = np.empty((configurations, outputs, held), dtype)
        self._truths = np.empty((outputs, held), bool)
        bins = 0 if kind == "numbers" or self._exact else BINS
        self._histograms = np.zeros((configurations, outputs, 2, bins), np.int64)

    def add(self, margins: NDArray[Any], labels: NDArray[Any]) -> None:
        """Add rows: margins (rows, configurations, outputs); labels (rows,), or for label sets an indicator matrix
        (rows, outputs)."""
        if not len(margins):
            return
        self._broken |= ~np.isfinite(margins).all(axis=(0, 2))
        labels = np.ascontiguousarray(labels, bool if self.kind == "label sets" else np.float64)
        if self.kind == "numbers":
            loops.add_numbers(margins, labels, self._absolute, self._squares, self._moments)
        else:
            self._add_classes(margins, labels)
        self.n_rows += len(margins)

    def _add_classes(self, margins: NDArray[Any], labels: NDArray[Any]) -> None:
        scores = margins
        if self.kind == "two classes":
            loops.add_binary(margins, labels, self._log_loss, self.counts)
            truths = (labels == self.positive)[:, None]
            scores = margins if self.positive == 1 else -margins
        elif self.kind == "classes":
            loops.add_classes(margins, labels, self.joint, self._log_loss, self.counts)
            truths = labels[:, None] == np.arange(margins.shape[2])
            if self.joint:
                scores = np.empty_like(margins)
                loops.joint_scores(margins, scores)
        else:
            loops.add_label_sets(margins, labels, self._log_loss, self.counts, self._wrong)
            truths = labels
        if not self._exact:
            loops.add_to_histograms(scores, np.ascontiguousarray(truths), self._histograms)
            return
        rows = slice(self.n_rows, self.n_rows + len(margins))
        self._scores[:, :, rows] = scores.transpose(1, 2, 0)
        self._truths[:, rows] = truths.T

    def curve(self, configuration: int, output: int) -> Curve:
        """The ranking by one output: of two classes for the positive one."""
        if not self._exact:
            return histogram_curve(self._histograms[configuration, output])
        scores = self._scores[configuration, output, : self.n_rows]
        return exact_curve(scores, self._truths[output, : self.n_rows])

    def rows(self) -> list[Row]:
        """The metrics of each configuration by name, error included; None where one is not defined.

        A configuration with a margin that is not finite has none.
        """
        return [self._row(q) for q in range(len(self._broken))]

    def _row(self, q: int) -> Row:
        row: Row = dict.fromkeys(("error", *COMPUTED, "rank_bound", "majority_error"))
        if self.n_rows == 0 or self._broken[q]:
            return row
        if self.kind == "numbers":
            return row | self._number_metrics(q)
        error = self._wrong[q] / self.n_rows if self.kind == "label sets" else None
        found = count_metrics(self.counts[q], self.kind, self.positive, error=error)
        terms = self.n_rows * (self.counts.shape[2] if self.kind == "label sets" else 1)
        found["log_loss"] = float(self._log_loss[q] / terms)
        found["majority_error"] = (
            majority_error(self.counts[q, 0].tolist())
            if self.kind != "label sets"
            else float(self._wrong[-1] / self.n_rows)
        )
        return row | found | self._ranking_metrics(q)

    def _number_metrics(self, q: int) -> Row:
        rows, total = self.n_rows, float(self._moments[2])
        squares = float(self._squares[q])
        r2 = None if rows < 2 else 1 - squares / total if total else float(squares == 0)
        return {"rmse": float(np.sqrt(squares / rows)), "mae": float(self._absolute[q]) / rows, "r2": r2}

    def _ranking_metrics(self, q: int) -> Row:
        curves = [self.curve(q, output) for output in range(self._histograms.shape[1])]
        found = [ranking(curve, histogram=not self._exact) for curve in curves if curve.positives]
        bounds = [one.bound for one in found]
        row: Row = {
            "roc_auc": _mean([one.roc_auc for one in found if one.roc_auc is not None]),
            "average_precision": _mean([one.average_precision for one in found if one.average_precision is not None]),
            "rank_bound": max(bounds, default=0.0),
        }
        if self.kind == "two classes":
            for level in LEVELS:
                row[f"precision_at_recall_{level}"] = precision_at_recall(curves[0], level / 100)
                row[f"recall_at_precision_{level}"] = recall_at_precision(curves[0], level / 100)
        return row


def count_metrics(counts: NDArray[np.int64], kind: Kind, positive: int = 1, *, error: float | None = None) -> Row:
    """Error, precision, recall, F1 and balanced accuracy from counts (3, classes): rows of each class, rows predicted
    as it, and both. `error` is given for label sets, whose rows have several labels."""
    support, predicted, correct = counts
    rows = int(support.sum())
    f1 = np.array(ratios(2 * correct, support + predicted))
    recall = np.array(ratios(correct, support))
    # scikit-learn's means are over the classes that occur or are predicted; over all labels of label sets.
    used = np.ones(len(f1), bool) if kind == "label sets" else (support + predicted) > 0
    both = int(support.sum() + predicted.sum())
    row: Row = {
        "error": float((rows - correct.sum()) / rows) if error is None else float(error),
        "f1_macro": float(f1[used].sum() / used.sum()),
        "f1_micro": float(2 * correct.sum() / both) if both else 0.0,
        "f1_weighted": float((f1 * support).sum() / rows) if rows else 0.0,
    }
    if kind != "label sets":
        row["balanced_accuracy"] = float(recall[support > 0].sum() / (support > 0).sum())
    if kind == "two classes":
        row |= {
            "f1": float(f1[positive]),
            "precision": ratios(correct, predicted)[positive],
            "recall": float(recall[positive]),
        }
    return row


def ratios(part: NDArray[np.int64], whole: NDArray[np.int64]) -> list[float]:
    """part / whole, 0 where whole is 0."""
    found: list[float] = np.divide(part, whole, out=np.zeros(len(part)), where=whole != 0).tolist()
    return found


def majority_error(class_rows: Sequence[int]) -> float:
    """The error of always predicting the largest class, 1 − max_k n_k / Σ_k n_k."""
    rows = sum(class_rows)
    return (rows - max(class_rows)) / rows  # rounded as the error of a model that predicts it


def baseline(metric: str, class_rows: Sequence[int], positive: int = 1) -> float | None:
    """The metric of a model without features, which gives every row the class frequencies; None if it is not defined.

    It predicts the largest class: its error is 1 − max_k n_k/n, its log loss the entropy of the frequencies, its ROC
    AUC ½ and its average precision the share of the positives.
    """
    counts = np.asarray(class_rows, np.int64)
    rows, size = int(counts.sum()), len(counts)
    if rows == 0 or metric not in METRICS or METRICS[metric].kinds == ("numbers",):
        return None
    kind: Kind = "two classes" if size == 2 else "classes"
    shares = counts[counts > 0] / rows
    largest = int(counts.argmax())
    predicted, correct = np.zeros((2, size), np.int64)
    predicted[largest], correct[largest] = rows, counts[largest]
    found: Row = count_metrics(np.stack([counts, predicted, correct]), kind, positive) | {
        "log_loss": float(-(shares * np.log(shares)).sum()),
        "roc_auc": 0.5,
        "average_precision": float(counts[positive] / rows) if size == 2 else float(shares.mean()),
    }
    share = found["average_precision"]
    found |= {f"precision_at_recall_{level}": share for level in LEVELS}
    found |= {f"recall_at_precision_{level}": float(share >= level / 100) for level in LEVELS}
    value: float | None = found.get(metric)
    return value


def _mean(values: Sequence[float]) -> float | None:
    return float(np.sum(values)) / len(values) if values else None
