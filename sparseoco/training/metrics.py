"""Metrics of predictions: progressive sums, ranking, classes, probabilities, paired comparisons."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import scipy  # loads scipy.special when it is used
from numpy.typing import NDArray

from sparseoco.kernels import metrics as kernels
from sparseoco.learners.losses import find_loss
from sparseoco.storage.tables import Row
from sparseoco.store.shards import Store
from sparseoco.training import stream
from sparseoco.training.learner import Learner, ProgressiveTotals
from sparseoco.training.options import COMPUTED, LEVELS, METRICS, Kind

# ----------------------------------------------------------------------------------------------------------------------
# Metrics of a ranking by score: ROC AUC, average precision, precision at a recall and recall at a precision.
#
# All are functions of a `Curve`: the true and false positives at each distinct score. Rows with equal scores are one
# point of the curve, as in scikit-learn.


class Curve(NamedTuple):
    """Cumulative counts of true and false positives (int64), from the highest score to the lowest."""

    tps: NDArray[np.int64]
    fps: NDArray[np.int64]

    @property
    def positives(self) -> int:
        """Number of positives."""
        return int(self.tps[-1]) if self.tps.size else 0

    @property
    def negatives(self) -> int:
        """Number of negatives."""
        return int(self.fps[-1]) if self.fps.size else 0


class Ranking(NamedTuple):
    """Metrics of a curve; None where they are not defined."""

    roc_auc: float | None
    average_precision: float | None
    bound: float
    """The largest error of ROC AUC and average precision if the curve is that of a histogram."""


def exact_curve(scores: NDArray[Any], truths: NDArray[Any]) -> Curve:
    """The curve of scores (rows,); `truths` (rows,) is nonzero for positives."""
    truths, increasing = np.asarray(truths) != 0, np.sort(scores)
    distinct = increasing[np.diff(increasing, prepend=np.nan) != 0][::-1]
    tps, fps = (len(own) - np.searchsorted(np.sort(own), distinct) for own in (scores[truths], scores[~truths]))
    return Curve(tps, fps)


def ranking(curve: Curve, *, histogram: bool = False) -> Ranking:
    """ROC AUC and average precision; the former is None without two classes, the latter without positives."""
    tps, fps = curve.tps.astype(np.float64), curve.fps.astype(np.float64)
    p, n = np.diff(tps, prepend=0.0), np.diff(fps, prepend=0.0)
    positives, negatives = float(curve.positives), float(curve.negatives)
    auc = bound = 0.0
    average = None
    if positives and negatives:
        auc = float(np.sum(n * (tps - 0.5 * p))) / (positives * negatives)
        bound = 0.5 * float(np.sum(n * p)) / (positives * negatives)
    if positives:
        average = float(np.sum(p * (tps / (tps + fps)))) / positives
        # Within a bin, each positive has a precision between that of all negatives first and that of none.
        highest = tps / np.maximum(tps + fps - n, 1.0)
        lowest = (tps - p + 1.0) / (tps - p + 1.0 + fps)
        bound = max(bound, float(np.sum(p * np.maximum(highest - lowest, 0.0) * (n > 0))) / positives)
    return Ranking(auc if positives and negatives else None, average, bound if histogram else 0.0)


def precision_at_recall(curve: Curve, recall: float) -> float | None:
    """The highest precision of a threshold with at least this recall; None without positives."""
    if not curve.positives:
        return None
    enough = curve.tps >= recall * curve.positives * (1 - 1e-12)
    return float(np.max(curve.tps[enough] / (curve.tps[enough] + curve.fps[enough])))


def recall_at_precision(curve: Curve, precision: float) -> float | None:
    """The highest recall of a threshold with at least this precision, 0 if there is none; None without positives."""
    if not curve.positives:
        return None
    enough = curve.tps >= precision * (curve.tps + curve.fps) * (1 - 1e-12)
    return float(np.max(curve.tps[enough], initial=0) / curve.positives)


# ----------------------------------------------------------------------------------------------------------------------
# Metrics of predictions: added chunk by chunk, in bounded memory, for many configurations at once.
#
# With classes they equal scikit-learn's on these predictions and scores:
#
# - two classes: the second class if the margin is positive; F1, precision, recall and the metrics of a ranking refer
#     to
#   the positive class;
# - more classes: the class of the largest margin; ROC AUC and average precision are means over the classes that occur,
#   each against the rest. The score of a class is its margin, of a joint loss log p/(1 − p) of its softmax
#       probability;
# - label sets: every class on its own, predicted where its margin is positive; the error counts rows whose set is not
#   exactly right, and the log loss is a mean over rows and classes.
#
# The log loss is that of the probabilities of `class_probabilities`: σ(z) of two classes, softmax of a joint loss,
#     else
# σ(z_k)/Σσ(z). They are what a logistic or softmax model was fitted to; for other losses they are just a sigmoid of
#     the
# margin.
#
# ROC AUC, average precision, precision at a recall and recall at a precision are exact up to `EXACT_VALUES` scores
# (rows × outputs) of a configuration. Beyond, scores are counted in `BINS` fixed bins of z/(1 + |z|), rows in one bin
# counting as ties; `rank_bound` is then the largest possible error of ROC AUC and average precision, while precision
#     at
# a recall and recall at a precision are never above the exact ones.


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
    kernels.fill_probabilities(np.ascontiguousarray(margins)[:, None], joint, out)
    return out[:, 0]


def score_bytes(outputs: int, n_rows: int, itemsize: int) -> int:
    """Bytes that `Scores` of one configuration hold, for `n_rows` rows."""
    exact = n_rows * outputs <= EXACT_VALUES
    return n_rows * outputs * itemsize if exact else outputs * 2 * BINS * 8


@dataclass(eq=False, repr=False)
class Scores:
    """The metrics of many configurations, from their margins and the labels.

    Parameters
    ----------
    kind : what is predicted.
    most_rows : the most rows that will be added; it decides whether rankings are exact.
    outputs : margins of a configuration: 1 for two classes and numbers, else one per class.
    configurations : number of configurations.
    dtype : of the margins.
    joint : whether the loss is one of all classes.
    positive : index of the positive one of two classes.
    """

    kind: Kind
    most_rows: int
    outputs: int
    configurations: int
    _: KW_ONLY
    dtype: Any = np.float64
    joint: bool = False
    positive: int = 1

    def __post_init__(self) -> None:
        kind, outputs, configurations, self.n_rows = self.kind, self.outputs, self.configurations, 0
        n_classes = 2 if kind == "two classes" else outputs
        self.counts = np.zeros((configurations, 3, n_classes), np.int64)
        self._log_loss = np.zeros(configurations)
        self._wrong = np.zeros(configurations + 1, np.int64)
        self._absolute, self._squares, self._moments = np.zeros(configurations), np.zeros(configurations), np.zeros(3)
        self._broken = np.zeros(configurations, bool)
        self._exact = self.most_rows * outputs <= EXACT_VALUES
        held = self.most_rows if self._exact and kind != "numbers" else 0
        # Scores of an output are adjacent, to be sorted.
        self._scores = np.empty((configurations, outputs, held), self.dtype)
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
        rows = slice(self.n_rows, self.n_rows + len(margins))
        self.n_rows += len(margins)
        if self.kind == "numbers":
            kernels.add_numbers(margins, labels, self._absolute, self._squares, self._moments)
            return
        scores, exact = margins, np.asarray(margins, np.float64)  # one type, to be compiled once
        if self.kind == "two classes":
            kernels.add_binary(exact, labels, self._log_loss, self.counts)
            truths = (labels == self.positive)[:, None]
            scores = margins if self.positive == 1 else -margins
        elif self.kind == "classes":
            kernels.add_classes(exact, labels, self.joint, self._log_loss, self.counts)
            truths = labels[:, None] == np.arange(margins.shape[2])
            if self.joint:
                scores = np.empty_like(margins)
                kernels.joint_scores(margins, scores)
        else:
            kernels.add_label_sets(exact, labels, self._log_loss, self.counts, self._wrong)
            truths = labels
        if not self._exact:
            kernels.add_to_histograms(scores, np.ascontiguousarray(truths), self._histograms)
            return
        self._scores[:, :, rows] = scores.transpose(1, 2, 0)
        self._truths[:, rows] = truths.T

    def curve(self, configuration: int, output: int) -> Curve:
        """The ranking by one output: of two classes for the positive one."""
        if not self._exact:
            counts = self._histograms[configuration, output]  # (2, bins): negatives, positives by increasing score
            counts = counts[:, counts.any(axis=0)][:, ::-1].cumsum(axis=1)
            return Curve(counts[1], counts[0])
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
            squares, total = float(self._squares[q]), float(self._moments[2])
            r2 = None if self.n_rows < 2 else 1 - squares / total if total else float(squares == 0)
            rmse = float(np.sqrt(squares / self.n_rows))
            return row | {"rmse": rmse, "mae": float(self._absolute[q]) / self.n_rows, "r2": r2}
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
    f1, recall = ratios(2 * correct, support + predicted), ratios(correct, support)
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
            "precision": float(ratios(correct, predicted)[positive]),
            "recall": float(recall[positive]),
        }
    return row


def ratios(part: NDArray[np.int64], whole: NDArray[np.int64]) -> NDArray[np.float64]:
    """part / whole, 0 where whole is 0."""
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole != 0)


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
    return found.get(metric)


def _mean(values: Sequence[float]) -> float | None:
    return float(np.sum(values)) / len(values) if values else None


# ----------------------------------------------------------------------------------------------------------------------
# The metrics of an evaluation by class.


NAMES = 5
"""Classes or files that a sentence names."""


def classification_metrics(classes: Sequence[str], confusion: NDArray[np.int64]) -> Row:
    """Error, error of predicting the majority class, and precision, recall and F1 of each class.

    Parameters
    ----------
    confusion : (classes, classes) int64, rows by true class, then by predicted class.
    """
    rows, support, predicted = confusion.sum(), confusion.sum(axis=1), confusion.sum(axis=0)
    correct = confusion.diagonal()
    return {
        "rows": int(rows),
        "error": float((rows - correct.sum()) / rows),
        "majority_error": majority_error(support.tolist()),
        "classes": metrics_by_class(classes, np.stack([support, predicted, correct])),
        "confusion": confusion.tolist(),
    }


def never_predicted(labels: NDArray[Any], predicted: NDArray[Any]) -> list[int]:
    """The classes that rows have and that are predicted for none; indices (rows,), or booleans (rows, classes)."""
    if labels.ndim == 2:
        return [int(k) for k in np.flatnonzero(labels.any(axis=0) & ~predicted.any(axis=0))]
    return [int(k) for k in np.setdiff1d(labels, predicted)]


def never_predicted_sentence(names: Sequence[str], documents: str) -> str:
    """For people: which classes of documents are predicted for none of them.

    >>> never_predicted_sentence(["spam"], "test documents")
    'class spam is never predicted for the test documents'
    """
    if len(names) == 1:
        return f"class {names[0]} is never predicted for the {documents}"
    return f"{len(names):,} classes are never predicted for the {documents}: {_some(names)}"


def trained_on_sentence(names: Sequence[str]) -> str:
    """For people: which inputs of an evaluation the model has learned documents of.

    >>> trained_on_sentence(["reviews.parquet"])
    'the model was trained on documents of reviews.parquet: the figures are optimistic'
    """
    return f"the model was trained on documents of {_some(names)}: the figures are optimistic"


def _some(names: Sequence[str]) -> str:
    more = "" if len(names) <= NAMES else f", and {len(names) - NAMES:,} more"
    return ", ".join(names[:NAMES]) + more


def metrics_by_class(classes: Sequence[str], counts: NDArray[np.int64]) -> list[Row]:
    """Precision, recall and F1 of each class, from counts (3, classes) as `count_metrics` takes them."""
    support, predicted, correct = counts
    columns = {
        "name": classes,
        "rows": support.tolist(),
        "precision": ratios(correct, predicted).tolist(),
        "recall": ratios(correct, support).tolist(),
        "f1": ratios(2 * correct, support + predicted).tolist(),
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


# ----------------------------------------------------------------------------------------------------------------------
# The metrics of a run, defined once: progressive and held-out loss and error, nonzero weights, divergence.
#
# Progressive metrics are of rows that were each predicted before they were learned, held-out metrics of rows that are
# not learned.


def mean_rows(totals: ProgressiveTotals, prefix: str = "progressive", *, numbers: bool = False) -> list[Row]:
    """`PREFIX_loss` and `PREFIX_error` of each configuration: means over the rows of the totals.

    `numbers` have no error.
    """
    rows = max(int(totals.rows), 1)
    return [
        {f"{prefix}_loss": float(loss / rows), f"{prefix}_error": None if numbers else float(errors / rows)}
        for loss, errors in zip(totals.loss_sum, totals.error_count, strict=True)
    ]


def curve_rows(totals: ProgressiveTotals, *, numbers: bool = False) -> list[Row]:
    """A point of each configuration's curve: rows learned, and means since the first of them."""
    return [{"rows": totals.rows} | row for row in mean_rows(totals, numbers=numbers)]


