"""Ranges of files, and whole files on this machine, wherever the files are."""

import atexit
import os
import threading
import uuid
from collections import OrderedDict
from functools import cache
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from sparseoco.storage.locations import Location
from sparseoco.storage.remote import RemotePath
from sparseoco.storage.temporary import temporary_folder, unnamed_file

CACHE_BYTES = 4 << 30  # of local copies in a process
_copies: OrderedDict[str, tuple[Path, int]] = OrderedDict()
_lock = threading.Lock()


class RangeReader:
    """Reads ranges of a file; one on this machine is held open until `close`."""

    def __init__(self, path: Location) -> None:
        self._path = path
        self._file: IO[bytes] | None = None

    def read(self, start: int, stop: int) -> NDArray[np.uint8]:
        """A writable copy of bytes [start, stop), fewer at the end of the file. Raises `OSError`."""
        if self._file is None:
            if isinstance(self._path, RemotePath):
                return np.frombuffer(bytearray(self._path.read_range(start, stop)), np.uint8)
            self._file = Path(str(self._path)).open("rb", buffering=0)  # noqa: SIM115 - closed by `close`
        data = np.empty(stop - start, np.uint8)
        size = 0
        while size < data.size and (read := os.preadv(self._file.fileno(), [data[size:].data], start + size)):
            size += read
        return data[:size]

    def keep(self, stop: int) -> None:
        """Read a remote file up to `stop` in one request: ranges come from a local copy then. Raises `OSError`."""
        if isinstance(self._path, RemotePath):
            data = self.read(0, stop)
            self._file = unnamed_file()
            self._file.write(data.data)
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def local_copy(path: Location) -> Path:
    """The file itself if it is on this machine, else a copy, which the process keeps. Raises `OSError`."""
    if not isinstance(path, RemotePath):
        return Path(str(path))
    with _lock:
        name = str(path)
        if name in _copies:
            _copies.move_to_end(name)
            return _copies[name][0]
        copy = _copy_folder() / uuid.uuid4().hex
        path.download(copy)
        _copies[name] = copy, copy.stat().st_size
        while len(_copies) > 1 and sum(size for _, size in _copies.values()) > CACHE_BYTES:
            _copies.popitem(last=False)[1][0].unlink(missing_ok=True)  # existing memory maps stay valid
        return copy


def forget_copy(path: Location) -> None:
    """Remove the cached copy of a file that is damaged, and may be written again."""
    with _lock:
        if str(path) in _copies:
            _copies.pop(str(path))[0].unlink(missing_ok=True)


@cache
def _copy_folder() -> Path:
    """Removed when the process ends."""
    folder = temporary_folder()
    atexit.register(folder.__exit__, None, None, None)
    return folder.__enter__()
