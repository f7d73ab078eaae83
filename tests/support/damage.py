"""Damage to files: one flipped bit, a cut, an empty file, a missing one; commits that fail."""

import errno
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from sparseoco.core.errors import SparseocoError
from sparseoco.storage import commit
from sparseoco.storage.remote import RemotePath, Version
from tests.support.errors import raises_code

KINDS = ("flipped", "cut", "empty", "missing")


def flip(path: Path, place: int | None = None) -> None:
    """Flip a bit of a byte of a file: of the one in its middle unless a place is given."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if place is None else place] ^= 1
    path.write_bytes(data)


def flipped(data: bytes, rng: random.Random) -> tuple[bytes, int]:
    """The content with one random bit flipped, and the number of the bit."""
    found, bit = bytearray(data), rng.randrange(8 * len(data))
    found[bit // 8] ^= 1 << bit % 8
    return bytes(found), bit


def flip_bit(path: Path, rng: random.Random) -> int:
    """Flip one random bit of a file; returns its number."""
    data, bit = flipped(path.read_bytes(), rng)
    path.write_bytes(data)
    return bit


def _changed(data: bytes, kind: str, rng: random.Random) -> bytes:
    """The content with one random bit flipped, cut, or nothing of it."""
    if kind == "flipped" and data:
        return flipped(data, rng)[0]
    return data[: rng.randrange(len(data))] if kind == "cut" and data else b""


def damage(path: Path, kind: str, rng: random.Random) -> None:
    """Damage a file in one of `KINDS`."""
    if kind == "missing":
        path.unlink()
    else:
        path.write_bytes(_changed(path.read_bytes(), kind, rng))


def damaged(left: dict[str, bytes], file: str, kind: str, choose: random.Random) -> dict[str, bytes]:
    """The files with one of them changed: a bit flipped, cut, empty, missing, or the content of another of its kind."""
    if kind == "missing":
        return {name: data for name, data in left.items() if name != file}
    if kind == "swapped":
        return left | {file: left[choose.choice([name for name in left if Path(name).suffix == Path(file).suffix])]}
    return left | {file: _changed(left[file], kind, choose)}


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
def failing_put(number: int, *, after: bool = False) -> Iterator[list[RemotePath]]:
    """A context whose n-th write of an object fails, before it or after it; the objects written, but for leases."""
    written: list[RemotePath] = []
    original = RemotePath.put

    def fail(path: RemotePath, data: Any, mode: Any) -> Version:
        if path.name == ".lock":
            return original(path, data, mode)
        written.append(path)
        fails = len(written) == number  # threads write at the same time
        version = original(path, data, mode) if after or not fails else None
        if fails:
            raise OSError(errno.EPIPE, "the wire was cut")
        return version

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RemotePath, "put", fail)
        yield written


@contextmanager
def stopped_at(step: str) -> Iterator[None]:
    """A context that ends when this function is called, as if the process were killed."""
    stop = Mock(side_effect=SparseocoError("stopped", code="stopped"))
    with pytest.MonkeyPatch.context() as patch, raises_code("stopped", kind=SparseocoError):
        patch.setattr(step, stop)
        yield
