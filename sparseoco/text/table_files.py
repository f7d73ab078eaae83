"""Files and folders of tables, Parquet and Arrow: columns, row groups, values by path."""

import json
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sparseoco.core.errors import InputError, StorageError
from sparseoco.storage.inputs import FolderFile, Pin, changed, check_version, open_input
from sparseoco.storage.locations import location, storage_error
from sparseoco.text.options import TextOptions

# ----------------------------------------------------------------------------------------------------------------------
# Fields of tables: which column, field of a struct or part of the path they are, and their values as arrays.


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


def to_bytes(array: pa.Array) -> pa.Array | None:
    """Strings or bytes as `binary` or `large_binary`, which share their bytes; None for other values."""
    types = pa.types
    if types.is_fixed_size_binary(array.type):
        return array.cast(pa.large_binary())
    if types.is_string(array.type) or types.is_binary(array.type):
        return array.view(pa.binary())
    if types.is_large_string(array.type) or types.is_large_binary(array.type):
        return array.view(pa.large_binary())
    return None


# ----------------------------------------------------------------------------------------------------------------------
# Parquet and Arrow files, local or remote: their schema, the sizes of their row groups, and ranges of their rows.
#
# Only the columns that are asked for are read, and nothing but the footer before that. The record batches of an Arrow
# file are its row groups; an Arrow stream, which has no footer, is one row group.


