"""Damaged files of killed runs are removed, whatever their kind; all others stay."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparseoco.core.errors import StorageError
from sparseoco.execution.pool import is_intact, remove_damaged
from sparseoco.storage.checkpoints import read_checkpoint, write_array, write_checkpoint
from sparseoco.storage.commit import commit_json
from sparseoco.storage.tables import write_parquet
from sparseoco.store.entries import write_data_file
from tests.support.damage import KINDS, damage, flip_bit
from tests.support.errors import raises_code


class Pool:
    """Runs tasks at once."""

    def map(self, function: Callable[..., Any], arguments: list[tuple[Any, ...]]) -> list[Any]:
        return [function(*own) for own in arguments]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    commit_json(folder / "cell.json", {"a": 1, "b": [1.5, "é"]})
    write_checkpoint(folder / "deep" / "state.npz", {"epoch": 1}, [("w", np.arange(9.0)), ("n", np.arange(3))])
    write_array(folder / "deep" / "weights.npy", np.arange(12.0).reshape(3, 4))
    write_parquet(folder / "part.parquet", pa.table({"x": np.arange(20)}))
    write_data_file(folder, "shard", pa.table({"x": np.arange(20)}))
    (folder / "notes.txt").write_text("of another kind")
    return folder


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


@pytest.mark.fault(52)
def test_damaged_files_are_removed(folder: Path, tmp_path: Path) -> None:
    rng, before = random.Random(0), names(folder)
    assert remove_damaged(Pool(), folder) == 0  # type: ignore[arg-type]
    assert names(folder) == before
    for name in before - {"notes.txt"}:
        for kind in KINDS[:3]:
            copy = shutil.copytree(folder, tmp_path / f"{name}-{kind}")
            damage(next(copy.rglob(name)), "cut" if name.endswith(".npz") else kind, rng)
            assert remove_damaged(Pool(), copy) == 1  # type: ignore[arg-type]
            assert names(copy) == before - {name}
    assert remove_damaged(Pool(), tmp_path / "none") == 0  # type: ignore[arg-type]


@pytest.mark.fault(52)
def test_no_bit_of_a_file_can_be_flipped(folder: Path) -> None:
    rng = random.Random(1)
    for path in [*folder.glob("*.json"), *folder.rglob("*.np?"), *folder.glob("*.parquet")]:
        data = path.read_bytes()
        for _ in range(30):
            bit = flip_bit(path, rng)
            if is_intact(path):  # some bits of a zip file mean nothing
                with read_checkpoint(path) as (description, read):
                    assert (description, read("n").tolist()) == ({"epoch": 1}, [0, 1, 2]), (path, bit)
                    np.testing.assert_array_equal(read("w"), np.arange(9.0))
            path.write_bytes(data)


def test_files_that_cannot_be_read_now_stay(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "read_bytes", fail)
    with raises_code("io-error", folder, kind=StorageError):
        remove_damaged(Pool(), folder)  # type: ignore[arg-type]
    assert "cell.json" in names(folder)
