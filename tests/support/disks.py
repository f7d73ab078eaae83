"""A model of a machine that loses its power, and of a clock that jumps.

The content of a file is durable as it was at its last `fsync`, the names in a folder as they were at the `fsync` of the
folder. A journalling file system may also have renamed a file whose content it has not yet written: it is then empty.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest


class Disk:
    """What would be left of the folder `root` after each of its syncs.

    `states` has the paths and contents of the files that are left after each `fsync`: those whose names are durable,
    and with `ahead` those that have a name, of which some are empty.
    """

    def __init__(self, root: Path, *, ahead: bool) -> None:
        self._root, self._ahead = root, ahead
        self._contents: dict[int, bytes] = {}
        self._folders: dict[str, dict[str, int]] = {}  # inode by name
        self.states: list[dict[str, bytes]] = []

    def synced(self, path: Path) -> None:
        """Note that a file or folder was synced."""
        if not path.is_relative_to(self._root):
            return
        if path.is_dir():
            self._folders[str(path)] = {entry.name: entry.inode() for entry in os.scandir(path)}
        else:
            self._contents[path.stat().st_ino] = path.read_bytes()
        self.states.append(dict(self._left(self._root)))

    def _left(self, folder: Path) -> Iterator[tuple[str, bytes]]:
        names = self._folders.get(str(folder), {})
        if self._ahead:
            names = {entry.name: entry.inode() for entry in os.scandir(folder)}
        for name, inode in names.items():
            path = folder / name
            if path.is_dir():
                yield from self._left(path)
            elif inode in self._contents or self._ahead:
                yield str(path.relative_to(self._root)), self._contents.get(inode, b"")


@contextmanager
def recorded(root: Path, *, ahead: bool) -> Iterator[Disk]:
    """Record what this process syncs below a folder. What it has now is durable; names in unsynced folders are not."""
    root.mkdir(parents=True, exist_ok=True)
    disk, sync = Disk(root, ahead=ahead), os.fsync
    for path in [root, *root.rglob("*")]:
        disk.synced(path)
    disk.states.clear()

    def record(descriptor: int) -> None:
        sync(descriptor)
        disk.synced(Path(os.readlink(f"/proc/self/fd/{descriptor}")))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", record)
        yield disk


@contextmanager
def jumping_clock() -> Iterator[None]:
    """A day forwards, then back, then two days back, as this package asks for the time. Dask keeps the true one."""
    now, calls = time.time, count()

    def jump() -> float:
        ours = sys._getframe(1).f_globals["__name__"].startswith("sparseoco")
        days = (0, 1, -1)[(next(calls) + 3) // 4 % 3] if ours else 0
        return now() + 86_400.0 * days

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", jump)
        yield
