"""Claims of a paper and what was measured: one row per claim and data set."""

from collections.abc import Callable, Iterable, Sequence
from math import floor, log10
from typing import Any, Final, NamedTuple, TypeVar

from sparseoco.papers.tables import Row, distinct, select
from sparseoco.report.formatting import PERCENT

YES: Final = "yes"
IN_PART: Final = "in part"
NO: Final = "no"
INCONCLUSIVE: Final = "inconclusive"
PLUS_MINUS: Final = "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}"

Holds = bool | None
"""None: inconclusive."""
_Place = TypeVar("_Place")


def verdict(*holds: Holds) -> str:
    """One word for whether a claim holds in all the ways it was tested.

    >>> verdict(True, True), verdict(True, None), verdict(False, None), verdict(None)
    ('yes', 'in part', 'no', 'inconclusive')
    """
    if holds and all(holds):
        return YES
    if any(holds):
        return IN_PART
    return INCONCLUSIVE if all(held is None for held in holds) else NO


def overall(verdicts: Sequence[str]) -> str:
    """One word for a claim that was tested on several data sets."""
    if len(set(verdicts)) == 1:
        return verdicts[0]
    return IN_PART if {YES, IN_PART} & set(verdicts) else NO


def claim_row(claim: str, paper: str, where: str, here: str, *holds: Holds) -> Row:
    """A row of claims.parquet: the claim, what the paper reports, where it was tested, and what was measured."""
    return {"claim": claim, "paper": paper, "where": where, "here": here, "holds": verdict(*holds)}


def claim_rows(
    claim: str, paper: str, places: Iterable[tuple[str, _Place]], measure: Callable[[_Place], Sequence[Any]]
) -> list[Row]:
    """A row per (title, place): `measure(place)` gives the text of what was measured and whether the claim holds."""
    return [claim_row(claim, paper, title, *measure(place)) for title, place in places]


class Claim(NamedTuple):
    """A claim and its rows, one per data set it was tested on."""

    text: str
    rows: list[Row]

    @property
    def verdict(self) -> str:
        """One word for all of them."""
        return overall([row["holds"] for row in self.rows])


def grouped_claims(rows: Sequence[Row]) -> list[Claim]:
    """The claims in order of appearance."""
    return [Claim(text, select(rows, claim=text)) for text in distinct(rows, "claim")]


def format_mean(value: float, error: float | None, *, percent: bool) -> str:
    """A mean and its standard error, with two figures of the latter.

    >>> format_mean(0.12345, 0.00123, percent=True), format_mean(-1.5, None, percent=False)
    ('12.35\\xa0±\\xa00.12\\xa0%', '−1.5')
    """
    scale, unit = (100, PERCENT) if percent else (1, "")
    if error is None or error == 0:
        text = f"{scale * value:.4g}"
    else:
        digits = min(max(1 - floor(log10(scale * error)), 0), 6)
        text = f"{scale * value:,.{digits}f}{PLUS_MINUS}{scale * error:,.{digits}f}"
    return text.replace("-", "−") + unit
