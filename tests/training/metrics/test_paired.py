"""Intervals of the difference between two models on the same rows."""

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from sparseoco.training.metrics import PairedRows, paired_difference


def pair(random: np.random.Generator, gain: float, rows: int = 400) -> PairedRows:
    """Two models whose margins share their noise; the first sees `gain` more of the truth."""
    y = random.integers(0, 2, rows)
    noise = random.normal(0, 1, (rows, 1))
    b = noise + (y - 0.5)[:, None]
    a = b + gain * (y - 0.5)[:, None] + random.normal(0, 0.3, (rows, 1))
    return PairedRows("two classes", y, a, b)


def test_one_document_in_many_is_no_reason() -> None:
    y = np.arange(5000) % 2
    b = np.where(y == 1, 1.0, -1.0)[:, None]
    b[7] *= -1
    a = b.copy()
    a[7] *= -1
    found = paired_difference(PairedRows("two classes", y, a, b), "error", 0.95)
    assert found is not None
    assert found.value == pytest.approx(-1 / 5000)
    assert found.low < found.value < 0 < found.high


@pytest.mark.parametrize("metric", ["error", "roc_auc"])
def test_intervals_cover_the_difference_as_often_as_they_say(metric: str) -> None:
    """The difference over very many rows lies in the 90 % interval of 400 rows about nine times of ten."""
    random = np.random.default_rng(0)
    whole = paired_difference(pair(random, 0.3, 20_000), metric, 0.9)
    found = [paired_difference(pair(random, 0.3), metric, 0.9) for _ in range(40)]
    assert whole is not None
    covered = [one is not None and one.low <= whole.value <= one.high for one in found]
    assert 0.75 < np.mean(covered) <= 1


def test_the_difference_is_that_of_the_metrics() -> None:
    rows = pair(np.random.default_rng(1), 1.0)
    found: Any = paired_difference(rows, "roc_auc", 0.95)
    expected = roc_auc_score(rows.labels, rows.a[:, 0]) - roc_auc_score(rows.labels, rows.b[:, 0])
    assert found.value == pytest.approx(expected)
    assert 0 < found.low < found.high
    swapped = paired_difference(rows._replace(a=rows.b, b=rows.a), "roc_auc", 0.95)
    assert swapped == pytest.approx((-found.value, -found.high, -found.low))


def test_no_interval_where_the_metric_is_not_defined() -> None:
    rows = PairedRows("two classes", np.zeros(50), np.ones((50, 1)), np.ones((50, 1)))
    assert paired_difference(rows, "roc_auc", 0.95) is None
    one = PairedRows("two classes", np.zeros(1), np.ones((1, 1)), np.ones((1, 1)))
    assert paired_difference(one, "error", 0.95) is None
