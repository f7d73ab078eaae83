"""Charts of a report, drawn as SVG, and the template of pages."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from sparseoco.core import formatting

# ----------------------------------------------------------------------------------------------------------------------
# Charts as data: series on two axes; `draw_chart` draws them.
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
    label: str, values: Iterable[float], *, zero: bool = False, low: float | None = None, high: float | None = None
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
    least_step = (end - start) / 8
    power = 10.0 ** math.floor(math.log10(least_step))
    step = next(nice * power for nice in (1.0, 2.0, 5.0, 10.0) if nice * power >= least_step * (1 - 1e-9))
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


def line_chart(series: Sequence[Series], x: str, y: str, *, log: str = "", zero: str = "") -> Chart:
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

    return Chart(axis("x", x, values_x(series)), axis("y", y, values_y(series, bands=True)), series)


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


# ----------------------------------------------------------------------------------------------------------------------
# Draw charts as inline SVG: no script is needed to see them, and equal charts give equal bytes.
#
# The pages' script shows labels of points and hides series. It reads the attributes `data-at`, the positions of the
# points, and `data-labels`, their texts, separated by tabs.


CHARACTER: Final = 6.7  # mean width of a character of a tick
NARROWEST: Final = 340.0  # pixels of a chart on a narrow screen, beyond which it is scrolled
_EDGE: Final = 7.0  # by how much markers may reach over the edge of the axes


def clean(text: str) -> str:
    """Text without control characters, tabs and line breaks, which XML or the attributes cannot have."""
    if text.isprintable():
        return text
    return "".join(" " if unicodedata.category(c) in ("Cc", "Cs") or c in "\ufffe\uffff" else c for c in text)


def element(name: str, *content: Any, **attributes: Any) -> Markup:
    """An element of SVG or HTML; numbers are coordinates, and a trailing or inner _ of an attribute is none or -."""
    texts = (
        f' {key.rstrip("_").replace("_", "-")}="{short(value) if isinstance(value, int | float) else escape(value)}"'
        for key, value in attributes.items()
    )
    opening = f"<{name}{''.join(texts)}"
    return Markup(f"{opening}>{''.join(map(escape, content))}</{name}>" if content else f"{opening}/>")


def draw_chart(chart: Chart, name: str, title: str) -> Markup:
    """A chart as HTML, of the id `figure-NAME`: its legend, then its SVG element."""
    left = 34 + max(12.0, *(CHARACTER * len(text) for _, text in chart.y.ticks), 0.0)
    frame = _Frame(chart, round(left, 1), 10.0, round(chart.width - left - 14.0, 1), chart.height - 10.0 - 46.0)
    groups: dict[str, int] = {}  # a number for each series; those of one group share it
    keys = [groups.setdefault(own.group, k) if own.group else k for k, own in enumerate(chart.series)]
    drawn = [_series(frame, own, key) for own, key in zip(chart.series, keys, strict=True)]
    # The axes' rectangle, and a little around it.
    x, y = short(frame.left - _EDGE), short(frame.top - _EDGE)
    width, height = short(frame.width + 2 * _EDGE), short(frame.height + 2 * _EDGE)
    clip = element(
        "svg", _levels(frame), *drawn, x=x, y=y, width=width, height=height, viewBox=f"{x} {y} {width} {height}"
    )
    body = Markup("").join((_axes(frame), clip, element("circle", class_="at", r=6), _level_names(frame)))
    least, about = min(chart.width, max(NARROWEST, 0.68 * chart.width)), f"about-{name}"
    drawing = element(
        "svg",
        element("desc", clean(_description(chart)), id=about),
        body,
        viewBox=f"0 0 {chart.width} {chart.height}",
        style=f"max-width:{chart.width}px;min-width:{short(least)}px",
        role="img",
        aria_label=clean(title),
        aria_describedby=about,
    )
    plot = element("div", drawing, class_="plot", tabindex="0")
    legend = _legend(chart.series, keys)
    return element("figure", legend, plot, class_="chart", id=f"figure-{name}") + Markup("\n")


def _description(chart: Chart) -> str:
    """The axes, and the range of every series, for readers who do not see the chart."""
    parts = [f"{chart.y.label} against {chart.x.label}."]
    for own in chart.series:
        values = [y for y in own.y if y is not None]
        if own.name and values:
            parts.append(f"{own.name}: {len(values)} points from {min(values):.3g} to {max(values):.3g}.")
    return " ".join([*parts, *(f"{level.name}." for level in _named_levels(chart))])


def _named_levels(chart: Chart) -> list[Level]:
    """The levels with a name that are within the axes."""
    return [
        level
        for level in chart.levels
        if level.name and 0 <= (chart.x if level.vertical else chart.y).position(level.value) <= 1
    ]


class _Frame(NamedTuple):
    """Where the axes of a chart are, in pixels."""

    chart: Chart
    left: float
    top: float
    width: float
    height: float

    def x(self, value: float) -> float:
        return self.left + self.width * _bounded(self.chart.x.position(value))

    def y(self, value: float) -> float:
        return self.top + self.height * (1 - _bounded(self.chart.y.position(value)))


def _bounded(position: float) -> float:
    """Far outside the axes any place does; very large coordinates are drawn wrongly."""
    return min(max(position, -4.0), 5.0)


def short(value: float) -> str:
    """A coordinate with one decimal."""
    text = f"{value:.1f}"
    return text.removesuffix(".0") if text != "-0.0" else "0"


def _text(x: float, y: float, text: str, anchor: str, class_: str = "") -> Markup:
    named = {"class_": class_} if class_ else {}
    return element("text", clean(text), **named, x=x, y=y, text_anchor=anchor)


def _axes(frame: _Frame) -> Markup:
    """Grid, axes, ticks and labels."""
    x, y = frame.chart.x, frame.chart.y
    bottom, right = frame.top + frame.height, frame.left + frame.width
    left, top, low = short(frame.left), short(frame.top), short(bottom)
    grid = "".join(f"M{left} {short(frame.y(value))}H{short(right)}" for value, _ in _inside(y))
    marks = "".join(f"M{short(frame.x(value))} {low}v5" for value, _ in _inside(x))
    ticks = [
        *(_text(frame.left - 7, frame.y(value) + 4, text, "end") for value, text in _inside(y)),
        *(_text(frame.x(value), bottom + 19, text, "middle") for value, text in _apart(frame, _inside(x))),
    ]
    return Markup("").join(
        (
            element("path", class_="grid", d=grid),
            element("path", class_="axis", d=f"M{left} {top}V{low}H{short(right)}{marks}"),
            element("g", *ticks, class_="ticks") if ticks else Markup('<g class="ticks"></g>'),
            _text(frame.left + frame.width / 2, bottom + 40, x.label, "middle", "name"),
            element(
                "text",
                clean(y.label),
                class_="name",
                transform=f"translate(13 {short(frame.top + frame.height / 2)}) rotate(-90)",
                text_anchor="middle",
            ),
        )
    )


def _inside(axis: Axis) -> list[tuple[float, str]]:
    return [(value, text) for value, text in axis.ticks if -1e-6 <= axis.position(value) <= 1 + 1e-6]


def _apart(frame: _Frame, ticks: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """The ticks whose texts do not run into the one before."""
    kept: list[tuple[float, str]] = []
    end = -math.inf
    for value, text in ticks:
        half = CHARACTER * len(text) / 2
        if frame.x(value) - half > end + 12:
            kept.append((value, text))
            end = frame.x(value) + half
    return kept


def _levels(frame: _Frame) -> Markup:
    lines = (
        f"M{short(frame.x(level.value))} {short(frame.top)}v{short(frame.height)}"
        if level.vertical
        else f"M{short(frame.left)} {short(frame.y(level.value))}h{short(frame.width)}"
        for level in frame.chart.levels
    )
    return Markup("").join(element("path", class_="level", d=line) for line in lines)


def _level_names(frame: _Frame) -> Markup:
    """The names of levels that are within the axes."""
    parts = []
    for level in _named_levels(frame.chart):
        x, y, anchor = frame.left + 6, frame.y(level.value) - 5, "start"
        if level.vertical:
            x, y, anchor = frame.x(level.value) - 5, frame.top + 12, "end"
        parts.append(_text(x, max(y, 12.0), level.name, anchor, "note"))
    return Markup("").join(parts)


def _series(frame: _Frame, own: Series, key: int) -> Markup:
    places = [
        None if y is None or not math.isfinite(y) or not math.isfinite(x) else (frame.x(x), frame.y(y))
        for x, y in zip(own.x, own.y, strict=True)
    ]
    parts = []
    if own.band and len(own.low):
        upper = [f"{short(frame.x(x))} {short(frame.y(y))}" for x, y in zip(own.x, own.high, strict=True)]
        lower = [f"{short(frame.x(x))} {short(frame.y(y))}" for x, y in zip(own.x, own.low, strict=True)]
        parts.append(element("path", class_="band", d=f"M{'L'.join([*upper, *reversed(lower)])}Z"))
    elif len(own.low):
        ends = [(frame.x(x), low, high) for x, low, high in zip(own.x, own.low, own.high, strict=True) if low < high]
        bars = (f"M{short(x)} {short(frame.y(low))}V{short(frame.y(high))}" for x, low, high in ends)
        parts.append(element("path", class_="error", d="".join(bars)))
    marks = ""
    if own.marker:
        shape = _marker(own.marker, own.size)
        marks = "".join(f"M{short(at[0])} {short(at[1])}{shape}" for at in places if at)
    parts += _strokes(own, _bars(frame, own), _line(places, own.steps), marks)
    hover = {}
    if own.labels:
        seen = [(at, label) for at, label in zip(places, own.labels, strict=True) if at and label]
        hover = {
            "data_head": clean(own.heading),
            "data_at": " ".join(f"{short(x)},{short(y)}" for (x, y), _ in seen),
            "data_labels": "\t".join("\n".join(map(clean, label.split("\n"))) for _, label in seen),
        }
    return element("g", *(parts or [Markup("")]), class_=f"s {own.colour}", data_key=key, **hover)


def _strokes(own: Series, bars: str, line: str, marks: str) -> list[Markup]:
    """What a series is drawn with, in a figure or in its legend."""
    parts = []
    if own.bars:
        parts.append(element("path", class_="bars", d=bars))
    if own.dash:
        dash = {"stroke_dasharray": STROKES[own.dash]} if STROKES[own.dash] else {}
        parts.append(element("path", class_="line", d=line, stroke_width=own.width, **dash))
    if own.marker:
        parts.append(element("path", class_="marks hollow" if own.hollow else "marks", d=marks))
    return parts


def _line(places: Iterable[tuple[float, float] | None], steps: bool) -> str:
    parts, move = [], True
    for at in places:
        if at is None:
            move = True
            continue
        x, y = short(at[0]), short(at[1])
        parts.append(f"M{x} {y}" if move else f"H{x}V{y}" if steps else f"L{x} {y}")
        move = False
    return "".join(parts)


def _bars(frame: _Frame, own: Series) -> str:
    """Rectangles from 0, or the base, to y."""
    parts = []
    for x, y, base in zip(own.x, own.y, own.base or [0.0] * len(own.x), strict=True):
        if y is not None and y != base:
            left, right, bottom = frame.x(x - own.bars / 2), frame.x(x + own.bars / 2), short(frame.y(base))
            parts.append(f"M{short(left)} {bottom}V{short(frame.y(y))}H{short(right)}V{bottom}Z")
    return "".join(parts)


def _marker(shape: str, size: float) -> str:
    """A path relative to the centre of the marker."""
    r = size
    d, s, t = short(r * 1.25), short(r * 0.9), short(r * 1.8)
    if shape == "square":
        return f"m-{s} -{s}h{t}v{t}h-{t}z"
    if shape == "diamond":
        return f"m0 -{d}l{d} {d}l-{d} {d}l-{d} -{d}z"
    if shape == "triangle":
        return f"m0 -{d}l{d} {short(r * 2.2)}h-{short(r * 2.5)}z"
    if shape == "cross":
        return f"m-{d} 0h{short(r * 2.5)}m-{d} -{d}v{short(r * 2.5)}"
    assert shape in ("circle", ""), shape
    return f"m-{short(r)} 0a{short(r)} {short(r)} 0 1 0 {short(2 * r)} 0a{short(r)} {short(r)} 0 1 0 -{short(2 * r)} 0z"


def _legend(series: Sequence[Series], keys: Sequence[int]) -> Markup:
    entries = [(own, key) for own, key in zip(series, keys, strict=True) if own.legend and own.name]
    if len(entries) < 2:
        return Markup("")
    buttons = []
    for own, key in entries:
        marks = f"M15 7{_marker(own.marker, min(own.size, 4.5))}"
        parts = _strokes(own, "M6 12V2H24V12Z", "M0 7H30", marks) or [Markup("")]
        swatch = element("svg", *parts, class_=f"s {own.colour}", viewBox="0 0 30 14", aria_hidden="true")
        named = {"type": "button", "aria_pressed": "true", "data_key": key}
        buttons.append(element("button", swatch, clean(own.name), **named))
    return element("div", *buttons, class_="legend")


# ----------------------------------------------------------------------------------------------------------------------
# What all pages share: templates, and figures drawn for them.


_HEADING: Final = re.compile(r"<h2>(.*?)</h2>", re.DOTALL)


class Plot(NamedTuple):
    """A figure of a page: its title, and its HTML."""

    title: str
    html: Markup


def plot(name: str, title: str, chart: Chart) -> Plot:
    """A chart drawn for a template; `name` is unique on its page."""
    return Plot(title, draw_chart(chart, name, title))


def draw_plots(charts: Mapping[str, tuple[str, Chart] | None]) -> dict[str, Plot | None]:
    """Charts with their titles, by name, drawn for a template; None for those that a page does without."""
    return {name: None if titled is None else plot(name, *titled) for name, titled in charts.items()}


def render_page(template: str, context: Mapping[str, Any], package: str = "sparseoco.report") -> str:
    """A page as text: TEMPLATE.html.j2 of a package, filled in."""
    return _environment(package).get_template(f"{template}.html.j2").render(context)


def linked(content: Markup) -> tuple[Markup, list[tuple[str, Markup]]]:
    """The sections of a page with an id for every second-level heading, and the ids and headings in order."""
    headings: list[tuple[str, Markup]] = []
    seen: Counter[str] = Counter()

    def link(found: re.Match[str]) -> str:
        heading = Markup(found[1])
        words = "-".join(re.findall(r"\w+", heading.striptags().lower()))
        seen[words] += 1
        headings.append((words if seen[words] == 1 else f"{words}-{seen[words]}", heading))
        return f'<h2 id="{headings[-1][0]}">{heading}</h2>'

    return Markup(_HEADING.sub(link, content)), headings


@cache
def _environment(package: str) -> Environment:
    """The templates of a package, and the report's, whose style sheet and script all pages share."""
    loaders = [PackageLoader(name, "templates") for name in dict.fromkeys((package, "sparseoco.report"))]
    environment = Environment(
        loader=ChoiceLoader(loaders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    names: dict[str, Any] = {
        name: getattr(formatting, name)
        for name in (
            *("percent", "percent_with_error", "integer", "plural", "duration", "parameters", "signed"),
            *("amount", "plus_minus", "metric_name", "metric_with_error"),
        )
    }
    environment.filters.update(names | {"linked": linked})
    return environment
