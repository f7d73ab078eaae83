"""A nightly run that is killed, or short of disk, at any moment and is run again ends with the same bytes."""

import errno
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import pytest

from sparseoco.core.errors import StorageError
from sparseoco.pipeline.nightly import run_nightly
from sparseoco.pipeline.run_file import RunFile
from sparseoco.search.results import IncrementResults
from sparseoco.storage import commit
from tests.support.errors import raises_code
from tests.support.nightly_runs import arrive, contents, prepare

INCREMENTS = 3
KILL = """
import os, sys
from sparseoco.storage import commit
from sparseoco.search import worker
from sparseoco.training import stream
from sparseoco.pipeline.run_file import load_run_file
from sparseoco.pipeline.nightly import run_nightly

worker.POLL_SECONDS, worker._pays, stream.CHUNK_ROWS = 0, lambda *_, **__: True, 31
at, calls, sync = int(sys.argv[2]), 0, commit._sync

def kill(path):
    global calls
    calls += 1
    if calls == at:
        os.kill(os.getpid(), 9)
    sync(path)

commit._sync = kill
run_nightly(load_run_file(sys.argv[1]))
"""


def fresh(folder: Path, texts: Path) -> RunFile:
    """A run on the files in `texts`, which are the same for all runs: a manifest names its sources."""
    return prepare(folder, **{'inputs = ["incoming"]': f'inputs = ["{texts / "incoming"}"]'})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    """The folder of the files of all increments, and what an undisturbed run leaves that learns all but one at once."""
    folder = tmp_path_factory.mktemp("whole")
    run = fresh(folder, folder)
    arrive(folder, 1)
    run_nightly(run)
    for increment in range(2, INCREMENTS + 1):
        arrive(folder, increment)
    run_nightly(run)
    return folder, contents(folder / "run")


def begin(folder: Path, texts: Path) -> RunFile:
    """A run that has finished its first increment, with the first file alone."""
    run = fresh(folder, texts)
    first = run.model_copy(
        update={"ingest": run.ingest.model_copy(update={"inputs": (str(texts / "incoming" / "increment-1.jsonl"),)})}
    )
    run_nightly(first)
    return run


def check(run: RunFile, expected: dict[str, bytes], at: int) -> None:
    got = contents(Path(str(run.out)))
    # A shard whose commit failed after it was written may lie there unlisted; nothing else may differ.
    assert {name: got.get(name) for name in expected} == expected, at


def check_failures(folder: Path, whole: tuple, monkeypatch: pytest.MonkeyPatch, first: int, stride: int) -> int:
    """A full disk at the first, first + stride, … commit of the second run."""
    texts, expected = whole
    sync, n = commit._sync, first
    while True:
        run = begin(folder / f"at-{n}", texts)
        calls = 0

        def fail(path: Path, at: int = n) -> None:
            nonlocal calls
            calls += 1
            if calls == at:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            sync(path)

        monkeypatch.setattr(commit, "_sync", fail)
        try:
            run_nightly(run)
        except StorageError as error:
            assert "The disk is full" in str(error)  # noqa: PT017 - the last round does not fail
        monkeypatch.setattr(commit, "_sync", sync)
        run_nightly(run)
        check(run, expected, n)
        if calls < n:
            return n
        n += stride


def test_results_that_were_not_committed_are_by_a_run_without_new_files(
    tmp_path: Path, whole: tuple, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begin(tmp_path, whole[0])
    with monkeypatch.context() as patch:
        patch.setattr(IncrementResults, "write", Mock(side_effect=StorageError("full", code="disk-full")))
        with raises_code("disk-full", kind=StorageError):
            run_nightly(run)
    assert run_nightly(run).message.startswith("Nothing new")
    check(run, whole[1], 0)


@pytest.mark.slow
def test_a_full_disk_at_any_commit(tmp_path: Path, whole: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_failures(tmp_path, whole, monkeypatch, 9, 31) > 30


@pytest.mark.slow
def test_a_full_disk_at_every_commit(tmp_path: Path, whole: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_failures(tmp_path, whole, monkeypatch, 1, 1) > 30


def killed(run_file: Path, at: int) -> bool:
    return subprocess.run([sys.executable, "-c", KILL, str(run_file), str(at)], check=False).returncode == -9


def test_killed_at_a_commit(tmp_path: Path, whole: tuple) -> None:
    run = begin(tmp_path, whole[0])
    assert killed(tmp_path / "places.toml", 21)
    run_nightly(run)
    check(run, whole[1], 21)


@pytest.mark.slow
@pytest.mark.parametrize("first", [1, 2, 3, 4])
def test_killed_at_every_commit(tmp_path: Path, whole: tuple, first: int) -> None:
    """Also within increments, which save checkpoints; at every fourth commit from the first on."""
    at = first
    while True:
        run = begin(tmp_path / f"at-{at}", whole[0])
        came_through = not killed(tmp_path / f"at-{at}" / "places.toml", at)
        run_nightly(run)
        check(run, whole[1], at)
        if came_through:
            break
        at += 4
    assert at > 40


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_killed_at_random_moments(tmp_path: Path, whole: tuple, seed: int) -> None:
    """Killed again and again, at moments that no commit decides, until a run comes through."""
    texts, expected = whole
    run = begin(tmp_path, texts)
    choose = random.Random(seed)
    for _ in range(6):
        with subprocess.Popen([sys.executable, "-c", KILL, str(tmp_path / "places.toml"), "-1"]) as process:
            before, wanted = listing(tmp_path / "run"), choose.randint(1, 15)
            while process.poll() is None and len(listing(tmp_path / "run") ^ before) < wanted:
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL)
        if process.returncode == 0:
            break
    run_nightly(run)
    check(run, expected, seed)


def listing(folder: Path) -> set[tuple[str, int]]:
    found = set()
    for parent, _, names in os.walk(folder):  # which folders that go meanwhile do not stop
        for name in names:
            with suppress(FileNotFoundError):
                found.add((name, os.stat(os.path.join(parent, name)).st_mtime_ns))
    return found
