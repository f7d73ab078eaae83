"""Lock files that are something else: fault 55."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from sparseoco.core.errors import StorageError
from sparseoco.storage.locks import exclusive_lock
from tests.support.errors import raises_code


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
