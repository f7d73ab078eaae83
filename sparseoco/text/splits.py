"""A split of an input: its documents, the files it lists, the rows that are read or withheld."""

import csv
import gzip
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from posixpath import splitext
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy  # loads scipy.sparse when it is used
import zstandard
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from sparseoco.core.errors import InputError
from sparseoco.storage.commit import commit_bytes, digest_value
from sparseoco.storage.inputs import FolderFile, Pin, SetDigest, changed, read_range, small_contents, some_bytes
from sparseoco.storage.locations import Location, location, storage_errors
from sparseoco.storage.tables import parquet_writer
from sparseoco.text import formats, parsers
from sparseoco.text.array_files import load_arrays, save_arrays
from sparseoco.text.documents import BadRow, CountedDocuments, Documents, ParsedRow, hash_strings
from sparseoco.text.kernels.records import NEWLINE, RECORD_START, RETURN, scan_records
from sparseoco.text.options import TextOptions
from sparseoco.text.sources import Source, compression_by_name, document_label
from sparseoco.text.tables import check_parquet_types, concat_arrays, open_table, read_table, take_rows

# ----------------------------------------------------------------------------------------------------------------------
# Folders with one document per file: staged listings, their cuts, and the documents of some of their files.


LISTED = 1 << 16  # files of a split at most
_COLUMNS = pa.schema(
    [
        ("name", pa.large_string()),
        ("bytes", pa.int64()),
        ("modified_ns", pa.int64()),
        ("e_tag", pa.large_string()),
        ("changed_ns", pa.int64()),
        ("inode", pa.uint64()),
    ]
)


