"""Staged files: arrays and blocks of arrays with checksums, the folder they are in, and ranges of remote ones."""

import atexit
import inspect
import json
import logging
import os
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, wraps
from pathlib import Path
from typing import IO, Any, NamedTuple, ParamSpec, Self, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from xxhash import xxh3_64, xxh3_64_intdigest

from sparseoco.core.errors import DamagedError, StorageError
from sparseoco.core.logs import log_event
from sparseoco.storage.commit import committed, remove_folder
from sparseoco.storage.locations import Location, RemotePath, is_local, local_work_folder, storage_error
from sparseoco.storage.temporary import boot, temporary_folder, unnamed_file

# ----------------------------------------------------------------------------------------------------------------------
# Staging files, which the steps of an ingest exchange.
#
# Each has digests of its content and of its name. An ingest that meets a damaged one counts again.
#
# The staging folder is on this machine if all steps run here, so that its files can be mapped. If workers on other
# machines write to a remote store, it is in the store, and each process caches local copies; staging files never
# change.


P = ParamSpec("P")
T = TypeVar("T")
STAGING = ".staging"


class StagingError(DamagedError):
    """A staging file is missing, or its content is not what was written to it: an ingest starts over."""


def damaged(path: Location) -> StagingError:
    """The error for a staging file whose content is not what was written to it."""
    return StagingError(f"{path} is corrupt: delete its folder and run again.", code="corrupt-file")


def staging_error(error: OSError, path: Location) -> StorageError:
    """The error for a staging file that cannot be read."""
    failure = storage_error(error, path)
    return StagingError(*failure.args, code=failure.code) if isinstance(failure, DamagedError) else failure


def staging_folder(out: Location, *, local: bool) -> Location:
    """Folder for the staged files of an ingest into `out`.

    Local staging files are not synced: they survive the death of a process, but not of the machine. So every boot of
    the machine uses a new folder. `local` says that all steps run on this machine.
    """
    if not local and not is_local(out):
        return out / STAGING / "shared"
    return local_work_folder(out) / STAGING / boot()


