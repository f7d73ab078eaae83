"""Files of blocks: a task writes one block for each task of the next step, and each of these reads its own.

A file is a magic number, the number of blocks, the XXH3 digest of the index and of the file's name, the index (the
offsets of all blocks and of the end) and the blocks, which are files of arrays as in `array_files`, with their own
digests. Readers request the index and the blocks they need; a small file comes with its index.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from sparseoco.storage.commit import committed
from sparseoco.storage.locations import Location
from sparseoco.storage.remote import RemotePath
from sparseoco.text.array_files import (
    MAX_HEADER,
    Arrays,
    named_digest,
    packed_arrays,
    read_exactly,
    unpack_arrays,
    write_all,
)
from sparseoco.text.staging import damaged, staging_error

MAGIC = b"SPARSEB2"
START = 24  # bytes before the index
FIRST_READ = 1 << 14  # bytes: the index of 2,000 blocks


@contextmanager
def write_blocks(path: Location, size: int) -> Iterator[Callable[[Arrays], None]]:
    """Write a file of `size` blocks atomically: yields a function that writes the next one. Raises `StorageError`."""
    with committed(path, sync=False) as temporary, temporary.open("wb", buffering=0) as file:
        offsets = [START + 8 * (size + 1)]
        file.seek(offsets[0])

        def write(arrays: Arrays) -> None:
            for part in packed_arrays(path.name, arrays):
                write_all(file, part)
            offsets.append(file.tell())

        yield write
        if len(offsets) != size + 1:
            raise ValueError(f"{len(offsets) - 1} blocks of {size} were written")
        index = np.array(offsets, np.uint64).tobytes()
        file.seek(0)
        digest = named_digest(index, path.name).to_bytes(8, "little")
        write_all(file, MAGIC + size.to_bytes(8, "little") + digest + index)


class BlockReader:
    """Reads blocks of a file. A context manager that holds the file open. Raises `StorageError`."""

    def __init__(self, path: Location) -> None:
        self._path = path
        self._descriptor = -1
        try:
            if not isinstance(path, RemotePath):
                self._descriptor = os.open(str(path), os.O_RDONLY)
            self._first = self._request(0, FIRST_READ)
        except OSError as error:
            self.__exit__()
            raise staging_error(error, path) from error
        try:
            self._offsets = self._index()
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> "BlockReader":
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, number: int) -> Arrays:
        """The arrays of a block."""
        data = self._read(int(self._offsets[number]), int(self._offsets[number + 1]))
        return unpack_arrays(data, self._path)[0]

    def _index(self) -> NDArray[np.uint64]:
        if self._first[:8] != MAGIC:
            raise damaged(self._path)
        size = 8 * (int.from_bytes(self._first[8:16], "little") + 1)
        index = self._read(START, START + size).tobytes() if size <= MAX_HEADER else b""
        if named_digest(index, self._path.name) != int.from_bytes(self._first[16:START], "little"):
            raise damaged(self._path)
        return np.frombuffer(index, np.uint64)

    def _read(self, start: int, stop: int) -> NDArray[np.uint8]:
        """A writable copy of bytes [start, stop) of the file."""
        if stop <= len(self._first):
            return np.frombuffer(bytearray(self._first[start:stop]), np.uint8)
        try:
            if self._descriptor < 0:
                data = np.frombuffer(bytearray(self._request(start, stop - start)), np.uint8)
            else:
                data = np.empty(stop - start, np.uint8)
                read_exactly(self._descriptor, data.data, start)
        except EOFError:
            raise damaged(self._path) from None
        except OSError as error:
            raise staging_error(error, self._path) from error
        if data.size != stop - start:
            raise damaged(self._path)
        return data

    def _request(self, start: int, size: int) -> bytes:
        if isinstance(self._path, RemotePath):
            return self._path.read_range(start, start + size)
        return os.pread(self._descriptor, size, start)


def read_block(path: Location, number: int) -> Arrays:
    """The arrays of one block of a file. Raises `StorageError`."""
    with BlockReader(path) as file:
        return file[number]
