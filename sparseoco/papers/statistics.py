"""Means with their standard errors, and whether one is lower than another."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray


def mean(values: Iterable[float]) -> float:
    """The mean of one value or more."""
    listed = list(values)
    return float(sum(listed)) / len(listed)


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error, of two values or more."""
    average = sum(values) / len(values)
    return average, math.sqrt(sum((value - average) ** 2 for value in values) / (len(values) - 1) / len(values))


def below_zero(difference: float, error: float) -> bool | None:
    """Whether a difference is negative; None if it is within two standard errors of 0."""
    return None if abs(difference) <= 2 * error else difference < 0


def lower(left: tuple[float, float], right: tuple[float, float]) -> bool | None:
    """Whether one (mean, standard error) is lower than an independent one; None if inconclusive."""
    return below_zero(left[0] - right[0], math.hypot(left[1], right[1]))


def paired_difference(left: Sequence[float], right: Sequence[float]) -> tuple[float, float]:
    """Mean and standard error of left − right, pair by pair."""
    return mean_and_error([a - b for a, b in zip(left, right, strict=True)])


def lower_paired(left: Sequence[float], right: Sequence[float]) -> bool | None:
    """Whether left is lower in the mean, pair by pair; None if inconclusive."""
    return below_zero(*paired_difference(left, right))


def spread(values: NDArray[np.float64]) -> tuple[list[float], list[float], list[float]]:
    """Mean, first and ninth decile of every row."""
    low, high = np.quantile(values, (0.1, 0.9), axis=1)
    return values.mean(axis=1).tolist(), low.tolist(), high.tolist()
