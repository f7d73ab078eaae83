"""Draw a matrix of counts by class as inline SVG, for two classes or for hundreds."""

import math
from typing import Final

from markupsafe import Markup

from sparseoco.report.charts import HeatMap
from sparseoco.report.svg import CHARACTER, clean, figure, short

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
