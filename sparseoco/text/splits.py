"""Splits of sources: runs of whole lines, records, rows or files, each counted on its own."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from sparseoco.core.errors import InputError
from sparseoco.storage.commit import digest_value
from sparseoco.storage.errors import storage_error
from sparseoco.storage.locations import location
from sparseoco.text.charsets import SAMPLE, suggestion
from sparseoco.text.cutting.listings import Listing, read_files
from sparseoco.text.documents import BadRow, CountedDocuments, Documents
from sparseoco.text.folders import FolderFile
from sparseoco.text.holdout import read_part
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers import PARSERS, Chunk
from sparseoco.text.parsers.chunk import SLACK
from sparseoco.text.parsers.fields import SHOWN
from sparseoco.text.parsers.jsonl import object_keys
from sparseoco.text.sources import FOLDERS, TABLES, Source, compression_by_name
from sparseoco.text.stored import Pin, changed, read_range, some_bytes
from sparseoco.text.streams import first_bytes
from sparseoco.text.tables.columns import NO_FACTS, TableFacts
from sparseoco.text.tables.documents import read_table
from sparseoco.text.tables.files import open_table


class Split(NamedTuple):
    """A run of documents of a source: the unit of counting, and the content of one shard.

    Parameters
    ----------
    source : int
        Position of the source in the ingest.
    name, short : str
        Names of the source in messages and in generated ids.
    path : str
        Absolute path or URI of the source; of folders with one document per file, a part of the listing.
    start, stop : int
        Range of bytes of the uncompressed UTF-8, of rows of a table, or of files of a part of a listing.
    bytes : int
        Its size, as far as it is known without reading it.
    line : int
        Line number of its first line.
    header : tuple of str
        Column names of CSV and TSV.
    quoted : bool
        Whether their fields may be quoted.
    key : str
        Identifies the split and the options it is counted with.
    runs : tuple of (int, int)
        Ends of runs of bytes that make up the split, and their XXH3, as they were read first.
    version : str
        The key of the source.
    pin : Pin or None
        The version of the file.
    facts : TableFacts
        What the folder of a Parquet or Arrow file says.
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
    quoted: bool
    key: str
    runs: tuple[tuple[int, int], ...]
    version: str
    pin: Pin | None
    facts: TableFacts = NO_FACTS

    @classmethod
    def of(
        cls, index: int, source: Source, options: TextOptions, start: int, stop: int, size: int, line: int = 1,
        header: Sequence[str] = (), quoted: bool = False, runs: Iterable[Sequence[int]] = (), path: str | None = None,
    ) -> "Split":  # fmt: skip
        """The split [start, stop) of source number `index`."""
        known = tuple((end, digest) for end, digest in runs)
        state = [source.key, source.short, source.format, start, stop, options.counting_digest, known]
        return cls(
            index, source.path, source.short, source.format, path or source.absolute, start, stop, size, line,
            tuple(header), quoted, digest_value(state)[:32], known, source.key, source.pin, source.facts,
        )  # fmt: skip

    @property
    def place(self) -> tuple[Any, ...]:
        """The arguments of `of` that say where it is in its source."""
        return self.start, self.stop, self.bytes, self.line, self.header, self.quoted, self.runs


Content = NDArray[np.uint8] | Sequence[FolderFile]
"""What a split is parsed from: its bytes and `SLACK` more, or its files."""


def read_split(
    split: Split, options: TextOptions, *, labelled: bool, withheld: bool = False, content: Content | None = None
) -> Documents | CountedDocuments:
    """The documents of a split, with labels if `labelled`; with `withheld`, those that `holdout` leaves out instead.

    Without `content`, it is read: a range of a plain file in UTF-8, of a table or of a listing.

    Raises `InputError` for a file that cannot be read, or that changed, and `StorageError`.
    """
    return read_part(_read_all(split, options, content, labelled=labelled), options.holdout, withheld=withheld)


def _read_all(
    split: Split, options: TextOptions, content: Content | None, *, labelled: bool
) -> Documents | CountedDocuments:
    if split.format in TABLES:
        table = open_table(split.path, split.format, split.version, split.pin)
        return read_table(table, split.short, split.start, split.stop, options, split.facts, labelled=labelled)
    if split.format in FOLDERS:
        files = Listing.load(location(split.path)).files(split.start, split.stop) if content is None else content
        return read_files(split.name, split.short, split.format, files, options)  # type: ignore[arg-type]
    return PARSERS[split.format](read_chunk(split, content), options, labelled=labelled)


