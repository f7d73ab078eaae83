"""Rolling back to the model of an earlier increment: at once, for all readers, until a later one is promoted."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from sparseoco.core.errors import FolderInUseError, SparseocoError, StorageError
from sparseoco.ops.status import read_status
from sparseoco.pipeline.nightly import nightly_markdown, roll_back, run_nightly
from sparseoco.pipeline.nightly.history import (
    HISTORY,
    TABLES,
    HistoryRows,
    add_increment,
    find_deployed,
    read_history,
)
from sparseoco.pipeline.run_file import RunFile
from sparseoco.storage import commit
from sparseoco.storage.commit import read_json
from sparseoco.storage.locks import exclusive_lock
from sparseoco.training.models import Model
from tests.support.commands import call
from tests.support.errors import raises_code
from tests.support.nightly_runs import arrive, contents, prepare

PROMOTES = "margin = 0.9"  # whoever comes


def history_of(promoted: str) -> HistoryRows:
    """Increments that were promoted (`+`) or not (`-`)."""
    rows = ({"increment": n, "promoted": c == "+", "store": f"store {n}"} for n, c in enumerate(promoted, 1))
    return HistoryRows.of(rows, HISTORY)


def rollback(after: int, increment: int) -> dict[str, Any]:
    return {"after": after, "increment": increment, "store": f"store {after}"}


def deployed_increment(promoted: str, *rollbacks: tuple[int, int]) -> int | None:
    deployed = find_deployed(history_of(promoted), [rollback(*made) for made in rollbacks])
    return None if deployed is None else deployed.increment


def test_the_deployed_model() -> None:
    assert deployed_increment("") is None
    assert deployed_increment("--") is None
    assert deployed_increment("+-+") == 3
    assert deployed_increment("+-+", (3, 1)) == 1
    assert deployed_increment("+-+--", (3, 1)) == 1
    assert deployed_increment("+-+--", (3, 1), (4, 3)) == 3
    assert deployed_increment("++++", (3, 2), (3, 1)) == 4
    assert deployed_increment("++++", (3, 2), (4, 1)) == 1
    # Increments that are decided again find a rollback where it was made, and no other.
    assert [deployed_increment("+++--"[:n], (3, 2), (4, 1)) for n in range(1, 6)] == [1, 2, 2, 1, 1]
    # A rollback of another history, or to an increment that now is not promoted, has no effect.
    assert find_deployed(history_of("++"), [rollback(2, 1) | {"store": "another"}]) == find_deployed(
        history_of("++"), []
    )
    assert deployed_increment("-+", (2, 1)) == 2


@pytest.fixture(scope="module")
def increments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that has promoted the first two of three increments."""
    folder = tmp_path_factory.mktemp("choosing")
    for increment in (1, 2):
        run = prepare(folder, **{"window = 2": f"window = 2\n{PROMOTES}"})
        arrive(folder, increment)
        run_nightly(run)
    (folder / "incoming" / "increment-3.jsonl").write_text("")
    run_nightly(run)
    return folder


@pytest.fixture
def run(increments: Path, tmp_path: Path) -> RunFile:
    """The same in a folder of its own, with the inputs where they are."""
    shutil.copytree(increments / "run", tmp_path / "run")
    inputs = f'inputs = ["{increments / "incoming"}", "{tmp_path / "later"}"]'
    (tmp_path / "later").mkdir()
    return prepare(tmp_path, **{'inputs = ["incoming"]': inputs, "window = 2": f"window = 2\n{PROMOTES}"})


def said(run: RunFile) -> list[int]:
    """The deployed model, on which the status, the page and the model folder agree."""
    found = read_status(run.out).increments
    assert found is not None
    assert found.deployed is not None
    line = f"he model of increment {found.deployed['increment']} is deployed"
    assert line in found.summary
    assert line in nightly_markdown(run.out, run.name)
    assert line in (run.out / "nightly.html").read_bytes().decode()
    assert Model(run.out).folder.name == f"{read_json(run.out / 'promoted.json')['increment']:08d}"
    return [found.deployed["increment"], read_json(run.out / "promoted.json")["increment"]]


