"""The page of a mixture: the weights of its columns along the stream, and the mixture against the best of them."""

import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pyarrow as pa
from typing_extensions import TypedDict

from sparseoco.core.errors import InputError
from sparseoco.core.formatting import amount, integer, parameters, percent
from sparseoco.report.charts import (
    COLOURS,
    NEUTRAL,
    Chart,
    Series,
    Style,
    dashes,
    line,
    line_chart,
    styles,
)
from sparseoco.report.figures import MAX_CLASSES, strongest, used_features
from sparseoco.report.predictions import confusion_figure
from sparseoco.report.results import ClassRecord, EvaluationRecord, read_evaluation
from sparseoco.report.svg import plot, render_page
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
    classes, numbers = described["classes"], marks[-1]["progressive_error"] is None
    style = styles(column.algorithm for column in columns)
    title = f"Progressive {'loss' if numbers else 'error, %,'} of the mixture and its columns"
    confusion = None
    if evaluation is not None and evaluation.confusion:
        chart = confusion_figure([of.name for of in evaluation.classes], evaluation.confusion)
        confusion = plot("confusion", "Confusion of the test documents", chart)
    heaviest = sorted(columns, key=lambda column: -float(column.end["weight"]))
    records = [ClassRecord(name=name, rows=0) for name in classes]
    context = {
        "described": described,
        "options": described["mixture"]["options"],
        "end": marks[-1],
        "numbers": numbers,
        "heaviest": heaviest[0],
        "best": columns[marks[-1]["best_error_column"]],
        "best_loss": columns[marks[-1]["best_loss_column"]],
        "columns": heaviest,
        "seconds": seconds,
        "style": style,
        "plots": [
            plot("weights", "Weights of the configurations in the mixture", weights_figure(columns, style)),
            plot("errors", title, mixture_errors_figure(marks, columns, style)),
            plot("regret", "Regret and its bounds", mixture_regret_figure(marks)),
        ],
        "evaluation": evaluation,
        "confusion": confusion,
        "used": used_features(weights),
        "panels": strongest(weights, records, 15 if len(classes) < 5 else 8),
        "max_classes": MAX_CLASSES,
    }
    return render_page("mixture", context)


def weights_figure(columns: list[MixtureColumn], style: Style) -> Chart:
    """The weight of each of the heaviest columns against documents seen, and of all others together."""
    shown = _looks(columns, style)
    series = [_trace(column.marks, "weight", 100.0, percent, **look) for column, look in shown]
    rest = [column for column in columns if column not in [drawn for drawn, _ in shown]]
    if rest:
        sums = [
            {"rows": own[0]["rows"], "weight": sum(mark["weight"] for mark in own)}
            for own in zip(*(column.marks for column in rest), strict=True)
        ]
        look = {"name": f"{len(rest)} others together", "colour": NEUTRAL, "dash": "dot"}
        series.append(_trace(sums, "weight", 100.0, percent, width=1.5, **look))
    return line_chart(series, "documents seen", "weight, %", log="x", zero="y")


def mixture_errors_figure(marks: list[Row], columns: list[MixtureColumn], style: Style) -> Chart:
    """Progressive error, of numbers loss, of the mixture, of the best column so far, and of the heaviest columns."""
    numbers = marks[-1]["progressive_error"] is None
    measure, scale, written = ("loss", 1.0, amount) if numbers else ("error", 100.0, percent)
    own, best = f"progressive_{measure}", f"best_{measure}"
    series = [
        *(_trace(column.marks, own, scale, written, width=1.2, **look) for column, look in _looks(columns, style)),
        _trace(marks, best, scale, written, name="best so far, in hindsight", colour=NEUTRAL, width=2, dash="dash"),
        _trace(marks, own, scale, written, name="mixture", colour=OWN, width=3.5),
    ]
    return line_chart(series, "documents seen", f"progressive {measure}{'' if numbers else ', %'}", log="x")


def mixture_regret_figure(marks: list[Row]) -> Chart:
    """The regret of the weights against the best column, and its bound."""
    series = []
    for name, key, colour, width, dash in (
        ("regret", "regret", OWN, 3, "solid"),
        ("bound", "bound", NEUTRAL, 2, "dash"),
        ("bound as printed", "printed_bound", NEUTRAL, 1.5, "dot"),
    ):
        known = [mark for mark in marks if mark[key] is not None]
        if known:
            series.append(_trace(known, key, 1.0, amount, name=name, colour=colour, width=width, dash=dash))
    return line_chart(series, "documents seen", "sum over documents", zero="xy")


def _trace(marks: list[Row], key: str, scale: float, written: Callable[[float], str], **look: Any) -> Series:
    """A line through a column of the marks, which may lack values."""
    points = [
        (mark["rows"], None, "")
        if mark[key] is None
        else (mark["rows"], scale * mark[key], f"{integer(mark['rows'])} documents: {written(mark[key])}")
        for mark in marks
    ]
    return line(points=points, **look)


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


def _looks(columns: list[MixtureColumn], style: Style) -> list[tuple[MixtureColumn, dict[str, Any]]]:
    """The columns that were heaviest on the way, in the colour of their algorithm or, of one algorithm, each in its
    own."""
    shown = sorted(columns, key=lambda column: -column.heaviest)[:LINES]
    alone = len({column.algorithm for column in shown}) == 1
    return [
        (
            column,
            {"name": f"{column.algorithm} {column.label}", "dash": dash}
            | {"colour": COLOURS[k % len(COLOURS)] if alone else style[column.algorithm][0]},
        )
        for k, (column, dash) in enumerate(zip(shown, dashes(len(shown)), strict=True))
    ]
