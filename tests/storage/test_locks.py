"""Locks of folders: files here, leases in an object store, which end with their process or expire."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from sparseoco.core.errors import FolderInUseError, StorageError
from sparseoco.storage import commit as leases
from sparseoco.storage import locks
from sparseoco.storage.commit import Lease, commit_bytes
from sparseoco.storage.locations import Location
from sparseoco.storage.locks import exclusive_lock
from sparseoco.storage.remote import RemotePath
from tests.support.errors import raises_code


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(leases, "LEASE_POLL_SECONDS", 0.02)
    monkeypatch.setattr(leases, "HEARTBEAT_SECONDS", 0.05)


@pytest.mark.fault(9)
def test_a_folder_has_one_writer(place: Location) -> None:
    with exclusive_lock(place / "run"):
        expected = raises_code("folder-in-use", f"process {os.getpid()} on ", kind=FolderInUseError)
        with expected, exclusive_lock(place / "run"):
            pass
        with exclusive_lock(place / "other"):
            commit_bytes(place / "run" / "file", b"")
    with exclusive_lock(place / "run"), exclusive_lock(place / "waited for", wait=True):
        assert (place / "run" / ".lock").exists()
    assert (place / "run" / ".lock").exists() != isinstance(place, RemotePath)  # a lease is removed


def test_a_waiting_process_is_next(place: Location) -> None:
    order = []

    def second() -> None:
        with exclusive_lock(place / "run", wait=True):
            order.append("second")

    waiting = threading.Thread(target=second)
    with exclusive_lock(place / "run"):
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
@pytest.mark.parametrize("place", ["local", "s3"], indirect=True)
def test_the_lock_of_a_killed_process_does_not_hold(place: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file lock ends with its process, a lease expires."""
    command = [sys.executable, "-c", LOCK, str(place / "run")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        expected = raises_code("folder-in-use", f"process {other.pid}", kind=FolderInUseError)
        with expected, exclusive_lock(place / "run"):
            pass
        other.kill()
    assert (place / "run" / ".lock").exists()
    monkeypatch.setattr(leases, "EXPIRY_SECONDS", 0.3)
    with exclusive_lock(place / "run"):
        assert (place / "run" / ".lock").read_bytes().find(f"process {os.getpid()} on ".encode()) >= 0


# ----------------------------------------------------------------------------------------------------------------------
# Leases.


def test_a_process_without_its_lease_writes_nothing(bucket: Location) -> None:
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


@pytest.mark.fault(59)
def test_a_lease_whose_version_changes_with_every_request(bucket: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    commit_bytes(bucket / ".lock", b"{}")
    versions = count()
    monkeypatch.setattr(RemotePath, "version", lambda _: {"e_tag": str(next(versions))})
    assert Lease(bucket / ".lock")._read()[1] == {}
    assert next(versions) < 100


# ----------------------------------------------------------------------------------------------------------------------
# Lock files that are something else: fault 55.


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def _hard_link(path: Path) -> None:
    (path.parent / "precious").write_text("process 1 on it")
    os.link(path.parent / "precious", path)


def _link(path: Path) -> None:
    (path.parent / "precious").write_text("process 1 on it")
    path.symlink_to("precious")


@pytest.mark.fault(55)
@pytest.mark.parametrize(
    "make",
    [
        _link,
        _hard_link,
        _socket,
        os.mkfifo,
        Path.mkdir,
        lambda path: path.symlink_to("missing"),
        lambda path: path.write_text("notes"),
        lambda path: path.write_text("process " * 1000),
    ],
)
def test_what_is_no_lock_file_is_refused_and_not_changed(tmp_path: Path, make: Callable[[Path], object]) -> None:
    lock = tmp_path / ".lock"
    make(lock)
    content = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    with raises_code("not-a-lock", lock, kind=StorageError), exclusive_lock(tmp_path):
        pass
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == content
    assert not (tmp_path / "missing").exists()


@pytest.mark.fault(55)
def test_a_lock_is_never_truncated(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("process 123456789 on elsewhere")  # of an earlier version
    with exclusive_lock(tmp_path):
        content = (tmp_path / ".lock").read_text()
        assert content.split() == ["process", str(os.getpid()), "on", os.uname().nodename]
        size = (tmp_path / ".lock").stat().st_size
    with exclusive_lock(tmp_path):
        assert (tmp_path / ".lock").stat().st_size == size
