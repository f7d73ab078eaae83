"""The page of a mixture: the weights of its columns along the stream, and the mixture against the best of them."""

import json
from collections import defaultdict
from typing import Any, Final

import numpy as np
from typing_extensions import TypedDict

from sparseoco.core.errors import InputError
from sparseoco.core.formatting import amount, integer, parameters, percent
from sparseoco.report.charts import NEUTRAL, Chart, Series, Style, line, line_chart, looks, styles
from sparseoco.report.figures import MAX_CLASSES, Line, strongest, used_features
from sparseoco.report.page import Confusion
from sparseoco.report.predictions import merged_confusion
from sparseoco.report.results import read_evaluation, varied_parameters
from sparseoco.report.svg import draw_plots, render_page
from sparseoco.storage.commit import Count, commit_bytes, validated, with_other_keys
from sparseoco.storage.locations import Location
from sparseoco.storage.tables import Row, read_parquet_file
from sparseoco.store.manifest import ClassEntry
from sparseoco.training.models import DESCRIPTION, MixtureDescription, read_description

OWN: Final = "ci"
"""The colour of the mixture; columns have those of their algorithms."""
LINES: Final = 8
"""Columns drawn: those that were heaviest on the way."""


@with_other_keys
class VersionRecord(TypedDict):
    """The version of this package that trained a model."""

    sparseoco: str


@with_other_keys
class MixtureModel(TypedDict):
    """What model.json says of a mixture that it may lack of another model."""

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
    described = read_description(model)
    if "mixture" not in described:
        raise InputError(f"{model} is not a mixture: it was not trained with --algorithm auto.", code="not-a-mixture")
    validated(model / DESCRIPTION, described, MixtureModel)
    marks, rows, timings = (
        read_parquet_file(model / f"{name}.parquet").to_pylist() for name in ("regret", "columns", "timings")
    )
    weights, columns = read_parquet_file(model / "weights.parquet"), _columns(rows)
    evaluation = read_evaluation(model / "evaluation.json")
    if evaluation is None and (model.parent / "run.json").is_file():
        evaluation = read_evaluation(model.parent / "evaluation.json")
    classes, numbers = described["classes"], marks[-1]["progressive_error"] is None
    style = styles(column.algorithm for column in columns)
    title = f"Progressive {'loss' if numbers else 'error, %,'} of the mixture and its columns"
    confusion = None
    if evaluation is not None and evaluation.confusion:
        names, counts = merged_confusion([of.name for of in evaluation.classes], np.array(evaluation.confusion))
        confusion = Confusion("Confusion of the test documents", names, counts.tolist())
    figures = {
        "weights": ("Weights of the configurations in the mixture", weights_figure(columns, style)),
        "errors": (title, mixture_errors_figure(marks, columns, style)),
        "regret": ("Regret and its bounds", mixture_regret_figure(marks)),
    }
    context = {
        "confusion": confusion,
        "described": described,
        "options": described["mixture"]["options"],
        "end": marks[-1],
        "numbers": numbers,
        "best": columns[marks[-1]["best_error_column"]],
        "best_loss": columns[marks[-1]["best_loss_column"]],
        "columns": sorted(columns, key=lambda column: -float(column.end["weight"])),
        "seconds": timings[-1]["seconds"],
        "style": style,
        "plots": draw_plots(figures),
        "evaluation": evaluation,
        "used": used_features(weights),
        "panels": strongest(weights, [ClassEntry(name=of, rows=0) for of in classes], 15 if len(classes) < 5 else 8),
        "max_classes": MAX_CLASSES,
    }
    page = model / "mixture.html"
    commit_bytes(page, render_page("mixture", context).encode())
    return page


def weights_figure(columns: list[Line], style: Style) -> Chart:
    """The weight of each of the heaviest columns against documents seen, and of all others together."""
    shown = _heaviest(columns)
    series = _column_traces(shown, style, "weight")
    rest = [column.marks for column in columns if column not in shown]
    if rest:
        sums = [
            {"rows": own[0]["rows"], "weight": sum(mark["weight"] for mark in own)} for own in zip(*rest, strict=True)
        ]
        series.append(
            _trace(sums, "weight", name=f"{len(rest)} others together", colour=NEUTRAL, dash="dot", width=1.5)
        )
    return line_chart(series, "documents seen", "weight, %", log="x", zero="y")


def mixture_errors_figure(marks: list[Row], columns: list[Line], style: Style) -> Chart:
    """Progressive error, of numbers loss, of the mixture, of the best column so far, and of the heaviest columns."""
    measure, unit = ("loss", "") if marks[-1]["progressive_error"] is None else ("error", ", %")
    own, best = f"progressive_{measure}", f"best_{measure}"
    series = [
        *_column_traces(_heaviest(columns), style, own, width=1.2),
        _trace(marks, best, name="best so far, in hindsight", colour=NEUTRAL, width=2, dash="dash"),
        _trace(marks, own, name="mixture", colour=OWN, width=3.5),
    ]
    return line_chart(series, "documents seen", f"progressive {measure}{unit}", log="x")


def mixture_regret_figure(marks: list[Row]) -> Chart:
    """The regret of the weights against the best column, and its bound."""
    series = [
        _trace(marks, "regret", name="regret", colour=OWN, width=3),
        _trace(marks, "bound", name="bound", colour=NEUTRAL, width=2, dash="dash"),
    ]
    if any(mark["printed_bound"] is not None for mark in marks):
        series.append(_trace(marks, "printed_bound", name="bound as printed", colour=NEUTRAL, width=1.5, dash="dot"))
    return line_chart(series, "documents seen", "sum over documents", zero="xy")


def _heaviest(columns: list[Line]) -> list[Line]:
    """The columns that were heaviest on the way."""
    return sorted(columns, key=lambda column: -max(mark["weight"] for mark in column.marks))[:LINES]


def _column_traces(shown: list[Line], style: Style, key: str, **more: Any) -> list[Series]:
    drawn = looks([column.algorithm for column in shown], style)
    return [
        _trace(column.marks, key, name=column.heading, colour=look.colour, dash=look.dash, **more)
        for column, look in zip(shown, drawn, strict=True)
    ]


def _trace(marks: list[Row], key: str, **look: Any) -> Series:
    """A line through a column of the marks, which may lack values; weights and errors are drawn in per cent."""
    scale, written = (100.0, percent) if key == "weight" or key.endswith("error") else (1.0, amount)
    points = [
        (mark["rows"], None, "")
        if mark[key] is None
        else (mark["rows"], scale * mark[key], f"{integer(mark['rows'])} documents: {written(mark[key])}")
        for mark in marks
    ]
    return line(points=points, **look)


def _columns(rows: list[Row]) -> list[Line]:
    """Columns by number, each labelled with the parameters in which its algorithm's columns differ."""
    found: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["column"]].append(row)
    chosen = {number: (of[0]["algorithm"], json.loads(of[0]["parameters"])) for number, of in sorted(found.items())}
    varied = varied_parameters(chosen)
    return [Line(parameters(own) if own else "", found[number], found[number][-1]) for number, own in varied.items()]
