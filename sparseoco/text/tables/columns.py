"""Fields of tables: which column, field of a struct or part of the path they are, and their values as arrays."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sparseoco.core.errors import InputError

PART = "split"
NO_NAMES: tuple[str, ...] = ()


class TableFacts(NamedTuple):
    """What is known of a table from elsewhere than the file.

    Parameters
    ----------
    values : tuple of (str, str or None)
        Fields with one value in the whole file, from its path: partitions such as ``year=2024``.
    class_names : tuple of str
        Names of the classes, if labels are their numbers.
    part : str or None
        Part of a dataset, the field `split` unless there is a column of this name.
    """

    values: tuple[tuple[str, str | None], ...] = ()
    class_names: tuple[str, ...] = NO_NAMES
    part: str | None = None

    @property
    def all(self) -> tuple[tuple[str, str | None], ...]:
        """All of these fields, whatever the columns are."""
        return self.values + (() if self.part is None else ((PART, self.part),))

    def fields(self, schema: pa.Schema) -> dict[str, str | None]:
        """The fields with one value in the whole file."""
        part = {} if self.part is None or PART in schema.names else {PART: self.part}
        return dict(self.values) | part


NO_FACTS = TableFacts()


def column_path(schema: pa.Schema, field: str) -> tuple[str, ...] | None:
    """The column, and the fields of structs in it, that a name such as ``meta.title`` means; None if there is none."""
    names = schema.names
    if field in names:
        return (field,)
    parts = field.split(".")
    for end in range(len(parts) - 1, 0, -1):
        top = ".".join(parts[:end])
        if top not in names:
            continue
        kind = schema.field(top).type
        for part in parts[end:]:
            if not pa.types.is_struct(kind) or kind.get_field_index(part) < 0:
                return None
            kind = kind.field(part).type
        return (top, *parts[end:])
    return None


def read_column(batches: list[pa.RecordBatch], path: tuple[str, ...]) -> pa.Array:
    """The values of a column, or of a field of its structs, in all batches; null where a struct is.

    Types that have others around or in place of them, such as views and extensions, are replaced by those.
    """
    arrays = [_without_views(array) for array in column_arrays(batches, path)]
    if len(arrays) == 1:
        return arrays[0]
    if pa.types.is_dictionary(arrays[0].type):
        arrays = [array.dictionary_decode() for array in arrays]
    return pa.concat_arrays(arrays)


def concat_arrays(arrays: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    """One array of values of any type, which does not depend on how they are divided.

    A dictionary then has the values that are there, in order of appearance; an ordered one is united as it is.
    """
    array = pa.chunked_array(arrays, kind).unify_dictionaries().combine_chunks()
    if not pa.types.is_dictionary(kind) or kind.ordered:
        return array
    encoded = array.indices.dictionary_encode()
    values = _take(array.dictionary, encoded.dictionary.to_numpy())
    return pa.DictionaryArray.from_arrays(encoded.indices.cast(kind.index_type), values)


def take_rows(array: pa.Array, rows: NDArray[np.int64]) -> pa.Array:
    """Some rows of an array of any type, by their increasing numbers."""
    return array if rows.size == len(array) else _take(array, rows)


def _take(array: pa.Array, rows: NDArray[np.int64]) -> pa.Array:
    try:
        return array.take(pa.array(rows))
    except pa.ArrowNotImplementedError:  # of views of strings, and of types that contain them
        starts = np.flatnonzero(np.diff(rows, prepend=-2) != 1)
        sizes = np.diff(starts, append=rows.size)
        runs = zip(rows[starts].tolist(), sizes.tolist(), strict=True)
        return pa.concat_arrays([array.slice(0, 0), *(array.slice(start, size) for start, size in runs)])


def column_arrays(batches: list[pa.RecordBatch], path: tuple[str, ...]) -> list[pa.Array]:
    """A column, or a field of its structs, of each batch; null where a struct is."""
    arrays = [batch.column(path[0]) for batch in batches]
    return arrays if len(path) == 1 else [pc.struct_field(array, list(path[1:])) for array in arrays]


def _without_views(array: pa.Array) -> pa.Array:
    """The array, with views of strings as strings, for which Arrow has all functions; also without other wrappings."""
    types = pa.types
    if isinstance(array, pa.ExtensionArray):
        return _without_views(array.storage)
    if types.is_run_end_encoded(array.type):
        return _without_views(pc.run_end_decode(array))
    if types.is_dictionary(array.type):
        values = _without_views(array.dictionary)
        same = values.type == array.dictionary.type
        return array if same else pa.DictionaryArray.from_arrays(array.indices, values)
    if types.is_string_view(array.type):
        return array.cast(pa.large_string())
    return array.cast(pa.large_binary()) if types.is_binary_view(array.type) else array


def check_unique(schema: pa.Schema, fields: Mapping[str, str], facts: TableFacts, name: str) -> None:
    """Raises `InputError` for a field, by its use, that the file `name` has twice."""
    partitions = facts.fields(schema)
    for field in fields.values():
        if schema.names.count(field) > 1 or (field in partitions and field in schema.names):
            raise InputError(
                f"{name}: {field!r} is there twice, as a column and in the path or as two columns; rename one.",
                code="duplicate-column",
            )


def check_parquet_types(columns: Iterable[pa.Field], name: str) -> None:
    """Raises `InputError` for a column of the file `name` that has a type that Parquet does not have."""
    for field in columns:
        try:
            pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([field])).close()
        except pa.ArrowNotImplementedError:
            raise InputError(
                f"{name}: column {field.name!r} cannot be written as Parquet, which has no type {field.type}.",
                code="unsupported-format",
            ) from None


def class_names(features: Any, field: str) -> tuple[str, ...]:
    """The names of the classes of a field, by the features of a Hugging Face dataset; none if it is no ClassLabel."""
    found = features.get(field) if isinstance(features, dict) else None
    if found is None and isinstance(features, dict):
        found = features
        for part in field.split("."):
            found = found.get(part) if isinstance(found, dict) else None
    while isinstance(found, dict) and "names" not in found and "feature" in found:  # of a list
        found = found["feature"]
    if isinstance(found, list) and found:
        found = found[0]
    names = found.get("names") if isinstance(found, dict) and found.get("_type") == "ClassLabel" else None
    return tuple(map(str, names)) if isinstance(names, list) else NO_NAMES


def class_names_of_schema(schema: pa.Schema, field: str) -> tuple[str, ...]:
    """The names of the classes of a field, if the schema has the features of a Hugging Face dataset."""
    try:
        described = json.loads((schema.metadata or {})[b"huggingface"])
        return class_names(described["info"]["features"], field)
    except (KeyError, TypeError, ValueError):
        return NO_NAMES


def is_text(kind: pa.DataType) -> bool:
    """Whether values are strings, or bytes that may be strings."""
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
    )


class Spans(NamedTuple):
    """Text as spans of a buffer: `valid` says which values are not null, `strings` are those that the spans lie in."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    valid: NDArray[np.bool_]
    strings: pa.Array