def test_a_rollback_holds_until_the_next_promotion(run: RunFile, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {name: (run.out / f"{name}.parquet").read_bytes() for name in TABLES}
    with monkeypatch.context() as patch:
        patch.setattr("sparseoco.pipeline.nightly.run.connect", None)  # nothing is started
        outcome = roll_back(run, 1)
        assert outcome.message.startswith("Rolled back from the model of increment 2 to that of increment 1: ")
        assert said(run) == [1, 1]
        assert "by a rollback after increment 3" in nightly_markdown(run.out, run.name)
        page = (run.out / "nightly.html").read_bytes().decode()
        assert "a rollback after increment 3, from the model of increment 2" in page
        before = contents(Path(str(run.out)))
        assert roll_back(run, 1).message == "The model of increment 1 is already deployed."
        assert run_nightly(run).message.startswith("Nothing new")
        assert contents(Path(str(run.out))) == before
    assert {name: (run.out / f"{name}.parquet").read_bytes() for name in TABLES} == tables
    later = Path(str(run.out)).parent / "later"
    (later / "increment-4.jsonl").write_text("")
    assert not run_nightly(run).increments[0]["promoted"]
    assert said(run) == [1, 1]
    page = (run.out / "nightly.html").read_bytes().decode()
    assert "The last increment, 4, did not replace it: the new files contain no documents." in page
    assert "not promoted: the new files contain no documents</span>" in page
    arrive(later.parent, 5).rename(later / "increment-5.jsonl")
    (row,) = run_nightly(run).increments
    assert (row["deployed"], row["promoted"]) == (1, True)
    champion = Model(run.out / "models" / "00000001").predict(
        [json.loads(line)["text"] for line in (later / "increment-5.jsonl").read_text().splitlines()]
    )
    labels = [json.loads(line)["label"] for line in (later / "increment-5.jsonl").read_text().splitlines()]
    assert row["deployed_error"] == sum(a != b for a, b in zip(champion, labels, strict=True)) / len(labels)
    assert said(run) == [5, 5]
    assert [(row["after"], row["increment"]) for row in read_history(run.out, "history-rollbacks")] == [(3, 1)]
    page = (run.out / "nightly.html").read_bytes().decode()
    # One cell of a card on a narrow screen: a mark and what it marks stay together.
    assert re.search(
        rf'<span>{row["algorithm"]} <span class="badge">deployed</span><br><small [^<]*</small></span></td>', page
    )
    assert page.count('class="badge">deployed<') == page.count('class="badge">candidate<') == 1


def test_rolling_back_and_forward(run: RunFile) -> None:
    roll_back(run, 1)
    assert roll_back(run, 2).message.startswith("Rolled back from the model of increment 1 to that of increment 2: ")
    assert said(run) == [2, 2]
    assert ", from the model of" not in (run.out / "nightly.html").read_bytes().decode()
    roll_back(run, 1)
    assert said(run) == [1, 1]
    assert [row["increment"] for row in read_history(run.out, "history-rollbacks")] == [1, 2, 1]


def test_increments_that_cannot_be_rolled_back_to(run: RunFile, tmp_path: Path) -> None:
    before = contents(Path(str(run.out)))
    for increment in (3, 4, 0):
        with raises_code("no-model", f"Increment {increment} ", "1, 2."):
            roll_back(run, increment)
    weights = Path(str(run.out)) / "models" / "00000001" / "weights.parquet"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    with raises_code("corrupt-model", "weights.parquet", kind=StorageError):
        roll_back(run, 1)
    weights.write_bytes(whole)
    assert contents(Path(str(run.out))) == before
    shutil.rmtree(weights.parent)
    with raises_code("missing-model", "increment 1 ", kind=StorageError):
        roll_back(run, 1)
    shutil.move(weights.parents[1] / "00000002", weights.parents[1] / "away")
    with raises_code("missing-model", "increment 2 ", kind=StorageError):  # though it is named
        roll_back(run, 2)
    shutil.move(weights.parents[1] / "away", weights.parents[1] / "00000002")
    with exclusive_lock(run.out), raises_code("folder-in-use", kind=FolderInUseError):
        roll_back(run, 2)
    fresh = prepare(tmp_path / "fresh", 1)
    with raises_code("no-model", fresh.out):
        roll_back(fresh, 1)
    assert not fresh.out.exists()


@pytest.mark.parametrize("at", range(1, 7))
def test_killed_between_two_writes(run: RunFile, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """At every sync of the three files: the same command again leaves what an undisturbed one does."""
    monkeypatch.setattr(
        "sparseoco.pipeline.nightly.history._now", lambda: read_history(run.out, "history-timings")[0]["ended"]
    )
    copy = run.model_copy(update={"out": run.out.parent / "whole"})
    shutil.copytree(str(run.out), str(copy.out))
    roll_back(copy, 1)
    calls, sync = 0, commit._sync

    def stop(path: Path) -> None:
        nonlocal calls
        calls += 1
        if calls == at:
            raise SparseocoError("killed", code="killed")
        sync(path)

    with monkeypatch.context() as patch, raises_code("killed", kind=SparseocoError):
        patch.setattr(commit, "_sync", stop)
        roll_back(run, 1)
    roll_back(run, 1)
    assert contents(Path(str(run.out))) == contents(Path(str(copy.out)))
    assert (run.out / "nightly.html").read_bytes() == (copy.out / "nightly.html").read_bytes()


@pytest.mark.parametrize("left", [b"", b"[]", None])
def test_the_reference_to_the_model_is_rewritten(run: RunFile, left: bytes | None) -> None:
    path = Path(str(run.out)) / "promoted.json"
    whole = path.read_bytes()
    path.unlink() if left is None else path.write_bytes(left)
    assert run_nightly(run).message.startswith("Nothing new")
    assert path.read_bytes() == whole


def test_increments_without_a_decision_are_not_on_the_page(run: RunFile) -> None:
    """A run killed before an increment was in the history has left its rows in the other tables."""
    rows: dict[str, list[dict[str, Any]]] = {
        "history-configurations": [],
        "history-classes": [{"class": "moon", "documents": 5}],
        "history-timings": [],
    }
    history = (run.out / "history.parquet").read_bytes()
    add_increment(run.out, 4, rows | {"history": [{"promoted": True}]})
    commit.commit_bytes(run.out / "history.parquet", history)
    roll_back(run, 1)
    assert "moon" not in (run.out / "nightly.html").read_bytes().decode()


def test_the_command(run: RunFile, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(str(run.out)).parent / "places.toml"
    assert call(monkeypatch, "nightly", file, "--rollback", 1) == 0
    printed = capsys.readouterr().out
    assert "to that of increment 1" in printed
    assert "nightly.html" in printed
    assert call(monkeypatch, "status", run.out, "--json") == 0
    assert json.loads(capsys.readouterr().out)["increments"]["rolled_back"].startswith("20")
    assert call(monkeypatch, "nightly", file, "--rollback", 3) == 2
    assert "Increment 3 " in capsys.readouterr().err
    with exclusive_lock(run.out):
        assert call(monkeypatch, "nightly", file, "--rollback", 2) == 3
    assert "is in use by process" in capsys.readouterr().err
