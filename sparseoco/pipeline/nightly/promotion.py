"""The choice of a candidate and the decision on its promotion: pure functions of metrics."""

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from sparseoco.pipeline.nightly.comparison import Comparison
from sparseoco.search.selection import choose
from sparseoco.storage.metric_names import METRICS
from sparseoco.storage.metrics import Row
from sparseoco.store.weighting import Weighting
from sparseoco.training.options.configuration import Configuration
from sparseoco.training.options.selection import Select
from sparseoco.training.stream import NO_FOLD


class WindowCandidate(NamedTuple):
    """The candidate of an increment: its error over the window, and its row of the last increment."""

    window: int
    window_error: float
    row: Row

    @property
    def configuration(self) -> Configuration:
        """Its configuration."""
        return Configuration(
            number=self.row["configuration"],
            algorithm=self.row["algorithm"],
            parameters=json.loads(self.row["parameters"]),
            weighting=Weighting.of(self.row),
        )


def choose_candidate(increments: Sequence[Sequence[Row]], select: Select, metric: str = "error") -> WindowCandidate:
    """The configuration that the rule of the search selects by a progressive metric over a window of increments.

    `increments` has the rows of `IncrementChain.rows` for each increment, in order. The error is the mean over all
    documents in the window. A configuration that diverged or failed in the window is not chosen. Raises
    `SparseocoError` with the first reason if none is left.
    """
    window = [rows for rows in increments if rows[0]["documents"]]
    by_number: dict[int, list[Row]] = defaultdict(list)
    for rows in window:
        for row in rows:
            by_number[row["configuration"]].append(row)
    best = choose([_pooled(rows, metric) for rows in by_number.values()], select, metric)
    own = next(row for row in increments[-1] if row["configuration"] == best.configuration)
    return WindowCandidate(len(window), best.value(metric), own)


class Decision(NamedTuple):
    """Whether the candidate is promoted, and the reason."""

    promoted: bool
    reason: str


def decide(comparison: Comparison, *, deployed: bool, margin: float, confidence: float) -> Decision:
    """Promote the candidate if it is better than the deployed model, which `deployed` says there is.

    The interval of the difference must exclude that the candidate is worse by `margin` or more: with a margin of 0 it
    is better at this confidence. With a confidence of 0, the difference itself must be at most the margin.
    """
    if not deployed:
        return Decision(True, "no model was deployed before")
    metric, difference = comparison.metric, comparison.difference
    if difference is None or comparison.low is None or comparison.high is None:
        return Decision(False, f"{metric} of the two models cannot be compared on the new documents")
    # Worse by this much, and at most by this much at the confidence.
    worse, most = difference, comparison.high
    if METRICS[metric].greater_is_better:
        worse, most = -difference, -comparison.low
    promoted = most < margin if confidence else worse <= margin
    reason = f"{metric} {comparison.value:.4g} against {comparison.deployed_value:.4g}, difference {difference:+.4g}"
    if confidence:
        reason += f" ({confidence:.0%} interval {comparison.low:+.4g} to {comparison.high:+.4g})"
    bound = f" than a margin of {margin:g}" if margin else ""
    return Decision(promoted, f"{reason}: {'not worse' if margin else 'better'}{bound}" if promoted else reason)


def _pooled(rows: Sequence[Row], metric: str) -> Row:
    """The rows of one configuration, the metric averaged over increments weighted by their documents, or the first row
    whose status is not ok."""
    key = {"fold": NO_FOLD, "epoch": 1, "held_out_rows": 0}
    for row in rows:
        if row["status"] != "ok":
            return row | key
    column = f"progressive_{metric}"
    known = [row for row in rows if row.get(column) is not None]
    documents = sum(row["documents"] for row in known)
    mean = math.fsum(row[column] * row["documents"] for row in known) / documents if documents else None
    return rows[-1] | key | {"rows": documents, column: mean}
