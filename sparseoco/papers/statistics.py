"""Comparisons of two methods by pairs of values: a difference in the mean, its confidence interval and p values."""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from scipy.special import stdtr, stdtrit

from sparseoco.papers.rows import mean, mean_and_error

LEVEL: Final = 0.05
"""Level of the tests of a page, all together; intervals have 1 − LEVEL each."""
FOLDS_OVERLAP: Final = 1 / 9
"""Size of a test set over that of its training set, in ten-fold cross-validation."""


class Estimate(NamedTuple):
    """A mean, its standard error, and the degrees of freedom of the latter."""

    mean: float
    error: float
    degrees: float


class Comparison(NamedTuple):
    """What pairs of values say about a claim on the mean of their differences."""

    what: str
    """What is compared, if a row has several comparisons."""
    pairs: int
    difference: float
    """Mean of left − right."""
    error: float
    """Its standard error."""
    low: float
    """Bounds of its 95 % confidence interval."""
    high: float
    margin: float | None
    """If the claim is that there is no difference: the largest that counts as none."""
    p_for: float
    """One-sided p value, of the hypothesis that the claim is false."""
    p_against: float
    """One-sided p value, of the hypothesis that it is true."""
    percent: bool = False
    """Whether values are shares, which pages show in per cent."""

    @property
    def p(self) -> float:
        """Two-sided p value."""
        return min(1.0, 2 * min(self.p_for, self.p_against))

    @property
    def favours(self) -> bool:
        """Whether the difference is on the side of the claim."""
        return self.p_for < self.p_against


def less(
    left: Sequence[float], right: Sequence[float], what: str = "", *, overlap: float = 0.0, percent: bool = False
) -> Comparison:
    """Test the claim that left is less than right in the mean, by a paired t test.

    Parameters
    ----------
    left, right : sequence of float
        Values of the same folds, orders or seeds; two pairs or more.
    what : str
        What is compared.
    overlap : float
        Size of a test set over that of its training set, if training sets of the pairs overlap as in cross-validation:
        the variance is corrected for it (Nadeau and Bengio 2003, eq. 11). 0 if pairs are independent.
    percent : bool
        Whether the values are shares.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> found = less([0.11, 0.12, 0.13], [0.21, 0.23, 0.22])
    >>> round(found.difference, 3), found.favours, found.p < 0.05
    (-0.1, True, True)
    """
    return _comparison(what, len(left), _paired(left, right, overlap), None, percent)


def equal(
    left: Sequence[float],
    right: Sequence[float],
    margin: float,
    what: str = "",
    *,
    overlap: float = 0.0,
    percent: bool = False,
) -> Comparison:
    """Test the claim that left and right differ by less than a margin in the mean, by two one-sided t tests.

    Parameters
    ----------
    left, right : sequence of float
        Values of the same folds, orders or seeds; two pairs or more.
    margin : float
        The largest difference that counts as none, in the unit of the values.
    what, overlap, percent
        As in `less`.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> found = equal([0.50, 0.51, 0.50], [0.50, 0.50, 0.51], margin=0.1)
    >>> found.favours, found.p < 0.05
    (True, True)
    """
    return _comparison(what, len(left), _paired(left, right, overlap), margin, percent)


def in_the_mean(groups: Sequence[Sequence[Comparison]]) -> Comparison:
    """Test a claim on the mean of the differences of several data sets.

    Groups have equal weights, and data sets have in their group. Groups are independent of each other. In a group, such
    as one corpus in two forms, data sets may depend in any way: the standard error of their mean is then at most the
    mean of theirs, which is taken. Degrees of freedom are those of Welch and Satterthwaite.

    Parameters
    ----------
    groups : sequence of sequence of Comparison
        Of one claim, a comparison per data set.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> one, other = less([1, 2, 3], [2, 4, 5]), less([1, 2, 3], [3, 3, 4])
    >>> found = in_the_mean([[one], [other]])
    >>> found.difference == (one.difference + other.difference) / 2, found.p < min(one.p, other.p)
    (True, True)
    """
    all_found = [comparison for group in groups for comparison in group]
    first = all_found[0]
    errors = [mean(comparison.error for comparison in group) for group in groups]
    variance = sum(error**2 for error in errors)
    degrees = [min(comparison.pairs for comparison in group) - 1 for group in groups]
    spread = sum(error**4 / own for error, own in zip(errors, degrees, strict=True))
    estimate = Estimate(
        mean(mean(comparison.difference for comparison in group) for group in groups),
        math.sqrt(variance) / len(groups),
        variance**2 / spread if spread > 0 else sum(degrees),
    )
    pairs = sum(comparison.pairs for comparison in all_found)
    return _comparison(first.what, pairs, estimate, first.margin, first.percent)


def at_least(count: int, *found: Comparison) -> Comparison:
    """The claim that at least `count` of several claims hold.

    The comparison is the one with the `count`-th least p value, corrected for the number of choices (Benjamini and
    Heller 2008, by Bonferroni); that against it is of the claim that at most `count` − 1 hold.

    >>> one, other = less([1, 2, 3], [5, 6, 8], "a"), less([5, 6, 8], [1, 2, 3], "b")
    >>> either = at_least(1, one, other)
    >>> either.what, either.p_for == 2 * one.p_for, either.favours, at_least(2, one, other).favours
    ('a', True, True, False)
    """
    others = len(found) - count
    shown = sorted(found, key=lambda comparison: comparison.p_for)[count - 1]
    against = sorted(comparison.p_against for comparison in found)[others]
    return shown._replace(p_for=min(1.0, (others + 1) * shown.p_for), p_against=min(1.0, count * against))


def adjusted(p_values: Sequence[float]) -> list[float]:
    """P values with Holm's correction for their number (Holm 1979), in the order given.

    >>> adjusted([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda k: p_values[k])
    result, largest = [0.0] * len(order), 0.0
    for rank, k in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[k]))
        result[k] = largest
    return result


def _paired(left: Sequence[float], right: Sequence[float], overlap: float) -> Estimate:
    """The mean of left − right."""
    average, error = mean_and_error([a - b for a, b in zip(left, right, strict=True)])
    return Estimate(average, error * math.sqrt(1 + len(left) * overlap), len(left) - 1)


def _comparison(what: str, pairs: int, found: Estimate, margin: float | None, percent: bool) -> Comparison:
    """Of the claim that the mean is below 0 or, with a margin, nearer to 0 than that."""
    below, above = _below(found), _below(found._replace(mean=-found.mean))
    if margin is not None:
        inside = [_below(found._replace(mean=side * found.mean - margin)) for side in (1, -1)]
        outside = [_below(found._replace(mean=side * found.mean + margin)) for side in (1, -1)]
        below, above = max(inside), min(outside)
    half = float(stdtrit(found.degrees, 1 - LEVEL / 2)) * found.error
    interval = found.mean - half, found.mean + half
    return Comparison(what, pairs, found.mean, found.error, *interval, margin, below, above, percent)


def _below(found: Estimate) -> float:
    """The p value of a mean that is 0 or more, for one that is less."""
    if found.error == 0:
        return float(found.mean >= 0)
    return float(stdtr(found.degrees, found.mean / found.error))
