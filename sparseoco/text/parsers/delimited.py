"""CSV and TSV: quoted fields may hold delimiters, doubled quotes and newlines."""

import csv
import io
import sys
from typing import TYPE_CHECKING

from sparseoco.core.errors import InputError
from sparseoco.text.documents import Documents, Row, documents_of
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers.chunk import Chunk, UnreadableError, settle_label, utf8
from sparseoco.text.parsers.csv_records import line_starts

if TYPE_CHECKING:
    from _csv import Reader

# How tables write a number that is not there.
NOT_A_NUMBER = frozenset({"nan", "NaN", "NAN", "-nan", "-NaN"})


def read_csv(chunk: Chunk, options: TextOptions, *, labelled: bool) -> Documents:
    """Read comma-separated records; columns are named by the header, or 1, 2, … where there is none."""
    return _read(chunk, options, ",", labelled=labelled)


def read_tsv(chunk: Chunk, options: TextOptions, *, labelled: bool) -> Documents:
    """Read tab-separated records."""
    return _read(chunk, options, "\t", labelled=labelled)


def header_of(text: str, delimiter: str, name: str, options: TextOptions) -> tuple[str, ...]:
    """The column names in the beginning of the file `name`: its first record that is not blank."""
    try:
        return tuple(next(filter(None, _records(text.removeprefix("\ufeff"), delimiter, options)), []))
    except csv.Error as error:
        raise InputError(f"{name}: the names of the columns cannot be read: {error}.") from None


def _records(text: str, delimiter: str, options: TextOptions) -> "Reader":
    csv.field_size_limit(min(options.max_line_bytes, sys.maxsize))
    # newline="" hands lines over with their ends, so that LF, CR and CRLF end records and stay as they are in fields.
    return csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)


def _check_columns(chunk: Chunk, options: TextOptions, *, labelled: bool) -> None:
    used = {options.text_field, options.id_field, *options.where, *([options.label_field] if labelled else [])}
    for name in sorted(used):
        if chunk.header.count(name) > 1:
            raise InputError(
                f"{chunk.name}: the header names {chunk.header.count(name)} columns {name!r}; rename all but one."
            )


def _read(chunk: Chunk, options: TextOptions, delimiter: str, *, labelled: bool) -> Documents:
    _check_columns(chunk, options, labelled=labelled)
    text = chunk.data[: chunk.size].tobytes().decode("utf-8", "surrogateescape")
    if chunk.offset == 0:
        text = text.removeprefix("\ufeff")
    records = _records(text, delimiter, options)
    rows: list[Row] = []
    bad: list[tuple[int, UnreadableError]] = []
    done = 0
    while True:
        try:
            record = next(records, None)
        except csv.Error as error:
            raise InputError(f"{chunk.name}, line {chunk.line + done}: {error}.") from None
        if record is None:
            break
        before, done = done, records.line_num
        if not record:
            continue
        try:
            row = _row(record, chunk, chunk.line + before, options, labelled=labelled)
        except UnreadableError as error:
            bad.append((before, error))
            continue
        if row is not None:
            rows.append(row)
    starts = line_starts(chunk.data, chunk.size if bad else 0)
    placed = [error.at(chunk.line + k, chunk.offset + int(starts[k])) for k, error in bad]
    return documents_of(rows, placed, numbers=options.labels == "numbers", labelled=labelled)


def _row(record: list[str], chunk: Chunk, line: int, options: TextOptions, *, labelled: bool) -> Row | None:
    names = chunk.header or tuple(str(k + 1) for k in range(len(record)))
    if len(record) != len(names):
        raise UnreadableError(f"{len(record)} fields where {len(names)} were expected")
    values = dict(zip(names, record, strict=True))
    if any(values.get(name) != wanted for name, wanted in options.where.items()):
        return None
    label = None
    if labelled:
        value = values.get(options.label_field)
        if options.labels == "classes" and value in NOT_A_NUMBER:
            raise UnreadableError(f"label field {options.label_field!r} is missing: it holds {value!r}")
        label = settle_label(value, options)
    if options.text_field not in values:
        raise UnreadableError(f"text field {options.text_field!r} is missing")
    key = values.get(options.id_field, f"{chunk.short}:{line}")
    return Row(utf8(values[options.text_field], options), utf8(key, options).decode(), label, line)
