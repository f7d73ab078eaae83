"""Verdicts of the claims of a page, judged together."""

import pytest

from sparseoco.papers.claims import FIRST, OWN, Evidence, Finding, format_comparison, grouped_claims, judge
from sparseoco.papers.statistics import adjusted, equal, less


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
