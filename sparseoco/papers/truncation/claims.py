"""Claims of Oiwa et al. 2011 and 2012, and their published tables."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from sparseoco.core.formatting import integer, percent
from sparseoco.papers.claims import (
    FOLDS_OVERLAP,
    OWN,
    Comparison,
    Evidence,
    Finding,
    Records,
    Row,
    at_least,
    claim_rows,
    distinct,
    equal,
    in_the_mean,
    less,
    mean,
    select,
)
from sparseoco.storage.locations import read_toml

# ----------------------------------------------------------------------------------------------------------------------
# The methods and printed results of Oiwa, Matsushima and Nakagawa, 2012 (STDA) and 2011 (SGFT).


class PrintedResult(NamedTuple):
    """A cell of a table: error and sparsity, per cent, and the deviation of the error if it is printed."""

    error: float
    sparsity: float
    deviation: float | None = None


class PrintedTable(NamedTuple):
    """A table of a paper: by set of documents, then by method."""

    name: str
    title: str
    methods: tuple[str, ...]
    results: Mapping[str, Mapping[str, PrintedResult]]


STDA_1, STDA_2, STDA_INF = "STDA p = 1", "STDA p = 2", "STDA p = ∞"
BY_FEATURE: Final = ", by feature"
RDA, FOBOS, SG_L1, CUMULATIVE = "RDA", "FOBOS", "SG-L1", "SG-L1, cumulative"
SGFT_1, SGFT_2, SGFT_3, SGFT_INF = "SGFT p = 1", "SGFT p = 2", "SGFT p = 3", "SGFT p = ∞"
SGFT_CUMULATIVE: Final = "SGFT p = 2, cumulative"
OTHER_GAMMAS: Final = ("STDA p = ∞, γ = 0.1", "STDA p = ∞, γ = 10")
NOT_PRINTED: Final = {
    "Not printed: the cumulative forms of §4, on two classes, not of all words": (SGFT_CUMULATIVE, CUMULATIVE),
    "Not printed: β_t = γ√t with other γ, on all sets but those of all words": OTHER_GAMMAS,
}
"""Methods that the papers mention and that their tables do not have: the forms that §4 of 2011 derives, and those of
§V-A of 2012 with β_t ∝ √t."""
UNPRINTED: Final = frozenset(method for methods in NOT_PRINTED.values() for method in methods)
"""They run neither on all words of reviews nor on more than two classes, which take most of the time."""


def _result(cell: Sequence[float]) -> PrintedResult:
    """From (error, sparsity), or, as in 2011, (precision, deviation, sparsity)."""
    if len(cell) == 2:
        return PrintedResult(*cell)
    precision, deviation, sparsity = cell
    return PrintedResult(round(100 - precision, 2), sparsity, deviation)


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


# ----------------------------------------------------------------------------------------------------------------------
# What the papers claim of their experiments, and what was measured: one finding per claim and data set.
#
# Methods are compared fold by fold, with λ chosen by a rule, and at equal sparsity, where no rule matters.


MARGIN: Final = 0.0025
"""A difference in error that counts as none: a tenth of the mean gain of STDA over FOBOS in Table IV, 2.5 points."""
SPARSITY_MARGIN: Final = 0.05
"""A loss of sparsity that counts as none; in Table 4 any margin between 0.02 and 13.9 points gives the same verdicts,
in 4 of 7 sets for the claim."""
PRINTED_SHARE: Final = 0.1
"""The part of a printed error by which ours may differ from it."""
SPARSE: Final = 0.8
"""Sparsity at which methods are compared, and from which on weights count as sparse."""
STDA_V, SGFT_V = 1e8, 500.0
"""The bounds V of the papers, which their experiments never reached."""
_SPARSE: Final = percent(SPARSE)
_MARGIN: Final = "less than 0.25 points"
_ORDERS: Final = (SGFT_1, SGFT_2, SGFT_3, SGFT_INF)

Measured = tuple[Any, ...]
"""The text of what was measured, then the evidence."""


def stda_claims(records: Records, rule: str) -> list[Finding]:
    """§V of 2012, with this rule for λ."""
    return [
        *_dominates(
            *(records, rule, f"{STDA_INF} has a lower error than RDA and is sparser."),
            *("in 4 of 6 sets (not in electronics and ob-2-1)", [(STDA_INF, RDA)]),
        ),
        *_lower_at_sparsity(records, STDA_INF, RDA),
        *_dominates(
            *(records, rule, "STDA p = 2 and p = ∞ by subgradient have a lower error than by feature and are sparser."),
            *("“in most tasks”", [(name, name + BY_FEATURE) for name in (STDA_2, STDA_INF)]),
        ),
        *_unstable(records),
        *_no_difference(
            *(records, rule, f"The errors of STDA p = 2 and p = ∞ differ by {_MARGIN}."),
            *("“no significant differences”; 0.1 to 1 points in Table III", [(STDA_2, STDA_INF)]),
        ),
        *_lower_error(
            *(records, rule, f"{STDA_INF} has a lower error than FOBOS."),
            *("in all sets, by 1.7 to 4.4 points", [(STDA_INF, FOBOS)]),
        ),
        *_lower_error(
            *(records, rule, "RDA has a lower error than FOBOS."),
            *("“a significant advantage”: in all sets, by 1.0 to 3.7 points", [(RDA, FOBOS)]),
        ),
        *_not_sparse(records),
        *_rarer(records),
        *_no_difference(
            *(
                records,
                rule,
                f"Errors of {STDA_INF} with γ = 1/10 and 10, λ tuned again, differ by {_MARGIN} from γ = 1.",
            ),
            *("β_t “had an insignificant effect on the results as long as it satisfied β_t ∝ √t”",),
            [(STDA_INF, name) for name in OTHER_GAMMAS],
        ),
        *_below_bound(
            *(records, rule, "r never attains V = 10⁸.", "so that V “did not influence the result”"),
            *((STDA_1, STDA_2, STDA_INF, *(name + BY_FEATURE for name in (STDA_1, STDA_2, STDA_INF))), STDA_V),
        ),
        *_as_printed(records, rule, STDA_INF),
    ]


def sgft_claims(records: Records, rule: str) -> list[Finding]:
    """§5 of 2011, with this rule for λ."""
    return [
        *_best_or_second(records, rule),
        *_sparser(
            *(records, rule, "SGFT gets sparser as p grows.", "“a tendency”; in Table 3 in all steps but one"),
            list(pairwise(_ORDERS)),
        ),
        *_lower_error(
            *(records, rule, f"{SGFT_2} has a lower error than SG-L1."),
            *("in all sets, by 0.5 to 2.5 points", [(SGFT_2, SG_L1)]),
        ),
        *_not_less_sparse(records, rule),
        *_lower_at_sparsity(records, SGFT_2, SG_L1),
        *_lower_error(
            *(records, rule, f"RDA has a lower error than {SGFT_2}.", "in all sets but sb-2-1", [(RDA, SGFT_2)]),
        ),
        *_sparser(records, rule, f"RDA is less sparse than {SGFT_2}.", "in all sets", [(RDA, SGFT_2)]),
        *_no_difference(
            *(records, rule, f"The cumulative form of {SGFT_2} has the same error, to within 0.25 points."),
            *(OWN, [(SGFT_CUMULATIVE, SGFT_2)]),
        ),
        *_sparser(records, rule, f"The cumulative form of {SGFT_2} is sparser.", OWN, [(SGFT_2, SGFT_CUMULATIVE)]),
        *_below_bound(
            *(records, rule, "h does not exceed V = 500, for p = 1 and 2.", "so that V “did not influence the result”"),
            *((SGFT_1, SGFT_2), SGFT_V),
        ),
        *_as_printed(records, rule, SGFT_2),
    ]


def _sets(records: Records) -> list[tuple[str, str]]:
    return [(row["title"], row["set"]) for row in records["sets"]]


Pairs = Sequence[tuple[str, str]]


def _compared(
    records: Records, rule: str, claim: str, paper: str, pairs: Pairs, test: Callable[..., Sequence[Evidence]]
) -> list[Finding]:
    """`test(left, right, what)` of the results of each pair of methods, on every set that has them."""
    ran = {(row["set"], row["method"]) for row in records["folds"]}
    places = [place for place in _sets(records) if all((place[1], name) in ran for names in pairs for name in names)]

    def measure(data_set: str) -> Measured:
        texts: list[str] = []
        evidence: list[Evidence] = []
        for names in pairs:
            left, right = (fold_results(records, data_set, name, rule) for name in names)
            what = f"{names[0]} − {names[1]}"
            texts.append((f"{what.replace(' − ', ' and ')}: " if len(pairs) > 1 else "") + f"{left.text}, {right.text}")
            evidence += test(left, right, what if len(pairs) > 1 else "")
        return "; ".join(texts), *evidence

    return with_mean(records, claim_rows(claim, paper, places, measure))


def _lower_error(records: Records, rule: str, claim: str, paper: str, pairs: Pairs) -> list[Finding]:
    """That the first of each pair has the lower error."""
    return _compared(
        *(records, rule, claim, paper, pairs), lambda left, right, what: [lower(left.errors, right.errors, what)]
    )


def _sparser(records: Records, rule: str, claim: str, paper: str, pairs: Pairs) -> list[Finding]:
    """That the second of each pair is sparser."""
    return _compared(
        *(records, rule, claim, paper, pairs),
        lambda left, right, what: [lower(left.sparsities, right.sparsities, what)],
    )


def _not_less_sparse(records: Records, rule: str) -> list[Finding]:
    margin = f"{100 * SPARSITY_MARGIN:g} points"
    return _compared(
        *(records, rule, f"{SGFT_2} does not degrade the sparsity of SG-L1: here, it loses less than {margin}."),
        *("“without degrading sparsity”; in 4 of 7 sets of Table 4", [(SG_L1, SGFT_2)]),
        lambda left, right, what: [
            lower([s - SPARSITY_MARGIN for s in left.sparsities], right.sparsities, f"SG-L1 − {margin} − {SGFT_2}")
        ],
    )


def _best_or_second(records: Records, rule: str) -> list[Finding]:
    """That p = 2 has a lower error than all orders but one, or than all."""
    others = [(SGFT_2, name) for name in _ORDERS if name != SGFT_2]
    claim = f"{SGFT_2} has the lowest or second lowest error of p = 1, 2, 3 and ∞."
    rows = _lower_error(records, rule, claim, "the best in 4 of 7 sets, the second in the others", others)

    def joined(evidence: Sequence[Evidence]) -> Comparison:
        return at_least(len(others) - 1, *(part for part in evidence if isinstance(part, Comparison)))

    return [row._replace(evidence=(joined(row.evidence),)) for row in rows]


def _dominates(records: Records, rule: str, claim: str, paper: str, pairs: Pairs) -> list[Finding]:
    """That the first of each pair has the lower error and is sparser."""
    return _compared(
        *(records, rule, claim, paper, pairs),
        lambda left, right, what: [
            lower(left.errors, right.errors, f"{what} error".strip()),
            lower([-s for s in left.sparsities], [-s for s in right.sparsities], f"{what} nonzero weights".strip()),
        ],
    )


def _no_difference(records: Records, rule: str, claim: str, paper: str, pairs: Pairs) -> list[Finding]:
    """That the errors of each pair differ by less than `MARGIN`."""
    return _compared(
        *(records, rule, claim, paper, pairs), lambda left, right, what: [same(left.errors, right.errors, MARGIN, what)]
    )


def _lower_at_sparsity(records: Records, ours: str, theirs: str) -> list[Finding]:
    def measure(data_set: str) -> Measured:
        left, right = (errors_at_sparsity(records, data_set, name, SPARSE) for name in (ours, theirs))
        evidence = None if left is None or right is None else lower(left, right)
        return f"{errors_text(left)} and {errors_text(right)}", evidence

    claim = f"At a sparsity of {_SPARSE}, {ours} has a lower error than {theirs}."
    return with_mean(records, claim_rows(claim, OWN, _sets(records), measure))


def _unstable(records: Records) -> list[Finding]:
    names = (STDA_1, STDA_2, STDA_INF)

    def measure(data_set: str) -> Measured:
        texts, rises = [], []
        for name in names:
            least = [min(row["error"] for row in path) for path in fold_paths(records, data_set, name)]
            sparse = errors_at_sparsity(records, data_set, name, SPARSE)
            rises.append(None if sparse is None else [a - b for a, b in zip(sparse, least, strict=True)])
            texts.append(f"{name}: least error {percent(mean(least))}, then {errors_text(sparse)}")
        first, *others = rises
        return "; ".join(texts), *(
            None if first is None or own is None else lower(own, first, f"{name} − {STDA_1}")
            for name, own in zip(names[1:], others, strict=True)
        )

    claim = f"Made sparse ({_SPARSE}), STDA p = 1 loses more error against the least of its λ than p = 2 and p = ∞."
    paper = "“very unstable”: no sparse vector, mostly, but 0; its sparsity is 30 to 60 % in Table III"
    return with_mean(records, claim_rows(claim, paper, _sets(records), measure))


def _not_sparse(records: Records) -> list[Finding]:
    def measure(data_set: str) -> Measured:
        sgft, stda = (errors_at_sparsity(records, data_set, name, SPARSE) for name in (SGFT_2, STDA_INF))
        evidence = None if sgft is None or stda is None else lower([2 * error for error in stda], sgft)
        return f"{errors_text(sgft)}, where {STDA_INF} has {errors_text(stda)}", evidence

    claim = f"Made sparse ({_SPARSE}), {SGFT_2} has more than twice the error of {STDA_INF}."
    paper = (
        "“cannot obtain the highly predictable solution”: 15 to 46 % at a sparsity of 80 to 86 %, and 1 to 14 % of STDA"
    )
    return with_mean(records, claim_rows(claim, paper, _sets(records), measure))


def _rarer(records: Records) -> list[Finding]:
    def measure(rows: list[Row]) -> Measured:
        parts = []
        for fold in sorted({row["fold"] for row in rows}):
            ours, theirs = ([row["count"] for row in select(rows, fold=fold, method=name)] for name in (STDA_INF, RDA))
            parts.append(mean(float(a < b) for a, b in zip(ours, theirs, strict=True)))
        first = [select(rows, fold=rows[0]["fold"], method=name) for name in (STDA_INF, RDA)]
        selected = " and ".join(integer(own[0]["selected"]) for own in first)
        half = " and ".join(integer(own[len(own) // 2]["count"]) for own in first)
        here = (
            f"{percent(mean(parts))} of the line is below; in the first fold half of the selected features "
            f"({selected}) occur no more than {half} times"
        )
        return here, lower([0.5] * len(parts), parts, "half − share of the line that is below")

    places = [(title, select(records["frequencies"], set=name)) for title, name in _sets(records)]
    claim = f"{STDA_INF} selects rarer features than RDA with as many: its line in Figure 2 is below in most parts."
    places = [place for place in places if _in_all_folds(place[1])]
    return with_mean(records, claim_rows(claim, "figure 2, of one set", places, measure))


def _in_all_folds(rows: Sequence[Row]) -> bool:
    """Whether both methods select features in every fold, of two folds or more."""
    sizes = [len({row["fold"] for row in select(rows, method=name)}) for name in (STDA_INF, RDA)]
    return sizes[0] == sizes[1] > 1


def _below_bound(
    records: Records, rule: str, claim: str, paper: str, methods: Sequence[str], bound: float
) -> list[Finding]:
    """That the norm of a coordinate's history stays below the bound in every fold, with the λ of the rule."""

    def measure(data_set: str) -> Measured:
        texts, holds = [], []
        for name in methods:
            norms = {
                (row["fold"], row["lam"]): row["norm"] for row in select(records["paths"], set=data_set, method=name)
            }
            folds = select(records["folds"], set=data_set, method=name, rule=rule)
            largest = max(norms[row["fold"], row["lam"]] for row in folds)
            holds.append(largest < bound)
            texts.append(f"{name}: at most {largest:,.4g}, and {max(norms.values()):,.4g} with any λ")
        return "; ".join(texts), *holds

    return claim_rows(claim, paper, _sets(records), measure)


def _as_printed(records: Records, rule: str, method: str) -> list[Finding]:
    printed = {
        row["set"]: row["paper_error"]
        for row in select(records["results"], method=method, rule=rule)
        if row["paper_error"] is not None
    }

    def measure(data_set: str) -> Measured:
        ours, paper = fold_results(records, data_set, method, rule), printed[data_set]
        margin = PRINTED_SHARE * paper
        return f"{ours.text} against {percent(paper)}", same(ours.errors, [paper] * len(ours.errors), margin)

    claim = f"The error of {method} is as printed, to within a tenth of it."
    return claim_rows(claim, OWN, [place for place in _sets(records) if place[1] in printed], measure)
