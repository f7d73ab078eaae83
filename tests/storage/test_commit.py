"""Commits of files, their checksums, and checkpoints."""

import errno
import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparseoco.core.errors import DamagedError, StorageError
from sparseoco.storage import commit, tables
from sparseoco.storage.commit import exclusive_lock
from sparseoco.storage.locations import Location, RemotePath
from sparseoco.text.array_files import BlockReader, load_arrays, save_arrays, write_blocks
from tests.support.damage import checksummed
from tests.support.errors import raises_code

# ----------------------------------------------------------------------------------------------------------------------
# Atomic writes, here and in object stores.


def test_a_write_that_fails_leaves_the_old_file(place: Location) -> None:
    target = place / "deep" / "file"
    commit.commit_bytes(target, b"old")
    with pytest.raises(RuntimeError), commit.committed(target) as temporary:
        temporary.write_bytes(b"ne")
        raise RuntimeError
    assert target.read_bytes() == b"old"
    assert [path.name for path in target.parent.iterdir()] == ["file"]


def test_one_of_many_simultaneous_writers_wins(place: Location) -> None:
    won, lost = [], []

    def write(number: int) -> None:
        try:
            commit.commit_bytes(place / "file", str(number).encode(), replace=False)
            won.append(number)
        except FileExistsError:
            lost.append(number)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert (len(won), len(lost)) == (1, 7)
    assert (place / "file").read_bytes() == str(won[0]).encode()
    if isinstance(place, RemotePath):  # a request may have been sent twice
        write(won[0])
        assert len(won) == 2


def test_reading_and_removing_files(place: Location) -> None:
    for number in range(3):
        commit.commit_json(place / "folder" / f"{number}.json", {"n": number})
    paths = sorted((place / "folder").glob("*.json"), key=str)
    assert [str(path) for path in place.glob("*/1.json")] == [str(paths[1])]
    whole = paths[1].read_bytes()
    commit.commit_bytes(paths[2], whole.replace(b": 1", b": 3"))
    *contents, damaged = commit.read_files(paths)
    assert list(map(commit.parse_json, paths, contents)) == [{"n": 0}, {"n": 1}]
    with raises_code("corrupt-file", paths[2], kind=DamagedError):
        commit.parse_json(paths[2], damaged)
    with raises_code("corrupt-file", paths[2], kind=DamagedError):
        commit.read_json(paths[2])
    with commit.as_local_file(paths[1]) as local:
        assert local.read_bytes() == whole == commit.read_bytes(paths[1])
    assert local.exists() == (local == paths[1])  # a copy is removed
    assert commit.digest_file(paths[1]) == hashlib.sha256(whole).hexdigest()
    for read in (commit.read_json, commit.read_bytes):
        with raises_code("missing-file", "folder/3.json", kind=DamagedError):
            read(place / "folder" / "3.json")
    for _ in range(2):
        commit.remove_file(paths[0])
    assert not paths[0].exists()
    for _ in range(2):
        commit.remove_folder(place / "folder")
    assert not list(place.glob("folder/*"))  # some stores show a folder that nothing is in


def test_a_link_is_replaced_and_its_target_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"kept")
    (tmp_path / "file").symlink_to("elsewhere")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    commit.commit_bytes(tmp_path / "file", b"new")
    commit.commit_bytes(tmp_path / "link" / "file", b"followed")
    assert (tmp_path / "elsewhere").read_bytes() == b"kept"
    assert not (tmp_path / "file").is_symlink()
    assert (tmp_path / "folder" / "file").read_bytes() == b"followed"


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077])
def test_files_and_folders_follow_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        commit.commit_bytes(tmp_path / "folder" / "file", b"")
        with exclusive_lock(tmp_path / "locked"):
            pass
    finally:
        os.umask(before)
    files = tmp_path / "folder" / "file", tmp_path / "locked" / ".lock"
    assert [path.stat().st_mode & 0o777 for path in files] == [0o666 & ~mask] * 2
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o777 & ~mask


