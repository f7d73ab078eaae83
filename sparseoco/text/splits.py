"""Split sources into runs of whole lines, records or files, each counted by one task."""

import builtins
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.storage.commit import committed, digest_file, digest_value
from sparseoco.storage.locations import Location, location
from sparseoco.text.array_files import Arrays, load_arrays, save_arrays, store_strings, stored_strings, write_all
from sparseoco.text.charsets import SAMPLE, UTF8, NotTextError, suggestion
from sparseoco.text.documents import (
    BadRow,
    CountedDocuments,
    Documents,
    ParsedRow,
    store_labels,
    stored_labels,
)
from sparseoco.text.folders import document_label, list_files
from sparseoco.text.holdout import read_part
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers import DELIMITERS, PARSERS, Chunk
from sparseoco.text.parsers.chunk import SLACK, line_too_long
from sparseoco.text.parsers.csv_records import RecordScanner, line_starts
from sparseoco.text.parsers.delimited import blank_size, is_quoted, parse_header
from sparseoco.text.parsers.fields import MalformedRowError, encode_text, parse_label
from sparseoco.text.sources import COMPRESSIONS, FOLDERS, TABLES, Source
from sparseoco.text.streams import Stream, first_bytes, read_range, with_contents
from sparseoco.text.tables.columns import NO_FACTS, TableFacts
from sparseoco.text.tables.documents import projection, read_table
from sparseoco.text.tables.files import RowGroup, close_tables, open_table

# Bytes of splits for tasks of this process, by their staging path.
_in_memory: dict[str, NDArray[np.uint8]] = {}


class Split(NamedTuple):
    """A run of documents of a source: the unit of counting, and the content of one shard.

    Parameters
    ----------
    source, number : int
        Position of the source in the ingest, and of the split in the source.
    name, short : str
        Names of the source in messages and in generated ids.
    path, start, stop
        Absolute path or URI and byte range of the split: of the source itself, or of a staged copy.
    staged : bool
        Whether `path` is a staged copy, deleted after counting.
    line, offset : int
        Line number and byte offset of its first line in the uncompressed source.
    header : tuple of str
        Column names of CSV and TSV.
    quoted : bool
        Whether their fields may be quoted.
    key : str
        Identifies the split and the options it is counted with.
    version : str
        The key of the source, of Parquet and Arrow, whose `start` and `stop` are rows.
    facts : TableFacts
        What the folder of such a file says.
    """

    source: int
    number: int
    name: str
    short: str
    format: str
    path: str
    start: int
    stop: int
    staged: bool
    line: int
    offset: int
    header: tuple[str, ...]
    quoted: bool
    key: str
    version: str = ""
    facts: TableFacts = NO_FACTS


