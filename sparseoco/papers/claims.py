"""Claims of a paper, their tests by pairs of values, and what was measured: a row per claim and data set."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from math import floor, log10, sqrt
from pathlib import Path
from typing import Any, Final, NamedTuple

from scipy.special import bdtr, nctdtrinc, stdtr, stdtrit

from sparseoco.core.formatting import PERCENT, percent
from sparseoco.papers.rows import Records, Row, distinct, mean, mean_and_error, select
from sparseoco.storage.locations import read_toml

# ----------------------------------------------------------------------------------------------------------------------
# Comparisons of two methods by pairs of values: a difference in the mean, its confidence interval and p values.


LEVEL: Final = 0.05
"""Level of the tests of a family, all together; intervals have 1 − LEVEL each."""
POWER: Final = 0.8
"""The probability with which a test finds the differences that a page calls visible."""
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
    """If the claim is that there is no difference: the largest that counts as none. 0 if it is that no significant
    difference is found, which is the statistic of many papers and tells little without `visible`."""
    least: float
    """If the claim is that there is one: the smallest that counts; below 0, the largest on the other side that is
    allowed."""
    p_for: float
    """One-sided p value, of the hypothesis that the claim is false."""
    p_against: float
    """One-sided p value, of the hypothesis that it is true."""
    percent: bool = False
    """Whether values are shares, which pages show in per cent."""
    elsewhere: bool = False
    """Whether it is at a setting that is not the paper's: see `verdict`."""
    degrees: float = 1.0
    """Of freedom, of the standard error."""
    choices: int = 1
    """By how many `p_for` was multiplied, see `at_least`."""
    only: tuple[int, int] | None = None
    """Documents that left alone predicts wrongly, and right alone, if it is of errors of the same documents."""

    @property
    def p(self) -> float:
        """Two-sided p value."""
        return min(1.0, 2 * min(self.p_for, self.p_against))

    @property
    def favours(self) -> bool:
        """Whether the difference is on the side of the claim."""
        return self.p_for < self.p_against

    @property
    def p_documents(self) -> float:
        """P value of the exact McNemar test of the documents, two-sided; 1 without any."""
        left, right = self.only or (0, 0)
        return min(1.0, 2 * float(bdtr(min(left, right), left + right, 0.5)))

    def holds(self, p: float) -> bool | None:
        """Whether the claim holds; `p` is the p value with a correction. None if it is undecided."""
        if p < LEVEL:
            return self.favours
        return True if self.margin == 0 and self.p >= LEVEL else None

    def visible(self, level: float) -> float:
        """The least difference, beyond `least`, that a two-sided test of this level finds with probability `POWER`.

        If the claim is that there is none: the least margin within which methods without a difference are found to be
        equal with that probability. No significant difference has the level of a single test.
        """
        level = LEVEL if self.margin == 0 else level / self.choices
        critical = float(stdtrit(self.degrees, 1 - level / 2))
        missed = (1 - POWER) / (2 if self.margin else 1)  # on each of the two sides of a margin
        return self.error * float(nctdtrinc(self.degrees, missed, critical))


class Pair(NamedTuple):
    """Values of two methods in the same folds, orders or seeds; two pairs of values or more.

    Examples
    --------
    >>> found = Pair([0.11, 0.12, 0.13], [0.21, 0.23, 0.22]).less()
    >>> round(found.difference, 3), found.favours, found.p < 0.05
    (-0.1, True, True)
    >>> found = Pair([0.50, 0.51, 0.50], [0.50, 0.50, 0.51]).equal(margin=0.1)
    >>> found.favours, found.p < 0.05
    (True, True)
    """

    left: Sequence[float]
    right: Sequence[float]
    what: str = ""
    """What is compared."""
    percent: bool = False
    """Whether the values are shares."""
    overlap: float = 0.0
    """Size of a test set over that of its training set, if training sets of the pairs overlap as in cross-validation:
    the variance is corrected for it (Nadeau and Bengio 2003, eq. 11). 0 if pairs are independent."""
    unit: float = 1.0
    """Of the margin of equality, and of the least difference that counts."""
    elsewhere: bool = False
    """Whether the setting is not the paper's."""
    only: tuple[int, int] | None = None
    """See `Comparison`."""

    def less(self, least: float = 0.0) -> Comparison:
        """Test the claim that left is less than right in the mean, by `least` or more, by a paired t test."""
        return self._compared(None, least * self.unit)

    def equal(self, margin: float) -> Comparison:
        """Test the claim that they differ by less than a margin in the mean, by two one-sided t tests; without margin,
        that a paired t test finds no difference."""
        return self._compared(margin * self.unit, 0.0)

    def _compared(self, margin: float | None, least: float) -> Comparison:
        pairs = len(self.left)
        average, error = mean_and_error([a - b for a, b in zip(self.left, self.right, strict=True)])
        found = Estimate(average, error * sqrt(1 + pairs * self.overlap), pairs - 1)
        tested = _comparison(self.what, pairs, found, margin, least, self.percent)
        return tested._replace(elsewhere=self.elsewhere, only=self.only)


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
    >>> one, other = Pair([1, 2, 3], [2, 4, 5]).less(), Pair([1, 2, 3], [3, 3, 4]).less()
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
        sqrt(variance) / len(groups),
        variance**2 / spread if spread > 0 else sum(degrees),
    )
    pairs = sum(comparison.pairs for comparison in all_found)
    return _comparison(first.what, pairs, estimate, first.margin, first.least, first.percent)


