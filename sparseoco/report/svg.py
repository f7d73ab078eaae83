"""Figures in SVG, heat maps, and the template of pages."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sparseoco.core import formatting
from sparseoco.report.charts import Axis, Chart, HeatMap, Level, Series

# ----------------------------------------------------------------------------------------------------------------------
# Draw charts as inline SVG: no script is needed to see them, and equal charts give equal bytes.
#
# The pages' script shows labels of points and hides series. It reads the attributes `data-at`, the positions of the
# points, and `data-labels`, their texts, separated by tabs.


_DASHES: Final = {
    "solid": "",
    "dash": "7 4",
    "dot": "2 3.5",
    "dashdot": "8 3.5 2 3.5",
    "longdash": "13 4",
    "longdashdot": "13 4 2 4",
    "sparse": "4 7",
    "dashdotdot": "8 3.5 2 3 2 3.5",
}
CHARACTER: Final = 6.7  # mean width of a character of a tick
NARROWEST: Final = 340.0  # pixels of a chart on a narrow screen, beyond which it is scrolled
_EDGE: Final = 7.0  # by how much markers may reach over the edge of the axes


def clean(text: str) -> str:
    """Text without control characters, tabs and line breaks, which XML or the attributes cannot have."""
    return "".join(" " if unicodedata.category(c) in ("Cc", "Cs") or c in "\ufffe\uffff" else c for c in text)


def draw_chart(chart: Chart, name: str, title: str) -> Markup:
    """A chart as HTML: its legend, then its SVG element."""
    left = 34 + max(12.0, *(CHARACTER * len(text) for _, text in chart.y.ticks), 0.0)
    frame = _Frame(chart, left, 10.0, chart.width - left - 14.0, chart.height - 10.0 - 46.0)
    keys = _keys(chart.series)
    drawn = Markup("").join(_series(frame, own, key) for own, key in zip(chart.series, keys, strict=True))
    body = Markup("").join(
        (
            _axes(frame),
            Markup('<svg x="{}" y="{}" width="{}" height="{}" viewBox="{} {} {} {}">').format(*frame.clip, *frame.clip),
            _levels(frame),
            drawn,
            Markup('</svg><circle class="at" r="6"/>'),
            _level_names(frame),
        )
    )
    size = chart.width, chart.height
    return figure(name, title, _description(chart), *size, body, _legend(chart.series, keys))


def figure(
    name: str, title: str, description: str, width: float, height: float, body: Markup, legend: Markup
) -> Markup:
    """The element of a figure: the id is `figure-NAME`."""
    return Markup(
        '<figure class="chart" id="figure-{}">{}<div class="plot" tabindex="0">'
        '<svg viewBox="0 0 {} {}" style="max-width:{}px;min-width:{}px" role="img" aria-label="{}"'
        ' aria-describedby="about-{}"><desc id="about-{}">{}</desc>{}</svg>'
        "</div></figure>\n"
    ).format(
        name,
        legend,
        short(width),
        short(height),
        short(width),
        short(min(width, max(NARROWEST, 0.68 * width))),
        clean(title),
        name,
        name,
        clean(description),
        body,
    )


def _description(chart: Chart) -> str:
    """The axes, and the ends of every line or the range of other points, for readers who do not see the chart."""
    parts = [f"{chart.y.label} against {chart.x.label}."]
    for own in chart.series:
        points = [(x, y) for x, y in zip(own.x, own.y, strict=True) if y is not None]
        if not own.name or not points:
            continue
        (x, y), (x_end, y_end) = points[0], points[-1]
        if own.dash:
            parts.append(f"{own.name}: {y:.3g} at {x:.4g}, {y_end:.3g} at {x_end:.4g}.")
        else:
            values = [y for _, y in points]
            parts.append(f"{own.name}: {len(points)} points from {min(values):.3g} to {max(values):.3g}.")
    return " ".join([*parts, *(f"{level.name}." for level in _named_levels(chart))])


def _named_levels(chart: Chart) -> list[Level]:
    """The levels with a name that are within the axes."""
    return [
        level
        for level in chart.levels
        if level.name and 0 <= (chart.x if level.vertical else chart.y).position(level.value) <= 1
    ]


class _Frame:
    """Where the axes of a chart are, in pixels."""

    def __init__(self, chart: Chart, left: float, top: float, width: float, height: float) -> None:
        self.chart = chart
        self.left, self.top, self.width, self.height = round(left, 1), top, round(width, 1), height

    @property
    def clip(self) -> tuple[str, str, str, str]:
        """The axes' rectangle, and a little around it."""
        return (
            *(short(self.left - _EDGE), short(self.top - _EDGE)),
            *(short(self.width + 2 * _EDGE), short(self.height + 2 * _EDGE)),
        )

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


