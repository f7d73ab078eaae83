"""CSV and TSV: boundaries of records, and documents from them."""

import csv
import io
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.text.documents import Documents, ParsedRow
from sparseoco.text.kernels.records import (
    NEEDS_MORE,
    NEWLINE,
    NO_QUOTE,
    QUOTE,
    QUOTED,
    RECORD_START,
    RETURN,
    TOO_LONG,
    scan_records,
)
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers.rows import (
    BOM,
    NOT_A_NUMBER,
    SHOWN,
    Chunk,
    MalformedRowError,
    RecordParser,
    fields_by_use,
    line_too_long,
)

if TYPE_CHECKING:
    from _csv import Reader

# ----------------------------------------------------------------------------------------------------------------------
# Boundaries of the records and lines of CSV and TSV.


def line_starts(data: bytes | memoryview | NDArray[np.uint8], size: int) -> NDArray[np.int64]:
    """Offsets of the lines of data[:size], as csv.reader counts them: 0, and after each LF, CR and CRLF."""
    text = np.frombuffer(data, np.uint8, size)
    ends = (text == NEWLINE) | (text == RETURN)
    ends[:-1] &= ~((text[:-1] == RETURN) & (text[1:] == NEWLINE))
    return np.concatenate([[0], np.flatnonzero(ends) + 1])


@dataclass
class RecordScanner:
    """Finds ends of records in a file that is read in parts, scanning each byte once.

    Records are those of `csv.reader`; their ends depend neither on the parts nor on where the file is split. Without
    quotes (`quoted`), every line is a record.
    """

    name: str
    delimiter: int
    quoted: bool
    options: TextOptions
    at_start: bool = True  # of the file, where a mark may precede the first record

    def __post_init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._position, self._state, self._begin, self._opened = 0, RECORD_START, 0, 0

    def find_end(self, pending: bytes | memoryview, at_least: int, line: int, *, at_end: bool) -> int:
        """Size of the shortest run of whole records longer than `at_least`, or -1 if more bytes are needed.

        Parameters
        ----------
        pending : bytes or memoryview
            The bytes after the last run that was found.
        line : int
            Number of its first line.
        at_end : bool
            Whether the file ends with `pending`.

        Raises
        ------
        InputError
            For a record that is too long, and for a quoted field without an end.
        """
        if self.at_start:
            if len(pending) < len(BOM) and not at_end:
                return -1
            self.at_start = False
            self._position = len(BOM) if pending[: len(BOM)] == BOM else 0
        found, self._position, self._state, self._begin, self._opened = scan_records(
            np.frombuffer(pending, np.uint8), self._position, self._state, self._begin, self._opened,
            at_least, self.options.max_line_bytes, self.delimiter, QUOTE if self.quoted else NO_QUOTE, at_end,
        )  # fmt: skip
        if self._state == QUOTED and (found == TOO_LONG or at_end):
            number = line + line_starts(pending, self._opened).size - 1
            problem = (
                f"is longer than {self.options.max_line_bytes} bytes; close it, or increase max_line_bytes"
                if found == TOO_LONG
                else "is still open at the end of the file"
            )
            raise InputError(
                f"{self.name}, line {number}: a quoted field that starts here {problem}; if quotes are text, save "
                "the file as TSV, without quotes around the names of its header.",
                code="unclosed-quote",
            )
        if found == TOO_LONG:
            raise line_too_long(self.name, line + line_starts(pending, self._begin).size - 1, self.options)
        if found == NEEDS_MORE:
            return -1
        self._reset()
        return int(found)


# ----------------------------------------------------------------------------------------------------------------------
# CSV and TSV: quoted fields may contain delimiters, doubled quotes and newlines.


def is_quoted(start: bytes, delimiter: str, options: TextOptions) -> bool:
    """Whether fields may be quoted: in CSV, and in TSV if all names of the header are."""
    if delimiter == ",":
        return True
    first = start.removeprefix(BOM).lstrip(b"\r\n").replace(b"\r", b"\n").partition(b"\n")[0]
    names = first.split(delimiter.encode())
    return options.header and all(len(name) > 1 and name[:1] == name[-1:] == b'"' for name in names)


