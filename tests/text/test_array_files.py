"""Array files: read as a whole and in ranges, with digests."""

from pathlib import Path

import numpy as np
import pytest

from sparseoco.core.errors import DamagedError
from sparseoco.text.array_files import ArrayReader, BlockReader, load_arrays, save_arrays, write_blocks
from tests.support.errors import raises_code


def test_arrays_whole_and_in_ranges(tmp_path: Path) -> None:
    save_arrays(tmp_path / "x", {"a": np.ones(3, np.uint8), "b": np.arange(5), "c": np.zeros((2, 2))}, {"n": 1})
    arrays, facts = load_arrays(tmp_path / "x")
    assert (arrays["b"].tolist(), arrays["c"].shape, facts) == ([0, 1, 2, 3, 4], (2, 2), {"n": 1})
    with ArrayReader(tmp_path / "x") as reader:
        assert (reader.size("b"), reader.read("b", 1, 4).tolist(), reader.read("a", 3, 3).size) == (5, [1, 2, 3], 0)
        assert (reader["b"].tolist(), reader.facts, "d" in reader) == ([0, 1, 2, 3, 4], {"n": 1}, False)


@pytest.mark.parametrize("bytes_per_block", [10, 50_000])
def test_blocks(tmp_path: Path, bytes_per_block: int) -> None:
    """Small files are read at once, large ones block by block."""
    blocks = [{}, {"a": np.arange(bytes_per_block // 8)}, {"b": np.ones(bytes_per_block, np.uint8), "c": np.arange(2)}]
    with write_blocks(tmp_path / "x", 3) as write:
        for block in blocks:
            write(block)
    with BlockReader(tmp_path / "x") as reader:
        assert len(reader) == 3
        for number in (2, 0, 1):
            read = reader.block(number)
            assert {name: array.tolist() for name, array in read.items()} == {
                name: array.tolist() for name, array in blocks[number].items()
            }
    with pytest.raises(ValueError, match="0 blocks of 1"), write_blocks(tmp_path / "y", 1):
        pass
    assert not (tmp_path / "y").exists()


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    """In any byte of a file but the padding: an array read whole or from end to end, a block, a header, an index."""
    save_arrays(tmp_path / "x", {"a": np.arange(100, 164), "b": np.arange(3)}, {"n": 1})
    with write_blocks(tmp_path / "y", 1) as write:
        write({"a": np.arange(100, 164)})
    for name in ("x", "y"):
        data = (tmp_path / name).read_bytes()
        for at in range(0, len(data) - 64, 11):
            flipped = bytearray(data)
            flipped[at] ^= 1
            (tmp_path / name).write_bytes(flipped)
            with raises_code("corrupt-file", tmp_path / name, kind=DamagedError):
                if name == "x":
                    load_arrays(tmp_path / "x")
                else:
                    with BlockReader(tmp_path / "y") as reader:
                        reader.block(0)
    (tmp_path / "x").write_bytes(_flipped(tmp_path / "x", np.arange(100, 164)))
    with ArrayReader(tmp_path / "x") as reader:
        reader.read("a", 0, 60)
        with raises_code("corrupt-file", "x", kind=DamagedError):
            reader.read("a", 60, 64)
    (tmp_path / "x").write_bytes(b"SPARSE02")
    with raises_code("corrupt-file", "x", kind=DamagedError):
        load_arrays(tmp_path / "x")


def _flipped(path: Path, values: np.ndarray) -> bytes:
    save_arrays(path, {"a": values})
    return path.read_bytes().replace(values[5:6].tobytes(), values[6:7].tobytes(), 1)
