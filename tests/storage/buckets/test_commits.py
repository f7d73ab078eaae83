"""Commits and leases in an object store, and processes that are killed there."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from sparseoco.core.errors import DamagedError, FolderInUseError, StorageError
from sparseoco.pipeline import steps as run_steps
from sparseoco.pipeline.run_file import RunFile, load_run_file
from sparseoco.storage import commit as leases
from sparseoco.storage.commit import (
    Lease,
    as_local_file,
    commit_bytes,
    commit_json,
    committed,
    digest_file,
    read_all_json,
    read_json,
    remove_folder,
)
from sparseoco.storage.locations import Location
from sparseoco.storage.locks import exclusive_lock
from sparseoco.storage.remote import RemotePath, Version
from tests.storage.buckets.contents import contents
from tests.support.errors import raises_code
from tests.support.texts import write_run_file

# ----------------------------------------------------------------------------------------------------------------------
# Atomic puts, put-if-absent, and leases.


def test_a_write_that_fails_leaves_the_old_object(bucket: Location) -> None:
    target = bucket / "deep" / "file"
    commit_bytes(target, b"old")
    with pytest.raises(RuntimeError), committed(target) as temporary:
        temporary.write_bytes(b"ne")
        raise RuntimeError
    assert target.read_bytes() == b"old"
    assert [path.name for path in (bucket / "deep").iterdir()] == ["file"]


def test_one_of_many_simultaneous_writers_wins(bucket: Location) -> None:
    won, lost = [], []

    def write(number: int) -> None:
        try:
            commit_bytes(bucket / "file", str(number).encode(), replace=False)
            won.append(number)
        except FileExistsError:
            lost.append(number)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(won) == 1
    assert len(lost) == 7
    assert (bucket / "file").read_bytes() == str(won[0]).encode()


def test_the_same_content_again_is_no_conflict(bucket: Location) -> None:
    commit_bytes(bucket / "file", b"same", replace=False)
    commit_bytes(bucket / "file", b"same", replace=False)
    with pytest.raises(FileExistsError):
        commit_bytes(bucket / "file", b"other", replace=False)


def test_reading_remote_files(bucket: Location) -> None:
    for number in range(3):
        commit_json(bucket / "folder" / f"{number}.json", {"n": number})
    paths = sorted((bucket / "folder").glob("*.json"))
    whole = paths[1].read_bytes()
    commit_bytes(paths[2], whole.replace(b": 1", b": 3"))
    assert [value for _, value in read_all_json(paths)] == [{"n": 0}, {"n": 1}, None]
    with raises_code("corrupt-file", paths[2], kind=DamagedError):
        read_json(paths[2])
    with as_local_file(paths[1]) as local:
        assert local.read_bytes() == whole
    assert not local.exists()
    assert len(digest_file(paths[1])) == 64
    with raises_code("missing-file", "folder/3.json", kind=DamagedError):
        read_json(bucket / "folder" / "3.json")
    remove_folder(bucket / "folder")
    assert not list(bucket.glob("folder/*"))  # some stores show a folder that nothing is in


@pytest.mark.fault(9)
def test_a_folder_has_one_writer(bucket: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(leases, "LEASE_POLL_SECONDS", 0.02)
    with exclusive_lock(bucket / "run"):
        expected = raises_code("folder-in-use", f"process {os.getpid()} on ", kind=FolderInUseError)
        with expected, exclusive_lock(bucket / "run"):
            pass
        with exclusive_lock(bucket / "other"):
            commit_bytes(bucket / "run" / "file", b"")
    with exclusive_lock(bucket / "run"):
        pass
    assert not (bucket / "run" / ".lock").exists()


def test_a_waiting_process_is_next(bucket: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASE_POLL_SECONDS", 0.02)
    order = []

    def second() -> None:
        with exclusive_lock(bucket / "run", wait=True):
            order.append("second")

    waiting = threading.Thread(target=second)
    with exclusive_lock(bucket / "run"):
        waiting.start()
        time.sleep(0.2)
        order.append("first")
    waiting.join()
    assert order == ["first", "second"]


LOCK = """
import sys
from sparseoco.storage.locks import exclusive_lock
from sparseoco.storage.locations import location
with exclusive_lock(location(sys.argv[1])):
    print(1, flush=True)
    input()
"""


@pytest.mark.fault(8)
def test_the_lease_of_a_killed_process_is_free_on_its_machine(bucket: Location) -> None:
    command = [sys.executable, "-c", LOCK, str(bucket / "run")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        other.kill()
    assert (bucket / "run" / ".lock").exists()
    with exclusive_lock(bucket / "run"):
        pass


def test_the_lease_of_a_dead_process_elsewhere_expires(bucket: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASE_POLL_SECONDS", 0.02)
    monkeypatch.setattr(leases, "EXPIRY_SECONDS", 0.3)
    monkeypatch.setattr(leases, "HEARTBEAT_SECONDS", 0.05)
    content = {"owner": "process 1 on elsewhere", "process": ["another boot", 1, 1, 1], "lease": "x", "heartbeats": 3}
    commit_bytes(bucket / "run" / ".lock", json.dumps(content).encode())
    with exclusive_lock(bucket / "run"):
        assert json.loads((bucket / "run" / ".lock").read_bytes())["owner"].startswith(f"process {os.getpid()} on ")


def test_a_process_without_its_lease_writes_nothing(bucket: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "HEARTBEAT_SECONDS", 0.02)
    lease = Lease(bucket / "run" / ".lock")
    lease.acquire(wait=False)
    try:
        commit_bytes(bucket / "run" / "before", b"")
        commit_bytes(bucket / "run" / ".lock", b"{}")  # taken over by another
        while not lease.lost:
            time.sleep(0.01)
        with raises_code("lease-lost", "run/after", kind=StorageError):
            commit_bytes(bucket / "run" / "after", b"")
        commit_bytes(bucket / "running" / "file", b"")
    finally:
        lease.release()
    assert (bucket / "run" / ".lock").read_bytes() == b"{}"
    assert not (bucket / "run" / "after").exists()


def test_a_lease_covers_all_files_of_its_folder(bucket: Location) -> None:
    assert Lease(bucket / ".lock").covers(bucket / "run" / "file")
    assert Lease(bucket / "run" / ".lock").covers(bucket / "run" / "deep" / "file")
    assert not Lease(bucket / "run" / ".lock").covers(bucket / "running" / "file")


@pytest.mark.fault(37)
def test_a_process_suspended_for_long_writes_nothing_more(bucket: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "HEARTBEAT_SECONDS", 60.0)
    with exclusive_lock(bucket / "run"):
        monkeypatch.setattr(leases, "EXPIRY_SECONDS", 0.0)
        with raises_code("lease-lost", "run/after", kind=StorageError):
            commit_bytes(bucket / "run" / "after", b"")


def test_a_local_file_is_not_copied(tmp_path: Path) -> None:
    commit_bytes(tmp_path / "file", b"x")
    with as_local_file(tmp_path / "file") as local:
        assert local == tmp_path / "file"


# ----------------------------------------------------------------------------------------------------------------------
# A run in a bucket that is killed at any put, and run again, ends with the bytes of an undisturbed one.


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
