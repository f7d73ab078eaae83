"""What parsers of all formats share: runs of whole lines, fields of a record, bad rows."""

import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.store.manifest import Column
from sparseoco.text.documents import BadRow, Documents, ParsedRow
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
    """A row that cannot be read; reason, code and counted as in `BadRow`; the kind and name of a field it lacks."""

    def __init__(
        self,
        reason: str,
        *,
        code: str = "malformed-record",
        counted: bool = True,
        missing: tuple[str, str] | None = None,
    ) -> None:
        super().__init__(reason)
        self.missing = missing
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


def missing_field(kind: str, name: str, *, null: bool = False) -> MalformedRowError:
    """The error of a row without a field, or whose field is null."""
    reason = f"{kind} field {name!r} is {'null' if null else 'missing'}"
    return MalformedRowError(reason, code="missing-field", missing=(kind, name))


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


def which_match(values: pa.Array, wanted: str) -> NDArray[np.bool_]:
    """Which of some bytes `matches`; nulls do not."""
    if _scalar(wanted) is None:
        found = pc.equal(values, pa.scalar(wanted.encode("utf-8", "surrogatepass"), values.type))
    else:
        encoded = values.dictionary_encode()
        same = [matches(value.decode("latin-1"), wanted) for value in encoded.dictionary.to_pylist()]
        found = pa.array(same, pa.bool_()).take(encoded.indices)
    return np.asarray(found.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)


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
    return validate_class(encode_text(label, options).decode(), options)


def parse_columns(get: Callable[[str], Any], columns: Mapping[Column, str]) -> tuple[Any, ...]:
    """The values of optional columns of a row, whose fields `get` returns; `columns` has the field of each."""
    return tuple(_PARSE_COLUMN[name](get(field), field) for name, field in columns.items())


def parse_fields(get: Callable[[str], Any], options: TextOptions) -> tuple[bytes | float, ...]:
    """The values of ``options.fields`` of a row, whose fields `get` returns, in their order.

    An absent, null or empty value is none: an empty text or category, and the number NaN.
    """
    return tuple(_parse_field(get(name), name, field, options) for name, field in options.fields.items())


def _parse_field(value: Any, name: str, field: FieldOptions, options: TextOptions) -> bytes | float:
    if isinstance(field, NumberField):
        return parse_feature(value, name)
    if value is None:
        return b""
    if isinstance(field, CategoryField):
        return encode_text(parse_name(value, "category", name), options)
    if not isinstance(value, str):
        raise MalformedRowError(f"text field {name!r} is not a string")
    return encode_text(value, options)


def parse_feature(value: Any, name: str) -> float:
    """A number, or NaN for none: null, empty or as tables write it."""
    none = value is None or (isinstance(value, str) and (value == "" or value in NOT_A_NUMBER))
    return np.nan if none else parse_number(value, f"number field {name!r}")


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


def carried_text(value: Any, field: str) -> str:
    """A JSON value that is not null as text: the content of a string; of others compact JSON, as Python writes it.

    So 1.50 is written as 1.5. What is not valid UTF-8 becomes U+FFFD, whatever ``encoding_errors`` is: a column that is
    carried decides about no document.
    """
    if not isinstance(value, str):
        try:
            value = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        except RecursionError:
            raise MalformedRowError(f"carried field {field!r} is nested too deeply") from None
    return _SURROGATE.sub(REPLACEMENT, value)


def parse_carried(get: Callable[[str], Any], names: Sequence[str]) -> tuple[str | None, ...]:
    """The values of these fields of a row, whose fields `get` returns, as text; null is none."""
    return tuple(None if (value := get(name)) is None else carried_text(value, name) for name in names)


def _invalid_label(field: str, reason: str) -> MalformedRowError:
    return MalformedRowError(f"label field {field!r} {reason}", code="invalid-labels")


def validate_class(label: str, options: TextOptions) -> str:
    """The label, if it is one of the allowed classes."""
    if not options.has_class(label):
        raise unknown_class(options)
    return label


