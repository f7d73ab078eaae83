"""Checkpoints: a round trip, and every kind of damage."""

from pathlib import Path

import numpy as np
import pytest

from sparseoco.core.errors import DamagedError, StorageError
from sparseoco.storage.checkpoints import PIECE_BYTES, read_checkpoint, write_checkpoint
from tests.support.errors import raises_code

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
