"""The page of a mixture: the weights of its columns along the stream, and the mixture against the best of them."""

import json
from html import escape
from typing import Final, NamedTuple

import plotly.graph_objects as go

from sparseoco.core.errors import InputError
from sparseoco.report.figures import NEUTRAL, Style, axes, decades, styles
from sparseoco.report.html import environment, plot, plotly_script
from sparseoco.report.wording import amount, integer, parameters, percent
from sparseoco.storage.commit import commit_bytes, read_json
from sparseoco.storage.errors import storage_error
from sparseoco.storage.locations import Location
from sparseoco.storage.metrics import Row, read_result_table

OWN: Final = "#CC79A7"
"""The colour of the mixture; columns have those of their algorithms."""
LINES: Final = 8
"""Columns drawn: those that were heaviest on the way."""
DASHES: Final = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


class MixtureColumn(NamedTuple):
    """A column of the mixture and its marks, in order."""

    number: int
    algorithm: str
    label: str
    marks: list[Row]

    @property
    def end(self) -> Row:
        """Its last mark."""
        return self.marks[-1]

    @property
    def heaviest(self) -> float:
        """Its largest weight at any mark."""
        return max(float(mark["weight"]) for mark in self.marks)


def write_mixture_page(model: Location) -> Location:
    """Write MODEL/mixture.html; returns its path. Reads only MODEL's files.

    Raises `InputError` if the model is not a mixture, `StorageError` if a file cannot be read or written.
    """
    described = read_json(model / "model.json")
    if "mixture" not in described:
        raise InputError(f"{model} is not a mixture: it was not trained with --algorithm auto.", code="not-a-mixture")
    try:
        marks = read_result_table(model / "regret.parquet").to_pylist()
        rows = read_result_table(model / "columns.parquet").to_pylist()
        timings = read_result_table(model / "timings.parquet").to_pylist()
    except OSError as error:
        raise storage_error(error, model) from error
    page = model / "mixture.html"
    commit_bytes(page, render_mixture(described, marks, _columns(rows), timings[-1]["seconds"]).encode())
    return page


def render_mixture(described: Row, marks: list[Row], columns: list[MixtureColumn], seconds: float) -> str:
    """The page as text."""
    style = styles(column.algorithm for column in columns)
    plots = [
        plot("weights", "Weights of the configurations in the mixture", weights_figure(columns, style)),
        plot(
            "errors",
            "Progressive error of the mixture and its columns, %",
            mixture_errors_figure(marks, columns, style),
        ),
        plot("regret", "Regret and its bounds", mixture_regret_figure(marks)),
    ]
    heaviest = max(columns, key=lambda column: float(column.end["weight"]))
    context = {
        "described": described,
        "options": described["mixture"]["options"],
        "end": marks[-1],
        "heaviest": heaviest,
        "best": columns[marks[-1]["best_error_column"]],
        "best_loss": columns[marks[-1]["best_loss_column"]],
        "columns": sorted(columns, key=lambda column: -float(column.end["weight"])),
        "seconds": seconds,
        "style": style,
        "plots": plots,
        "plotly": plotly_script(),
    }
    return environment().get_template("mixture.html.j2").render(context)


def weights_figure(columns: list[MixtureColumn], style: Style) -> go.Figure:
    """The weight of each of the heaviest columns against documents seen, and of all others together."""
    figure = go.Figure()
    shown = _shown(columns)
    for column, dash in zip(shown, _dashes(shown), strict=True):
        figure.add_scatter(
            x=[mark["rows"] for mark in column.marks],
            y=[100 * mark["weight"] for mark in column.marks],
            name=escape(f"{column.algorithm} {column.label}"),
            mode="lines",
            line={"color": style[column.algorithm][0], "width": 2, "dash": dash},
            hovertext=[
                f"<b>{escape(column.algorithm)}</b> {escape(column.label)}<br>{integer(mark['rows'])} documents: "
                f"weight {percent(mark['weight'])}"
                for mark in column.marks
            ],
            hoverinfo="text",
        )
    if len(shown) < len(columns):
        rest = [column for column in columns if column not in shown]
        figure.add_scatter(
            x=[mark["rows"] for mark in columns[0].marks],
            y=[100 * sum(column.marks[k]["weight"] for column in rest) for k in range(len(columns[0].marks))],
            name=f"{len(rest)} others together",
            mode="lines",
            line={"color": NEUTRAL, "width": 1.5, "dash": "dot"},
        )
    axes(figure, "documents seen (log scale)", "weight, %")
    figure.update_xaxes(type="log", **decades([mark["rows"] for mark in columns[0].marks]))
    figure.update_yaxes(rangemode="tozero")
    return figure


