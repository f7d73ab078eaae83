"""Figures 1, 2 and 3, and R̄(T) over the steps that were tried."""

from collections.abc import Sequence
from typing import Final

import plotly.graph_objects as go

from sparseoco.papers.cl_fobos.published import CL_FOBOS, EXAMPLES, METHODS
from sparseoco.papers.records import Row
from sparseoco.report.figures import COLOURS, axes

STYLE: Final = dict(zip((method.name for method in METHODS), (COLOURS[0], COLOURS[2], COLOURS[3]), strict=False)) | {
    CL_FOBOS.name: COLOURS[1]
}
"""A colour a method; any other K is `LAZY_COLOUR`."""
LAZY_COLOUR: Final = COLOURS[0]


def colour_of(method: str) -> str:
    """Of a method in all figures and tables."""
    return STYLE.get(method, LAZY_COLOUR)


def trade_figure(results: Sequence[Row], seconds: dict[str, float]) -> go.Figure:
    """R̄(T) against run time: ours filled, the paper's hollow; `seconds` by method."""
    figure = go.Figure()
    for row in results:
        name = row["method"]
        for x, y, whose, symbol in (
            (seconds[name], row["objective"], "here", "circle"),
            (row["paper_seconds"], row["paper_objective"], "paper", "circle-open"),
        ):
            figure.add_scatter(
                x=[x],
                y=[y],
                name=name,
                legendgroup=name,
                showlegend=whose == "here",
                mode="markers",
                marker={
                    "color": colour_of(name),
                    "size": 10,
                    "symbol": symbol,
                    "line": {"width": 2, "color": colour_of(name)},
                },
                hovertemplate=f"<b>{name}</b>, {whose}<br>%{{y:.4f}} in %{{x:.3f}} s<extra></extra>",
            )
    axes(figure, "seconds (log scale); hollow: the paper's", "R̄(T)")
    ticks = [0.001, 0.01, 0.1, 1, 10]
    figure.update_xaxes(type="log", tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks])
    return figure


def steps_figure(search: Sequence[Row]) -> go.Figure:
    """R̄(T) of every step that was tried, a line a method, its smallest marked."""
    figure = go.Figure()
    low = min(row["objective"] for row in search if row["objective"] is not None)
    for name in dict.fromkeys(row["method"] for row in search):
        rows = [row for row in search if row["method"] == name and row["objective"] is not None]
        best = next(row for row in rows if row["chosen"])
        figure.add_scatter(
            x=[row["eta0"] for row in rows],
            y=[row["objective"] for row in rows],
            name=name,
            mode="lines",
            line={"color": colour_of(name), "width": 2},
            hovertemplate=f"<b>{name}</b><br>α₀ = %{{x:g}}: %{{y:.4f}}<extra></extra>",
        )
        figure.add_scatter(
            x=[best["eta0"]],
            y=[best["objective"]],
            mode="markers",
            marker={"color": colour_of(name), "size": 9},
            hoverinfo="skip",
            showlegend=False,
        )
    axes(figure, "α₀ (log scale)", "R̄(T)")
    figure.update_xaxes(type="log", tickvals=[0.005, 0.01, 0.03, 0.1, 0.3, 1], range=[-2.35, 0.05])
    figure.update_yaxes(range=[low - 0.03, low + 0.4])
    return figure


def nonzeros_figure(rows: Sequence[Row]) -> go.Figure:
    """Share of weights that are not 0 around every K-th round."""
    figure = go.Figure()
    for name in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == name]
        figure.add_scatter(
            x=[row["rounds"] for row in own],
            y=[100 * row["share"] for row in own],
            name=name,
            mode="lines",
            line={"color": colour_of(name), "width": 1},
            hovertemplate=f"<b>{name}</b><br>%{{x:,}} rounds: %{{y:.2f}} %<extra></extra>",
        )
    axes(figure, "rounds", "weights that are not 0, %")
    figure.update_yaxes(rangemode="tozero")
    return figure


def snapshots_figure(rows: Sequence[Row], examples: int) -> go.Figure:
    """Share of right estimations of each snapshot: ours, mean of the repetitions, and the paper's, dotted."""
    figure = go.Figure()
    for name in dict.fromkeys(row["method"] for row in rows):
        rounds = sorted({row["rounds"] for row in rows})
        own = [[row for row in rows if (row["method"], row["rounds"]) == (name, t)] for t in rounds]
        for whose, y, dash in (
            ("here", [100 * sum(row["right"] for row in of) / len(of) / examples for of in own], "solid"),
            ("paper", [100 * of[0]["paper_right"] / EXAMPLES for of in own], "dot"),
        ):
            figure.add_scatter(
                x=[f"x<sub>{t}</sub>" for t in rounds],
                y=y,
                name=f"{name}, {whose}",
                mode="lines+markers",
                line={"color": colour_of(name), "width": 2, "dash": dash},
                hovertemplate=f"<b>{name}</b>, {whose}<br>%{{x}}: %{{y:.1f}} %<extra></extra>",
            )
    axes(figure, "solution", "right estimations, %")
    return figure
