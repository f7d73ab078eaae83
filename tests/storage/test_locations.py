"""Folders and files by their names: local or remote, outputs, temporary ones, TOML; and the locks of folders."""

import os
import pickle
import re
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest

from sparseoco.core.errors import FolderInUseError, SparseocoError, StorageError
from sparseoco.storage import commit, locations, temporary
from sparseoco.storage.commit import FolderKind, Lease, commit_bytes, commit_json, committed, exclusive_lock
from sparseoco.storage.locations import Location, RemotePath, location, resolve_against
from sparseoco.storage.tables import write_parquet
from sparseoco.storage.temporary import boot, temporary_folder
from tests.support.damage import checksummed
from tests.support.errors import raises_code
from tests.support.processes import forks_with, wait_until

# ----------------------------------------------------------------------------------------------------------------------
# Local and remote paths, and paths relative to one another.


def test_a_local_path_is_a_path(tmp_path: Path) -> None:
    assert location("a/b") == Path("a/b")
    assert location(tmp_path) is tmp_path
    assert location(f"file://{tmp_path}") == tmp_path
    assert locations.is_local(tmp_path)
    assert not locations.is_remote_uri("C:/x")
    assert not locations.is_remote_uri("file:///x")


def test_a_remote_path_has_the_methods_of_a_local_one() -> None:
    place = location("s3://bucket/folder/file.json")
    assert str(place) == "s3://bucket/folder/file.json"
    assert (place.name, place.stem, place.suffix) == ("file.json", "file", ".json")
    assert str(place.parent / "other") == "s3://bucket/folder/other"
    assert str(place.with_suffix(".npy")) == "s3://bucket/folder/file.npy"
    assert str(place.resolve()) == str(place.absolute()) == place.as_uri() == str(place)
    assert location(str(place)) == place == pickle.loads(pickle.dumps(place))  # as Dask sends it
    assert type(pickle.loads(pickle.dumps(place))) is type(place)
    assert not locations.is_local(place)
    assert len({place, location(str(place))}) == 1


@pytest.mark.parametrize(
    ("place", "folder", "between"),
    [
        ("/runs/one/shards", "/runs/one", "shards"),
        ("/runs/shards", "/runs/one", "../shards"),
        ("s3://bucket/runs/shards", "s3://bucket/runs/one", "../shards"),
        ("s3://bucket/shards", "s3://bucket/runs/one", "../../shards"),
        ("s3://other/shards", "s3://bucket/runs/one", "s3://other/shards"),
        ("/runs/shards", "s3://bucket/runs/one", "/runs/shards"),
        ("s3://bucket/shards", "/runs/one", "s3://bucket/shards"),
    ],
)
def test_a_relative_path_leads_back(place: str, folder: str, between: str) -> None:
    assert locations.relative_path(location(place), location(folder)) == between
    found = resolve_against(location(folder), between)
    assert (str(found.resolve()) if locations.is_local(found) else str(found)) == place


def test_the_work_folder_is_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARSEOCO_SCRATCH", str(tmp_path))
    assert locations.local_work_folder(Path("run")) == Path("run")
    one, other = (
        locations.local_work_folder(location("s3://bucket/one")),
        locations.local_work_folder(location("s3://bucket/two")),
    )
    assert one.parent == other.parent == tmp_path
    assert one != other == locations.local_work_folder(location("s3://bucket/two"))


def test_s3_profiles_need_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_PROFILE", "ours")
    monkeypatch.setitem(sys.modules, "boto3", None)
    monkeypatch.delitem(sys.modules, "obstore.auth.boto3", raising=False)
    with raises_code("missing-package", "sparseoco[s3]"):
        location("s3://bucket/run").exists()