def read_chunk(split: Split, content: Content | None = None) -> Chunk:
    """The bytes of a split of lines or records: its `content`, or else a range of its file.

    Raises `InputError` for a file that changed, and `StorageError`.
    """
    size = split.stop - split.start
    if content is None:
        content = np.empty(size + SLACK, np.uint8)
        read_range(split.path, split.name, split.start, content[:size].data, split.pin)
        _check_runs(split, content)
    assert isinstance(content, np.ndarray)
    content[size:] = 0
    content[size] = ord("\n")
    return Chunk(content, size, split.name, split.short, split.line, split.start, split.header, split.quoted)


def _check_runs(split: Split, content: NDArray[np.uint8]) -> None:
    """Raises `InputError` if the bytes of a split are not those that were read first."""
    begin = split.start
    for end, digest in split.runs:
        if xxh3_64_intdigest(content[begin - split.start : end - split.start].data) != digest:
            raise changed(split.name)
        begin = end


def check_bad_rows(split: Split, bad: list[BadRow], options: TextOptions, before: int) -> int:
    """Number of bad rows up to and including this split, `before` of them in earlier splits.

    Raises `InputError` for the first row beyond `max_bad_rows`, with file and line.
    """
    counted = [row for row in bad if row.counted]
    if before + len(counted) <= options.max_bad_rows:
        return before + len(counted)
    row = counted[options.max_bad_rows - before]
    place = position(split.name, row)
    mend = f"; {_codec_to_try(split, row)}" if row.code == "encoding" and "--encoding" not in row.reason else ""
    fields = fields_to_name(split, row, options)
    mend += fields
    if options.max_bad_rows == 0:
        others = "" if fields else " To leave such rows out, set max_bad_rows (--max-bad-rows)."
        raise InputError(f"{place}: {row.reason}{mend}.{others}", code=row.code)
    raise InputError(
        f"{place}: {row.reason}{mend}. There are more bad rows than max_bad_rows = {options.max_bad_rows} allows "
        "(--max-bad-rows).",
        code="too-many-bad-rows",
    )


def position(name: str, row: BadRow) -> str:
    """Where a row of a source of this name is."""
    return f"{name}/{row.file}" if row.file else f"{name}, {row.place or f'line {row.line}'}"


def fields_to_name(split: Split, row: BadRow, options: TextOptions) -> str:
    """What to set if neither a row nor those that follow it have a field that it needs; nothing for others."""
    kind = row.reason.partition(" ")[0]
    used = {"label": options.label_field, "text": options.text_field}
    used |= {str(name): field for name, field in options.columns.items()}
    if row.code != "missing-field" or kind not in used:
        return ""
    names = split.header
    if split.format == "jsonl":
        lines = _text_near(split.name, row.offset).splitlines(keepends=True)
        names = tuple(dict.fromkeys(name for line in lines for name in object_keys(line)))
    kinds = {kind} if options.fields else {"text", kind}  # a text is always needed
    absent = [name for name in sorted(kinds, reverse=True) if used[name] not in names]
    if not names or kind not in absent:
        return ""
    shown = ", ".join(repr(name if len(name) <= 40 else f"{name[:39]}…") for name in names[:SHOWN])
    header = ", or --no-header if the first line is a document" if split.header and options.header else ""
    flags = " and ".join(f"--{name}-field" for name in absent)
    return f"; the {'columns' if split.header else 'fields'} are {shown}: set {flags}{header}"


def _codec_to_try(split: Split, row: BadRow) -> str:
    """What to set for a row that is not valid in its encoding, by the text around it."""
    path, start = (f"{split.name}/{row.file}", 0) if row.file else (split.name, max(0, row.offset - SAMPLE // 2))
    return suggestion(_text_near(path, start))


def _text_near(path: str, start: int) -> bytes:
    """The `SAMPLE` bytes of a file from `start` on, decompressed."""
    compression = compression_by_name(path)
    try:
        if compression is None:
            return some_bytes(path, start, SAMPLE)
        return first_bytes(path, compression, SAMPLE, start=start)[:SAMPLE]
    except OSError as error:
        raise storage_error(error, location(path)) from error
