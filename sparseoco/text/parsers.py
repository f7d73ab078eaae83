"""Parsers of whole lines or records, one for each format: bytes in, `Documents` or `CountedDocuments` out.

First what they share: fields of a record, bad rows, runs of whole lines.
"""

import csv
import io
import itertools
import json
import math
import re
import sys
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.store.manifest import Column
from sparseoco.store.shards import COLUMN_DTYPES
from sparseoco.text.documents import BadRow, CountedDocuments, Documents, ParsedRow, hash_strings, label_array
from sparseoco.text.formats import AUTO, DELIMITERS, UTF8
from sparseoco.text.kernels import records as record_kernels
from sparseoco.text.options import CategoryField, FieldOptions, NumberField, TextOptions, VectorField

if TYPE_CHECKING:
    from _csv import Reader


# ----------------------------------------------------------------------------------------------------------------------
# Parsing of the fields of a row: text, labels and numbers; and the error of a malformed row.


REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
BOM = b"\xef\xbb\xbf"
MAX_FLOAT32 = float(np.finfo(np.float32).max)
SHOWN = 20  # columns in a message
GROUP_BITS = 63  # of the hash of a group
# How tables write a missing number.
NOT_A_NUMBER = frozenset({"nan", "NaN", "NAN", "-nan", "-NaN"})
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_SURROGATE = re.compile("[\ud800-\udfff]")


