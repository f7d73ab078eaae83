"""The command line: thin, a command a step."""

import sys

# Commands are listed in the order in which they are registered.
# isort: off
from sparseoco.cli import runs, nightly, regret, optimum, table, files, about, doctor, status, reproduce
from sparseoco.cli.app import app
from sparseoco.console import sentences
# isort: on

__all__ = ["about", "app", "doctor", "files", "main", "nightly", "optimum", "regret", "reproduce", "runs"]
__all__ += ["status", "table"]


def main() -> None:
    """Entry point of the `sparseoco` command."""
    with sentences():
        try:
            app(prog_name="sparseoco")
        finally:
            sys.stdout.flush()  # here, so that what it cannot take is told like any other error
