"""The command line: thin, a command a step."""

import sys

# Commands are listed in the order in which they are registered.
# isort: off
from sparseoco.cli import runs
from sparseoco.cli import nightly
from sparseoco.cli import regret
from sparseoco.cli import optimum
from sparseoco.cli import table
from sparseoco.cli import files
from sparseoco.cli import about
from sparseoco.cli import doctor
from sparseoco.cli import status
from sparseoco.cli import reproduce
from sparseoco.cli.app import app
from sparseoco.cli.console import sentences
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
