"""The `sparseoco` command, and `python -m sparseoco`: a stop is heeded before the libraries are loaded."""

from sparseoco.stopping import leave, watch


def main() -> None:
    """Entry point of the `sparseoco` command."""
    watch()
    from sparseoco.cli import main as run

    try:
        run()
    except SystemExit as end:
        leave(end.code if isinstance(end.code, int) else 0)
    leave(0)


if __name__ == "__main__":
    main()
