"""Methods compared on a data set: means over folds, differences fold by fold, errors at equal sparsity."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from sparseoco.papers.statistics import below_zero, mean, paired_difference
from sparseoco.papers.tables import Records, Row, select
from sparseoco.report.formatting import percent


class FoldErrors(NamedTuple):
    """A method on a data set with λ chosen by a rule: the error of every fold, and the mean sparsity."""

    errors: tuple[float, ...]
    sparsity: float

    @property
    def error(self) -> float:
        """Mean over the folds."""
        return mean(self.errors)

    @property
    def text(self) -> str:
        """Error, and sparsity in parentheses, as in the papers' tables."""
        return f"{percent(self.error)} ({percent(self.sparsity)})"

    def dominates(self, other: "FoldErrors") -> bool:
        """Whether both means are better, as the papers compare, whose tables have no deviations."""
        return self.error < other.error and self.sparsity > other.sparsity


def fold_errors(records: Records, data_set: str, method: str, rule: str) -> FoldErrors:
    """The results of a method on a data set."""
    rows = select(records["folds"], set=data_set, method=method, rule=rule)
    return FoldErrors(tuple(row["error"] for row in rows), mean(row["sparsity"] for row in rows))


def difference(left: FoldErrors, right: FoldErrors) -> tuple[float, float]:
    """Mean of left − right in error, fold by fold, and its standard error."""
    return paired_difference(left.errors, right.errors)


def comparison_text(left: FoldErrors, right: FoldErrors) -> str:
    """Both results and their difference in percentage points."""
    average, error = difference(left, right)
    change = f"difference {100 * average:+.2f} ± {100 * error:.2f}".replace("-", "−")
    return f"{left.text} against {right.text}, {change}"


def lower_error(left: FoldErrors, right: FoldErrors) -> bool | None:
    """Whether left has the lower error; None within two standard errors of the difference."""
    return below_zero(*difference(left, right))


def error_at(path: Sequence[Row], sparsity: float) -> float | None:
    """The error at a sparsity, interpolated linearly between neighbouring λ; the least if there are several.

    None if no two neighbours enclose it.
    """
    errors = []
    for left, right in pairwise(path):
        low, high = sorted((left, right), key=lambda row: float(row["sparsity"]))
        gap = high["sparsity"] - low["sparsity"]
        if low["sparsity"] <= sparsity <= high["sparsity"] and gap > 0:
            share = (sparsity - low["sparsity"]) / gap
            errors.append(low["error"] + share * (high["error"] - low["error"]))
    return min(errors, default=None)


def error_at_sparsity(records: Records, data_set: str, method: str, sparsity: float) -> float | None:
    """`error_at` on the λ path of a method."""
    return error_at(select(records["paths"], set=data_set, method=method), sparsity)
