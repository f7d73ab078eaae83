"""The `sparseoco` command, and `python -m sparseoco`: a stop is heeded before the libraries are loaded."""

from sparseoco.core.signals import to_the_end, watch


def main() -> None:
    """Entry point of the `sparseoco` command."""
    watch()
    from sparseoco.cli import main as run

    to_the_end(run)


if __name__ == "__main__":
    main()