def text_spans(array: pa.Array) -> Spans | None:
    """The text of an array without copying it, also of a dictionary; None if its values are not text."""
    if pa.types.is_null(array.type):
        array = array.cast(pa.string())
    if pa.types.is_dictionary(array.type):
        values = text_spans(array.dictionary)
        if values is None:
            return None
        valid = validity(array)
        indices = array.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        if not len(array.dictionary):
            none = np.zeros(len(array), np.int64)
            return values._replace(starts=none, stops=none, valid=np.zeros(len(array), np.bool_))
        return values._replace(
            starts=values.starts[indices], stops=values.stops[indices], valid=valid & values.valid[indices]
        )
    if not is_text(array.type):
        return None
    array = to_strings(array)
    wide = pa.types.is_large_string(array.type)
    _, offset_buffer, buffer = array.buffers()
    if not len(array) or buffer is None:
        empty = np.zeros(len(array), np.int64)
        return Spans(np.empty(0, np.uint8), empty, empty, validity(array), array)
    offsets = np.frombuffer(offset_buffer, np.int64 if wide else np.int32)[array.offset : array.offset + len(array) + 1]
    bounds: NDArray[np.int64] = offsets.astype(np.int64)
    return Spans(np.frombuffer(buffer, np.uint8), bounds[:-1], bounds[1:], validity(array), array)


def to_strings(array: pa.Array) -> pa.Array:
    """Strings or bytes as `string` or `large_string`, which share their bytes; they may not be valid UTF-8."""
    types = pa.types
    if types.is_fixed_size_binary(array.type):
        array = array.cast(pa.large_binary())
    if types.is_binary(array.type):
        return array.view(pa.string())
    return array.view(pa.large_string()) if types.is_large_binary(array.type) else array


def validity(array: pa.Array) -> NDArray[np.bool_]:
    """Which values are not null."""
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)
