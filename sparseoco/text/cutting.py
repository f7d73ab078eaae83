"""The cut rule, and the splits of files, tables and folders by it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from xxhash import xxh3_64_intdigest

from sparseoco.core.errors import InputError
from sparseoco.storage import inputs
from sparseoco.storage.commit import digest_value
from sparseoco.storage.inputs import FolderFile, SetDigest, changed, digest_stored, names_versions
from sparseoco.storage.locations import location
from sparseoco.text.array_files import load_arrays, save_arrays
from sparseoco.text.formats import DELIMITERS, FOLDERS, TABLES
from sparseoco.text.options import SHARD_BYTES, TextOptions
from sparseoco.text.parsers import RecordScanner, blank_size, line_starts, parse_header
from sparseoco.text.rows import SLACK, line_too_long
from sparseoco.text.sources import Source, folder_key, iter_files, version_of
from sparseoco.text.splits import Content, Listing, Split, read_files
from sparseoco.text.streams import UTF8, Stream
from sparseoco.text.tables import RowGroup, open_table, projection

# ----------------------------------------------------------------------------------------------------------------------
# The cut rule, and a file cut by it in one pass.
#
# Split k of a file ends with the first line or record that ends at or beyond byte (k + 1) · shard_bytes of its
# uncompressed UTF-8; a split that would be empty is left out. So an end depends on the file and its own position alone.


class Head(NamedTuple):
    """What the beginning of a file decides.

    Parameters
    ----------
    header : tuple of str
        Column names of CSV and TSV; empty for other formats.
    size, lines : int
        Bytes and lines of the header, which precede the first split.
    """

    header: tuple[str, ...] = ()
    size: int = 0
    lines: int = 0


class Cut(NamedTuple):
    """Split `number` of a file: bytes [start, stop) of its uncompressed UTF-8, from line number `line` on."""

    number: int
    start: int
    stop: int
    line: int


def read_head(data: bytes, source: Source, options: TextOptions, *, at_end: bool) -> Head | None:
    """What the first bytes of a file decide; None if more of them are needed, never `at_end`.

    Raises `InputError` for a header that cannot be read.
    """
    delimiter = DELIMITERS.get(source.format)
    if delimiter is None:
        return Head()
    scanner = RecordScanner(source.path, delimiter, options)
    size = scanner.find_end(data, blank_size(data), 1, at_end=at_end)
    if size < 0:
        return None
    header = parse_header(data[:size], scanner)
    if options.header:
        return Head(header, size, line_starts(data, size).size - 1)
    return Head(tuple(str(k + 1) for k in range(len(header))))


def cut_in_order(
    parts: Iterable[bytes], source: Source, options: TextOptions, shard_bytes: int
) -> Iterator[tuple[Head, Cut, memoryview]]:
    """Cut a file whose uncompressed UTF-8 comes in parts; the bytes of a cut stay as they are.

    Raises `InputError` for a line or record that is too long, and for a quoted field without an end.
    """
    remaining = iter(parts)
    # Bytes, which never change: Dask's profiler may still hold the arrays of earlier cuts.
    pending, begin = b"", 0
    offset, line, at_least = 0, 1, 0
    head: Head | None = None
    delimiter = DELIMITERS.get(source.format)
    records: RecordScanner | None = None
    at_end = False
    while not at_end:
        pending, at_end = _with_more(pending[begin:], remaining, at_least)
        begin = 0
        if head is None:
            head = read_head(pending, source, options, at_end=at_end)
            if head is None:
                continue
            if delimiter is not None:
                at_start = not head.size
                records = RecordScanner(source.path, delimiter, options, at_start=at_start)
            begin = offset = head.size
            line += head.lines
        while begin < len(pending):
            number = offset // shard_bytes
            at_least = (number + 1) * shard_bytes - offset - 1
            data = memoryview(pending)[begin:]
            if len(data) <= at_least and not at_end:
                break
            if records is None:
                size = _line_end(pending, begin, at_least, line, source, options, at_end=at_end)
            else:
                size = records.find_end(data, at_least, line, at_end=at_end)
            if size < 0:
                break
            yield head, Cut(number, offset, offset + size, line), data[:size]
            stop = begin + size
            line += pending.count(b"\n", begin, stop) if records is None else line_starts(data, size).size - 1
            begin, offset = stop, offset + size


def _with_more(pending: bytes, parts: Iterator[bytes], at_least: int) -> tuple[bytes, bool]:
    """`pending` and the next parts, more than `at_least` bytes, and whether no parts are left.

    They become at least a quarter longer, so that a long record is copied a few times only.
    """
    found, missing = [pending], max(at_least + 1 - len(pending), len(pending) // 4, 1)
    while missing > 0:
        part = next(parts, None)
        if part is None:
            return b"".join(found), True
        found.append(part)
        missing -= len(part)
    return b"".join(found), False


def _line_end(
    pending: bytes, begin: int, at_least: int, line: int, source: Source, options: TextOptions, *, at_end: bool
) -> int:
    """Size of the shortest run of whole lines from `begin` on that is longer than `at_least`; -1 if it needs more."""
    newline = pending.find(b"\n", begin + at_least)
    if newline >= 0:
        return newline + 1 - begin
    if at_end:
        if source.format == "lines" and line == 1 and b"\r" in pending.rstrip(b"\r") and b"\n" not in pending:
            raise InputError(
                f"{source.path}: its lines end with CR alone, as on old Macs; convert them to LF.",
                code="line-ends",
            )
        return len(pending) - begin
    if len(pending) - max(begin, pending.rfind(b"\n") + 1) > options.max_line_bytes:
        raise line_too_long(source.path, line + pending.count(b"\n", begin), options)
    return -1


# ----------------------------------------------------------------------------------------------------------------------
# Cuts of Parquet and Arrow files: parts of row groups, or several of them, by the size of their columns.


def cut_table(source: Source, options: TextOptions, shard_bytes: int) -> Iterator[tuple[int, int, int]]:
    """(first row, last row + 1, share of the bytes of the file) of the parts of a table.

    Raises `InputError` for a file that is corrupt or has none of the columns, and `StorageError`.
    """
    if not source.bytes:
        return
    table = open_table(source.absolute, source.format, source.key, source.pin)
    groups = table.row_groups(projection(table, options, labelled=False))
    total = sum(group.rows for group in groups)
    for start, stop in _parts(groups, shard_bytes):
        yield start, stop, source.bytes * stop // total - source.bytes * start // total


def _parts(groups: Sequence[RowGroup], size: int) -> Iterator[tuple[int, int]]:
    """Rows [start, stop) of parts of about `size` bytes.

    A larger row group is cut into parts with the same number of rows; smaller ones are put together.
    """
    begin = end = pending = 0
    for group in groups:
        if pending and pending + group.bytes > size:
            yield begin, end
            begin, pending = end, 0
        pending += group.bytes
        end += group.rows
        if pending > size and group.rows > 1:
            rows = -(-group.rows // -(-group.bytes // size))
            while end - begin > rows:
                yield begin, begin + rows
                begin += rows
            pending = size
    if end > begin:
        yield begin, end


# ----------------------------------------------------------------------------------------------------------------------
# The splits of a source, each of which can be read by itself: found by one task, in one pass over the source.


class Plan(NamedTuple):
    """The splits of a source, and its digest; of a folder, the digest to which those of its splits are added.

    `error` is what ended the reading, after these splits.
    """

    splits: list[Split]
    sha256: str
    error: InputError | None = None


def plan_source(index: int, source: Source, options: TextOptions, shard_bytes: int, staging: str) -> Plan | None:
    """The splits of a source; None for a file in another encoding than UTF-8, which must be read in order.

    The plan is staged, and so are the listings of the splits of a folder. Raises `StorageError`.
    """
    read = options.counting_digest, shard_bytes, inputs.PART_BYTES, Split._fields
    state = [source.key, source.short, source.format, *read]
    memo = location(staging) / f"{digest_value(state)[:32]}.plan"
    if memo.exists():
        facts = load_arrays(memo)[1]
        return Plan([Split.of(index, source, options, *place) for place in facts["splits"]], facts["sha256"])
    splits: list[Split] = []
    reader = SplitReader(index, source, options, shard_bytes)
    try:
        for split, content in reader:
            if source.format not in TABLES | FOLDERS and reader.codec != UTF8:
                return None
            if isinstance(content, Listing):
                path = location(staging) / f"{split.key}.listing"
                content.save(path)
                split = split._replace(path=str(path))
            splits.append(split)
        folder = source.format in FOLDERS
        sha256 = SetDigest().hexdigest() if folder else reader.sha256 or digest_source(source, options)
    except InputError as error:
        error.source = source.path
        return Plan(splits, "", error)
    save_arrays(memo, {}, {"splits": [split.place for split in splits], "sha256": sha256})
    return Plan(splits, sha256)


def digest_source(source: Source, options: TextOptions) -> str:
    """The digest that an ingest of this source gives. Raises `InputError`."""
    if source.format in FOLDERS:
        digest = SetDigest()
        for split, listing in SplitReader(0, source, options, SHARD_BYTES):
            assert isinstance(listing, Listing)
            digest.update(read_files(split, listing, options).digest)
        return digest.hexdigest()
    # A remote table is not read only for its digest: its ETag identifies it.
    if source.format in TABLES and names_versions(source.path):
        return source.key
    return digest_stored(source.absolute, source.path, source.pin)


def files_again(source: Source, options: TextOptions) -> Iterator[FolderFile]:
    """The files of a folder. Raises `InputError` at the end if they are not those that were found."""
    versions = SetDigest()
    for file in iter_files(source.absolute, options):
        versions.add(version_of(file))
        yield file
    if folder_key(source.absolute, versions) != source.key:
        raise changed(source.path)


# ----------------------------------------------------------------------------------------------------------------------
# The splits of a source in order, with their content, from one pass over it.


@dataclass
class SplitReader:
    """Iterates over the splits of one source, each with the content that `read_split` parses; None for tables.

    Afterwards `sha256`, of files that are no tables, and `codec` are set; `inflation`, of files of lines or records, is
    the size of their text so far, relative to that of the file. Memory is bounded by `shard_bytes` and the longest
    line, whatever the source expands to.
    """

    index: int
    source: Source
    options: TextOptions
    shard_bytes: int
    sha256: str = field(default="", init=False)
    codec: str = field(default="", init=False)
    inflation: float = field(default=1.0, init=False)

    def __iter__(self) -> Iterator[tuple[Split, Content | None]]:
        if self.source.format in TABLES:
            for start, stop, size in cut_table(self.source, self.options, self.shard_bytes):
                yield self._split(start, stop, size), None
        elif self.source.format in FOLDERS:
            yield from self._read_folder()
        else:
            yield from self._read_file()

    def _split(self, *place: Any) -> Split:
        return Split.of(self.index, self.source, self.options, *place)

    def _read_folder(self) -> Iterator[tuple[Split, Content]]:
        self.codec = self.options.encoding
        listing = Listing.of(self.source.absolute, files_again(self.source, self.options))
        for start, stop, size in listing.cuts(self.shard_bytes):
            yield self._split(start, stop, size), listing.part(start, stop)

    def _read_file(self) -> Iterator[tuple[Split, Content]]:
        source, options = self.source, self.options
        stream = Stream(source.absolute, source.compression, None, options.encoding, source.pin, source.path)
        for head, cut, data in cut_in_order(self._measured(stream), source, options, self.shard_bytes):
            self.codec = stream.codec
            content = np.empty(len(data) + SLACK, np.uint8)
            content[: len(data)] = data
            place = cut.start, cut.stop, len(data), cut.line, head.header, xxh3_64_intdigest(data)
            yield self._split(*place), content
        self.codec, self.sha256 = stream.codec, stream.sha256

    def _measured(self, stream: Stream) -> Iterator[bytes]:
        size = 0
        for part in stream:
            size += len(part)
            self.inflation = size / max(stream.bytes, 1)
            yield part
