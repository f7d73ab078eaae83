"""Parsers of whole lines or records, one for each format: bytes in, `Documents` or `CountedDocuments` out."""

import csv
import io
import json
import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.text import parsing
from sparseoco.text.documents import CountedDocuments, Documents, ParsedRow, label_array
from sparseoco.text.formats import DELIMITERS
from sparseoco.text.kernels import records as record_kernels
from sparseoco.text.options import TextOptions
from sparseoco.text.parsing import Chunk, MalformedRowError, RecordParser, encode_text, parse_label, parse_number

if TYPE_CHECKING:
    from _csv import Reader


# ----------------------------------------------------------------------------------------------------------------------
# JSON lines: one object per line.


BLANKS = b" \t\r\n"
_LONG_NUMBER = re.compile(rb"\d{19}")


def read_jsonl(chunk: Chunk, options: TextOptions, *, labelled: bool) -> Documents:
    """Read objects with a text, a label and optional columns if requested, and optionally an id.

    orjson parses a line. Python's parser, which is slower, does where orjson would round an integer, and where it
    refuses what Python accepts: lone surrogates and undecodable bytes, of which ``encoding_errors`` decides, and NaN.
    """
    parser = RecordParser(chunk.short, options, labelled=labelled)

    def parse(raw: bytes, line: int) -> ParsedRow | None:
        return parser.row(load_object(raw, nested=bool(options.carried)), line) if raw.strip(BLANKS) else None

    return parser.documents(*chunk.parse_lines(options, parse))


def object_keys(head: bytes) -> tuple[str, ...]:
    """The keys of the object in the first line of some text, if it is one."""
    for line in head.removeprefix(parsing.BOM).splitlines()[:-1] or [head]:
        if line.strip():
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError:
                return ()
            return tuple(row) if isinstance(row, dict) else ()
    return ()


def load_object(raw: bytes, *, nested: bool) -> dict[str, Any]:
    """The object of a line, with exact integers, if `nested` also within its lists and objects."""
    try:
        row = orjson.loads(raw)
    except orjson.JSONDecodeError:
        row = _load_exactly(raw)
    if not isinstance(row, dict):
        raise MalformedRowError("not a JSON object")
    for value in row.values():
        kind = type(value)
        is_long = kind is float and abs(value) >= 2**63  # perhaps an integer beyond 64 bits, which orjson rounds
        if is_long or (nested and kind in (list, dict) and _LONG_NUMBER.search(raw)):
            return _load_exactly(raw)  # type: ignore[no-any-return]
    return row


def _load_exactly(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        raise MalformedRowError("not valid JSON") from None


# ----------------------------------------------------------------------------------------------------------------------
# Boundaries of the records and lines of CSV and TSV.


def quote(delimiter: str) -> int:
    """The byte that quotes fields: in CSV only."""
    return record_kernels.QUOTE if delimiter == "," else record_kernels.NO_QUOTE


def line_starts(data: bytes | memoryview | NDArray[np.uint8], size: int) -> NDArray[np.int64]:
    """Offsets of the lines of data[:size], as csv.reader counts them: 0, and after each LF, CR and CRLF."""
    text = np.frombuffer(data, np.uint8, size)
    ends = (text == record_kernels.NEWLINE) | (text == record_kernels.RETURN)
    ends[:-1] &= ~((text[:-1] == record_kernels.RETURN) & (text[1:] == record_kernels.NEWLINE))
    return np.concatenate([[0], np.flatnonzero(ends) + 1])


@dataclass
class RecordScanner:
    """Finds ends of records in a file that is read in parts, scanning each byte once.

    Records are those of `csv.reader`; their ends depend neither on the parts nor on where the file is split. Every line
    of TSV is a record.
    """

    name: str
    delimiter: str
    options: TextOptions
    at_start: bool = True  # of the file, where a mark may precede the first record

    def __post_init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._position, self._state, self._begin, self._opened = 0, record_kernels.RECORD_START, 0, 0

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
            if len(pending) < len(parsing.BOM) and not at_end:
                return -1
            self.at_start = False
            self._position = len(parsing.BOM) if pending[: len(parsing.BOM)] == parsing.BOM else 0
        found, self._position, self._state, self._begin, self._opened = record_kernels.scan_records(
            np.frombuffer(pending, np.uint8), self._position, self._state, self._begin, self._opened,
            at_least, self.options.max_line_bytes, ord(self.delimiter), quote(self.delimiter), at_end,
        )  # fmt: skip
        if self._state == record_kernels.QUOTED and (found == record_kernels.TOO_LONG or at_end):
            number = line + line_starts(pending, self._opened).size - 1
            problem = (
                f"is longer than {self.options.max_line_bytes} bytes; close it, or increase max_line_bytes"
                if found == record_kernels.TOO_LONG
                else "is still open at the end of the file"
            )
            raise InputError(
                f"{self.name}, line {number}: a quoted field that starts here {problem}; if quotes are text, save "
                "the file as TSV.",
                code="unclosed-quote",
            )
        if found == record_kernels.TOO_LONG:
            raise parsing.line_too_long(self.name, line + line_starts(pending, self._begin).size - 1, self.options)
        if found == record_kernels.NEEDS_MORE:
            return -1
        self._reset()
        return int(found)


# ----------------------------------------------------------------------------------------------------------------------
# CSV and TSV. Quoted fields of CSV may contain delimiters, doubled quotes and newlines; in TSV quotes are text.


def blank_size(data: bytes) -> int:
    """Size of the mark and of the blank lines that precede the first record of a file."""
    return len(data) - len(data.lstrip(parsing.BOM + b"\r\n"))


def parse_header(data: bytes, scanner: RecordScanner) -> tuple[str, ...]:
    """The column names at the beginning of the file that `scanner` reads: its first record that is not blank."""
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    records = _records(text, scanner.delimiter, scanner.options)
    try:
        return tuple(next(filter(None, records), []))
    except csv.Error as error:
        raise InputError(f"{scanner.name}: the header cannot be read: {error}.", code="malformed-record") from None


def _records(text: str, delimiter: str, options: TextOptions) -> "Reader":
    csv.field_size_limit(min(options.max_line_bytes, sys.maxsize))
    quoting: Literal[0, 3] = csv.QUOTE_NONE if quote(delimiter) == record_kernels.NO_QUOTE else csv.QUOTE_MINIMAL
    # newline="" keeps LF, CR and CRLF in quoted fields, and lets the reader end records at them.
    return csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting)


