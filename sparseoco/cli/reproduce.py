"""The command that runs a paper's experiments again."""

import inspect
from pathlib import Path
from typing import Annotated

import pyarrow.parquet as pq
import typer
from rich.table import Table
from rich.text import Text

from sparseoco.cli.app import HELP, command
from sparseoco.cli.console import output, progress_bars
from sparseoco.cli.options import local_place
from sparseoco.core.errors import InputError
from sparseoco.papers import PAPERS

_PAPERS = "; ".join(f"{name}: {paper.meaning}" for name, paper in PAPERS.items())


@command(rich_help_panel=HELP)
def reproduce(
    paper: Annotated[str, typer.Argument(metavar="PAPER", help=f"{_PAPERS}.")],
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            parser=local_place,
            metavar="FOLDER",
            help="Folder of the paper's data sets; what is missing is left out.",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", parser=local_place, metavar="FOLDER", help="Folder of the tables and the page.")
    ],
    repetitions: Annotated[
        int | None, typer.Option(min=2, metavar="N", help="Runs of what is drawn at random.")
    ] = None,
    draws: Annotated[int | None, typer.Option(min=2, metavar="N", help="Of onseg: draws of stocks.")] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Of cl-fobos: examples that a run sees.")
    ] = None,
    methods: Annotated[
        Path | None,
        typer.Option(
            parser=local_place,
            metavar="FILE",
            help="Methods of your own beside those of stda or sgft: TOML or YAML with a table "
            '[methods."NAME".algorithms.LEARNER] each, as in a run file\'s [search].',
        ),
    ] = None,
) -> None:
    """Run a paper's experiments again: tables, figures, which of its claims hold."""
    if paper not in PAPERS:
        raise InputError(f"{paper} is not a paper whose experiments are here; there is {', '.join(PAPERS)}.")
    run = PAPERS[paper].run
    given = {"repetitions": repetitions, "draws": draws, "rounds": rounds, "methods": methods}
    options = {name: value for name, value in given.items() if value is not None}
    for name in options:
        if name not in inspect.signature(run).parameters:
            raise InputError(f"The experiments of {paper} have no --{name}.")
    with progress_bars() as progress:
        page = run(data, out, **options, progress=progress)
    table = Table("claim", "where", "holds here")
    told = ""
    for row in pq.read_table(out / "claims.parquet").to_pylist():
        table.add_row(Text("" if row["claim"] == told else row["claim"]), row["where"], row["holds"])
        told = row["claim"]
    output.print(table)
    print(f"report: {page}")
