"""Atomic writes and locks of local files."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparseoco.core.errors import DamagedError, FolderInUseError, StorageError
from sparseoco.storage.commit import commit_bytes, commit_json, committed, read_json
from sparseoco.storage.locks import exclusive_lock
from tests.support.errors import raises_code


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file"
    commit_bytes(target, b"old")
    with pytest.raises(RuntimeError), committed(target) as temporary:
        temporary.write_bytes(b"ne")
        raise RuntimeError
    assert target.read_bytes() == b"old"
    assert [path.name for path in target.parent.iterdir()] == ["file"]


def test_without_replace_the_first_write_stays(tmp_path: Path) -> None:
    commit_bytes(tmp_path / "file", b"first", replace=False)
    with pytest.raises(FileExistsError):
        commit_bytes(tmp_path / "file", b"second", replace=False)
    assert (tmp_path / "file").read_bytes() == b"first"


def test_a_link_is_replaced_and_its_target_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"kept")
    (tmp_path / "file").symlink_to("elsewhere")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    commit_bytes(tmp_path / "file", b"new")
    commit_bytes(tmp_path / "link" / "file", b"followed")
    assert (tmp_path / "elsewhere").read_bytes() == b"kept"
    assert not (tmp_path / "file").is_symlink()
    assert (tmp_path / "folder" / "file").read_bytes() == b"followed"


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077])
def test_files_and_folders_follow_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        commit_bytes(tmp_path / "folder" / "file", b"")
        with exclusive_lock(tmp_path / "locked"):
            pass
    finally:
        os.umask(before)
    files = tmp_path / "folder" / "file", tmp_path / "locked" / ".lock"
    assert [path.stat().st_mode & 0o777 for path in files] == [0o666 & ~mask] * 2
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o777 & ~mask


def test_equal_values_give_equal_bytes(tmp_path: Path) -> None:
    commit_json(tmp_path / "a", {"x": 1, "y": [0.1, "é"]})
    commit_json(tmp_path / "b" / "a", {"y": [0.1, "é"], "x": 1})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b" / "a").read_bytes()
    assert read_json(tmp_path / "a") == {"x": 1, "y": [0.1, "é"]}


@pytest.mark.fault(17, 18)
@pytest.mark.parametrize(
    ("number", "code", "reason"),
    [
        (errno.ENOSPC, "disk-full", ""),
        (errno.EACCES, "permission-denied", "permission denied"),
        (errno.EROFS, "permission-denied", "read-only"),
        (errno.EIO, "io-error", ""),
    ],
)
def test_errors_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: str, reason: str
) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    with raises_code(code, tmp_path / "file", reason, kind=StorageError):
        commit_bytes(tmp_path / "file", b"data")
    assert list(tmp_path.iterdir()) == []


def test_corrupt_and_missing_json(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("{")
    with raises_code("corrupt-file", tmp_path / "a", kind=DamagedError):
        read_json(tmp_path / "a")
    with raises_code("missing-file", tmp_path / "b", kind=DamagedError):
        read_json(tmp_path / "b")


@pytest.mark.fault(8)
def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    script = """
import sys, pathlib, sparseoco.storage.locks
with sparseoco.storage.locks.exclusive_lock(pathlib.Path(sys.argv[1])):
    print(1, flush=True)
    input()
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with other:
        assert other.stdout is not None
        other.stdout.readline()
        with raises_code("folder-in-use", f"process {other.pid}", kind=FolderInUseError), exclusive_lock(tmp_path):
            pass
        other.kill()
    with exclusive_lock(tmp_path):
        pass
