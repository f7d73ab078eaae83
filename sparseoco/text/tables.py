"""Parquet and Arrow: files, their columns and row groups, and the documents in some of their rows."""

import math
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, repeat
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sparseoco.core.errors import InputError, StorageError
from sparseoco.storage.inputs import Pin, changed, check_version, open_input
from sparseoco.storage.locations import location, storage_error
from sparseoco.text.documents import BadRow, Documents, ParsedRow
from sparseoco.text.options import NumberField, TextOptions
from sparseoco.text.parsers import MalformedRowError, RecordParser, check_columns, fields_by_use

# ----------------------------------------------------------------------------------------------------------------------
# Parquet and Arrow files, local or remote: their schema, the sizes of their row groups, and ranges of their rows.
#
# Only the columns that are asked for are read, and nothing but the footer before that. The record batches of an Arrow
# file are its row groups.


STREAM_MAGIC = b"\xff\xff\xff\xff"  # of Arrow streams
OPEN_FILES = 4
SKIPPED = 4  # parts of a row group that are in memory for tasks that come later


class RowGroup(NamedTuple):
    """Number of rows, and bytes in memory of the columns that were asked for."""

    rows: int
    bytes: int


class _Cursor:
    """The parts of one row group, decoded in order: what was skipped last stays in memory for a task that is late."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._left: pa.RecordBatch | None = None
        self.position = 0
        self._skipped: OrderedDict[tuple[int, int], list[pa.RecordBatch]] = OrderedDict()

    def take(self, start: int, stop: int) -> list[pa.RecordBatch] | None:
        """Rows [start, stop) of the row group; None if they were passed and are no longer in memory."""
        if (start, stop) in self._skipped:
            return self._skipped.pop((start, stop))
        if start < self.position:
            return None
        while self.position < start:
            end = min(start, self.position + stop - start)
            self._skipped[self.position, end] = self._read(end)
            while len(self._skipped) > SKIPPED:
                self._skipped.popitem(last=False)
        return self._read(stop)

    def _read(self, stop: int) -> list[pa.RecordBatch]:
        found = []
        while self.position < stop:
            batch = self._left if self._left is not None else next(self._batches, None)
            if batch is None:
                raise pa.ArrowInvalid("fewer rows than the metadata says")
            size = min(batch.num_rows, stop - self.position)
            found.append(batch.slice(0, size))
            self._left = batch.slice(size) if size < batch.num_rows else None
            self.position += size
        return found


class TableFile:
    """An open file; its methods may be called by several threads.

    Parameters
    ----------
    path : str
        Local path or remote URI.
    form : {"parquet", "arrow"}
    pin : Pin, optional
        The version of the file.

    Raises
    ------
    InputError
        For a file that is corrupt, an Arrow stream, or not the pinned version, here and in all methods.
    StorageError
        For a file that cannot be read.
    """

    def __init__(self, path: str, form: str, pin: Pin | None = None) -> None:
        self.path, self.form, self.pin = path, form, pin
        self.unit = "row group" if form == "parquet" else "record batch"
        self._lock = threading.Lock()
        self._cursors: OrderedDict[tuple[int, tuple[str, ...] | None], _Cursor] = OrderedDict()
        self._rows: list[int] | None = None
        with self._translated():
            if form == "parquet":
                file, size = open_input(path, pin)
                self._file: Any = pq.ParquetFile(
                    file, pre_buffer=False, buffer_size=size, page_checksum_verification=True
                )
                self.schema: pa.Schema = self._file.schema_arrow
            else:
                self.schema = self._open_arrow().schema

    def row_groups(self, columns: list[str]) -> list[RowGroup]:
        """All row groups, in order, with the sizes of some columns."""
        with self._translated(), self._lock:
            if self.form == "parquet":
                metadata = self._file.metadata
                paths = [metadata.schema.column(k).path for k in range(metadata.num_columns)]
                tops = tuple(f"{name}." for name in columns)
                leaves = [k for k, path in enumerate(paths) if f"{path}.".startswith(tops)]
                groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
                sizes = [sum(group.column(k).total_uncompressed_size for k in leaves) for group in groups]
                found = [RowGroup(group.num_rows, size) for group, size in zip(groups, sizes, strict=True)]
            else:
                batches = self._record_batches(columns)
                found = [RowGroup(batch.num_rows, sum(batch.column(c).nbytes for c in columns)) for batch in batches]
        self._rows = [group.rows for group in found]
        return found

    def read(self, columns: list[str] | None, start: int, stop: int) -> list[pa.RecordBatch]:
        """Rows [start, stop) as record batches of these or all columns.

        Parts of a row group are best read in order: a part decodes those before it if it comes first.
        """
        found: list[pa.RecordBatch] = []
        begin = 0
        for number, rows in enumerate(self._group_rows):
            low, high = max(start, begin) - begin, min(stop, begin + rows) - begin
            if low < high:
                with self._translated(f", {self.unit} {number + 1}"), self._lock:
                    found += self._take(number, columns, low, high)
            begin += rows
        return found

    def place(self, row: int) -> str:
        """The row group of a row, by its number from 1, and the row, in words."""
        firsts = [0, *accumulate(self._group_rows)][:-1]
        return f"{self.unit} {bisect_right(firsts, row - 1)}, row {row}"

    @property
    def _group_rows(self) -> list[int]:
        if self._rows is None:
            self.row_groups([])
        assert self._rows is not None
        return self._rows

    def _take(self, number: int, columns: list[str] | None, start: int, stop: int) -> list[pa.RecordBatch]:
        key = number, None if columns is None else tuple(columns)
        cursor = self._cursors.get(key)
        found = cursor.take(start, stop) if cursor is not None else None
        if found is None:
            if self.form == "parquet":
                size = stop - start
                batches = self._file.iter_batches(size, row_groups=[number], columns=columns, use_threads=False)
            else:
                batches = self._record_batches(columns, number)
            cursor = self._cursors[key] = _Cursor(batches)
            found = cursor.take(start, stop)
            while len(self._cursors) > 2:
                self._cursors.popitem(last=False)
        assert found is not None
        return found

    def _record_batches(self, columns: list[str] | None, number: int | None = None) -> Iterator[pa.RecordBatch]:
        """All record batches of an Arrow file, or one, with some of their columns, or all.

        They are validated: Arrow ends the process when it meets strings whose offsets are damaged.
        """
        fields = None
        if columns is not None:  # a batch without any column would not know its rows
            fields = [self.schema.get_field_index(name) for name in columns or self.schema.names[:1]]
        file = self._open_arrow(pa.ipc.IpcReadOptions(included_fields=fields))
        for batch in map(file.get_batch, range(file.num_record_batches) if number is None else [number]):
            batch.validate(full=True)
            yield batch if columns is None else batch.select(columns)

    def _open_arrow(self, options: Any = None) -> Any:
        source = open_input(self.path, self.pin, buffered=True)[0]
        if source.read(len(STREAM_MAGIC)) == STREAM_MAGIC:
            raise InputError(
                f"{self.path} is an Arrow stream, which cannot be read in parts: save it as an Arrow file or as "
                "Parquet.",
                code="unsupported-format",
            )
        source.seek(0)
        return pa.ipc.open_file(source, options=options)

    @contextmanager
    def _translated(self, place: str = "") -> Iterator[None]:
        try:
            yield
            check_version(self.path, self.pin)
        except FileExistsError:
            raise changed(self.path) from None
        except FileNotFoundError as error:
            raise storage_error(error, location(self.path)) if self.pin is None else changed(self.path) from None
        except pa.ArrowNotImplementedError as error:
            reason = str(error).splitlines()[0][:120]
            raise InputError(f"{self.path}{place} cannot be read: {reason}.", code="unsupported-format") from error
        except (pa.ArrowException, OSError, EOFError) as error:
            if isinstance(error, OSError) and (error.errno or isinstance(error, StorageError)):
                raise storage_error(error, location(self.path)) from error
            check_version(self.path, self.pin)
            raise InputError(
                f"{self.path}{place} is corrupt: it is not valid {self.form.capitalize()}.", code="corrupt-file"
            ) from error


_open: OrderedDict[tuple[str, str], TableFile] = OrderedDict()
_open_lock = threading.Lock()


def open_table(path: str, form: str, version: str, pin: Pin | None = None) -> TableFile:
    """The open file, of a version of it; a process keeps some open, since many parts of the same files are read."""
    key = path, version
    with _open_lock:
        if key in _open:
            _open.move_to_end(key)
            return _open[key]
    table = TableFile(path, form, pin)
    with _open_lock:
        table = _open.setdefault(key, table)
        while len(_open) > OPEN_FILES:
            _open.popitem(last=False)
    return table


def close_tables() -> None:
    """Close the files that `open_table` keeps open."""
    with _open_lock:
        _open.clear()


# ----------------------------------------------------------------------------------------------------------------------
# Arrays of any type, from several record batches, and the types that Parquet has.


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


# ----------------------------------------------------------------------------------------------------------------------
# The documents in rows of a table, by the rules of JSON lines. A row is a record with values as in JSON, and times as
# seconds since 1970.


SECONDS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}  # units of time in a second


def projection(table: TableFile, options: TextOptions, *, labelled: bool) -> list[str]:
    """The columns to read.

    Raises `InputError` for a field that is not there, though ids and features may be absent, for one that is there
    twice, and for a carried column of a type that Parquet does not have.
    """
    names = table.schema.names
    check_columns(names, table.path, options, labelled=labelled)
    check_parquet_types(map(table.schema.field, options.carried), table.path)
    fields = fields_by_use(options, labelled=labelled).values()
    return list(dict.fromkeys(field for field in fields if field in names))


def read_table(
    table: TableFile, short: str, start: int, stop: int, options: TextOptions, *, labelled: bool
) -> Documents:
    """The documents in rows [start, stop) of a table, whose generated ids begin with `short`.

    Carried columns keep their types.
    """
    columns = projection(table, options, labelled=labelled)
    batches = table.read(columns, start, stop)
    by_row = options.model_copy(update={"carried": ()})
    parser = RecordParser(short, by_row, labelled=labelled)
    rows: list[ParsedRow] = []
    bad: list[BadRow] = []
    try:
        for number, record in enumerate(_records(batches, by_row, labelled=labelled), start + 1):
            try:
                row = parser.row(record, number)
            except MalformedRowError as error:
                bad.append(error.at(number, 0)._replace(place=table.place(number)))
                continue
            if row is not None:
                rows.append(row)
        kept = np.array([row.line - 1 - start for row in rows], np.int64)
        carried = {
            name: take_rows(
                concat_arrays([batch.column(name) for batch in batches], batches[0].column(name).type), kept
            )
            for name in options.carried
        }
    except pa.ArrowException as error:
        kinds = ", ".join(f"{name} ({table.schema.field(name).type})" for name in columns)
        raise InputError(
            f"{table.path}: a column has a type or values that cannot be used: {kinds}.", code="unsupported-format"
        ) from error
    documents = parser.documents(rows, bad)
    return Documents(**documents._asdict() | {"carried": carried})


def _records(batches: list[pa.RecordBatch], options: TextOptions, *, labelled: bool) -> Iterator[Mapping[str, Any]]:
    """The rows with the fields that are used and there."""
    fields = list(fields_by_use(options, labelled=labelled).values())
    numbers = {options.record_fields[name] for name, kind in options.fields.items() if isinstance(kind, NumberField)}
    for batch in batches:
        columns = {}
        for name in dict.fromkeys(fields):
            if name in batch.schema.names:
                array = batch.column(name)
                if name == options.columns.get("time"):
                    array = _seconds(array)
                elif name in options.where and fields.count(name) == 1 and pa.types.is_float32(array.type):
                    array = array.cast(pa.string())  # 0.1 is no longer 0.1 in 64 bits
                values = _values(array)
                if name in numbers:
                    values = [None if isinstance(value, float) and math.isnan(value) else value for value in values]
                columns[name] = values
        rows = zip(*columns.values(), strict=True) if columns else repeat((), batch.num_rows)
        yield from (dict(zip(columns, row, strict=True)) for row in rows)


def _seconds(array: pa.Array) -> pa.Array:
    """Dates and times as seconds since 1970; other values as they are."""
    if pa.types.is_date(array.type):
        array = array.cast(pa.timestamp("s"))
    if not pa.types.is_timestamp(array.type):
        return array
    return pc.divide(array.cast(pa.int64()).cast(pa.float64(), safe=False), SECONDS[array.type.unit])


def _values(array: pa.Array) -> list[Any]:
    """The values in Python; bytes as text, and a scalar itself if Python has no such time: no name and no number."""
    if pa.types.is_dictionary(array.type):
        names = _values(array.dictionary)
        return [None if k is None else names[k] for k in array.indices.to_pylist()]
    try:
        values: list[Any] = array.to_pylist()
    except (ValueError, OverflowError, LookupError):
        return [_value(scalar) for scalar in array]
    first = next((value for value in values if value is not None), None)
    return [_text(value) for value in values] if isinstance(first, bytes) else values


def _value(scalar: pa.Scalar) -> Any:
    scalar = scalar.value if isinstance(scalar, pa.ExtensionScalar) else scalar
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return _text(bytes(scalar.as_buffer()))
    except (ValueError, OverflowError, LookupError):
        return scalar


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "surrogateescape")