def test_equal_values_give_equal_bytes(tmp_path: Path) -> None:
    commit.commit_json(tmp_path / "a", {"x": 1, "y": [0.1, "é"]})
    commit.commit_json(tmp_path / "b" / "a", {"y": [0.1, "é"], "x": 1})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b" / "a").read_bytes()
    assert commit.read_json(tmp_path / "a") == {"x": 1, "y": [0.1, "é"]}
    commit.commit_json(tmp_path / "names", VALUE)  # some of which are not UTF-8
    assert commit.read_json(tmp_path / "names") == VALUE
    (tmp_path / "names").read_bytes().decode()


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
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(number, os.strerror(number))))
    with raises_code(code, tmp_path / "file", reason, kind=StorageError):
        commit.commit_bytes(tmp_path / "file", b"data")
    assert list(tmp_path.iterdir()) == []


# ----------------------------------------------------------------------------------------------------------------------
# Every bit of a file counts: a changed one is found before the content is used.


VALUE = {"classes": ["neg", "pos"], "weights": [0.1, -0.0, 1e300], "text": "größer\udc80", "none": None}
TABLE = pa.table({"term": ["a", "bb", None], "weight": [0.5, -1.0, float("nan")], "rows": [1, 2, 3]})


def read_array_checkpoint(path: Path) -> bytes:
    with tables.read_checkpoint(path) as (description, read):
        return repr(description).encode() + read("weights").tobytes()


ARRAYS = {"a": np.arange(100, 120), "b": np.arange(3, dtype=np.uint8)}


def write_two_blocks(path: Path) -> None:
    with write_blocks(path, 2) as write:
        write(ARRAYS)
        write({"b": np.arange(9)})


def read_two_blocks(path: Path) -> list[Any]:
    with BlockReader(path) as reader:
        return [reader.block(number) for number in (1, 0)]


def read_columns(path: Path) -> dict[str, list[Any]]:
    return tables.read_parquet_file(path).to_pydict()


KINDS: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
    "json": (lambda path: commit.commit_json(path, VALUE), commit.read_json),
    "parquet": (lambda path: tables.write_parquet(path, TABLE), read_columns),
    "npy": (
        lambda path: tables.write_array(path, np.arange(6.0).reshape(2, 3)),
        lambda path: tables.map_array(path, float).tolist(),
    ),
    "arrays": (lambda path: save_arrays(path, ARRAYS, {"n": 1}), lambda path: load_arrays(path)),
    "blocks": (write_two_blocks, read_two_blocks),
    "npz": (
        lambda path: tables.write_checkpoint(path, {"epoch": 3}, [("weights", np.arange(4.0))]),
        read_array_checkpoint,
    ),
}


@pytest.mark.fault(49, 50)
@pytest.mark.parametrize("kind", KINDS)
def test_one_flipped_bit_is_found_or_changes_nothing_and_a_cut_is_found(tmp_path: Path, kind: str) -> None:
    write, read = KINDS[kind]
    path = tmp_path / "file"
    write(path)
    whole, expected = path.read_bytes(), str(read(path))
    bits = range(0, 8 * len(whole), 8 * len(whole) // 500 | 1)
    found = 0
    for bit in bits:
        if kind == "blocks" and 8 <= bit // 8 < 16:
            continue  # the number of blocks has no checksum
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        try:
            assert str(read(path)) == expected, f"bit {bit}"
        except DamagedError:
            found += 1
    # Spaces of JSON, dates of a zip archive and padding are no content.
    assert found > len(bits) / 2 if kind in ("json", "npz", "arrays", "blocks") else found == len(bits)
    # A last newline and padding are no content.
    end = len(whole.rstrip(b"\n\0")) if kind in ("json", "arrays", "blocks") else len(whole)
    for size in range(0, end, 13):
        path.write_bytes(whole[:size])
        with pytest.raises(DamagedError):
            read(path)


@pytest.mark.fault(52)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("arrays", "blocks")])
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
    assert commit.read_json(tmp_path / "json") == VALUE
    tables.write_checkpoint(tmp_path / "npz", {"epoch": 3}, [("weights", np.arange(4.0))], named=False)
    (tmp_path / "npz").rename(tmp_path / "renamed")
    read_array_checkpoint(tmp_path / "renamed")
    tables.write_parquet(tmp_path / "parquet", TABLE)
    data = (tmp_path / "parquet").read_bytes()
    footer = 8 + int.from_bytes(data[-8:-4], "little")
    rest = data[: -footer - 32], data[-footer:]
    (tmp_path / "parquet").write_bytes(hashlib.sha256(b"".join(rest)).digest().join(rest))
    assert str(read_columns(tmp_path / "parquet")) == str(TABLE.to_pydict())


