"""The formats of inputs, and raw text as a stream of UTF-8: decompression, character encodings.

A format whose documents are lines is an entry of `FORMATS` and one of `PARSERS`. Nothing else knows its name.
"""

import codecs
import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

import zstandard
from isal import isal_zlib

from sparseoco.core.errors import InputError
from sparseoco.storage.inputs import Pin, read_blocks
from sparseoco.storage.locations import location, storage_errors

# ----------------------------------------------------------------------------------------------------------------------
# Formats: their names, what shows them, and what their documents have.


class InputFormat(NamedTuple):
    """A format of files, or of folders with one document per file.

    Parameters
    ----------
    description : str
        Of a file, in messages.
    suffixes : tuple of str
        Of file names; the first one is that of files of kept documents.
    fields : bool
        Whether a document is a record of named fields.
    labels : bool
        Whether documents have labels.
    counted : bool
        Whether documents are counts of features, not texts.
    first_line : str
        Regular expression of the beginning of the first line that is not blank, if it shows the format.
    delimiter : str
        Between the fields of a record of delimited text.
    """

    description: str
    suffixes: tuple[str, ...] = ()
    fields: bool = False
    labels: bool = True
    counted: bool = False
    first_line: str = ""
    delimiter: str = ""


FORMATS: dict[str, InputFormat] = {
    "jsonl": InputFormat(
        "JSON lines, one document per object", (".jsonl", ".ndjson", ".json"), fields=True, first_line=r"\{"
    ),
    "csv": InputFormat("CSV, one document per record", (".csv",), fields=True, delimiter=","),
    "tsv": InputFormat("TSV, one document per line, quotes are text", (".tsv", ".tab"), fields=True, delimiter="\t"),
    "lines": InputFormat("plain text, one document per line, without labels", (".txt",), labels=False),
    "folder": InputFormat("one document per file"),
    "processed": InputFormat(
        "processed reviews, one document per line", (".review",), counted=True, first_line=r".*#label#:"
    ),
    "svmlight": InputFormat(
        "SVMlight, one document per line",
        (".svmlight", ".libsvm", ".svm"),
        counted=True,
        first_line=r"[+-]?[\w.]+(\s+qid:\d+)?(\s+\d+:[-+.\deE]+)+\s*(#.*)?$",
    ),
    "parquet": InputFormat("Parquet, one document per row", (".parquet", ".pq"), fields=True),
    "arrow": InputFormat("Arrow, one document per row", (".arrow", ".ipc", ".feather"), fields=True),
    "files": InputFormat("one document per file, without labels", labels=False),
}
TABLES = frozenset({"parquet", "arrow"})
FOLDERS = frozenset({"folder", "files"})  # with one document per file; `files` without labels
WITH_FIELDS = frozenset(name for name, form in FORMATS.items() if form.fields)
UNLABELLED = frozenset(name for name, form in FORMATS.items() if not form.labels)
COUNTED = frozenset(name for name, form in FORMATS.items() if form.counted)
DELIMITERS = {name: form.delimiter for name, form in FORMATS.items() if form.delimiter}
SUFFIXES = {suffix: name for name, form in FORMATS.items() for suffix in form.suffixes}

if TYPE_CHECKING:
    Format: TypeAlias = str
else:
    Format = Literal["auto", *(name for name in FORMATS if name != "files")]


# ----------------------------------------------------------------------------------------------------------------------
# Character encodings of raw text: Python's codecs, their detection by charset-normalizer, conversion to UTF-8.


