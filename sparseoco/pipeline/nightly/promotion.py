"""The choice of a candidate and the decision on its promotion: pure functions of metrics."""

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from sparseoco.search.selection import choose
from sparseoco.storage.metrics import Row
from sparseoco.store.weighting import Weighting
from sparseoco.training.options import Configuration, Select
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


def decide(error: float, deployed_error: float | None, margin: float) -> Decision:
    """Promote the candidate unless its error is above that of the deployed model by more than the margin."""
    if deployed_error is None:
        return Decision(True, "no model was deployed before")
    promoted = error <= deployed_error + margin
    bound = f"{deployed_error:.4%} of the deployed model" + (f" + {margin:.4%}" if margin else "")
    return Decision(promoted, f"error {error:.4%} {'≤' if promoted else '>'} {bound}")


def _pooled(rows: Sequence[Row], metric: str) -> Row:
    """The rows of one configuration pooled over their documents, or the first row whose status is not ok."""
    key = {"fold": NO_FOLD, "epoch": 1, "held_out_rows": 0}
    for row in rows:
        if row["status"] != "ok":
            return row | key
    documents = sum(row["documents"] for row in rows)
    column = f"progressive_{metric}"
    mean = math.fsum(row[column] * row["documents"] for row in rows) / documents
    return rows[-1] | key | {"rows": documents, column: mean}
