"""Verdicts of the claims of a page, judged together."""

import itertools
import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sparseoco.papers import claims
from sparseoco.papers.claims import LEVEL, OWN, Evidence, Finding, Measured, Pair, PaperClaim, Place, Values

CLEAR = Pair([0.1, 0.12, 0.11, 0.1], [0.3, 0.33, 0.31, 0.35]).less()
CONTRARY = Pair([0.3, 0.33, 0.31, 0.35], [0.1, 0.12, 0.11, 0.1]).less()
WEAK = Pair([0.10, 0.12, 0.11, 0.10], [0.12, 0.135, 0.12, 0.115]).less()  # significant alone, not beside ten others
NOISE = Pair([0.1, 0.3, 0.2, 0.4], [0.4, 0.2, 0.3, 0.1]).less()


@pytest.mark.parametrize(
    ("evidence", "holds"),
    [
        ([CLEAR], "yes"),
        ([CONTRARY], "no"),
        ([NOISE], "undecided"),
        ([CLEAR, NOISE], "in part"),
        ([CLEAR, CONTRARY], "mixed"),
        ([CONTRARY, NOISE], "no in part"),
        ([CONTRARY, CLEAR._replace(elsewhere=True)], "no"),
        ([CLEAR, CONTRARY._replace(elsewhere=True)], "yes"),
        ([CONTRARY._replace(elsewhere=True)], "no"),
        ([True], "yes"),
        ([False], "no"),
        ([None], "undecided"),
        ([True, CLEAR], "yes"),
    ],
)
def test_a_verdict_needs_evidence(evidence, holds):
    (row,) = claims.judge([Finding("C.", "said", "here", "", tuple(evidence))])["claims"]
    assert row["holds"] == holds


def test_verdicts_are_symmetric():
    """Where yes and no change places, so does the verdict; it does not depend on order and grouping of the rows."""
    other = {"yes": "no", "no": "yes", "in part": "no in part", "no in part": "in part"}
    for words in itertools.product(claims.FIRST, repeat=3):
        found = claims.overall(words)
        assert claims.overall(other.get(word, word) for word in words) == other.get(found, found)
        assert claims.overall(reversed(words)) == claims.overall([claims.overall(words[:2]), words[2]]) == found


def test_all_comparisons_of_a_page_share_the_level():
    alone = claims.judge([Finding("C.", "said", "here", "", (WEAK,))])
    assert alone["claims"][0]["holds"] == "yes"
    many = claims.judge([Finding("C.", "said", "here", "", (WEAK,)), Finding("D.", "said", "here", "", (NOISE,) * 10)])
    assert next(row for row in many["claims"] if row["claim"] == "C.")["holds"] == "undecided"
    assert [row["p"] for row in many["comparisons"]] == claims.adjusted([WEAK.p, *[NOISE.p] * 10])


def test_primary_claims_are_a_family_of_their_own_and_decide():
    rest = Finding("C.", "said", "a set", "", (NOISE,) * 10)
    tables = claims.judge([Finding("C.", "said", "mean", "", (WEAK,), primary=True), rest])
    assert [row["p"] for row in tables["comparisons"]] == [WEAK.p, *claims.adjusted([NOISE.p] * 10)]
    assert [row["visible"] for row in tables["comparisons"][1:]] == [NOISE.visible(LEVEL / 10)] * 10
    (claim,) = claims.ordered_claims(tables["claims"])
    assert (claim.verdict, claim.counts) == ("yes", {"undecided": 1, "yes": 1})


def test_what_the_data_contradict_comes_first():
    evidence = {"Yes.": CLEAR, "Unknown.": NOISE, "No.": CONTRARY}
    tables = claims.judge([Finding(claim, "said", "here", "", (found,)) for claim, found in evidence.items()])
    verdicts = [claim.verdict for claim in claims.ordered_claims(tables["claims"])]
    assert verdicts == sorted(verdicts, key=claims.FIRST.index) == ["no", "undecided", "yes"]


def test_claims_of_our_own_are_known_and_come_last():
    found = [Finding(text, paper, "here", "", (True,)) for text, paper in (("A.", OWN), ("B.", "Table 1"))]
    rows = claims.ordered_claims(claims.judge(found)["claims"])
    assert [(claim.text, claim.ours) for claim in rows] == [("B.", False), ("A.", True)]


def test_a_comparison_is_shown_with_its_interval_margin_and_pairs():
    found = Pair([0.50, 0.51, 0.50], [0.50, 0.50, 0.51], "p = 2", percent=True).equal(0.005)
    (row,) = claims.judge([Finding("C.", "said", "here", "", (found,))])["comparisons"]
    text = claims.format_comparison(row).replace("\N{NO-BREAK SPACE}", " ")
    shown = "p = 2: difference 0.0 (−2.5 to 2.5) points, margin 0.5, 3 pairs, p = 0.48: undecided, this design cannot"
    assert text == f"{shown} show equality: the margin would have to be 3.9 points for 80 %"


