"""Methods side by side on one set: means over folds, differences fold by fold, errors at one sparseness."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from sparseoco.papers.means import below, mean_and_error
from sparseoco.papers.records import Records, Row
from sparseoco.report.wording import percent


class LeaderboardRow(NamedTuple):
    """A method on a set, by a rule: error in each fold, means."""

    errors: tuple[float, ...]
    sparseness: float

    @property
    def error(self) -> float:
        """Mean over the folds."""
        return sum(self.errors) / len(self.errors)

    @property
    def said(self) -> str:
        """Error, and sparseness in parentheses, as the papers' tables have them."""
        return f"{percent(self.error)} ({percent(self.sparseness)})"


def standing(records: Records, of: str, method: str, rule: str) -> LeaderboardRow:
    """A method on a set."""
    rows = [row for row in records["folds"] if (row["set"], row["method"], row["rule"]) == (of, method, rule)]
    return LeaderboardRow(tuple(row["error"] for row in rows), sum(row["sparseness"] for row in rows) / len(rows))


def difference(left: LeaderboardRow, right: LeaderboardRow) -> tuple[float, float]:
    """Mean of left less right in error, fold by fold, and its standard error."""
    return mean_and_error([a - b for a, b in zip(left.errors, right.errors, strict=True)])


def said_difference(left: LeaderboardRow, right: LeaderboardRow) -> str:
    """The difference in points of a per cent."""
    mean, error = difference(left, right)
    return f"difference {100 * mean:+.2f} ± {100 * error:.2f}".replace("-", "−")


def lower(left: LeaderboardRow, right: LeaderboardRow) -> bool | None:
    """Whether one errs less than the other; None where they are within two standard errors of the difference."""
    return below(*difference(left, right))


def path_of(records: Records, of: str, method: str) -> list[Row]:
    """Error and sparseness of every λ, in its order."""
    return [row for row in records["paths"] if (row["set"], row["method"]) == (of, method)]


def error_at(path: Sequence[Row], sparseness: float) -> float | None:
    """The error at a sparseness, on the lines between neighbouring λ; the least where it is passed more than once.

    None where no two neighbours are on either side of it.
    """
    found = []
    for left, right in pairwise(path):
        low, high = sorted((left, right), key=lambda row: float(row["sparseness"]))
        gap = high["sparseness"] - low["sparseness"]
        if low["sparseness"] <= sparseness <= high["sparseness"] and gap > 0:
            share = (sparseness - low["sparseness"]) / gap
            found.append(low["error"] + share * (high["error"] - low["error"]))
    return min(found, default=None)