def _axes(frame: _Frame) -> Markup:
    """Grid, axes, ticks and labels."""
    x, y = frame.chart.x, frame.chart.y
    bottom, right = frame.top + frame.height, frame.left + frame.width
    grid = "".join(f"M{short(frame.left)} {short(frame.y(value))}H{short(right)}" for value, _ in _inside(y))
    marks = "".join(f"M{short(frame.x(value))} {short(bottom)}v5" for value, _ in _inside(x))
    parts = [
        Markup('<path class="grid" d="{}"/>').format(grid),
        Markup('<path class="axis" d="M{} {}V{}H{}{}"/>').format(
            short(frame.left), short(frame.top), short(bottom), short(right), marks
        ),
        Markup('<g class="ticks">'),
        *(
            Markup('<text x="{}" y="{}" text-anchor="end">{}</text>').format(
                short(frame.left - 7), short(frame.y(value) + 4), clean(text)
            )
            for value, text in _inside(y)
        ),
    ]
    for value, text in _apart(frame, _inside(x)):
        parts.append(
            Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>').format(
                short(frame.x(value)), short(bottom + 19), clean(text)
            )
        )
    middle = frame.top + frame.height / 2
    parts += [
        Markup('</g><text class="name" x="{}" y="{}" text-anchor="middle">{}</text>').format(
            short(frame.left + frame.width / 2), short(bottom + 40), clean(x.label)
        ),
        Markup('<text class="name" transform="translate(13 {}) rotate(-90)" text-anchor="middle">{}</text>').format(
            short(middle), clean(y.label)
        ),
    ]
    return Markup("").join(parts)


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
    parts = []
    for level in frame.chart.levels:
        if level.vertical:
            line = f"M{short(frame.x(level.value))} {short(frame.top)}v{short(frame.height)}"
        else:
            line = f"M{short(frame.left)} {short(frame.y(level.value))}h{short(frame.width)}"
        parts.append(Markup('<path class="level" d="{}"/>').format(line))
    return Markup("").join(parts)


def _level_names(frame: _Frame) -> Markup:
    """The names of levels that are within the axes."""
    parts = []
    for level in _named_levels(frame.chart):
        x, y, anchor = frame.left + 6, frame.y(level.value) - 5, "start"
        if level.vertical:
            x, y, anchor = frame.x(level.value) - 5, frame.top + 12, "end"
        parts.append(
            Markup('<text class="note" x="{}" y="{}" text-anchor="{}">{}</text>').format(
                short(x), short(max(y, 12.0)), anchor, clean(level.name)
            )
        )
    return Markup("").join(parts)


def _keys(series: Sequence[Series]) -> list[int]:
    """A number for each series; those of one group share it."""
    groups: dict[str, int] = {}
    return [groups.setdefault(own.group, k) if own.group else k for k, own in enumerate(series)]


def _series(frame: _Frame, own: Series, key: int) -> Markup:
    places = [
        None if y is None or not math.isfinite(y) or not math.isfinite(x) else (frame.x(x), frame.y(y))
        for x, y in zip(own.x, own.y, strict=True)
    ]
    parts = []
    if own.band and len(own.low):
        upper = [f"{short(frame.x(x))} {short(frame.y(y))}" for x, y in zip(own.x, own.high, strict=True)]
        lower = [f"{short(frame.x(x))} {short(frame.y(y))}" for x, y in zip(own.x, own.low, strict=True)]
        parts.append(Markup('<path class="band" d="M{}Z"/>').format("L".join([*upper, *reversed(lower)])))
    elif len(own.low):
        parts.append(Markup('<path class="error" d="{}"/>').format(_error_bars(frame, own)))
    if own.bars:
        parts.append(Markup('<path class="bars" d="{}"/>').format(_bars(frame, own)))
    if own.dash:
        dash = Markup(' stroke-dasharray="{}"').format(_DASHES[own.dash]) if _DASHES[own.dash] else ""
        line = _line(places, own.steps)
        parts.append(Markup('<path class="line" d="{}" stroke-width="{}"{}/>').format(line, short(own.width), dash))
    if own.marker:
        shape = _marker(own.marker, own.size)
        marks = "".join(f"M{short(at[0])} {short(at[1])}{shape}" for at in places if at)
        parts.append(Markup('<path class="{}" d="{}"/>').format("marks hollow" if own.hollow else "marks", marks))
    hover: Markup | str = ""
    if own.labels:
        seen = [(at, label) for at, label in zip(places, own.labels, strict=True) if at and label]
        hover = Markup(' data-head="{}" data-at="{}" data-labels="{}"').format(
            clean(own.heading),
            " ".join(f"{short(x)},{short(y)}" for (x, y), _ in seen),
            "\t".join("\n".join(map(clean, label.split("\n"))) for _, label in seen),
        )
    return Markup('<g class="s {}" data-key="{}"{}>{}</g>').format(own.colour, key, hover, Markup("").join(parts))


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