UTF8, AUTO, WESTERN = "utf-8", "auto", "cp1252"
SAMPLE = 1 << 18  # bytes that are enough to detect an encoding
INVALID = "\udcff"  # stands for bytes that the codec does not decode; in UTF-8 with surrogateescape the byte 0xFF
_MARKS = {codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32", codecs.BOM_UTF16_LE: "utf-16"}
_MARKS |= {codecs.BOM_UTF16_BE: "utf-16"}
_BINARY = {
    b"PK\x03\x04": "a zip archive or an office document",
    b"\xfd7zXZ\0": "compressed by xz",
    b"PAR1": "Parquet (set --format parquet)",
    b"ARROW1": "Arrow (set --format arrow)",
    b"%PDF-": "a PDF document",
    b"\x1f\x8b": "compressed by gzip, without the suffix .gz",
    b"\x28\xb5\x2f\xfd": "compressed by zstd, without the suffix .zst",
    b"SQLite format 3\0": "an SQLite database",
    b"\xd0\xcf\x11\xe0": "an old office document",
}
codecs.register_error("sparseoco-mark", lambda error: (INVALID, error.end))  # type: ignore[attr-defined]


class NotTextError(InputError):
    """A file that is not text in UTF-8; `reason` says what it is, without the name of the file."""

    def __init__(self, name: str, reason: str, *, code: str) -> None:
        super().__init__(f"{name} {reason}.", code=code)
        self.reason = reason


def codec_name(name: str) -> str:
    """The codec's name, one for all its spellings; "auto" is detection. Raises `ValueError` if there is no such codec.

    >>> codec_name("UTF8"), codec_name("Latin-1"), codec_name("auto")
    ('utf-8', 'iso8859-1', 'auto')
    """
    if name == AUTO:
        return AUTO
    try:
        found = codecs.lookup(name)
        "".encode(name)  # of text, not of bytes as rot13 and base64
    except (LookupError, UnicodeError):
        raise ValueError(f"{name} is not a text encoding of Python, such as utf-8, cp1252 or utf-16") from None
    return UTF8 if found.name == "utf-8-sig" else found.name


def check_text(head: bytes, name: str, codec: str) -> None:
    """Raises `NotTextError` if the beginning of a file shows that it is not text, or not text in UTF-8 if it should."""
    for magic, kind in _BINARY.items():
        if head.startswith(magic):
            raise NotTextError(name, f"is not text, but {kind}", code="not-text")
    marked = _utf16(head) if codec == UTF8 else None
    if marked is not None:
        raise NotTextError(name, f"is {marked.upper()}, not UTF-8: set --encoding {marked}", code="encoding")


def _utf16(head: bytes) -> str | None:
    """The codec of text with a mark of UTF-16 or UTF-32, or most of whose pairs of bytes have a 0 in the same place."""
    for mark, codec in _MARKS.items():
        if head.startswith(mark):
            return codec
    pairs = len(head[:4096]) // 2
    for codec, zero in (("utf-16-le", 1), ("utf-16-be", 0)):
        zeros, others = (head[first : 2 * pairs : 2].count(0) for first in (zero, 1 - zero))
        if pairs >= 4 and zeros > 0.7 * pairs > 7 * others:
            return codec
    return None


def detect(sample: bytes) -> str | None:
    """The codec of the beginning of a text, or None of what is not text.

    UTF-8 if most characters beyond ASCII are valid; otherwise cp1252 if charset-normalizer finds it as likely as any
    other, or if there are only a few lone bytes to go by; otherwise as charset-normalizer says.
    """
    codec = _utf16(sample)
    if codec is not None:
        return codec
    try:
        codecs.getincrementaldecoder(UTF8)().decode(sample)  # the sample may end within a character
        return UTF8
    except UnicodeDecodeError:
        if b"\0" in sample:
            return None
    beyond = re.findall(r"[^\0-\x7f]", sample.decode(UTF8, "surrogateescape"))
    if len(beyond) > 2 * sum("\udc80" <= character <= "\udcff" for character in beyond):
        return UTF8
    runs = [len(run) for run in re.findall(rb"[\x80-\xff]+", sample)]
    if sum(runs) < max(8, len(sample) // 1000) and 2 * runs.count(1) > sum(runs):
        return WESTERN
    from charset_normalizer import from_bytes

    found = from_bytes(sample)
    best = found.best()
    western = [match for match in found if WESTERN in match.could_be_from_charset]
    if best is None or (western and western[0].chaos <= best.chaos and western[0].coherence >= best.coherence - 0.05):
        return WESTERN
    return codec_name(best.encoding)


def to_utf8(parts: Iterable[bytes], codec: str) -> Iterator[bytes]:
    """The text in UTF-8; bytes that the codec does not decode become 0xFF, which no UTF-8 contains."""
    decoder = codecs.getincrementaldecoder(codec)("sparseoco-mark")
    for part in parts:
        yield _encode(decoder.decode(part))
    yield _encode(decoder.decode(b"", True))


def _encode(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # another lone surrogate, as some codecs decode
        return text.encode("utf-8", "surrogatepass").replace(INVALID.encode("utf-8", "surrogatepass"), b"\xff")


# ----------------------------------------------------------------------------------------------------------------------
# The bytes of a source, read once: hashed on the way, decompressed in bounded memory, and converted to UTF-8.


GZIP_OUTPUT = 4 << 20
ZSTD_INPUT = 1 << 14  # a block of zstd may expand 40,000-fold
ZSTD_OUTPUT = 1 << 20  # a result grows by so much at a time, and may be copied each time
GZIP_MAGIC = 0x1F
FREE_BYTES = 64 << 20  # decompressed bytes without a limit on the ratio
MAX_INFLATION = 1000  # the largest accepted ratio of decompressed to compressed bytes
_CORRUPT: tuple[type[Exception], ...] = (cast(type[Exception], isal_zlib.error), zstandard.ZstdError)


@dataclass(eq=False, repr=False)
class Stream:
    """Iterates over the decompressed bytes of a file, as UTF-8.

    Attributes `bytes`, and `sha256` at the end, describe the stored (compressed) bytes that were read, `codec` is the
    encoding, known once the first bytes are read.

    Parameters
    ----------
    path : str
        Local path or remote URI.
    compression : {"gzip", "zstd"} or None
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

    path: str
    compression: str | None
    content: bytes | None = None
    encoding: str = UTF8
    pin: Pin | None = None
    name: str = ""

    def __post_init__(self) -> None:
        self.name = self.name or self.path
        self.codec = self.encoding
        self.bytes = 0
        self._digest = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """SHA-256 of the file, once it is read."""
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
            for part in self._members():
                decompressed += len(part)
                if decompressed > FREE_BYTES + MAX_INFLATION * self.bytes:
                    raise InputError(
                        f"{self.name} expands more than {MAX_INFLATION}-fold.",
                        code="decompression-limit",
                    )
                yield part
        except _CORRUPT:
            raise self._corrupt(f"is corrupt: it is not valid {self.compression}") from None

    def _stored(self) -> Iterator[bytes]:
        with storage_errors(location(self.path)):
            for block in read_blocks(self.path, self.name, self.pin) if self.content is None else [self.content]:
                self._digest.update(block)
                self.bytes += len(block)
                yield block

    def _members(self) -> Iterator[bytes]:
        """The content of the members of gzip, or of the frames of zstd."""
        gzip = self.compression == "gzip"
        limit = (GZIP_OUTPUT,) if gzip else ()
        member: Any = None
        members = 0
        for block in self._stored():
            step = max(1, len(block)) if gzip else ZSTD_INPUT
            for begin in range(0, len(block), step):
                data = block[begin : begin + step]
                while data:
                    if member is None and gzip:
                        # Like gzip, allow zero padding between and after members.
                        data = data.lstrip(b"\0") if members else data
                        if not data:
                            break
                        if data[0] != GZIP_MAGIC:
                            reason = "other bytes follow its gzip stream" if members else "it is not valid gzip"
                            raise self._corrupt(f"is corrupt: {reason}")
                    if member is None:
                        members += 1
                        if gzip:
                            member = isal_zlib.decompressobj(31)
                        else:
                            member = zstandard.ZstdDecompressor().decompressobj(ZSTD_OUTPUT)
                    yield member.decompress(data, *limit)
                    data = member.unconsumed_tail
                    if member.eof:
                        data = member.unused_data
                        member = None
        if member is not None or self.bytes == 0:
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
