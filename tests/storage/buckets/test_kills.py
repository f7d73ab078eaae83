"""A run in a bucket that is killed at any put, and run again, ends with the bytes of an undisturbed one."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sparseoco.core.errors import StorageError
from sparseoco.pipeline import steps as run_steps
from sparseoco.pipeline.run_file import RunFile, load_run_file
from sparseoco.storage.locations import Location
from sparseoco.storage.remote import RemotePath, Version
from tests.storage.buckets.contents import contents
from tests.support.texts import write_run_file


def prepare(text: Path, out: Location) -> RunFile:
    """A run whose shards and results go to `out`; all runs of one folder of text have the same source."""
    if not text.exists():
        text.mkdir()
        path = write_run_file(text)
        path.write_text(path.read_text().replace("folds = 3", "folds = 1"))
    return load_run_file(text / "places.toml").model_copy(update={"out": out})


def fails_and_resumes(tmp_path: Path, bucket: Location, monkeypatch: pytest.MonkeyPatch, at: int) -> bool:
    """Let a run fail at that put and resume it; whether there were so many puts."""
    run = prepare(tmp_path / "text", bucket / f"at-{at}")
    put, calls = RemotePath.put, 0

    def fail(path: RemotePath, data: Any, mode: Any) -> Version:
        nonlocal calls
        if path.name != ".lock":
            calls += 1
            if calls == at:
                raise OSError("the wire was cut")
        return put(path, data, mode)

    with monkeypatch.context() as patch:
        patch.setattr(RemotePath, "put", fail)
        try:
            run_steps.run_all(run)
        except StorageError as error:
            assert "the wire was cut" in str(error)  # noqa: PT017 - the last one does not fail
        else:
            return False
    run_steps.run_all(run)
    assert contents(run.out) == contents(tmp_path / "whole"), at
    return True


def test_a_cut_wire_at_a_put(tmp_path: Path, bucket: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    run_steps.run_all(prepare(tmp_path / "text", tmp_path / "whole"))
    assert fails_and_resumes(tmp_path, bucket, monkeypatch, 9)


@pytest.mark.slow
def test_a_cut_wire_at_every_put(tmp_path: Path, bucket: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    run_steps.run_all(prepare(tmp_path / "text", tmp_path / "whole"))
    at = 1
    while fails_and_resumes(tmp_path, bucket, monkeypatch, at):
        at += 1
    assert at > 15


KILL = """
import os, sys
from sparseoco.pipeline import steps as run_steps
from sparseoco.pipeline.run_file import load_run_file
from sparseoco.storage.locations import location
from sparseoco.storage.remote import RemotePath

at, after, calls, put = int(sys.argv[3]), sys.argv[4] == "after", 0, RemotePath.put

def kill(path, data, mode):
    global calls
    if path.name == ".lock":
        return put(path, data, mode)
    calls += 1
    own = calls  # threads put at the same time
    if after:
        version = put(path, data, mode)
    if own == at:
        os.kill(os.getpid(), 9)
    return version if after else put(path, data, mode)

RemotePath.put = kill
run_steps.run_all(load_run_file(sys.argv[1]).model_copy(update={"out": location(sys.argv[2])}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", [1, 2, 3, 5, 8, 11, 14])
def test_killed_at_a_put(tmp_path: Path, bucket: Location, at: int, when: str) -> None:
    whole, run = prepare(tmp_path / "text", tmp_path / "whole"), prepare(tmp_path / "text", bucket / "run")
    run_steps.run_all(whole)
    command = [sys.executable, "-c", KILL, str(tmp_path / "text" / "places.toml"), str(run.out), str(at), when]
    assert subprocess.run(command, check=False, env=os.environ).returncode == -9
    run_steps.run_all(run)
    assert contents(run.out) == contents(whole.out)
