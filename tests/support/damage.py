"""Damage to files: one flipped bit, a cut, an empty file, a missing one; commits that fail."""

import errno
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest

from sparseoco.core.errors import SparseocoError
from sparseoco.storage import commit
from tests.support.errors import raises_code

KINDS = ("flipped", "cut", "empty", "missing")


def flip(path: Path, place: int | None = None) -> None:
    """Flip a bit of a byte of a file: of the one in its middle unless a place is given."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if place is None else place] ^= 1
    path.write_bytes(data)


def flip_bit(path: Path, rng: random.Random) -> int:
    """Flip one random bit of a file; returns its number."""
    data = bytearray(path.read_bytes())
    bit = rng.randrange(8 * len(data))
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    return bit


def damage(path: Path, kind: str, rng: random.Random) -> None:
    """Damage a file in one of `KINDS`."""
    if kind == "missing":
        path.unlink()
    elif kind == "flipped" and path.stat().st_size:
        flip_bit(path, rng)
    else:
        data = path.read_bytes()
        path.write_bytes(data[: rng.randrange(len(data))] if kind == "cut" and data else b"")


@contextmanager
def failing_commit(number: int, code: int = errno.ENOSPC) -> Iterator[list[Path]]:
    """A context whose n-th sync of a file that is committed fails, by default of a full disk; the files synced."""
    synced: list[Path] = []
    original = commit._sync

    def fail(path: Path) -> None:
        synced.append(path)
        if len(synced) == number:
            raise OSError(code, os.strerror(code))
        original(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit, "_sync", fail)
        yield synced


@contextmanager
def stopped_at(step: str) -> Iterator[None]:
    """A context that ends when this function is called, as if the process were killed."""
    stop = Mock(side_effect=SparseocoError("stopped", code="stopped"))
    with pytest.MonkeyPatch.context() as patch, raises_code("stopped", kind=SparseocoError):
        patch.setattr(step, stop)
        yield
