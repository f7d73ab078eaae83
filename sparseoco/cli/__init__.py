"""The command line: thin, a command a step."""

# Commands are listed in the order in which they are registered.
# isort: off
from sparseoco.cli import runs, regret, optimum, table, files, about, reproduce
from sparseoco.cli.app import app
from sparseoco.console import sentences
# isort: on

__all__ = ["about", "app", "files", "main", "optimum", "regret", "reproduce", "runs", "table"]


def main() -> None:
    """Entry point of the `sparseoco` command."""
    with sentences():
        app(prog_name="sparseoco")
