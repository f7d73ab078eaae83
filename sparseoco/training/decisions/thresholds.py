"""Thresholds by rule: the margin above which a document belongs to a class, chosen on held-out margins.

A threshold lies between two different margins, so that documents with equal margins are predicted alike.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from sparseoco.core.errors import InputError
from sparseoco.storage.validated import Moderate
from sparseoco.training.decisions.threshold_rule import ThresholdRule
from sparseoco.training.metrics.ranking import exact_curve

Floats = NDArray[np.float64]

LEAST_F1 = 0.1
"""If the greatest F1 of a class of label sets is below this, only margins above all that were seen are predicted."""


class Threshold(BaseModel):
    """A threshold for the margins of one output, and what it gave on the rows it was chosen on.

    Parameters
    ----------
    margin : a row belongs to the class (of two, to the second) if its margin is greater.
    precision, recall, f1 : of the positive class.
    share : of the rows that were predicted positive.
    reached : whether the rule's precision or recall, or of label sets an F1 of `LEAST_F1`, was reached; if not, the
        threshold has the greatest precision, or predicts no row.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    margin: Moderate
    precision: float
    recall: float
    f1: float
    share: float
    reached: bool = True


class Thresholds(BaseModel):
    """The thresholds of a model: one for two classes, one per class for several labels per document.

    Parameters
    ----------
    rule : how they were chosen.
    rows : documents they were chosen on.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

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
        raise InputError(
            f"threshold {rule}: of more than two classes the one with the largest margin is predicted, without a "
            "threshold.",
            code="unsupported-combination",
        )


def choose_thresholds(
    rule: ThresholdRule, margins: NDArray[Any], labels: NDArray[Any], *, positive: int = 1
) -> Thresholds:
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
    rule: ThresholdRule,
    margins: NDArray[Any],
    positive: NDArray[np.bool_],
    *,
    reverse: bool = False,
    least_f1: float = 0.0,
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
    precision, recall = _ratio(hits, predicted), _ratio(hits, np.full_like(hits, curve.positives))
    f1 = _ratio(2 * hits, predicted + curve.positives)
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
    return Threshold(
        margin=_between(np.unique(scores)[::-1], best, reverse=reverse),
        precision=float(precision[best]),
        recall=float(recall[best]),
        f1=float(f1[best]),
        share=float(predicted[best] / len(scores)),
        reached=reached,
    )


def _between(scores: Floats, cut: int, *, reverse: bool) -> float:
    """A margin such that exactly the first `cut` scores are above it; with `reverse`, exactly their margins are not."""
    above = scores[cut - 1] if cut else np.nextafter(scores[0], np.inf)
    below = scores[cut] if cut < len(scores) else np.nextafter(scores[-1], -np.inf)
    low, high = (-above, -below) if reverse else (below, above)
    middle = low / 2 + high / 2
    return float(middle if low <= middle < high else low)


def _ratio(part: NDArray[np.int64], whole: NDArray[np.int64]) -> Floats:
    """part / whole, 0 where whole is 0."""
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)
