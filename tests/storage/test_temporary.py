"""Temporary files and folders of processes that were killed: fault 62."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from sparseoco.core.errors import SparseocoError
from sparseoco.storage import temporary
from sparseoco.storage.commit import commit_bytes, committed
from sparseoco.storage.locks import exclusive_lock
from sparseoco.storage.temporary import boot, temporary_folder
from tests.support.errors import raises_code

SCRIPT = """
import pathlib, sys
from sparseoco.storage.commit import committed
from sparseoco.storage.temporary import temporary_folder
with committed(pathlib.Path(sys.argv[1]) / "file") as file, temporary_folder(pathlib.Path(sys.argv[1])) as folder:
    (folder / "content").write_text("x")
    print(1, flush=True)
    input()
"""


def _is_temporary(path: Path) -> bool:
    return path.name.endswith(".tmp")


@pytest.mark.fault(62)
def test_files_and_folders_of_a_killed_process_are_removed_by_the_next(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with exclusive_lock(tmp_path), temporary_folder(tmp_path):
            pass
        alive = sorted(filter(_is_temporary, tmp_path.iterdir()))
        other.kill()
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
    def refuse() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", refuse)
    with raises_code("no-temporary-folder", kind=SparseocoError), temporary_folder():
        pass


def test_the_boot_is_known_here() -> None:
    assert len(boot()) == 36
