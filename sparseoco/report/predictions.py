"""What predictions on documents that were not learned from say: curves, thresholds, confusion, confident mistakes.

They are read from `search/held_out.parquet` and `test.parquet` (see `sparseoco.training.decisions`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import scipy  # loads scipy.special when it is used
from numpy.typing import NDArray

from sparseoco.core.formatting import integer, percent
from sparseoco.learners.losses import find_loss
from sparseoco.report import charts
from sparseoco.report.charts import COLOURS, NEUTRAL, Axis, Chart, Level, Series, diagonal, line
from sparseoco.report.results import ModelRecord, Results
from sparseoco.storage.locations import Location
from sparseoco.training.block import positive_class
from sparseoco.training.decisions import Calibration, Predictions, choose_threshold, predicted_labels, read_predictions
from sparseoco.training.metrics import Curve, class_probabilities, exact_curve, metrics_by_class, ranking
from sparseoco.training.options import ThresholdRule

BINS: Final = 10
MISTAKES: Final = 15
MAX_CONFUSION: Final = 40
"""Classes of a confusion; of more, the largest are shown and the others together."""
RULES: Final = ("f1", "precision=0.9", "precision=0.99", "recall=0.9", "recall=0.99")


@dataclass(frozen=True)
class PredictionSet:
    """Predictions on a set of documents, and how the model decides.

    Parameters
    ----------
    name : "held-out" or "test".
    classes : names of the classes; none for numbers.
    positive : the index of the positive class.
    cut : the margin above which the second of two classes is predicted; for several labels one per class.
    calibration : of the model, if it has one.
    joint : whether the loss of the model is one of all classes together.
    threshold : how the cut was chosen, for people; empty if it is 0.
    """

    name: str
    found: Predictions
    classes: tuple[str, ...]
    positive: int
    cut: NDArray[np.float64]
    calibration: Calibration | None
    joint: bool = False
    threshold: str = ""

    @property
    def several(self) -> bool:
        """Whether documents have any number of labels."""
        return bool(self.found.labels.ndim == 2)

    @property
    def rows(self) -> int:
        """Its documents."""
        return len(self.found.labels)

    @cached_property
    def probabilities(self) -> NDArray[np.float64]:
        """(rows, classes): calibrated if the model is, otherwise those of the margins under its loss."""
        margins = self.found.margins
        if self.calibration is not None:
            given = self.calibration.probabilities(margins)
        elif self.several:
            given = scipy.special.expit(margins)
        else:
            given = class_probabilities(margins, joint=self.joint)
        both = np.hstack([1 - given, given]) if given.shape[1] == 1 else given
        return np.asarray(both, np.float64)

    @cached_property
    def predicted(self) -> NDArray[Any]:
        """Class indices, or (rows, classes) booleans."""
        return predicted_labels(self.found.margins, self.cut, several=self.several)

    def counts(self, rows: Any = ...) -> NDArray[np.int64]:
        """(3, classes): of some rows the documents of each class, those predicted to be of it, and those with both."""
        truth, predicted = self.found.labels[rows], self.predicted[rows]
        if self.several:
            truth = truth.astype(bool)
            return np.stack([of.sum(axis=0) for of in (truth, predicted, truth & predicted)])
        both = truth[truth == predicted]
        return np.stack([np.bincount(of, minlength=len(self.classes)) for of in (truth, predicted, both)])

    def truth(self, k: int) -> NDArray[np.bool_]:
        """Whether a document has a class."""
        labels = self.found.labels
        return np.asarray(labels[:, k] if self.several else labels == k, np.bool_)

    def score(self, k: int) -> NDArray[np.float64]:
        """What documents are ranked by for a class: its margin, or its probability among several classes."""
        margins = self.found.margins
        if margins.shape[1] == 1:
            return margins[:, 0] if k == 1 else -margins[:, 0]
        return margins[:, k] if self.several else self.probabilities[:, k]


def prediction_sets(run: Location, results: Results) -> list[PredictionSet]:
    """The predictions of a run that are there: held-out ones first, then those of the test set."""
    classes = tuple(record.name for record in results.run.corpus.classes)
    return read_prediction_sets(run, results.model or {}, classes, positive_index(results))


def read_prediction_sets(
    run: Location, model: ModelRecord, classes: tuple[str, ...], positive: int
) -> list[PredictionSet]:
    """As `prediction_sets`, for the description of the run's model."""
    calibration, thresholds = model.get("calibration"), model.get("threshold")
    joint = "loss" in model and bool(find_loss(model["loss"]).joint)
    sentence = ""
    if thresholds is not None and len(classes) > 1:
        sentence = thresholds.sentence(classes[positive], reverse=positive == 0)
    sets = []
    for name, path in (("held-out", run / "search" / "held_out.parquet"), ("test", run / "test.parquet")):
        if path.is_file():
            found = read_predictions(path, classes)
            if len(found.labels):
                cut = np.zeros(found.margins.shape[1]) if thresholds is None else thresholds.margins
                sets.append(PredictionSet(name, found, classes, positive, cut, calibration, joint, sentence))
    return sets


