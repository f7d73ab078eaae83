"""What the papers claim of their tables, and what was measured: a row per claim and data set."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from sparseoco.papers.claims import Finding, claim_rows
from sparseoco.papers.tables import Records, Row, select
from sparseoco.papers.truncation.comparison import (
    comparison_text,
    difference,
    error_at_sparsity,
    fold_errors,
    lower_error,
)
from sparseoco.papers.truncation.published import (
    BY_FEATURE,
    FOBOS,
    RDA,
    SG_L1,
    SGFT_1,
    SGFT_2,
    SGFT_3,
    SGFT_CUMULATIVE,
    SGFT_INF,
    STDA_1,
    STDA_2,
    STDA_INF,
)
from sparseoco.papers.truncation.validation import RULES
from sparseoco.report.formatting import integer, percent

LEAST, SPARSEST = RULES
TOLERANCE: Final = 0.02
"""The largest difference of an error from the printed one."""
SPARSE: Final = 0.8
"""Sparsity at which methods are compared, and from which on weights count as sparse."""
_SPARSE: Final = percent(SPARSE)


def stda_claims(records: Records) -> list[Finding]:
    """§V of 2012; λ is the sparsest within one standard error."""
    return [
        *_as_printed(records, SPARSEST),
        *_as_printed_at_sparsity(records),
        *_dominates_rda(records),
        *_lower_at_sparsity(records, STDA_INF, RDA),
        *_by_subgradient(records),
        *_unstable(records),
        *_no_difference(records),
        *_lower_error(
            *(records, "STDA p = ∞ has a lower error than FOBOS.", "everywhere, by 1.7 to 4.4 points"),
            *(STDA_INF, FOBOS, SPARSEST),
        ),
        *_not_sparse(records),
        *_rarer(records),
    ]


def sgft_claims(records: Records) -> list[Finding]:
    """§5 of 2011; λ is that of the least error."""
    return [
        *_as_printed(records, LEAST),
        *_as_printed_at_sparsity(records),
        *_second_order(records),
        *_sparser_with_order(records),
        *_lower_error(
            *(records, "SGFT p = 2 has a lower error than SG-L1.", "everywhere, by 0.5 to 2.5 points"),
            *(SGFT_2, SG_L1, LEAST),
        ),
        *_lower_at_sparsity(records, SGFT_2, SG_L1),
        *_rda(records),
        *_cumulative(records),
    ]


def _data_sets(records: Records) -> list[tuple[str, str]]:
    return [(row["title"], row["set"]) for row in records["sets"]]


def _printed_sets(records: Records) -> list[tuple[str, str]]:
    """The sets that the paper prints results of."""
    return [(title, name) for title, name in _data_sets(records) if _results(records, name, LEAST)]


def _results(records: Records, data_set: str, rule: str) -> list[Row]:
    """Rows with a printed result, one per method."""
    rows = [row for row in select(records["results"], set=data_set, rule=rule) if row["paper_error"] is not None]
    return list({row["method"]: row for row in reversed(rows)}.values())


def _near(rows: Sequence[Row], column: str) -> tuple[list[bool], Row | None]:
    """Which errors are near the printed ones, and the row of the largest difference."""

    def distance(row: Row) -> float:
        return float(abs(row[column] - row["paper_error"]))

    return [distance(row) <= TOLERANCE for row in rows], max(rows, key=distance, default=None)


def _as_printed(records: Records, rule: str) -> list[Finding]:
    def measure(data_set: str) -> Sequence[Any]:
        near, farthest = _near(_results(records, data_set, rule), "error")
        assert farthest is not None
        ours, paper = (
            f"{percent(farthest[f'{prefix}error'])} ({percent(farthest[f'{prefix}sparsity'])})"
            for prefix in ("", "paper_")
        )
        here = f"{sum(near)} of {len(near)} methods; the farthest, {farthest['method']}, {ours} against {paper}"
        return here, *near

    claim = "Errors are as printed, to within two points, by the same rule for λ or a similar one."
    return claim_rows(claim, "tables below", _printed_sets(records), measure)


def _as_printed_at_sparsity(records: Records) -> list[Finding]:
    """Which does not depend on the rule for λ."""

    def measure(data_set: str) -> Sequence[Any]:
        rows = [row for row in _results(records, data_set, LEAST) if row["error_there"] is not None]
        near, farthest = _near(rows, "error_there")
        here = f"{sum(near)} of {len(rows)} methods whose λ reach it"
        if farthest is not None:
            here += (
                f"; the farthest, {farthest['method']}, {percent(farthest['error_there'])} against "
                f"{percent(farthest['paper_error'])} at {percent(farthest['paper_sparsity'])}"
            )
        return here, *near

    claim = "At the printed sparsity, errors are as printed, to within two points."
    return claim_rows(claim, "tables below", _printed_sets(records), measure)


def _dominates_rda(records: Records) -> list[Finding]:
    def measure(data_set: str) -> Sequence[Any]:
        ours, theirs = (fold_errors(records, data_set, name, SPARSEST) for name in (STDA_INF, RDA))
        return comparison_text(ours, theirs), ours.dominates(theirs)

    claim = "STDA p = ∞ beats RDA in error and in sparsity, by the means, as the paper counts."
    paper = "in 4 of 6 sets (not in electronics and ob-2-1)"
    return claim_rows(claim, paper, _data_sets(records), measure)


def _lower_at_sparsity(records: Records, ours: str, theirs: str) -> list[Finding]:
    """Which does not depend on a choice of λ."""

    def measure(data_set: str) -> Sequence[Any]:
        left, right = (error_at_sparsity(records, data_set, name, SPARSE) for name in (ours, theirs))
        holds = None if left is None or right is None else left < right
        return f"{_error_text(left)} against {_error_text(right)}", holds

    claim = f"At a sparsity of {_SPARSE}, {ours} has a lower error than {theirs}."
    return claim_rows(claim, "not tested: each method has its own λ", _data_sets(records), measure)


def _error_text(error: float | None) -> str:
    """An error at a sparsity that not every λ path reaches."""
    return "not reached" if error is None else percent(error)


def _by_subgradient(records: Records) -> list[Finding]:
    def measure(data_set: str) -> Sequence[Any]:
        texts, holds = [], []
        for name in (STDA_2, STDA_INF):
            ours, theirs = (fold_errors(records, data_set, name + by, SPARSEST) for by in ("", BY_FEATURE))
            holds.append(ours.dominates(theirs))
            texts.append(f"{name.removeprefix('STDA ')}: {comparison_text(ours, theirs)}")
        return "; ".join(texts), *holds

    claim = "STDA p = 2 and p = ∞ by subgradient beat those by feature in error and in sparsity, by the means."
    return claim_rows(claim, "“in most tasks”", _data_sets(records), measure)


def _unstable(records: Records) -> list[Finding]:
    def measure(data_set: str) -> Sequence[Any]:
        texts, rises = [], []
        for name in (STDA_1, STDA_2, STDA_INF):
            least = min(row["error"] for row in select(records["paths"], set=data_set, method=name))
            sparse = error_at_sparsity(records, data_set, name, SPARSE)
            rises.append(None if sparse is None else sparse - least)
            texts.append(f"{name.removeprefix('STDA ')}: least error {percent(least)}, {percent(sparse)} there")
        first, others = rises[0], [rise for rise in rises[1:] if rise is not None]
        return "; ".join(texts), None if first is None or not others else first > max(others)

    claim = f"STDA p = 1 cannot be made sparse ({_SPARSE}) without losing more error than p = 2 and p = ∞."
    paper = "“very unstable”: no sparse vector, mostly, but 0; its sparsity is 30 to 60 % in Table III"
    return claim_rows(claim, paper, _data_sets(records), measure)


def _no_difference(records: Records) -> list[Finding]:
    def measure(data_set: str) -> Sequence[Any]:
        ours, theirs = (fold_errors(records, data_set, name, SPARSEST) for name in (STDA_2, STDA_INF))
        return comparison_text(ours, theirs), lower_error(ours, theirs) is None

    claim = "STDA p = 2 and p = ∞ do not differ in error by more than two standard errors."
    return claim_rows(claim, "“no significant differences”", _data_sets(records), measure)


def _lower_error(records: Records, claim: str, paper: str, ours: str, theirs: str, rule: str) -> list[Finding]:
    def measure(data_set: str) -> Sequence[Any]:
        left, right = (fold_errors(records, data_set, name, rule) for name in (ours, theirs))
        return comparison_text(left, right), lower_error(left, right)

    return claim_rows(claim, paper, _data_sets(records), measure)


def _cumulative(records: Records) -> list[Finding]:
    def measure(data_set: str) -> Sequence[Any]:
        ours, theirs = (fold_errors(records, data_set, name, LEAST) for name in (SGFT_CUMULATIVE, SGFT_2))
        holds = lower_error(ours, theirs) is not False and ours.sparsity > theirs.sparsity
        return comparison_text(ours, theirs), holds

    claim = "The cumulative form of SGFT p = 2 has no higher error, to within two standard errors, and is sparser."
    return claim_rows(claim, "derived in §4, no figures", _data_sets(records), measure)


def _not_sparse(records: Records) -> list[Finding]:
    def measure(data_set: str) -> Sequence[Any]:
        sgft, stda = (error_at_sparsity(records, data_set, name, SPARSE) for name in (SGFT_2, STDA_INF))
        holds = None if sgft is None or stda is None else sgft > 2 * stda
        return f"{_error_text(sgft)}, where STDA p = ∞ has {_error_text(stda)}", holds

    claim = f"Sparse ({_SPARSE}) SGFT p = 2 does not predict: more than twice the error of STDA p = ∞."
    paper = "15 to 46 % at a sparsity of 80 to 86 %, and 1 to 14 % of STDA"
    return claim_rows(claim, paper, _data_sets(records), measure)


def _rarer(records: Records) -> list[Finding]:
    def measure(curves: list[list[Row]]) -> Sequence[Any]:
        pairs = list(zip(*([row["count"] for row in rows] for rows in curves), strict=True))
        below, above = sum(a < b for a, b in pairs), sum(a > b for a, b in pairs)
        selected = " and ".join(integer(rows[0]["selected"]) for rows in curves)
        half = " and ".join(integer(rows[len(rows) // 2]["count"]) for rows in curves)
        here = (
            f"{percent(below / len(pairs))} of the line is below, {percent(above / len(pairs))} above; half of the "
            f"selected features ({selected}) occur no more than {half} times"
        )
        return here, below > len(pairs) / 2

    places = [
        (title, [select(records["frequencies"], set=data_set, method=name) for name in (STDA_INF, RDA)])
        for title, data_set in _data_sets(records)
    ]
    claim = "STDA p = ∞ selects rarer features than RDA with as many: its line in Figure 2 is below in most parts."
    return claim_rows(claim, "figure 2, of one set", [place for place in places if all(place[1])], measure)


def _second_order(records: Records) -> list[Finding]:
    def measure(data_set: str) -> Sequence[Any]:
        methods = (SGFT_1, SGFT_2, SGFT_3, SGFT_INF)
        errors = {name: fold_errors(records, data_set, name, LEAST).error for name in methods}
        here = ", ".join(f"{name.removeprefix('SGFT ')}: {percent(error)}" for name, error in errors.items())
        return here, sorted(errors.values()).index(errors[SGFT_2]) < 2

    claim = "SGFT p = 2 is the best of its family, or the second."
    return claim_rows(claim, "the best in 4 of 7 sets, the second in the others", _data_sets(records), measure)


def _sparser_with_order(records: Records) -> list[Finding]:
    def measure(data_set: str) -> Sequence[Any]:
        methods = (SGFT_1, SGFT_2, SGFT_3, SGFT_INF)
        zeros = [fold_errors(records, data_set, name, LEAST).sparsity for name in methods]
        here = ", ".join(f"p = {p}: {percent(zero)}" for p, zero in zip("123∞", zeros, strict=True))
        if zeros[0] >= zeros[-1]:
            return here, False
        return here, True, *(left < right for left, right in pairwise(zeros))

    claim = "SGFT gets sparser as p grows."
    return claim_rows(claim, "“a tendency”, from 35 to 69 % on books", _data_sets(records), measure)


def _rda(records: Records) -> list[Finding]:
    def measure(data_set: str) -> Sequence[Any]:
        rda, sgft = (fold_errors(records, data_set, name, LEAST) for name in (RDA, SGFT_2))
        average, error = difference(rda, sgft)
        denser = rda.sparsity < sgft.sparsity
        return comparison_text(rda, sgft), None if denser and abs(average) <= 2 * error else denser and average < 0

    claim = "RDA has a lower error than SGFT p = 2, and is less sparse."
    return claim_rows(claim, "in all sets but sb-2-1", _data_sets(records), measure)
