"""The figures of the report, one function each, as Plotly figures.

Text from data is escaped here because Plotly interprets some HTML in labels. The page fills in text and grid colours,
so one figure serves light and dark mode.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from html import escape
from math import log10
from typing import Any, Final

import plotly.graph_objects as go
import pyarrow as pa
import pyarrow.compute as pc

from sparseoco.report.leaderboard import LeaderboardRow, pareto_front
from sparseoco.report.results import Results
from sparseoco.report.wording import duration, integer, percent, percent_with_error
from sparseoco.search.selection import COMPLETE

# Okabe and Ito's colour-blind-safe palette, without the two that fade on white or black.
COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")
SYMBOLS: Final = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")
NEUTRAL: Final = "#808080"
MAX_LINES: Final = 8

Style = dict[str, tuple[str, str]]


def styles(algorithms: Iterable[str]) -> Style:
    """Colour and marker of each algorithm: the same in every figure and table of a report."""
    names = sorted(set(algorithms))
    return {
        name: (COLOURS[k % len(COLOURS)], SYMBOLS[(k + k // len(COLOURS)) % len(SYMBOLS)])
        for k, name in enumerate(names)
    }


def curves_figure(results: Results, shown: Sequence[LeaderboardRow], style: Style) -> go.Figure:
    """Progressive error against documents seen: mean over folds at each mark, a line per configuration."""
    figure = go.Figure()
    checkpoints: dict[int, dict[int, list[tuple[int, float]]]] = defaultdict(lambda: defaultdict(list))
    for row in _rows_shown(results.curves.sort_by("rows"), shown):
        checkpoints[row["configuration"]][row["fold"]].append((row["rows"], row["progressive_error"]))
    for entry in shown[:MAX_LINES]:
        folds = list(checkpoints.get(entry.configuration, {}).values())
        # Folds differ in size by a document or so, and so do their last checkpoints: the k-th ones belong together.
        points = [
            tuple(sum(values) / len(folds) for values in zip(*mark, strict=True)) for mark in zip(*folds, strict=False)
        ]
        colour, _ = style[entry.algorithm]
        figure.add_scatter(
            x=[rows for rows, _ in points],
            y=[100 * error for _, error in points],
            name=_line_name(entry),
            mode="lines",
            line={"color": colour, "width": 3 if entry.chosen else 2, "dash": _dash(entry, shown)},
            hovertext=[f"{_label(entry)}<br>{integer(rows)} documents: {percent(error)}" for rows, error in points],
            hoverinfo="text",
        )
    for epoch, rows in enumerate(_epoch_ends(results)[:-1], start=1):
        figure.add_vline(x=rows, line={"color": NEUTRAL, "width": 1, "dash": "dot"})
        if epoch == 1:
            figure.add_annotation(
                x=log10(rows),
                y=1,
                yref="paper",
                xanchor="right",
                yanchor="top",
                showarrow=False,
                text="end of epoch 1",
                font={"size": 11},
            )
    axes(figure, "documents seen (log scale)", "progressive error, %")
    figure.update_xaxes(type="log", **decades([rows for trace in figure.data for rows in trace.x]))
    return figure


def sparsity_figure(table: Sequence[LeaderboardRow], style: Style, baseline: float | None, held_out: bool) -> go.Figure:
    """Error against nonzero weights: a point per configuration, the Pareto front, the chosen one."""
    figure = go.Figure()
    ranked = [s for s in table if s.rank is not None]
    front = pareto_front(ranked)
    figure.add_scatter(
        x=[_at(s) for s in front],
        y=[_error(s) for s in front],
        mode="lines",
        name="Pareto front",
        line={"color": NEUTRAL, "width": 1.5, "shape": "hv", "dash": "dash"},
        hoverinfo="skip",
    )
    for algorithm in sorted({s.algorithm for s in ranked}):
        of = [s for s in ranked if s.algorithm == algorithm]
        colour, symbol = style[algorithm]
        figure.add_scatter(
            x=[_at(s) for s in of],
            y=[_error(s) for s in of],
            error_y={
                "array": [100 * (s.standard_error or 0.0) for s in of],
                "thickness": 1,
                "width": 0,
                "color": _faint(colour),
            },
            mode="markers",
            name=escape(algorithm),
            marker={"color": colour, "symbol": symbol, "size": 9, "opacity": 0.85},
            hovertext=[_hover(s) for s in of],
            hoverinfo="text",
        )
    for row in (s for s in ranked if s.chosen):
        figure.add_scatter(
            x=[_at(row)],
            y=[_error(row)],
            mode="markers",
            name="chosen",
            marker={"color": NEUTRAL, "symbol": "circle-open", "size": 20, "line": {"width": 2.5}},
            hoverinfo="skip",
        )
    if baseline is not None and any(_error(s) > 70 * baseline for s in ranked):
        figure.add_hline(y=100 * baseline, line={"color": NEUTRAL, "width": 1, "dash": "dot"})
        figure.add_annotation(
            x=0, xref="paper", xanchor="left", y=100 * baseline, yanchor="bottom", showarrow=False,
            text=f"largest class: {percent(baseline)}", font={"size": 11},
        )  # fmt: skip
    axes(
        figure,
        "nonzero weights, mean over folds (log scale)",
        ("held-out" if held_out else "online") + " error, %",
    )
    figure.update_xaxes(type="log", **decades([_at(s) for s in ranked]))
    return figure


def density_figure(results: Results, shown: Sequence[LeaderboardRow], style: Style) -> go.Figure:
    """Share of weights that are not zero, by how many documents contain the feature."""
    figure = go.Figure()
    classes = len(results.run.corpus.classes)
    columns = 1 if classes == 2 else max(classes, 1)
    bins: dict[int, dict[int, list[tuple[int, float]]]] = defaultdict(lambda: defaultdict(list))
    for row in _rows_shown(results.feature_survival, shown):
        bins[row["configuration"]][row["documents_from"]].append((row["features"], row["nonzeros"]))
    order = sorted({key for of in bins.values() for key in of})
    for entry in shown[:MAX_LINES]:
        of = bins.get(entry.configuration, {})
        shares, texts = [], []
        for key in order:
            features = sum(f for f, _ in of.get(key, [])) * columns
            nonzeros = sum(count for _, count in of.get(key, []))
            shares.append(100 * nonzeros / features if features else None)
            folds = max(len(of.get(key, [])), 1)
            texts.append(
                f"{_label(entry)}<br>in {_bin(key)} documents: {integer(features / columns / folds)} features,"
                f"<br>{percent(nonzeros / features if features else None)} nonzero weights"
            )
        colour, symbol = style[entry.algorithm]
        figure.add_scatter(
            x=[integer(start) for start in order],
            y=shares,
            name=_line_name(entry),
            mode="lines+markers",
            marker={"color": colour, "symbol": symbol, "size": 8},
            line={"color": colour, "width": 3 if entry.chosen else 2, "dash": _dash(entry, shown)},
            hovertext=texts,
            hoverinfo="text",
        )
    axes(figure, "document frequency (at least)", "nonzero weights, %")
    figure.update_xaxes(type="category")
    figure.update_yaxes(rangemode="tozero")
    return figure


def _rows_shown(table: pa.Table, shown: Sequence[LeaderboardRow]) -> list[dict[str, Any]]:
    """The rows of the configurations shown; a search may have thousands."""
    drawn = pa.array([s.configuration for s in shown[:MAX_LINES]], pa.int32())
    rows: list[dict[str, Any]] = table.filter(pc.is_in(table["configuration"], drawn)).to_pylist()
    return rows


def axes(figure: go.Figure, x: str, y: str) -> None:
    figure.update_layout(
        template=go.layout.Template(),
        height=420,
        margin={"l": 62, "r": 16, "t": 24, "b": 56},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        hovermode="closest",
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 1.06, "yanchor": "bottom"},
    )
    common: dict[str, Any] = {"showline": True, "ticks": "outside", "ticklen": 4, "zeroline": False, "automargin": True}
    figure.update_xaxes(title={"text": x, "standoff": 10}, **common, showgrid=False)
    figure.update_yaxes(title={"text": y, "standoff": 8}, **common, showgrid=True)


def decades(values: Sequence[float]) -> dict[str, Any]:
    """Ticks of a log axis at 1, 10, 100 … (and 1, 2, 5 on short ones), zero at the far left where it occurs."""
    positive = [v for v in values if v >= 1]
    if not positive:
        return {"tickvals": [_ZERO], "ticktext": ["0"], "range": [-0.6, 0.6]}
    low, high = log10(min(positive)), log10(max(positive))
    span = high - low
    steps: Sequence[float] = (1,) if span > 3 else (1, 2, 5) if span > 1 else (1, 1.5, 2, 3, 4, 5, 6, 7, 8)
    ticks = [s * 10**d for d in range(int(low), int(high) + 1) for s in steps]
    margin = max(0.04 * span, 0.03)
    zero = min(values) < 1
    return {
        "tickvals": ([_ZERO] if zero else []) + ticks,
        "ticktext": (["0"] if zero else []) + [_short(t) for t in ticks],
        "range": [log10(_ZERO) - margin if zero else low - margin, high + margin],
    }


_ZERO: Final = 0.5  # where a log axis shows zero


def _at(row: LeaderboardRow) -> float:
    return max(row.nonzeros or 0.0, _ZERO)


def _error(row: LeaderboardRow) -> float:
    return 100 * (row.error or 0.0)


def _short(value: float) -> str:
    for size, letter in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _bin(start: int) -> str:
    """The whole numbers of a bin that starts at a power of two: '1', '2–3', '1,024–2,047'."""
    return integer(start) if start == 1 else f"{integer(start)}–{integer(2 * start - 1)}"


def _label(row: LeaderboardRow) -> str:
    return f"<b>{escape(row.algorithm)}</b> {escape(row.label)}"


def _line_name(row: LeaderboardRow) -> str:
    return escape(row.algorithm) + (" (chosen)" if row.chosen else "")


def _dash(row: LeaderboardRow, shown: Sequence[LeaderboardRow]) -> str:
    """Dotted for a chosen configuration that is not its algorithm's best."""
    best = next(s for s in shown if s.algorithm == row.algorithm)
    return "solid" if row is best else "dot"


def _hover(row: LeaderboardRow) -> str:
    return (
        f"{_label(row)}<br>error {percent_with_error(row.error, row.standard_error)}"
        f"<br>{integer(row.nonzeros)} nonzero weights<br>rank {row.rank}, {duration(row.seconds)}"
    )


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.35)"


def _epoch_ends(results: Results) -> list[int]:
    """The running number of documents at the end of each epoch, mean over folds."""
    ends: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for row in results.metrics.select(["epoch", "fold", "rows", "status"]).to_pylist():
        if row["status"] in COMPLETE:
            ends[row["epoch"]].add((row["fold"], row["rows"]))
    return [round(sum(rows for _, rows in of) / len(of)) for _, of in sorted(ends.items())]