def read_delimited(chunk: Chunk, options: TextOptions, *, labelled: bool, delimiter: str) -> Documents:
    """Read records; columns are named by the header, or 1, 2, … without one."""
    if chunk.header:
        mend = ", or --no-header if the first line is a document" if options.header else ""
        parsing.check_columns(chunk.header, chunk.name, options, labelled=labelled, mend=mend)
    data = chunk.data[: chunk.size].tobytes()
    text = (data if chunk.offset else data.removeprefix(parsing.BOM)).decode("utf-8", "surrogateescape")
    records = _records(text, delimiter, options)
    parser = RecordParser(chunk.short, options, labelled=labelled, no_label=parsing.NOT_A_NUMBER)
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
            row = parser.row(_named(record, chunk.header), chunk.line + begin) if record else None
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


def _named(record: list[str], header: tuple[str, ...]) -> dict[str, str]:
    """The values of a record by name."""
    names = header or tuple(str(k + 1) for k in range(len(record)))
    if len(record) != len(names):
        raise MalformedRowError(f"{len(record)} fields instead of {len(names)}")
    return dict(zip(names, record, strict=True))


# ----------------------------------------------------------------------------------------------------------------------
# Plain text, one document per line, without labels.


def read_lines(chunk: Chunk, options: TextOptions, *, labelled: bool) -> Documents:
    """Every line is a document, even an empty one. There are no labels, requested or not."""

    def parse(raw: bytes, line: int) -> ParsedRow:
        return ParsedRow(encode_text(_decoded(raw), options), f"{chunk.short}:{line}", None, line)

    return Documents.from_rows(*chunk.parse_lines(options, parse), None)


def _decoded(raw: bytes) -> str:
    """A line without its end; invalid UTF-8 becomes surrogates."""
    return raw.rstrip(b"\r\n").decode("utf-8", "surrogateescape")


# ----------------------------------------------------------------------------------------------------------------------
# Common code of formats whose documents are pairs of a feature name and a count.


Pairs = list[tuple[str, float]]


