"""An earlier night's model serves again: at once, for all who ask, until a later night is promoted."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from sparseoco.core.errors import FolderInUseError, InputError, SparseocoError, StorageError
from sparseoco.ops.status import read_status
from sparseoco.pipeline.nightly import nights_markdown, run_nightly, serve_night
from sparseoco.pipeline.nightly.records import TABLES, add_night, read_rows, serving
from sparseoco.pipeline.run_file import RunFile
from sparseoco.storage import commit
from sparseoco.storage.commit import exclusive_lock, read_json
from sparseoco.training.model import Model
from tests.pipeline.nightly.made import arrive, prepare
from tests.pipeline.nightly.test_nights import contents
from tests.support.commands import call

PROMOTES = "margin = 0.9"  # whoever comes


def history_of(promoted: str) -> list[dict[str, Any]]:
    """Nights that were promoted (`+`) or not (`-`)."""
    return [{"night": n, "promoted": c == "+", "store": f"store {n}"} for n, c in enumerate(promoted, 1)]


def choice(after: int, night: int) -> dict[str, Any]:
    return {"after": after, "night": night, "store": f"store {after}"}


def night_serving(promoted: str, *choices: tuple[int, int]) -> int | None:
    served = serving(history_of(promoted), [choice(*made) for made in choices])
    return None if served is None else served.night


def test_who_serves() -> None:
    assert night_serving("") is None
    assert night_serving("--") is None
    assert night_serving("+-+") == 3
    assert night_serving("+-+", (3, 1)) == 1
    assert night_serving("+-+--", (3, 1)) == 1
    assert night_serving("+-+--", (3, 1), (4, 3)) == 3
    assert night_serving("++++", (3, 2), (3, 1)) == 4
    assert night_serving("++++", (3, 2), (4, 1)) == 1
    # Nights that are decided anew meet a choice where it was made, and no other.
    assert [night_serving("+++--"[:n], (3, 2), (4, 1)) for n in range(1, 6)] == [1, 2, 2, 1, 1]
    # A choice of another history, or of a night that now is not promoted, is none.
    assert serving(history_of("++"), [choice(2, 1) | {"store": "another"}]) == serving(history_of("++"), [])
    assert night_serving("-+", (2, 1)) == 2


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that has promoted two nights, and not the third."""
    folder = tmp_path_factory.mktemp("choosing")
    for night in (1, 2):
        run = prepare(folder, **{"window = 2": f"window = 2\n{PROMOTES}"})
        arrive(folder, night)
        run_nightly(run)
    (folder / "incoming" / "night-3.jsonl").write_text("")
    run_nightly(run)
    return folder


@pytest.fixture
def run(nights: Path, tmp_path: Path) -> RunFile:
    """The same in a folder of its own, with the inputs where they are."""
    shutil.copytree(nights / "run", tmp_path / "run")
    inputs = f'inputs = ["{nights / "incoming"}", "{tmp_path / "later"}"]'
    (tmp_path / "later").mkdir()
    return prepare(tmp_path, **{'inputs = ["incoming"]': inputs, "window = 2": f"window = 2\n{PROMOTES}"})


def said(run: RunFile) -> list[int]:
    """Whose model serves, as everyone who tells it says."""
    found = read_status(run.out).nights
    assert found is not None
    assert found.serving is not None
    line = f"he model of night {found.serving['night']} serves"
    assert line in found.sentence
    assert line in nights_markdown(run.out, run.name)
    assert line in (run.out / "nightly.html").read_bytes().decode()
    assert Model(run.out).folder.name == f"{read_json(run.out / 'promoted.json')['night']:08d}"
    return [found.serving["night"], read_json(run.out / "promoted.json")["night"]]


