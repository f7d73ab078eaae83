"""The page of a mixture: the weights of its columns along the stream, and the mixture against the best of them."""

import json
from collections.abc import Callable
from typing import Final, NamedTuple

import pyarrow as pa
from typing_extensions import TypedDict

from sparseoco.core.errors import InputError
from sparseoco.core.formatting import amount, integer, parameters, percent
from sparseoco.report.charts import COLOURS, NEUTRAL, Chart, Series, Style, confusion_figure, dashes, line_chart, styles
from sparseoco.report.figures import MAX_CLASSES, strongest, used_features
from sparseoco.report.results import ClassRecord, EvaluationRecord, read_evaluation
from sparseoco.report.svg import Plot, plot, render_page
from sparseoco.storage.commit import Count, commit_bytes, read_json, validated, with_other_keys
from sparseoco.storage.locations import Location
from sparseoco.storage.tables import Row, read_parquet_file
from sparseoco.training.models import DESCRIPTION, MixtureDescription

OWN: Final = "ci"
"""The colour of the mixture; columns have those of their algorithms."""
LINES: Final = 8
"""Columns drawn: those that were heaviest on the way."""


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


@with_other_keys
class FeatureCount(TypedDict):
    """The number of features that a model was trained on."""

    count: Count


@with_other_keys
class VersionRecord(TypedDict):
    """The version of this package that trained a model."""

    sparseoco: str


@with_other_keys
class MixtureModel(TypedDict):
    """What the page shows of model.json."""

    classes: list[str]
    nonzeros: Count
    features: FeatureCount
    provenance: VersionRecord
    seed: Count
    loss: str
    penalty: str
    epochs: Count
    mixture: MixtureDescription


def write_mixture_page(model: Location) -> Location:
    """Write MODEL/mixture.html; returns its path. Reads MODEL's files, and evaluation.json there or of its run.

    Raises `InputError` if the model is not a mixture, `StorageError` if a file cannot be read or written.
    """
    path = model / DESCRIPTION
    described = read_json(path)
    if "mixture" not in described:
        raise InputError(f"{model} is not a mixture: it was not trained with --algorithm auto.", code="not-a-mixture")
    validated(path, described, MixtureModel)
    marks, rows, timings = (
        read_parquet_file(model / f"{name}.parquet").to_pylist() for name in ("regret", "columns", "timings")
    )
    weights = read_parquet_file(model / "weights.parquet")
    page = model / "mixture.html"
    evaluation = read_evaluation(model / "evaluation.json")
    if evaluation is None and (model.parent / "run.json").is_file():
        evaluation = read_evaluation(model.parent / "evaluation.json")
    text = render_mixture(described, marks, _columns(rows), timings[-1]["seconds"], weights, evaluation)
    commit_bytes(page, text.encode())
    return page


def render_mixture(
    described: Row,
    marks: list[Row],
    columns: list[MixtureColumn],
    seconds: float,
    weights: pa.Table,
    evaluation: EvaluationRecord | None,
) -> str:
    """The page as text."""
    classes = described["classes"]
    style = styles(column.algorithm for column in columns)
    errors_figure, numbers = mixture_errors_figure(marks, columns, style), marks[-1]["progressive_error"] is None
    measure = "loss" if numbers else "error, %,"
    plots = [
        plot("weights", "Weights of the configurations in the mixture", weights_figure(columns, style)),
        plot("errors", f"Progressive {measure} of the mixture and its columns", errors_figure),
        plot("regret", "Regret and its bounds", mixture_regret_figure(marks)),
    ]
    heaviest = max(columns, key=lambda column: float(column.end["weight"]))
    context = {
        "described": described,
        "options": described["mixture"]["options"],
        "end": marks[-1],
        "numbers": numbers,
        "heaviest": heaviest,
        "best": columns[marks[-1]["best_error_column"]],
        "best_loss": columns[marks[-1]["best_loss_column"]],
        "columns": sorted(columns, key=lambda column: -float(column.end["weight"])),
        "seconds": seconds,
        "style": style,
        "plots": plots,
        "evaluation": evaluation,
        "confusion": _confusion(evaluation),
        "used": used_features(weights),
        "panels": strongest(
            weights, [ClassRecord(name=name, rows=0) for name in classes], 15 if len(classes) < 5 else 8
        ),
        "max_classes": MAX_CLASSES,
    }
    return render_page("mixture", context)


def _confusion(evaluation: EvaluationRecord | None) -> Plot | None:
    if evaluation is None or not evaluation.confusion:
        return None
    chart = confusion_figure([of.name for of in evaluation.classes], evaluation.confusion)
    return plot("confusion", "Confusion of the test documents", chart)