def mixture_errors_figure(marks: list[Row], columns: list[MixtureColumn], style: Style) -> go.Figure:
    """Progressive error of the mixture, of the best column so far, and of the heaviest columns."""
    figure = go.Figure()
    rows = [mark["rows"] for mark in marks]
    shown = _shown(columns)
    for column, dash in zip(shown, _dashes(shown), strict=True):
        figure.add_scatter(
            x=[mark["rows"] for mark in column.marks if mark["progressive_error"] is not None],
            y=[100 * mark["progressive_error"] for mark in column.marks if mark["progressive_error"] is not None],
            name=escape(f"{column.algorithm} {column.label}"),
            mode="lines",
            line={"color": style[column.algorithm][0], "width": 1, "dash": dash},
        )
    for name, key, colour, width, dash in (
        ("best so far, in hindsight", "best_error", NEUTRAL, 2, "dash"),
        ("mixture", "progressive_error", OWN, 3, "solid"),
    ):
        figure.add_scatter(
            x=rows,
            y=[100 * mark[key] for mark in marks],
            name=name,
            mode="lines",
            line={"color": colour, "width": width, "dash": dash},
            hovertext=[f"{name}<br>{integer(mark['rows'])} documents: {percent(mark[key])}" for mark in marks],
            hoverinfo="text",
        )
    axes(figure, "documents seen (log scale)", "progressive error, %")
    figure.update_xaxes(type="log", **decades(rows))
    return figure


def mixture_regret_figure(marks: list[Row]) -> go.Figure:
    """The regret of the weights against the best column, and its bound."""
    figure = go.Figure()
    for name, key, colour, width, dash in (
        ("regret", "regret", OWN, 3, "solid"),
        ("bound", "bound", NEUTRAL, 2, "dash"),
        ("bound as printed", "printed_bound", NEUTRAL, 1.5, "dot"),
    ):
        points = [mark for mark in marks if mark[key] is not None]
        if points:
            figure.add_scatter(
                x=[mark["rows"] for mark in points],
                y=[mark[key] for mark in points],
                name=name,
                mode="lines",
                line={"color": colour, "width": width, "dash": dash},
                hovertext=[f"{name}<br>{integer(mark['rows'])} documents: {amount(mark[key])}" for mark in points],
                hoverinfo="text",
            )
    axes(figure, "documents seen", "sum over documents")
    figure.update_xaxes(rangemode="tozero")
    return figure


def _columns(rows: list[Row]) -> list[MixtureColumn]:
    """Columns by number, each labelled with the parameters in which its algorithm's columns differ."""
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(row["column"], []).append(row)
    chosen = {number: json.loads(of[0]["parameters"]) for number, of in found.items()}
    columns = []
    for number, of in sorted(found.items()):
        name = of[0]["algorithm"]
        alike = [chosen[k] for k, other in found.items() if other[0]["algorithm"] == name]
        own = {key: value for key, value in chosen[number].items() if any(value != other[key] for other in alike)}
        columns.append(MixtureColumn(number, name, parameters(own) if own else "", of))
    return columns


def _shown(columns: list[MixtureColumn]) -> list[MixtureColumn]:
    return sorted(columns, key=lambda column: -column.heaviest)[:LINES]


def _dashes(shown: list[MixtureColumn]) -> list[str]:
    """A different dash for each line of one colour."""
    seen: dict[str, int] = {}
    dashes = []
    for column in shown:
        place = seen[column.algorithm] = seen.get(column.algorithm, -1) + 1
        dashes.append(DASHES[place % len(DASHES)])
    return dashes
