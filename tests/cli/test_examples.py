"""The examples of the help pages run, in the order of the commands."""

import re
from pathlib import Path

import pytest

from sparseoco.cli import app
from tests.support.commands import call
from tests.support.texts import write_reviews

EXAMPLES = [
    example
    for command in app.registered_commands
    for example in re.findall(r"^ *Example: sparseoco (.+)$", str(command.callback.__doc__), re.MULTILINE)
]


def test_examples_of_help_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_reviews(tmp_path / "reviews.jsonl")
    (tmp_path / "measurements.csv").write_text("length,width,species\n5,3,iris\n7,4,rose\n6,2,iris\n8,4,rose\n")
    assert {example.split()[0] for example in EXAMPLES} >= {"ingest", "search", "train", "predict", "evaluate"}
    for example in EXAMPLES:
        assert call(monkeypatch, *example.split()) == 0, capsys.readouterr().err
    assert len(capsys.readouterr().out.splitlines()) > len(EXAMPLES)
