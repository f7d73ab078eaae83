"""Rows of a split, selected by their numbers and written in the format of the input.

Lines and records are copied as they are, but for their ends, which become LF, and for a byte order mark, which is left
out; text in another encoding becomes UTF-8. Rows of tables are written as Parquet, with all columns of the file, but
not those that its path names. Equal rows give equal bytes.
"""

import csv
import gzip
import io
from posixpath import splitext
from typing import Literal

import numpy as np
import pyarrow as pa
import zstandard
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.storage.commit import commit_bytes
from sparseoco.storage.locations import Location
from sparseoco.storage.parquet import parquet_writer
from sparseoco.text.kernels.csv_records import NEWLINE, NO_QUOTE, QUOTE, RECORD_START, RETURN, record_ends
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers import DELIMITERS, Chunk
from sparseoco.text.parsers.csv_records import BOM, line_starts
from sparseoco.text.sources import FOLDERS, TABLES, Source, compression_by_name
from sparseoco.text.splits import Content, Split, read_chunk
from sparseoco.text.tables.columns import check_parquet_types, concat_arrays, take_rows
from sparseoco.text.tables.files import open_table

SUFFIXES = {
    "jsonl": ".jsonl",
    "csv": ".csv",
    "tsv": ".tsv",
    "lines": ".txt",
    "svmlight": ".svmlight",
    "processed": ".review",
    "parquet": ".parquet",
    "arrow": ".parquet",
}
GZIP_LEVEL, ZSTD_LEVEL = 6, 3


def unwritable_reason(form: str) -> str | None:
    """Why selected documents of a format cannot be written in it; None if they can."""
    return "each document is a file of its own" if form in FOLDERS else None


def file_suffix(file: Source | Split) -> str:
    """The suffix of files of selected rows: of the format, and of the compression of the input."""
    compressed = file.format not in TABLES and compression_by_name(file.path) is not None
    return SUFFIXES[file.format] + (splitext(file.path)[1].lower() if compressed else "")


def write_rows(
    split: Split, content: Content | None, rows: NDArray[np.int64], path: Location, options: TextOptions
) -> None:
    """Commit a file with some rows of a split.

    Parameters
    ----------
    split : Split
        Of a format for which `unwritable_reason` gives no reason.
    content : ndarray of uint8, optional
        As `read_split` takes it, and not parsed yet, which changes it. Without it, the split is read if `rows` is not
        empty.
    rows : ndarray of int64
        Increasing numbers of lines or rows of the split, as in `Documents.lines`.
    path : Location
        The file; its name ends with `file_suffix`.
    options : TextOptions
        Those with which the split was read.

    Raises
    ------
    InputError
        For a file that changed, and for columns of a type that Parquet does not have.
    StorageError
        For a file that cannot be read or written.
    """
    if split.format in TABLES:
        _write_table(split, rows, path)
        return
    data = _header(split, options)
    if rows.size:
        data += _selected_bytes(split, read_chunk(split, content), rows, options)
    commit_bytes(path, _compressed(data, compression_by_name(split.path)))


def _compressed(data: bytes, compression: str | None) -> bytes:
    if compression == "gzip":
        return gzip.compress(data, GZIP_LEVEL, mtime=0)
    return data if compression is None else zstandard.ZstdCompressor(ZSTD_LEVEL).compress(data)


def _selected_bytes(split: Split, chunk: Chunk, rows: NDArray[np.int64], options: TextOptions) -> bytes:
    """The lines or records, each with LF at its end. Overwrites the ends in `chunk`."""
    data = chunk.data
    delimiter = DELIMITERS.get(split.format)
    if delimiter is None:
        lines = chunk.lines(options)
        starts, stops = lines[rows - split.line], lines[rows - split.line + 1]
    else:
        starts, stops = _record_spans(chunk, delimiter, rows)
    if split.start == 0 and data[: len(BOM)].tobytes() == BOM:
        starts = np.maximum(starts, len(BOM))
    for end in (NEWLINE, RETURN):
        stops = stops - ((stops > starts) & (data[stops - 1] == end))
    data[stops] = NEWLINE
    # Every second one of the spans between these bounds is a row, and the others are what is between rows.
    bounds = np.column_stack([starts, stops + 1]).reshape(-1)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    spans = pa.Array.from_buffers(pa.large_binary(), bounds.size - 1, buffers)
    selected = spans.take(pa.array(np.arange(0, bounds.size, 2)))
    return bytes(memoryview(selected.buffers()[2])[: int(np.sum(stops + 1 - starts))])


def _record_spans(chunk: Chunk, delimiter: str, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First byte and end of the records that begin in lines `rows`."""
    lines = line_starts(chunk.data, chunk.size)
    data = chunk.data[: chunk.size]
    begin = len(BOM) if chunk.offset == 0 and data[: len(BOM)].tobytes() == BOM else 0
    ends = np.empty(lines.size, np.int64)
    quote = QUOTE if chunk.quoted else NO_QUOTE
    found, _, _ = record_ends(data, begin, chunk.size, RECORD_START, ord(delimiter), quote, ends)
    ends[found:] = chunk.size  # of a record without an end
    starts = lines[rows - chunk.line]
    return starts, ends[np.searchsorted(ends[:found], starts, side="right")]


def _header(split: Split, options: TextOptions) -> bytes:
    """The first record of CSV and TSV with a header."""
    delimiter = DELIMITERS.get(split.format)
    if delimiter is None or not options.header:
        return b""
    if not split.quoted:
        return f"{delimiter.join(split.header)}\n".encode()
    # TSV is quoted if all names are.
    quoting: Literal[0, 1] = csv.QUOTE_ALL if split.format == "tsv" else csv.QUOTE_MINIMAL
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, quoting=quoting).writerow(split.header)
    return text.getvalue().removesuffix("\r\n").encode() + b"\n"


def _write_table(split: Split, rows: NDArray[np.int64], path: Location) -> None:
    table = open_table(split.path, split.format, split.version, split.pin)
    check_parquet_types(table.schema, split.name)
    parts = []
    first = split.start + 1
    batches = table.read(None, split.start, split.stop) if rows.size else []
    try:
        for _, batch in batches:
            low, high = np.searchsorted(rows, [first, first + batch.num_rows])
            parts.append([take_rows(column, rows[low:high] - first) for column in batch.columns])
            first += batch.num_rows
        columns = [concat_arrays([part[k] for part in parts], field.type) for k, field in enumerate(table.schema)]
        with parquet_writer(path, table.schema) as writer:
            writer.write_table(pa.Table.from_arrays(columns, schema=table.schema))
    except pa.ArrowException as error:
        raise InputError(
            f"{split.name}: rows {split.start + 1} to {split.stop} cannot be written as Parquet.",
            code="unsupported-format",
        ) from error
