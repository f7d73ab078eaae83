"""Methods compared on a data set, fold by fold: errors and sparsities with a rule's λ, and errors at equal sparsity."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple

from sparseoco.core.formatting import percent
from sparseoco.papers.claims import Finding
from sparseoco.papers.statistics import FOLDS_OVERLAP, Comparison, equal, in_the_mean, less, mean
from sparseoco.papers.tables import Records, Row, distinct, select

lower: Final[Callable[..., Comparison]] = partial(less, overlap=FOLDS_OVERLAP, percent=True)
"""Whether left is lower, of shares in the ten folds of a cross-validation."""
same: Final[Callable[..., Comparison]] = partial(equal, overlap=FOLDS_OVERLAP, percent=True)
"""Whether they differ by less than a margin."""

MEAN: Final = "mean of the sets"
"""Where a claim is tested on all sets together."""


class FoldResults(NamedTuple):
    """A method on a data set with λ chosen by a rule: error and sparsity of every fold."""

    errors: tuple[float, ...]
    sparsities: tuple[float, ...]

    @property
    def text(self) -> str:
        """Mean error, and sparsity in parentheses, as in the papers' tables."""
        return f"{percent(mean(self.errors))} ({percent(mean(self.sparsities))})"


def fold_results(records: Records, data_set: str, method: str, rule: str) -> FoldResults:
    """The results of a method on a data set."""
    rows = select(records["folds"], set=data_set, method=method, rule=rule)
    return FoldResults(tuple(row["error"] for row in rows), tuple(row["sparsity"] for row in rows))


def mean_path(rows: Sequence[Row]) -> list[Row]:
    """A row per λ, in the order given: error and sparsity averaged over the folds."""
    return [
        {"lam": lam, **{name: mean(row[name] for row in select(rows, lam=lam)) for name in ("error", "sparsity")}}
        for lam in distinct(rows, "lam")
    ]


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


def fold_paths(records: Records, data_set: str, method: str) -> list[list[Row]]:
    """The rows of the λ of a method, fold by fold."""
    rows = select(records["paths"], set=data_set, method=method)
    return [select(rows, fold=fold) for fold in distinct(rows, "fold")]


def errors_at_sparsity(records: Records, data_set: str, method: str, sparsity: float) -> list[float] | None:
    """`error_at` in every fold; None if the λ of a fold do not enclose this sparsity."""
    errors = [error_at(path, sparsity) for path in fold_paths(records, data_set, method)]
    found = [error for error in errors if error is not None]
    return found if len(found) == len(errors) else None


def errors_text(errors: Sequence[float] | None) -> str:
    """The mean of errors at a sparsity that not every λ path reaches."""
    return "not reached in every fold" if errors is None else percent(mean(errors))


def with_mean(records: Records, found: list[Finding]) -> list[Finding]:
    """The findings of a claim on every set and, where it was compared on sets of two or more corpora, on their mean.

    Sets of one corpus, as reviews in two forms or newsgroups in several sets, may share documents and count as one.
    """
    corpora = {row["title"]: row["corpus"] for row in records["sets"]}
    groups: dict[str, list[list[Comparison]]] = {}
    for row in found:
        parts = [part for part in row.evidence if isinstance(part, Comparison)]
        if len(parts) == len(row.evidence):
            groups.setdefault(corpora[row.where], []).append(parts)
    if len(groups) < 2:
        return found
    evidence = [
        in_the_mean([[parts[k] for parts in group] for group in groups.values()]) for k in range(len(found[0].evidence))
    ]
    here = f"{sum(map(len, groups.values()))} sets; those of one corpus count as one: {', '.join(groups)}"
    return [*found, found[0]._replace(where=MEAN, here=here, evidence=tuple(evidence))]