@pytest.mark.parametrize(
    ("uri", "code"),
    [
        ("nothing://x/y", "unknown-scheme"),
        ("http://host/x.jsonl", "unknown-scheme"),
        ("https://host/x.jsonl", "unknown-scheme"),
        ("s3:///x", "invalid-uri"),
        ("s3://bucket//run", "invalid-uri"),
        ("https://host/x?version=2", "unknown-scheme"),
        ("ftp://somebody:secret@127.0.0.1:1/x.jsonl", "credentials-in-uri"),
        ("s3://x/../y", "invalid-uri"),
        ("s3://somebody:word@x/y", "credentials-in-uri"),
        ("https://host/x.jsonl?X-Amz-Date=1&X-Amz-Signature=secret", "credentials-in-uri"),
        ("https://host/x.jsonl?sv=1&sig=secret", "credentials-in-uri"),
        ("simplecache::s3://somebody:secret@bucket/x", "credentials-in-uri"),
    ],
)
def test_invalid_uris(uri: str, code: str) -> None:
    """One with credentials would be written to manifests."""
    with raises_code(code) as error:
        location(uri)
    assert code != "credentials-in-uri" or not re.search("secret|somebody", str(error.value))


@pytest.mark.parametrize("name", ["run[1]", "run*", "run?"])
def test_a_name_is_never_a_pattern(place: Location, name: str) -> None:
    folder = place / name
    commit_bytes(folder / "file", b"mine")
    commit_bytes(place / "run1" / "file", b"other")
    assert [path.name for path in folder.glob("*")] == ["file"]
    commit.remove_folder(folder)
    assert not folder.exists()
    assert (place / "run1" / "file").read_bytes() == b"other"
    assert location(f"/runs/{name}") == Path(f"/runs/{name}")


# ----------------------------------------------------------------------------------------------------------------------
# Folders that a command may write to: new, empty, of its own kind, or left by an interrupted one of its kind.


KIND = FolderKind("a thing", ("thing.json",), ("table.parquet", "page.html", "parts", f"*-{'?' * 24}.parquet"))
OTHER = FolderKind("another", ("other.json",), ())
LOG = b'{"time": "", "level": "info", "logger": "sparseoco", "event": ""}\n'


def write(folder: Location, **files: bytes) -> None:
    for name, data in files.items():
        commit_bytes(folder / name.replace("_", "."), data)


def interrupted(folder: Path) -> None:
    """A command was stopped before it wrote the mark, or the mark was damaged since."""
    with exclusive_lock(folder, KIND):
        write(folder, table_parquet=b"", page_html=b"", thing_json=b"{")


