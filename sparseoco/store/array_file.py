"""Arrays in files of their final size, written and read in parts by several processes."""

import fcntl
import mmap
import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.errors import StorageError
from sparseoco.kernels.reading import read_runs
from sparseoco.storage.errors import storage_error


class ArrayFile:
    """An array in a sparse file of its final size; closed when it is garbage-collected."""

    def __init__(self, path: Path, dtype: np.dtype[Any], size: int) -> None:
        self._path, self._dtype, self._size = path, dtype, size
        self.bytes = size * dtype.itemsize
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        weakref.finalize(self, os.close, self._descriptor)
        os.ftruncate(self._descriptor, max(self.bytes, 1))  # an empty file cannot be mapped

    def map(self) -> NDArray[Any]:
        """The array as a read-only memory map."""
        mapped = mmap.mmap(self._descriptor, 0, prot=mmap.PROT_READ)
        return np.ndarray((self._size,), self._dtype, mapped)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """A copy of entries start..stop."""
        return self.take(np.array([start], np.int64), np.array([stop - start], np.int64))

    def take(self, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[Any]:
        """A copy of entries starts[i]..starts[i] + sizes[i] for all i, concatenated."""
        itemsize = self._dtype.itemsize
        found = np.empty(int(sizes.sum()), self._dtype)
        if not read_runs(np.int32(self._descriptor), starts * itemsize, sizes * itemsize, found.view(np.uint8)):
            raise StorageError(
                f"{self._path} could not be read back: the disk fails, or the file was changed.", code="io-error"
            )
        return found

    def write(self, start: int, values: NDArray[Any]) -> None:
        """Write entries from `start` on. Raises `StorageError`, for example for a full disk."""
        data = np.ascontiguousarray(values, self._dtype).view(np.uint8).data
        offset = start * self._dtype.itemsize
        try:
            while data:
                written = os.pwrite(self._descriptor, data, offset)
                data, offset = data[written:], offset + written
        except OSError as error:
            raise storage_error(error, self._path) from error

    def lock(self, entry: int) -> bool:
        """Lock an entry against other processes until `unlock` or process exit; returns whether that succeeded."""
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, entry)
        except OSError:
            return False
        return True

    def unlock(self, entry: int) -> None:
        """Release the lock of an entry."""
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, entry)