def positive_index(results: Results) -> int:
    """The index of the positive class of a run."""
    return positive_class(results.run.corpus.classes, results.run.search.get("positive_class"))


class Ranked(NamedTuple):
    """A curve of a class on a set of documents; areas are None where they are not defined."""

    name: str
    x: list[float]
    y: list[float]
    area: float | None


def roc(found: PredictionSet, k: int, name: str) -> Ranked:
    """False against true positive rates, in per cent."""
    curve = exact_curve(found.score(k), found.truth(k))
    area = ranking(curve).roc_auc
    if area is None:
        return Ranked(name, [], [], None)
    x, y = 100 * curve.fps / curve.negatives, 100 * curve.tps / curve.positives
    return Ranked(name, *_few(np.append(0.0, x), np.append(0.0, y)), area)


def precision_recall(found: PredictionSet, k: int, name: str) -> Ranked:
    """Recall against precision, in per cent."""
    curve = exact_curve(found.score(k), found.truth(k))
    if not curve.positives:
        return Ranked(name, [], [], None)
    recall, precision = 100 * curve.tps / curve.positives, 100 * curve.tps / (curve.tps + curve.fps)
    hit = recall > 0
    return Ranked(name, *_few(recall[hit], precision[hit]), ranking(curve).average_precision)


