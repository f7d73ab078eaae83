"""Means, how sure they are, and whether one is lower than another."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and its standard error, of two values or more."""
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))


def below(gap: float, error: float) -> bool | None:
    """Whether a difference with this standard error is less than 0; None where it is within two of them."""
    return None if abs(gap) <= 2 * error else gap < 0


def lower(left: tuple[float, float], right: tuple[float, float]) -> bool | None:
    """Whether one mean, with its error, is lower than another, of other draws; None where it cannot be told."""
    return below(left[0] - right[0], math.hypot(left[1], right[1]))


def lower_in_pairs(left: Sequence[float], right: Sequence[float]) -> bool | None:
    """The same of values that belong together one by one, for both of a pair saw the same draw."""
    return below(*mean_and_error([a - b for a, b in zip(left, right, strict=True)]))


def spread(values: NDArray[np.float64]) -> tuple[list[float], list[float], list[float]]:
    """Mean, tenth and nine tenths of every row."""
    low, high = np.quantile(values, (0.1, 0.9), axis=1)
    return values.mean(axis=1).tolist(), low.tolist(), high.tolist()
