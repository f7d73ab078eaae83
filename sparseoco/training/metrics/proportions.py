"""Confidence intervals of proportions."""

import math

from scipy.special import ndtri


def wilson_interval(hits: int, rows: int, confidence: float = 0.95) -> tuple[float, float]:
    """The score interval of a proportion, `hits` of `rows` (at least one).

    With p = hits / rows and z the (1 + confidence) / 2 quantile of the normal distribution, its bounds are
    (p + z² / 2n ± z √(p (1 − p) / n + z² / 4n²)) / (1 + z² / n).

    References
    ----------
    Wilson (1927), Probable inference, the law of succession, and statistical inference.

    >>> low, high = wilson_interval(90, 100)
    >>> round(low, 4), round(high, 4)
    (0.8256, 0.9448)
    """
    p, z = hits / rows, float(ndtri(0.5 + confidence / 2))
    middle = p + z * z / (2 * rows)
    width = z * math.sqrt(p * (1 - p) / rows + (z / (2 * rows)) ** 2)
    scale = 1 + z * z / rows
    return max(0.0, (middle - width) / scale), min(1.0, (middle + width) / scale)