ACCEPTED: dict[str, Callable[[Path], object]] = {
    "new": lambda folder: None,
    "empty": lambda folder: folder.mkdir(),
    "hidden": lambda folder: write(folder, **{"_gitkeep": b"", "_own.aaaaaaaa-bbbbbbbb.tmp": b""}),
    "run file and log": lambda folder: write(folder, run_toml=b"", log_jsonl=LOG),
    "marked": lambda folder: write(folder, thing_json=checksummed({}), notes_txt=b"kept"),
    "interrupted": interrupted,
    "without a lease": lambda folder: write_parquet(folder / "table.parquet", pa.table({"a": [1]})),
    "named by content": lambda folder: write(folder / "parts", **{f"x-{'0' * 24}_parquet": b"kept"}),
}
REFUSED: dict[str, Callable[[Path], object]] = {
    "notes": lambda folder: write(folder, notes_txt=b"", thing_json=b"{}"),
    "another mark": lambda folder: write(folder, thing_json=b'{"a": 1}'),
    "another table": lambda folder: write(folder, table_parquet=b"PAR1"),
    "a page": lambda folder: write(folder, page_html=b"<html>"),
    "another kind": lambda folder: commit_json(folder / "other.json", {}),
    "notes beside a lock": lambda folder: (interrupted(folder), write(folder, notes_txt=b"")),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_folders_that_are_written_to(tmp_path: Path, case: str) -> None:
    ACCEPTED[case](tmp_path / "out")
    with exclusive_lock(tmp_path / "out", KIND):
        pass
    commit.check_folder(tmp_path / "out", KIND, OTHER)


@pytest.mark.parametrize("case", REFUSED)
def test_folders_that_are_left_alone(tmp_path: Path, case: str) -> None:
    REFUSED[case](tmp_path / "out")
    before = sorted(tmp_path.rglob("*"))
    with raises_code("folder-not-empty", tmp_path / "out", "a thing"), exclusive_lock(tmp_path / "out", KIND):
        pass
    assert sorted(tmp_path.rglob("*")) == before
    with exclusive_lock(tmp_path / "out"):  # whoever does not say what it writes only changes what is there
        pass


def test_a_file_has_one_name(tmp_path: Path) -> None:
    """A mark that was copied from another file of the same kind is none."""
    commit_json(tmp_path / "a" / "thing.json", {})
    write(tmp_path / "b", thing_json=(tmp_path / "a" / "thing.json").read_bytes(), notes_txt=b"")
    commit.check_folder(tmp_path / "b", KIND)
    commit_json(tmp_path / "a" / "other.json", {})
    write(tmp_path / "c", thing_json=(tmp_path / "a" / "other.json").read_bytes())
    with raises_code("folder-not-empty"):
        commit.check_folder(tmp_path / "c", KIND)


# ----------------------------------------------------------------------------------------------------------------------
# Temporary files and folders of processes that were killed: fault 62.


PROCESSES = forks_with(__name__)


@contextmanager
def killed(hold: Callable[[str], AbstractContextManager[Any]], place: Location) -> Iterator[BaseProcess]:
    """A process that holds something at a place; at the end it is killed."""
    here, there = PROCESSES.Pipe()
    process = PROCESSES.Process(target=_hold, args=(hold, str(place), dict(os.environ), there))
    process.start()
    here.recv()
    yield process
    process.kill()
    process.join()


def _hold(hold: Callable[[str], AbstractContextManager[Any]], place: str, env: dict[str, str], there: Any) -> None:
    os.environ.clear()
    os.environ.update(env)
    with hold(place):
        there.send(1)
        there.recv()


@contextmanager
def temporary_ones(place: str) -> Iterator[None]:
    with committed(Path(place) / "file"), temporary_folder(Path(place)) as folder:
        (folder / "content").write_text("x")
        yield


@pytest.mark.fault(62)
def test_files_and_folders_of_a_killed_process_are_removed_by_the_next(tmp_path: Path) -> None:
    with killed(temporary_ones, tmp_path):
        with exclusive_lock(tmp_path), temporary_folder(tmp_path):
            pass
        alive = sorted(tmp_path.glob("*.tmp"))
    assert len(alive) == 2
    with exclusive_lock(tmp_path), temporary_folder(tmp_path):
        assert not any(path.exists() for path in alive)


@pytest.mark.fault(62)
def test_files_of_another_machine_are_removed_after_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary, "_boot_digest", lambda: "00000000")
    for name in ("long-ago", "just-now"):
        (tmp_path / name).mkdir()
        with committed(tmp_path / name / "file") as file:
            pass
        file.touch()
    os.utime(next((tmp_path / "long-ago").glob(".file.*")), (time.time() - 25 * 3600,) * 2)
    commit_bytes(tmp_path / "long-ago" / ".mine.tmp", b"")
    os.utime(tmp_path / "long-ago" / ".mine.tmp", (0, 0))
    monkeypatch.undo()
    with exclusive_lock(tmp_path):
        pass
    assert sorted(path.name for path in (tmp_path / "long-ago").iterdir()) == [".mine.tmp", "file"]
    assert len(list((tmp_path / "just-now").iterdir())) == 2


def test_a_file_that_is_taken_for_abandoned_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, calls = temporary._lock, []

    def remove_first(descriptor: int, path: Path) -> bool:
        calls.append(path)
        if len(calls) in (1, 3):
            temporary.remove_if_abandoned(path)
        return lock(descriptor, path)

    monkeypatch.setattr(temporary, "_lock", remove_first)
    commit_bytes(tmp_path / "file", b"data")
    with temporary_folder(tmp_path) as folder:
        assert folder.is_dir()
    assert len(calls) == 4
    assert (tmp_path / "file").read_bytes() == b"data"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.fault(43)
def test_a_name_of_255_bytes(tmp_path: Path) -> None:
    commit_bytes(tmp_path / ("é" * 127 + "x"), b"data")
    assert len(list(tmp_path.iterdir())) == 1


