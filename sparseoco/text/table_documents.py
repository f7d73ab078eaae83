"""The documents of a part of a table: its rows as records, by the rules and error messages of JSON lines."""

from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.text.documents import BadRow, Documents, ParsedRow
from sparseoco.text.options import NumberField, TextOptions
from sparseoco.text.parsers.rows import FEATURES, SHOWN, MalformedRowError, RecordParser, fields_by_use, which_match
from sparseoco.text.table_files import (
    TableFacts,
    TableFile,
    check_parquet_types,
    check_unique,
    class_names_of_schema,
    column_arrays,
    column_path,
    concat_arrays,
    read_column,
    take_rows,
    to_bytes,
    top_columns,
)

SECONDS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}  # units of time in a second


def projection(table: TableFile, options: TextOptions, facts: TableFacts, *, labelled: bool) -> list[str]:
    """The columns to read.

    Raises `InputError` for a field that is not there, though ids and features may be absent, and for a carried column
    of a type that Parquet does not have.
    """
    fields = fields_by_use(options, labelled=labelled)
    check_unique(table.schema, fields, facts, table.path)
    in_path = facts.fields(table.schema)
    columns = []
    for use, field in fields.items():
        if column_path(table.schema, field) is not None:
            columns.append(field)
        elif use != "id" and not use.startswith(FEATURES) and field not in in_path:
            there = ", ".join([*table.schema.names, *in_path][:SHOWN])
            raise InputError(
                f"{table.path}: {use} field {field!r} is missing: there is no such column; the columns are {there}.",
                code="missing-field",
            )
    carried = [field for field in options.carried if field in columns]
    check_parquet_types(map(table.schema.field, top_columns(table.schema, carried)), table.path)
    return list(dict.fromkeys(columns))


def read_table(
    table: TableFile, short: str, start: int, stop: int, options: TextOptions, facts: TableFacts, *, labelled: bool
) -> Documents:
    """The documents in rows [start, stop) of a table, whose generated ids begin with `short`."""
    columns = projection(table, options, facts, labelled=labelled)
    try:
        rows = _Rows(table, start, stop, facts, columns)
        return _documents(rows, short, options, labelled=labelled)
    except pa.ArrowException as error:
        kinds = ", ".join(f"{name} ({table.schema.field(name).type})" for name in top_columns(table.schema, columns))
        raise InputError(
            f"{table.path}: a column has a type or values that cannot be used: {kinds}.", code="unsupported-format"
        ) from error


def _documents(table: "_Rows", short: str, options: TextOptions, *, labelled: bool) -> Documents:
    """`where` is decided by column, as Arrow writes values as text; columns are carried in their own types."""
    chosen = np.ones(table.size, np.bool_)
    for field, wanted in options.where.items():
        chosen &= _equals(table.column(field), wanted)
    by_row = options.model_copy(update={"where": {}, "carried": ()})
    parser = RecordParser(short, by_row, labelled=labelled)
    rows: list[ParsedRow] = []
    bad: list[BadRow] = []
    numbers = np.flatnonzero(chosen)
    for k, record in zip(numbers.tolist(), table.records(numbers, by_row, labelled=labelled), strict=True):
        try:
            row = parser.row(record, table.start + k + 1)
        except MalformedRowError as error:
            bad.append(error.at(table.start + k + 1, 0)._replace(place=table.place(k)))
            continue
        assert row is not None
        rows.append(row)
    kept = np.array([row.line - 1 - table.start for row in rows], np.int64)
    carried = {field: take_rows(table.unchanged(field), kept) for field in options.carried}
    return parser.documents(rows, bad, carried=carried)