def metric_rows(
    epoch: int,
    rows: Iterable[int],
    progressive: ProgressiveTotals,
    held_out: ProgressiveTotals,
    scores: Sequence[Row],
    nonzeros: Iterable[int],
    features: Iterable[int],
    reasons: Sequence[str],
    prefix: str = "held_out",
    *,
    numbers: bool = False,
) -> list[Row]:
    """The metrics of each configuration after (part of) an epoch; see `training.search_tables.METRICS_SCHEMA`.

    Parameters
    ----------
    rows : rows learned so far by each configuration, in all epochs.
    progressive, held_out : totals of the epoch; without held-out rows, their means are None.
    scores : the metrics of `Scores.rows` of the held-out rows.
    nonzeros : nonzero weights of each configuration, over all classes.
    features : features with a nonzero weight for any class.
    prefix : of the columns of `scores`.
    reasons : why a configuration diverged; empty for one that did not.
    numbers : whether labels are numbers, which have no error.
    """
    tested = mean_rows(held_out, "held_out", numbers=numbers)
    if not held_out.rows:
        tested = [dict.fromkeys(row) for row in tested]
    tested = [
        {f"{prefix}_{name}": value for name, value in own.items() if name != "error"} | test
        for own, test in zip(scores, tested, strict=True)
    ]
    figures = zip(rows, mean_rows(progressive, numbers=numbers), tested, nonzeros, features, reasons, strict=True)
    return [
        {"epoch": epoch, "rows": int(learned), **progress, "held_out_rows": int(held_out.rows), **test}
        | {"nonzeros": int(count), "features": int(used), "status": "diverged" if reason else "ok", "reason": reason}
        for learned, progress, test, count, used, reason in figures
    ]


