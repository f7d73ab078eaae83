"""The command that runs a paper's experiments again."""

from pathlib import Path
from typing import Annotated

import pyarrow.parquet as pq
import typer
from rich.table import Table
from rich.text import Text

from sparseoco.cli.app import HELP, app
from sparseoco.console import output, progress_bars
from sparseoco.errors import InputError
from sparseoco.reproduce import reproduce_onseg
from sparseoco.reproduce.onseg import DRAWS, REPETITIONS


@app.command(rich_help_panel=HELP)
def reproduce(
    paper: Annotated[str, typer.Argument(metavar="PAPER", help="onseg: Liu et al. 2019, §4.")],
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            metavar="DIR",
            help="Folder of abalone.data, kin8nm.csv, ionosphere.data, breast.data, nyse_o.csv.gz and "
            "shanghai_weekly.csv; what is missing is left out.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the tables and the page.")],
    repetitions: Annotated[int, typer.Option(min=2, help="Runs of a bandit on a data set.")] = REPETITIONS,
    draws: Annotated[int, typer.Option(min=2, help="Draws of stocks.")] = DRAWS,
) -> None:
    """Run a paper's experiments again: tables, figures, which of its claims hold."""
    if paper != "onseg":
        raise InputError(f"{paper} is not a paper whose experiments are here; there is onseg.")
    with progress_bars() as progress:
        page = reproduce_onseg(data, out, repetitions=repetitions, draws=draws, progress=progress)
    table = Table("claim", "where", "holds here")
    told = ""
    for row in pq.read_table(out / "claims.parquet").to_pylist():
        table.add_row(Text("" if row["claim"] == told else row["claim"]), row["where"], row["holds"])
        told = row["claim"]
    output.print(table)
    print(f"report: {page}")
