"""Raw bytes of a source: read once, digested on the way, decompressed in bounded memory."""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, cast

import zstandard
from isal import isal_zlib

from sparseoco.core.errors import InputError
from sparseoco.storage.commit import storage_error
from sparseoco.storage.locations import is_address, location, remote_location
from sparseoco.storage.remote import map_concurrently

BLOCK = 1 << 20
SMALL, AT_ONCE = 1 << 18, 64  # bytes of a file that is asked for with others, and how many of them
INFLATED = 4 << 20
_DAMAGED: tuple[type[Exception], ...] = (cast(type[Exception], isal_zlib.error), zstandard.ZstdError)
# A block of zstd may inflate 40,000-fold at once, so it is fed in spoonfuls.
ZSTD_BLOCK = 1 << 14
GZIP_BEGIN = 0x1F
# Small files may inflate as they like.
FREE_BYTES = 64 << 20


class Stream:
    """Iterates over the uncompressed bytes of a file, in pieces; `sha256` and `bytes` are of the file as it is stored.

    `content` is that of the file, where it was read before. Raises `InputError` for a file that is truncated, damaged,
    or inflates more than `max_inflation`-fold.
    """

    def __init__(
        self, path: str, compression: str | None, max_inflation: int = 1000, content: bytes | None = None
    ) -> None:
        self.path = path
        self._content = content
        self.compression = compression
        self.max_inflation = max_inflation
        self.bytes = 0
        self._inflated = 0
        self._hash = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """Of the bytes read so far."""
        return self._hash.hexdigest()

    def __iter__(self) -> Iterator[bytes]:
        if self.compression is None:
            yield from self._stored()
            return
        decoded = self._gzip() if self.compression == "gzip" else self._zstd()
        try:
            for part in decoded:
                self._inflated += len(part)
                if self._inflated > FREE_BYTES + self.max_inflation * self.bytes:
                    raise InputError(
                        f"{self.path} inflates more than {self.max_inflation}-fold; raise max_inflation if it should."
                    )
                yield part
        except _DAMAGED:
            raise InputError(f"{self.path} is damaged: it is not valid {self.compression}.") from None

    def _stored(self) -> Iterator[bytes]:
        try:
            for block in read_blocks(self.path) if self._content is None else [self._content]:
                self._hash.update(block)
                self.bytes += len(block)
                yield block
        except OSError as error:
            raise storage_error(error, location(self.path)) from error

    def _gzip(self) -> Iterator[bytes]:
        inflater: Any = None
        members = 0
        for block in self._stored():
            data = block
            while data:
                if inflater is None:
                    # Zero padding between or after members is allowed, as gzip does.
                    data = data.lstrip(b"\0") if members else data
                    if not data:
                        break
                    if data[0] != GZIP_BEGIN:
                        reason = "other bytes follow the end of its gzip stream" if members else "it is not valid gzip"
                        raise InputError(f"{self.path} is damaged: {reason}.")
                    members += 1
                    inflater = isal_zlib.decompressobj(31)
                yield inflater.decompress(data, INFLATED)
                data = inflater.unconsumed_tail
                if inflater.eof:
                    data = inflater.unused_data
                    inflater = None
        if inflater is not None or self.bytes == 0:
            raise InputError(f"{self.path} is truncated: its gzip stream has no end.")

    def _zstd(self) -> Iterator[bytes]:
        inflater: Any = None
        for block in self._stored():
            for begin in range(0, len(block), ZSTD_BLOCK):
                data = block[begin : begin + ZSTD_BLOCK]
                while data:
                    if inflater is None:
                        inflater = zstandard.ZstdDecompressor().decompressobj()
                    yield inflater.decompress(data)
                    data = b""
                    if inflater.eof:
                        data = inflater.unused_data
                        inflater = None
        if inflater is not None or self.bytes == 0:
            raise InputError(f"{self.path} is truncated: its zstd stream has no end.")


def with_contents(files: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str, bytes | None]]:
    """Files (name, path) with the contents of small ones at an address, which are asked for many at once."""
    left = iter(files)
    while batch := list(islice(left, AT_ONCE)):
        contents = _small_contents([path for _, path in batch])
        yield from ((*file, content) for file, content in zip(batch, contents, strict=True))


def _small_contents(paths: list[str]) -> list[bytes | None]:
    if not is_address(paths[0]):
        return [None] * len(paths)
    return map_concurrently(_small_content, paths)


def _small_content(path: str) -> bytes | None:
    with suppress(OSError):  # read again by itself, which raises the error
        content = remote_location(path).read_range(0, SMALL + 1)
        return content if len(content) <= SMALL else None
    return None


def read_blocks(path: str) -> Iterator[bytes]:
    """The bytes of a local or remote file, in blocks."""
    if is_address(path):
        yield from remote_location(path).read_chunks(BLOCK)
        return
    with Path(path).open("rb", buffering=0) as file:
        while block := file.read(BLOCK):
            yield block


def first_bytes(path: str, compression: str | None, size: int) -> bytes:
    """At most about `size` bytes of the beginning."""
    head = b""
    for part in Stream(path, compression):
        head += part
        if len(head) >= size:
            break
    return head