def new_scores(learner: Learner, n_rows: int, positive: int) -> Scores:
    """Scores of a learner's configurations, for at most `n_rows` rows."""
    return Scores(
        label_kind(learner.n_classes, label_sets=learner.multilabel),
        n_rows,
        learner.n_outputs,
        len(learner.configurations),
        dtype=learner.dtype,
        joint=bool(find_loss(learner.loss).joint),
        positive=positive,
    )


def evaluate_held_out(
    learner: Learner, source: stream.RowSource, order: stream.Order, positive: int
) -> tuple[ProgressiveTotals, list[Row]]:
    """The totals and metrics of the held-out fold under the current weights; without one, zeros and None."""
    n_rows, size = sum(rows.size for rows in held_out_chunks(order, source.n_rows)), len(learner.configurations)
    scores = new_scores(learner, n_rows, positive)
    losses, errors = np.zeros(size), np.zeros(size, np.int64)
    for rows in held_out_chunks(order, source.n_rows):
        indptr, indices, values, labels, _ = source.gather(rows)
        margins = np.empty((rows.size, size, learner.n_outputs), learner.dtype)
        learner.evaluate(indptr, indices, values, labels, losses, errors, margins_out=margins)
        scores.add(margins, labels)
    return ProgressiveTotals(n_rows, losses, errors), scores.rows()


