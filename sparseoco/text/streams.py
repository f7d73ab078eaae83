"""The bytes of a source: read once, hashed while they are read, decompressed in bounded memory."""

import hashlib
from collections.abc import Iterable, Iterator
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

import zstandard
from isal import isal_zlib

from sparseoco.core.errors import InputError, SparseocoError, StorageError, error_text
from sparseoco.storage.commit import storage_error
from sparseoco.storage.locations import file_system, is_address

BLOCK = 1 << 20
SMALL_FILE, BATCH = 1 << 18, 64  # small remote files are requested in batches
GZIP_OUTPUT = 4 << 20
ZSTD_INPUT = 1 << 14  # a block of zstd may expand 40,000-fold
GZIP_MAGIC = 0x1F
FREE_BYTES = 64 << 20  # decompressed bytes without a limit on the ratio
_CORRUPT: tuple[type[Exception], ...] = (cast(type[Exception], isal_zlib.error), zstandard.ZstdError)


class Stream:
    """Iterates over the decompressed bytes of a file.

    Attributes `sha256` and `bytes` describe the file as it is stored, as far as it was read.

    Parameters
    ----------
    path : str
        Local path or remote URI.
    compression : {"gzip", "zstd"} or None
    max_inflation : int
        Largest ratio of decompressed to compressed bytes.
    content : bytes, optional
        Stored bytes of the file, if they were read before.

    Raises
    ------
    InputError
        While iterating, for a file that is truncated, corrupt, cannot be read, or expands too much.
    """

    def __init__(
        self, path: str, compression: str | None, max_inflation: int = 1000, content: bytes | None = None
    ) -> None:
        self.path = path
        self.compression = compression
        self.max_inflation = max_inflation
        self.bytes = 0
        self._content = content
        self._hash = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """Digest of the bytes read so far."""
        return self._hash.hexdigest()

    def __iter__(self) -> Iterator[bytes]:
        if self.compression is None:
            yield from self._stored()
            return
        decompressed = 0
        try:
            for part in self._gzip() if self.compression == "gzip" else self._zstd():
                decompressed += len(part)
                if decompressed > FREE_BYTES + self.max_inflation * self.bytes:
                    raise InputError(
                        f"{self.path} expands more than {self.max_inflation}-fold; increase max_inflation to allow it.",
                        code="decompression-limit",
                    )
                yield part
        except _CORRUPT:
            raise self._corrupt(f"is corrupt: it is not valid {self.compression}") from None

    def _stored(self) -> Iterator[bytes]:
        try:
            with open_binary(self.path) if self._content is None else BytesIO(self._content) as file:
                while block := file.read(BLOCK):
                    self._hash.update(block)
                    self.bytes += len(block)
                    yield block
        except SparseocoError:
            raise
        except Exception as error:  # remote file systems raise errors of their own
            if is_address(self.path):
                raise InputError(f"{self.path} cannot be read: {error_text(error)}.", code="unreadable-file") from error
            if isinstance(error, OSError):
                raise storage_error(error, Path(self.path)) from error
            raise

    def _gzip(self) -> Iterator[bytes]:
        member: Any = None
        members = 0
        for block in self._stored():
            data = block
            while data:
                if member is None:
                    # Like gzip, allow zero padding between and after members.
                    data = data.lstrip(b"\0") if members else data
                    if not data:
                        break
                    if data[0] != GZIP_MAGIC:
                        reason = "other bytes follow its gzip stream" if members else "it is not valid gzip"
                        raise self._corrupt(f"is corrupt: {reason}")
                    members += 1
                    member = isal_zlib.decompressobj(31)
                yield member.decompress(data, GZIP_OUTPUT)
                data = member.unconsumed_tail
                if member.eof:
                    data = member.unused_data
                    member = None
        self._check_complete(member)

    def _zstd(self) -> Iterator[bytes]:
        frame: Any = None
        for block in self._stored():
            for begin in range(0, len(block), ZSTD_INPUT):
                data = block[begin : begin + ZSTD_INPUT]
                while data:
                    if frame is None:
                        frame = zstandard.ZstdDecompressor().decompressobj()
                    yield frame.decompress(data)
                    data = b""
                    if frame.eof:
                        data = frame.unused_data
                        frame = None
        self._check_complete(frame)

    def _check_complete(self, unfinished: Any) -> None:
        if unfinished is not None or self.bytes == 0:
            raise self._corrupt(f"is truncated: its {self.compression} stream has no end")

    def _corrupt(self, reason: str) -> InputError:
        return InputError(f"{self.path} {reason}.", code="corrupt-file")


def with_contents(files: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str, bytes | None]]:
    """Files (name, path) with the contents of small remote ones, which are requested in batches."""
    remaining = iter(files)
    while batch := list(islice(remaining, BATCH)):
        contents = _small_contents([path for _, path in batch])
        yield from ((*file, content) for file, content in zip(batch, contents, strict=True))


def _small_contents(paths: list[str]) -> list[bytes | None]:
    if not is_address(paths[0]):
        return [None] * len(paths)
    files, _ = file_system(paths[0])
    names = [file_system(path)[1] for path in paths]
    # Failures and longer files are read again on their own, with a proper error.
    found = files.cat_ranges(names, 0, SMALL_FILE + 1, on_error="return")
    return [content if isinstance(content, bytes) and len(content) <= SMALL_FILE else None for content in found]


def open_binary(path: str) -> IO[bytes]:
    """A local path or remote URI, opened for reading bytes."""
    if is_address(path):
        files, name = file_system(path)
        return cast(IO[bytes], files.open(name, "rb"))
    return Path(path).open("rb", buffering=0)


def read_range(path: str, name: str, start: int, buffer: memoryview) -> None:
    """Fill `buffer` with the bytes of a file from `start` on; messages call the file `name`."""
    if is_address(path):
        files, inner = file_system(path)
        try:
            data = files.cat_file(inner, start=start, end=start + len(buffer))
        except StorageError:
            raise
        except OSError as error:
            raise InputError(f"{name} cannot be read: {error}.", code="unreadable-file") from error
        if len(data) < len(buffer):
            raise _shorter(name)
        buffer[:] = data
        return
    with open_binary(path) as file:
        file.seek(start)
        while buffer:
            size = file.readinto(buffer)  # type: ignore[attr-defined]
            if not size:
                raise _shorter(name)
            buffer = buffer[size:]


def _shorter(name: str) -> InputError:
    return InputError(f"{name} became shorter while it was read; run again.", code="input-changed")


def first_bytes(path: str, compression: str | None, size: int) -> bytes:
    """At most about `size` bytes from the beginning of a file, decompressed."""
    head = b""
    for part in Stream(path, compression):
        head += part
        if len(head) >= size:
            break
    return head