@dataclass
class SplitReader:
    """Iterates over the splits of one source and reads it once; afterwards `sha256`, `bytes` and `codec` are set.

    A split ends with the first line that reaches `shard_bytes`, so its end is deterministic. Splits of uncompressed
    files in UTF-8 are ranges of the file. Others are copied to `staging`, unless `is_counted(key)`, or, for tasks of
    this process, kept `in_memory`, remote files included.
    """

    index: int
    source: Source
    options: TextOptions
    shard_bytes: int
    staging: Location
    is_counted: Callable[[str], bool] = lambda key: False
    in_memory: bool = False
    sha256: str = field(default="", init=False)
    bytes: int = field(default=0, init=False)
    codec: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self._delimiter = DELIMITERS.get(self.source.format)
        self._records: RecordScanner | None = None

    def __iter__(self) -> Iterator[Split]:
        if self.source.format in TABLES:
            yield from self._split_table()
        else:
            yield from self._split_folder() if self.source.format in FOLDERS else self._split_file()

    def _stream(self, path: str, compression: str | None, content: "builtins.bytes | None" = None) -> Stream:
        return Stream(path, compression, self.options.max_inflation, content, self.options.encoding)

    def _split_file(self) -> Iterator[Split]:
        source = self.source
        stream = self._stream(source.path, source.compression)
        pending = bytearray()
        number, line, offset = 0, 1, 0
        header: tuple[str, ...] | None = None if self._delimiter and self.options.header else ()
        at_end = False
        parts = iter(stream)
        while not at_end:
            part = next(parts, None)
            at_end = part is None
            pending += part or b""
            self.codec = stream.codec
            if self._delimiter and self._records is None:
                if not at_end and b"\n" not in pending and len(pending) <= self.options.max_line_bytes:
                    continue  # the first line decides about quotes
                quoted = is_quoted(pending, self._delimiter, self.options)
                self._records = RecordScanner(source.path, ord(self._delimiter), quoted, self.options)
            if header is None:
                size = self._find_end(pending, blank_size(pending), line, at_end)
                if size < 0:
                    continue
                assert self._records
                header = parse_header(pending[:size], self._records)
                line, offset = line + self._count_lines(pending, size), size
                del pending[:size]
            if self._records and not header:
                size = self._find_end(pending, blank_size(pending), line, at_end)
                if size < 0:
                    continue
                header = tuple(str(k + 1) for k in range(len(parse_header(pending[:size], self._records))))
                self._records = replace(self._records)  # the first record is read again
            while len(pending) >= self.shard_bytes or (at_end and pending):
                size = self._find_end(pending, self.shard_bytes - 1, line, at_end)
                if size < 0:
                    break
                split = self._split(number, line, offset, size, header)
                if source.compression is not None or stream.codec != UTF8 or (source.remote and self.in_memory):
                    split = self._as_staged(split)._replace(start=0, stop=size)
                    if not self.is_counted(split.key):
                        self._stage_bytes(split.path, memoryview(pending)[:size])
                yield split
                line, offset = line + self._count_lines(pending, size), offset + size
                number += 1
                del pending[:size]
        self.sha256, self.bytes = stream.sha256, stream.bytes

    def _find_end(self, pending: bytearray, at_least: int, line: int, at_end: bool) -> int:
        """Size of the shortest run of whole lines or records longer than `at_least`, or -1 if more bytes are needed."""
        if self._records:
            return self._records.find_end(pending, at_least, line, at_end=at_end)
        newline = pending.find(b"\n", min(at_least, len(pending)))
        if newline >= 0:
            return newline + 1
        if at_end:
            if self.source.format == "lines" and line == 1 and b"\r" in pending.rstrip(b"\r") and b"\n" not in pending:
                raise InputError(
                    f"{self.source.path}: its lines end with CR alone, as on old Macs; convert them to LF.",
                    code="line-ends",
                )
            return len(pending)
        if len(pending) - (pending.rfind(b"\n") + 1) > self.options.max_line_bytes:
            raise line_too_long(self.source.path, line + pending.count(b"\n"), self.options)
        return -1

    def _count_lines(self, pending: bytearray, size: int) -> int:
        if self._records:
            return line_starts(pending, size).size - 1
        return int(np.count_nonzero(np.frombuffer(pending, np.uint8, size) == ord("\n")))

    def _split(self, number: int, line: int, offset: int, size: int, header: tuple[str, ...]) -> Split:
        source = self.source
        state = [source.key, source.short, source.format, self.shard_bytes, number, self.options.counting_digest]
        key = digest_value(state)[:32]
        return Split(
            self.index, number, source.path, source.short, source.format, source.absolute, offset, offset + size,
            False, line, offset, header, self._records is not None and self._records.quoted, key,
        )  # fmt: skip

    def _as_staged(self, split: Split) -> Split:
        return split._replace(path=str(self.staging / f"{split.key}.raw"), staged=True)

    def _stage_bytes(self, path: str, data: memoryview) -> None:
        if self.in_memory:
            padded = np.empty(len(data) + SLACK, np.uint8)
            padded[: len(data)] = np.frombuffer(data, np.uint8)
            _in_memory[path] = padded
        else:
            with committed(location(path), sync=False) as temporary, temporary.open("wb", buffering=0) as file:
                write_all(file, data)
        data.release()

    def _split_folder(self) -> Iterator[Split]:
        """Splits of a folder with one document per file."""
        digests: list[tuple[str, str]] = []
        rows: list[ParsedRow] = []
        bad: list[BadRow] = []
        size = number = 0
        self.codec = self.options.encoding
        files = list_files(self.source.path, self.options)
        for name, path, content in with_contents((file.name, file.path) for file in files):
            stream = self._stream(path, COMPRESSIONS.get(PurePosixPath(name).suffix.lower()), content)
            try:
                data = b"".join(stream)
                if len(data) > self.options.max_line_bytes:
                    raise line_too_long(path, None, self.options)
                size += len(data)
                text = encode_text(data.decode("utf-8-sig", "surrogateescape"), self.options)
                rows.append(ParsedRow(text, f"{self.source.short}/{name}", self._label(name), 1))
            except NotTextError as error:
                bad.append(BadRow(1, 0, error.reason, error.code, file=name))
            except MalformedRowError as error:
                bad.append(error.at(1, 0)._replace(file=name))
            digests.append((name, stream.sha256))
            self.bytes += stream.bytes
            if size >= self.shard_bytes:
                yield self._stage_documents(number, rows, bad)
                rows, bad, size, number = [], [], 0, number + 1
        if rows or bad:
            yield self._stage_documents(number, rows, bad)
        self.sha256 = digest_value(digests)

    def _split_table(self) -> Iterator[Split]:
        """Splits of Parquet or Arrow: parts of row groups, or several of them, by the size of their columns."""
        source = self.source
        if not source.bytes:
            self.sha256 = hashlib.sha256().hexdigest()
            return
        table = open_table(source.absolute, source.format, source.key)
        columns = projection(table, self.options, source.facts, labelled=False)
        fixed = source.facts.fields(table.schema)
        excluded = any(fixed.get(name, wanted) != wanted for name, wanted in self.options.where.items())
        groups = [] if excluded else table.row_groups(columns)
        for number, (start, stop, share) in enumerate(_parts(groups, self.shard_bytes)):
            self.bytes = int(source.bytes * share)
            split = self._split(number, start + 1, 0, 0, ())
            yield split._replace(start=start, stop=stop, version=source.key, facts=source.facts)
        self.bytes = source.bytes
        # A remote file is not read only for its digest: its ETag identifies it.
        self.sha256 = source.key if source.remote else digest_file(Path(source.path))

    def _label(self, name: str) -> Any:
        if self.source.format == "files":
            return None
        return parse_label(document_label(name, self.source.path, self.options.label_depth), self.options)

    def _stage_documents(self, number: int, rows: list[ParsedRow], bad: list[BadRow]) -> Split:
        split = self._as_staged(self._split(number, 1, 0, 0, ()))
        if not self.is_counted(split.key):
            kind = None if self.source.format == "files" else self.options.labels
            _save_documents(location(split.path), Documents.from_rows(rows, bad, kind))
        return split