def held_out_chunks(order: stream.Order, n_rows: int) -> Iterator[NDArray[np.int64]]:
    """The numbers of the held-out rows, a bounded number at a time; none without a fold."""
    for start in range(0, n_rows if order.fold != stream.NO_FOLD else 0, stream.CHUNK_ROWS):
        yield order.held_out(start, min(start + stream.CHUNK_ROWS, n_rows))


# ----------------------------------------------------------------------------------------------------------------------
# Confidence intervals: of a metric, and of the difference of one between two models on the same rows.
#
# The standard error is that of the jackknife that leaves out one of `GROUPS` groups of rows (row number modulo their
# count) at a time (Shao and Tu 1995, section 2.3), which holds for any smooth metric; the interval is that of Student's
# t. It takes rows as independent.


GROUPS: Final = 20


def jackknife_width(left_out: Sequence[float], confidence: float) -> float:
    """Half of a confidence interval, from the values of a metric without one group of rows each."""
    groups = len(left_out)
    error = float(np.sqrt((groups - 1) / groups * np.sum((np.array(left_out) - float(np.mean(left_out))) ** 2)))
    return error * float(scipy.special.stdtrit(groups - 1, 0.5 + confidence / 2))


def share_interval(part: int, whole: int, confidence: float) -> tuple[float, float]:
    """Wilson's interval of a share, which is not empty where the share is 0 or 1."""
    z = float(scipy.special.ndtri(0.5 + confidence / 2))
    centre, spread = part + z * z / 2, z * math.sqrt(part * (whole - part) / whole + z * z / 4)
    return max(0.0, (centre - spread) / (whole + z * z)), min(1.0, (centre + spread) / (whole + z * z))


