"""Claims of Oiwa et al. 2011 and 2012, and their published tables."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from sparseoco.core.formatting import integer, percent
from sparseoco.papers import claims
from sparseoco.papers.claims import Comparison, Finding, Measured, Pair
from sparseoco.papers.rows import Records, Row, column, grouped, mean, select
from sparseoco.storage.locations import read_toml

# ----------------------------------------------------------------------------------------------------------------------
# The methods and printed results of Oiwa, Matsushima and Nakagawa, 2012 (STDA) and 2011 (SGFT).


class PrintedResult(NamedTuple):
    """A cell of a table: error and sparsity, and the deviation of the error if it is printed, as shares."""

    error: float
    sparsity: float
    deviation: float | None = None


class PrintedTable(NamedTuple):
    """A table of a paper: by set of documents, then by method."""

    name: str
    title: str
    methods: tuple[str, ...]
    results: Mapping[str, Mapping[str, PrintedResult]]


STDA_INF, RDA = "STDA p = ∞", "RDA"
SG_L1_CUMULATIVE: Final = "SG-L1, cumulative"
SGFT_CUMULATIVE: Final = "SGFT p = 2, cumulative"
OTHER_GAMMAS: Final = ("STDA p = ∞, γ = 0.1", "STDA p = ∞, γ = 10")
NOT_PRINTED: Final = {
    "Not printed: the cumulative forms of §4, on two classes, not of all words": (SGFT_CUMULATIVE, SG_L1_CUMULATIVE),
    "Not printed: β_t = γ√t with other γ, on all sets but those of all words": OTHER_GAMMAS,
}
"""Methods that the papers mention and that their tables do not have: the forms that §4 of 2011 derives, and those of
§V-A of 2012 with β_t ∝ √t."""
UNPRINTED: Final = frozenset(method for methods in NOT_PRINTED.values() for method in methods)
"""They run neither on all words of reviews nor on more than two classes, which take most of the time."""


def _result(cell: Sequence[float]) -> PrintedResult:
    """From per cent: (error, sparsity), or, as in 2011, (precision, deviation, sparsity)."""
    if len(cell) == 2:
        return PrintedResult(*(value / 100 for value in cell))
    precision, deviation, sparsity = cell
    return PrintedResult(round(100 - precision, 2) / 100, sparsity / 100, deviation / 100)


def _table(table: dict[str, Any]) -> PrintedTable:
    methods = tuple(table["methods"])
    results = {
        data_set: dict(zip(methods, map(_result, cells), strict=True)) for data_set, cells in table["rows"].items()
    }
    return PrintedTable(table["name"], table["title"], methods, results)


_PRINTED = read_toml(Path(__file__).with_name("published.toml"))
STDA_TABLES: Final = tuple(map(_table, _PRINTED["stda"]))
SGFT_TABLES: Final = tuple(map(_table, _PRINTED["sgft"]))
SAMPLES: Final[dict[str, list[tuple[str, int]]]] = _PRINTED["samples"]
"""Table V of 2012, by method: features and their occurrences."""


# ----------------------------------------------------------------------------------------------------------------------
# Methods compared on a data set, fold by fold: errors and sparsities with a rule's λ, and errors at equal sparsity.


MEAN: Final = "mean of the sets"
"""Where a claim is tested on all sets together."""


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


class SetRows(NamedTuple):
    """The rows of a data set: with a rule's λ, and of all λ."""

    title: str
    folds: Sequence[Row]
    paths: Sequence[Row]

    def shares(self, method: str, name: str = "error") -> list[float]:
        """The errors, sparsities or, as the negative of sparsity, nonzero weights of a method, a share per fold."""
        rows = select(self.folds, method=method)
        return [-row["sparsity"] for row in rows] if name == "nonzero weights" else column(rows, name)

    def text(self, method: str) -> str:
        """Mean error, and sparsity in parentheses, as in the papers' tables."""
        error, sparsity = (percent(mean(self.shares(method, name))) for name in ("error", "sparsity"))
        return f"{error} ({sparsity})"

    def fold_paths(self, method: str) -> list[list[Row]]:
        """The rows of the λ of a method, fold by fold."""
        return grouped(select(self.paths, method=method), "fold")

    def errors_at(self, method: str, sparsity: float) -> list[float] | None:
        """`error_at` in every fold; None if the λ of a fold do not enclose this sparsity."""
        errors = [error_at(path, sparsity) for path in self.fold_paths(method)]
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
        claims.in_the_mean([[parts[k] for parts in group] for group in groups.values()])
        for k in range(len(found[0].evidence))
    ]
    here = f"{sum(map(len, groups.values()))} sets; those of one corpus count as one: {', '.join(groups)}"
    return [*found, found[0]._replace(where=MEAN, here=here, evidence=tuple(evidence))]


# ----------------------------------------------------------------------------------------------------------------------
# Measures of the claims in claims.toml, each on every data set. Methods are compared fold by fold, with the λ of a
# rule, and at equal sparsity, where no rule matters.


SPARSE: Final = 0.8
"""Sparsity at which methods are compared, and from which on weights count as sparse."""
CLAIMS: Final = {name: claims.read_claims(__file__, name) for name in ("stda", "sgft")}

_pair = partial(Pair, percent=True, overlap=claims.FOLDS_OVERLAP)
"""Shares in the ten folds of a cross-validation."""


def truncation_claims(name: str, records: Records, rule: str) -> list[Finding]:
    """The claims of a paper, stda or sgft, with this rule for λ: on every set, and all but those on bounds and printed
    results on the mean of the sets."""
    of_rule = records | {table: select(records[table], rule=rule) for table in ("folds", "results")}
    found: list[Finding] = []
    for claim in CLAIMS[name]:
        own = claims.find_evidence([claim], Measures(of_rule))
        found += own if claim.measure == "printed_errors" else with_mean(records, own)
    return found


