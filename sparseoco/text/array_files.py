"""Named arrays in one file: the format of all staging files of an ingest.

A file is a magic number, the size and the XXH3 digest of a JSON header and of the file's name, the header
``{"arrays": {name: [dtype, shape, offset, digest]}, "facts": …}`` and the bytes of the arrays, each aligned to 64
bytes. Numbers only, no pickle. Unlike npz it can be memory-mapped and read in ranges; unlike in Arrow, columns may have
different lengths. Every array that is read whole is compared with its digest.
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from xxhash import xxh3_64, xxh3_64_intdigest

from sparseoco.storage.commit import committed
from sparseoco.storage.locations import Location
from sparseoco.storage.remote import RemotePath
from sparseoco.storage.temporary import unnamed_file
from sparseoco.text.staging import StagingError, damaged, forget_copy, local_copy, staging_error

MAGIC = b"SPARSE03"
START = 24  # bytes before the header
MAX_HEADER = 1 << 28
SMALL_FILE = 1 << 18
ALIGNMENT = 64

Arrays = dict[str, NDArray[Any]]


class _Entry(NamedTuple):
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int  # in the file
    digest: int


def save_arrays(path: Location, arrays: Mapping[str, NDArray[Any]], facts: dict[str, Any] | None = None) -> None:
    """Write arrays and a few JSON facts to `path` atomically. Raises `StorageError`."""
    with committed(path, sync=False) as temporary, temporary.open("wb", buffering=0) as file:
        for part in packed_arrays(path.name, arrays, facts):
            write_all(file, part)


def packed_arrays(file: str, arrays: Mapping[str, NDArray[Any]], facts: dict[str, Any] | None = None) -> list[Any]:
    """The bytes of a file of arrays with the name `file`, in parts."""
    entries: dict[str, list[Any]] = {}
    parts: list[Any] = []
    offset = 0
    for name, array in arrays.items():
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else b""
        entries[name] = [array.dtype.str, list(array.shape), offset, xxh3_64_intdigest(data)]
        padding = -len(data) % ALIGNMENT
        parts += [data, bytes(padding)]
        offset += len(data) + padding
    header = json.dumps({"arrays": entries, "facts": facts or {}}).encode()
    header += b" " * (-(len(header) + START) % ALIGNMENT)
    digest = named_digest(header, file).to_bytes(8, "little")
    return [MAGIC + len(header).to_bytes(8, "little") + digest + header, *parts]


def named_digest(data: bytes, file: str) -> int:
    """The XXH3 digest of data and the name of its file: a file under another name is corrupt."""
    return xxh3_64_intdigest(data + file.encode(errors="surrogateescape"))


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
        raise staging_error(reason, path) from error
    try:
        return unpack_arrays(np.frombuffer(mapped, dtype=np.uint8), path)
    except StagingError:
        forget_copy(path)
        raise


def unpack_arrays(data: NDArray[np.uint8], path: Location) -> tuple[Arrays, dict[str, Any]]:
    """The arrays, as views of the bytes of a file, and the facts. Raises `StagingError`, which names `path`."""
    entries, facts = _read_header(lambda begin, size: data[begin : begin + size].tobytes(), path)
    arrays: Arrays = {}
    for name, entry in entries.items():
        dtype, shape, begin, digest = entry
        part = data[begin : begin + _size(entry)]
        if xxh3_64_intdigest(part.data if part.size else b"") != digest:
            raise damaged(path)
        arrays[name] = part.view(dtype).reshape(shape)
    return arrays, facts


def _size(entry: _Entry) -> int:
    """Bytes of an array."""
    return int(np.prod(entry.shape, dtype=np.int64)) * entry.dtype.itemsize


def _read_header(read: Callable[[int, int], bytes], path: Location) -> tuple[dict[str, _Entry], dict[str, Any]]:
    """The entries and the facts of a file, through a function `read(begin, size)`."""
    start = read(0, START)
    if start[:8] != MAGIC:
        raise damaged(path)
    size = int.from_bytes(start[8:16], "little")
    data = read(START, size) if size <= MAX_HEADER else b""
    if named_digest(data, path.name) != int.from_bytes(start[16:], "little"):
        raise damaged(path)
    header = json.loads(data)
    entries = {
        name: _Entry(np.dtype(dtype), tuple(shape), START + size + offset, digest)
        for name, (dtype, shape, offset, digest) in header["arrays"].items()
    }
    return entries, header["facts"]


class ArrayReader:
    """Reads ranges of the arrays of a file without mapping it: mapped pages count as memory of the process.

    An array that is read from its beginning to its end in consecutive ranges is compared with its digest. A context
    manager, which holds large files open. Raises `StorageError`.

    Parameters
    ----------
    path : Location
        A small file is read at once.
    prefixes : tuple of str
        Beginnings of the names of the arrays that will be read. A large remote file is copied up to the last of them,
        in one request.
    """

    def __init__(self, path: Location, prefixes: tuple[str, ...] = ("",)) -> None:
        self._path = path
        self._digests: dict[str, tuple[int, xxh3_64]] = {}  # entries read so far, and their digest
        self._file: IO[bytes] | None = None
        try:
            if not isinstance(path, RemotePath):
                self._file = Path(str(path)).open("rb", buffering=0)  # noqa: SIM115 - closed by __exit__
            self._start = self._request(0, SMALL_FILE)
            self._entries, self.facts = _read_header(lambda at, size: bytes(self._bytes(at, size)), path)
            if len(self._start) < SMALL_FILE:
                self.__exit__()
            else:
                self._file = self._file or self._copied(prefixes)
                self._start = b""
        except BaseException as error:
            self.__exit__()
            if isinstance(error, OSError):
                raise staging_error(error, path) from error
            raise

    def _copied(self, prefixes: tuple[str, ...]) -> IO[bytes]:
        """A temporary copy of the beginning of a remote file."""
        wanted = [entry for name, entry in self._entries.items() if name.startswith(prefixes)]
        end = max((entry.begin + _size(entry) for entry in wanted), default=0)
        copy = unnamed_file(buffering=0)  # closed by __exit__
        write_all(copy, self._start)
        if end > len(self._start):
            write_all(copy, self._request(len(self._start), end))
        return copy

    def _request(self, start: int, stop: int) -> bytes:
        if self._file is None:
            assert isinstance(self._path, RemotePath)
            return self._path.read_range(start, stop)
        return os.pread(self._file.fileno(), stop - start, start)

    def __enter__(self) -> "ArrayReader":
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __getitem__(self, name: str) -> NDArray[Any]:
        """A whole array."""
        self._digests.pop(name, None)
        return self.read(name, 0, self.size(name))

    def size(self, name: str) -> int:
        """Length of an array."""
        return self._entry(name).shape[0]

    def read(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Entries [start, stop) of a one-dimensional array."""
        entry = self._entry(name)
        if not 0 <= start <= stop <= entry.shape[0]:  # computed from entries that are not compared yet
            raise damaged(self._path)
        data = self._bytes(entry.begin + start * entry.dtype.itemsize, (stop - start) * entry.dtype.itemsize)
        done, digest = self._digests.get(name, (0, xxh3_64()))
        if start == done:
            digest.update(data)
            self._digests[name] = stop, digest
            if stop == entry.shape[0] and digest.intdigest() != entry.digest:
                raise damaged(self._path)
        return np.frombuffer(data, entry.dtype)

    def _entry(self, name: str) -> _Entry:
        if name not in self._entries:
            raise damaged(self._path)
        return self._entries[name]

    def _bytes(self, at: int, size: int) -> bytearray:
        data = bytearray(self._start[at : at + size])
        if len(data) < size and self._file is not None:
            data = bytearray(size)
            try:
                read_exactly(self._file.fileno(), memoryview(data), at)
            except EOFError:
                raise damaged(self._path) from None
            except OSError as error:
                raise staging_error(error, self._path) from error
        if len(data) < size:
            raise damaged(self._path)
        return data


def read_exactly(descriptor: int, view: memoryview, at: int) -> None:
    """Fill `view` with the bytes of a file from `at` on. Raises `EOFError` if the file is too short."""
    while len(view):
        size = os.preadv(descriptor, [view], at)
        if not size:
            raise EOFError
        view, at = view[size:], at + size


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