def _error_bars(frame: _Frame, own: Series) -> str:
    return "".join(
        f"M{short(frame.x(x))} {short(frame.y(low))}V{short(frame.y(high))}"
        for x, low, high in zip(own.x, own.low, own.high, strict=True)
        if low < high
    )


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
    if shape == "x":
        return f"m-{s} -{s}l{t} {t}m0 -{t}l-{t} {t}"
    if shape == "star":
        corners = [((1.5 if k % 2 == 0 else 0.62) * r * math.sin(k * math.pi / 5), k) for k in range(10)]
        points = [(x, -(1.5 if k % 2 == 0 else 0.62) * r * math.cos(k * math.pi / 5)) for x, k in corners]
        moves = [(b[0] - a[0], b[1] - a[1]) for a, b in zip([(0.0, 0.0), *points], points, strict=False)]
        return "m{} {}".format(*map(short, moves[0])) + "".join(f"l{short(x)} {short(y)}" for x, y in moves[1:]) + "z"
    return f"m-{short(r)} 0a{short(r)} {short(r)} 0 1 0 {short(2 * r)} 0a{short(r)} {short(r)} 0 1 0 -{short(2 * r)} 0z"


def _legend(series: Sequence[Series], keys: Sequence[int]) -> Markup:
    entries = [(own, key) for own, key in zip(series, keys, strict=True) if own.legend and own.name]
    if len(entries) < 2:
        return Markup("")
    buttons = Markup("").join(
        Markup('<button type="button" aria-pressed="true" data-key="{}">{}{}</button>').format(
            key, _swatch(own), clean(own.name)
        )
        for own, key in entries
    )
    return Markup('<div class="legend">{}</div>').format(buttons)


def _swatch(own: Series) -> Markup:
    parts = []
    if own.bars:
        parts.append(Markup('<path class="bars" d="M6 12V2H24V12Z"/>'))
    if own.dash:
        dash = Markup(' stroke-dasharray="{}"').format(_DASHES[own.dash]) if _DASHES[own.dash] else ""
        parts.append(Markup('<path class="line" d="M0 7H30" stroke-width="{}"{}/>').format(short(own.width), dash))
    if own.marker:
        kind = "marks hollow" if own.hollow else "marks"
        parts.append(Markup('<path class="{}" d="M15 7{}"/>').format(kind, _marker(own.marker, min(own.size, 4.5))))
    return Markup('<svg class="s {}" viewBox="0 0 30 14" aria-hidden="true">{}</svg>').format(
        own.colour, Markup("").join(parts)
    )


# ----------------------------------------------------------------------------------------------------------------------
# Draw a matrix of counts by class as inline SVG, for two classes or for hundreds.


LABELLED: Final = 40
"""Classes up to which each has its name."""
NUMBERED: Final = 12
"""Classes up to which cells have their numbers."""
LEVELS: Final = 8
"""Shades."""


