"""The `sparseoco` command, and `python -m sparseoco`. Signals are handled before any library is imported."""

from sparseoco.core.signals import install_handlers, run_and_exit


def main() -> None:
    """Entry point of the `sparseoco` command."""
    install_handlers()
    from sparseoco.cli import main as run

    run_and_exit(run)


if __name__ == "__main__":
    main()
