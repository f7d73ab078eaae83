"""The bytes of a source, read once: hashed on the way, decompressed in bounded memory, and converted to UTF-8."""

from collections.abc import Iterator
from itertools import chain
from typing import Any, cast

import zstandard
from isal import isal_zlib

from sparseoco.core.errors import InputError
from sparseoco.storage.errors import storage_error
from sparseoco.storage.locations import location
from sparseoco.text.charsets import AUTO, SAMPLE, UTF8, check_text, detect, to_utf8
from sparseoco.text.stored import PartsDigest, Pin, read_blocks

GZIP_OUTPUT = 4 << 20
ZSTD_INPUT = 1 << 14  # a block of zstd may expand 40,000-fold
GZIP_MAGIC = 0x1F
FREE_BYTES = 64 << 20  # decompressed bytes without a limit on the ratio
_CORRUPT: tuple[type[Exception], ...] = (cast(type[Exception], isal_zlib.error), zstandard.ZstdError)


class Stream:
    """Iterates over the decompressed bytes of a file, as UTF-8.

    Attributes `bytes`, and `sha256` at the end, describe the stored (compressed) bytes that were read, `codec` is the
    encoding, known once the first bytes are read.

    Parameters
    ----------
    path : str
        Local path or remote URI.
    compression : {"gzip", "zstd"} or None
    max_inflation : int
        Largest ratio of decompressed to compressed bytes.
    content : bytes, optional
        Stored bytes of the file, if they were read before.
    encoding : str
        A codec as `codec_name` gives it, or "auto". Text that is UTF-8 already passes unchanged, valid or not; in any
        other encoding, bytes that cannot be decoded become 0xFF.
    pin : Pin, optional
        The version of the file.
    name : str, optional
        Its name in messages; by default the path.

    Raises
    ------
    InputError
        While iterating, for a file that is truncated, corrupt, cannot be read, expands too much, is not text, or is not
        the pinned version.
    """

    def __init__(
        self,
        path: str,
        compression: str | None,
        max_inflation: int = 1000,
        content: bytes | None = None,
        encoding: str = UTF8,
        pin: Pin | None = None,
        name: str | None = None,
    ) -> None:
        self.path = path
        self.name = name or path
        self.codec = encoding
        self.compression = compression
        self.max_inflation = max_inflation
        self.bytes = 0
        self._content = content
        self._pin = pin
        self._digest = PartsDigest()

    @property
    def sha256(self) -> str:
        """Digest of the file (`PartsDigest`), once it is read."""
        return self._digest.hexdigest()

    def __iter__(self) -> Iterator[bytes]:
        parts = filter(None, self._decompressed())
        first = [part] if (part := next(parts, b"")) else []
        if self.codec == AUTO:
            while sum(map(len, first)) < SAMPLE and (part := next(parts, b"")):
                first.append(part)
            self.codec = detect(b"".join(first)[:SAMPLE]) or UTF8
        check_text(b"".join(first[:1]), self.name, self.codec)
        if self.codec == UTF8:
            yield from chain(first, parts)
        else:
            yield from to_utf8(chain(first, parts), self.codec)

    def _decompressed(self) -> Iterator[bytes]:
        if self.compression is None:
            yield from self._stored()
            return
        decompressed = 0
        try:
            for part in self._gzip() if self.compression == "gzip" else self._zstd():
                decompressed += len(part)
                if decompressed > FREE_BYTES + self.max_inflation * self.bytes:
                    raise InputError(
                        f"{self.name} expands more than {self.max_inflation}-fold; increase max_inflation to allow it.",
                        code="decompression-limit",
                    )
                yield part
        except _CORRUPT:
            raise self._corrupt(f"is corrupt: it is not valid {self.compression}") from None

    def _stored(self) -> Iterator[bytes]:
        try:
            for block in read_blocks(self.path, self.name, self._pin) if self._content is None else [self._content]:
                self._digest.update(block)
                self.bytes += len(block)
                yield block
        except OSError as error:
            raise storage_error(error, location(self.path)) from error

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
        return InputError(f"{self.name} {reason}.", code="corrupt-file")


def first_bytes(path: str, compression: str | None, size: int, encoding: str = UTF8, start: int = 0) -> bytes:
    """At most about `size` bytes of a file from `start` on, decompressed."""
    head, skip = b"", start
    for part in Stream(path, compression, encoding=encoding):
        head += part[skip:]
        skip = max(0, skip - len(part))
        if len(head) >= size:
            break
    return head
