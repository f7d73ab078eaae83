"""The cut rule, and a file cut by it in one pass.

Split k of a file ends with the first line or record that ends at or beyond byte (k + 1) · shard_bytes of its
uncompressed UTF-8; a split that would be empty is left out. So an end depends on the file and its own position alone.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from sparseoco.core.errors import InputError
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers import DELIMITERS
from sparseoco.text.parsers.chunk import line_too_long
from sparseoco.text.parsers.csv_records import RecordScanner, line_starts
from sparseoco.text.parsers.delimited import blank_size, is_quoted, parse_header
from sparseoco.text.sources import Source


class Head(NamedTuple):
    """What the beginning of a file decides.

    Parameters
    ----------
    header : tuple of str
        Column names of CSV and TSV; empty for other formats.
    quoted : bool
        Whether their fields may be quoted.
    size, lines : int
        Bytes and lines of the header, which precede the first split.
    """

    header: tuple[str, ...] = ()
    quoted: bool = False
    size: int = 0
    lines: int = 0


class Cut(NamedTuple):
    """Split `number` of a file: bytes [start, stop) of its uncompressed UTF-8, from line number `line` on.

    `runs` are (end, XXH3) of the runs of bytes in which a survey read it.
    """

    number: int
    start: int
    stop: int
    line: int
    runs: tuple[tuple[int, int], ...] = ()


def read_head(data: bytes, source: Source, options: TextOptions, *, at_end: bool) -> Head | None:
    """What the first bytes of a file decide; None if more of them are needed, never `at_end`.

    Raises `InputError` for a header that cannot be read.
    """
    delimiter = DELIMITERS.get(source.format)
    if delimiter is None:
        return Head()
    if not at_end and b"\n" not in data[blank_size(data) :] and len(data) <= options.max_line_bytes:
        return None  # the first line decides about quotes
    quoted = is_quoted(data, delimiter, options)
    scanner = RecordScanner(source.path, ord(delimiter), quoted, options)
    size = scanner.find_end(data, blank_size(data), 1, at_end=at_end)
    if size < 0:
        return None
    header = parse_header(data[:size], scanner)
    if options.header:
        return Head(header, quoted, size, line_starts(data, size).size - 1)
    return Head(tuple(str(k + 1) for k in range(len(header))), quoted)


def cut_in_order(
    parts: Iterable[bytes], source: Source, options: TextOptions, shard_bytes: int
) -> Iterator[tuple[Head, Cut, memoryview]]:
    """Cut a file whose uncompressed UTF-8 comes in parts; the bytes of a cut stay as they are.

    Raises `InputError` for a line or record that is too long, and for a quoted field without an end.
    """
    remaining = iter(parts)
    # Bytes, which never change: Dask's profiler may still hold the arrays of earlier cuts.
    pending, begin = b"", 0
    offset, line, at_least = 0, 1, 0
    head: Head | None = None
    at_end = False
    while not at_end:
        pending, at_end = _with_more(pending[begin:], remaining, at_least)
        begin = 0
        if head is None:
            head = read_head(pending, source, options, at_end=at_end)
            if head is None:
                continue
            records = _scanner(head, source, options)
            begin = offset = head.size
            line += head.lines
        while begin < len(pending):
            number = offset // shard_bytes
            at_least = (number + 1) * shard_bytes - offset - 1
            data = memoryview(pending)[begin:]
            if len(data) <= at_least and not at_end:
                break
            if records is None:
                size = _line_end(pending, begin, at_least, line, source, options, at_end=at_end)
            else:
                size = records.find_end(data, at_least, line, at_end=at_end)
            if size < 0:
                break
            data = data[:size]
            lines = count_lines(data) if records is None else line_starts(data, size).size - 1
            yield head, Cut(number, offset, offset + size, line), data
            begin, offset, line = begin + size, offset + size, line + lines


def _with_more(pending: bytes, parts: Iterator[bytes], at_least: int) -> tuple[bytes, bool]:
    """`pending` and the next parts, more than `at_least` bytes, and whether no parts are left.

    They become at least a quarter longer, so that a long record is copied a few times only.
    """
    found, missing = [pending], max(at_least + 1 - len(pending), len(pending) // 4, 1)
    while missing > 0:
        part = next(parts, None)
        if part is None:
            return b"".join(found), True
        found.append(part)
        missing -= len(part)
    return b"".join(found), False


def count_lines(data: memoryview) -> int:
    """The number of line feeds."""
    return int(np.count_nonzero(np.frombuffer(data, np.uint8) == ord("\n")))


def _scanner(head: Head, source: Source, options: TextOptions) -> RecordScanner | None:
    delimiter = DELIMITERS.get(source.format)
    if delimiter is None:
        return None
    return RecordScanner(source.path, ord(delimiter), head.quoted, options, at_start=not head.size)


def _line_end(
    pending: bytes, begin: int, at_least: int, line: int, source: Source, options: TextOptions, *, at_end: bool
) -> int:
    """Size of the shortest run of whole lines from `begin` on that is longer than `at_least`; -1 if it needs more."""
    newline = pending.find(b"\n", begin + at_least)
    if newline >= 0:
        return newline + 1 - begin
    if at_end:
        if source.format == "lines" and line == 1 and b"\r" in pending.rstrip(b"\r") and b"\n" not in pending:
            raise InputError(
                f"{source.path}: its lines end with CR alone, as on old Macs; convert them to LF.",
                code="line-ends",
            )
        return len(pending) - begin
    if len(pending) - max(begin, pending.rfind(b"\n") + 1) > options.max_line_bytes:
        raise line_too_long(source.path, line + pending.count(b"\n", begin), options)
    return -1
