"""Commits of files, their checksums and locks, and checkpoints."""

import errno
import hashlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparseoco.core.errors import DamagedError, FolderInUseError, StorageError
from sparseoco.storage.checkpoints import PIECE_BYTES, map_array, read_checkpoint, write_array, write_checkpoint
from sparseoco.storage.commit import commit_bytes, commit_json, committed, read_json
from sparseoco.storage.locks import exclusive_lock
from sparseoco.storage.tables import parquet_writer, read_parquet_file, write_parquet
from tests.support.errors import raises_code
from tests.support.wrong_shapes import checksummed

# ----------------------------------------------------------------------------------------------------------------------
# Atomic writes and locks of local files.


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


# ----------------------------------------------------------------------------------------------------------------------
# Every bit of a file counts: a changed one is found before the content is used.


VALUE = {"classes": ["neg", "pos"], "weights": [0.1, -0.0, 1e300], "text": "größer\udc80", "none": None}
TABLE = pa.table({"term": ["a", "bb", None], "weight": [0.5, -1.0, float("nan")], "rows": [1, 2, 3]})


def read_array_checkpoint(path: Path) -> bytes:
    with read_checkpoint(path) as (description, read):
        return repr(description).encode() + read("weights").tobytes()


KINDS: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
    "json": (lambda path: commit_json(path, VALUE), read_json),
    "parquet": (lambda path: write_parquet(path, TABLE), lambda path: read_parquet_file(path).to_pydict()),
    "npy": (
        lambda path: write_array(path, np.arange(6.0).reshape(2, 3)),
        lambda path: map_array(path, float).tolist(),
    ),
    "npz": (
        lambda path: write_checkpoint(path, {"epoch": 3}, [("weights", np.arange(4.0))]),
        read_array_checkpoint,
    ),
}


