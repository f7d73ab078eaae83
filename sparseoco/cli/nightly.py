"""The nightly run as a command."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from sparseoco.arguments import Cluster
from sparseoco.cli.app import STEPS, app
from sparseoco.config import load_cluster_file, load_run_file
from sparseoco.console import progress_bars
from sparseoco.nightly import night_line, run_nightly


class IfRunning(StrEnum):
    """What a run does while another one works in the same folder."""

    WAIT, END = "wait", "end"


@app.command(rich_help_panel=STEPS)
def nightly(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A run file (.toml or .yaml).")],
    cluster_file: Cluster = None,
    if_running: Annotated[
        IfRunning | None,
        typer.Option(
            help="Wait for a run that is under way in the same folder, or end; by default as in the run file."
        ),
    ] = None,
) -> None:
    """Take in the files that are new, judge the model that serves by them, go on learning, promote what is no worse."""
    described = load_run_file(file)
    if cluster_file is not None:
        described = described.model_copy(update={"cluster": load_cluster_file(cluster_file)})
    with progress_bars() as progress:
        outcome = run_nightly(described, if_running=if_running, progress=progress)
    for night in outcome.nights:
        print(night_line(night))
    if outcome.sentence:
        print(outcome.sentence)
    if outcome.page is not None:
        print(f"report: {outcome.page}")
