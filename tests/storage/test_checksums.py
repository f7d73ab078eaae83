"""Every bit of a file counts: a changed one is found before the content is used."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparseoco.core.errors import DamagedError
from sparseoco.storage.checkpoints import map_array, read_checkpoint, write_array, write_checkpoint
from sparseoco.storage.commit import commit_json, read_json
from sparseoco.storage.tables import parquet_writer, read_parquet_file, write_parquet
from tests.support.errors import raises_code
from tests.support.wrong_shapes import checksummed

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
