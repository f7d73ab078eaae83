import errno
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from sparseoco.core.errors import StorageError
from sparseoco.storage.commit import commit_bytes, commit_json, committed, exclusive_lock, read_json


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file"
    commit_bytes(target, b"old")
    with pytest.raises(RuntimeError), committed(target) as temporary:
        temporary.write_bytes(b"ne")
        raise RuntimeError
    assert target.read_bytes() == b"old"
    assert [path.name for path in target.parent.iterdir()] == ["file"]


def test_put_if_absent_keeps_the_first(tmp_path: Path) -> None:
    commit_bytes(tmp_path / "file", b"first", replace=False)
    with pytest.raises(FileExistsError):
        commit_bytes(tmp_path / "file", b"second", replace=False)
    assert (tmp_path / "file").read_bytes() == b"first"


def test_equal_values_are_equal_bytes(tmp_path: Path) -> None:
    commit_json(tmp_path / "a", {"x": 1, "y": [0.1, "é"]})
    commit_json(tmp_path / "b", {"y": [0.1, "é"], "x": 1})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert read_json(tmp_path / "a") == {"x": 1, "y": [0.1, "é"]}


@pytest.mark.parametrize(
    ("number", "said"), [(errno.ENOSPC, "disk is full"), (errno.EACCES, "permission denied"), (errno.EIO, "error")]
)
def test_what_the_system_refuses_is_said_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StorageError, match=said):
        commit_bytes(tmp_path / "file", b"data")
    assert list(tmp_path.iterdir()) == []


def test_damaged_json_is_said(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("{")
    with pytest.raises(StorageError, match="not JSON"):
        read_json(tmp_path / "a")
    with pytest.raises(StorageError, match="is not there"):
        read_json(tmp_path / "b")


def test_a_folder_has_one_owner_and_none_after_a_kill(tmp_path: Path) -> None:
    hold = """
import sys, pathlib, sparseoco.storage.commit
with sparseoco.storage.commit.exclusive_lock(pathlib.Path(sys.argv[1])):
    print(1, flush=True)
    input()
"""
    command = [sys.executable, "-c", hold, str(tmp_path)]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(StorageError, match=f"in use by process {other.pid}"), exclusive_lock(tmp_path):
            pass
        other.kill()
    with exclusive_lock(tmp_path):
        pass


def test_what_killed_processes_were_writing_is_removed_after_a_day(tmp_path: Path) -> None:
    for name, hours in (("long-ago", 25), ("just-now", 0)):
        with suppress(KeyboardInterrupt), committed(tmp_path / name / "file") as temporary:
            shutil.copy(temporary, kept := tmp_path / "kept")
            left = temporary
            raise KeyboardInterrupt
        kept.rename(left)
        os.utime(left, (time.time() - hours * 3600,) * 2)
    commit_bytes(tmp_path / "long-ago" / ".mine.tmp", b"")
    os.utime(tmp_path / "long-ago" / ".mine.tmp", (0, 0))
    with exclusive_lock(tmp_path):
        pass
    assert [path.name for path in (tmp_path / "long-ago").iterdir()] == [".mine.tmp"]
    assert len(list((tmp_path / "just-now").iterdir())) == 1
