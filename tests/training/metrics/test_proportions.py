"""Intervals of proportions: those of SciPy."""

import pytest
from scipy.stats import binomtest

from sparseoco.training.metrics.proportions import wilson_interval


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
@pytest.mark.parametrize(("hits", "rows"), [(0, 1), (1, 1), (0, 50), (49, 50), (50, 50), (300, 1000), (7, 10**9)])
def test_as_in_scipy(hits: int, rows: int, confidence: float) -> None:
    interval = binomtest(hits, rows).proportion_ci(confidence, "wilson")
    assert wilson_interval(hits, rows, confidence) == pytest.approx(tuple(interval), rel=1e-9, abs=1e-15)
