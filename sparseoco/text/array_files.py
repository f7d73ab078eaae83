"""Named arrays in one file, read back by memory map: the form of everything staged between steps.

A file is the magic, the size of a JSON header, the header ``{"arrays": {name: [dtype, shape, offset]}, "facts": …}``
and the arrays' bytes, each at a multiple of 64. Numbers only, no pickle. Files are moved into place whole
(`sparseoco.text.staging`).
"""

import json
import os
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparseoco.core.errors import StorageError
from sparseoco.storage.commit import storage_error
from sparseoco.storage.locations import Location
from sparseoco.text.staging import local_copy, staged

MAGIC = b"SPARSE01"
ALIGNMENT = 64

Arrays = dict[str, NDArray[Any]]


class Parts(NamedTuple):
    """An array of one dimension that is never whole in memory: `size` entries, in parts one after another."""

    dtype: np.dtype[Any]
    size: int
    parts: Iterable[NDArray[Any]]


def save_arrays(
    path: Location, arrays: Mapping[str, NDArray[Any] | Parts], facts: dict[str, Any] | None = None
) -> None:
    """Write arrays and a few JSON facts to `path`, whole or not at all. Raises `StorageError`."""
    places: dict[str, list[Any]] = {}
    offset = 0
    for name, array in arrays.items():
        shape = [array.size] if isinstance(array, Parts) else list(array.shape)
        places[name] = [array.dtype.str, shape, offset]
        offset += -(-array.size * array.dtype.itemsize // ALIGNMENT) * ALIGNMENT
    header = json.dumps({"arrays": places, "facts": facts or {}}).encode()
    header += b" " * (-(len(header) + 16) % ALIGNMENT)
    with staged(path) as temporary, temporary.open("wb", buffering=0) as file:
        _write(file.fileno(), MAGIC + len(header).to_bytes(8, "little") + header)
        for array in arrays.values():
            for part in array.parts if isinstance(array, Parts) else [np.ascontiguousarray(array)]:
                _write(file.fileno(), part.reshape(-1).view(np.uint8).data if part.size else b"")
            _write(file.fileno(), bytes(-array.size * array.dtype.itemsize % ALIGNMENT))


def load_arrays(path: Location) -> tuple[Arrays, dict[str, Any]]:
    """The arrays (read-only views of the mapped file) and the facts. Raises `StorageError`."""
    local = local_copy(path)
    try:
        # Python's own map keeps a descriptor for as long as it lives, and a store may have more pieces than a process
        # may have files open; Arrow's buffer outlives its file.
        with pa.memory_map(str(local)) as file:
            mapped = file.read_buffer()
    except OSError as error:
        reason = OSError(error.errno, os.strerror(error.errno)) if error.errno else error
        raise storage_error(reason, path) from error
    whole = np.frombuffer(mapped, dtype=np.uint8)
    size = _header_size(whole[:16].tobytes(), path)
    header = json.loads(whole[16 : 16 + size].tobytes())
    arrays: Arrays = {}
    for name, (dtype, shape, offset) in header["arrays"].items():
        kind = np.dtype(dtype)
        begin = 16 + size + offset
        count = int(np.prod(shape, dtype=np.int64))
        arrays[name] = whole[begin : begin + count * kind.itemsize].view(kind).reshape(shape)
    return arrays, header["facts"]


class Reader:
    """Runs of the arrays of a staged file, copied out of it: pages that are mapped count as a process's own memory.

    A context manager that holds the file open. Raises `StorageError`.
    """

    def __init__(self, path: Location) -> None:
        self._path = path
        try:
            self._descriptor = os.open(local_copy(path), os.O_RDONLY)
        except OSError as error:
            raise storage_error(error, path) from error
        try:
            size = _header_size(os.pread(self._descriptor, 16, 0), path)
            header = json.loads(os.pread(self._descriptor, size, 16))
        except BaseException:
            os.close(self._descriptor)
            raise
        self.facts: dict[str, Any] = header["facts"]
        self._begin = 16 + size
        self._places = {
            name: (np.dtype(kind), shape, self._begin + offset)
            for name, (kind, shape, offset) in header["arrays"].items()
        }

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def __getitem__(self, name: str) -> NDArray[Any]:
        """A whole array."""
        _, shape, _ = self._places[name]
        return self.read(name, 0, shape[0]).reshape(shape)

    def size(self, name: str) -> int:
        """Length of an array."""
        return int(self._places[name][1][0])

    def read(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Rows start..stop of an array, end to end."""
        dtype, shape, offset = self._places[name]
        width = int(np.prod(shape[1:], dtype=np.int64))
        result = np.empty((stop - start) * width, dtype)
        view = memoryview(result.view(np.uint8).data)
        at = offset + start * width * dtype.itemsize
        try:
            while len(view):
                got = os.preadv(self._descriptor, [view], at)
                if not got:
                    raise StorageError(f"{self._path} is shorter than it was: delete the folder it is in, run again.")
                view, at = view[got:], at + got
        except OSError as error:
            raise storage_error(error, self._path) from error
        return result

    def search(self, name: str, bound: int) -> int:
        """How many entries of a sorted array are below a bound."""
        return bisect_left(range(self.size(name)), bound, key=lambda k: int(self.read(name, k, k + 1)[0]))


def _header_size(start: bytes, path: Location) -> int:
    if start[:8] != MAGIC:
        raise StorageError(f"{path} is not a staged file of this program; delete the folder it is in and run again.")
    return int.from_bytes(start[8:16], "little")


def string_array(data: NDArray[np.uint8], offsets: NDArray[Any]) -> pa.Array:
    """An Arrow string array over bytes and offsets, copying neither (offsets of 32 bits) or only the offsets."""
    if offsets[-1] < 2**31:
        buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets, np.int32)), pa.py_buffer(data)]
        return pa.StringArray.from_buffers(len(offsets) - 1, buffers[1], buffers[2])
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets, np.int64)), pa.py_buffer(data)]
    return pa.LargeStringArray.from_buffers(len(offsets) - 1, buffers[1], buffers[2])


def string_buffers(strings: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """(bytes uint8, offsets int64 starting at 0) of an Arrow string array without nulls."""
    kind = np.int64 if pa.types.is_large_string(strings.type) else np.int32
    buffers = strings.buffers()
    if len(strings) == 0:
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    offsets = np.frombuffer(buffers[1], kind)[strings.offset : strings.offset + len(strings) + 1].astype(np.int64)
    data = np.empty(0, np.uint8) if buffers[2] is None else np.frombuffer(buffers[2], np.uint8)
    return data[offsets[0] : offsets[-1]], offsets - offsets[0]


def _write(descriptor: int, data: Any) -> None:
    view = memoryview(data)
    while len(view):
        view = view[os.write(descriptor, view) :]