def at_least(count: int, *found: Comparison) -> Comparison:
    """The claim that at least `count` of several claims hold.

    The comparison is the one with the `count`-th least p value, corrected for the number of choices (Benjamini and
    Heller 2008, by Bonferroni); that against it is of the claim that at most `count` − 1 hold.

    >>> one, other = Pair([1, 2, 3], [5, 6, 8], "a").less(), Pair([5, 6, 8], [1, 2, 3], "b").less()
    >>> either = at_least(1, one, other)
    >>> either.what, either.p_for == 2 * one.p_for, either.favours, at_least(2, one, other).favours
    ('a', True, True, False)
    """
    others = len(found) - count
    shown = sorted(found, key=lambda comparison: comparison.p_for)[count - 1]
    against = sorted(comparison.p_against for comparison in found)[others]
    p_for, p_against = min(1.0, (others + 1) * shown.p_for), min(1.0, count * against)
    return shown._replace(p_for=p_for, p_against=p_against, choices=others + 1)


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


def adjusted_within(families: Sequence[Hashable], p_values: Sequence[float]) -> list[float]:
    """`adjusted` for the number of p values of the same family.

    >>> adjusted_within(["a", "b", "a"], [0.01, 0.04, 0.03])
    [0.02, 0.04, 0.03]
    """
    result = list(p_values)
    for family in set(families):
        members = [k for k, own in enumerate(families) if own == family]
        for k, p in zip(members, adjusted([p_values[k] for k in members]), strict=True):
            result[k] = p
    return result


def _comparison(
    what: str, pairs: int, found: Estimate, margin: float | None, least: float, percent: bool
) -> Comparison:
    """Of the claim that the mean is below −least or, with a margin, nearer to 0 than that."""
    below, above = (_below(found._replace(mean=side * (found.mean + least))) for side in (1, -1))
    if margin is not None:
        inside = [_below(found._replace(mean=side * found.mean - margin)) for side in (1, -1)]
        outside = [_below(found._replace(mean=side * found.mean + margin)) for side in (1, -1)]
        below, above = max(inside), min(outside)
    half = float(stdtrit(found.degrees, 1 - LEVEL / 2)) * found.error
    interval = found.mean - half, found.mean + half
    shown = what, pairs, found.mean, found.error, *interval
    return Comparison(*shown, margin, least, below, above, percent, degrees=found.degrees)


ROUNDING: Final = 1e-12
"""A standard error below this share of the mean is one of rounding: all differences are equal."""


def _below(found: Estimate) -> float:
    """The p value of a mean that is 0 or more, for one that is less.

    Equal differences have no variance to estimate an error from. Theirs is the p value of the sign test: one half for
    each pair, so that a few equal pairs decide nothing.
    """
    if found.error <= ROUNDING * abs(found.mean):
        return 2.0 ** -(found.degrees + 1) if found.mean < 0 else 1.0
    return float(stdtr(found.degrees, found.mean / found.error))


# ----------------------------------------------------------------------------------------------------------------------
# Claims as rows of claims.toml, the functions that measure them, and their verdicts.


YES: Final = "yes"
IN_PART: Final = "in part"
MIXED: Final = "mixed"
UNDECIDED: Final = "undecided"
NO_IN_PART: Final = "no in part"
NO: Final = "no"
FIRST: Final = (NO, NO_IN_PART, MIXED, IN_PART, UNDECIDED, YES)
"""The order of claims on a page: what the data contradict comes first."""
MADE_OF: Final = {
    YES: {YES},
    IN_PART: {YES, UNDECIDED},
    MIXED: {YES, NO},
    UNDECIDED: {UNDECIDED},
    NO_IN_PART: {NO, UNDECIDED},
    NO: {NO},
}
"""The verdicts on the parts of a claim with each verdict; mixed ones may have undecided parts too. Where yes and no
change places, so do the verdicts: a paper is given no more than what contradicts it."""
OWN: Final = "not in the paper"
"""What the paper says of a claim of ours."""
PLUS_MINUS: Final = "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}"