class MalformedRowError(Exception):
    """A row that cannot be read; reason, code and counted as in `BadRow`."""

    def __init__(self, reason: str, *, code: str = "malformed-record", counted: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code
        self.counted = counted

    def at(self, line: int, offset: int) -> BadRow:
        """The bad row at a position of the file."""
        return BadRow(line, offset, self.reason, self.code, self.counted)


def encode_text(text: str, options: TextOptions) -> bytes:
    """UTF-8 of a text; `encoding_errors` decides about undecodable bytes and lone surrogates."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        if options.encoding_errors == "replace":
            return _SURROGATE.sub(REPLACEMENT, text).encode()
        codec = "UTF-8" if options.encoding in (UTF8, AUTO) else options.encoding
        raise MalformedRowError(
            f"not valid {codec}", code="encoding", counted=options.encoding_errors == "error"
        ) from None


def missing_field(kind: str, name: str) -> MalformedRowError:
    """The error of a row without a field, or whose field is null."""
    return MalformedRowError(f"{kind} field {name!r} is missing or null", code="missing-field")


def parse_name(value: Any, kind: str, name: str) -> str:
    """A JSON string, integer or boolean as a name."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    if value is None:
        raise missing_field(kind, name)
    code = "invalid-labels" if kind == "label" else "malformed-record"
    mend = ': set labels = "numbers", or choose another field' if kind == "label" and isinstance(value, float) else ""
    raise MalformedRowError(f"{kind} field {name!r} is neither a string nor an integer{mend}", code=code)


def matches(value: str, wanted: str) -> bool:
    """Whether a value, as text, is the one that `where` names: the same text, truth value in any case, or number.

    >>> matches("True", "true"), matches("1.0", "1"), matches("01", "1")
    (True, True, False)
    """
    return value == wanted or ((scalar := _scalar(wanted)) is not None and _scalar(value) == scalar)


@lru_cache(1024)
def _scalar(text: str) -> str | None:
    """One form for all spellings of a truth value or of a number as JSON has it; None for other text."""
    if text.lower() in ("true", "false"):
        return text.lower()
    number = _JSON_NUMBER.fullmatch(text)
    if number is None:
        return None
    if number[1] is number[2] is None:
        return "0" if text == "-0" else text  # of any size
    value = float(text)
    return str(int(value)) if value.is_integer() else repr(value)


def parse_label(value: Any, options: TextOptions) -> Any:
    """The label of a row: a class name, a float, or a sorted list of class names; of several, text has commas."""
    field = options.label_field
    if options.labels == "multi":
        if value is None:
            raise missing_field("label", field)
        if isinstance(value, str):
            value = [item.strip(" ") for item in value.split(",")] if value.strip(" ") else []
        return sorted({_parse_class(item, options) for item in (value if isinstance(value, list) else [value])})
    if isinstance(value, list):
        raise _invalid_label(field, 'is a list: set labels = "multi", or choose another field')
    if options.labels == "numbers":
        if value is None:
            raise missing_field("label", field)
        return parse_number(value, f"label field {field!r}", code="invalid-labels")
    return _parse_class(value, options)


def _parse_class(value: Any, options: TextOptions) -> str:
    label = parse_name(value, "label", options.label_field)
    if label == "":
        raise _invalid_label(options.label_field, "is empty")
    label = encode_text(label, options).decode()
    if not options.has_class(label):
        raise MalformedRowError(
            f"the label is not one of the {len(options.classes or ())} classes of the options or the first ingest",
            code="unknown-class",
        )
    return label


def parse_field(value: Any, name: str, field: FieldOptions, options: TextOptions) -> bytes | float | list[float]:
    """The value of one of ``options.fields``; none, if absent, null or empty, is an empty text or NaN."""
    if isinstance(field, VectorField):
        if value is None or value == "":
            return [np.nan] * field.size
        if not isinstance(value, list) or len(value) != field.size:
            raise MalformedRowError(f"vector field {name!r} is not a list of {field.size:,} numbers")
        return [parse_number(number, f"vector field {name!r}") for number in value]
    if isinstance(field, NumberField):
        if value in (None, "") or (isinstance(value, str) and value in NOT_A_NUMBER):
            return np.nan
        return parse_number(value, f"number field {name!r}")
    if value is None:
        return b""
    if isinstance(field, CategoryField):
        return encode_text(parse_name(value, "category", name), options)
    if not isinstance(value, str):
        raise MalformedRowError(f"text field {name!r} is not a string")
    return encode_text(value, options)


def parse_weight(value: Any, field: str) -> float:
    """A sample weight: a number from 0 to the largest of 32 bits."""
    if value is None:
        raise missing_field("weight", field)
    weight = parse_number(value, f"weight field {field!r}")
    if not 0.0 <= weight <= MAX_FLOAT32:
        raise MalformedRowError(f"weight field {field!r} is negative or larger than {MAX_FLOAT32:.3g}")
    return weight


def parse_time(value: Any, field: str) -> float:
    """A number, or the seconds since 1970 of an ISO 8601 date or time; UTC unless it names another offset."""
    if value is None:
        raise missing_field("time", field)
    try:
        return parse_number(value, f"time field {field!r}")
    except MalformedRowError:
        try:
            moment = datetime.fromisoformat(value)
        except (TypeError, ValueError):
            raise MalformedRowError(f"time field {field!r} is neither a finite number nor an ISO 8601 date") from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


_PARSE_COLUMN: Mapping[Column, Callable[[Any, str], Any]] = {
    "weight": parse_weight,
    "group": lambda value, field: _SURROGATE.sub(REPLACEMENT, parse_name(value, "group", field)),
    "time": parse_time,
}


def carried_text(value: Any, field: str) -> str | None:
    """A JSON value as text: the content of a string; of others compact JSON, as Python writes it; None for null.

    So 1.50 is written as 1.5. What is not valid UTF-8 becomes U+FFFD, whatever ``encoding_errors`` is: a column that is
    carried decides about no document.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        try:
            value = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        except RecursionError:
            raise MalformedRowError(f"carried field {field!r} is nested too deeply") from None
    return _SURROGATE.sub(REPLACEMENT, value)


def _invalid_label(field: str, reason: str) -> MalformedRowError:
    return MalformedRowError(f"label field {field!r} {reason}", code="invalid-labels")


def parse_number(value: Any, what: str, *, code: str = "malformed-record") -> float:
    """A finite number. Unlike `float`, neither 1_0 nor digits of other scripts are accepted."""
    try:
        if isinstance(value, str) and ("_" in value or not value.isascii()):
            raise ValueError
        result = float(value)
    except OverflowError:
        result = np.inf
    except (TypeError, ValueError):
        raise MalformedRowError(f"{what} is not a number", code=code) from None
    if not np.isfinite(result):
        raise MalformedRowError(f"{what} is not finite", code=code)
    return result


# ----------------------------------------------------------------------------------------------------------------------
# A record: a row with named fields, as JSON lines, CSV and tables have.


FEATURES = "features of "


def fields_by_use(options: TextOptions, *, labelled: bool) -> dict[str, str]:
    """The fields that are read, by use."""
    fields: dict[str, str] = {} if options.fields else {"text": options.text_field}
    fields |= {"id": options.id_field}
    fields |= {"label": options.label_field} if labelled else {}
    fields |= {str(name): field for name, field in options.columns.items()}
    fields |= {f"{FEATURES}{name}": field for name, field in options.record_fields.items()}
    fields |= {f"carried {field}": field for field in options.carried}
    return fields | {f"where {field}": field for field in options.where}


def check_columns(names: Sequence[str], path: str, options: TextOptions, *, labelled: bool, mend: str = "") -> None:
    """Check that the fields that are read are columns of a file; its ids and its features may be absent.

    Raises `InputError` for a field that is not there, with what to do, to which `mend` adds; or that is there twice.
    """
    absent: dict[str, str] = {}
    for use, field in fields_by_use(options, labelled=labelled).items():
        if names.count(field) > 1:
            raise InputError(
                f"{path}: there are {names.count(field)} columns {field!r}; rename all but one.",
                code="duplicate-column",
            )
        if field not in names and use != "id" and not use.startswith(FEATURES):
            absent[use.partition(" ")[0]] = field
    for use, field in absent.items():
        flags = f": set {field_flags(absent)}{mend}" if set(absent) - {"where", "carried"} else ""
        raise InputError(
            f"{path}: {use} field {field!r} is missing: there is no such column; the columns are "
            f"{shown(names)}{flags}.",
            code="missing-field",
        )


def shown(names: Sequence[str]) -> str:
    """The first names of fields, in a message."""
    return ", ".join(repr(name if len(name) <= 40 else f"{name[:39]}…") for name in names[:SHOWN])


def field_flags(uses: Iterable[str]) -> str:
    """The options that name the fields of these uses."""
    return " and ".join(f"--{use}-field" for use in uses if use not in ("where", "carried"))


class RecordParser:
    """Turns records into rows, which have labels if `labelled`, and rows into documents.

    Generated ids begin with `short`. Of classes, the names `no_label` stand for none.
    """

    def __init__(self, short: str, options: TextOptions, *, labelled: bool, no_label: Container[str] = ()) -> None:
        self._options, self._short, self._no_label = options, short, no_label
        self._columns, self._where = options.columns, tuple(options.where.items())
        self._fields = [(options.record_fields[name], name, kind) for name, kind in options.fields.items()]
        self._labels = options.labels if labelled else None
        self._classes: dict[str, str] = {}

    def row(self, record: Mapping[str, Any], line: int) -> ParsedRow | None:
        """The row of a record, whose values are as in JSON, or None if `where` excludes it."""
        get, options = record.get, self._options
        for name, wanted in self._where:
            value = get(name)
            if value is None or isinstance(value, list | dict) or not matches(str(value), wanted):
                return None
        label = None if self._labels is None else self._label(get(options.label_field))
        text = "" if options.fields else get(options.text_field)
        if text is None:
            raise missing_field("text", options.text_field)
        if not isinstance(text, str):
            raise MalformedRowError(f"text field {options.text_field!r} is not a string")
        key = get(options.id_field)
        if key is None:
            name = f"{self._short}:{line}"
        else:
            name = parse_name(key, "id", options.id_field)
            name = name if name.isascii() else encode_text(name, options).decode()
        encoded = encode_text(text, options)
        columns = tuple(_PARSE_COLUMN[column](get(field), field) for column, field in self._columns.items())
        fields = tuple(parse_field(get(field), name, kind, options) for field, name, kind in self._fields)
        carried = tuple(carried_text(get(field), field) for field in options.carried)
        return ParsedRow(encoded, name, label, line, columns, fields, carried)

    def _label(self, value: Any) -> Any:
        if self._labels != "classes" or not isinstance(value, str):
            return parse_label(value, self._options)
        if value not in self._classes:
            if value in self._no_label:
                raise missing_field("label", self._options.label_field)
            self._classes[value] = parse_label(value, self._options)
        return self._classes[value]

    def documents(self, rows: list[ParsedRow], bad: list[BadRow], multiline: Sequence[int] = ()) -> Documents:
        """The documents of rows; `multiline` are the lines of those that span several."""
        columns: dict[Column, NDArray[Any]] = {}
        for k, column in enumerate(self._columns):
            values = [row.columns[k] for row in rows]
            if column == "group":  # a hash is kept of strings
                columns[column] = hash_strings(pa.array(values, pa.string()), 0, GROUP_BITS)
            else:
                columns[column] = np.array(values, COLUMN_DTYPES[column])
        fields: dict[str, pa.Array | NDArray[np.float64]] = {}
        for k, (name, field) in enumerate(self._options.fields.items()):
            values = [row.fields[k] for row in rows]
            if isinstance(field, NumberField):
                fields[name] = np.array(values, np.float64)
            elif isinstance(field, VectorField):
                fields[name] = np.array(values, np.float64).reshape(len(rows), field.size)
            else:
                fields[name] = pa.array(values, pa.binary()).cast(pa.string())
        texts = {name: [row.carried[k] for row in rows] for k, name in enumerate(self._options.carried)}
        return Documents.from_rows(
            rows,
            bad,
            self._labels,
            columns=columns,
            multiline=np.array(multiline, np.int64),
            fields=fields,
            carried={name: pa.array(values, pa.string()) for name, values in texts.items()},
        )


# ----------------------------------------------------------------------------------------------------------------------
# A run of whole lines of one file in memory.


SLACK = 17
R = TypeVar("R")


class Chunk(NamedTuple):
    """Whole lines of a file.

    Parameters
    ----------
    data : ndarray of uint8
        `size` bytes of text, then a newline and sixteen zeros, so that kernels can read ahead.
    name, short : str
        Names of the file in messages and in generated ids.
    line, offset : int
        Number of the first line, from 1, and offset of its first byte in the uncompressed file.
    header : tuple of str
        Column names, if the file has them.
    """

    data: NDArray[np.uint8]
    size: int
    name: str
    short: str
    line: int
    offset: int
    header: tuple[str, ...] = ()

    def lines(self, options: TextOptions) -> NDArray[np.int64]:
        """Offsets of the lines, and the end. Raises `InputError` for a line that is too long."""
        lines = np.concatenate([[0], np.flatnonzero(self.data[: self.size] == ord("\n")) + 1])
        if lines[-1] < self.size:
            lines = np.append(lines, self.size)
        sizes = np.diff(lines)
        if sizes.size and sizes.max() > options.max_line_bytes:
            raise line_too_long(self.name, self.line + int(np.argmax(sizes > options.max_line_bytes)), options)
        return lines

    def parse_lines(
        self, options: TextOptions, parse: Callable[[bytes, int], R | None]
    ) -> tuple[list[R], list[BadRow]]:
        """The results of parse(text, line number) for each line with its end, without None; and the malformed lines.

        The first line of a file comes without a byte order mark.
        """
        rows: list[R] = []
        bad: list[BadRow] = []
        data = self.data[: self.size].tobytes()
        for line, (start, stop) in enumerate(itertools.pairwise(self.lines(options).tolist()), self.line):
            text = data[start:stop] if self.offset + start else data[start:stop].removeprefix(BOM)
            try:
                row = parse(text, line)
            except MalformedRowError as error:
                bad.append(error.at(line, self.offset + start))
                continue
            if row is not None:
                rows.append(row)
        return rows, bad


def line_too_long(name: str, line: int | None, options: TextOptions) -> InputError:
    """The error of a line, or of a whole file, over the limit."""
    position = name if line is None else f"{name}, line {line}"
    return InputError(
        f"{position}: longer than {options.max_line_bytes} bytes; increase max_line_bytes to allow it.",
        code="line-too-long",
    )


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
    for line in head.removeprefix(BOM).splitlines()[:-1] or [head]:
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
            if len(pending) < len(BOM) and not at_end:
                return -1
            self.at_start = False
            self._position = len(BOM) if pending[: len(BOM)] == BOM else 0
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
            raise line_too_long(self.name, line + line_starts(pending, self._begin).size - 1, self.options)
        if found == record_kernels.NEEDS_MORE:
            return -1
        self._reset()
        return int(found)


# ----------------------------------------------------------------------------------------------------------------------
# CSV and TSV. Quoted fields of CSV may contain delimiters, doubled quotes and newlines; in TSV quotes are text.


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
        check_columns(chunk.header, chunk.name, options, labelled=labelled, mend=mend)
    data = chunk.data[: chunk.size].tobytes()
    text = (data if chunk.offset else data.removeprefix(BOM)).decode("utf-8", "surrogateescape")
    records = _records(text, delimiter, options)
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
            row = None
            if record:
                names = chunk.header or tuple(str(k + 1) for k in range(len(record)))
                if len(record) != len(names):
                    raise MalformedRowError(f"{len(record)} fields instead of {len(names)}")
                row = parser.row(dict(zip(names, record, strict=True)), chunk.line + begin)
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
        if not all(abs(value) <= MAX_FLOAT32 for value in sums.values()):
            raise MalformedRowError(f"a count is larger than {MAX_FLOAT32:.3g}")
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
