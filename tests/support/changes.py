"""Ways in which an input file changes while it is read; each is given the path and other content."""

import os
import time
from collections.abc import Callable
from pathlib import Path


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
