"""Input files, local or remote: found and listed, pinned to one version, digested, read in order or by ranges.

What is here decides whether a path is that of a file of this machine or of an object store; its callers do not.
"""

import hashlib
import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from sparseoco.core.errors import InputError
from sparseoco.storage import locations
from sparseoco.storage.locations import is_remote_uri, location, remote_location, storage_errors

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

BLOCK = 1 << 20
PART_BYTES = 64 << 20  # of a request
CHANGED = "input-changed"
SMALL_FILE, BATCH = 1 << 18, 64  # small remote files are requested in batches
BUFFER, REMOTE_BUFFER = 1 << 20, 4 << 20  # of compressed pages in memory; of a request


class Pin(NamedTuple):
    """The version of a file that is read.

    Parameters
    ----------
    bytes, modified_ns : int
    e_tag : str or None
        Of remote files: every request names it.
    changed_ns : int
        Time of the last change of a local file or of its metadata, which, unlike `modified_ns`, cannot be set back.
    inode : int
        Of local files; compared only by the process that took it, because it may differ between machines.
    """

    bytes: int
    modified_ns: int
    e_tag: str | None = None
    changed_ns: int = 0
    inode: int = 0

    @property
    def version(self) -> tuple[int, int, str | None, int]:
        """What is the same for every process."""
        return self.bytes, self.modified_ns, self.e_tag, self.changed_ns

    @property
    def condition(self) -> str | None:
        """The ETag that requests name; a weak one identifies no bytes."""
        return None if self.e_tag is None or self.e_tag.startswith("W/") else self.e_tag


def local_pin(status: os.stat_result) -> Pin:
    """The version of a local file."""
    return Pin(status.st_size, status.st_mtime_ns, None, status.st_ctime_ns, status.st_ino)


def remote_pin(status: locations.FileStatus) -> Pin:
    """The version of a remote file."""
    return Pin(status.st_size, int(status.st_mtime) * 10**9, status.e_tag)


# ----------------------------------------------------------------------------------------------------------------------
# Files that inputs name, and the files of folders.


class FolderFile(NamedTuple):
    """A file, of a folder or alone.

    Parameters
    ----------
    name, path : str
        Path in the folder, with slashes; and local path or remote URI.
    pin : Pin
        Its version.
    """

    name: str
    path: str
    pin: Pin

    @property
    def order(self) -> str:
        """The key by which the files of a folder are sorted: by the names of its folders and its own."""
        return self.name.replace("/", "\0")


def find_input(item: str) -> tuple[str, FolderFile | None]:
    """The path or URI that an input names, and its file; None for a folder.

    Raises `InputError` for what does not exist, and for what is neither a file nor a folder.
    """
    if is_remote_uri(item):
        remote = remote_location(item)
        try:
            return item, FolderFile(remote.name, item, remote_pin(remote.stat()))
        except FileNotFoundError:
            if not (item.endswith("/") or remote.list()):  # a bucket has no empty folders
                raise _missing(item) from None
            return item, None
    path = Path(item.removeprefix("file://"))
    if not path.exists():
        raise _missing(item)
    if path.is_dir():
        return str(path), None
    if not path.is_file():
        raise InputError(
            f"{item} is not a regular file (pipes and devices can be read only once): save it as a file.",
            code="not-a-file",
        )
    return str(path), FolderFile(path.name, str(path), local_pin(path.stat()))


def _missing(path: str) -> InputError:
    return InputError(f"{path} does not exist.", code="missing-file")