def test_no_folder_for_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", Mock(side_effect=FileNotFoundError(2, "No usable temporary directory")))
    with raises_code("no-temporary-folder", kind=SparseocoError), temporary_folder():
        pass


def test_the_boot_is_known_here() -> None:
    assert len(boot()) == 36


# ----------------------------------------------------------------------------------------------------------------------
# Files of options: what is read, and what is refused.


def test_values(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("# options\nname = 'é'\n[search]\nlam = [1e-4, inf]\n")
    assert locations.read_toml(path) == {"name": "é", "search": {"lam": [1e-4, float("inf")]}}


@pytest.mark.fault(42)
@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("run.yaml", b"", "unknown-format"),
        ("run.json", b"{}", "unknown-format"),
        ("latin.toml", b"\xff", "encoding"),
        ("twice.toml", b"a = 1\na = 2\n", "invalid-toml"),
        ("date.toml", b"a = 2020-99-99\n", "invalid-toml"),
        ("deep.toml", b"a = " + b"[" * 5000 + b"]" * 5000, "invalid-toml"),
    ],
)
def test_refused_files(tmp_path: Path, name: str, content: bytes, code: str) -> None:
    (tmp_path / name).write_bytes(content)
    with raises_code(code, tmp_path / name):
        locations.read_toml(tmp_path / name)


def test_missing_files(tmp_path: Path) -> None:
    with raises_code("missing-file", tmp_path / "none.toml"):
        locations.read_toml(tmp_path / "none.toml")
    with raises_code("unreadable-file", tmp_path / "folder.toml"):
        (tmp_path / "folder.toml").mkdir()
        locations.read_toml(tmp_path / "folder.toml")


# ----------------------------------------------------------------------------------------------------------------------
# Locks of folders: files here, leases in an object store, which end with their process or expire.


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(commit, "LEASE_POLL_SECONDS", 0.02)
    monkeypatch.setattr(commit, "HEARTBEAT_SECONDS", 0.05)


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


def locked(place: str) -> AbstractContextManager[None]:
    commit.HEARTBEAT_SECONDS = 0.1  # of the process that is killed
    return exclusive_lock(location(place))


@pytest.mark.fault(8)
@pytest.mark.parametrize("place", ["local", "s3"], indirect=True)
def test_the_lock_of_a_killed_process_does_not_hold(place: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file lock ends with its process, a lease expires."""
    with killed(locked, place / "run") as other:
        expected = raises_code("folder-in-use", f"process {other.pid}", kind=FolderInUseError)
        with expected, exclusive_lock(place / "run"):
            pass
    assert (place / "run" / ".lock").exists()
    monkeypatch.setattr(commit, "EXPIRY_SECONDS", 0.3)
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
        wait_until(lambda: lease.lost)
        with raises_code("lease-lost", "run/after", kind=StorageError):
            commit_bytes(bucket / "run" / "after", b"")
        commit_bytes(bucket / "running" / "file", b"")
    finally:
        lease.release()
    assert (bucket / "run" / ".lock").read_bytes() == b"{}"
    assert not (bucket / "run" / "after").exists()


@pytest.mark.fault(37)
@pytest.mark.parametrize(
    ("folder", "file", "is_covered"),
    [(".", "run/file", True), ("run", "run/after", True), ("run", "running/file", False)],
)
def test_a_lease_covers_all_files_of_its_folder(
    bucket: Location, monkeypatch: pytest.MonkeyPatch, folder: str, file: str, is_covered: bool
) -> None:
    monkeypatch.setattr(commit, "HEARTBEAT_SECONDS", 60.0)
    with exclusive_lock(locations.resolve_against(bucket, folder)):
        monkeypatch.setattr(commit, "EXPIRY_SECONDS", 0.0)
        with raises_code("lease-lost", file, kind=StorageError) if is_covered else nullcontext():
            commit_bytes(bucket / file, b"")


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


@pytest.mark.fault(55)
@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.symlink_to("precious"),
        lambda path: path.hardlink_to(path.parent / "precious"),
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
    (tmp_path / "precious").write_text("process 1 on it")
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