PAIR = Pair([0.1, 0.12, 0.11], [0.3, 0.33, 0.31], "a − b", percent=True, overlap=0.1, unit=2.0)


@pytest.mark.parametrize(
    ("claim", "values", "evidence"),
    [
        ({}, [PAIR, None], (PAIR.less(), None)),
        ({"test": "equal", "margin": 0.5}, [PAIR], (PAIR._replace(unit=1.0).equal(1.0),)),
        ({"margin": 0.05}, [PAIR], (PAIR._replace(unit=1.0).less(0.1),)),
        ({"test": "exact"}, [True, False, None], (True, False, None)),
        ({"test": "at_least", "needed": 2}, [[PAIR, PAIR]], (claims.at_least(2, PAIR.less(), PAIR.less()),)),
    ],
)
def test_a_claim_names_its_measure(claim: dict[str, Any], values: list[Any], evidence: tuple[Evidence, ...]) -> None:
    def measure(where: str) -> Iterator[Measured]:
        yield Measured(where, "1 table", values)

    row = PaperClaim("C.", "named", of={"where": "here"}, **claim)
    assert claims.find_evidence([row], SimpleNamespace(named=measure)) == [
        Finding("C.", OWN, "here", "1 table", evidence)
    ]


def test_named_values_are_compared_with_each_other_and_with_constants() -> None:
    values = {"left": Values([0.1, 0.3]), "right": [0.4, 0.5]}
    pairs = [["left", "right"], ["left", 0.5, "constant"]]
    claim = PaperClaim("C.", "any", here="{left:.2f}, {left:%}", pairs=pairs, unit="left")
    found = Place("here", values).measured(claim)
    assert (found.where, found.here) == ("here", "0.20, 20.0\N{NO-BREAK SPACE}%")
    assert found.values == [
        Pair([0.1, 0.3], [0.4, 0.5], "left − right", unit=0.2),
        Pair([0.1, 0.3], [0.5, 0.5], "constant", unit=0.2),
    ]
    (evidence,) = claims.find_evidence([claim], SimpleNamespace(any=lambda: [Place("here", values)]))
    assert evidence.evidence == tuple(pair.less() for pair in found.values)


# ----------------------------------------------------------------------------------------------------------------------
# Comparisons by pairs against SciPy's t tests, and by simulation.


few = settings(max_examples=30)
values = st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50)), min_size=2, max_size=12).filter(
    lambda pairs: len({a - b for a, b in pairs}) > 1
)


@few
@given(pairs=values, margin=st.integers(1, 30))
def test_comparisons_are_paired_t_tests(pairs, margin):
    """A difference is one, equality two one-sided ones; a set in two forms counts once."""
    left, right = (np.array([float(pair[k]) for pair in pairs]) for k in (0, 1))
    found = Pair(left.tolist(), right.tolist()).less()
    test = stats.ttest_rel(left, right, alternative="less")
    interval = stats.ttest_rel(left, right).confidence_interval()
    assert found.p_for == pytest.approx(test.pvalue, abs=1e-9)
    assert found.p == pytest.approx(stats.ttest_rel(left, right).pvalue, abs=1e-9)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=1e-9)
    assert found.favours == (found.difference < 0)
    found = Pair(left.tolist(), right.tolist()).equal(float(margin))
    above = stats.ttest_rel(left + margin, right, alternative="greater").pvalue
    below = stats.ttest_rel(left - margin, right, alternative="less").pvalue
    assert found.p_for == pytest.approx(max(above, below), abs=1e-9)
    beyond = stats.ttest_rel(left - margin, right, alternative="greater").pvalue
    short = stats.ttest_rel(left + margin, right, alternative="less").pvalue
    assert found.p_against == pytest.approx(min(beyond, short), abs=1e-9)
    twice = claims.in_the_mean([[found, found]])
    assert twice.pairs == 2 * found.pairs
    assert twice[2:] == pytest.approx(found[2:])


@pytest.mark.parametrize("level", [0.05, 0.002])
@pytest.mark.parametrize("margin", [None, 0.0, 1.0])
def test_a_visible_difference_is_seen_in_eight_of_ten(level, margin):
    """By simulation: a test whose true difference, or whose margin, is what it says that it sees."""
    draws = np.random.default_rng(5).normal(size=(1500, 10))
    scale = NOISE._replace(margin=margin, error=10**-0.5, degrees=9).visible(level)
    shift, margin = (0.0, scale) if margin else (scale, margin)
    found = [Pair((own - shift).tolist(), [0.0] * 10)._compared(margin, 0.0) for own in draws]
    seen = np.mean([one.p < (LEVEL if margin == 0 else level) for one in found])
    assert seen == pytest.approx(claims.POWER, abs=0.03)


