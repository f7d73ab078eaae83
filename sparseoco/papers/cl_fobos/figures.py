"""Figures 1, 2 and 3, and R̄(T) over the steps that were tried."""

from collections.abc import Sequence
from typing import Final

import plotly.graph_objects as go

from sparseoco.papers.cl_fobos.published import CL_FOBOS, EXAMPLES, METHODS
from sparseoco.papers.page import add_line
from sparseoco.papers.statistics import mean
from sparseoco.papers.tables import Row, distinct, select
from sparseoco.report.figures import COLOURS, axes

_COLOURS: Final = dict(zip((method.name for method in METHODS), (COLOURS[0], COLOURS[2], COLOURS[3]), strict=False)) | {
    CL_FOBOS.name: COLOURS[1]
}


def method_colour(method: str) -> str:
    """The colour of a method in all figures and tables; L-FOBOS of any other K has that of the first."""
    return _COLOURS.get(method, COLOURS[0])


def tradeoff_figure(results: Sequence[Row]) -> go.Figure:
    """R̄(T) against run time: ours filled, the paper's hollow."""
    figure = go.Figure()
    for row in results:
        name, colour = row["method"], method_colour(row["method"])
        for prefix, whose, symbol in (("", "here", "circle"), ("paper_", "paper", "circle-open")):
            figure.add_scatter(
                x=[row[f"{prefix}seconds"]],
                y=[row[f"{prefix}objective"]],
                name=name,
                legendgroup=name,
                showlegend=whose == "here",
                mode="markers",
                marker={"color": colour, "size": 10, "symbol": symbol, "line": {"width": 2, "color": colour}},
                hovertemplate=f"<b>{name}</b>, {whose}<br>%{{y:.4f}} in %{{x:.3f}} s<extra></extra>",
            )
    axes(figure, "seconds (log scale); hollow: the paper's", "R̄(T)")
    ticks = [0.001, 0.01, 0.1, 1, 10]
    figure.update_xaxes(type="log", tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks])
    return figure


def steps_figure(search: Sequence[Row]) -> go.Figure:
    """R̄(T) of every step that was tried, a line per method, with its smallest value marked."""
    figure = go.Figure()
    finite = [row for row in search if row["objective"] is not None]
    low = min(row["objective"] for row in finite)
    for name in distinct(search, "method"):
        rows = select(finite, method=name)
        (best,) = select(rows, chosen=True)
        steps, objectives = ([row[column] for row in rows] for column in ("eta0", "objective"))
        add_line(figure, name, steps, objectives, method_colour(name), "<br>α₀ = %{x:g}: %{y:.4f}")
        figure.add_scatter(
            x=[best["eta0"]],
            y=[best["objective"]],
            mode="markers",
            marker={"color": method_colour(name), "size": 9},
            hoverinfo="skip",
            showlegend=False,
        )
    axes(figure, "α₀ (log scale)", "R̄(T)")
    figure.update_xaxes(type="log", tickvals=[0.005, 0.01, 0.03, 0.1, 0.3, 1], range=[-2.35, 0.05])
    figure.update_yaxes(range=[low - 0.03, low + 0.4])
    return figure


def nonzeros_figure(rows: Sequence[Row]) -> go.Figure:
    """Share of nonzero weights around every K-th round."""
    figure = go.Figure()
    for name in distinct(rows, "method"):
        own = select(rows, method=name)
        rounds, shares = [row["rounds"] for row in own], [100 * row["share"] for row in own]
        add_line(figure, name, rounds, shares, method_colour(name), "<br>%{x:,} rounds: %{y:.2f} %", width=1)
    axes(figure, "rounds", "nonzero weights, %")
    figure.update_yaxes(rangemode="tozero")
    return figure


def snapshots_figure(rows: Sequence[Row], examples: int) -> go.Figure:
    """Share of right predictions of each snapshot: ours, mean of the repetitions, and the paper's, dotted."""
    figure = go.Figure()
    rounds = sorted({row["rounds"] for row in rows})
    for name in distinct(rows, "method"):
        own = [select(rows, method=name, rounds=t) for t in rounds]
        ours = [100 * mean(row["right"] for row in repetitions) / examples for repetitions in own]
        paper = [100 * repetitions[0]["paper_right"] / EXAMPLES for repetitions in own]
        for whose, values, dash in (("here", ours, "solid"), ("paper", paper, "dot")):
            x = [f"x<sub>{t}</sub>" for t in rounds]
            label, hover = f"{name}, {whose}", "<br>%{x}: %{y:.1f} %"
            add_line(figure, label, x, values, method_colour(name), hover, dash=dash, mode="lines+markers")
    axes(figure, "solution", "right predictions, %")
    return figure