def test_json_that_is_not_ours(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for text in ("[]", "3", "null", '"x"', "{", '{"a": 1}', "[" * 3000, '{"a":' * 3000, '{"a": "\\ud800"}', "\xff"):
        path.write_bytes(text.encode("latin-1"))
        with raises_code("corrupt-file", path, kind=DamagedError):
            commit.read_json(path)


def test_a_table_with_a_checksum_is_plain_parquet(tmp_path: Path) -> None:
    with tables.parquet_writer(tmp_path / "file", TABLE.schema) as writer:
        writer.write_table(TABLE)
        writer.write_table(TABLE)
    found = pq.ParquetFile(tmp_path / "file", page_checksum_verification=True)
    assert found.num_row_groups == 2
    assert str(found.read().to_pylist()) == str(2 * TABLE.to_pylist())
    pq.write_table(TABLE, tmp_path / "plain")
    with raises_code("corrupt-file", kind=DamagedError):
        tables.read_parquet_file(tmp_path / "plain")


# ----------------------------------------------------------------------------------------------------------------------
# Checkpoints: a round trip, and every kind of damage.


SMALL = {
    "a": np.arange(24.0).reshape(4, 3, 2),
    "empty": np.zeros((0, 5), np.int64),
    "one": np.array([3], np.int32),
    "flags": np.array([True, False]),
}


def read_all(path: Path) -> dict[str, np.ndarray]:
    with tables.read_checkpoint(path) as (description, read):
        assert description == {"what": "this"}
        return {name: read(name) for name in SMALL}


def test_round_trip(tmp_path: Path) -> None:
    tables.write_checkpoint(tmp_path / "file", {"what": "this"}, SMALL.items())
    for name, array in read_all(tmp_path / "file").items():
        np.testing.assert_array_equal(array, SMALL[name])
        assert (array.dtype, array.shape) == (SMALL[name].dtype, SMALL[name].shape)
    with np.load(tmp_path / "file") as members:  # any reader of npz can have them
        np.testing.assert_array_equal(members["a"], SMALL["a"])


def test_views_are_written_and_filled_in_pieces(tmp_path: Path) -> None:
    whole = np.random.default_rng(0).normal(size=(3 * tables.PIECE_BYTES // 64, 2, 7))
    tables.write_checkpoint(tmp_path / "view", {}, [("a", whole[:, :, 2:5])])
    tables.write_checkpoint(tmp_path / "copy" / "view", {}, [("a", whole[:, :, 2:5].copy())])
    assert (tmp_path / "view").read_bytes() == (tmp_path / "copy" / "view").read_bytes()
    into = np.zeros_like(whole)
    with tables.read_checkpoint(tmp_path / "view") as (_, read):
        assert read("a", into[:, :, 2:5]).base is into
    np.testing.assert_array_equal(into[:, :, 2:5], whole[:, :, 2:5])
    assert not into[:, :, :2].any()
    assert not into[:, :, 5:].any()


def test_arrays_of_another_shape_or_dtype(tmp_path: Path) -> None:
    path = tmp_path / "file"
    tables.write_checkpoint(path, {}, SMALL.items())
    for wrong in (np.zeros((4, 3, 3)), np.zeros((4, 3, 2), np.float32), np.zeros(24)):
        with (
            raises_code("corrupt-file", path, "(4, 3, 2)", kind=StorageError),
            tables.read_checkpoint(path) as (_, read),
        ):
            read("a", wrong)
    with raises_code("corrupt-file", path, "nothing", kind=StorageError), tables.read_checkpoint(path) as (_, read):
        read("nothing")
