"""Character encodings of raw text: Python's codecs, their detection by charset-normalizer, conversion to UTF-8."""

import codecs
import re
from collections.abc import Iterable, Iterator

from sparseoco.core.errors import InputError

UTF8, AUTO = "utf-8", "auto"
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

    UTF-8 if most characters beyond ASCII are valid, otherwise as charset-normalizer says. Where it does not say, or has
    only a few lone bytes to go by, cp1252, or latin-1 if cp1252 does not have all bytes.
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
            return _western(sample)
        from charset_normalizer import from_bytes

        found = from_bytes(sample)
        best = found.best()
        if best is None:
            return _western(sample)
        # Short texts of Western Europe fit many codecs equally well.
        western = [match for match in found if "cp1252" in match.could_be_from_charset]
        if western and western[0].chaos <= best.chaos and western[0].coherence >= best.coherence - 0.05:
            return "cp1252"
        return codec_name(best.encoding)


def _western(sample: bytes) -> str:
    try:
        sample.decode("cp1252")
        return "cp1252"
    except UnicodeDecodeError:
        return "latin-1"


def suggestion(sample: bytes) -> str:
    """What to set for text that is not valid in its encoding, as the end of a sentence."""
    found = detect(sample)
    if found in (None, UTF8):
        return "set --encoding-errors replace, or --encoding to its codec"
    return f"it may be {found}: set --encoding {found}, or --encoding-errors replace"


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
