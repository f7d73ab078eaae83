"""Who is the candidate of a night, and whether it is promoted: pure functions of what was counted."""

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from sparseoco.search.selection import choose
from sparseoco.training.block import NO_FOLD

Row = dict[str, Any]


class Choice(NamedTuple):
    """The candidate of a night: a configuration, its error over the window, its row of the night itself."""

    window: int
    window_error: float
    row: Row

    @property
    def parameters(self) -> dict[str, Any]:
        """Its parameters."""
        parameters: dict[str, Any] = json.loads(self.row["parameters"])
        return parameters


def candidate(nights: Sequence[Sequence[Row]], rule: str) -> Choice:
    """The configuration that the rule of the search chooses by the errors of the last nights together.

    `nights` are the rows of `Nights.rows`, the last night's last. A night's error is of its documents before they were
    learned; errors of several nights are those of all their documents. Who has not learned all of these nights, or has
    diverged, is not chosen. Raises `SparseocoError` with the first reason if nobody is left.
    """
    judged = [rows for rows in nights if rows[0]["documents"]]
    by_number: dict[int, list[Row]] = defaultdict(list)
    for rows in judged:
        for row in rows:
            by_number[row["configuration"]].append(row)
    best = choose([_together(rows) for rows in by_number.values()], rule)
    own = next(row for row in nights[-1] if row["configuration"] == best.configuration)
    return Choice(len(judged), best.error, own)


class Decision(NamedTuple):
    """Whether the candidate serves from now on, and why, in words."""

    promoted: bool
    why: str


def decide(error: float, champion_error: float | None, margin: float) -> Decision:
    """Promote the candidate where it is no worse than the champion by more than the margin, on the same documents."""
    if champion_error is None:
        return Decision(True, "no model served before")
    promoted = error <= champion_error + margin
    served = f"{champion_error:.4%} of the model that served" + (f" + {margin:.4%}" if margin else "")
    return Decision(promoted, f"error {error:.4%} {'≤' if promoted else '>'} {served}")


def _together(rows: Sequence[Row]) -> Row:
    """Rows of one configuration on several nights as one: the first that is not well, if there is one."""
    key = {"fold": NO_FOLD, "epoch": 1, "held_out_rows": 0}
    for row in rows:
        if row["status"] != "ok":
            return row | key
    documents = sum(row["documents"] for row in rows)
    error = math.fsum(row["progressive_error"] * row["documents"] for row in rows) / documents
    return rows[-1] | key | {"rows": documents, "progressive_error": error}