@pytest.mark.fault(49, 50)
@pytest.mark.parametrize("kind", KINDS)
def test_one_flipped_bit_is_found_or_changes_nothing(tmp_path: Path, kind: str) -> None:
    write, read = KINDS[kind]
    path = tmp_path / "file"
    write(path)
    whole, expected = path.read_bytes(), str(read(path))
    bits = range(0, 8 * len(whole), 8 * len(whole) // 500 | 1)
    found = 0
    for bit in bits:
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        try:
            assert str(read(path)) == expected, f"bit {bit}"
        except DamagedError:
            found += 1
    # Spaces of JSON and dates of a zip archive are no content.
    assert found > len(bits) / 2 if kind in ("json", "npz") else found == len(bits)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_cut_short_is_found(tmp_path: Path, kind: str) -> None:
    write, read = KINDS[kind]
    path = tmp_path / "file"
    write(path)
    whole = path.read_bytes()
    end = len(whole.rstrip()) if kind == "json" else len(whole)  # a last newline is no content
    for size in range(0, end, 13):
        path.write_bytes(whole[:size])
        with pytest.raises(DamagedError):
            read(path)


@pytest.mark.fault(52)
@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_of_a_file_with_another_name_is_found(tmp_path: Path, kind: str) -> None:
    write, read = KINDS[kind]
    write(tmp_path / "file")
    (tmp_path / "elsewhere").mkdir()
    for name in ("other", "elsewhere/file"):
        (tmp_path / name).write_bytes((tmp_path / "file").read_bytes())
    assert str(read(tmp_path / "elsewhere" / "file")) == str(read(tmp_path / "file"))
    with raises_code("corrupt-file", tmp_path / "other", kind=DamagedError):
        read(tmp_path / "other")


def test_files_of_versions_that_left_out_the_name(tmp_path: Path) -> None:
    (tmp_path / "json").write_bytes(checksummed(VALUE))
    assert read_json(tmp_path / "json") == VALUE
    write_checkpoint(tmp_path / "npz", {"epoch": 3}, [("weights", np.arange(4.0))], named=False)
    (tmp_path / "npz").rename(tmp_path / "renamed")
    read_array_checkpoint(tmp_path / "renamed")
    write_parquet(tmp_path / "parquet", TABLE)
    data = (tmp_path / "parquet").read_bytes()
    footer = 8 + int.from_bytes(data[-8:-4], "little")
    rest = data[: -footer - 32], data[-footer:]
    (tmp_path / "parquet").write_bytes(hashlib.sha256(b"".join(rest)).digest().join(rest))
    assert str(read_parquet_file(tmp_path / "parquet").to_pydict()) == str(TABLE.to_pydict())


def test_json_that_is_not_ours(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for text in ("[]", "3", "null", '"x"', "{", '{"a": 1}', "[" * 3000, '{"a":' * 3000, '{"a": "\\ud800"}', "\xff"):
        path.write_bytes(text.encode("latin-1"))
        with raises_code("corrupt-file", path, kind=DamagedError):
            read_json(path)


def test_names_that_are_not_utf_8_are_kept(tmp_path: Path) -> None:
    commit_json(tmp_path / "file", VALUE)
    assert read_json(tmp_path / "file") == VALUE
    (tmp_path / "file").read_bytes().decode()


def test_a_table_with_a_checksum_is_plain_parquet(tmp_path: Path) -> None:
    with parquet_writer(tmp_path / "file", TABLE.schema) as writer:
        writer.write_table(TABLE)
        writer.write_table(TABLE)
    found = pq.ParquetFile(tmp_path / "file", page_checksum_verification=True)
    assert found.num_row_groups == 2
    assert str(found.read().to_pylist()) == str(2 * TABLE.to_pylist())
    pq.write_table(TABLE, tmp_path / "plain")
    with raises_code("corrupt-file", kind=DamagedError):
        read_parquet_file(tmp_path / "plain")


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


# ----------------------------------------------------------------------------------------------------------------------
# Checkpoints: a round trip, and every kind of damage.


SMALL = {
    "a": np.arange(24.0).reshape(4, 3, 2),
    "empty": np.zeros((0, 5), np.int64),
    "one": np.array([3], np.int32),
    "flags": np.array([True, False]),
}


def read_all(path: Path) -> dict[str, np.ndarray]:
    with read_checkpoint(path) as (description, read):
        assert description == {"what": "this"}
        return {name: read(name) for name in SMALL}


def test_round_trip(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "file", {"what": "this"}, SMALL.items())
    for name, array in read_all(tmp_path / "file").items():
        np.testing.assert_array_equal(array, SMALL[name])
        assert (array.dtype, array.shape) == (SMALL[name].dtype, SMALL[name].shape)
    with np.load(tmp_path / "file") as members:  # any reader of npz can have them
        np.testing.assert_array_equal(members["a"], SMALL["a"])


def test_views_are_written_and_filled_in_pieces(tmp_path: Path) -> None:
    whole = np.random.default_rng(0).normal(size=(3 * PIECE_BYTES // 64, 2, 7))
    write_checkpoint(tmp_path / "view", {}, [("a", whole[:, :, 2:5])])
    write_checkpoint(tmp_path / "copy" / "view", {}, [("a", whole[:, :, 2:5].copy())])
    assert (tmp_path / "view").read_bytes() == (tmp_path / "copy" / "view").read_bytes()
    into = np.zeros_like(whole)
    with read_checkpoint(tmp_path / "view") as (_, read):
        assert read("a", into[:, :, 2:5]).base is into
    np.testing.assert_array_equal(into[:, :, 2:5], whole[:, :, 2:5])
    assert not into[:, :, :2].any()
    assert not into[:, :, 5:].any()


@pytest.mark.parametrize("bit", [0, 7])
def test_flipped_bits_are_noticed_or_harmless(tmp_path: Path, bit: int) -> None:
    """Some bytes of a zip file, such as dates, mean nothing here."""
    path = tmp_path / "file"
    write_checkpoint(path, {"what": "this"}, SMALL.items())
    whole, noticed = path.read_bytes(), 0
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1 << bit
        path.write_bytes(changed)
        try:
            found = read_all(path)
        except DamagedError:
            noticed += 1
            continue
        for name, array in found.items():
            assert array.tobytes() == SMALL[name].tobytes()
    assert noticed > len(whole) / 2


def test_truncated_files(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_checkpoint(path, {"what": "this"}, SMALL.items())
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with raises_code("corrupt-file", path, kind=DamagedError):
            read_all(path)


def test_arrays_of_another_shape_or_dtype(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_checkpoint(path, {}, SMALL.items())
    for wrong in (np.zeros((4, 3, 3)), np.zeros((4, 3, 2), np.float32), np.zeros(24)):
        with raises_code("corrupt-file", path, "(4, 3, 2)", kind=StorageError), read_checkpoint(path) as (_, read):
            read("a", wrong)
    with raises_code("corrupt-file", path, "nothing", kind=StorageError), read_checkpoint(path) as (_, read):
        read("nothing")
