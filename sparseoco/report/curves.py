"""The figures of predictions: ROC, precision and recall, reliability, thresholds, confusion."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from sparseoco.core.formatting import integer, percent
from sparseoco.report.charts import (
    COLOURS,
    HALF,
    MARKERS,
    NEUTRAL,
    Axis,
    Chart,
    HeatMap,
    Level,
    Series,
    dashes,
    linear_axis,
)
from sparseoco.report.predictions import (
    PredictionSet,
    Ranked,
    drawn_apart,
    merged_confusion,
    precision_recall,
    reliability,
    roc,
    threshold_curve,
)

CLASSES: Final = 8
"""Lines of classes in a figure: of the largest."""
LABEL_GRID: Final = 0.4
"""Labels per per cent of a curve, at most."""
_PERCENT: Final = tuple((float(v), str(v)) for v in (0, 20, 40, 60, 80, 100))


def roc_figure(sets: Sequence[PredictionSet]) -> Chart:
    """True against false positive rates."""
    curves = [roc(found, k, name) for found, k, name in _lines(sets)]
    diagonal = Series("", [0, 100], [0, 100], NEUTRAL, dash="dot", width=1.2, legend=False)
    series = [diagonal, *_series(curves, "ROC AUC", "{1:.1f} % found, {0:.1f} % of the others too")]
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
        Series("", [0, 100], [0, 100], NEUTRAL, dash="dot", width=1.2, legend=False),
        Series(
            f"{first.name} documents",
            [10 * min(int(10 * of.probability), 9) + 5.0 for of in bins],
            [100 * of.rows / total for of in bins],
            NEUTRAL,
            dash="",
            bars=9.0,
        ),
    ]
    drawn = [(found, "calibrated" if found.calibration else "margins") for found in sets]
    if first.calibration is not None:
        drawn.append((replace(first, calibration=None), "not calibrated"))
    for k, ((found, kind), dash) in enumerate(zip(drawn, dashes(len(drawn)), strict=True)):
        bins = reliability(found)
        series.append(
            Series(
                f"{found.name}, {kind}",
                [100 * of.probability for of in bins],
                [100 * of.share for of in bins],
                COLOURS[k],
                dash=dash,
                marker=MARKERS[k],
                heading=f"{found.name}, {kind}",
                labels=[
                    f"probability {percent(of.probability)}: right for {percent(of.share)}\nof {integer(of.rows)}"
                    for of in bins
                ],
            )
        )
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
    series = [
        Series(
            name,
            x[kept].tolist(),
            y[kept].tolist(),
            COLOURS[k],
            dash=dash,
            heading=name,
            labels=_labels("threshold {0:.1f} %: {1:.1f} %", x[kept].tolist(), y[kept].tolist()),
        )
        for k, ((name, y), dash) in enumerate(zip(values.items(), dashes(3), strict=True))
    ]
    return _square("threshold: probability of the class, %", f"on {found.name} documents, %", series)


def confusion_figure(names: Sequence[str], counts: Any) -> HeatMap:
    """Documents by true and predicted class."""
    shown, merged = merged_confusion(names, np.asarray(counts, np.int64))
    return HeatMap(shown, merged.tolist(), "true class", "predicted class")


def numbers_figure(found: PredictionSet) -> Chart:
    """Predicted against true numbers of a sample of the documents."""
    step = max(1, found.rows // 1000)
    truth, predicted = found.found.labels[::step].tolist(), found.found.margins[::step, 0].tolist()
    ends = [min(truth), max(truth)]
    series = [
        Series("", ends, ends, NEUTRAL, dash="dot", width=1.2, legend=False),
        Series(
            f"{found.name} documents",
            truth,
            predicted,
            COLOURS[0],
            dash="",
            marker="circle",
            size=2.5,
            labels=[
                f"{name}\ntrue {a:.4g}, predicted {b:.4g}"
                for name, a, b in zip(found.found.ids[::step].to_pylist(), truth, predicted, strict=True)
            ],
        ),
    ]
    return Chart(linear_axis("true", truth), linear_axis("predicted", predicted), series)


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
        Series(
            f"{curve.name}, {curve.area:.4f}",
            curve.x,
            curve.y,
            COLOURS[k % len(COLOURS)],
            dash=dash,
            heading=f"{curve.name}: {area} {curve.area:.4f}",
            labels=_labels(label, curve.x, curve.y),
        )
        for k, (curve, dash) in enumerate(zip(drawn, dashes(len(drawn)), strict=True))
    ]


def _labels(text: str, x: Sequence[float], y: Sequence[float]) -> list[str]:
    """Labels of points that are some per cent apart: labels of all are most of the bytes of a page."""
    shown = drawn_apart(np.array(x), np.array(y), grid=LABEL_GRID)
    return [text.format(a, b) if own else "" for a, b, own in zip(x, y, shown, strict=True)]


def _square(x: str, y: str, series: Sequence[Series], levels: Sequence[Level] = ()) -> Chart:
    """Two axes of per cents, half as wide as a page."""
    return Chart(Axis(x, 0.0, 100.0, _PERCENT), Axis(y, 0.0, 102.0, _PERCENT), series, levels, HALF, 400)
