"""The command that shows how far a run is."""

import json
import time
from typing import Annotated

import typer

from sparseoco.cli.app import HELP, command
from sparseoco.cli.options import place
from sparseoco.ops.status import Status, read_status
from sparseoco.report.wording import duration
from sparseoco.storage.locations import Location


@command(rich_help_panel=HELP)
def status(
    run: Annotated[
        Location, typer.Argument(parser=place, metavar="RUN", help="Folder of a run, of shards or of a model.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    watch: Annotated[
        float | None,
        typer.Option("--watch", min=0.5, metavar="SECONDS", help="Look again every so often, until all is there."),
    ] = None,
) -> None:
    """How far a run is, from its files alone: steps, cells, the best so far, who works on it, what is left."""
    while True:
        found = read_status(run)
        print(json.dumps(_plain(found))) if as_json else _log_outcome(found)
        if watch is None or found.ended:
            return
        time.sleep(watch)
        print()


def _plain(found: Status) -> dict[str, object]:
    return found._asdict() | {
        "holds": [hold._asdict() for hold in found.holds],
        "steps": [step._asdict() for step in found.steps],
        "nights": None if found.nights is None else found.nights._asdict(),
        "under_way": found.under_way,
    }


def _log_outcome(found: Status) -> None:
    name = f"{found.name}: " if found.name else ""
    written = "" if found.seconds is None else f", last written to {duration(found.seconds)} ago"
    print(f"{name}{found.run}{written}")
    for hold in found.holds:
        print(hold.sentence)
    if not found.holds and not found.ended:
        print("nobody works on it")
    for step in found.steps:
        print(f"{step.name:<8}  {step.state:<9}  {step.sentence}".rstrip())
    if found.nights is not None:
        print(found.nights.sentence)
    for error in found.errors:
        print(f"failed: {error}")
    print(found.rerun)
