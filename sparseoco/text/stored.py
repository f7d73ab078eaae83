"""The stored bytes of an input file: pinned to one version, digested by fixed parts, read in order or by ranges."""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

from sparseoco.core.errors import InputError
from sparseoco.storage.locations import is_remote_uri, location, remote_location, storage_error
from sparseoco.storage.remote import FileStatus, map_concurrently

BLOCK = 1 << 20
PART_BYTES = 64 << 20  # of a digest, and of a survey
CHANGED = "input-changed"
SMALL_FILE, BATCH = 1 << 18, 64  # small remote files are requested in batches


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


def remote_pin(status: FileStatus) -> Pin:
    """The version of a remote file."""
    return Pin(status.st_size, int(status.st_mtime) * 10**9, status.e_tag)


class PartsDigest:
    """SHA-256 of the SHA-256 digests of parts of `PART_BYTES` bytes, so that parts can be read by different tasks."""

    def __init__(self) -> None:
        self._whole, self._part, self._left = hashlib.sha256(), hashlib.sha256(), PART_BYTES

    def update(self, data: bytes) -> None:
        """Add the next bytes of the file."""
        view = memoryview(data)
        while len(view):
            taken = view[: self._left]
            self._part.update(taken)
            self._left -= len(taken)
            view = view[len(taken) :]
            if not self._left:
                self._end_part()

    def add_part(self, sha256: str) -> None:
        """Add the digest of the next part."""
        self._whole.update(bytes.fromhex(sha256))

    def hexdigest(self) -> str:
        """The digest of all that was added; nothing can be added afterwards."""
        if self._left < PART_BYTES:
            self._end_part()
        return self._whole.hexdigest()

    def _end_part(self) -> None:
        self._whole.update(self._part.digest())
        self._part, self._left = hashlib.sha256(), PART_BYTES


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


def digest_stored(path: str, name: str, pin: Pin | None = None) -> str:
    """The `PartsDigest` of a file. Raises `StorageError`."""
    digest = PartsDigest()
    try:
        for block in read_blocks(path, name, pin):
            digest.update(block)
    except OSError as error:
        raise storage_error(error, location(path)) from error
    return digest.hexdigest()


def changed(name: str) -> InputError:
    """The error of a file that is no longer the version that was found."""
    return InputError(f"{name} changed while it was read; run again.", code=CHANGED)


def check_unchanged(path: str, pin: Pin) -> None:
    """Raises `InputError` if a file is no longer the version that was pinned by this process."""
    try:
        found = remote_pin(remote_location(path).stat()) if is_remote_uri(path) else local_pin(os.stat(path))
    except FileNotFoundError:
        raise changed(path) from None
    except OSError as error:
        raise storage_error(error, location(path)) from error
    if found != pin:
        raise changed(path)


def check_version(path: str, name: str, pin: Pin) -> None:
    """Raises `InputError` if a local file has another size or time; requests for a remote one name its ETag."""
    if not is_remote_uri(path):
        try:
            status = os.stat(path)
        except FileNotFoundError:
            raise changed(name) from None
        _check_status(status, name, pin)


def _check_status(status: os.stat_result, name: str, pin: Pin) -> None:
    if local_pin(status).version != pin.version:
        raise changed(name)


@contextmanager
def _pinned(path: str, name: str, pin: Pin | None) -> Iterator[tuple[IO[bytes], Callable[[], None]]]:
    """A local file, and a function that raises if it is not the pinned version: to call after every read.

    So nothing of another version is passed on, and a file that grows without end is an error at once.
    """

    def check() -> None:
        if pin is not None:
            _check_status(os.fstat(file.fileno()), name, pin)

    try:
        file = Path(path).open("rb", buffering=0)  # noqa: SIM115 - closed below
    except FileNotFoundError:
        if pin is None:
            raise
        raise changed(name) from None
    with file:
        check()
        yield file, check


def read_blocks(path: str, name: str, pin: Pin | None = None) -> Iterator[bytes]:
    """The bytes of a local or remote file, in blocks; `name` is its name in messages.

    Raises `InputError` if it is not the pinned version, and `OSError`.
    """
    if not is_remote_uri(path):
        with _pinned(path, name, pin) as (file, check):
            while block := file.read(BLOCK):
                check()
                yield block
            check()
        return
    try:
        yield from remote_location(path).read_chunks(BLOCK, **_conditions(pin))
    except (FileExistsError, FileNotFoundError):
        if pin is None:
            raise
        raise changed(name) from None


def read_range(path: str, name: str, start: int, buffer: memoryview, pin: Pin | None = None) -> None:
    """Fill `buffer` with the bytes of a file from `start` on; `name` is its name in messages.

    Raises `InputError` if the file is not the pinned version, and `StorageError`.
    """
    try:
        if not is_remote_uri(path):
            with _pinned(path, name, pin) as (file, check):
                file.seek(start)
                while buffer:
                    size = file.readinto(buffer)  # type: ignore[attr-defined]
                    if not size:
                        raise changed(name)
                    buffer = buffer[size:]
                check()
            return
        for data in remote_location(path).read_chunks(BLOCK, span=(start, start + len(buffer)), **_conditions(pin)):
            buffer[: len(data)] = data
            buffer = buffer[len(data) :]
        if buffer:
            raise changed(name)
    except (FileExistsError, FileNotFoundError):
        raise changed(name) from None
    except OSError as error:
        raise storage_error(error, location(path)) from error


def _conditions(pin: Pin | None) -> dict[str, Any]:
    """What requests say of the version."""
    return {} if pin is None else {"e_tag": pin.condition, "size": pin.bytes}


def small_contents(files: Iterable[tuple[str, Pin]]) -> Iterator[bytes | None]:
    """The contents of small remote files, which are requested in batches, by their paths; None of all others."""
    remaining = iter(files)
    while batch := list(islice(remaining, BATCH)):
        yield from map_concurrently(_small_content, batch) if is_remote_uri(batch[0][0]) else [None] * len(batch)


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