def read_split(
    split: Split, options: TextOptions, *, labelled: bool, withheld: bool = False
) -> Documents | CountedDocuments:
    """The documents of a split, with labels if `labelled`; with `withheld`, those that `holdout` leaves out instead."""
    return read_part(_read_all(split, options, labelled=labelled), options.holdout, withheld=withheld)


def _read_all(split: Split, options: TextOptions, *, labelled: bool) -> Documents | CountedDocuments:
    if split.format in TABLES:
        table = open_table(split.path, split.format, split.version)
        return read_table(table, split.short, split.start, split.stop, options, split.facts, labelled=labelled)
    if split.format in FOLDERS:
        return _load_documents(location(split.path))
    size = split.stop - split.start
    data = _in_memory.pop(split.path, None)
    if data is None:
        data = np.empty(size + SLACK, np.uint8)
        read_range(split.path, split.name, split.start, data[:size].data)
    data[size:] = 0
    data[size] = 10
    chunk = Chunk(data, size, split.name, split.short, split.line, split.offset, split.header, split.quoted)
    return PARSERS[split.format](chunk, options, labelled=labelled)


def _parts(groups: Sequence[RowGroup], size: int) -> Iterator[tuple[int, int, float]]:
    """Rows [start, stop) of parts of about `size` bytes, and the share of rows up to there.

    A larger row group is cut into parts with the same number of rows; smaller ones are put together.
    """
    total = sum(group.rows for group in groups)
    begin = end = pending = 0
    for group in groups:
        if pending and pending + group.bytes > size:
            yield begin, end, end / total
            begin, pending = end, 0
        pending += group.bytes
        end += group.rows
        if pending > size and group.rows > 1:
            rows = -(-group.rows // -(-group.bytes // size))
            while end - begin > rows:
                yield begin, begin + rows, (begin + rows) / total
                begin += rows
            pending = size
    if end > begin:
        yield begin, end, 1.0


def forget_in_memory(staging: Location) -> None:
    """Free the in-memory splits under `staging` that were not read, and close Parquet and Arrow files."""
    close_tables()
    for path in [path for path in _in_memory if path.startswith(f"{staging}/")]:
        _in_memory.pop(path, None)


def check_bad_rows(split: Split, bad: list[BadRow], options: TextOptions, before: int) -> int:
    """Number of bad rows up to and including this split, `before` of them in earlier splits.

    Raises `InputError` for the first row beyond `max_bad_rows`, with file and line.
    """
    counted = [row for row in bad if row.counted]
    if before + len(counted) <= options.max_bad_rows:
        return before + len(counted)
    row = counted[options.max_bad_rows - before]
    position = f"{split.name}/{row.file}" if row.file else f"{split.name}, {row.place or f'line {row.line}'}"
    mend = f"; {_codec_to_try(split, row)}" if row.code == "encoding" and "--encoding" not in row.reason else ""
    if options.max_bad_rows == 0:
        raise InputError(f"{position}: {row.reason}{mend} (max_bad_rows allows bad rows).", code=row.code)
    raise InputError(
        f"{position}: {row.reason}{mend} (more bad rows than max_bad_rows = {options.max_bad_rows}).",
        code="too-many-bad-rows",
    )


def _codec_to_try(split: Split, row: BadRow) -> str:
    """What to set for a row that is not valid in its encoding, by the text around it."""
    path, start = (f"{split.name}/{row.file}", 0) if row.file else (split.name, max(0, row.offset - SAMPLE // 2))
    sample = first_bytes(path, COMPRESSIONS.get(PurePosixPath(path).suffix.lower()), SAMPLE, start=start)
    return suggestion(sample[:SAMPLE])


def _save_documents(path: Location, documents: Documents) -> None:
    arrays: Arrays = {name: getattr(documents, name) for name in ("data", "starts", "stops", "lines")}
    store_strings(arrays, "id", documents.ids)
    store_labels(arrays, documents.labels)
    save_arrays(path, arrays, {"bad": documents.bad})


def _load_documents(path: Location) -> Documents:
    arrays, facts = load_arrays(path)
    return Documents(
        arrays["data"],
        arrays["starts"],
        arrays["stops"],
        stored_strings(arrays, "id"),
        stored_labels(arrays),
        arrays["lines"],
        [BadRow(*row) for row in facts["bad"]],
    )
