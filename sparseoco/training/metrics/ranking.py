"""Metrics of a ranking by score: ROC AUC, average precision, precision at a recall and recall at a precision.

All are functions of a `Curve`: the true and false positives at each distinct score. Rows with equal scores are one
point of the curve, as in scikit-learn.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.training.metrics.loops import merge_curve


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
    truths = np.asarray(truths) != 0
    positives, negatives = np.sort(scores[truths]), np.sort(scores[~truths])
    tps, fps = np.empty((2, len(scores)), np.int64)
    size = merge_curve(positives, negatives, tps, fps)
    return Curve(tps[:size].copy(), fps[:size].copy())


def histogram_curve(counts: NDArray[np.int64]) -> Curve:
    """The curve of a histogram (2, bins): negatives, positives by increasing score."""
    counts = counts[:, counts.any(axis=0)][:, ::-1].cumsum(axis=1)
    return Curve(counts[1], counts[0])


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
