"""Commands for finding out: the demonstration, the list of learners."""

from pathlib import Path
from typing import Annotated

import typer

from sparseoco.cli.app import HELP, command, summarize_run
from sparseoco.cli.console import output, progress_bars
from sparseoco.cli.options import local_place
from sparseoco.learners import ALGORITHMS
from sparseoco.pipeline.demo import run_demo


@command(rich_help_panel=HELP)
def demo(
    out: Annotated[
        Path, typer.Option("--out", parser=local_place, metavar="FOLDER", help="Folder of the demonstration.")
    ] = Path("demo-run"),
) -> None:
    """Learn which library a docstring belongs to, from the packages installed here, and write a report."""
    with progress_bars() as progress:
        described, page = run_demo(out, progress)
    summarize_run(described.out, page)


KINDS = {
    "stream": "Rows in turn, a round over the features of a row",
    "dense": "Rows in turn, a round over all features: for few of them (see --features-from)",
    "epoch": "Full passes, and rounds over rows that are drawn",
    "coordinate": "Rounds over features that are drawn",
}
"""The loops that run learners, by `Algorithm.driver`, in the order of the list."""


@command(rich_help_panel=HELP)
def algorithms() -> None:
    """The learners: formula, source, parameters."""
    for driver, kind in KINDS.items():
        output.print(f"[reverse]{kind}[/reverse]\n")
        for algorithm in (algorithm for algorithm in ALGORITHMS.values() if algorithm.driver == driver):
            output.print(f"[bold]{algorithm.name}[/bold]  {algorithm.source}")
            output.print(f"    {algorithm.formula}", markup=False)
            for parameter in algorithm.parameters:
                output.print(f"    {parameter.name} = {parameter.default}  {parameter.meaning}", markup=False)
            output.print()