def read_counted(
    chunk: Chunk, options: TextOptions, parse: Callable[[str], tuple[Pairs, Any] | None], *, labelled: bool
) -> CountedDocuments:
    """Documents of all lines; parse(text) returns the pairs and the label of a line, or None for a blank line.

    Counts of a repeated name in a line are summed, and counts of zero are omitted.
    """

    def parse_row(raw: bytes, line: int) -> tuple[int, dict[str, float], Any] | None:
        parsed = parse(_decoded(raw))
        if parsed is None:
            return None
        sums: dict[str, float] = {}
        for name, count in parsed[0]:
            sums[name] = sums.get(name, 0.0) + count
        if not all(abs(value) <= parsing.MAX_FLOAT32 for value in sums.values()):
            raise MalformedRowError(f"a count is larger than {parsing.MAX_FLOAT32:.3g}")
        return line, {name: value for name, value in sums.items() if value != 0.0}, parsed[1]

    rows, bad = chunk.parse_lines(options, parse_row)
    numbers: dict[str, int] = {}
    features = [numbers.setdefault(name, len(numbers)) for _, counts, _ in rows for name in counts]
    counts = np.array([value for _, counts, _ in rows for value in counts.values()], np.float64)
    return CountedDocuments(
        indptr=np.cumsum([0, *(len(counts) for _, counts, _ in rows)], dtype=np.int64),
        features=np.array(features, np.int64),
        counts=counts,
        names=pa.array(list(numbers), pa.string()),
        ids=pa.array([f"{chunk.short}:{line}" for line, _, _ in rows], pa.string()),
        labels=label_array([label for _, _, label in rows], options.labels if labelled else None),
        lines=np.array([line for line, _, _ in rows], np.int64),
        bad=bad,
    )


# ----------------------------------------------------------------------------------------------------------------------
# SVMlight and LIBSVM: `label [qid:q] index:value … [# comment]`, one document per line.
#
# With any number of labels per document, they are separated by commas, and a document without one begins with its
# values.


MAX_INDEX = 2**63 - 1
MAX_DIGITS = len(str(MAX_INDEX))


def read_svmlight(chunk: Chunk, options: TextOptions, *, labelled: bool) -> CountedDocuments:
    """The name of a feature is its index as in the file."""

    def parse(text: str) -> tuple[Pairs, Any] | None:
        items = text.partition("#")[0].split()
        if not items:
            return None
        label = items[0] if ":" not in items[0] else None
        pairs: Pairs = []
        for item in items if label is None else items[1:]:
            index, colon, value = item.partition(":")
            if index != "qid":
                pairs.append((_feature(index, colon), parse_number(value, "a value")))
        return pairs, parse_label(_label(label, options), options) if labelled else None

    return read_counted(chunk, options, parse, labelled=labelled)


def _feature(index: str, colon: str) -> str:
    if not colon or not (index.isascii() and index.isdigit()):
        raise MalformedRowError("an item is not of the form index:value")
    name = index.lstrip("0") or "0"
    if len(name) > MAX_DIGITS or int(name) > MAX_INDEX:
        raise MalformedRowError(f"an index is greater than {MAX_INDEX}")
    return name


def _label(label: str | None, options: TextOptions) -> str | list[str] | None:
    if options.labels == "multi":
        return [_class_name(name) for name in label.split(",")] if label is not None else []
    return label if label is None or options.labels == "numbers" else _class_name(label)


def _class_name(label: str) -> str:
    """One name for +1, 1 and 1.0. Numbers that are not finite are no class."""
    try:
        value = float(label)
    except ValueError:
        return label
    if "_" in label:
        raise MalformedRowError("the label is not a number", code="invalid-labels")
    if not math.isfinite(value):
        raise MalformedRowError(f"the label is {value}, which is not a class", code="invalid-labels")
    return str(int(value)) if value.is_integer() else str(value)


# ----------------------------------------------------------------------------------------------------------------------
# The processed form of the Multi-Domain Sentiment data: `feature:count … #label#:positive`, one document per line.


LABEL = "#label#"


def read_processed(chunk: Chunk, options: TextOptions, *, labelled: bool) -> CountedDocuments:
    """Names may contain colons and any Unicode; the count follows the last colon."""

    def parse(text: str) -> tuple[Pairs, Any] | None:
        if not text.strip(" \t"):
            return None
        label = None
        pairs: Pairs = []
        for item in filter(None, text.split(" ")):
            name, colon, value = item.rpartition(":")
            if name == LABEL:
                if label is not None:
                    raise MalformedRowError("two labels", code="invalid-labels")
                label = value
                continue
            if not colon or not name:
                raise MalformedRowError("an item is not of the form feature:count")
            pairs.append((encode_text(name, options).decode(), parse_number(value, "a count")))
        return pairs, parse_label(label, options) if labelled else None

    return read_counted(chunk, options, parse, labelled=labelled)


PARSERS: dict[str, Callable[..., Documents | CountedDocuments]] = {
    "jsonl": read_jsonl,
    **{form: partial(read_delimited, delimiter=delimiter) for form, delimiter in DELIMITERS.items()},
    "lines": read_lines,
    "processed": read_processed,
    "svmlight": read_svmlight,
}
