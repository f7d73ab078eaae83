"""The `sparseoco` command, and `python -m sparseoco`. Signals are handled before any library is imported."""

import sys

from sparseoco.core.signals import install_handlers, run_and_exit


def main() -> None:
    """Entry point of the `sparseoco` command."""
    install_handlers()
    if sys.argv[1:2] == ["predict"]:  # PyArrow imports pandas if it is installed, which takes longer than predicting
        sys.modules["pandas"] = None  # type: ignore[assignment]
    from sparseoco.cli import main as run

    run_and_exit(run)


if __name__ == "__main__":
    main()
