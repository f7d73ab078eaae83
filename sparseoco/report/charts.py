"""Charts of a report."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

# ----------------------------------------------------------------------------------------------------------------------
# Charts as data: series on two axes. `sparseoco.report.svg` draws them.
#
# Colours are names of classes of the style sheet, which gives each a value for light and one for dark pages.


COLOURS: Final = ("c0", "c1", "c2", "c3", "c4", "c5", "c6")
"""Blue, vermilion, green, purple, ochre, cyan, grey: distinguishable for colour-blind readers, by 3:1 from the page."""
NEUTRAL: Final = "cn"
MARKERS: Final = ("circle", "square", "diamond", "triangle", "cross")
STROKES: Final = {
    "solid": "",
    "dash": "7 4",
    "dot": "2 3.5",
    "dashdot": "8 3.5 2 3.5",
    "longdash": "13 4",
    "longdashdot": "13 4 2 4",
    "sparse": "4 7",
    "dashdotdot": "8 3.5 2 3 2 3.5",
}
"""The lengths of strokes and gaps of each dash, in pixels."""
DASHES: Final = tuple(STROKES)
ZERO: Final = 0.5
"""Where a logarithmic axis of counts shows 0."""

WIDTH: Final = 736
"""Of a chart, in pixels: that of a column of text."""
HALF: Final = 470
"""Of one of two charts next to each other."""

Style = dict[str, tuple[str, str]]
Points = Sequence[tuple[float, float | None, str]]
"""x, y and the label of points; a y of None interrupts a line."""


class Series(NamedTuple):
    """Points with a name in the legend, drawn as a line, as markers or both; a value of None interrupts the line.

    `low` and `high` are the ends of error bars, or of a band around the line. `labels` are texts for the points, whose
    lines are separated by line breaks, below `heading`. Series of one `group` are hidden together.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    colour: str
    dash: str = "solid"
    """One of `DASHES`; "" draws no line."""
    marker: str = ""
    """One of `MARKERS`; "" draws none."""
    width: float = 2.0
    size: float = 4.0
    hollow: bool = False
    steps: bool = False
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    band: bool = False
    bars: float = 0.0
    """The width of bars from 0, in units of x; 0 draws none."""
    base: Sequence[float] = ()
    """Where bars begin, if not at 0."""
    heading: str = ""
    labels: Sequence[str] = ()
    group: str = ""
    legend: bool = True


def line(name: str, points: Points, colour: str, **style: Any) -> Series:
    """A series through points with their labels, below its name unless `style` has another heading."""
    x, y, labels = map(list, zip(*points, strict=True)) if points else ([], [], [])
    return Series(name, x, y, colour, labels=labels, **{"heading": name, **style})


def diagonal(*ends: float) -> Series:
    """A dotted line from (a, a) to (b, b)."""
    return Series("", ends, ends, NEUTRAL, dash="dot", width=1.2, legend=False)


class Level(NamedTuple):
    """A dotted line across the chart at a value, with its name."""

    value: float
    name: str = ""
    vertical: bool = False


class Axis(NamedTuple):
    """A linear or logarithmic axis from `low` to `high`, with ticks and their texts."""

    label: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False

    def position(self, value: float) -> float:
        """Where a value is: 0 at `low`, 1 at `high`."""
        low, high = self.low, self.high
        if self.log:
            value, low, high = math.log10(max(value, 1e-300)), math.log10(low), math.log10(high)
        return (value - low) / (high - low)


class Chart(NamedTuple):
    """Series on two axes; `width` and `height` in pixels of a wide page."""

    x: Axis
    y: Axis
    series: Sequence[Series]
    levels: Sequence[Level] = ()
    width: int = WIDTH
    height: int = 380


