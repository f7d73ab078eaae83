"""The nightly run as a command."""

from enum import StrEnum
from typing import Annotated

import typer

from sparseoco.cli.app import STEPS, command
from sparseoco.cli.console import progress_bars
from sparseoco.cli.options import Cluster, File
from sparseoco.pipeline.nightly import night_line, roll_back, run_nightly
from sparseoco.pipeline.run_file import load_cluster_file, load_run_file


class IfRunning(StrEnum):
    """What a run does while another one works in the same folder."""

    WAIT, END = "wait", "end"


@command(rich_help_panel=STEPS)
def nightly(
    file: File,
    cluster_file: Cluster = None,
    if_running: Annotated[
        IfRunning | None,
        typer.Option(
            help="Wait for a run that is under way in the same folder, or end; by default as in the run file."
        ),
    ] = None,
    rollback: Annotated[
        int | None,
        typer.Option(
            metavar="INCREMENT",
            min=1,
            help="Roll back to the model of this increment, until a later one is promoted; nothing is ingested or "
            "learned.",
        ),
    ] = None,
) -> None:
    """Ingest new files, evaluate the deployed model on them, learn them, promote the candidate if no worse."""
    described = load_run_file(file)
    if cluster_file is not None:
        described = described.model_copy(update={"cluster": load_cluster_file(cluster_file)})
    if rollback is not None:
        outcome = roll_back(described, rollback, if_running=if_running)
    else:
        with progress_bars() as progress:
            outcome = run_nightly(described, if_running=if_running, progress=progress)
    for increment in outcome.increments:
        print(night_line(increment))
    if outcome.message:
        print(outcome.message)
    if outcome.page is not None:
        print(f"report: {outcome.page}")
