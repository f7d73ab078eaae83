"""How a model decides: the calibration and the threshold in its description, from margins it has not learned."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseoco.training.decisions.calibration import fit_calibration
from sparseoco.training.decisions.threshold_rule import ThresholdRule
from sparseoco.training.decisions.thresholds import choose_thresholds, predicted_labels
from sparseoco.training.learner import Learner
from sparseoco.training.metrics.classes import never_predicted

ROWS = 100_000
"""The most documents whose progressive margins a calibration is fitted on."""
SHARE = 0.2
"""Of the rows of a stream, the last of its first pass, which a calibration is fitted on."""


class MarginRecorder:
    """Learns rows with a learner of one configuration, and records the margins with which some were predicted.

    Parameters
    ----------
    first, last : the rows first, …, last − 1 of the stream, counted from 0, are recorded.
    """

    def __init__(self, learner: Learner, first: int, last: int) -> None:
        self._learner, self._first, self._last = learner, first, last
        self._seen = 0
        self._margins: list[NDArray[Any]] = []
        self._labels: list[NDArray[Any]] = []

    @classmethod
    def of_first_pass(cls, learner: Learner, n_rows: int) -> "MarginRecorder":
        """Of the last rows of the first pass: they are new, and the weights no longer those of a start."""
        return cls(learner, n_rows - min(round(SHARE * n_rows), ROWS), n_rows)

    def learn_rows(self, indptr: Any, indices: Any, values: Any, labels: Any, weights: Any = None) -> None:
        """As `Learner.learn_rows`."""
        start, self._seen = self._seen, self._seen + len(labels)
        chosen = slice(max(self._first - start, 0), max(self._last - start, 0))
        if self._seen <= self._first or start >= self._last:
            self._learner.learn_rows(indptr, indices, values, labels, weights)
            return
        margins = np.empty((len(labels), 1, self._learner.n_outputs), self._learner.dtype)
        self._learner.learn_rows(indptr, indices, values, labels, weights, margins_out=margins)
        self._margins.append(margins[chosen, 0])
        self._labels.append(labels[chosen])

    def rules(self, threshold: ThresholdRule | None = None, positive: int = 1) -> dict[str, Any]:
        """The `decision_rules` of what was recorded; none for numbers and without rows."""
        if not self._margins or self._learner.n_classes is None:
            return {}
        return decision_rules(np.concatenate(self._margins), np.concatenate(self._labels), threshold, positive)


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
    chosen = None if threshold is None else choose_thresholds(threshold, margins, labels, positive=positive)
    predicted = predicted_labels(margins, 0.0 if chosen is None else chosen.margins, several=labels.ndim == 2)
    return {
        "calibration": calibration.model_dump(mode="json"),
        "threshold": chosen and chosen.model_dump(mode="json"),
        "never_predicted": never_predicted(labels, predicted),
    }