def iter_folder(folder: str, skip: Callable[[str], bool], wanted: Callable[[str], bool]) -> Iterator[FolderFile]:
    """All files below a folder, in any order; a hidden folder of this machine stands for its files.

    Links are followed. Nothing but regular files is opened: a pipe would block.

    Parameters
    ----------
    folder : str
    skip : callable
        Whether what has this name, without its folders, is left out, with all that is in it.
    wanted : callable
        Whether a file of this path in the folder is to be read.

    Raises
    ------
    InputError
        For a link to a folder that contains it, and for a wanted file that is not a regular file.
    """

    def walk(folder: str, name: str, above: tuple[tuple[int, int], ...]) -> Iterator[FolderFile]:
        state = os.stat(folder)
        place = state.st_dev, state.st_ino
        if place in above:
            raise InputError(
                f"{folder} is a link to a folder that contains it: remove or --exclude it.", code="not-a-file"
            )
        with os.scandir(folder) as entries:
            for entry in entries:
                if skip(entry.name):
                    continue
                if entry.name.startswith("."):
                    yield FolderFile(name + entry.name, entry.path, Pin(0, 0))
                    continue
                locations.check_name(entry.path)
                if _is(entry.is_dir):
                    yield from walk(entry.path, f"{name}{entry.name}/", (*above, place))
                elif _is(entry.is_file):
                    try:
                        pin = local_pin(entry.stat())
                    except FileNotFoundError:
                        raise changed(entry.path) from None
                    yield FolderFile(name + entry.name, entry.path, pin)
                elif wanted(name + entry.name):
                    what = "a link that leads nowhere" if entry.is_symlink() else "not a regular file"
                    raise InputError(f"{entry.path} is {what}: remove or --exclude it.", code="not-a-file")

    if not is_remote_uri(folder):
        yield from walk(folder, "", ())
        return
    root = remote_location(folder)
    for path, status in root.iter_files():
        name = path.key.removeprefix(root.key).lstrip("/")
        if not any(map(skip, name.split("/"))):
            yield FolderFile(name, str(path), remote_pin(status))


def _is(kind: Callable[[], bool]) -> bool:
    """Whether an entry is of a kind; no kind is that of a link that leads to itself."""
    try:
        return kind()
    except OSError:
        return False


def map_files(folder: str, function: Callable[[T], Any], calls: Iterable[T]) -> list[Any]:
    """The results of a function that reads a file of a folder each time; of a remote folder, concurrently."""
    return locations.map_concurrently(function, calls) if is_remote_uri(folder) else list(map(function, calls))


# ----------------------------------------------------------------------------------------------------------------------
# Digests of files and of sets of files.


class SetDigest:
    """Digest of a set of values that come in any order: the sum of their SHA-256 modulo 2^256."""

    def __init__(self) -> None:
        self._sum = 0

    def add(self, value: str) -> None:
        """Add a value of the set."""
        self._sum += int.from_bytes(hashlib.sha256(value.encode()).digest(), "big")

    def update(self, hexdigest: str) -> None:
        """Add the values of another set, by its digest."""
        self._sum += int(hexdigest, 16)

    def hexdigest(self) -> str:
        """The digest of all values so far."""
        return f"{self._sum % 2**256:064x}"


# ----------------------------------------------------------------------------------------------------------------------
# Reading, and checks that what is read is the pinned version.


def digest_stored(path: str, name: str, pin: Pin | None = None) -> str:
    """SHA-256 of a file. Raises `StorageError`."""
    digest = hashlib.sha256()
    with storage_errors(location(path)):
        for block in read_blocks(path, name, pin):
            digest.update(block)
    return digest.hexdigest()


def changed(name: str) -> InputError:
    """The error of a file that is no longer the version that was found."""
    return InputError(f"{name} changed while it was read; run again.", code=CHANGED)


def check_unchanged(path: str, pin: Pin) -> None:
    """Raises `InputError` if a file is no longer the version that was pinned by this process."""
    try:
        with storage_errors(location(path), but=FileNotFoundError):
            found = remote_pin(remote_location(path).stat()) if is_remote_uri(path) else local_pin(os.stat(path))
    except FileNotFoundError:
        raise changed(path) from None
    if found != pin:
        raise changed(path)


def check_version(path: str, pin: Pin | None) -> None:
    """Raises `InputError` if a local file has another size or time; requests for a remote one name its ETag."""
    if pin is not None and not is_remote_uri(path):
        try:
            status = os.stat(path)
        except FileNotFoundError:
            raise changed(path) from None
        _check_status(status, path, pin)


def _check_status(status: os.stat_result, name: str, pin: Pin) -> None:
    if local_pin(status).version != pin.version:
        raise changed(name)


