"""The nightly run as a command."""

from enum import StrEnum
from typing import Annotated

import typer

from sparseoco.cli.app import STEPS, command
from sparseoco.cli.console import progress_bars
from sparseoco.cli.options import Cluster, File
from sparseoco.pipeline.nightly import night_line, run_nightly, serve_night
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
    serve: Annotated[
        int | None,
        typer.Option(
            metavar="NIGHT",
            min=1,
            help="Let the model that this night left serve again, until a later night promotes one; nothing is taken "
            "in or learned.",
        ),
    ] = None,
) -> None:
    """Take in the files that are new, judge the model that serves by them, go on learning, promote what is no worse."""
    described = load_run_file(file)
    if cluster_file is not None:
        described = described.model_copy(update={"cluster": load_cluster_file(cluster_file)})
    if serve is not None:
        outcome = serve_night(described, serve, if_running=if_running)
    else:
        with progress_bars() as progress:
            outcome = run_nightly(described, if_running=if_running, progress=progress)
    for night in outcome.nights:
        print(night_line(night))
    if outcome.sentence:
        print(outcome.sentence)
    if outcome.page is not None:
        print(f"report: {outcome.page}")
