"""The application the commands are registered with, and what several of them print."""

import json
from functools import partial
from typing import Annotated

import typer

from sparseoco import __version__
from sparseoco.cli.console import Command, Group
from sparseoco.cli.options import local_place
from sparseoco.core.logs import ENVIRONMENT, log_to
from sparseoco.storage.locations import Location
from sparseoco.storage.metrics import read_result_table
from sparseoco.training.model import Model

app = typer.Typer(
    name="sparseoco",
    cls=Group,
    help=(
        "Sparse online learning over large text corpora: raw text to shards, search, model and report.\n\n"
        "Begin with **sparseoco demo**. A run of your own is a file: **sparseoco run RUN_FILE** takes every step in "
        "it; each step is also a command. Whatever is interrupted goes on where it was when run again."
    ),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

command = partial(app.command, cls=Command)
STEPS, FILES, HELP = "Steps of a run", "Models and text", "Finding out"


def _log_file(text: str) -> str:
    """A file of this machine, or -: lines cannot be added to what is at an address."""
    return str(local_place(text))


@app.callback(invoke_without_command=True)
def _before(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
    log: Annotated[
        str | None,
        typer.Option(
            "--log",
            parser=_log_file,
            envvar=ENVIRONMENT,
            metavar="FILE",
            help="Add what happens to a file, a JSON object a line; - is standard error.",
        ),
    ] = None,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit
    context.with_resource(log_to(log))


def summarize_run(folder: Location, page: Location) -> None:
    summarize_model(Model(folder / "model"))
    unfinished = json.loads((folder / "search" / "best.json").read_bytes()).get("unfinished", 0)
    if unfinished:
        print(f"the time limit left {unfinished:,} configurations unfinished: the same command goes on with them")
    evaluation = folder / "evaluation.json"
    if evaluation.exists():
        result = json.loads(evaluation.read_bytes())
        print(f"on {result['rows']:,} documents it has not seen: error {result['error']:.2%}")
    print(f"report: {page}")


def summarize_mixture(folder: Location, page: Location) -> None:
    """The mixture against the best column, at the end."""
    last = read_result_table(folder / "regret.parquet").to_pylist()[-1]
    print(
        f"in the stream: error {last['progressive_error']:.2%} (best configuration, in hindsight: "
        f"{last['best_error']:.2%}), loss {last['progressive_loss']:.4f} ({last['best_loss']:.4f})"
    )
    if not Model(folder).is_mixture:
        ends = [row for row in read_result_table(folder / "columns.parquet").to_pylist() if row["rows"] == last["rows"]]
        kept = max(ends, key=lambda row: row["weight"])
        print(f"kept, the heaviest configuration: error {kept['progressive_error']:.2%} in the stream")
    print(f"report: {page}")


def summarize_model(model: Model) -> None:
    described = model.description
    parameters = " ".join(f"{key}={value}" for key, value in described["parameters"].items())
    print(f"model: {model.folder} ({described['algorithm']} {parameters}; {described['nonzeros']:,} nonzero weights)")
    begun = described.get("warm_start")
    if begun is not None:
        taken = f"{begun['found']:,} of {begun['weights']:,} weights found in this vocabulary"
        print(f"began from a model: {'its learner went on where it stood' if begun['state'] else taken}")
    kept = described.get("features_from")
    if kept is not None:
        print(f"learned on the {kept['features']:,} features that a model kept")
