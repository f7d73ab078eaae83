"""The command line, called in this process."""

import sys
from functools import cache

import pytest
import typer.main

from sparseoco.cli import main

_commands = cache(typer.main.get_command)  # else made again by every call


def call(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """Run the command line in this process; gives its exit code."""
    monkeypatch.setattr(typer.main, "get_command", _commands)
    monkeypatch.setattr(sys, "argv", ["sparseoco", *map(str, arguments)])
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0
