"""CSV and TSV: quoted fields may hold delimiters, doubled quotes and newlines."""

import csv
import io
import sys

from sparseoco.errors import InputError
from sparseoco.text.documents import BadRow, Documents, Row, documents_of
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers.chunk import Chunk, UnreadableError, settle_label, utf8


def read_csv(chunk: Chunk, options: TextOptions, *, labelled: bool) -> Documents:
    """Read comma-separated records; columns are named by the header, or 1, 2, … where there is none."""
    return _read(chunk, options, ",", labelled=labelled)


def read_tsv(chunk: Chunk, options: TextOptions, *, labelled: bool) -> Documents:
    """Read tab-separated records."""
    return _read(chunk, options, "\t", labelled=labelled)


def header_of(record: str, delimiter: str) -> tuple[str, ...]:
    """The column names in the first record of a file."""
    return tuple(next(csv.reader([record.removeprefix("\ufeff")], delimiter=delimiter), []))


def _read(chunk: Chunk, options: TextOptions, delimiter: str, *, labelled: bool) -> Documents:
    csv.field_size_limit(min(options.max_line_bytes, sys.maxsize))
    text = chunk.data[: chunk.size].tobytes().decode("utf-8", "surrogateescape")
    if chunk.offset == 0:
        text = text.removeprefix("\ufeff")
    records = csv.reader(io.StringIO(text, newline="\n"), delimiter=delimiter)
    rows: list[Row] = []
    bad: list[BadRow] = []
    done = 0
    while True:
        try:
            record = next(records, None)
        except csv.Error as error:
            raise InputError(f"{chunk.name}, line {chunk.line + done}: {error}.") from None
        if record is None:
            return documents_of(rows, bad, numbers=options.labels == "numbers", labelled=labelled)
        line = chunk.line + done
        done = records.line_num
        if not record:
            continue
        try:
            row = _row(record, chunk, line, options, labelled=labelled)
        except UnreadableError as error:
            bad.append(error.at(line, chunk.offset))
            continue
        if row is not None:
            rows.append(row)


def _row(record: list[str], chunk: Chunk, line: int, options: TextOptions, *, labelled: bool) -> Row | None:
    names = chunk.header or tuple(str(k + 1) for k in range(len(record)))
    if len(record) != len(names):
        raise UnreadableError(f"{len(record)} fields where {len(names)} were expected")
    values = dict(zip(names, record, strict=True))
    if any(values.get(name) != wanted for name, wanted in options.where.items()):
        return None
    label = None
    if labelled:
        label = settle_label(values.get(options.label_field), options)
    if options.text_field not in values:
        raise UnreadableError(f"text field {options.text_field!r} is missing")
    key = values.get(options.id_field, f"{chunk.short}:{line}")
    return Row(utf8(values[options.text_field], options), utf8(key, options).decode(), label, line)
