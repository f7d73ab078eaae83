"""The documents of a part of a table, by column: the text as spans of Arrow's buffers, without a copy.

The rules for absent, null and unsuitable values, and their error messages, are those of JSON lines (`parsers.fields`).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.store.manifest import Column
from sparseoco.text.documents import BadRow, Documents, column_array, label_array
from sparseoco.text.options import FieldOptions, NumberField, TextField, TextOptions
from sparseoco.text.parsers.rows import (
    MAX_FLOAT32,
    SHOWN,
    MalformedRowError,
    encode_text,
    missing_field,
    parse_feature,
    parse_label,
    parse_name,
    parse_number,
    parse_time,
    unknown_class,
    which_match,
)
from sparseoco.text.table_files import (
    Spans,
    TableFacts,
    TableFile,
    check_parquet_types,
    check_unique,
    class_names_of_schema,
    column_arrays,
    column_path,
    concat_arrays,
    is_text,
    read_column,
    take_rows,
    text_spans,
    to_strings,
    top_columns,
    validity,
)

FEATURES = "features of "
SECONDS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}  # units of time in a second


def table_fields(options: TextOptions, *, labelled: bool) -> dict[str, str]:
    """The fields that are read, by use."""
    fields: dict[str, str] = {} if options.fields else {"text": options.text_field}
    fields |= {"id": options.id_field}
    fields |= {"label": options.label_field} if labelled else {}
    fields |= {str(name): field for name, field in options.columns.items()}
    fields |= {f"{FEATURES}{field}": field for field in options.fields}
    fields |= {f"carried {field}": field for field in options.carried}
    return fields | {f"where {field}": field for field in options.where}


def projection(table: TableFile, options: TextOptions, facts: TableFacts, *, labelled: bool) -> list[str]:
    """The columns to read.

    Raises `InputError` for a field that is not there, though ids and features may be absent, and for a carried column
    of a type that Parquet does not have.
    """
    fields = table_fields(options, labelled=labelled)
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
        return _Rows(table, short, start, stop, options, facts, columns).documents(labelled=labelled)
    except pa.ArrowException as error:
        kinds = ", ".join(f"{name} ({table.schema.field(name).type})" for name in top_columns(table.schema, columns))
        raise InputError(
            f"{table.path}: a column has a type or values that cannot be used: {kinds}.", code="unsupported-format"
        ) from error


class _Rows:
    """Rows of a table: which of them are documents, and the reasons of those that are bad."""

    def __init__(
        self,
        table: TableFile,
        short: str,
        start: int,
        stop: int,
        options: TextOptions,
        facts: TableFacts,
        columns: list[str],
    ) -> None:
        self._table, self._short, self._start, self._size = table, short, start, stop - start
        self._options, self._facts = options, facts
        self._batches = [batch for _, batch in table.read(columns, start, stop)]
        self._kept = np.ones(self._size, np.bool_)
        self._bad: dict[int, MalformedRowError] = {}

    def documents(self, *, labelled: bool) -> Documents:
        """The documents of all rows."""
        options = self._options
        for field, wanted in options.where.items():
            self._kept &= _equals(self._column(field), wanted)
        labels: Any = self._labels() if labelled else None
        spans = self._nothing() if options.fields else self._text()
        fields = {name: self._field(name, field) for name, field in options.fields.items()}
        ids = self._ids()
        columns: dict[Column, Any] = {}
        for name, field in options.columns.items():
            array = self._column(field)
            if name == "group":
                columns[name] = self._names(array, name, field)
            else:
                columns[name] = self._numbers(array, field, name)
        rows = np.flatnonzero(self._kept)
        kept = pa.array(rows)
        if labels is not None:
            labels = labels[rows] if isinstance(labels, np.ndarray) else labels.take(kept)
        return Documents(
            spans.data,
            spans.starts[rows],
            spans.stops[rows],
            ids.take(kept),
            labels,
            self._start + 1 + rows,
            self._bad_rows(),
            {
                name: column_array(name, values.take(kept) if name == "group" else values[rows])
                for name, values in columns.items()
            },
            fields={
                name: values[rows] if isinstance(values, np.ndarray) else values.take(kept)
                for name, values in fields.items()
            },
            carried={field: take_rows(self._unchanged(field), rows) for field in options.carried},
        )

    def _column(self, field: str) -> pa.Array:
        path = column_path(self._table.schema, field)
        return self._constant(field) if path is None else read_column(self._batches, path)

    def _unchanged(self, field: str) -> pa.Array:
        """A column in its own type."""
        path = column_path(self._table.schema, field)
        if path is None:
            return self._constant(field)
        arrays = column_arrays(self._batches, path)
        return concat_arrays(arrays, arrays[0].type)

    def _constant(self, field: str) -> pa.Array:
        return pa.repeat(pa.scalar(self._facts.fields(self._table.schema)[field], pa.string()), self._size)

    def _reject(self, rows: NDArray[np.bool_], error: MalformedRowError) -> None:
        for k in np.flatnonzero(rows & self._kept).tolist():
            self._bad[k] = error
        self._kept &= ~rows

    def _each(self, array: pa.Array, parse: Callable[[Any], Any], empty: Any) -> list[Any]:
        """The parsed values of an unusual type, one by one."""
        found = [empty] * self._size
        for k in np.flatnonzero(self._kept).tolist():
            try:
                found[k] = parse(_value(array[k]))
            except MalformedRowError as error:
                self._bad[k] = error
                self._kept[k] = False
        return found

    def _text(self) -> Spans:
        field = self._options.text_field
        array = self._column(field)
        spans = text_spans(array)
        if spans is None:
            self._reject(~validity(array), missing_field("text", field, null=True))
            error = MalformedRowError(f"text field {field!r} is not a string")
            self._reject(np.ones(self._size, np.bool_), error)
            return self._nothing()
        self._reject(~spans.valid, missing_field("text", field, null=True))
        return spans if _is_utf8(spans.strings) else self._decoded(spans)

    def _nothing(self) -> Spans:
        none = np.zeros(self._size, np.int64)
        return Spans(np.empty(0, np.uint8), none, none, self._kept, pa.nulls(self._size, pa.string()))

    def _field(self, name: str, field: FieldOptions) -> pa.Array | NDArray[np.float64]:
        """A field as in `Documents.fields`."""
        schema = self._table.schema
        absent = column_path(schema, name) is None and name not in self._facts.fields(schema)
        array = pa.nulls(self._size, pa.string()) if absent else self._column(name)
        if isinstance(field, NumberField):
            return self._numbers(array, name, "number", needed=False)
        kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
        if isinstance(field, TextField) and not (is_text(kind) or pa.types.is_null(kind)):
            self._reject(validity(array), MalformedRowError(f"text field {name!r} is not a string"))
            array = pa.nulls(self._size, pa.string())
        return self._names(array, field.type, name, needed=False).fill_null("")

    def _decoded(self, spans: Spans) -> Spans:
        """The text of strings that are not all valid UTF-8, by ``encoding_errors``."""
        extra = bytearray()
        starts, stops = spans.starts.copy(), spans.stops.copy()
        for k in np.flatnonzero(self._kept).tolist():
            raw = spans.data[starts[k] : stops[k]].tobytes()
            try:
                text = encode_text(raw.decode("utf-8", "surrogateescape"), self._options)
            except MalformedRowError as error:
                self._bad[k] = error
                self._kept[k] = False
                continue
            if text != raw:
                starts[k] = spans.data.size + len(extra)
                extra += text
                stops[k] = spans.data.size + len(extra)
        return spans._replace(
            data=np.concatenate([spans.data, np.frombuffer(extra, np.uint8)]), starts=starts, stops=stops
        )

    def _names(self, array: pa.Array, kind: str, field: str, *, needed: bool = True) -> pa.Array:
        """Strings, integers or booleans as names."""
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if needed:
            self._reject(~validity(array), missing_field(kind, field, null=True))
        if is_text(array.type):
            array = to_strings(array)
            if not _is_utf8(array):
                values = array.view(pa.large_binary() if pa.types.is_large_string(array.type) else pa.binary())
                return pa.array(self._each(values, self._name_of_bytes, None), pa.string())
            return array.cast(pa.string())
        if pa.types.is_integer(array.type) or pa.types.is_boolean(array.type) or pa.types.is_null(array.type):
            return array.cast(pa.string())
        return pa.array(self._each(array, lambda value: _name(value, kind, field), None), pa.string())

    def _name_of_bytes(self, value: bytes | None) -> str | None:
        return None if value is None else encode_text(value.decode("utf-8", "surrogateescape"), self._options).decode()

    def _ids(self) -> pa.Array:
        field = self._options.id_field
        if column_path(self._table.schema, field) is None and field not in self._facts.fields(self._table.schema):
            found = pa.nulls(self._size, pa.string())
        else:
            found = self._names(self._column(field), "id", field, needed=False)
        if not found.null_count:
            return found
        first = self._start + 1
        return pc.coalesce(found, pa.array([f"{self._short}:{first + k}" for k in range(self._size)], pa.string()))

    def _labels(self) -> Any:
        options, field = self._options, self._options.label_field
        array = self._column(field)
        if options.labels == "numbers":
            return self._numbers(array, field, "label")
        names = class_names_of_schema(self._table.schema, field) or self._facts.class_names
        if options.labels == "multi":
            lists = self._each(array, lambda value: parse_label(_named(value, names), options), [])
            return label_array(lists, "multi")
        if names and pa.types.is_integer(array.type):
            numbers = array.fill_null(-1).cast(pa.int64())
            known = pc.and_(pc.greater_equal(numbers, 0), pc.less(numbers, len(names)))
            array = pa.array(names, pa.string()).take(pc.if_else(known, numbers, pa.scalar(None, pa.int64())))
        elif pa.types.is_nested(array.type):
            self._each(array, lambda value: parse_label(value, options), None)  # each is an error
            return pa.nulls(self._size, pa.string())
        labels = self._names(array, "label", field)
        empty = MalformedRowError(f"label field {field!r} is empty", code="invalid-labels")
        self._reject(_where(pc.equal(labels, "")), empty)
        if options.classes is not None:
            allowed = pc.is_in(labels, pa.array(options.classes, pa.string()))
            self._reject(~_where(allowed), unknown_class(options))
        return labels

    def _numbers(self, array: pa.Array, field: str, kind: str, *, needed: bool = True) -> NDArray[np.float64]:
        """Finite numbers; of times seconds since 1970, of weights at least 0. NaN for none that is not needed."""
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if needed:
            self._reject(~validity(array), missing_field(kind, field, null=True))
        none = 0.0 if needed else np.nan
        what, code = f"{kind} field {field!r}", "invalid-labels" if kind == "label" else "malformed-record"
        types, unit = pa.types, 1.0
        if kind == "time" and (types.is_timestamp(array.type) or types.is_date(array.type)):
            unit = SECONDS[array.type.unit] if types.is_timestamp(array.type) else SECONDS["s"]
            if types.is_date(array.type):
                array = array.cast(pa.timestamp("s"))
            array = array.cast(pa.int64())
        if types.is_integer(array.type) or types.is_floating(array.type) or types.is_decimal(array.type):
            values = array.cast(pa.float64(), safe=False).fill_null(none).to_numpy(zero_copy_only=False) / unit
        elif types.is_boolean(array.type):
            values = array.cast(pa.int8()).cast(pa.float64()).fill_null(none).to_numpy(zero_copy_only=False)
        else:
            parse = parse_time if kind == "time" else lambda value, _: parse_number(value, what, code=code)
            parse = parse if needed else parse_feature
            values = np.array(self._each(array, lambda value: parse(value, field), none), np.float64)
        self._reject(
            ~np.isfinite(values) if needed else np.isinf(values), MalformedRowError(f"{what} is not finite", code=code)
        )
        if kind == "weight":
            error = MalformedRowError(f"{what} is negative or larger than {MAX_FLOAT32:.3g}")
            self._reject((values < 0.0) | (values > MAX_FLOAT32), error)
        return np.asarray(values, np.float64)

    def _bad_rows(self) -> list[BadRow]:
        if not self._bad:
            return []
        first, unit = np.array(self._table.first_rows()), self._table.unit
        found = []
        for k, error in sorted(self._bad.items()):
            row = self._start + k
            group = int(np.searchsorted(first, row, side="right"))
            place = f"{unit} {group}, row {row + 1}" if unit else f"row {row + 1}"
            found.append(error.at(row + 1, 0)._replace(place=place))
        return found


def _is_utf8(strings: pa.Array) -> bool:
    try:
        strings.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _value(scalar: pa.Scalar) -> Any:
    """The value in Python; the scalar itself for times that Python does not have, which is neither name nor number."""
    try:
        return scalar.as_py()
    except (ValueError, OverflowError, LookupError):
        return scalar


def _where(found: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(found.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)


def _name(value: Any, kind: str, field: str) -> str | None:
    return None if value is None else parse_name(value, kind, field)


def _named(value: Any, names: tuple[str, ...]) -> Any:
    """Numbers of classes, in lists too, by their names."""
    if isinstance(value, list):
        return [_named(item, names) for item in value]
    if names and isinstance(value, int):
        return names[value] if 0 <= value < len(names) else None
    return value


def _equals(array: pa.Array, wanted: str) -> NDArray[np.bool_]:
    """Which values `matches` as text; nulls, lists and structs do not."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_nested(array.type):
        return np.zeros(len(array), np.bool_)
    if pa.types.is_float16(array.type):
        array = array.cast(pa.float32())
    strings = to_strings(array) if is_text(array.type) else array.cast(pa.string())
    kind = pa.large_binary() if pa.types.is_large_string(strings.type) else pa.binary()
    return which_match(strings.view(kind), wanted)