Evidence = Comparison | bool | None
"""A comparison by pairs; whether something exact, such as a bound or a count, holds; None if it was not measured."""


class Finding(NamedTuple):
    """A claim where it was tested: what the paper reports, what was measured, and the evidence."""

    claim: str
    paper: str
    where: str
    here: str
    evidence: tuple[Evidence, ...]
    primary: bool = False
    """Whether it is of the family that was named before: what the paper says, where it is tested together."""


def overall(verdicts: Iterable[str]) -> str:
    """One word for a claim that was tested in several ways, or on several data sets.

    >>> overall(["yes", "undecided"]), overall(["no", "undecided"]), overall(["in part", "no"]), overall([])
    ('in part', 'no in part', 'mixed', 'undecided')
    """
    found = set[str]().union(*(MADE_OF[word] for word in verdicts)) or {UNDECIDED}
    return MIXED if MADE_OF[MIXED] <= found else next(word for word, parts in MADE_OF.items() if parts == found)


def verdict(tested: Sequence[tuple[bool | None, bool]]) -> str:
    """One word for a claim in one place: whether it holds in each way it was tested, and whether that is at a setting
    which is not the paper's. Those decide only if none is at the paper's own.

    >>> verdict([(True, False), (None, False)]), verdict([(False, False), (True, True)]), verdict([(True, True)])
    ('in part', 'no', 'yes')
    """
    own = [holds for holds, elsewhere in tested if not elsewhere] or [holds for holds, _ in tested]
    return overall(_word(holds) for holds in own)


def _word(holds: bool | None) -> str:
    return UNDECIDED if holds is None else YES if holds else NO


class PaperClaim(NamedTuple):
    """A row of a paper's claims.toml."""

    text: str
    measure: str
    """The name of a method that yields a `Place` or, of other claims than by named values, a `Measured` per data
    set."""
    test: str = "less"
    """By which its pairs are compared: ``less``, left than right by the margin or more; ``equal``, to within the
    margin, or without one not significantly different; ``exact``, for what holds or does not; ``at_least``, so many of
    every group of pairs by ``less``; ``at_least_in_each``, that in all of several groups, as one claim."""
    paper: str = OWN
    """What the paper reports."""
    of: Mapping[str, Any] = {}
    """Arguments of the measure."""
    here: str = ""
    """What was found, as a format of the named values of a `Place`."""
    pairs: Sequence[Sequence[Any]] = ()
    """What the test is made of at a `Place`: left and right, which are names of its values or a number, and what is
    compared, if not "left − right"."""
    unit: str = ""
    """The name of the values whose mean is the unit of the margin."""
    margin: float = 0.0
    """For ``equal``: the largest difference that counts as none, in the units of the pairs; for ``less``: the least
    that counts."""
    needed: int = 1
    """For ``at_least`` and ``at_least_in_each``."""
    primary: bool = False
    """Whether it is one of the paper's sentences, which are a family of their own in the mean of the sets."""


class Measured(NamedTuple):
    """Where a claim was measured, the text of what was found, and what its test is made of."""

    where: str
    here: str
    values: Sequence[Any]
    """`Pair`, for ``at_least`` sequences of them, for ``exact`` booleans; None where nothing was measured."""


class Place(NamedTuple):
    """Where a claim was measured, and named values."""

    where: str
    values: Mapping[str, Any]

    def measured(self, claim: PaperClaim) -> Measured:
        """What the claim's formats make of the values."""
        unit = mean(self.values[claim.unit]) if claim.unit else 1.0
        pairs = []
        for left, right, *what in claim.pairs:
            values = self.values[left]
            other = self.values[right] if isinstance(right, str) else [right] * len(values)
            pairs.append(Pair(values, other, what[0] if what else f"{left} − {right}", unit=unit))
        return Measured(self.where, claim.here.format_map(self.values), pairs)


class Values(list[float]):
    """Values that format as their mean, with ``%`` in per cent.

    >>> "{0:.2f}, {1:%}".format(Values([-0.1, -0.3]), Values([0.1, 0.3]))
    '−0.20, 20.0\\xa0%'
    """

    def __format__(self, spec: str) -> str:
        return percent(mean(self)) if spec == "%" else format(mean(self), spec).replace("-", "−")