def read_blocks(
    path: str, name: str, pin: Pin | None = None, *, span: tuple[int, int] | None = None
) -> Iterator[bytes]:
    """The bytes of a local or remote file, or of a span (start, stop), in blocks; `name` is its name in messages.

    A local file is compared with the pinned version after every read. So nothing of another version is passed on, and
    a file that grows without end is an error at once.

    Raises `InputError` if it is not the pinned version, and `OSError`.
    """
    try:
        if is_remote_uri(path):
            for requested in [span] if span else _requests(pin):
                yield from remote_location(path).read_chunks(BLOCK, span=requested, **_conditions(pin))
            return
        with Path(path).open("rb", buffering=0) as file:
            position, stop = span or (0, sys.maxsize)
            file.seek(position)
            while True:
                block = file.read(min(BLOCK, stop - position))
                if pin is not None:
                    _check_status(os.fstat(file.fileno()), name, pin)
                if not block:
                    break
                position += len(block)
                yield block
    except (FileExistsError, FileNotFoundError):
        if pin is None:
            raise
        raise changed(name) from None


def _requests(pin: Pin | None) -> list[tuple[int, int] | None]:
    """The spans of the requests for a file: of a large one several, since a client resumes no request for ever.

    Without TLS it is one: then the checksum of the whole file is compared.
    """
    if pin is None or pin.bytes <= PART_BYTES or locations.is_plain_http():
        return [None]
    return [(start, min(start + PART_BYTES, pin.bytes)) for start in range(0, pin.bytes, PART_BYTES)]


def read_range(path: str, name: str, start: int, buffer: memoryview, pin: Pin | None = None) -> None:
    """Fill `buffer` with the bytes of a file from `start` on; `name` is its name in messages.

    Raises `InputError` if the file is not the pinned version, and `StorageError`.
    """
    with storage_errors(location(path)):
        for block in read_blocks(path, name, pin, span=(start, start + len(buffer))):
            buffer[: len(block)] = block
            buffer = buffer[len(block) :]
    if buffer:
        raise changed(name)


def _conditions(pin: Pin | None) -> dict[str, Any]:
    """What requests say of the version."""
    return {} if pin is None else {"e_tag": pin.condition, "size": pin.bytes}


def small_contents(files: Iterable[tuple[str, Pin]]) -> Iterator[bytes | None]:
    """The contents of small remote files, which are requested in batches, by their paths; None of all others."""
    remaining = iter(files)
    while batch := list(islice(remaining, BATCH)):
        yield from (
            locations.map_concurrently(_small_content, batch) if is_remote_uri(batch[0][0]) else [None] * len(batch)
        )


def _small_content(file: tuple[str, Pin]) -> bytes | None:
    path, pin = file
    if pin.bytes > SMALL_FILE:
        return None
    with suppress(OSError):  # `Stream` reads it again and raises a proper error
        return remote_location(path).read_bytes(**_conditions(pin))
    return None


def some_bytes(path: str, start: int, size: int) -> bytes:
    """Stored bytes of a file from `start` on, fewer than `size` if it ends before. Raises `OSError`."""
    if is_remote_uri(path):
        return remote_location(path).read_range(start, start + size)
    with Path(path).open("rb") as file:
        file.seek(start)
        return file.read(size)


def open_input(path: str, pin: Pin | None = None, *, buffered: bool = False) -> "tuple[pa.NativeFile, int]":
    """An open file that can be sought, and how many bytes to request at a time; `buffered` requests them itself.

    A local file is not mapped: one that is cut while it is read would end the process.
    """
    import pyarrow as pa  # 0.1 s: not for --help

    if not is_remote_uri(path):
        return pa.OSFile(path), BUFFER
    remote = _Remote(path, pin)
    return pa.PythonFile(io.BufferedReader(remote, REMOTE_BUFFER) if buffered else remote, "r"), REMOTE_BUFFER


class _Remote(io.RawIOBase):
    """A remote file that can be sought; every read is a request for a range."""

    def __init__(self, uri: str, pin: Pin | None) -> None:
        self._path = remote_location(uri)
        self._size = int(self._path.stat().st_size) if pin is None else pin.bytes
        self._e_tag = None if pin is None else pin.condition
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        return self._position

    def readinto(self, buffer: Any) -> int:
        stop = min(self._position + len(buffer), self._size)
        data = b""
        if stop > self._position:
            data = self._path.read_range(self._position, stop, e_tag=self._e_tag, size=self._size)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