def test_no_significant_difference_is_none_by_a_single_test():
    noise = [0.1, -0.2, 0.15, 0.05, -0.1, 0.12]
    for shift, holds in ((0.0, "yes"), (0.14, "undecided"), (1.0, "no")):
        found = Pair([own + shift for own in noise], [0.0] * 6, percent=True, only=(40, 20)).equal(0.0)
        assert found.p == pytest.approx(stats.ttest_1samp([own + shift for own in noise], 0).pvalue)
        tables = claims.judge([Finding("C.", "said", "here", "", (found, *[NOISE] * 9))])
        row = tables["comparisons"][0]
        assert row["holds"] == holds
        assert row["p_documents"] == pytest.approx(stats.binomtest(40, 60).pvalue)
        assert (" would be seen with 80\xa0%" in claims.format_comparison(row)) == (holds != "no")


@pytest.mark.parametrize("constant", [-0.5, 0.0, 0.5])
def test_pairs_of_one_difference(constant):
    """The sign test: a few pairs decide nothing, also if their differences are equal but for rounding."""
    for left, pairs in (([0.1, 0.2, 0.3], 3), ([0.1 * k for k in range(20)], 20)):
        found = Pair([value + constant for value in left], left).less()
        assert (found.low, found.high) == pytest.approx((constant, constant))
        assert found.p == (1.0 if constant == 0 else 2.0 ** (1 - pairs))
        assert found.favours == (constant < 0)


@few
@given(pairs=values, least=st.integers(0, 30))
def test_a_least_difference_is_that_much_more(pairs, least):
    left, right = ([float(pair[k]) for pair in pairs] for k in (0, 1))
    found, moved = Pair(left, right, unit=2.0).less(least), Pair([a + 2.0 * least for a in left], right).less()
    assert (found.p_for, found.p_against) == pytest.approx((moved.p_for, moved.p_against), abs=1e-9)
    assert found.difference == Pair(left, right).less().difference
    assert claims.in_the_mean([[found]])[2:] == pytest.approx(found[2:])


def test_overlapping_training_sets_widen_the_interval():
    left, right = [0.1, 0.12, 0.09, 0.13, 0.1] * 2, [0.12, 0.12, 0.1, 0.14, 0.13] * 2
    apart, folds = Pair(left, right).less(), Pair(left, right, overlap=claims.FOLDS_OVERLAP).less()
    factor = math.sqrt((1 / 10 + 1 / 9) / (1 / 10))  # eq. 11 of Nadeau and Bengio over 1/n
    assert folds.high - folds.low == pytest.approx(factor * (apart.high - apart.low))
    assert folds.p > apart.p


@few
@given(first=values, second=values)
def test_the_mean_of_two_independent_sets_is_welchs_t_test(first, second):
    one, other = (np.array([float(a - b) for a, b in pairs]) for pairs in (first, second))
    found = claims.in_the_mean([[Pair(own.tolist(), [0.0] * len(own)).less()] for own in (one, other)])
    test = stats.ttest_ind(one, -other, equal_var=False, alternative="less")
    assert found.difference == pytest.approx((one.mean() + other.mean()) / 2)
    assert found.p_for == pytest.approx(test.pvalue, abs=1e-9)
    interval = stats.ttest_ind(one, -other, equal_var=False).confidence_interval()
    assert (2 * found.low, 2 * found.high) == pytest.approx((interval.low, interval.high), abs=1e-9)


@few
@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_compares_the_kth_smallest_with_its_share_of_the_level(p_values):
    rejected = [False] * len(p_values)
    for rank, k in enumerate(sorted(range(len(p_values)), key=lambda k: p_values[k])):
        if p_values[k] * (len(p_values) - rank) >= LEVEL:
            break
        rejected[k] = True
    assert [p < LEVEL for p in claims.adjusted(p_values)] == rejected


def test_one_of_two_comparisons_is_enough_for_either_and_both_are_needed_against():
    low, high = [1.0, 1.1, 0.9, 1.0], [2.0, 2.2, 1.9, 2.3]
    yes, no = Pair(low, high, "a").less(), Pair(high, low, "b").less()
    either = yes._replace(p_for=2 * yes.p_for, p_against=max(yes.p_against, no.p_against), choices=2)
    assert claims.at_least(1, no, yes) == either
    assert claims.at_least(1, no, yes).favours
    assert not claims.at_least(1, no, no).favours
    assert claims.at_least(1, no, no).p_against == no.p_against