def draw_heat_map(chart: HeatMap, name: str, title: str) -> Markup:
    """Cells as horizontal strokes, one path for each shade: a matrix of 200 classes stays small."""
    size = len(chart.names)
    named = size <= LABELLED
    names = [clean(text if len(text) <= 24 else text[:23] + "…") for text in chart.names]
    longest = max((len(text) for text in names), default=1)
    left = 34 + (CHARACTER * longest if named else 12.0)
    above = 26 + (12.0 + CHARACTER * longest * 0.75 if named else 0.0)
    cell = min(max(440.0 / max(size, 1), 3.0), 68.0) if named else 700.0 / size
    side = cell * size
    right = CHARACTER * longest * 0.75 if named else 0.0
    width, height = left + side + right + 10, above + side + 10
    parts = [
        Markup('<text class="name" transform="translate(13 {}) rotate(-90)" text-anchor="middle">{}</text>').format(
            short(above + side / 2), clean(chart.rows)
        ),
        Markup('<text class="name" x="{}" y="14" text-anchor="middle">{}</text>').format(
            short(left + side / 2), clean(chart.columns)
        ),
    ]
    if named:
        parts += [Markup('<g class="ticks">')]
        for k, text in enumerate(names):
            centre = cell * (k + 0.5)
            parts.append(
                Markup('<text x="{}" y="{}" text-anchor="end">{}</text>').format(
                    short(left - 7), short(above + centre + 4), text
                )
            )
            parts.append(
                Markup('<text transform="translate({} {}) rotate(-45)">{}</text>').format(
                    short(left + centre + 3), short(above - 6), text
                )
            )
        parts.append(Markup("</g>"))
    parts.append(
        Markup('<svg class="cells" x="{}" y="{}" width="{}" height="{}" viewBox="0 0 {} {}">{}</svg>').format(
            short(left), short(above), short(side), short(side), size, size, _cells(chart)
        )
    )
    parts.append(
        Markup('<path class="frame" d="M{} {}h{}v{}h-{}z"/>').format(*map(short, (left, above, side, side, side)))
    )
    if size <= NUMBERED:
        for i, row in enumerate(chart.counts):
            for j, count in enumerate(row):
                if count:
                    parts.append(
                        Markup('<text class="count" x="{}" y="{}" text-anchor="middle">{:,}</text>').format(
                            short(left + cell * (j + 0.5)), short(above + cell * (i + 0.5) + 4), count
                        )
                    )
    parts.append(
        Markup('<rect class="at" width="{}" height="{}"/>').format(short(cell), short(cell))
        + Markup(
            '<g class="matrix" data-left="{}" data-top="{}" data-cell="{}" data-names="{}" data-counts="{}"/>'
        ).format(short(left), short(above), f"{cell:.4f}", "\t".join(map(clean, chart.names)), _sparse(chart))
    )
    total, right = sum(map(sum, chart.counts)), sum(row[k] for k, row in enumerate(chart.counts))
    description = (
        f"{total:,} documents of {size} classes by {chart.rows} and {chart.columns}; {right:,} on the diagonal."
    )
    return figure(name, title, description, width, height, Markup("").join(parts), Markup(""))


def _sparse(chart: HeatMap) -> str:
    """Rows separated by semicolons, of column:count; the script reads it."""
    return ";".join(" ".join(f"{j}:{count}" for j, count in enumerate(row) if count) for row in chart.counts)


def _shade(count: int, total: int) -> int:
    """1 for the palest shade to `LEVELS`: by the root of the share, so that few errors are seen."""
    return max(1, math.ceil(LEVELS * math.sqrt(count / total)))


def _cells(chart: HeatMap) -> Markup:
    """A path for each shade of right and wrong cells."""
    runs: dict[tuple[str, int], list[str]] = {}
    for i, row in enumerate(chart.counts):
        total = sum(row)
        start = 0
        shades = [(("right" if i == j else "wrong"), _shade(c, total)) if c else None for j, c in enumerate(row)]
        for j in range(1, len(shades) + 1):
            if j == len(shades) or shades[j] != shades[start]:
                key = shades[start]
                if key is not None:
                    runs.setdefault(key, []).append(f"M{start} {i}.5h{j - start}")
                start = j
    return Markup("").join(
        Markup('<path class="{} l{}" d="{}"/>').format(kind, shade, "".join(moves))
        for (kind, shade), moves in sorted(runs.items())
    )


# ----------------------------------------------------------------------------------------------------------------------
# What all pages share: templates, and figures drawn for them.


_HEADING: Final = re.compile(r"<h2>(.*?)</h2>", re.DOTALL)


class Plot(NamedTuple):
    """A figure of a page: its title, and its HTML."""

    title: str
    html: Markup


def plot(name: str, title: str, chart: Chart | HeatMap) -> Plot:
    """A chart drawn for a template; `name` is unique on its page."""
    draw = draw_heat_map(chart, name, title) if isinstance(chart, HeatMap) else draw_chart(chart, name, title)
    return Plot(title, draw)


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
