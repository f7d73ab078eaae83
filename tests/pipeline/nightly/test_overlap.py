"""Two nightly runs in one folder: one waits or ends, and they never write at once; the command and what it says."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from sparseoco.pipeline.nightly import run_nightly
from sparseoco.storage.locks import exclusive_lock
from tests.support.commands import call
from tests.support.nightly_runs import arrive, contents, prepare, rows_of
from tests.support.pages import figures


@pytest.mark.fault(9)
def test_a_run_that_overlaps_ends(tmp_path: Path) -> None:
    run = prepare(tmp_path, 1)
    with exclusive_lock(run.out):
        outcome = run_nightly(run)
    assert outcome.message.startswith("Nothing was done: ")
    assert "is in use by process" in outcome.message
    assert (outcome.increments, outcome.page) == ([], None)
    assert not (tmp_path / "run" / "shards").exists()


def test_a_run_that_overlaps_waits(tmp_path: Path) -> None:
    """For whoever holds the run's folder, or the shards'."""
    run = prepare(tmp_path, 1)
    run = run.model_copy(update={"nightly": run.nightly.model_copy(update={"if_running": "wait"})})
    outcomes = []
    waiting = threading.Thread(target=lambda: outcomes.append(run_nightly(run)))
    with exclusive_lock(run.store):
        waiting.start()
        time.sleep(1.0)
        assert not outcomes
    waiting.join()
    assert [row["increment"] for row in outcomes[0].increments] == [1]


def test_shards_in_the_folder_of_the_run(tmp_path: Path) -> None:
    """A run does not meet itself."""
    run = prepare(tmp_path, 1, **{'inputs = ["incoming"]': 'inputs = ["incoming"]\nstore = "run"'})
    outcome = run_nightly(run)
    assert [row["increment"] for row in outcome.increments] == [1], outcome.message


@pytest.mark.fault(9)
@pytest.mark.slow
def test_many_runs_at_once(tmp_path: Path) -> None:
    """Some wait and some end; what they leave is that of runs one by one."""
    for name in ("one", "many"):
        folder = tmp_path / name
        texts = f'inputs = ["{tmp_path / "incoming"}"]'
        prepare(folder, **{'inputs = ["incoming"]': texts})
    arrive(tmp_path, 1)
    for increment in (1, 2):
        arrive(tmp_path, increment)
        run_nightly(prepare(tmp_path / "one", **{'inputs = ["incoming"]': texts}))
        command = [sys.executable, "-m", "sparseoco", "nightly", str(tmp_path / "many" / "places.toml")]
        runs = [subprocess.Popen([*command, "--if-running", what]) for what in ("wait", "end") * 2]
        assert [process.wait() for process in runs] == [0] * 4
    assert contents(tmp_path / "many" / "run") == contents(tmp_path / "one" / "run")


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    prepare(tmp_path, 1)
    file = tmp_path / "places.toml"
    assert call(monkeypatch, "nightly", file) == 0
    said = capsys.readouterr().out
    assert "increment 1: 90 documents, " in said
    assert "promoted: no model was deployed before" in said
    assert "nightly.html" in said
    assert call(monkeypatch, "nightly", file, "--if-running", "wait") == 0
    assert capsys.readouterr().out.startswith("Nothing new: all files are learned, up to increment 1.")
    with exclusive_lock(tmp_path / "run"):
        assert call(monkeypatch, "nightly", file, "--if-running", "end") == 0
    assert "Nothing was done" in capsys.readouterr().out
    assert call(monkeypatch, "evaluate", tmp_path / "run", tmp_path / "incoming" / "increment-1.jsonl") == 0
    assert "on 90 documents" in capsys.readouterr().out
    odd = file.with_name("odd.toml")
    odd.write_text(file.read_text().replace("window = 2", "window = 0"))
    assert call(monkeypatch, "nightly", odd) == 2
    assert "nightly.window" in capsys.readouterr().err
    other = file.with_name("other.toml")
    other.write_text(file.read_text().replace('inputs = ["incoming"]', 'inputs = ["incoming"]\nstore = "elsewhere"'))
    assert call(monkeypatch, "nightly", other) == 2
    assert "were not learned from the shards in" in capsys.readouterr().err


def test_the_page(tmp_path: Path) -> None:
    run = prepare(tmp_path, 1)
    run_nightly(run)
    (tmp_path / "incoming" / "increment-2.jsonl").write_text(
        '{"id": "x", "label": "sea", "text": "<script>alert(1)</script> wave"}\n'
    )
    page = run_nightly(run).page
    assert page is not None
    text = page.read_text()
    assert "The model of increment" in text
    assert set(figures(text)) == {"errors", "mix", "unknown", "recall", "precision"}
    assert "://" not in text
    assert len(rows_of(tmp_path / "run", "history-timings")) == 2
