"""The difference of a metric between two models on the same rows, with a confidence interval."""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from sparseoco.storage.metric_names import Kind
from sparseoco.training.metrics.scores import Scores

GROUPS: Final = 20


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

    def metrics(self, chosen: NDArray[np.bool_], metric: str) -> tuple[float | None, float | None]:
        """The metric of both models over some of the rows."""
        found = []
        for margins, joint in zip((self.a, self.b), self.joint, strict=True):
            n_rows, outputs = int(chosen.sum()), margins.shape[1]
            scores = Scores(self.kind, n_rows, outputs, 1, dtype=margins.dtype, joint=joint, positive=self.positive)
            scores.add(np.ascontiguousarray(margins[chosen])[:, None], self.labels[chosen])
            found.append(scores.rows()[0][metric])
        return found[0], found[1]


def paired_difference(rows: PairedRows, metric: str, confidence: float) -> Difference | None:
    """The difference of a metric and its confidence interval; None if the metric is not defined on the rows.

    Notes
    -----
    The standard error is that of the jackknife that leaves out one of `GROUPS` groups of rows (row number modulo their
    count) at a time (Shao and Tu 1995, section 2.3), which holds for any smooth metric; the interval is that of
    Student's t. Both models are measured on the same rows, so that what they have in common cancels.
    """
    size = len(rows.labels)
    groups = min(GROUPS, size)
    if groups < 2:
        return None
    number = np.arange(size) % groups
    whole = _difference(rows, np.ones(size, bool), metric)
    left_out = [_difference(rows, number != group, metric) for group in range(groups)]
    values = [value for value in left_out if value is not None]
    if whole is None or len(values) < groups:
        return None
    mean = float(np.mean(values))
    error = float(np.sqrt((groups - 1) / groups * np.sum((np.array(values) - mean) ** 2)))
    width = error * float(stdtrit(groups - 1, 0.5 + confidence / 2))
    return Difference(whole, whole - width, whole + width)


def _difference(rows: PairedRows, chosen: NDArray[np.bool_], metric: str) -> float | None:
    a, b = rows.metrics(chosen, metric)
    return None if a is None or b is None else a - b
