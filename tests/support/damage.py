"""Damage to files, inputs that change while they are read, commits that fail, power that does, clocks that jump."""

import copy
import errno
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sparseoco.core.errors import SparseocoError
from sparseoco.storage import commit
from sparseoco.storage.locations import RemotePath, Version
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


# ----------------------------------------------------------------------------------------------------------------------
# Ways in which an input file changes while it is read; each is given the path and other content.


def replace(path: Path, other: bytes) -> None:
    """Another file with the same time."""
    status = path.stat()
    new = path.parent.parent / "new"
    new.write_bytes(other)
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
    new.replace(path)


def truncate(path: Path, other: bytes) -> None:
    os.truncate(path, len(other) // 3)


def append(path: Path, other: bytes) -> None:
    with path.open("ab") as file:
        file.write(other[:500])


def rewrite(path: Path, other: bytes) -> None:
    """Same size, and its time is set back."""
    status = path.stat()
    with path.open("r+b") as file:
        file.write((other + bytes(status.st_size))[: status.st_size])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def write_slowly(path: Path, other: bytes) -> None:
    with path.open("wb", buffering=0) as file:
        for begin in range(0, len(other), 1 + len(other) // 7):
            file.write(other[begin : begin + 1 + len(other) // 7])
            time.sleep(0.01)


def recreate(path: Path, other: bytes) -> None:
    path.unlink()
    time.sleep(0.005)
    path.write_bytes(other)


CHANGES: list[Callable[[Path, bytes], None]] = [replace, truncate, append, rewrite, write_slowly, recreate]


# ----------------------------------------------------------------------------------------------------------------------
# Commits that fail.


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

    with patch.object(commit, "_sync", fail):
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

    with patch.object(RemotePath, "put", fail):
        yield written


@contextmanager
def stopped_at(step: str) -> Iterator[None]:
    """A context that ends when this function is called, as if the process were killed."""
    stop = SparseocoError("stopped", code="stopped")
    with patch(step, side_effect=stop), raises_code("stopped", kind=SparseocoError):
        yield


# ----------------------------------------------------------------------------------------------------------------------
# A machine that loses its power, and a clock that jumps.
#
# The content of a file is durable as it was at its last `fsync`, the names in a folder as they were at the `fsync` of
# the folder. A journalling file system may also have renamed a file whose content it has not yet written: it is then
# empty.


class Disk:
    """What would be left of the folder `root` after each of its syncs.

    `states` has the paths and contents of the files that are left after each `fsync`: those whose names are durable,
    and with `ahead` those that have a name, of which some are empty; `paths` has what was synced.
    """

    def __init__(self, root: Path, *, ahead: bool) -> None:
        self._root, self._ahead = root, ahead
        self._contents: dict[int, bytes] = {}
        self._folders: dict[str, dict[str, int]] = {}  # inode by name; of a folder -1: a file may have it later
        self.states: list[dict[str, bytes]] = []
        self.paths: list[Path] = []

    def synced(self, path: Path) -> None:
        """Note that a file or folder was synced."""
        if not path.is_relative_to(self._root):
            return
        if path.is_dir():
            self._folders[str(path)] = _inodes(path)
        else:
            self._contents[path.stat().st_ino] = path.read_bytes()
        self.states.append(dict(self._left(self._root)))
        self.paths.append(path)

    def _left(self, folder: Path) -> Iterator[tuple[str, bytes]]:
        names = _inodes(folder) if self._ahead else self._folders.get(str(folder), {})
        for name, inode in names.items():
            path = folder / name
            if path.is_dir():
                yield from self._left(path)
            elif inode in self._contents or (self._ahead and inode >= 0):
                yield str(path.relative_to(self._root)), self._contents.get(inode, b"")


def _inodes(folder: Path) -> dict[str, int]:
    return {entry.name: -1 if entry.is_dir() else entry.inode() for entry in os.scandir(folder)}


@contextmanager
def recorded(root: Path, *, ahead: bool) -> Iterator[Disk]:
    """Record what this process syncs below a folder. What it has now is durable; names in unsynced folders are not."""
    root.mkdir(parents=True, exist_ok=True)
    disk, sync = Disk(root, ahead=ahead), os.fsync
    for path in [root, *root.rglob("*")]:
        disk.synced(path)
    disk.states.clear()
    disk.paths.clear()

    def record(descriptor: int) -> None:
        sync(descriptor)
        disk.synced(Path(os.readlink(f"/proc/self/fd/{descriptor}")))

    with patch.object(os, "fsync", record):
        yield disk


@contextmanager
def jumping_clock() -> Iterator[None]:
    """A day forwards, then back, then two days back, as this package asks for the time. Dask keeps the true one."""
    now, calls = time.time, count()

    def jump() -> float:
        ours = sys._getframe(1).f_globals["__name__"].startswith("sparseoco")
        days = (0, 1, -1)[(next(calls) + 3) // 4 % 3] if ours else 0
        return now() + 86_400.0 * days

    with patch.object(time, "time", jump):
        yield


# ----------------------------------------------------------------------------------------------------------------------
# JSON files with a valid checksum whose content has another shape.


VALUES = (None, [], {}, "x", "", -1, 10**30, 0.5, True, float("inf"), float("nan"), [None], {"a": [1]}, "../x\n\udc80")
DELETED = object()


def reshaped(data: bytes, chooser: random.Random) -> tuple[bytes, str]:
    """The content of a JSON file with one value replaced or removed, and what was done."""
    value = json.loads(data)
    value.pop(commit.CHECKSUM, None)
    key = chooser.choice(list(_keys(value)))
    new = chooser.choice((*VALUES, *([DELETED] if key else ())))
    value = _replaced(value, key, new)
    return checksummed(value), f"{key} is {'missing' if new is DELETED else repr(new)}"


def forge(path: Path, key: tuple[Any, ...], new: object = DELETED) -> None:
    """Replace or remove an entry of a JSON file, which has a checksum that matches."""
    value = json.loads(path.read_bytes())
    value.pop(commit.CHECKSUM, None)
    path.write_bytes(checksummed(_replaced(value, key, new)))


def checksummed(value: Any) -> bytes:
    """Any JSON value as the content of a file, with a checksum that matches if it is an object."""
    if isinstance(value, dict):
        value = {**value, commit.CHECKSUM: commit.digest_value(value)}
    return json.dumps(value).encode()


def _keys(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield above
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _keys(item, (*above, name))
    elif isinstance(value, list):
        for i, item in enumerate(value[:2]):
            yield from _keys(item, (*above, i))


def _replaced(value: Any, key: tuple[Any, ...], new: Any) -> Any:
    if not key:
        return new
    value = copy.deepcopy(value)
    inner = value
    for part in key[:-1]:
        inner = inner[part]
    if new is DELETED:
        del inner[key[-1]]
    else:
        inner[key[-1]] = new
    return value
