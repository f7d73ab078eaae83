"""The command line, called in this process."""

import sys
from typing import NamedTuple

import pytest

from sparseoco.cli import main


def call(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """Run the command line in this process; gives its exit code."""
    # A second process that compiles would take the cores of other tests; tests/pipeline/test_run_file is of it.
    monkeypatch.setattr("sparseoco.pipeline.ahead.MIN_MEMORY", sys.maxsize)
    monkeypatch.setattr(sys, "argv", ["sparseoco", *map(str, arguments)])
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


class Printed(NamedTuple):
    """What a command prints."""

    out: str
    err: str


class Cli:
    """Commands of a test, as the fixture `cli`."""

    def __init__(self, patch: pytest.MonkeyPatch, captured: pytest.CaptureFixture[str]) -> None:
        self._patch, self._captured = patch, captured

    def __call__(self, *arguments: object, code: int | None = 0) -> Printed:
        """Run a command, which ends with this exit code; None is any of an error."""
        self._captured.readouterr()
        ended = call(self._patch, *arguments)
        printed = Printed(*self._captured.readouterr())
        assert ended in ((1, 2, 3) if code is None else (code,)), printed.err
        return printed
