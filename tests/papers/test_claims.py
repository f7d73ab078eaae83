"""Verdicts of the claims of a page, judged together."""

from collections.abc import Iterator
from typing import Any

import pytest

from sparseoco.papers.claims import (
    FIRST,
    OWN,
    Evidence,
    Finding,
    Measured,
    Pair,
    PaperClaim,
    Values,
    adjusted,
    at_least,
    compare_named,
    equal,
    find_evidence,
    format_comparison,
    grouped_claims,
    judge,
    less,
)
from sparseoco.papers.rows import Records


def claim_row(claim: str, paper: str, where: str, here: str, *evidence: Evidence) -> Finding:
    return Finding(claim, paper, where, here, evidence)


CLEAR = less([0.1, 0.12, 0.11, 0.1], [0.3, 0.33, 0.31, 0.35])
CONTRARY = less([0.3, 0.33, 0.31, 0.35], [0.1, 0.12, 0.11, 0.1])
WEAK = less([0.10, 0.12, 0.11, 0.10], [0.12, 0.135, 0.12, 0.115])  # significant alone, not beside ten others
NOISE = less([0.1, 0.3, 0.2, 0.4], [0.4, 0.2, 0.3, 0.1])


@pytest.mark.parametrize(
    ("evidence", "holds"),
    [
        ([CLEAR], "yes"),
        ([CONTRARY], "no"),
        ([NOISE], "undecided"),
        ([CLEAR, NOISE], "in part"),
        ([CLEAR, CONTRARY], "in part"),
        ([CONTRARY, NOISE], "no"),
        ([True], "yes"),
        ([False], "no"),
        ([None], "undecided"),
        ([True, CLEAR], "yes"),
    ],
)
def test_a_verdict_needs_evidence(evidence, holds):
    (row,) = judge([claim_row("C.", "said", "here", "0.1", *evidence)])["claims"]
    assert row["holds"] == holds


def test_all_comparisons_of_a_page_share_the_level():
    alone = judge([claim_row("C.", "said", "here", "", WEAK)])
    assert alone["claims"][0]["holds"] == "yes"
    many = judge([claim_row("C.", "said", "here", "", WEAK), claim_row("D.", "said", "here", "", *[NOISE] * 10)])
    assert next(row for row in many["claims"] if row["claim"] == "C.")["holds"] == "undecided"
    assert [row["p"] for row in many["comparisons"]] == adjusted([WEAK.p, *[NOISE.p] * 10])


def test_what_the_data_contradict_comes_first():
    evidence = {"Yes.": CLEAR, "Unknown.": NOISE, "No.": CONTRARY}
    tables = judge([claim_row(claim, "said", "here", "", found) for claim, found in evidence.items()])
    verdicts = [claim.verdict for claim in grouped_claims(tables["claims"])]
    assert verdicts == sorted(verdicts, key=FIRST.index) == ["no", "undecided", "yes"]


def test_claims_of_our_own_are_known_and_come_last():
    rows = judge([claim_row("A.", OWN, "here", "", True), claim_row("B.", "Table 1", "here", "", True)])["claims"]
    assert [(claim.text, claim.ours) for claim in grouped_claims(rows)] == [("B.", False), ("A.", True)]


def test_a_comparison_is_shown_with_its_interval_margin_and_pairs():
    found = equal([0.50, 0.51, 0.50], [0.50, 0.50, 0.51], 0.005, "p = 2", percent=True)
    (row,) = judge([claim_row("C.", "said", "here", "", found)])["comparisons"]
    text = format_comparison(row).replace("\N{NO-BREAK SPACE}", " ")
    assert text == "p = 2: difference 0.0 (−2.5 to 2.5) points, margin 0.5, 3 pairs, p = 0.48"


PAIR = Pair([0.1, 0.12, 0.11], [0.3, 0.33, 0.31], "a − b", percent=True, overlap=0.1, unit=2.0)


@pytest.mark.parametrize(
    ("claim", "values", "evidence"),
    [
        ({}, [PAIR, None], (less(PAIR.left, PAIR.right, "a − b", overlap=0.1, percent=True), None)),
        (
            {"test": "equal", "margin": 0.5},
            [PAIR],
            (equal(PAIR.left, PAIR.right, 1.0, "a − b", overlap=0.1, percent=True),),
        ),
        ({"test": "exact"}, [True, False, None], (True, False, None)),
        ({"test": "at_least", "needed": 2}, [[PAIR, PAIR]], (at_least(2, PAIR.less(), PAIR.less()),)),
    ],
)
def test_a_claim_names_its_measure_and_its_test(
    claim: dict[str, Any], values: list[Any], evidence: tuple[Evidence, ...]
) -> None:
    def measure(records: Records, where: str) -> Iterator[Measured]:
        yield Measured(where, f"{len(records)} tables", values)

    row = PaperClaim("C.", "named", of={"where": "here"}, **claim)
    assert find_evidence([row], {"named": measure}, {"t": []}) == [Finding("C.", OWN, "here", "1 tables", evidence)]


def test_named_values_are_compared_with_each_other_and_with_constants() -> None:
    places = [("here", {"left": Values([0.1, 0.3]), "right": [0.4, 0.5]})]
    pairs = [("left", "right", "both"), ("left", 0.5, "constant")]
    (found,) = compare_named(places, "{left:.2f}, {left:%}", pairs, unit="left")
    assert (found.where, found.here) == ("here", "0.20, 20.0\N{NO-BREAK SPACE}%")
    assert found.values == [
        Pair([0.1, 0.3], [0.4, 0.5], "both", unit=0.2),
        Pair([0.1, 0.3], [0.5, 0.5], "constant", unit=0.2),
    ]
