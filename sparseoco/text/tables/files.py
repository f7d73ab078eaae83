"""Parquet and Arrow files, local or remote: their schema, the sizes of their row groups, and ranges of their rows.

Only the columns that are asked for are read, and nothing but the footer before that. The record batches of an Arrow
file are its row groups; an Arrow stream, which has no footer, is one row group.
"""

import io
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from sparseoco.core.errors import InputError, StorageError
from sparseoco.storage.errors import storage_error
from sparseoco.storage.locations import is_remote_uri, location, remote_location
from sparseoco.text.stored import Pin, changed, check_version

FORMATS = {"parquet": "Parquet", "arrow": "Arrow"}
ARROW_MAGIC = b"ARROW1"  # of files; the other of streams
STREAM_MAGIC = b"\xff\xff\xff\xff"
STREAM_END = STREAM_MAGIC + bytes(4)
BUFFER = 1 << 20  # of compressed pages in memory
REMOTE_BUFFER = 4 << 20  # of a request
OPEN_FILES = 4
SKIPPED = 4  # parts of a row group that are in memory for tasks that come later


class RowGroup(NamedTuple):
    """Number of rows, and bytes in memory of the columns that were asked for."""

    rows: int
    bytes: int


class _Remote(io.RawIOBase):
    """A remote file that can be sought; every read is a request for a range."""

    def __init__(self, uri: str, pin: Pin | None) -> None:
        self._path = remote_location(uri)
        self._size = int(self._path.stat().st_size) if pin is None else pin.bytes
        self._e_tag = None if pin is None else pin.condition
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        return self._position

    def readinto(self, buffer: Any) -> int:
        stop = min(self._position + len(buffer), self._size)
        data = b""
        if stop > self._position:
            data = self._path.read_range(self._position, stop, e_tag=self._e_tag, size=self._size)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


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
                self._file: Any = pq.ParquetFile(
                    pa.PythonFile(_Remote(path, pin), "r") if is_remote_uri(path) else path,
                    pre_buffer=False,
                    buffer_size=REMOTE_BUFFER if is_remote_uri(path) else BUFFER,
                    page_checksum_verification=True,
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
        if not is_remote_uri(self.path):
            return pa.OSFile(self.path)  # a mapped file that is cut while it is read ends the process
        return pa.PythonFile(io.BufferedReader(_Remote(self.path, self.pin), REMOTE_BUFFER), "r")

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