def starting_over(name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate work into a folder `out`: it starts over once if it meets a staging file that is missing or corrupt."""

    def decorate(work: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(work)

        @wraps(work)
        def call(*arguments: P.args, **options: P.kwargs) -> T:
            try:
                return work(*arguments, **options)
            except StagingError as error:
                log_event(name, "staging file corrupt, starting over", level=logging.WARNING, error=str(error))
                clear_staging(signature.bind(*arguments, **options).arguments["out"])
                return work(*arguments, **options)

        return call

    return decorate


def clear_staging(out: Location) -> None:
    """Remove all staging folders of ingests into `out` that this machine can see."""
    for folder in {out, local_work_folder(out)}:
        remove_folder(folder / STAGING)


# ----------------------------------------------------------------------------------------------------------------------
# Files of blocks of named arrays: the format of all staging files of an ingest. Most have one block; where a task
# writes a block for each task of the next step, each of these reads its own.
#
# A file is a magic number, the number of blocks, the XXH3 digest of it, the index and the file's name, the index (the
# offsets of all blocks and of the end) and the blocks. A block is the size and the digest of a JSON header, the header
# ``{"arrays": {name: [dtype, size, offset, digest]}, "facts": …}`` and the bytes of the arrays; all are aligned to 64
# bytes. Numbers only, no pickle. Unlike npz it can be memory-mapped and read in ranges; unlike in Arrow, columns may
# have different lengths. Every array that is read whole is compared with its digest.


MAGIC = b"SPARSE05"
START = 24  # bytes before the index
BLOCK_START = 16  # bytes of a block before its header
MAX_HEADER = 1 << 28
FIRST_READ = 1 << 14  # bytes: the index of 2,000 blocks
SMALL_FILE = 1 << 18
ALIGNMENT = 64

Arrays = dict[str, NDArray[Any]]


class _Entry(NamedTuple):
    dtype: np.dtype[Any]
    size: int  # the length of the array
    begin: int  # in the file
    digest: int

    @property
    def end(self) -> int:
        return self.begin + self.size * self.dtype.itemsize


def save_arrays(path: Location, arrays: Mapping[str, NDArray[Any]], facts: dict[str, Any] | None = None) -> None:
    """Write arrays and a few JSON facts to `path` atomically. Raises `StorageError`."""
    with write_blocks(path, 1) as write:
        write(arrays, facts)


@contextmanager
def write_blocks(path: Location, size: int) -> Iterator[Callable[..., None]]:
    """Write a file of `size` blocks atomically: yields a function that writes the next one, of arrays and facts.

    Raises `StorageError`.
    """
    with committed(path, sync=False) as temporary, temporary.open("wb") as file:
        offsets = [_aligned(START + 8 * (size + 1))]
        file.seek(offsets[0])

        def write(arrays: Mapping[str, NDArray[Any]], facts: dict[str, Any] | None = None) -> None:
            for part in _packed(arrays, facts):
                file.write(part)
            offsets.append(file.tell())

        yield write
        if len(offsets) != size + 1:
            raise ValueError(f"{len(offsets) - 1} blocks of {size} were written")
        index = np.array(offsets, np.uint64).tobytes().ljust(offsets[0] - START, b"\0")
        file.seek(0)
        number = size.to_bytes(8, "little")
        file.write(MAGIC + number + _named_digest(number + index, path) + index)


def _packed(arrays: Mapping[str, NDArray[Any]], facts: dict[str, Any] | None) -> list[Any]:
    """The bytes of a block, in parts."""
    entries: dict[str, list[Any]] = {}
    parts: list[Any] = []
    offset = 0
    for name, array in arrays.items():
        data = np.ascontiguousarray(array).view(np.uint8).data if array.size else b""
        entries[name] = [array.dtype.str, array.size, offset, xxh3_64_intdigest(data)]
        parts += [data, bytes(_aligned(len(data)) - len(data))]
        offset += _aligned(len(data))
    header = json.dumps({"arrays": entries, "facts": facts or {}}).encode()
    header = header.ljust(_aligned(BLOCK_START + len(header)) - BLOCK_START)
    return [len(header).to_bytes(8, "little") + xxh3_64_intdigest(header).to_bytes(8, "little") + header, *parts]


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _named_digest(index: bytes, path: Location) -> bytes:
    """The XXH3 digest of a size, its index and the name of the file: a file under another name is corrupt."""
    return xxh3_64_intdigest(index + path.name.encode(errors="surrogateescape")).to_bytes(8, "little")


_Read = Callable[[int, int], NDArray[np.uint8]]
"""Returns bytes [start, stop) of a file, or fewer at its end."""


def _read_index(read: _Read, path: Location) -> NDArray[np.uint64]:
    """The offsets of the blocks of a file, and of its end. Raises `StagingError`, which names `path`."""
    start = read(0, START).tobytes()
    size = int.from_bytes(start[8:16], "little")
    if start[:8] != MAGIC or 8 * size > MAX_HEADER:
        raise damaged(path)
    index = read(START, _aligned(START + 8 * (size + 1))).tobytes()
    if _named_digest(start[8:16] + index, path) != start[16:]:
        raise damaged(path)
    return np.frombuffer(index, np.uint64, size + 1)


def _read_header(read: _Read, begin: int, path: Location) -> tuple[dict[str, _Entry], dict[str, Any]]:
    """The entries and the facts of the block at `begin`."""
    start = read(begin, begin + BLOCK_START).tobytes()
    size = int.from_bytes(start[:8], "little")
    header = read(begin + BLOCK_START, begin + BLOCK_START + size).tobytes() if size <= MAX_HEADER else b""
    if not header or xxh3_64_intdigest(header) != int.from_bytes(start[8:], "little"):
        raise damaged(path)
    found = json.loads(header)
    entries = {
        name: _Entry(np.dtype(dtype), length, begin + BLOCK_START + size + offset, digest)
        for name, (dtype, length, offset, digest) in found["arrays"].items()
    }
    return entries, found["facts"]


def _read_arrays(read: _Read, begin: int, path: Location) -> tuple[Arrays, dict[str, Any]]:
    """The arrays and the facts of the block at `begin`."""
    entries, facts = _read_header(read, begin, path)
    arrays: Arrays = {}
    for name, entry in entries.items():
        part = read(entry.begin, entry.end)
        if xxh3_64_intdigest(part.data if part.size else b"") != entry.digest:
            raise damaged(path)
        arrays[name] = part.view(entry.dtype)
    return arrays, facts


def load_arrays(path: Location) -> tuple[Arrays, dict[str, Any]]:
    """The arrays of the first block, as read-only views of the mapped file, and its facts. Raises `StorageError`."""
    try:
        # An mmap object keeps a descriptor open; Arrow's buffer does not, and a store may have more splits than a
        # process may have open files.
        with pa.memory_map(str(local_copy(path))) as file:
            mapped = file.read_buffer()
    except OSError as error:
        reason = OSError(error.errno, os.strerror(error.errno)) if error.errno else error
        raise staging_error(reason, path) from error
    data = np.frombuffer(mapped, dtype=np.uint8)

    def read(start: int, stop: int) -> NDArray[np.uint8]:
        return data[start:stop]

    try:
        return _read_arrays(read, int(_read_index(read, path)[0]), path)
    except StagingError:
        forget_copy(path)
        raise


class BlockReader:
    """Reads blocks of a file. A context manager, which holds large files open. Raises `StorageError`.

    A file of fewer than `first_read` bytes is read at once.
    """

    def __init__(self, path: Location, first_read: int = FIRST_READ) -> None:
        self._path, self._file = path, RangeReader(path)
        self._start = np.empty(0, np.uint8)
        with self._closed_on_error():
            self._start = self._file.read(0, first_read)
            self._complete = self._start.size < first_read  # whether that is the whole file
            self._offsets = _read_index(self._bytes, path)
        if self._complete:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._file.close()
            if isinstance(error, OSError):
                raise staging_error(error, self._path) from error
            raise

    def block(self, number: int) -> Arrays:
        """The arrays of a block."""
        begin, end = map(int, self._offsets[number : number + 2])
        data = self._bytes(begin, end)
        return _read_arrays(lambda start, stop: data[start - begin : stop - begin], begin, self._path)[0]

    def _bytes(self, start: int, stop: int) -> NDArray[np.uint8]:
        """A writable copy of bytes [start, stop) of the file."""
        if stop <= self._start.size:
            return self._start[start:stop].copy()
        try:
            data = self._start[:0] if self._complete else self._file.read(start, stop)
        except OSError as error:
            raise staging_error(error, self._path) from error
        if data.size != stop - start:
            raise damaged(self._path)
        return data


def read_block(path: Location, number: int) -> Arrays:
    """The arrays of one block of a file. Raises `StorageError`."""
    with BlockReader(path) as file:
        return file.block(number)


class ArrayReader(BlockReader):
    """Reads ranges of the arrays of the first block without mapping it: mapped pages count as memory of the process.

    An array that is read from its beginning to its end in consecutive ranges is compared with its digest.

    Parameters
    ----------
    path : Location
    prefixes : tuple of str
        Beginnings of the names of the arrays that will be read. A large remote file is copied up to the last of them,
        in one request.
    """

    def __init__(self, path: Location, prefixes: tuple[str, ...] = ("",)) -> None:
        super().__init__(path, SMALL_FILE)
        self._digests: dict[str, tuple[int, xxh3_64]] = {}  # entries read so far, and their digest
        with self._closed_on_error():
            self._entries, self.facts = _read_header(self._bytes, int(self._offsets[0]), path)
            if not self._complete:
                wanted = [entry for name, entry in self._entries.items() if name.startswith(prefixes)]
                self._file.keep(max((entry.end for entry in wanted), default=0))
                self._start = np.empty(0, np.uint8)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __getitem__(self, name: str) -> NDArray[Any]:
        """A whole array."""
        self._digests.pop(name, None)
        return self.read(name, 0, self.size(name))

    def size(self, name: str) -> int:
        """Length of an array."""
        return self._entry(name).size

    def read(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Entries [start, stop) of a one-dimensional array."""
        entry = self._entry(name)
        if not 0 <= start <= stop <= entry.size:  # computed from entries that are not compared yet
            raise damaged(self._path)
        width = entry.dtype.itemsize
        data = self._bytes(entry.begin + start * width, entry.begin + stop * width)
        done, digest = self._digests.get(name, (0, xxh3_64()))
        if start == done:
            digest.update(data.data)
            self._digests[name] = stop, digest
            if stop == entry.size and digest.intdigest() != entry.digest:
                raise damaged(self._path)
        return data.view(entry.dtype)

    def _entry(self, name: str) -> _Entry:
        if name not in self._entries:
            raise damaged(self._path)
        return self._entries[name]


# ----------------------------------------------------------------------------------------------------------------------
# Strings as arrays of a file.


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


def packed_strings(name: str, strings: pa.Array) -> Arrays:
    """Strings as arrays of a file: <name>_bytes and <name>_offsets."""
    data, offsets = string_buffers(strings)
    return {f"{name}_bytes": data, f"{name}_offsets": offsets}


def stored_strings(arrays: Arrays, name: str) -> pa.Array:
    """The strings of the arrays of `packed_strings`."""
    return string_array(arrays[f"{name}_bytes"], arrays[f"{name}_offsets"])


# ----------------------------------------------------------------------------------------------------------------------
# Ranges of files, and whole files on this machine, wherever the files are.


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
