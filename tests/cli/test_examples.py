"""The examples of the help pages: each command has one, all are right, and those that need no network or hours run."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from sparseoco.cli import app
from tests.support.commands import call
from tests.support.texts import write_reviews

GROUP = typer.main.get_command(app)
CONTEXT = GROUP.make_context("sparseoco", [], resilient_parsing=True)
HELP = {name: str(GROUP.get_command(CONTEXT, name).help) for name in GROUP.list_commands(CONTEXT)}
EXAMPLES = {name: re.findall(r"^ *Example: sparseoco (.+)$", text, re.MULTILINE) for name, text in HELP.items()}
NOT_RUN = {
    "demo": "takes minutes",
    "fetch": "needs a network",
    "reproduce": "needs the data of a paper",
    "nightly": "trains what run has trained: tests/pipeline/nightly",
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_command_has_a_summary_a_paragraph_and_an_example(name: str) -> None:
    summary, paragraph, *others = HELP[name].split("\n\n")
    assert summary.endswith(".")
    assert "\n" not in summary
    assert not paragraph.startswith("Example:")
    assert others[-1].startswith("Example:")
    assert EXAMPLES[name]
    for example in EXAMPLES[name]:
        first, *arguments = shlex.split(example)
        assert first == name
        GROUP.get_command(CONTEXT, first).make_context(first, arguments)  # raises for unknown options and values


def test_examples_of_help_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_reviews(tmp_path / "reviews.jsonl")
    (tmp_path / "measurements.csv").write_text("length,width,species\n5,3,iris\n7,4,rose\n6,2,iris\n8,4,rose\n")
    later = ("status", "report", "clean", "regret", "doctor")  # need what other examples write
    assert EXAMPLES.keys() >= {"init", "run", "ingest", "search", "train", "predict", "evaluate", *NOT_RUN, *later}
    names = [name for name in EXAMPLES if name not in (*NOT_RUN, *later)]
    for name in (*names, *later):
        for example in EXAMPLES[name]:
            assert call(monkeypatch, *shlex.split(example)) == 0, (example, capsys.readouterr().err)
    assert len(capsys.readouterr().out.splitlines()) > len(EXAMPLES)
