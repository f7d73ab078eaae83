"""Named arrays in one file: the format of all staging files of an ingest.

A file is a magic number, the size of a JSON header, the header
``{"arrays": {name: [dtype, shape, offset]}, "facts": …}`` and the bytes of the arrays, each aligned to 64 bytes.
Numbers only, no pickle. Unlike npz it can be memory-mapped, written in parts and read in ranges; unlike in Arrow,
columns may have different lengths.
"""

import json
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparseoco.core.errors import DamagedError
from sparseoco.storage.commit import committed
from sparseoco.storage.errors import storage_error
from sparseoco.storage.locations import Location
from sparseoco.text.staging import local_copy

MAGIC = b"SPARSE01"
ALIGNMENT = 64

Arrays = dict[str, NDArray[Any]]


class ArrayParts(NamedTuple):
    """A one-dimensional array of `size` entries, written in parts, so that it is never in memory as a whole."""

    dtype: np.dtype[Any]
    size: int
    parts: Iterable[NDArray[Any]]


class _Entry(NamedTuple):
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int  # in the file


def save_arrays(
    path: Location, arrays: Mapping[str, NDArray[Any] | ArrayParts], facts: dict[str, Any] | None = None
) -> None:
    """Write arrays and a few JSON facts to `path` atomically. Raises `StorageError`."""
    entries: dict[str, list[Any]] = {}
    offset = 0
    for name, array in arrays.items():
        shape = [array.size] if isinstance(array, ArrayParts) else list(array.shape)
        entries[name] = [array.dtype.str, shape, offset]
        offset += -(-array.size * array.dtype.itemsize // ALIGNMENT) * ALIGNMENT
    header = json.dumps({"arrays": entries, "facts": facts or {}}).encode()
    header += b" " * (-(len(header) + 16) % ALIGNMENT)
    with committed(path, sync=False) as temporary, temporary.open("wb", buffering=0) as file:
        write_all(file, MAGIC + len(header).to_bytes(8, "little") + header)
        for array in arrays.values():
            for part in array.parts if isinstance(array, ArrayParts) else [np.ascontiguousarray(array)]:
                write_all(file, part.reshape(-1).view(np.uint8).data if part.size else b"")
            write_all(file, bytes(-array.size * array.dtype.itemsize % ALIGNMENT))


def write_all(file: Any, data: Any) -> None:
    """Write all of `data` to an unbuffered file."""
    view = memoryview(data)
    while len(view):
        view = view[file.write(view) :]


def load_arrays(path: Location) -> tuple[Arrays, dict[str, Any]]:
    """The arrays, as read-only views of the mapped file, and the facts. Raises `StorageError`."""
    local = local_copy(path)
    try:
        # An mmap object keeps a descriptor open; Arrow's buffer does not, and a store may have more splits than a
        # process may have open files.
        with pa.memory_map(str(local)) as file:
            mapped = file.read_buffer()
    except OSError as error:
        reason = OSError(error.errno, os.strerror(error.errno)) if error.errno else error
        raise storage_error(reason, path) from error
    data = np.frombuffer(mapped, dtype=np.uint8)
    entries, facts = _read_header(lambda begin, size: data[begin : begin + size].tobytes(), path)
    arrays: Arrays = {}
    for name, (dtype, shape, begin) in entries.items():
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        arrays[name] = data[begin : begin + size].view(dtype).reshape(shape)
    return arrays, facts


def _read_header(read: Callable[[int, int], bytes], path: Location) -> tuple[dict[str, _Entry], dict[str, Any]]:
    """The entries and the facts of a file, through a function `read(begin, size)`."""
    start = read(0, 16)
    if start[:8] != MAGIC:
        raise DamagedError(
            f"{path} is not a staging file of this program; delete its folder and run again.", code="corrupt-file"
        )
    size = int.from_bytes(start[8:], "little")
    header = json.loads(read(16, size))
    entries = {
        name: _Entry(np.dtype(dtype), tuple(shape), 16 + size + offset)
        for name, (dtype, shape, offset) in header["arrays"].items()
    }
    return entries, header["facts"]


class ArrayReader:
    """Reads ranges of the arrays of a file without mapping it: mapped pages count as memory of the process.

    A context manager that holds the file open. Raises `StorageError`.
    """

    def __init__(self, path: Location) -> None:
        self._path = path
        try:
            self._descriptor = os.open(local_copy(path), os.O_RDONLY)
        except OSError as error:
            raise storage_error(error, path) from error
        try:
            self._entries, self.facts = _read_header(lambda at, size: os.pread(self._descriptor, size, at), path)
        except BaseException:
            os.close(self._descriptor)
            raise

    def __enter__(self) -> "ArrayReader":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __getitem__(self, name: str) -> NDArray[Any]:
        """A whole array."""
        shape = self._entries[name].shape
        return self.read(name, 0, shape[0]).reshape(shape)

    def size(self, name: str) -> int:
        """Length of an array."""
        return self._entries[name].shape[0]

    def read(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Rows [start, stop) of an array, flattened."""
        dtype, shape, begin = self._entries[name]
        width = int(np.prod(shape[1:], dtype=np.int64))
        result = np.empty((stop - start) * width, dtype)
        view = memoryview(result.view(np.uint8).data)
        at = begin + start * width * dtype.itemsize
        try:
            while len(view):
                size = os.preadv(self._descriptor, [view], at)
                if not size:
                    raise DamagedError(
                        f"{self._path} is truncated: delete its folder and run again.", code="corrupt-file"
                    )
                view, at = view[size:], at + size
        except OSError as error:
            raise storage_error(error, self._path) from error
        return result

    def search(self, name: str, bound: int) -> int:
        """Number of entries of a sorted array below a bound."""
        return bisect_left(range(self.size(name)), bound, key=lambda k: int(self.read(name, k, k + 1)[0]))


def string_array(data: NDArray[np.uint8], offsets: NDArray[Any]) -> pa.Array:
    """An Arrow string array over bytes and offsets without copying the bytes; large_string from 2 GiB on."""
    array, dtype = (pa.StringArray, np.int32) if offsets[-1] < 2**31 else (pa.LargeStringArray, np.int64)
    return array.from_buffers(len(offsets) - 1, pa.py_buffer(np.ascontiguousarray(offsets, dtype)), pa.py_buffer(data))


def string_buffers(strings: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """(bytes uint8, offsets int64 from 0) of an Arrow string array without nulls."""
    dtype = np.int64 if pa.types.is_large_string(strings.type) else np.int32
    if len(strings) == 0:
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    _, offset_buffer, data_buffer = strings.buffers()
    offsets = np.frombuffer(offset_buffer, dtype)[strings.offset : strings.offset + len(strings) + 1].astype(np.int64)
    data = np.empty(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    return data[offsets[0] : offsets[-1]], offsets - offsets[0]


def store_strings(arrays: Arrays, name: str, strings: pa.Array) -> None:
    """Add strings to the arrays of a file, as <name>_bytes and <name>_offsets."""
    arrays[f"{name}_bytes"], arrays[f"{name}_offsets"] = string_buffers(strings)


def stored_strings(arrays: Arrays, name: str) -> pa.Array:
    """The strings that `store_strings` added."""
    return string_array(arrays[f"{name}_bytes"], arrays[f"{name}_offsets"])