class Listing(NamedTuple):
    """Files of a folder, in order.

    Parameters
    ----------
    folder : str
        Absolute path or URI.
    table : pyarrow.Table
        The name of each file and the fields of its `Pin`.
    """

    folder: str
    table: pa.Table

    @classmethod
    def of(cls, folder: str, files: Iterable[FolderFile]) -> "Listing":
        """Sort files that come in any order."""
        tables = [_COLUMNS.empty_table()]
        remaining = iter(files)
        while batch := list(itertools.islice(remaining, LISTED)):
            columns = zip(*((file.name, *file.pin) for file in batch), strict=True)
            tables.append(pa.Table.from_pydict(dict(zip(_COLUMNS.names, columns, strict=True)), schema=_COLUMNS))
        table = pa.concat_tables(tables)
        order = pc.sort_indices(pc.replace_substring(table["name"], "/", "\0"))  # as `FolderFile.order`
        return cls(folder, table.take(order))

    def save(self, path: Location) -> None:
        """Stage the listing."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, _COLUMNS) as writer:
            writer.write_table(self.table)
        save_arrays(path, {"files": np.frombuffer(sink.getvalue(), np.uint8)}, {"folder": self.folder})

    @classmethod
    def load(cls, path: Location) -> "Listing":
        """The listing that `save` staged. Raises `StorageError`."""
        arrays, facts = load_arrays(path)
        return cls(facts["folder"], pa.ipc.open_stream(pa.py_buffer(arrays["files"])).read_all())

    def cuts(self, shard_bytes: int) -> Iterator[tuple[int, int, int]]:
        """(first, last + 1, bytes) of runs of files, cut by the rule for lines: after a file that reaches an edge.

        A run also ends after every `LISTED` files.
        """
        ends = np.cumsum(self.table["bytes"].to_numpy())
        begins = np.concatenate([[0], ends[:-1]])
        stops = np.flatnonzero(ends // shard_bytes > begins // shard_bytes) + 1
        bounds = np.unique(np.concatenate([np.arange(0, ends.size, LISTED), stops, [ends.size]])).tolist()
        for start, stop in itertools.pairwise(bounds):
            yield start, stop, int(ends[stop - 1] - begins[start])


def read_files(split: "Split", listing: Listing, options: TextOptions) -> Documents:
    """The documents in the files of a split of a folder, and the digest of the set of these files.

    Raises `InputError` for a file that is too long, corrupt or has changed, and `StorageError`.
    """
    rows: list[ParsedRow] = []
    bad: list[BadRow] = []
    digest = SetDigest()
    labelled = split.format not in formats.UNLABELLED
    folder = location(listing.folder)
    listed = zip(*(column.to_pylist() for column in listing.table.columns), strict=True)
    files = [FolderFile(name, str(folder / name), Pin(*pin)) for name, *pin in listed]
    contents = small_contents((file.path, file.pin) for file in files)
    for file, content in zip(files, contents, strict=True):
        compression = compression_by_name(file.name)
        stream = formats.Stream(file.path, compression, content, options.encoding, file.pin)
        try:
            data = b"".join(stream)
            if len(data) > options.max_line_bytes:
                raise parsers.line_too_long(file.path, None, options)
            text = parsers.encode_text(data.decode("utf-8-sig", "surrogateescape"), options)
            label = parsers.parse_label(document_label(file.name, split.name), options) if labelled else None
            rows.append(ParsedRow(text, f"{split.short}/{file.name}", label, 1))
        except formats.NotTextError as error:
            bad.append(BadRow(1, 0, error.reason, error.code, file=file.name))
        except parsers.MalformedRowError as error:
            bad.append(error.at(1, 0)._replace(file=file.name))
        digest.add(f"{stream.sha256} {file.name}")
    return Documents.from_rows(rows, bad, options.labels if labelled else None, digest=digest.hexdigest())


# ----------------------------------------------------------------------------------------------------------------------
# A test set drawn from the documents themselves, by a digest of their ids.
#
# Whether a document is withheld depends on its id alone, so the same documents are left out of a store and read for its
# evaluation, whatever the files, splits and workers.


_BITS = 48
_SEED = 0x686F6C64  # its own, so that the draw is independent of hashed features


def read_part(documents: Documents | CountedDocuments, share: float, *, withheld: bool) -> Documents | CountedDocuments:
    """The documents that are withheld, or all others.

    Parameters
    ----------
    share : float
        Expected share of withheld documents, 0 ≤ share < 1.
    withheld : bool
        Whether to return the withheld documents.
    """
    if not share and not withheld:
        return documents
    drawn = hash_strings(documents.ids, _SEED, _BITS) < share * 2.0**_BITS
    return take_documents(documents, np.flatnonzero(drawn == withheld))


def take_documents(documents: Documents | CountedDocuments, rows: NDArray[np.int64]) -> Documents | CountedDocuments:
    """The documents of these rows, which increase."""

    def take(values: Any) -> Any:
        return values[rows] if isinstance(values, np.ndarray) else take_rows(values, rows)

    taken: dict[str, Any] = {
        "ids": take(documents.ids),
        "labels": None if documents.labels is None else take(documents.labels),
        "lines": documents.lines[rows],
        "columns": {name: take(values) for name, values in documents.columns.items()},
        "multiline": np.intersect1d(documents.multiline, documents.lines[rows]),
        "carried": {name: take(values) for name, values in documents.carried.items()},
    }
    if isinstance(documents, Documents):
        taken["strings"] = take(documents.strings)
        taken["fields"] = {name: take(values) for name, values in documents.fields.items()}
    else:
        shape = (len(documents), len(documents.names))
        part = scipy.sparse.csr_matrix((documents.counts, documents.features, documents.indptr), shape)[rows]
        taken |= {"indptr": part.indptr.astype(np.int64), "features": part.indices.astype(np.int64)}
        taken["counts"] = part.data
    return type(documents)(**documents._asdict() | taken)


# ----------------------------------------------------------------------------------------------------------------------
# Splits of sources: runs of whole lines, records, rows or files, each counted on its own.


class Split(NamedTuple):
    """A run of documents of a source: the unit of counting, and the content of one shard.

    Parameters
    ----------
    source : int
        Position of the source in the ingest.
    name, short : str
        Names of the source in messages and in generated ids.
    path : str
        Absolute path or URI of the source; of a folder with one document per file, the staged listing of the split.
    start, stop : int
        Range of bytes of the uncompressed UTF-8, of rows of a table, or of the files of a folder.
    bytes : int
        Its size, as far as it is known without reading it.
    line : int
        Line number of its first line.
    header : tuple of str
        Column names of CSV and TSV.
    key : str
        Identifies the split and the options it is counted with.
    xxh3 : int or None
        Of the bytes of lines or records, as they were read first.
    version : str
        The key of the source.
    pin : Pin or None
        The version of the file.
    """

    source: int
    name: str
    short: str
    format: str
    path: str
    start: int
    stop: int
    bytes: int
    line: int
    header: tuple[str, ...]
    key: str
    xxh3: int | None
    version: str
    pin: Pin | None

    @classmethod
    def of(
        cls, index: int, source: Source, options: TextOptions, start: int, stop: int, size: int, line: int = 1,
        header: Sequence[str] = (), xxh3: int | None = None, path: str | None = None,
    ) -> "Split":  # fmt: skip
        """The split [start, stop) of source number `index`."""
        read = [] if xxh3 is None else [[stop, xxh3]]
        state = [source.key, source.short, source.format, start, stop, options.counting_digest, read]
        return cls(
            index, source.path, source.short, source.format, path or source.absolute, start, stop, size, line,
            tuple(header), digest_value(state)[:32], xxh3, source.key, source.pin,
        )  # fmt: skip

    @property
    def place(self) -> tuple[Any, ...]:
        """The arguments of `of` that say where it is in its source."""
        return self.start, self.stop, self.bytes, self.line, self.header, self.xxh3, self.path


Content = NDArray[np.uint8] | Listing
"""What a split is parsed from: its bytes and `SLACK` more, or its files."""


def read_split(
    split: Split, options: TextOptions, *, labelled: bool, withheld: bool = False, content: Content | None = None
) -> Documents | CountedDocuments:
    """The documents of a split, with labels if `labelled`; with `withheld`, those that `holdout` leaves out instead.

    Without `content`, it is read: a range of a plain file in UTF-8, of a table or of a listing.

    Raises `InputError` for a file that cannot be read, or that changed, and `StorageError`.
    """
    documents: Documents | CountedDocuments
    if split.format in formats.TABLES:
        table = open_table(split.path, split.format, split.version, split.pin)
        documents = read_table(table, split.short, split.start, split.stop, options, labelled=labelled)
    elif split.format in formats.FOLDERS:
        listing = Listing.load(location(split.path)) if content is None else content
        assert isinstance(listing, Listing)
        documents = read_files(split, listing, options)
    else:
        documents = parsers.PARSERS[split.format](read_chunk(split, content), options, labelled=labelled)
    return read_part(documents, options.holdout, withheld=withheld)


def read_chunk(split: Split, content: Content | None = None) -> parsers.Chunk:
    """The bytes of a split of lines or records: its `content`, or else a range of its file.

    Raises `InputError` for a file that changed, and `StorageError`.
    """
    size = split.stop - split.start
    if content is None:
        content = np.empty(size + parsers.SLACK, np.uint8)
        read_range(split.path, split.name, split.start, content[:size].data, split.pin)
        if split.xxh3 is not None and xxh3_64_intdigest(content[:size].data) != split.xxh3:
            raise changed(split.name)
    assert isinstance(content, np.ndarray)
    content[size:] = 0
    content[size] = ord("\n")
    return parsers.Chunk(content, size, split.name, split.short, split.line, split.start, split.header)


def check_bad_rows(split: Split, bad: list[BadRow], options: TextOptions, before: int) -> int:
    """Number of bad rows up to and including this split, `before` of them in earlier splits.

    Raises `InputError` for the first row beyond `max_bad_rows`, with file and line.
    """
    counted = [row for row in bad if row.counted]
    if before + len(counted) <= options.max_bad_rows:
        return before + len(counted)
    row = counted[options.max_bad_rows - before]
    place = position(split.name, row)
    mend = fields = fields_to_name(split, row, options)
    if row.code == "encoding" and "--encoding" not in row.reason:
        mend = "; set --encoding to its codec, such as cp1252, or to auto, or --encoding-errors replace"
    if options.max_bad_rows == 0:
        others = "" if fields else " To leave such rows out, set max_bad_rows (--max-bad-rows)."
        error = InputError(f"{place}: {row.reason}{mend}.{others}", code=row.code)
    else:
        error = InputError(
            f"{place}: {row.reason}{mend}. There are more bad rows than max_bad_rows = {options.max_bad_rows} allows "
            "(--max-bad-rows).",
            code="too-many-bad-rows",
        )
    error.source = split.name
    raise error


def quarantined_rows(path: str, bad: Iterable[BadRow]) -> list[tuple[str, int, int, str]]:
    """The rows of a quarantine table (see `sparseoco.store.shards.write_quarantine`) for bad rows of a source."""
    return [
        (
            f"{path}/{row.file}" if row.file else path,
            row.line,
            row.offset,
            f"{row.place}: {row.reason}" if row.place else row.reason,
        )
        for row in bad
    ]


def position(name: str, row: BadRow) -> str:
    """Where a row of a source of this name is."""
    return f"{name}/{row.file}" if row.file else f"{name}, {row.place or f'line {row.line}'}"


def fields_to_name(split: Split, row: BadRow, options: TextOptions) -> str:
    """What to set if neither a row of JSON lines nor those that follow it have a field that it needs."""
    kind = row.reason.partition(" ")[0]
    used = {"text": options.text_field, "label": options.label_field}
    used |= {str(name): field for name, field in options.columns.items()}
    if split.format != "jsonl" or row.code != "missing-field" or kind not in used:
        return ""
    compression = compression_by_name(split.name)
    with storage_errors(location(split.name)):
        if compression is None:
            text = some_bytes(split.name, row.offset, formats.SAMPLE)
        else:
            text = formats.first_bytes(split.name, compression, formats.SAMPLE, start=row.offset)[: formats.SAMPLE]
    names = tuple(dict.fromkeys(name for line in text.splitlines(keepends=True) for name in parsers.object_keys(line)))
    kinds = {kind} if options.fields else {"text", kind}  # a text is always needed
    absent = [name for name in used if name in kinds and used[name] not in names]
    if not names or kind not in absent:
        return ""
    return f"; the fields are {parsers.shown(names)}: set {parsers.field_flags(absent)}"


# ----------------------------------------------------------------------------------------------------------------------
# Rows of a split, selected by their numbers and written in the format of the input.
#
# Lines and records are copied as they are, but for their ends, which become LF, and for a byte order mark, which is
# left out; text in another encoding becomes UTF-8. Rows of tables are written as Parquet, with all columns. Equal rows
# give equal bytes.


GZIP_LEVEL, ZSTD_LEVEL = 6, 3


def file_suffix(file: Source | Split) -> str:
    """The suffix of files of selected rows: of the format, and of the compression of the input."""
    compressed = file.format not in formats.TABLES and compression_by_name(file.path) is not None
    form = "parquet" if file.format in formats.TABLES else file.format  # rows of tables are written as Parquet
    return formats.FORMATS[form].suffixes[0] + (splitext(file.path)[1].lower() if compressed else "")


def write_rows(
    split: Split, content: Content | None, rows: NDArray[np.int64], path: Location, options: TextOptions
) -> None:
    """Commit a file with some rows of a split.

    Parameters
    ----------
    split : Split
        Not of a folder, whose documents are files of their own.
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
    if split.format in formats.TABLES:
        _write_table(split, rows, path)
        return
    data = _header(split, options)
    if rows.size:
        data += _selected_bytes(split, read_chunk(split, content), rows, options)
    compression = compression_by_name(split.path)
    if compression == "gzip":
        data = gzip.compress(data, GZIP_LEVEL, mtime=0)
    elif compression is not None:
        data = zstandard.ZstdCompressor(ZSTD_LEVEL).compress(data)
    commit_bytes(path, data)


