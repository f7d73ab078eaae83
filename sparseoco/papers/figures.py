"""The figures of the page: curves of methods over rounds."""

from collections.abc import Sequence
from typing import Final

import plotly.graph_objects as go

from sparseoco.papers.records import Row
from sparseoco.report.figures import COLOURS, NEUTRAL, axes, decades

STYLE: Final = {
    "OGD": (COLOURS[0], "solid"),
    "ONS": (COLOURS[1], "solid"),
    "ONS, β by its theorem": (COLOURS[1], "dash"),
    "OGDEG": (COLOURS[2], "solid"),
    "OGDEG, best step": (COLOURS[2], "dot"),
    "ONSEG": (COLOURS[3], "solid"),
    "ONSEG, β by its theorem": (COLOURS[3], "dash"),
    "ONSEG, best β": (COLOURS[3], "dot"),
}
"""Colour and dash of each method: a colour an algorithm; as the paper has it, as its theorem, as is best."""

LATE: Final = 0.003
"""The share of the rounds from which on curves are all within the figure: means of few rounds are anywhere."""


def curves_figure(
    curves: Sequence[Row], names: tuple[str, str, str], lines: dict[str, float], labels: tuple[str, str], scale: float
) -> go.Figure:
    """A line a method, its spread behind it; `names` are the columns of mean, low and high, `lines` are levels."""
    figure = go.Figure()
    methods = [name for name in STYLE if any(row["method"] == name for row in curves)]
    mean, low, high = names
    for name in methods:
        rows = [row for row in curves if row["method"] == name]
        colour, dash = STYLE[name]
        t = [row["t"] for row in rows]
        if dash == "solid" and any(row[low] != row[high] for row in rows):
            figure.add_scatter(
                x=[*t, *reversed(t)],
                y=[scale * row[high] for row in rows] + [scale * row[low] for row in reversed(rows)],
                fill="toself",
                fillcolor=_faint(colour),
                line={"width": 0},
                hoverinfo="skip",
                showlegend=False,
                legendgroup=name,
                mode="lines",
            )
        figure.add_scatter(
            x=t,
            y=[scale * row[mean] for row in rows],
            name=name,
            legendgroup=name,
            mode="lines",
            line={"color": colour, "width": 2, "dash": dash},
            hovertemplate=f"<b>{name}</b><br>%{{x:,}} rounds: %{{y:.4g}}<extra></extra>",
        )
    for text, level in lines.items():
        figure.add_hline(y=scale * level, line={"color": NEUTRAL, "width": 1, "dash": "dot"})
        figure.add_annotation(
            x=0, xref="paper", xanchor="left", y=scale * level, yanchor="bottom", showarrow=False, text=text,
            font={"size": 11},
        )  # fmt: skip
    axes(figure, *labels)
    figure.update_xaxes(type="log", **decades([row["t"] for row in curves]))
    late = [row for row in curves if row["t"] >= LATE * max(row["t"] for row in curves)]
    seen = [scale * row[name] for row in late for name in (mean, low, high)] + [scale * y for y in lines.values()]
    if seen:
        margin = 0.05 * (max(seen) - min(seen) or 1)
        figure.update_yaxes(range=[min(seen) - margin, max(seen) + margin])
    return figure


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.15)"