def _few(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[list[float], list[float]]:
    kept = drawn_apart(x, y)
    return x[kept].tolist(), y[kept].tolist()


def drawn_apart(*coordinates: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which points of a curve in per cent differ when rounded to per cents, and its first and last."""
    places = np.round(np.stack(coordinates)).astype(np.int64)
    kept = np.append(True, (np.diff(places, axis=1) != 0).any(axis=0))
    kept[-1] = True
    return kept


class Bin(NamedTuple):
    """Documents whose probabilities are in a range: their mean probability and their share of positives."""

    probability: float
    share: float
    rows: int


def reliability(found: PredictionSet) -> list[Bin]:
    """Bins of equal width: of the positive class; of more classes, of the predicted one; of several labels, of all."""
    probabilities = found.probabilities
    if found.several:
        p, truth = probabilities.ravel(), found.found.labels.ravel()
    elif len(found.classes) == 2:
        p, truth = probabilities[:, found.positive], found.truth(found.positive)
    else:
        p, truth = probabilities.max(axis=1), probabilities.argmax(axis=1) == found.found.labels
    number = np.minimum((p * BINS).astype(np.int64), BINS - 1)
    rows = np.bincount(number, minlength=BINS)
    sums, hits = (np.bincount(number, weights=of.astype(np.float64), minlength=BINS) for of in (p, truth))
    return [
        Bin(float(total / n), float(right / n), int(n)) for total, right, n in zip(sums, hits, rows, strict=True) if n
    ]


class Quality(NamedTuple):
    """What a threshold gives on a set of documents."""

    precision: float
    recall: float
    f1: float
    share: float
    """Of the documents, predicted positive."""


class ThresholdRow(NamedTuple):
    """A threshold chosen by a rule on the first set, and what it gives on each."""

    rule: str
    reached: bool
    margin: float
    probability: float
    qualities: list[Quality]


def threshold_rows(sets: Sequence[PredictionSet]) -> list[ThresholdRow]:
    """The model's threshold, then those of `RULES`, chosen on the first set; of two classes only."""
    first = sets[0]
    if len(first.classes) != 2 or first.several:
        return []
    margins, truth = first.found.margins[:, 0], first.truth(first.positive)
    if not truth.any():
        return []
    rows = [_threshold_row(sets, "the model's", float(first.cut[0]))]
    for text in RULES:
        rule = ThresholdRule.model_validate(text)
        chosen = choose_threshold(rule, margins, truth, reverse=first.positive == 0)
        words = "greatest F1" if rule.value is None else f"{rule.rule} ≥ {100 * rule.value:g} %"
        rows.append(_threshold_row(sets, words, chosen.margin, reached=chosen.reached))
    return rows


def _threshold_row(sets: Sequence[PredictionSet], rule: str, margin: float, *, reached: bool = True) -> ThresholdRow:
    first = sets[0]
    given = replace(first, found=first.found._replace(margins=np.array([[margin]]))).probabilities
    own = margin if first.positive == 1 else 0.0 - margin  # of the positive class
    return ThresholdRow(
        rule, reached, own, float(given[0, first.positive]), [_quality(found, margin) for found in sets]
    )


def _quality(found: PredictionSet, margin: float) -> Quality:
    at = replace(found, cut=np.array([margin]))
    counts = at.counts()
    row = metrics_by_class(at.classes, counts)[at.positive]
    share = int(counts[1, at.positive]) / max(at.rows, 1)
    return Quality(row["precision"], row["recall"], row["f1"], share)


def threshold_curve(found: PredictionSet) -> tuple[NDArray[np.float64], Curve]:
    """The probability of the positive class at each cut, decreasing, and the curve of the cuts."""
    scores = found.score(found.positive)
    distinct = np.unique(scores)[::-1]
    margins = (distinct if found.positive else -distinct)[:, None]
    given = replace(found, found=found.found._replace(margins=margins)).probabilities
    return given[:, found.positive], exact_curve(scores, found.truth(found.positive))


POSITIONS: Final = 400
"""Of the slider of thresholds."""


def threshold_counts(sets: Sequence[PredictionSet]) -> list[dict[str, Any]]:
    """For each set its positives and documents; at thresholds, increasing, the probability, true and false positives.

    Half of the thresholds are evenly spread over all, half over the positives. Empty unless there are two classes.
    """
    found: list[dict[str, Any]] = []
    for own in sets:
        if len(own.classes) == 2 and not own.several:
            p, curve = threshold_curve(own)
            evenly = np.linspace(0, len(p) - 1, POSITIONS // 2).astype(np.int64)
            by_positives = np.searchsorted(curve.tps, np.linspace(1, curve.tps[-1], POSITIONS // 2))
            kept = np.unique(np.concatenate([evenly, by_positives]))[::-1]
            points = zip(p[kept].tolist(), curve.tps[kept].tolist(), curve.fps[kept].tolist(), strict=True)
            counts = {"positives": int(curve.positives), "rows": own.rows, "points": [*map(list, points), [1.1, 0, 0]]}
            found.append({"name": own.name} | counts)
    return found


def confusion(found: PredictionSet) -> NDArray[np.int64]:
    """[truth][predicted], of one label per document."""
    counts = np.zeros((len(found.classes), len(found.classes)), np.int64)
    np.add.at(counts, (found.found.labels, found.predicted), 1)
    return counts


def merged_confusion(names: Sequence[str], counts: NDArray[np.int64]) -> tuple[list[str], NDArray[np.int64]]:
    """At most `MAX_CONFUSION` classes: of more, the largest in their order, and all others together."""
    if len(names) <= MAX_CONFUSION:
        return list(names), counts
    largest = np.argsort(-counts.sum(axis=1), kind="stable")[: MAX_CONFUSION - 1]
    kept = np.sort(largest)
    group = np.full(len(names), MAX_CONFUSION - 1)
    group[kept] = np.arange(len(kept))
    merged = np.zeros((MAX_CONFUSION, MAX_CONFUSION), np.int64)
    np.add.at(merged, (group[:, None], group[None, :]), counts)
    return [*(names[k] for k in kept.tolist()), f"{len(names) - len(kept):,} others"], merged


class Mistake(NamedTuple):
    """A document whose prediction was wrong; `probability` is that of the wrong answer."""

    id: str
    truth: str
    answer: str
    probability: float
    output: int
    """The class that was wrong."""


def mistakes(found: PredictionSet, limit: int | None = MISTAKES) -> list[Mistake]:
    """The most confident mistakes: those whose margin is furthest on the wrong side, at most `limit`.

    Of several labels, they are of pairs of a document and a class.
    """
    margins, labels, predicted = found.found.margins, found.found.labels, found.predicted
    if found.several or margins.shape[1] == 1:
        distance = np.abs(margins - found.cut)
    else:
        rows = np.arange(found.rows)
        distance = (margins[rows, predicted] - margins[rows, labels])[:, None]
    distance = np.where((predicted != labels).reshape(distance.shape), distance, -1.0)
    order = np.argsort(-distance, axis=None, kind="stable")[:limit]
    pairs = zip(*(of.tolist() for of in np.unravel_index(order, distance.shape)), strict=True)
    return [_mistake(found, row, column) for row, column in pairs if distance[row, column] >= 0]


def _mistake(found: PredictionSet, row: int, column: int) -> Mistake:
    name, names = str(found.found.ids[row]), found.classes
    if not found.several:
        answer = int(found.predicted[row])
        probability = float(found.probabilities[row, answer])
        return Mistake(name, names[found.found.labels[row]], names[answer], probability, answer)
    of, other, probability = names[column], f"not {names[column]}", float(found.probabilities[row, column])
    if found.found.labels[row, column]:
        return Mistake(name, of, other, 1 - probability, column)
    return Mistake(name, other, of, probability, column)


class Residual(NamedTuple):
    """A document with its true and predicted number."""

    id: str
    truth: float
    prediction: float


def residuals(found: PredictionSet) -> list[Residual]:
    """The documents whose number is furthest from the predicted one, at most `MISTAKES`."""
    truth, predicted = found.found.labels, found.found.margins[:, 0]
    order = np.argsort(-np.abs(truth - predicted), kind="stable")[:MISTAKES].tolist()
    return [Residual(str(found.found.ids[k]), float(truth[k]), float(predicted[k])) for k in order]


def mean_baseline(sets: Sequence[PredictionSet]) -> dict[str, float]:
    """The metrics on the last set of predicting the mean of the first set, which has the numbers learned."""
    truth = sets[-1].found.labels
    missed, spread = truth - sets[0].found.labels.mean(), np.square(truth - truth.mean()).sum()
    found = {"rmse": float(np.sqrt(np.square(missed).mean())), "mae": float(np.abs(missed).mean())}
    return found | ({"r2": float(1 - np.square(missed).sum() / spread)} if spread else {})


# ----------------------------------------------------------------------------------------------------------------------
# The figures of predictions: ROC, precision and recall, reliability, thresholds, confusion.


CLASSES: Final = 8
"""Lines of classes in a figure: of the largest."""
_PERCENT: Final = tuple((float(v), str(v)) for v in (0, 20, 40, 60, 80, 100))


def roc_figure(sets: Sequence[PredictionSet]) -> Chart:
    """True against false positive rates."""
    curves = [roc(found, k, name) for found, k, name in _lines(sets)]
    series = [diagonal(0, 100), *_series(curves, "ROC AUC", "{1:.1f} % found, {0:.1f} % of the others too")]
    return _square("false positive rate, %", "true positive rate, %", series)


def precision_recall_figure(sets: Sequence[PredictionSet]) -> Chart:
    """Precision against recall."""
    curves = [precision_recall(found, k, name) for found, k, name in _lines(sets)]
    series = _series(curves, "average precision", "recall {0:.1f} %, precision {1:.1f} %")
    levels = []
    if len(sets[0].classes) == 2 and not sets[0].several:
        share = float(sets[-1].truth(sets[-1].positive).mean())
        levels.append(Level(100 * share, f"share of the class: {percent(share)}"))
    return _square("recall, %", "precision, %", series, levels)


def reliability_figure(sets: Sequence[PredictionSet]) -> Chart:
    """The share of documents that are right against the probability they were given, and the share of documents."""
    first = sets[-1]
    bins = reliability(first)
    total = sum(of.rows for of in bins)
    series = [
        diagonal(0, 100),
        Series(
            f"{first.name} documents",
            [10 * min(int(10 * of.probability), 9) + 5.0 for of in bins],
            [100 * of.rows / total for of in bins],
            NEUTRAL,
            dash="",
            bars=9.0,
        ),
    ]
    for k, (found, dash) in enumerate(zip(sets, charts.dashes(len(sets)), strict=True)):
        points = [
            (
                100 * of.probability,
                100 * of.share,
                f"probability {percent(of.probability)}: right for {percent(of.share)}\nof {integer(of.rows)}",
            )
            for of in reliability(found)
        ]
        kind = "calibrated" if found.calibration else "margins"
        series.append(line(f"{found.name}, {kind}", points, COLOURS[k], dash=dash, marker=charts.MARKERS[k]))
    return _square("probability, %", "documents of the class, %", series)


def threshold_figure(found: PredictionSet) -> Chart:
    """Precision, recall and F1 against the threshold, as a probability of the positive class."""
    p, curve = threshold_curve(found)
    tps, fps = curve.tps.astype(np.float64), curve.fps.astype(np.float64)
    x = 100 * p
    values = {
        "precision": 100 * tps / (tps + fps),
        "recall": 100 * tps / max(curve.positives, 1),
        "F1": 200 * tps / (tps + fps + curve.positives),
    }
    kept = drawn_apart(x)
    label = "threshold {0:.1f} %: {1:.1f} %"
    series = [
        line(name, [(a, b, label.format(a, b)) for a, b in zip(x[kept], y[kept], strict=True)], colour, dash=dash)
        for (name, y), colour, dash in zip(values.items(), COLOURS, charts.DASHES, strict=False)
    ]
    return _square("threshold: probability of the class, %", f"on {found.name} documents, %", series)


def numbers_figure(found: PredictionSet) -> Chart:
    """Predicted against true numbers of a sample of the documents."""
    step = max(1, found.rows // 1000)
    truth, predicted = found.found.labels[::step].tolist(), found.found.margins[::step, 0].tolist()
    names = found.found.ids[::step].to_pylist()
    points = [
        (a, b, f"{name}\ntrue {a:.4g}, predicted {b:.4g}") for name, a, b in zip(names, truth, predicted, strict=True)
    ]
    style = {"dash": "", "marker": "circle", "size": 2.5, "heading": ""}
    series = [diagonal(min(truth), max(truth)), line(f"{found.name} documents", points, COLOURS[0], **style)]
    return Chart(charts.linear_axis("true", truth), charts.linear_axis("predicted", predicted), series)


def _lines(sets: Sequence[PredictionSet]) -> list[tuple[PredictionSet, int, str]]:
    """What has a line: of two classes every set; of more, the largest classes of the last set."""
    last = sets[-1]
    if len(last.classes) == 2 and not last.several:
        return [(found, found.positive, found.name) for found in sets]
    sizes = [int(last.truth(k).sum()) for k in range(len(last.classes))]
    largest = sorted(range(len(sizes)), key=lambda k: (-sizes[k], k))[:CLASSES]
    return [(last, k, last.classes[k]) for k in sorted(largest)]


def _series(curves: Sequence[Ranked], area: str, label: str) -> list[Series]:
    drawn = [curve for curve in curves if curve.x]
    return [
        line(
            f"{curve.name}, {curve.area:.4f}",
            [(x, y, label.format(x, y)) for x, y in zip(curve.x, curve.y, strict=True)],
            COLOURS[k % len(COLOURS)],
            dash=dash,
            heading=f"{curve.name}: {area} {curve.area:.4f}",
        )
        for k, (curve, dash) in enumerate(zip(drawn, charts.dashes(len(drawn)), strict=True))
    ]


def _square(x: str, y: str, series: Sequence[Series], levels: Sequence[Level] = ()) -> Chart:
    """Two axes of per cents, half as wide as a page."""
    return Chart(Axis(x, 0.0, 100.0, _PERCENT), Axis(y, 0.0, 102.0, _PERCENT), series, levels, charts.HALF, 400)
