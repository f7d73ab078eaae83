"""A run that fails at its N-th commit, for every N, and is run again, gives the bytes of an undisturbed run."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparseoco.core.errors import StorageError
from sparseoco.pipeline import steps as run_steps
from sparseoco.pipeline.run_file import RunFile, load_run_file
from sparseoco.storage import commit
from tests.support.texts import write_run_file

# Timings are seconds, which the page shows too.
TIMED = {"timings.parquet", "report.html", "leaderboard.parquet", ".lock"}


def prepare(folder: Path) -> RunFile:
    folder.mkdir()
    path = write_run_file(folder)
    text = folder.parent / "places.jsonl"  # one file for all runs: a manifest names its sources
    if not text.exists():
        (folder / "places.jsonl").rename(text)
    path.write_text(path.read_text().replace("folds = 3", "folds = 1").replace("places.jsonl", str(text)))
    return load_run_file(path)


def contents(run: RunFile) -> dict[str, bytes]:
    return {
        str(path.relative_to(run.out)): path.read_bytes()
        for path in run.out.rglob("*")
        if path.is_file() and path.name not in TIMED and "cells" not in path.parts
    }


def check_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stride: int) -> int:
    whole = prepare(tmp_path / "whole")
    run_steps.run_all(whole)
    expected = contents(whole)
    n = 1
    while True:
        run = prepare(tmp_path / f"at-{n}")
        calls = 0

        def fail(path: Path, at: int = n) -> None:
            nonlocal calls
            calls += 1
            if calls == at:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(commit, "_sync", fail)
        try:
            run_steps.run_all(run)
        except StorageError as error:
            assert error.code == "disk-full"  # noqa: PT017 - the last round does not fail
        else:
            return n
        monkeypatch.undo()
        run_steps.run_all(run)
        got = contents(run)
        # A shard whose commit failed after it was written may be left unlisted; nothing else may differ.
        assert {name: got.get(name) for name in expected} == expected, n
        n += stride


@pytest.mark.fault(15)
def test_a_full_disk_at_any_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_failures(tmp_path, monkeypatch, stride=7) > 15


@pytest.mark.fault(15)
@pytest.mark.slow
def test_a_full_disk_at_every_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_failures(tmp_path, monkeypatch, stride=1) > 15


KILL = """
import os, sys
from pathlib import Path
from sparseoco.pipeline import steps as run_steps
from sparseoco.storage import commit
from sparseoco.pipeline.run_file import load_run_file

at, calls, sync = int(sys.argv[2]), 0, commit._sync

def kill(path):
    global calls
    calls += 1
    if calls == at:
        os.kill(os.getpid(), 9)
    sync(path)

commit._sync = kill
run_steps.run_all(load_run_file(sys.argv[1]))
"""


@pytest.mark.fault(5)
@pytest.mark.parametrize("at", [2, 9, 20, *(pytest.param(at, marks=pytest.mark.slow) for at in (5, 14))])
def test_killed_at_a_commit(tmp_path: Path, at: int) -> None:
    whole, run = prepare(tmp_path / "whole"), prepare(tmp_path / "run")
    run_steps.run_all(whole)
    killed = subprocess.run([sys.executable, "-c", KILL, str(tmp_path / "run" / "places.toml"), str(at)], check=False)
    assert killed.returncode == -9
    run_steps.run_all(run)
    got = contents(run)
    expected = contents(whole)
    assert {name: got.get(name) for name in expected} == expected