def unknown_class(options: TextOptions) -> MalformedRowError:
    """The error of a label that is not one of the allowed classes."""
    return MalformedRowError(
        f"the label is not one of the {len(options.classes or ())} classes of the options or the first ingest",
        code="unknown-class",
    )


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
        self._has_text = not options.fields
        self._classes: dict[str, str] = {}

    def row(self, record: Mapping[str, Any], line: int) -> ParsedRow | None:
        """The row of a record, whose values are as in JSON, or None if `where` excludes it."""
        get, options = record.get, self._options
        for name, wanted in self._where:
            value = get(name)
            if value is None or isinstance(value, list | dict) or not matches(_as_text(value), wanted):
                return None
        try:
            label = None if self._labels is None else self._label(get(options.label_field))
            text = self._text(get(options.text_field)) if self._has_text else ""
            key = get(options.id_field)
            if key is None:
                name = f"{self._short}:{line}"
            else:
                name = parse_name(key, "id", options.id_field)
                name = name if name.isascii() else encode_text(name, options).decode()
            encoded = encode_text(text, options)
            columns = parse_columns(get, self._columns) if self._columns else ()
            fields = parse_fields(get, options) if options.fields else ()
            carried = parse_carried(get, options.carried) if options.carried else ()
        except MalformedRowError as error:
            if error.missing is not None and record.get(error.missing[1], "") is None:
                raise missing_field(*error.missing, null=True) from None
            raise
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
        options = self._options
        if carried is None:
            carried = {
                name: pa.array([row.carried[k] for row in rows], pa.string()) for k, name in enumerate(options.carried)
            }
        return Documents.from_rows(
            rows,
            bad,
            self._labels,
            self._columns,
            fields=options.fields,
            multiline=multiline,
            carried=carried,
        )


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


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
    quoted : bool
        Whether fields may be quoted.
    """

    data: NDArray[np.uint8]
    size: int
    name: str
    short: str
    line: int
    offset: int
    header: tuple[str, ...] = ()
    quoted: bool = False

    def lines(self, options: TextOptions) -> NDArray[np.int64]:
        """Offsets of the lines, and the end. Raises `InputError` for a line that is too long."""
        lines = np.concatenate([[0], np.flatnonzero(self.data[: self.size] == ord("\n")) + 1])
        if lines[-1] < self.size:
            lines = np.append(lines, self.size)
        sizes = np.diff(lines)
        if sizes.size and sizes.max() > options.max_line_bytes:
            raise line_too_long(self.name, self.line + int(np.argmax(sizes > options.max_line_bytes)), options)
        return lines

    def parse_lines(self, options: TextOptions, parse: Callable[[str, int], R | None]) -> tuple[list[R], list[BadRow]]:
        """The results of parse(text, line number) for each line, without None; and the malformed lines."""
        rows: list[R] = []
        bad: list[BadRow] = []
        data = self.data[: self.size].tobytes()
        for k, (start, stop) in enumerate(itertools.pairwise(self.lines(options).tolist())):
            text = decode_lines(data[start:stop].rstrip(b"\r\n"), self.offset + start)
            try:
                row = parse(text, self.line + k)
            except MalformedRowError as error:
                bad.append(error.at(self.line + k, self.offset + start))
                continue
            if row is not None:
                rows.append(row)
        return rows, bad


def decode_lines(data: bytes, offset: int) -> str:
    """Text from `offset` of a file on, without a byte order mark; invalid UTF-8 becomes surrogates."""
    text = data.decode("utf-8", "surrogateescape")
    return text.removeprefix("\ufeff") if offset == 0 else text


def line_too_long(name: str, line: int | None, options: TextOptions) -> InputError:
    """The error of a line, or of a whole file, over the limit."""
    position = name if line is None else f"{name}, line {line}"
    return InputError(
        f"{position}: longer than {options.max_line_bytes} bytes; increase max_line_bytes to allow it.",
        code="line-too-long",
    )
