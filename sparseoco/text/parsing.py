"""What parsers of all formats share: runs of whole lines, fields of a record, bad rows."""

import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.store.manifest import Column
from sparseoco.text.documents import BadRow, Documents, ParsedRow, column_array, field_array
from sparseoco.text.options import CategoryField, FieldOptions, NumberField, TextOptions
from sparseoco.text.streams import AUTO, UTF8

# ----------------------------------------------------------------------------------------------------------------------
# Parsing of the fields of a row: text, labels and numbers; and the error of a malformed row.


REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
BOM = b"\xef\xbb\xbf"
MAX_FLOAT32 = float(np.finfo(np.float32).max)
SHOWN = 20  # columns in a message
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


def parse_field(value: Any, name: str, field: FieldOptions, options: TextOptions) -> bytes | float:
    """The value of one of ``options.fields``; none, if absent, null or empty, is an empty text or NaN."""
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


def _parse_group(value: Any, field: str) -> str:
    return _SURROGATE.sub(REPLACEMENT, parse_name(value, "group", field))


_PARSE_COLUMN: Mapping[Column, Callable[[Any, str], Any]] = {
    "weight": parse_weight,
    "group": _parse_group,
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
    fields |= {f"{FEATURES}{field}": field for field in options.fields}
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

    def __init__(
        self, short: str, options: TextOptions, *, labelled: bool, no_label: frozenset[str] = frozenset()
    ) -> None:
        self._options, self._short, self._no_label = options, short, no_label
        self._columns, self._where = options.columns, tuple(options.where.items())
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
        text = "" if options.fields else self._text(get(options.text_field))
        key = get(options.id_field)
        if key is None:
            name = f"{self._short}:{line}"
        else:
            name = parse_name(key, "id", options.id_field)
            name = name if name.isascii() else encode_text(name, options).decode()
        encoded = encode_text(text, options)
        columns = tuple(_PARSE_COLUMN[column](get(field), field) for column, field in self._columns.items())
        fields = tuple(parse_field(get(field), field, kind, options) for field, kind in options.fields.items())
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

    def _text(self, value: Any) -> str:
        if value is None:
            raise missing_field("text", self._options.text_field)
        if not isinstance(value, str):
            raise MalformedRowError(f"text field {self._options.text_field!r} is not a string")
        return value

    def documents(
        self,
        rows: list[ParsedRow],
        bad: list[BadRow],
        multiline: Sequence[int] = (),
        carried: Mapping[str, pa.Array] | None = None,
    ) -> Documents:
        """The documents of rows; `multiline` are the lines of those that span several.

        `carried` are the carried columns if the rows do not have them.
        """
        columns = {name: [row.columns[k] for row in rows] for k, name in enumerate(self._columns)}
        fields = {name: [row.fields[k] for row in rows] for k, name in enumerate(self._options.fields)}
        texts = {name: [row.carried[k] for row in rows] for k, name in enumerate(self._options.carried)}
        return Documents.from_rows(
            rows,
            bad,
            self._labels,
            columns={name: column_array(name, values) for name, values in columns.items()},
            multiline=np.array(multiline, np.int64),
            fields={name: field_array(values) for name, values in fields.items()},
            carried=carried or {name: pa.array(values, pa.string()) for name, values in texts.items()},
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
