"""The `sparseoco` command, and `python -m sparseoco`. Signals are handled before any library is imported."""

import gc

from sparseoco.core.signals import install_handlers, run_and_exit


def main() -> None:
    """Entry point of the `sparseoco` command."""
    install_handlers()
    gc.disable()  # what is imported stays: it is not searched for garbage, now or later
    from sparseoco.cli import main as run

    gc.freeze()
    gc.enable()
    run_and_exit(run)


if __name__ == "__main__":
    main()
