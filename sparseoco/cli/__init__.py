"""The command line: one function for each command. Commands import what they run when they run it."""

import sys
from io import TextIOWrapper

# Commands are listed in the order in which they are registered.
# isort: off
from sparseoco.cli import corpora as init
from sparseoco.cli import steps
from sparseoco.cli import models as score
from sparseoco.cli import analysis
from sparseoco.cli import models
from sparseoco.cli import models as export
from sparseoco.cli import corpora
from sparseoco.cli import information
from sparseoco.cli import information as reference
from sparseoco.cli.app import app
from sparseoco.cli.console import error_exits
# isort: on

__all__ = [
    "analysis",
    "app",
    "corpora",
    "export",
    "information",
    "init",
    "main",
    "models",
    "reference",
    "score",
    "steps",
]


def main() -> None:
    """Entry point of the `sparseoco` command."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # in JSON, too, this is how lone surrogates are escaped
    with error_exits():
        try:
            app(prog_name="sparseoco")
        finally:
            sys.stdout.flush()  # here, so that a failure to write is reported like any other error