TESTS: Final[dict[str, Callable[[PaperClaim, Any], Evidence]]] = {
    "less": lambda claim, pair: pair.less(claim.margin),
    "equal": lambda claim, pair: pair.equal(claim.margin),
    "exact": lambda claim, holds: holds,
    "at_least": lambda claim, pairs: at_least(claim.needed, *(pair.less() for pair in pairs)),
    "at_least_in_each": lambda claim, groups: at_least(
        len(groups), *(at_least(claim.needed, *(pair.less() for pair in pairs)) for pairs in groups)
    ),
}


def read_claims(module_file: str, name: str = "claims") -> tuple[PaperClaim, ...]:
    """The claims in the file claims.toml next to a module, or in its table of another name."""
    return tuple(PaperClaim(**row) for row in read_toml(Path(module_file).with_name("claims.toml"))[name])


def find_evidence(claims: Iterable[PaperClaim], measures: object) -> list[Finding]:
    """A finding per claim and place where it was measured, by the method of `measures` that the claim names."""
    findings = []
    for claim in claims:
        for place in getattr(measures, claim.measure)(**claim.of):
            where, here, values = place.measured(claim) if isinstance(place, Place) else place
            evidence = (None if value is None else TESTS[claim.test](claim, value) for value in values)
            findings.append(Finding(claim.text, claim.paper, where, here, tuple(evidence)))
    return findings


def judge(tested: Sequence[Finding]) -> Records:
    """The tables `claims`, in the order of `ordered_claims`, and `comparisons`.

    A comparison holds, or does not, if its p value is below `LEVEL` with Holm's correction for the number of all
    comparisons of its family, primary or not; otherwise it is undecided. Differences are visible at the level at which
    the correction stopped: `LEVEL` over the number of those that are left.
    """
    found = [(row, part) for row in tested for part in row.evidence if isinstance(part, Comparison)]
    families = [row.primary for row, _ in found]
    corrected = adjusted_within(families, [part.p for _, part in found])
    by_document = [(row.primary, part.only is None) for row, part in found]
    documents = iter(adjusted_within(by_document, [part.p_documents for _, part in found]))
    left = Counter(family for family, p in zip(families, corrected, strict=True) if p >= LEVEL)
    p_values = iter(corrected)
    claims: list[Row] = []
    comparisons: list[Row] = []
    for row in tested:
        ways: list[tuple[bool | None, bool]] = []
        for part in row.evidence:
            if not isinstance(part, Comparison):
                ways.append((part, False))
                continue
            p, p_documents = next(p_values), next(documents)
            holds = part.holds(p)
            ways.append((holds, part.elsewhere))
            named = {"claim": row.claim, "where": row.where, "primary": row.primary, **part._asdict()}
            named |= {"visible": part.visible(LEVEL / max(1, left[row.primary])), "p": p, "holds": _word(holds)}
            if part.only:
                named |= {"left_only": part.only[0], "right_only": part.only[1], "p_documents": p_documents}
            comparisons.append(named)
        claims.append(row._asdict() | {"holds": verdict(ways)})
    ordered = ordered_claims(claims)
    return {"claims": [row for claim in ordered for row in claim.rows], "comparisons": comparisons}


def judge_by_rules(tested: Mapping[str, Sequence[Finding]], rule: str) -> Records:
    """The tables of `judge` for the findings with this rule, and the table `rules` of the verdicts with every rule.

    A rule is a choice that a paper leaves open; each has tests of its own, as if it were the only one.
    """
    judged = {own: judge(findings) for own, findings in tested.items()}
    verdicts = [
        {"rule": own} | {name: row[name] for name in ("claim", "where", "primary", "holds")}
        for own, tables in judged.items()
        for row in tables["claims"]
    ]
    return judged[rule] | {"rules": verdicts}


class Claim(NamedTuple):
    """A claim and its rows, one per data set it was tested on."""

    text: str
    rows: list[Row]

    @property
    def verdict(self) -> str:
        """One word for all of them, or for the primary ones if there are any."""
        return overall(row["holds"] for row in self.primary or self.rows)

    @property
    def primary(self) -> list[Row]:
        """The rows that decide, if it is one of the paper's sentences and was tested on several sets."""
        return select(self.rows, primary=True)

    @property
    def counts(self) -> dict[str, int]:
        """How many rows have each verdict, in the order of `FIRST`."""
        found = Counter(row["holds"] for row in self.rows)
        return {word: found[word] for word in FIRST if found[word]}

    @property
    def ours(self) -> bool:
        """Whether the paper does not make it."""
        return bool(self.rows[0]["paper"] == OWN)


