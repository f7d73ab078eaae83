"""Counts in bins: those of all values together, whatever the parts they are counted in."""

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sparseoco.scoring.distribution import (
    MAX_BINS,
    PROBABILITY_BINS,
    BinCounts,
    RunningCounts,
    bin_bounds,
    bin_numbers,
    count_bins,
    merge_counts,
)

SCORES = st.one_of(
    st.floats(-5, 5), st.floats(-1e300, 1e300), st.sampled_from([0.0, -0.0, 5e-324, -5e-324, 1.0, -1.0, 1e-30])
)


def counted(values: list[float]) -> BinCounts:
    scores = np.array(values)
    classes = pa.array(["a" if value > 0 else None for value in values], pa.string())
    return count_bins(scores, 3, classes, pa.nulls(len(scores), pa.string()), scores > 1, probability=False)


def rows(counts: BinCounts) -> list[dict]:
    keys = [(name, "ascending") for name in ("bin", "prediction")]
    return counts.table.sort_by(keys).to_pylist()


@given(st.lists(st.lists(SCORES, min_size=1, max_size=8), min_size=1, max_size=6))
def test_merged_counts_are_those_of_all_values(parts: list[list[float]]) -> None:
    together = counted([value for part in parts for value in part])
    running = RunningCounts()
    for part in parts:
        running.add(counted(part))
    for found in (merge_counts([counted(part) for part in parts]), running.total()):
        assert found is not None
        assert found.scale == together.scale
        assert rows(found) == rows(together)


@given(st.lists(SCORES, min_size=1, max_size=20))
def test_bins_hold_their_values_and_are_as_fine_as_possible(values: list[float]) -> None:
    scores = np.array(values)
    scale, numbers = bin_numbers(scores, probability=False)
    lower, upper = bin_bounds(numbers, scale, probability=False)
    assert ((lower <= scores) & (scores < upper)).all()
    assert np.ptp(numbers) < MAX_BINS
    finer = [math.floor(Fraction(value) / Fraction(2) ** (scale - 1)) for value in values]
    exact = math.frexp(max(map(abs, [*values, 2.0**-12])))[1] - 52
    assert scale == exact or max(finer) - min(finer) >= MAX_BINS


@given(st.lists(st.floats(0, 1), min_size=1))
def test_probabilities_have_bins_of_two_per_cent(values: list[float]) -> None:
    scores = np.array([*values, 0.0, 0.58, 1.0])
    scale, numbers = bin_numbers(scores, probability=True)
    lower, upper = bin_bounds(numbers, scale, probability=True)
    assert ((lower <= scores) & ((scores < upper) | (scores == 1.0))).all()
    assert (numbers.min(), numbers.max()) == (0, PROBABILITY_BINS - 1)
    assert lower[-2] == 0.58


def test_without_counts_there_is_no_sum() -> None:
    assert RunningCounts().total() is None


def test_infinite_values_are_in_the_first_and_last_bin() -> None:
    counts = merge_counts([counted([math.inf, 1.0]), counted([-math.inf, 2.0])])
    lower, upper = bin_bounds(counts.table["bin"].to_numpy(), counts.scale, probability=False)
    assert sum(counts.table["documents"].to_pylist()) == 4
    assert lower.min() <= -8e307
    assert upper.max() >= 8e307