def weights_figure(columns: list[MixtureColumn], style: Style) -> Chart:
    """The weight of each of the heaviest columns against documents seen, and of all others together."""
    shown = _shown(columns)
    series = [
        _line(column, colour, dash, [100 * mark["weight"] for mark in column.marks])
        for column, colour, dash in zip(shown, _colours(shown, style), dashes(len(shown)), strict=True)
    ]
    if len(shown) < len(columns):
        rest = [column for column in columns if column not in shown]
        rows = [mark["rows"] for mark in columns[0].marks]
        sums = [sum(column.marks[k]["weight"] for column in rest) for k in range(len(rows))]
        series.append(
            Series(
                f"{len(rest)} others together",
                rows,
                [100 * total for total in sums],
                NEUTRAL,
                dash="dot",
                width=1.5,
                heading=f"{len(rest)} others together",
                labels=[_at(at, percent(total)) for at, total in zip(rows, sums, strict=True)],
            )
        )
    return line_chart(series, "documents seen", "weight, %", log="x", zero="y")


def mixture_errors_figure(marks: list[Row], columns: list[MixtureColumn], style: Style) -> Chart:
    """Progressive error, of numbers loss, of the mixture, of the best column so far, and of the heaviest columns."""
    shown = _shown(columns)
    series = []
    measure, scale = "error", 100.0
    written: Callable[[float], str] = percent
    if marks[-1]["progressive_error"] is None:
        measure, scale, written = "loss", 1.0, amount
    for column, colour, dash in zip(shown, _colours(shown, style), dashes(len(shown)), strict=True):
        values = [mark[f"progressive_{measure}"] for mark in column.marks]
        scaled = [None if value is None else scale * value for value in values]
        series.append(_line(column, colour, dash, scaled, scale, written)._replace(width=1.2))
    for name, key, colour, width, dash in (
        ("best so far, in hindsight", f"best_{measure}", NEUTRAL, 2, "dash"),
        ("mixture", f"progressive_{measure}", OWN, 3.5, "solid"),
    ):
        series.append(_sum(name, marks, key, colour, width, dash, scale, written))
    label = "progressive error, %" if measure == "error" else "progressive loss"
    return line_chart(series, "documents seen", label, log="x")


def mixture_regret_figure(marks: list[Row]) -> Chart:
    """The regret of the weights against the best column, and its bound."""
    series = [
        _sum(name, [mark for mark in marks if mark[key] is not None], key, colour, width, dash, 1.0, amount)
        for name, key, colour, width, dash in (
            ("regret", "regret", OWN, 3, "solid"),
            ("bound", "bound", NEUTRAL, 2, "dash"),
            ("bound as printed", "printed_bound", NEUTRAL, 1.5, "dot"),
        )
        if any(mark[key] is not None for mark in marks)
    ]
    return line_chart(series, "documents seen", "sum over documents", zero="xy")


def _line(
    column: MixtureColumn,
    colour: str,
    dash: str,
    values: list[float | None],
    scale: float = 100.0,
    written: Callable[[float], str] = percent,
) -> Series:
    name = f"{column.algorithm} {column.label}"
    labels = [
        "" if value is None else _at(mark["rows"], written(value / scale))
        for mark, value in zip(column.marks, values, strict=True)
    ]
    rows = [mark["rows"] for mark in column.marks]
    return Series(name, rows, values, colour, dash=dash, heading=name, labels=labels)


def _sum(
    name: str,
    marks: list[Row],
    key: str,
    colour: str,
    width: float,
    dash: str,
    scale: float,
    written: Callable[[float], str],
) -> Series:
    rows = [mark["rows"] for mark in marks]
    labels = [_at(mark["rows"], written(mark[key])) for mark in marks]
    values = [scale * mark[key] for mark in marks]
    return Series(name, rows, values, colour, dash=dash, width=width, heading=name, labels=labels)


def _at(rows: int, value: str) -> str:
    return f"{integer(rows)} documents: {value}"


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


def _colours(shown: list[MixtureColumn], style: Style) -> list[str]:
    """The colour of each column: that of its algorithm or, of one algorithm, its own."""
    if len({column.algorithm for column in shown}) > 1:
        return [style[column.algorithm][0] for column in shown]
    return [COLOURS[k % len(COLOURS)] for k in range(len(shown))]


def _shown(columns: list[MixtureColumn]) -> list[MixtureColumn]:
    return sorted(columns, key=lambda column: -column.heaviest)[:LINES]