def blank_size(data: bytes) -> int:
    """Size of the mark and of the blank lines that precede the first record of a file."""
    return len(data) - len(data.lstrip(BOM + b"\r\n"))


def parse_header(data: bytes, scanner: RecordScanner) -> tuple[str, ...]:
    """The column names at the beginning of the file that `scanner` reads: its first record that is not blank."""
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    records = _records(text, chr(scanner.delimiter), scanner.options, quoted=scanner.quoted)
    try:
        return tuple(next(filter(None, records), []))
    except csv.Error as error:
        raise InputError(f"{scanner.name}: the header cannot be read: {error}.", code="malformed-record") from None


def _records(text: str, delimiter: str, options: TextOptions, *, quoted: bool) -> "Reader":
    csv.field_size_limit(min(options.max_line_bytes, sys.maxsize))
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    # newline="" keeps LF, CR and CRLF in quoted fields, and lets the reader end records at them.
    return csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting)


def read_delimited(chunk: Chunk, options: TextOptions, *, labelled: bool, delimiter: str) -> Documents:
    """Read records; columns are named by the header, or 1, 2, … without one."""
    _check_columns(chunk, options, labelled=labelled)
    data = chunk.data[: chunk.size].tobytes()
    text = (data if chunk.offset else data.removeprefix(BOM)).decode("utf-8", "surrogateescape")
    records = _records(text, delimiter, options, quoted=chunk.quoted)
    parser = RecordParser(chunk.short, options, labelled=labelled, no_label=NOT_A_NUMBER)
    rows: list[ParsedRow] = []
    malformed: list[tuple[int, MalformedRowError]] = []
    multiline: list[int] = []
    lines_read = 0
    while True:
        begin = lines_read
        try:
            record = next(records, None)
        except csv.Error as error:
            raise InputError(f"{chunk.name}, line {chunk.line + begin}: {error}.", code="malformed-record") from None
        if record is None:
            break
        lines_read = records.line_num
        try:
            row = parser.row(_named(record, chunk), chunk.line + begin) if record else None
        except MalformedRowError as error:
            malformed.append((begin, error))
            continue
        if row is not None:
            rows.append(row)
            if lines_read - begin > 1:
                multiline.append(row.line)
    starts = line_starts(chunk.data, chunk.size if malformed else 0)
    bad = [error.at(chunk.line + k, chunk.offset + int(starts[k])) for k, error in malformed]
    return parser.documents(rows, bad, multiline)


def _check_columns(chunk: Chunk, options: TextOptions, *, labelled: bool) -> None:
    for name in sorted({*fields_by_use(options, labelled=labelled).values()}):
        if chunk.header.count(name) > 1:
            raise InputError(
                f"{chunk.name}: the header has {chunk.header.count(name)} columns {name!r}; rename all but one.",
                code="duplicate-column",
            )
    absent = set(options.where) - set(chunk.header)
    if chunk.header and absent:
        raise InputError(
            f"{chunk.name}: the header has no column {min(absent)!r}, which where names.", code="missing-field"
        )
    absent = set(options.carried) - set(chunk.header)
    if chunk.header and absent:
        there = ", ".join(chunk.header[:SHOWN])
        raise InputError(
            f"{chunk.name}: carried field {min(absent)!r} is missing: there is no such column; the columns are "
            f"{there}.",
            code="missing-field",
        )


def _named(record: list[str], chunk: Chunk) -> dict[str, str]:
    """The values of a record by name."""
    names = chunk.header or tuple(str(k + 1) for k in range(len(record)))
    if len(record) != len(names):
        quotes = not chunk.quoted and any(value.startswith('"') for value in record)
        hint = "; if quoted, quote the header too" if quotes else ""
        raise MalformedRowError(f"{len(record)} fields instead of {len(names)}{hint}")
    return dict(zip(names, record, strict=True))