def styles(names: Iterable[str]) -> Style:
    """Colour and marker by name: the same in every chart and table of a page."""
    size = len(COLOURS)
    return {
        name: (COLOURS[k % size], MARKERS[(k + k // size) % len(MARKERS)]) for k, name in enumerate(sorted(set(names)))
    }


class Look(NamedTuple):
    """How a line is drawn."""

    colour: str
    dash: str
    marker: str


def is_alone(algorithms: Sequence[str]) -> bool:
    """Whether several lines are of one algorithm, and its name does not tell them apart."""
    return len(algorithms) > 1 and len(set(algorithms)) == 1


def looks(algorithms: Sequence[str], style: Style) -> list[Look]:
    """How lines of algorithms are drawn: each algorithm in its colour or, of one, each line in its own."""
    own = [(COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)]) for k in range(len(algorithms))]
    chosen = own if is_alone(algorithms) else [style[algorithm] for algorithm in algorithms]
    return [Look(colour, dash, marker) for (colour, marker), dash in zip(chosen, dashes(len(chosen)), strict=True)]


def dashes(number: int) -> list[str]:
    """A dash for each of so many lines, all different for up to eight.

    >>> dashes(3)
    ['solid', 'dash', 'dot']
    """
    return [DASHES[k % len(DASHES)] for k in range(number)]


def values_x(series: Iterable[Series]) -> list[float]:
    """All x of some series."""
    return [value for own in series for value in own.x]


def values_y(series: Iterable[Series], *, bands: bool = False) -> list[float]:
    """All y of some series, with error bars and bands on request."""
    series = list(series)
    values = [value for own in series for value in own.y if value is not None]
    return values + [value for own in series for value in (*own.low, *own.high)] if bands else values


def linear_axis(
    label: str,
    values: Iterable[float],
    *,
    zero: bool = False,
    low: float | None = None,
    high: float | None = None,
) -> Axis:
    """A linear axis around values, from 0 on request; `low` and `high` fix an end."""
    finite = [value for value in values if math.isfinite(value)]
    least, most = min(finite, default=0.0), max(finite, default=1.0)
    if zero:
        least, most = min(least, 0.0), max(most, 0.0)
    span = (most - least) or abs(most) or 1.0
    start = low if low is not None else least if zero and least == 0.0 else least - 0.05 * span
    end = high if high is not None else most + 0.05 * span
    if end <= start:
        end = start + (abs(start) or 1.0)
    step = _nice_step((end - start) / 8)
    first, last = math.ceil(start / step - 1e-9), math.floor(end / step + 1e-9)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    ticks = tuple((k * step, tick_text(k * step, decimals)) for k in range(first, last + 1))
    return Axis(label, start, end, ticks)


def log_axis(label: str, values: Iterable[float], *, counts: bool = False) -> Axis:
    """A logarithmic axis with ticks at 1, 10, 100 … (and 1, 2, 5 on short ones).

    An axis of `counts` shows numbers below 1 as 0, at the far left, at `ZERO`.
    """
    listed = [value for value in values if math.isfinite(value)]
    positive = [value for value in listed if value >= 1 or (value > 0 and not counts)]
    if not positive:
        return Axis(label, ZERO / 4, ZERO * 4, ((ZERO, "0"),), log=True)
    low, high = math.log10(min(positive)), math.log10(max(positive))
    span = high - low
    steps: Sequence[float] = (1,) if span > 3 else (1, 2, 5) if span > 1 else (1, 1.5, 2, 3, 4, 5, 6, 7, 8)
    margin = max(0.04 * span, 0.03)
    zero = counts and min(listed) < 1
    start, end = max((math.log10(ZERO) if zero else low) - margin, -306.0), min(high + margin, 306.0)
    every = max(1, math.ceil(span / 10))
    exponents = range(math.floor(start), math.ceil(end) + 1)
    ticks = [(s * 10.0**d, _short(s * 10.0**d)) for d in exponents if d % every == 0 for s in steps]
    if span < 0.3 and not zero:  # less than a factor of two: as on a linear axis
        ticks = list(linear_axis(label, [], low=10.0**start, high=10.0**end).ticks)
    inside = [tick for tick in ticks if start <= math.log10(tick[0]) <= end and (tick[0] >= 1 or not counts)]
    return Axis(label, 10.0**start, 10.0**end, tuple(([(ZERO, "0")] if zero else []) + inside), log=True)


def line_chart(
    series: Sequence[Series], x: str, y: str, *, log: str = "", zero: str = "", levels: Sequence[Level] = ()
) -> Chart:
    """Series on axes around their values.

    Parameters
    ----------
    x, y : labels.
    log, zero : of "x" and "y", which are logarithmic and which begin at 0.
    """

    def axis(name: str, label: str, values: list[float]) -> Axis:
        if name in log:
            return log_axis(f"{label} (log scale)", values)
        return linear_axis(label, values, zero=name in zero)

    return Chart(axis("x", x, values_x(series)), axis("y", y, values_y(series, bands=True)), series, levels)


def category_axis(label: str, names: Sequence[str]) -> Axis:
    """An axis whose values 0, 1, 2 … have names."""
    return Axis(label, -0.5, max(len(names) - 0.5, 0.5), tuple((float(k), name) for k, name in enumerate(names)))


def integer_axis(label: str, values: Sequence[int]) -> Axis:
    """An axis of consecutive numbers, for increments and the like."""
    first, last = (min(values), max(values)) if values else (0, 1)
    step = max(1, -(-(last - first) // 20))
    return Axis(label, first - 0.4, last + 0.4, tuple((float(k), f"{k:,}") for k in range(first, last + 1, step)))


def tick_text(value: float, decimals: int) -> str:
    """The text of a tick on a linear axis.

    >>> tick_text(2500000.0, 0), tick_text(-0.5, 1), tick_text(1500, 0), tick_text(0.0, 2)
    ('2.5M', '−0.5', '1.5k', '0')
    """
    if value == 0:
        return "0"
    if abs(value) >= 1000 and decimals == 0:
        return _short(value)
    return f"{value:.{decimals}f}".replace("-", "−") if decimals < 7 else f"{value:g}".replace("-", "−")


_SUPERSCRIPTS: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _short(value: float) -> str:
    """A number in a few characters: 20k, 1M, 0.01, 10⁻⁶."""
    size = abs(value)
    if size >= 1e12 or 0 < size < 1e-3:
        digits, exponent = f"{value:.1e}".split("e")
        power = "10" + str(int(exponent)).translate(_SUPERSCRIPTS)
        return power if float(digits) == 1.0 else f"{float(digits):g}·{power}".replace("-", "−")
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= unit:
            return f"{value / unit:g}{letter}".replace("-", "−")
    return f"{value:g}".replace("-", "−")


def _nice_step(step: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(nice * power for nice in (1.0, 2.0, 5.0, 10.0) if nice * power >= step * (1 - 1e-9))
