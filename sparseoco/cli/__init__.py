"""The command line: thin, a command a step."""

# isort: off — commands are listed in the order in which they are registered
from sparseoco.cli import runs, files, about
from sparseoco.cli.app import app
from sparseoco.console import sentences
# isort: on

__all__ = ["about", "app", "files", "main", "runs"]


def main() -> None:
    """Entry point of the `sparseoco` command."""
    with sentences():
        app(prog_name="sparseoco")