FORMATS = {"parquet": "Parquet", "arrow": "Arrow"}
ARROW_MAGIC = b"ARROW1"  # of files; the other of streams
STREAM_MAGIC = b"\xff\xff\xff\xff"
STREAM_END = STREAM_MAGIC + bytes(4)
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
        For a file that is corrupt, or not the pinned version, here and in all methods.
    StorageError
        For a file that cannot be read.
    """

    def __init__(self, path: str, form: str, pin: Pin | None = None) -> None:
        self.path, self.form, self.pin = path, form, pin
        self._lock = threading.Lock()
        self._cursors: OrderedDict[tuple[int, tuple[str, ...] | None], _Cursor] = OrderedDict()
        self._stream = False
        self._files: dict[tuple[int, ...], Any] = {}  # an Arrow file, opened for some of its fields
        self._rows: list[int] | None = None
        with self._translated():
            if form == "parquet":
                file, size = open_input(path, pin)
                self._file: Any = pq.ParquetFile(
                    file, pre_buffer=False, buffer_size=size, page_checksum_verification=True
                )
                self.schema: pa.Schema = self._file.schema_arrow
            else:
                with self._source() as source:
                    self._stream = source.read(len(ARROW_MAGIC)) != ARROW_MAGIC
                self.schema = self._open_stream().schema if self._stream else pa.ipc.open_file(self._source()).schema
                if self._stream and not self._has_end():
                    raise pa.ArrowInvalid("truncated")

    @property
    def unit(self) -> str:
        """What a row group is called in messages; nothing for streams."""
        return "row group" if self.form == "parquet" else "" if self._stream else "record batch"

    def row_groups(self, columns: list[str]) -> list[RowGroup]:
        """All row groups, in order; columns may be fields of structs, such as ``meta.title``."""
        with self._translated(), self._lock:
            found = self._sizes(columns)
        self._rows = [group.rows for group in found]
        return found

    def _sizes(self, columns: list[str]) -> list[RowGroup]:
        if self.form == "parquet":
            metadata = self._file.metadata
            leaves = [k for k in range(metadata.num_columns) if _is_within(metadata.schema.column(k).path, columns)]
            groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
            sizes = [sum(group.column(k).total_uncompressed_size for k in leaves) for group in groups]
            return [RowGroup(group.num_rows, size) for group, size in zip(groups, sizes, strict=True)]
        tops = top_columns(self.schema, columns)
        batches = self._record_batches(tops)
        found = [RowGroup(batch.num_rows, sum(batch.column(name).nbytes for name in tops)) for batch in batches]
        return [RowGroup(*map(sum, zip(*found, strict=True)))] if self._stream and found else found

    def read(self, columns: list[str] | None, start: int, stop: int) -> list[tuple[int, pa.RecordBatch]]:
        """Rows [start, stop) as record batches of these or all columns, each with the number of its row group.

        Parts of a row group are best read in order: a part decodes those before it if it comes first.
        """
        found: list[tuple[int, pa.RecordBatch]] = []
        begin = 0
        for number, rows in enumerate(self._group_rows):
            low, high = max(start, begin) - begin, min(stop, begin + rows) - begin
            if low < high:
                with self._translated(f", {self.unit} {number + 1}" if self.unit else ""), self._lock:
                    found += [(number, batch) for batch in self._take(number, columns, low, high)]
            begin += rows
        return found

    def first_rows(self) -> list[int]:
        """Number of the first row of each row group."""
        return [0, *accumulate(self._group_rows)][:-1]

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
            cursor = self._cursors[key] = _Cursor(self._batches(number, columns, stop - start))
            found = cursor.take(start, stop)
            while len(self._cursors) > 2:
                self._cursors.popitem(last=False)
        assert found is not None
        return found

    def _batches(self, number: int, columns: list[str] | None, rows: int) -> Iterator[pa.RecordBatch]:
        if self.form == "parquet":
            batches: Iterator[pa.RecordBatch] = self._file.iter_batches(
                batch_size=rows, row_groups=[number], columns=columns, use_threads=False
            )
            return batches
        group = None if self._stream else number
        if columns is None:
            return self._record_batches(None, group)
        tops = top_columns(self.schema, columns)
        return (batch.select(tops) for batch in self._record_batches(tops, group))

    def _record_batches(self, columns: list[str] | None, number: int | None = None) -> Iterator[pa.RecordBatch]:
        """All record batches, or one, of which no more than these columns are read, and at least one; or all columns.

        They are validated: Arrow ends the process when it meets strings whose offsets are damaged.
        """
        if columns is None:
            fields = tuple(range(len(self.schema)))
        else:
            fields = tuple(self.schema.get_field_index(name) for name in columns or self.schema.names[:1])
        options = pa.ipc.IpcReadOptions(included_fields=list(fields))
        for batch in self._open_stream(options) if self._stream else self._batches_of_file(fields, options, number):
            batch.validate(full=True)
            yield batch

    def _batches_of_file(self, fields: tuple[int, ...], options: Any, number: int | None) -> Iterator[pa.RecordBatch]:
        if fields not in self._files:
            self._files = {fields: pa.ipc.open_file(self._source(), options=options)}
        file = self._files[fields]
        return map(file.get_batch, range(file.num_record_batches) if number is None else [number])

    def _open_stream(self, options: Any = None) -> Any:
        return pa.ipc.open_stream(self._source(), options=options)

    def _has_end(self) -> bool:
        """Whether a stream ends with its mark; without it, one cut between two batches goes unnoticed."""
        with self._source() as source:
            if source.read(len(STREAM_MAGIC)) != STREAM_MAGIC:
                return True  # of a format before Arrow 0.15
            source.seek(-len(STREAM_END), os.SEEK_END)
            return bool(source.read(len(STREAM_END)) == STREAM_END)

    def _source(self) -> Any:
        return open_input(self.path, self.pin, buffered=True)[0]

    @contextmanager
    def _translated(self, place: str = "") -> Iterator[None]:
        try:
            yield
            self._check_version()
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
            self._check_version()
            raise InputError(
                f"{self.path}{place} is corrupt: it is not valid {FORMATS[self.form]}.", code="corrupt-file"
            ) from error

    def _check_version(self) -> None:
        if self.pin is not None:
            check_version(self.path, self.path, self.pin)


def _is_within(path: str, columns: list[str]) -> bool:
    return any(path == column or path.startswith(f"{column}.") for column in columns)


def top_columns(schema: pa.Schema, columns: list[str]) -> list[str]:
    """The columns that have these columns or fields."""
    tops = (name if name in schema.names else name.partition(".")[0] for name in columns)
    return list(dict.fromkeys(tops))


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
# Folders of Parquet and Arrow files: partitions, and datasets of Hugging Face as they are on disk.
#
# A dataset saved by ``save_to_disk`` has the file ``state.json``, which names its data files, and
#     ``dataset_info.json``,
# which names the classes; with several parts (``train``, ``test``), each is in a folder beside ``dataset_dict.json``.
#     On
# the hub the files of a part are named ``train-00000-of-00004.parquet`` or are in a folder `train`. The part is the
#     field
# `split`.


STATE, INFO, DICT = "state.json", "dataset_info.json", "dataset_dict.json"
COMPANIONS = frozenset({STATE, INFO, DICT, "dataset_infos.json", "README.md", "LICENSE", "LICENSE.txt"})
"""Files beside the tables of a dataset that hold no documents."""
PARTS = frozenset({"train", "test", "validation", "valid", "val", "dev"})
_PART = re.compile(r"(?:.*/)?([\w.]+?)-\d{5}-of-\d{5}[^/]*")
_PARTITION = re.compile(r"([^/=]+)=([^/]*)/")
_NULL = "__HIVE_DEFAULT_PARTITION__"


def dataset_files(
    files: Sequence[FolderFile], every: Sequence[FolderFile], options: TextOptions
) -> list[tuple[FolderFile, TableFacts]]:
    """The chosen files of a folder with tables that hold documents, each with what is known of it from `every` file.

    Raises `InputError` for a description of a dataset that cannot be read, or that names a file which is not there.
    """
    described = {file.name: file for file in every if PurePosixPath(file.name).name in (STATE, INFO, DICT)}
    folders = {str(PurePosixPath(name).parent): name for name in described if name.endswith(STATE)}
    data_files = {folder: _data_files(described[name]) for folder, name in folders.items()}
    there = {file.name for file in every}
    for folder, names in data_files.items():
        absent = sorted(name for name in names if str(PurePosixPath(folder, name)) not in there)
        if absent:
            raise InputError(
                f"{described[folders[folder]].path} names {absent[0]}, which does not exist: the dataset is "
                "incomplete.",
                code="missing-file",
            )
    infos: dict[str, tuple[str, ...]] = {}
    found = []
    for file in files:
        path = PurePosixPath(file.name)
        folder = str(path.parent)
        if path.name in COMPANIONS or (folder in data_files and path.name not in data_files[folder]):
            continue
        if folder not in infos:
            info = described.get(str(path.parent / INFO))
            infos[folder] = () if info is None else class_names(_read(info).get("features"), options.label_field)
        values = tuple((unquote(key), _value(value)) for key, value in _PARTITION.findall(file.name))
        part = _PART.fullmatch(file.name)
        above = path.parent.parent
        if folder in data_files:
            name = path.parent.name if str(above / DICT) in described else None
        else:
            name = part[1] if part else path.parent.name if path.parent.name in PARTS else None
        found.append((file, TableFacts(values, infos[folder], name)))
    return found


def _value(text: str) -> str | None:
    return None if text == _NULL else unquote(text)


def _data_files(state: FolderFile) -> set[str]:
    described = _read(state)
    try:
        if described.get("_indices_files"):
            raise InputError(
                f"{state.path}: the dataset is a selection of rows of its files; save it again with save_to_disk.",
                code="unsupported-format",
            )
        return {entry["filename"] for entry in described["_data_files"]}
    except (KeyError, TypeError):
        raise InputError(f"{state.path} does not name the files of its dataset.", code="corrupt-file") from None


def _read(file: FolderFile) -> dict[str, Any]:
    try:
        found = json.loads(location(file.path).read_bytes())
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InputError(f"{file.path} is not a JSON object.", code="corrupt-file")
    return found
