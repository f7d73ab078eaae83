"""The command line, called in this process."""

import sys

import pytest

from sparseoco.cli import main


def call(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """Run the command line in this process; gives its exit code."""
    monkeypatch.setattr(sys, "argv", ["sparseoco", *map(str, arguments)])
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0