def test_an_earlier_model_serves_until_a_night_is_promoted(run: RunFile, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {name: (run.out / f"{name}.parquet").read_bytes() for name in TABLES}
    with monkeypatch.context() as patch:
        patch.setattr("sparseoco.pipeline.nightly.run.connect", None)  # nothing is started
        outcome = serve_night(run, 1)
        assert outcome.sentence.startswith("The model of night 1 serves now, that of night 2 no more: ")
        assert said(run) == [1, 1]
        assert "chosen by hand after night 3" in nights_markdown(run.out, run.name)
        page = (run.out / "nightly.html").read_bytes().decode()
        assert "chosen by hand after night 3, in place of the model of night 2" in page
        before = contents(Path(str(run.out)))
        assert serve_night(run, 1).sentence == "The model of night 1 serves already."
        assert run_nightly(run).sentence.startswith("Nothing new")
        assert contents(Path(str(run.out))) == before
    assert {name: (run.out / f"{name}.parquet").read_bytes() for name in TABLES} == tables
    later = Path(str(run.out)).parent / "later"
    (later / "night-4.jsonl").write_text("")
    assert not run_nightly(run).nights[0]["promoted"]
    assert said(run) == [1, 1]
    page = (run.out / "nightly.html").read_bytes().decode()
    assert "It was kept on the last night, 4: the new files hold no documents." in page
    assert "not promoted: the new files hold no documents</span>" in page
    arrive(later.parent, 5).rename(later / "night-5.jsonl")
    (row,) = run_nightly(run).nights
    assert (row["champion"], row["promoted"]) == (1, True)
    champion = Model(run.out / "models" / "00000001").predict(
        [json.loads(line)["text"] for line in (later / "night-5.jsonl").read_text().splitlines()]
    )
    labels = [json.loads(line)["label"] for line in (later / "night-5.jsonl").read_text().splitlines()]
    assert row["champion_error"] == sum(a != b for a, b in zip(champion, labels, strict=True)) / len(labels)
    assert said(run) == [5, 5]
    assert [(row["after"], row["night"]) for row in read_rows(run.out, "history-choices")] == [(3, 1)]
    page = (run.out / "nightly.html").read_bytes().decode()
    # One cell of a card on a narrow screen: what is marked stands beside its mark.
    assert re.search(
        rf'<span>{row["algorithm"]} <span class="badge">serves</span><br><small [^<]*</small></span></td>', page
    )
    assert page.count('class="badge">serves<') == page.count('class="badge">candidate<') == 1


def test_back_and_forth(run: RunFile) -> None:
    serve_night(run, 1)
    assert serve_night(run, 2).sentence.startswith("The model of night 2 serves now, that of night 1 no more")
    assert said(run) == [2, 2]
    assert "in place of" not in (run.out / "nightly.html").read_bytes().decode()
    serve_night(run, 1)
    assert said(run) == [1, 1]
    assert [row["night"] for row in read_rows(run.out, "history-choices")] == [1, 2, 1]


def test_what_cannot_serve(run: RunFile, tmp_path: Path) -> None:
    before = contents(Path(str(run.out)))
    for night, why in ((3, "it was not promoted"), (4, "the last night is 3"), (0, "the last night is 3")):
        with pytest.raises(InputError, match=rf"Night {night} left no model in .*: {why}\. Nights that did: 1, 2\."):
            serve_night(run, night)
    weights = Path(str(run.out)) / "models" / "00000001" / "weights.parquet"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    with pytest.raises(StorageError, match=r"weights.parquet is damaged"):
        serve_night(run, 1)
    weights.write_bytes(whole)
    assert contents(Path(str(run.out))) == before
    shutil.rmtree(weights.parent)
    with pytest.raises(StorageError, match="The model of night 1 is not there any more"):
        serve_night(run, 1)
    shutil.move(weights.parents[1] / "00000002", weights.parents[1] / "away")
    with pytest.raises(StorageError, match="The model of night 2 is not there any more"):  # though it is named
        serve_night(run, 2)
    shutil.move(weights.parents[1] / "away", weights.parents[1] / "00000002")
    with exclusive_lock(run.out), pytest.raises(FolderInUseError, match="is in use by process"):
        serve_night(run, 2)
    fresh = prepare(tmp_path / "fresh", 1)
    with pytest.raises(InputError, match=r"No night in .* has left a model"):
        serve_night(fresh, 1)
    assert not fresh.out.exists()


@pytest.mark.parametrize("at", range(1, 7))
def test_killed_between_two_writes(run: RunFile, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """At every sync of the three files: the same command again leaves what an undisturbed one does."""
    monkeypatch.setattr(
        "sparseoco.pipeline.nightly.records._now", lambda: read_rows(run.out, "history-timings")[0]["ended"]
    )
    copy = run.model_copy(update={"out": run.out.parent / "whole"})
    shutil.copytree(str(run.out), str(copy.out))
    serve_night(copy, 1)
    calls, sync = 0, commit._sync

    def stop(path: Path) -> None:
        nonlocal calls
        calls += 1
        if calls == at:
            raise SparseocoError("killed")
        sync(path)

    with monkeypatch.context() as patch, pytest.raises(SparseocoError, match="killed"):
        patch.setattr(commit, "_sync", stop)
        serve_night(run, 1)
    serve_night(run, 1)
    assert contents(Path(str(run.out))) == contents(Path(str(copy.out)))
    assert (run.out / "nightly.html").read_bytes() == (copy.out / "nightly.html").read_bytes()


@pytest.mark.parametrize("left", [b"", b"[]", None])
def test_what_names_the_model_is_written_anew(run: RunFile, left: bytes | None) -> None:
    path = Path(str(run.out)) / "promoted.json"
    whole = path.read_bytes()
    path.unlink() if left is None else path.write_bytes(left)
    assert run_nightly(run).sentence.startswith("Nothing new")
    assert path.read_bytes() == whole


def test_nights_that_were_not_decided_are_not_on_the_page(run: RunFile) -> None:
    """A run that was killed before a night was in the history has left its rows in the other tables."""
    rows: dict[str, list[dict[str, Any]]] = {
        "history-configurations": [],
        "history-classes": [{"class": "moon", "documents": 5}],
        "history-timings": [],
    }
    history = (run.out / "history.parquet").read_bytes()
    add_night(run.out, 4, rows | {"history": [{"promoted": True}]})
    commit.commit_bytes(run.out / "history.parquet", history)
    serve_night(run, 1)
    assert "moon" not in (run.out / "nightly.html").read_bytes().decode()


def test_the_command(run: RunFile, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(str(run.out)).parent / "places.toml"
    assert call(monkeypatch, "nightly", file, "--serve", 1) == 0
    told = capsys.readouterr().out
    assert "The model of night 1 serves now" in told
    assert "nightly.html" in told
    assert call(monkeypatch, "status", run.out, "--json") == 0
    assert json.loads(capsys.readouterr().out)["nights"]["chosen"].startswith("20")
    assert call(monkeypatch, "nightly", file, "--serve", 3) == 2
    assert "Night 3 left no model" in capsys.readouterr().err
    with exclusive_lock(run.out):
        assert call(monkeypatch, "nightly", file, "--serve", 2) == 3
    assert "is in use by process" in capsys.readouterr().err