def ordered_claims(rows: Sequence[Row]) -> list[Claim]:
    """The claims in the order of a page: what the data contradict first; of equal verdicts, ours last."""
    claims = [Claim(text, select(rows, claim=text)) for text in distinct(rows, "claim")]
    return sorted(claims, key=lambda claim: (FIRST.index(claim.verdict), claim.ours))


def format_comparison(row: Row) -> str:
    """A row of comparisons: the difference in the mean, its interval, the margin, pairs, p value and verdict, what
    difference would have been seen if none was, and the test of the documents.

    >>> row = {"what": "", "difference": -0.012, "low": -0.02, "high": -0.004, "margin": None, "least": 0, "pairs": 10}
    >>> row |= {"holds": "yes", "elsewhere": False, "visible": 0.013}
    >>> format_comparison(row | {"p": 0.0123, "percent": True}).replace("\\xa0", " ")
    'difference −1.20 (−2.00 to −0.40) points, 10 pairs, p = 0.012: yes'
    >>> format_comparison(row | {"what": "L-FOBOS", "p": 0.0001, "percent": False, "high": -0.0000001})
    'L-FOBOS: difference −0.0120 (−0.0200 to 0.0000), 10 pairs, p\\xa0<\\xa00.001: yes'
    >>> row |= {"p": 0.06, "percent": True, "holds": "undecided"}
    >>> row |= {"left_only": 183, "right_only": 257, "p_documents": 0.01}
    >>> format_comparison(row).replace("\\xa0", " ").partition(": ")[2]
    'undecided, 1.30 points would be seen with 80 %; documents wrong in one only: 183 and 257, p = 0.01'
    >>> format_comparison({**row, "margin": 0.0025, "left_only": None}).replace("\\xa0", " ").partition(": ")[2]
    'undecided, this design cannot show equality: the margin would have to be 1.30 points for 80 %'
    """
    scale, unit = (100, " points") if row["percent"] else (1, "")
    half = scale * (row["high"] - row["low"]) / 2
    digits = min(max(1 - floor(log10(half)), 0), 9) if half > 0 else 4
    mean, low, high = (f"{scale * row[name]:z,.{digits}f}" for name in ("difference", "low", "high"))
    margin = f", margin {scale * row['margin']:.3g}" if row["margin"] else ""
    margin += f", claimed at least {scale * row['least']:.3g}" if row["least"] > 0 else ""
    margin += f", allowed {-scale * row['least']:.3g}" if row["least"] < 0 else ""
    what = f"{row['what']}: " if row["what"] else ""
    text = (
        f"difference {mean} ({low} to {high}){unit}{margin}, {row['pairs']} pairs, {_p_text(row['p'])}: {row['holds']}"
    )
    if row["visible"] and (row["holds"] == UNDECIDED or (row["margin"] == 0 and row["holds"] == YES)):
        least = f"{scale * row['visible']:,.{digits}f}{unit}"
        if row["margin"] and row["margin"] < row["visible"]:
            text += f", this design cannot show equality: the margin would have to be {least} for"
        else:
            text += (
                f", equality to within {least} would be seen with" if row["margin"] else f", {least} would be seen with"
            )
        text += f" {100 * POWER:.0f}{PERCENT}"
    text += ", not the paper's setting" if row["elsewhere"] else ""
    if row.get("left_only") is not None:
        counts = f"{row['left_only']} and {row['right_only']}"
        text += f"; documents wrong in one only: {counts}, {_p_text(row['p_documents'])}"
    return what + text.replace("-", "−")


def _p_text(p: float) -> str:
    return ("p < 0.001" if p < 0.001 else f"p = {p:.2g}").replace(" ", "\N{NO-BREAK SPACE}")


def format_mean(value: float, error: float | None, *, percent: bool) -> str:
    """A mean and its standard error, with two figures of the latter.

    >>> format_mean(0.12345, 0.00123, percent=True), format_mean(-1.5, None, percent=False)
    ('12.35\\xa0±\\xa00.12\\xa0%', '−1.5')
    """
    scale, unit = (100, PERCENT) if percent else (1, "")
    if error is None or error == 0:
        text = f"{scale * value:.4g}"
    else:
        digits = min(max(1 - floor(log10(scale * error)), 0), 6)
        text = f"{scale * value:,.{digits}f}{PLUS_MINUS}{scale * error:,.{digits}f}"
    return text.replace("-", "−") + unit
