"""The command line: one function for each command. Commands import what they run when they run it."""

import sys
from functools import cache
from io import TextIOWrapper

from typer.main import get_command

from sparseoco.cli import general, models, steps
from sparseoco.cli.console import error_exits
from sparseoco.cli.options import app

__all__ = ["app", "general", "main", "models", "steps"]

_commands = cache(get_command)


def main() -> None:
    """Entry point of the `sparseoco` command."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # in JSON, too, this is how lone surrogates are escaped
    with error_exits():
        try:
            _commands(app)(prog_name="sparseoco")  # a Typer object would replace `sys.excepthook`
        finally:
            sys.stdout.flush()  # here, so that a failure to write is reported like any other error