class Measures(NamedTuple):
    """What the claims are tested on: `measure` in claims.toml is the name of a method."""

    records: Records

    def _sets(self) -> Iterator[SetRows]:
        for row in self.records["sets"]:
            folds, paths = (select(self.records[table], set=row["set"]) for table in ("folds", "paths"))
            yield SetRows(row["title"], folds, paths)

    def folds(
        self, pairs: Sequence[Sequence[str]], shares: Sequence[str] = ("error",), *, margin: float = 0.0
    ) -> Iterator[Measured]:
        """Shares of both methods of each pair, of the first less the margin, on every set that has them."""
        for own in self._sets():
            if not {name for names in pairs for name in names} <= {row["method"] for row in own.folds}:
                continue
            texts, values = [], []
            for ours, theirs in pairs:
                text = f"{own.text(ours)}, {own.text(theirs)}"
                texts.append(f"{ours} and {theirs}: {text}" if len(pairs) > 1 else text)
                what = f"{ours} − {theirs}" if len(pairs) > 1 else ""
                for name in shares:
                    left = [share - margin for share in own.shares(ours, name)]
                    label = f"{ours} − {100 * margin:g} points − {theirs}" if margin else what
                    label = f"{what} {name}".strip() if len(shares) > 1 else label
                    values.append(_pair(left, own.shares(theirs, name), label))
            yield Measured(own.title, "; ".join(texts), values)

    def folds_together(self, pairs: Sequence[Sequence[str]]) -> Iterator[Measured]:
        return (place._replace(values=[place.values]) for place in self.folds(pairs))

    def errors_at_sparsity(
        self, ours: str, theirs: str, here: str = "{ours} and {theirs}", factor: float = 1.0
    ) -> Iterator[Measured]:
        """A factor of the error of one method, and the error of another."""
        for own in self._sets():
            left, right = (own.errors_at(name, SPARSE) for name in (ours, theirs))
            pair = None if left is None or right is None else _pair([factor * error for error in left], right)
            yield Measured(own.title, here.format(ours=errors_text(left), theirs=errors_text(right)), [pair])

    def error_lost(self, methods: Sequence[str]) -> Iterator[Measured]:
        """What sparse weights of each method lose against the least error of its λ; the first against the others."""
        for own in self._sets():
            texts, rises = [], []
            for name in methods:
                least = [min(column(path, "error")) for path in own.fold_paths(name)]
                sparse = own.errors_at(name, SPARSE)
                rises.append(None if sparse is None else [a - b for a, b in zip(sparse, least, strict=True)])
                texts.append(f"{name}: least error {percent(mean(least))}, then {errors_text(sparse)}")
            values = [
                None if rises[0] is None or rise is None else _pair(rise, rises[0], f"{name} − {methods[0]}")
                for name, rise in zip(methods[1:], rises[1:], strict=True)
            ]
            yield Measured(own.title, "; ".join(texts), values)

    def lines(self) -> Iterator[Measured]:
        """Figure 2 of 2012, where both methods select features in every fold, of two folds or more."""
        for data_set in self.records["sets"]:
            rows = select(self.records["frequencies"], set=data_set["set"])
            folds = [set(column(select(rows, method=name), "fold")) for name in (STDA_INF, RDA)]
            if not len(folds[0]) == len(folds[1]) > 1:
                continue
            shares = []
            for fold in sorted({row["fold"] for row in rows}):
                ours, theirs = (column(select(rows, fold=fold, method=name), "count") for name in (STDA_INF, RDA))
                shares.append(mean(float(a < b) for a, b in zip(ours, theirs, strict=True)))
            first = [select(rows, fold=rows[0]["fold"], method=name) for name in (STDA_INF, RDA)]
            selected = " and ".join(integer(own[0]["selected"]) for own in first)
            half = " and ".join(integer(own[len(own) // 2]["count"]) for own in first)
            here = (
                f"{percent(mean(shares))} of the line is below; in the first fold half of the selected features "
                f"({selected}) occur no more than {half} times"
            )
            yield Measured(
                data_set["title"], here, [_pair([0.5] * len(shares), shares, "half − share of the line that is below")]
            )

    def norms_below(self, methods: Sequence[str], bound: float) -> Iterator[Measured]:
        """Whether the norm of a coordinate's history stays below the bound in every fold, with the λ of the rule."""
        for own in self._sets():
            texts, holds = [], []
            for name in methods:
                norms = {(row["fold"], row["lam"]): row["norm"] for row in select(own.paths, method=name)}
                largest = max(norms[row["fold"], row["lam"]] for row in select(own.folds, method=name))
                holds.append(largest < bound)
                texts.append(f"{name}: at most {largest:,.4g}, and {max(norms.values()):,.4g} with any λ")
            yield Measured(own.title, "; ".join(texts), holds)

    def printed_errors(self, method: str) -> Iterator[Measured]:
        """Against the printed error, which is the unit of the margin."""
        for data_set, own in zip(self.records["sets"], self._sets(), strict=True):
            results = select(self.records["results"], set=data_set["set"], method=method)
            printed = [row["paper_error"] for row in results if row["paper_error"] is not None]
            if printed:
                errors, paper = own.shares(method), printed[0]
                here = f"{own.text(method)} against {percent(paper)}"
                yield Measured(own.title, here, [_pair(errors, [paper] * len(errors), unit=paper)])
