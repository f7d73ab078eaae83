"""A run of lines of one file in memory, and what all readers do with its text."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.text.documents import REPLACEMENT, BadRow
from sparseoco.text.kernels.json_lines import find_lines
from sparseoco.text.options import TextOptions

SLACK = 17
_SURROGATE = re.compile("[\ud800-\udfff]")


class Chunk(NamedTuple):
    """Whole lines of a file.

    data    uint8, `size` bytes of text, then a newline and sixteen zeros, so that loops may look ahead
    name    the file as messages call it; short, as made ids call it
    line    number of the first line (from 1) and offset of its first byte in the uncompressed file
    header  the names of the columns, where the file begins with them
    """

    data: NDArray[np.uint8]
    size: int
    name: str
    short: str
    line: int
    offset: int
    header: tuple[str, ...] = ()

    def lines(self, options: TextOptions) -> NDArray[np.int64]:
        """Offsets of the lines and the end. Raises `InputError` for a line longer than allowed."""
        lines: NDArray[np.int64] = find_lines(self.data, self.size)
        sizes = np.diff(lines)
        if sizes.size and sizes.max() > options.max_line_bytes:
            raise too_long(self.name, self.line + int(np.argmax(sizes > options.max_line_bytes)), options)
        return lines

    def texts(self, options: TextOptions) -> Iterator[tuple[int, int, str]]:
        """(line, byte offset, text without its newline) for each line; bytes that are not UTF-8 become surrogates."""
        lines = self.lines(options)
        data = self.data[: self.size].tobytes()
        for k, (start, stop) in enumerate(zip(lines[:-1].tolist(), lines[1:].tolist(), strict=True)):
            text = data[start:stop].rstrip(b"\r\n").decode("utf-8", "surrogateescape")
            if k == 0 and self.offset == 0:
                text = text.removeprefix("\ufeff")
            yield self.line + k, self.offset + start, text


class UnreadableError(Exception):
    """A row that breaks the rules; the message says which. `counted` as in `BadRow`."""

    def __init__(self, reason: str, *, counted: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.counted = counted

    def at(self, line: int, offset: int) -> BadRow:
        """The same with its place."""
        return BadRow(line, offset, self.reason, self.counted)


def make_chunk(data: bytes | bytearray | memoryview, **place: Any) -> Chunk:
    """A chunk over a copy of `data`."""
    size = len(data)
    padded = np.zeros(size + SLACK, np.uint8)
    padded[:size] = np.frombuffer(data, np.uint8)
    padded[size] = 10
    return Chunk(padded, size, **place)


def too_long(name: str, line: int, options: TextOptions) -> InputError:
    """The error of a line over the limit."""
    return InputError(
        f"{name}, line {line}: longer than {options.max_line_bytes} bytes; raise max_line_bytes if this is meant."
    )


def utf8(text: str, options: TextOptions) -> bytes:
    """UTF-8 of a text in which undecodable bytes and lone surrogates are settled by options.encoding_errors."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        if options.encoding_errors == "replace":
            return _SURROGATE.sub(REPLACEMENT, text).encode()
        raise UnreadableError("not valid UTF-8", counted=options.encoding_errors == "error") from None


def plain_value(value: Any, what: str) -> str:
    """A JSON string, integer or boolean as the string that names it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    if value is None:
        raise UnreadableError(f"{what} is missing")
    raise UnreadableError(f"{what} is neither a string nor a whole number")


def settle_label(value: Any, options: TextOptions) -> Any:
    """The label of a row: a class name, or a float. None means: leave the row out (label_list = "skip")."""
    what = f"label field {options.label_field!r}"
    if isinstance(value, list):
        if options.label_list == "error":
            raise UnreadableError(
                f"{what} is a list: say what to do with label_list (first, skip or join), or choose another field"
            )
        if options.label_list == "skip" and len(value) != 1:
            return None
        if not value:
            raise UnreadableError(f"{what} is an empty list")
        if options.label_list == "join":
            names = sorted(plain_value(item, what) for item in value)
            if len(names) > 1 and any("," in name for name in names):
                raise UnreadableError(f"{what} cannot be joined: a label in the list holds a comma")
            value = ",".join(names)
        else:
            value = value[0]
    if options.labels == "numbers":
        return number(value, what)
    label = plain_value(value, what)
    if label == "":
        raise UnreadableError(f"{what} is empty")
    return checked_class(utf8(label, options).decode(), options)


def checked_class(label: str, options: TextOptions) -> str:
    """A label that is one of the classes there may be. Raises `UnreadableError`."""
    if not options.has_class(label):
        raise unknown_class(options)
    return label


def unknown_class(options: TextOptions) -> UnreadableError:
    """What is wrong with a label that is not one of the classes there may be."""
    return UnreadableError(
        f"the label is not one of the {len(options.classes or ())} classes that were named or that the first ingest "
        "brought"
    )


def number(value: Any, what: str) -> float:
    """A finite number. Python's own liberties, 1_0 for 10 and digits of other scripts, are not taken."""
    try:
        if isinstance(value, str) and ("_" in value or not value.isascii()):
            raise UnreadableError(f"{what} is not a number")
        result = float(value)
    except OverflowError:
        raise UnreadableError(f"{what} is not finite") from None
    except (TypeError, ValueError):
        raise UnreadableError(f"{what} is not a number" if value is not None else f"{what} is missing") from None
    if not np.isfinite(result):
        raise UnreadableError(f"{what} is not finite")
    return result
