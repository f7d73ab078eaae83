"""The Typer application that the commands are registered with."""

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from sparseoco.cli.console import check_address_space, names_of_keys
from sparseoco.cli.options import local_path, typer_command
from sparseoco.core.errors import InputError
from sparseoco.core.logs import ENVIRONMENT, log_to

START, RUNS, STEPS, MODELS = "Start here", "Runs", "Steps of a run", "Models"
ANALYSIS, INFORMATION = "Learners and papers", "Information"
ORDER = (
    *("demo", "init", "fetch", "generate"),
    *("doctor", "run", "nightly", "status", "report", "clean"),
    *("ingest", "search", "train", "score"),
    *("predict", "evaluate", "explain", "compare", "export"),
    *("algorithms", "optimum", "regret", "reproduce"),
    *("errors", "schema"),
)
"""The commands in the order of the help; those not listed here follow, sorted by name."""


class _Plain(TyperCommand if TYPE_CHECKING else object):  # type: ignore[misc]
    """A command whose help shows no Python types: arguments are described by their names, flags take no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters."""
        params: list[Any] = super().get_params(ctx)
        for param in params:
            if isinstance(param, TyperArgument) or (isinstance(param, TyperOption) and param.is_flag):
                param.display_type_rich = lambda ctx: ""  # type: ignore[method-assign]
        return params

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. Raises `InputError` for an option of one value that is given twice.

        Click takes the last of the values, and drops the others in silence.
        """
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for param, times in Counter(order).items():
            if times > 1 and isinstance(param, TyperOption) and not (param.multiple or param.is_eager):
                flags = "/".join((*param.opts, *param.secondary_opts))
                raise InputError(f"{flags} is given {times} times: it takes one value.", code="invalid-option")
        rest: list[str] = super().parse_args(ctx, args)
        return rest


class Command(_Plain, TyperCommand):
    """A command; if it reads a run file, its errors name keys of the file instead of flags."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        check_address_space()
        reads_run_file = any(isinstance(each, TyperArgument) and each.metavar == "RUN_FILE" for each in self.params)
        with names_of_keys() if reads_run_file else nullcontext():
            return super().invoke(ctx)


class Group(_Plain, TyperGroup):
    """Commands, grouped by task."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the commands, in `ORDER`."""
        rank = {name: i for i, name in enumerate(ORDER)}
        return sorted(super().list_commands(ctx), key=lambda name: (rank.get(name, len(ORDER)), name))


app = typer.Typer(
    name="sparseoco",
    cls=Group,
    help=(
        "Sparse online learning over large text corpora: raw text to shards, search, model and report.\n\n"
        "Start with **sparseoco demo**. For your own data, **sparseoco init INPUT** writes a run file and **sparseoco "
        "run RUN_FILE** runs it; each of its steps is also a command. An interrupted command resumes when it is run "
        "again. **sparseoco COMMAND --help** has an example of each."
    ),
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def command(panel: str, name: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command under a heading of the help."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        app.command(name, cls=Command, rich_help_panel=panel)(typer_command(function))
        return function

    return register


def _log_file(text: str) -> str:
    return str(local_path(text))


@app.callback(invoke_without_command=True)
def _before(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
    log: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Append log events to a local file, one JSON object per line; - is standard error.",
            parser=_log_file,
            envvar=ENVIRONMENT,
        ),
    ] = None,
) -> None:
    if version:
        from sparseoco import __version__

        print(__version__)
        raise typer.Exit
    context.with_resource(log_to(log))
