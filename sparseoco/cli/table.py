"""The command that learns from a table."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import pyarrow.parquet as pq
import typer

from sparseoco.cli.app import STEPS, command
from sparseoco.cli.console import errors
from sparseoco.cli.options import Labels, local_place, number_or_word, pairs
from sparseoco.datasets.tables import read_table
from sparseoco.pipeline.tabular import fit_table
from sparseoco.report.wording import amount, parameters, percent, plural

SHOWN = 10


class Missing(StrEnum):
    ERROR, LEAVE_OUT = "error", "leave-out"


@command(rich_help_panel=STEPS)
def table(
    file: Annotated[
        Path, typer.Argument(parser=local_place, metavar="FILE", help="CSV (.gz, .bz2, .zst too) or Parquet.")
    ],
    target: Annotated[
        str,
        typer.Option(metavar="COLUMN", help="The column to predict; without a header columns are called 1, 2, 3, …"),
    ],
    out: Annotated[
        Path, typer.Option("--out", parser=local_place, metavar="FOLDER", help="Folder of the metrics and weights.")
    ],
    labels: Annotated[Labels, typer.Option(help="Whether the target is a class or a number.")] = Labels.CLASSES,
    leave_out: Annotated[
        list[str] | None, typer.Option("--leave-out", metavar="COLUMN", help="A column that is no feature; repeatable.")
    ] = None,
    header: Annotated[
        bool | None,
        typer.Option(
            "--header/--no-header",
            help="Whether the first line names the columns; by default, if none of its cells is a number.",
        ),
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(metavar="CHARACTER", help="What is between columns; by default a comma, in .tsv a tab."),
    ] = None,
    missing: Annotated[Missing, typer.Option(help="What becomes of rows with missing cells.")] = Missing.ERROR,
    standardise: Annotated[
        bool, typer.Option("--standardise", help="Bring every column to mean 0 and deviation 1.")
    ] = False,
    intercept: Annotated[bool, typer.Option("--intercept", help="Add a column of ones.")] = False,
    algorithm: Annotated[
        str, typer.Option("--algorithm", metavar="NAME", help="The learner (see sparseoco algorithms).")
    ] = "ons",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PARAMETER=VALUE", help="A parameter of the learner; repeatable."),
    ] = None,
    loss: Annotated[
        str | None, typer.Option(metavar="NAME", help="By default logistic for classes, squared for numbers.")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, metavar="N", help="Passes over the rows, in their order.")] = 1,
) -> None:
    """Learn one learner on a table of numbers, a row after the other."""
    values = {key: number_or_word(value) for key, value in pairs(settings, "--set").items()}
    rows = read_table(
        file,
        target=target,
        labels=labels.value,
        leave_out=leave_out or [],
        header=header,
        delimiter=delimiter,
        missing=missing.value,
    )
    fitted = fit_table(
        rows,
        out,
        algorithm=algorithm,
        parameters=values,
        loss=loss,
        standardised=standardise,
        intercept=intercept,
        epochs=epochs,
        source=file,
    )
    if rows.left_out:
        errors.print(f"{plural(len(rows.left_out), 'row')} with missing cells left out")
    if fitted.constant:
        errors.print(f"constant, and now 0: {', '.join(fitted.constant)}")
    n, d = rows.features.shape
    print(f"{file}: {plural(n, 'row')}, {plural(d, 'feature')}")
    print(f"{fitted.algorithm}: {parameters(fitted.parameters | fitted.computed)}")
    if fitted.diverged:
        errors.print(f"It diverged at row {fitted.diverged:,}: choose smaller steps, or standardise the columns.")
    wrong = "" if fitted.progressive_error is None else f", wrong on {percent(fitted.progressive_error)}"
    print(f"each of {plural(fitted.rows, 'row')} predicted before it was learned: mean loss "
          f"{amount(fitted.progressive_loss)}{wrong}")  # fmt: skip
    strongest = sorted(pq.read_table(out / "weights.parquet").to_pylist(), key=lambda row: -abs(row["weight"]))
    shown = [f"{row['feature']}{' → ' + row['class'] if len(rows.classes) > 2 else ''} {row['weight']:+.3g}"
             for row in strongest[:SHOWN]]  # fmt: skip
    print("heaviest weights: " + ", ".join(shown))
