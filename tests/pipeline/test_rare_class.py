"""A class of 3 % of the documents: found by default, and if it is never predicted, that is the first thing said."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from sparseoco.storage.commit import read_json
from sparseoco.training.models import Model
from tests.support.commands import call

SEARCH = ("--metric", "average_precision", "--grid", "eta=0.1", "--grid", "lam=0.0003", "--folds", 3, "--epochs", 2)
NEVER = "class positive is never predicted for the"
Command = Callable[..., list[str]]


def write_documents(path: Path, seed: int, rows: int) -> None:
    """Documents of two classes that are alike: a good ranking has an average precision of 0.6 to 0.7."""
    drawn = random.Random(seed)
    with path.open("w") as file:
        for number in range(rows):
            label, share = ("positive", 0.38) if drawn.random() < 0.03 else ("negative", 0.12)
            words = [f"{'s' if drawn.random() < share else 'p'}{drawn.randrange(20)}" for _ in range(20)]
            words += [f"w{drawn.randrange(100)}" for _ in range(5)]
            file.write(json.dumps({"id": f"{seed}-{number}", "label": label, "text": " ".join(words)}) + "\n")


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The lines that a command prints."""

    def lines(*command: object) -> list[str]:
        assert call(monkeypatch, *command) == 0
        return capsys.readouterr().out.splitlines()

    return lines


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rare")
    write_documents(folder / "train.jsonl", 1, 4000)
    write_documents(folder / "test.jsonl", 2, 4000)
    with pytest.MonkeyPatch.context() as patch:
        ingest = ("ingest", folder / "train.jsonl", "--out", folder / "shards", "--ngram-range", "1,1", "--threads", 1)
        assert call(patch, *ingest) == 0
    return folder


def test_a_rare_class_is_found_by_default(folder: Path, printed: Command) -> None:
    run = folder / "run"
    lines = printed("search", folder / "shards", "--out", run, "--threads", 1, *SEARCH)
    assert lines[0].startswith("model: ")
    assert any(line.startswith("threshold: positive above a margin of -") for line in lines)
    assert read_json(run / "model" / "model.json")["threshold"]["rule"]["since"].startswith("positive has ")
    page = (run / "report" / "report.html").read_text()
    assert "(by default, since positive has " in page
    assert NEVER.capitalize() not in page
    found = json.loads("".join(printed("evaluate", run, folder / "test.jsonl", "--json")))
    assert 0.5 < found["average_precision"] < 0.75
    assert found["recall"] > 0.5
    assert found["precision"] > 0.5
    assert not found.keys() & {"never_predicted", "trained_on"}


def test_a_class_that_is_never_predicted_is_the_first_thing_said(folder: Path, printed: Command) -> None:
    run, test = folder / "none", folder / "test.jsonl"
    search = ("search", folder / "shards", "--out", run, "--threads", 1, *SEARCH, "--threshold", "none")
    assert printed(*search)[0] == f"warning: {NEVER} held-out documents"
    assert Model(run).thresholds is None
    page = (run / "report" / "report.html").read_text()
    assert f">{NEVER.capitalize()} held-out documents. adagrad, trained on" in page
    assert printed("evaluate", run, test)[0] == f"warning: {NEVER} evaluated documents"
    found = json.loads("".join(printed("evaluate", run, test, "--json")))
    assert (found["never_predicted"], found["recall"]) == (["positive"], 0.0)
    learned = "warning: the model was trained on documents of train.jsonl: the figures are optimistic"
    assert learned in printed("evaluate", run, folder / "train.jsonl")
    train = (
        "train",
        folder / "shards",
        "--out",
        folder / "one",
        "--threads",
        1,
        "--set",
        "eta=0.1",
        "--set",
        "lam=0.001",
    )
    assert printed(*train)[0] == f"warning: {NEVER} documents that it predicted before it learned them"