class Difference(NamedTuple):
    """A metric of model a minus that of model b, and the bounds of its confidence interval."""

    value: float
    low: float
    high: float


class PairedRows(NamedTuple):
    """Margins of two models on the same rows: (rows, outputs) each; joint whether each loss is of all classes."""

    kind: Kind
    labels: NDArray[Any]
    a: NDArray[Any]
    b: NDArray[Any]
    joint: tuple[bool, bool] = (False, False)
    positive: int = 1


def paired_difference(rows: PairedRows, metric: str, confidence: float) -> Difference | None:
    """The difference of a metric and its confidence interval; None if the metric is not defined on the rows.

    Both models are measured on the same rows, so that what they have in common cancels.
    """
    size = len(rows.labels)
    groups = min(GROUPS, size)
    if groups < 2:
        return None
    number = np.arange(size) % groups
    left_out = [number != group for group in range(groups)]
    values = []
    for chosen in (np.ones(size, bool), *left_out):
        found = []
        for margins, joint in zip((rows.a, rows.b), rows.joint, strict=True):
            n_rows, outputs = int(chosen.sum()), margins.shape[1]
            scores = Scores(rows.kind, n_rows, outputs, 1, dtype=margins.dtype, joint=joint, positive=rows.positive)
            scores.add(np.ascontiguousarray(margins[chosen])[:, None], rows.labels[chosen])
            found.append(scores.rows()[0][metric])
        if None in found:
            return None
        values.append(found[0] - found[1])
    whole, *others = values
    width = jackknife_width(others, confidence)
    return Difference(whole, whole - width, whole + width)
