"""Comparisons by pairs against SciPy's t tests, and by simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sparseoco.papers.claims import FOLDS_OVERLAP, LEVEL, adjusted, at_least, equal, in_the_mean, less

values = st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50)), min_size=2, max_size=12).filter(
    lambda pairs: len({a - b for a, b in pairs}) > 1
)


@given(pairs=values)
def test_a_comparison_is_the_paired_t_test(pairs):
    left, right = ([float(pair[k]) for pair in pairs] for k in (0, 1))
    found = less(left, right)
    test = stats.ttest_rel(left, right, alternative="less")
    interval = stats.ttest_rel(left, right).confidence_interval()
    assert found.p_for == pytest.approx(test.pvalue, abs=1e-9)
    assert found.p == pytest.approx(stats.ttest_rel(left, right).pvalue, abs=1e-9)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=1e-9)
    assert found.favours == (found.difference < 0)


@given(pairs=values, margin=st.integers(1, 30))
def test_equality_is_two_one_sided_t_tests(pairs, margin):
    left, right = (np.array([float(pair[k]) for pair in pairs]) for k in (0, 1))
    found = equal(left.tolist(), right.tolist(), float(margin))
    above = stats.ttest_rel(left + margin, right, alternative="greater").pvalue
    below = stats.ttest_rel(left - margin, right, alternative="less").pvalue
    assert found.p_for == pytest.approx(max(above, below), abs=1e-9)
    beyond = stats.ttest_rel(left - margin, right, alternative="greater").pvalue
    short = stats.ttest_rel(left + margin, right, alternative="less").pvalue
    assert found.p_against == pytest.approx(min(beyond, short), abs=1e-9)


def test_no_difference_is_shown_by_a_narrow_interval_only():
    noisy, narrow = ([math.sin(7.0 * k) * scale for k in range(10)] for scale in (1.0, 0.01))
    zero = [0.0] * 10
    assert equal(noisy, zero, 0.1).p > LEVEL
    assert equal(narrow, zero, 0.1).favours
    assert equal(narrow, zero, 0.1).p < LEVEL


def test_a_difference_beyond_the_margin_is_against_equality():
    found = equal([1.0, 1.1, 0.9, 1.05], [0.0, 0.1, 0.05, 0.0], 0.1)
    assert not found.favours
    assert found.p < LEVEL


@pytest.mark.parametrize("constant", [-0.5, 0.0, 0.5])
def test_pairs_of_one_difference(constant):
    found = less([constant] * 3, [0.0] * 3)
    assert (found.low, found.high) == (constant, constant)
    assert found.p == (1.0 if constant == 0 else 0.0)
    assert found.favours == (constant < 0)


def test_overlapping_training_sets_widen_the_interval():
    left, right = [0.1, 0.12, 0.09, 0.13, 0.1] * 2, [0.12, 0.12, 0.1, 0.14, 0.13] * 2
    apart, folds = less(left, right), less(left, right, overlap=FOLDS_OVERLAP)
    factor = math.sqrt((1 / 10 + 1 / 9) / (1 / 10))  # eq. 11 of Nadeau and Bengio over 1/n
    assert folds.high - folds.low == pytest.approx(factor * (apart.high - apart.low))
    assert folds.p > apart.p


@given(first=values, second=values)
def test_the_mean_of_two_independent_sets_is_welchs_t_test(first, second):
    one, other = (np.array([float(a - b) for a, b in pairs]) for pairs in (first, second))
    found = in_the_mean([[less(own.tolist(), [0.0] * len(own))] for own in (one, other)])
    test = stats.ttest_ind(one, -other, equal_var=False, alternative="less")
    assert found.difference == pytest.approx((one.mean() + other.mean()) / 2)
    assert found.p_for == pytest.approx(test.pvalue, abs=1e-9)
    interval = stats.ttest_ind(one, -other, equal_var=False).confidence_interval()
    assert (2 * found.low, 2 * found.high) == pytest.approx((interval.low, interval.high), abs=1e-9)


@given(pairs=values, margin=st.integers(1, 30))
def test_a_set_in_two_forms_counts_as_one(pairs, margin):
    left, right = ([float(pair[k]) for pair in pairs] for k in (0, 1))
    found = equal(left, right, float(margin))
    twice = in_the_mean([[found, found]])
    assert twice.pairs == 2 * found.pairs
    assert twice[2:] == pytest.approx(found[2:])


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_compares_the_kth_smallest_with_its_share_of_the_level(p_values):
    rejected = [False] * len(p_values)
    for rank, k in enumerate(sorted(range(len(p_values)), key=lambda k: p_values[k])):
        if p_values[k] * (len(p_values) - rank) >= LEVEL:
            break
        rejected[k] = True
    assert [p < LEVEL for p in adjusted(p_values)] == rejected


def test_of_many_comparisons_without_a_difference_few_pages_have_one():
    generator = np.random.default_rng(7)
    pages = 400
    wrong = 0
    for _ in range(pages):
        values = generator.normal(size=(20, 8))
        wrong += min(adjusted([less(row.tolist(), [0.0] * 8).p for row in values])) < LEVEL
    assert wrong / pages < LEVEL + 3 * math.sqrt(LEVEL * (1 - LEVEL) / pages)


def test_pairs_must_be_pairs():
    with pytest.raises(ValueError, match="argument 2"):
        less([0.1, 0.2], [0.1])


def test_one_of_two_comparisons_is_enough_for_either_and_both_are_needed_against():
    low, high = [1.0, 1.1, 0.9, 1.0], [2.0, 2.2, 1.9, 2.3]
    yes, no = less(low, high, "a"), less(high, low, "b")
    assert at_least(1, no, yes) == yes._replace(p_for=2 * yes.p_for, p_against=max(yes.p_against, no.p_against))
    assert at_least(1, no, yes).favours
    assert not at_least(1, no, no).favours
    assert at_least(1, no, no).p_against == no.p_against
