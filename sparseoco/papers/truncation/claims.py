"""What the papers say that their tables show, beside what they show here: a row a claim and set."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from sparseoco.papers.claims import IN_PART, claimed
from sparseoco.papers.records import Records, Row
from sparseoco.papers.truncation.comparison import (
    LeaderboardRow,
    difference,
    error_at,
    lower,
    path_of,
    said_difference,
    standing,
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
from sparseoco.report.wording import integer, percent

LEAST, SPARSEST = RULES
NEAR: Final = 0.02
"""What errors may differ from the printed ones by."""
SPARSE: Final = 0.8
"""Sparseness at which methods are compared, and from which on weights count as sparse."""


def weigh_stda(records: Records) -> list[Row]:
    """§V of 2012; λ is the sparsest within one standard error."""
    return [
        *_printed(records, SPARSEST),
        *_there(records),
        *_beaten(records),
        *_at_one_sparseness(records, STDA_INF, RDA),
        *_by_subgradient(records),
        *_unstable(records),
        *_no_difference(records),
        *_less(
            records, "STDA p = ∞ errs less than FOBOS.", "everywhere, by 1.7 to 4.4 points", STDA_INF, FOBOS, SPARSEST
        ),
        *_not_sparse(records),
        *_rarer(records),
    ]


def weigh_sgft(records: Records) -> list[Row]:
    """§5 of 2011; λ is that of the least error."""
    return [
        *_printed(records, LEAST),
        *_there(records),
        *_second_order(records),
        *_sparser_with_order(records),
        *_less(records, "SGFT p = 2 errs less than SG-L1.", "everywhere, by 0.5 to 2.5 points", SGFT_2, SG_L1, LEAST),
        *_at_one_sparseness(records, SGFT_2, SG_L1),
        *_rda(records),
        *_less(
            records,
            "The cumulative form of SGFT p = 2 errs no more than it, to within two standard errors, and is sparser.",
            "derived in §4, no figures",
            SGFT_CUMULATIVE,
            SGFT_2,
            LEAST,
            sparser=True,
        ),
    ]


def _where(records: Records) -> list[tuple[str, str]]:
    return [(row["set"], row["title"]) for row in records["sets"]]


def _printed(records: Records, rule: str) -> list[Row]:
    found = []
    for of, title in _where(records):
        rows = _cells(records, of, rule)
        near = [abs(row["error"] - row["paper_error"]) <= NEAR for row in rows]
        farthest = max(rows, key=lambda row: abs(row["error"] - row["paper_error"]))
        here = (
            f"{sum(near)} of {len(rows)} methods; the farthest, {farthest['method']}, {percent(farthest['error'])} "
            f"({percent(farthest['sparseness'])}) against {percent(farthest['paper_error'])} "
            f"({percent(farthest['paper_sparseness'])})"
        )
        claim = "Errors are as printed, to within two points, by the same rule for λ or one near it."
        found.append(_in_part(claimed(claim, "tables below", title, here, all(near)), near))
    return found


def _there(records: Records) -> list[Row]:
    """Which no rule for λ blurs."""
    found = []
    for of, title in _where(records):
        rows = [row for row in _cells(records, of, LEAST) if row["error_there"] is not None]
        near = [abs(row["error_there"] - row["paper_error"]) <= NEAR for row in rows]
        farthest = max(rows, key=lambda row: abs(row["error_there"] - row["paper_error"]), default=None)
        here = f"{sum(near)} of {len(rows)} methods whose λ reach it"
        if farthest is not None:
            here += (
                f"; the farthest, {farthest['method']}, {percent(farthest['error_there'])} against "
                f"{percent(farthest['paper_error'])} at {percent(farthest['paper_sparseness'])}"
            )
        claim = "At the sparseness that is printed, errors are as printed, to within two points."
        row = claimed(claim, "tables below", title, here, all(near) if rows else None)
        found.append(_in_part(row, near))
    return found


def _cells(records: Records, of: str, rule: str) -> list[Row]:
    """Rows of `records.RESULTS` with a printed figure, one a method."""
    rows = [row for row in records["results"] if row["table"] and (row["set"], row["rule"]) == (of, rule)]
    return list({row["method"]: row for row in reversed(rows)}.values())


def _beats(ours: LeaderboardRow, theirs: LeaderboardRow) -> bool:
    """In error and in sparseness, by the means alone: so the papers count, whose tables have no deviations."""
    return ours.error < theirs.error and ours.sparseness > theirs.sparseness


def _in_part(row: Row, parts: Sequence[bool]) -> Row:
    """A verdict that is in part where some hold and some do not."""
    return row | ({"holds": IN_PART} if any(parts) and not all(parts) else {})


def _beaten(records: Records) -> list[Row]:
    found = []
    for of, title in _where(records):
        ours, theirs = (standing(records, of, name, SPARSEST) for name in (STDA_INF, RDA))
        here = f"{ours.said} against {theirs.said}, {said_difference(ours, theirs)}"
        holds = _beats(ours, theirs)
        claim = "STDA p = ∞ beats RDA in error and in sparseness, by the means, as the paper counts."
        found.append(claimed(claim, "in 4 of 6 sets (not in electronics and ob-2-1)", title, here, holds))
    return found


def _at_one_sparseness(records: Records, ours: str, theirs: str) -> list[Row]:
    """Which no choice of λ blurs."""
    found = []
    for of, title in _where(records):
        left, right = (error_at(path_of(records, of, name), SPARSE) for name in (ours, theirs))
        holds = None if left is None or right is None else left < right
        here = f"{_reached(left)} against {_reached(right)}"
        claim = f"At a sparseness of {percent(SPARSE)}, {ours} errs less than {theirs}."
        found.append(claimed(claim, "not tried: λ is chosen by each alone", title, here, holds))
    return found


def _reached(error: float | None) -> str:
    """An error at a sparseness that not every λ path comes to."""
    return "not reached" if error is None else percent(error)


def _by_subgradient(records: Records) -> list[Row]:
    found = []
    for of, title in _where(records):
        both, said = [], []
        for name in (STDA_2, STDA_INF):
            ours, theirs = (standing(records, of, name + how, SPARSEST) for how in ("", BY_FEATURE))
            both.append(_beats(ours, theirs))
            said.append(
                f"{name.removeprefix('STDA ')}: {ours.said} against {theirs.said}, {said_difference(ours, theirs)}"
            )
        claim = "STDA p = 2 and p = ∞ by subgradient beat those by feature in error and in sparseness, by the means."
        found.append(_in_part(claimed(claim, "“in most tasks”", title, "; ".join(said), all(both)), both))
    return found


def _unstable(records: Records) -> list[Row]:
    found = []
    for of, title in _where(records):
        said = []
        rises = []
        for name in (STDA_1, STDA_2, STDA_INF):
            path = path_of(records, of, name)
            least, at = min(row["error"] for row in path), error_at(path, SPARSE)
            rises.append(None if at is None else at - least)
            said.append(f"{name.removeprefix('STDA ')}: {percent(least)} at its best, {percent(at)} there")
        first, others = rises[0], [rise for rise in rises[1:] if rise is not None]
        holds = None if first is None or not others else first > max(others)
        claim = f"STDA p = 1 cannot be made sparse ({percent(SPARSE)}) without losing more error than p = 2 and p = ∞."
        paper = "“very unstable”: no sparse vector, mostly, but 0; its sparseness is 30 to 60 % in Table III"
        found.append(claimed(claim, paper, title, "; ".join(said), holds))
    return found


def _no_difference(records: Records) -> list[Row]:
    found = []
    for of, title in _where(records):
        ours, theirs = (standing(records, of, name, SPARSEST) for name in (STDA_2, STDA_INF))
        here = f"{ours.said} against {theirs.said}, {said_difference(ours, theirs)}"
        claim = "STDA p = 2 and p = ∞ do not differ: in error, by no more than two standard errors."
        found.append(claimed(claim, "“no significant differences”", title, here, lower(ours, theirs) is None))
    return found


def _less(
    records: Records, claim: str, paper: str, ours: str, theirs: str, rule: str, *, sparser: bool = False
) -> list[Row]:
    """Of errors within two standard errors of each other it cannot be told; `sparser`: not above, and sparser."""
    found = []
    for of, title in _where(records):
        left, right = (standing(records, of, name, rule) for name in (ours, theirs))
        holds = lower(left, right)
        if sparser:
            holds = holds is not False and left.sparseness > right.sparseness
        here = f"{left.said} against {right.said}, {said_difference(left, right)}"
        found.append(claimed(claim, paper, title, here, holds))
    return found


def _not_sparse(records: Records) -> list[Row]:
    found = []
    for of, title in _where(records):
        ours, theirs = (error_at(path_of(records, of, name), SPARSE) for name in (SGFT_2, STDA_INF))
        holds = None if ours is None or theirs is None else ours > 2 * theirs
        here = f"{_reached(ours)}, where STDA p = ∞ has {_reached(theirs)}"
        claim = (
            f"SGFT p = 2 that is sparse ({percent(SPARSE)}) does not predict: more than twice the error of STDA p = ∞."
        )
        paper = "15 to 46 % at a sparseness of 80 to 86 %, and 1 to 14 % of STDA"
        found.append(claimed(claim, paper, title, here, holds))
    return found


def _rarer(records: Records) -> list[Row]:
    found = []
    for of, title in _where(records):
        curves = {
            name: [row for row in records["frequencies"] if (row["set"], row["method"]) == (of, name)]
            for name in (STDA_INF, RDA)
        }
        if not all(curves.values()):
            continue
        pairs = list(zip(*([row["count"] for row in rows] for rows in curves.values()), strict=True))
        below, above = sum(a < b for a, b in pairs), sum(a > b for a, b in pairs)
        kept = " and ".join(integer(rows[0]["kept"]) for rows in curves.values())
        half = " and ".join(integer(rows[len(rows) // 2]["count"]) for rows in curves.values())
        here = (
            f"{percent(below / len(pairs))} of the line is below, {percent(above / len(pairs))} above; half of the "
            f"features kept ({kept}) occur no more than {half} times"
        )
        claim = (
            "STDA p = ∞ keeps rarer features than RDA that keeps as many: its line in Figure 2 is below in most parts."
        )
        found.append(claimed(claim, "figure 2, of one set", title, here, below > len(pairs) / 2))
    return found


def _second_order(records: Records) -> list[Row]:
    found = []
    for of, title in _where(records):
        errors = {name: standing(records, of, name, LEAST).error for name in (SGFT_1, SGFT_2, SGFT_3, SGFT_INF)}
        place = sorted(errors.values()).index(errors[SGFT_2]) + 1
        here = ", ".join(f"{name.removeprefix('SGFT ')}: {percent(error)}" for name, error in errors.items())
        claim = "SGFT p = 2 is the best of its family, or the second."
        found.append(claimed(claim, "the best in 4 of 7 sets, the second in the others", title, here, place <= 2))
    return found


def _sparser_with_order(records: Records) -> list[Row]:
    found = []
    for of, title in _where(records):
        zeros = [standing(records, of, name, LEAST).sparseness for name in (SGFT_1, SGFT_2, SGFT_3, SGFT_INF)]
        rising = [left < right for left, right in pairwise(zeros)]
        row = claimed(
            "SGFT gets sparser as p grows.",
            "“a tendency”, from 35 to 69 % on books",
            title,
            ", ".join(f"p = {p}: {percent(zero)}" for p, zero in zip("123∞", zeros, strict=True)),
            all(rising),
        )
        found.append(_in_part(row, [*rising, zeros[0] < zeros[-1]]) if zeros[0] < zeros[-1] else row)
    return found


def _rda(records: Records) -> list[Row]:
    found = []
    for of, title in _where(records):
        rda, sgft = (standing(records, of, name, LEAST) for name in (RDA, SGFT_2))
        mean, error = difference(rda, sgft)
        here = f"{rda.said} against {sgft.said}, {said_difference(rda, sgft)}"
        fewer = rda.sparseness < sgft.sparseness
        holds = None if fewer and abs(mean) <= 2 * error else fewer and mean < 0
        claim = "RDA errs less than SGFT p = 2, and is less sparse."
        found.append(claimed(claim, "in all sets but sb-2-1", title, here, holds))
    return found