class _Rows:
    """Rows [start, stop) of a table, by columns and as records."""

    def __init__(self, table: TableFile, start: int, stop: int, facts: TableFacts, columns: list[str]) -> None:
        self.start, self.size = start, stop - start
        self._table, self._facts, self._constants = table, facts, facts.fields(table.schema)
        self._batches = [batch for _, batch in table.read(columns, start, stop)]

    def column(self, field: str) -> pa.Array:
        """A column, or a field of its structs, without views, extensions and dictionaries."""
        path = column_path(self._table.schema, field)
        array = self._constant(field) if path is None else read_column(self._batches, path)
        return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array

    def unchanged(self, field: str) -> pa.Array:
        """A column in its own type."""
        path = column_path(self._table.schema, field)
        if path is None:
            return self._constant(field)
        arrays = column_arrays(self._batches, path)
        return concat_arrays(arrays, arrays[0].type)

    def _constant(self, field: str) -> pa.Array:
        return pa.repeat(pa.scalar(self._constants[field], pa.string()), self.size)

    def records(self, rows: NDArray[np.int64], options: TextOptions, *, labelled: bool) -> Iterator[Mapping[str, Any]]:
        """Some rows with the fields that are used and there; values as in JSON, times as seconds since 1970."""
        used = dict.fromkeys(fields_by_use(options, labelled=labelled).values())
        schema, columns = self._table.schema, {}
        for field in used:
            if column_path(schema, field) is None and field not in self._constants:
                continue
            array = take_rows(self.column(field), rows)
            if isinstance(options.fields.get(field), NumberField) and pa.types.is_floating(array.type):
                array = pc.if_else(pc.is_nan(array), None, array)
            if field == options.columns.get("time"):
                array = _seconds(array)
            columns[field] = _values(array)
        names = class_names_of_schema(schema, options.label_field) or self._facts.class_names
        if labelled and names and options.labels != "numbers":
            columns[options.label_field] = [_named(value, names) for value in columns[options.label_field]]
        values = zip(*columns.values(), strict=True) if columns else repeat((), rows.size)
        return (dict(zip(columns, row, strict=True)) for row in values)

    def place(self, k: int) -> str:
        """The row group and the row in the file, in words."""
        row, unit = self.start + k, self._table.unit
        group = int(np.searchsorted(self._table.first_rows(), row, side="right"))
        return f"{unit} {group}, row {row + 1}" if unit else f"row {row + 1}"


def _values(array: pa.Array) -> list[Any]:
    """The values in Python; bytes as text, and a scalar itself if Python has no such time: no name and no number."""
    raw = to_bytes(array)
    try:
        if raw is not None:
            array = raw.view(pa.large_string() if pa.types.is_large_binary(raw.type) else pa.string())
        return list(array.to_pylist())
    except (ValueError, OverflowError, LookupError):
        if raw is None:
            return [_value(value) for value in array]
        return [None if value is None else value.decode("utf-8", "surrogateescape") for value in raw.to_pylist()]


def _value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError, LookupError):
        return scalar


def _seconds(array: pa.Array) -> pa.Array:
    """Dates and times as seconds since 1970; other values as they are."""
    if pa.types.is_date(array.type):
        array = array.cast(pa.timestamp("s"))
    if not pa.types.is_timestamp(array.type):
        return array
    return pc.divide(array.cast(pa.int64()).cast(pa.float64(), safe=False), SECONDS[array.type.unit])


def _named(value: Any, names: tuple[str, ...]) -> Any:
    """Numbers of classes, in lists too, by their names."""
    if isinstance(value, list):
        return [_named(item, names) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return names[value] if 0 <= value < len(names) else None
    return value


def _equals(array: pa.Array, wanted: str) -> NDArray[np.bool_]:
    """Which values `matches` as text; nulls, lists and structs do not."""
    if pa.types.is_nested(array.type):
        return np.zeros(len(array), np.bool_)
    raw = to_bytes(array)
    if raw is None:
        array = array.cast(pa.float32()) if pa.types.is_float16(array.type) else array
        raw = array.cast(pa.string()).view(pa.binary())
    return which_match(raw, wanted)
