"""The command that looks before a run leaps."""

import json
from typing import Annotated

import typer

from sparseoco.cli.app import HELP, command
from sparseoco.cli.options import Cluster, place
from sparseoco.ops.doctor import examine
from sparseoco.storage.locations import Location


@command(rich_help_panel=HELP)
def doctor(
    file: Annotated[
        Location | None,
        typer.Argument(
            parser=place,
            metavar="RUN_FILE",
            help="A run file (.toml or .yaml), or its address; none: this machine alone.",
        ),
    ] = None,
    cluster_file: Cluster = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Whether a run would go through here, how much memory it would take and how long it would last.

    What is wrong comes first, a sentence each; the exit code is 1 if anything is.
    """
    findings = examine(file, cluster_file)
    if as_json:
        print(json.dumps([finding._asdict() for finding in findings], indent=1))
    else:
        for finding in findings:
            print(f"{finding.state:<8}  {finding.subject}: {finding.sentence}")
    if any(finding.state == "wrong" for finding in findings):
        raise typer.Exit(1)