def _selected_bytes(split: Split, chunk: parsers.Chunk, rows: NDArray[np.int64], options: TextOptions) -> bytes:
    """The lines or records, each with LF at its end. Overwrites the ends in `chunk`."""
    data = chunk.data
    delimiter = formats.DELIMITERS.get(split.format)
    lines = chunk.lines(options) if delimiter is None else parsers.line_starts(data, chunk.size)
    starts = lines[rows - split.line]
    if split.start == 0 and data[: len(parsers.BOM)].tobytes() == parsers.BOM:
        starts = np.maximum(starts, len(parsers.BOM))
    if delimiter is None:
        stops = lines[rows - split.line + 1]
    else:
        rule = chunk.size, ord(delimiter), parsers.quote(delimiter), True
        ends = (scan_records(data[: chunk.size], at, RECORD_START, at, at, at, *rule)[0] for at in starts.tolist())
        stops = np.fromiter(ends, np.int64, rows.size)
    for end in (NEWLINE, RETURN):
        stops = stops - ((stops > starts) & (data[stops - 1] == end))
    data[stops] = NEWLINE
    # Every second one of the spans between these bounds is a row, and the others are what is between rows.
    bounds = np.column_stack([starts, stops + 1]).reshape(-1)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    spans = pa.Array.from_buffers(pa.large_binary(), bounds.size - 1, buffers)
    selected = spans.take(pa.array(np.arange(0, bounds.size, 2)))
    return bytes(memoryview(selected.buffers()[2])[: int(np.sum(stops + 1 - starts))])


def _header(split: Split, options: TextOptions) -> bytes:
    """The first record of CSV and TSV with a header."""
    delimiter = formats.DELIMITERS.get(split.format)
    if delimiter is None or not options.header:
        return b""
    if split.format == "tsv":
        return f"{delimiter.join(split.header)}\n".encode()
    text = io.StringIO()
    csv.writer(text).writerow(split.header)
    return text.getvalue().removesuffix("\r\n").encode() + b"\n"


def _write_table(split: Split, rows: NDArray[np.int64], path: Location) -> None:
    table = open_table(split.path, split.format, split.version, split.pin)
    check_parquet_types(table.schema, split.name)
    parts = []
    first = split.start + 1
    batches = table.read(None, split.start, split.stop) if rows.size else []
    try:
        for batch in batches:
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
