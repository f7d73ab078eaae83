"""Cutting sources into splits: runs of whole lines (or records, or files) that are counted one at a time."""

from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.errors import InputError, StorageError
from sparseoco.storage.commit import digest_value
from sparseoco.storage.locations import Location, is_address, location, remote_location
from sparseoco.text.array_files import Arrays, load_arrays, save_arrays, string_array, string_buffers
from sparseoco.text.documents import BadRow, Bags, Documents, Row, documents_of
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers import PARSERS, Chunk
from sparseoco.text.parsers.chunk import SLACK, UnreadableError, checked_class, too_long, utf8
from sparseoco.text.parsers.csv_records import RecordScan, line_starts
from sparseoco.text.parsers.delimited import header_of
from sparseoco.text.sources import COMPRESSIONS, Source, files_below
from sparseoco.text.staging import staged
from sparseoco.text.streams import Stream, with_contents

QUOTED = {"csv": ",", "tsv": "\t"}
# Staged bytes that steps of this same process take from here rather than from a file.
_handed: dict[str, NDArray[np.uint8]] = {}


class Split(NamedTuple):
    """A run of a source's documents: the unit of counting, of what a kill can cost, and of a shard.

    path    where its bytes are, from the root: the source itself, or a staged copy, deleted once they are counted
    line    number of its first line in the source; offset of its first byte there, uncompressed
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
    key: str


class Cutter:
    """Iterates over the splits of one source, reading it once; then `sha256` and `bytes` are known.

    A split ends with the first line that reaches `shard_bytes`, so where it ends depends on nothing else. Splits of
    plain files are ranges of the file, wherever it is; others are copied to `staging`, unless `counted(key)` says there
    is no need. `hand_over` keeps copies in memory, of plain files at an address too, for steps of this same process.
    """

    def __init__(
        self,
        index: int,
        source: Source,
        options: TextOptions,
        shard_bytes: int,
        staging: Location,
        counted: Callable[[str], bool],
        *,
        hand_over: bool = False,
    ) -> None:
        self.index = index
        self.source = source
        self.options = options
        self.shard_bytes = shard_bytes
        self.staging = staging
        self.counted = counted
        self.hand_over = hand_over
        delimiter = QUOTED.get(source.format)
        self._records = RecordScan(source.path, delimiter, options) if delimiter else None
        self.sha256 = ""
        self.bytes = 0

    def __iter__(self) -> Iterator[Split]:
        if self.source.format == "folder":
            yield from self._folder()
        else:
            yield from self._file()

    def _file(self) -> Iterator[Split]:
        source = self.source
        stream = Stream(source.path, source.compression, self.options.max_inflation)
        plain = source.compression is None and not (source.remote and self.hand_over)
        pending = bytearray()
        number, line, offset = 0, 1, 0
        header: tuple[str, ...] | None = None if source.format in QUOTED and self.options.header else ()
        ended = False
        parts = iter(stream)
        while not ended:
            part = next(parts, None)
            ended = part is None
            pending += part or b""
            if header is None:
                # Blank lines may come before the names.
                blank = len(pending) - len(pending.lstrip(b"\xef\xbb\xbf\r\n"))
                size = self._run_end(pending, blank, line, ended)
                if size < 0:
                    continue
                record = bytes(pending[:size]).decode("utf-8", "replace")
                header = header_of(record, QUOTED[source.format], source.path, self.options)
                line, offset = line + self._count_lines(pending, size), size
                del pending[:size]
            while len(pending) >= self.shard_bytes or (ended and pending):
                size = self._run_end(pending, self.shard_bytes - 1, line, ended)
                if size < 0:
                    break
                split = self._split(number, line, offset, size, header)
                if not plain:
                    split = split._replace(path=str(self.staging / f"{split.key}.raw"), start=0, stop=size, staged=True)
                    if not self.counted(split.key):
                        self._stage(split.path, memoryview(pending)[:size])
                yield split
                line, offset = line + self._count_lines(pending, size), offset + size
                number += 1
                del pending[:size]
        self.sha256, self.bytes = stream.sha256, stream.bytes

    def _run_end(self, pending: bytearray, at_least: int, line: int, ended: bool) -> int:
        """Size of the shortest run of whole lines or records longer than `at_least`, or -1 if more bytes are needed."""
        if self._records is not None:
            return self._records.end(pending, at_least, line, ended=ended)
        newline = pending.find(b"\n", min(at_least, len(pending)))
        if newline >= 0:
            return newline + 1
        if ended:
            return len(pending)
        if len(pending) - (pending.rfind(b"\n") + 1) > self.options.max_line_bytes:
            raise too_long(self.source.path, line + pending.count(b"\n"), self.options)
        return -1

    def _count_lines(self, pending: bytearray, size: int) -> int:
        if self._records is not None:
            return line_starts(pending, size).size - 1
        return int(np.count_nonzero(np.frombuffer(pending, np.uint8, size) == ord("\n")))

    def _split(self, number: int, line: int, offset: int, size: int, header: tuple[str, ...]) -> Split:
        source = self.source
        state = [source.key, source.short, source.format, self.shard_bytes, number, self.options.counting_digest]
        key = digest_value(state)[:32]
        return Split(
            self.index, number, source.path, source.short, source.format, source.place, offset, offset + size, False,
            line, offset, header, key,
        )  # fmt: skip

    def _stage(self, path: str, data: memoryview) -> None:
        if self.hand_over:
            padded = np.empty(len(data) + SLACK, np.uint8)
            padded[: len(data)] = np.frombuffer(data, np.uint8)
            _handed[path] = padded
        else:
            _stage(location(path), data)
        data.release()

    def _folder(self) -> Iterator[Split]:
        digests: list[tuple[str, str]] = []
        rows: list[Row] = []
        bad: list[BadRow] = []
        size = number = 0
        for name, path, content in with_contents(files_below(self.source.path)):
            if "/" not in name:
                raise InputError(f"{path} lies beside the folders of the classes; every file must be in one of them.")
            suffix = PurePosixPath(name).suffix.lower()
            stream = Stream(path, COMPRESSIONS.get(suffix), self.options.max_inflation, content)
            data = b"".join(stream)
            if len(data) > self.options.max_line_bytes:
                raise InputError(f"{path}: longer than {self.options.max_line_bytes} bytes; raise max_line_bytes.")
            digests.append((name, stream.sha256))
            self.bytes += stream.bytes
            try:
                text = utf8(data.decode("utf-8-sig", "surrogateescape"), self.options)
                label = checked_class(name.partition("/")[0], self.options)
                rows.append(Row(text, f"{self.source.short}/{name}", label, 1))
            except UnreadableError as error:
                bad.append(error.at(1, 0)._replace(file=name))
            size += len(data)
            if size >= self.shard_bytes:
                yield self._stage_documents(number, rows, bad)
                rows, bad, size, number = [], [], 0, number + 1
        if rows or bad:
            yield self._stage_documents(number, rows, bad)
        self.sha256 = digest_value(digests)

    def _stage_documents(self, number: int, rows: list[Row], bad: list[BadRow]) -> Split:
        split = self._split(number, 1, 0, 0, ())
        split = split._replace(path=str(self.staging / f"{split.key}.raw"), staged=True)
        if not self.counted(split.key):
            save_documents(location(split.path), documents_of(rows, bad, numbers=False, labelled=True))
        return split


def read_split(split: Split, options: TextOptions, *, labelled: bool) -> Documents | Bags:
    """The documents of a split."""
    if split.format == "folder":
        return load_documents(location(split.path))
    size = split.stop - split.start
    data = _handed.pop(split.path, None)
    if data is None:
        data = np.empty(size + SLACK, np.uint8)
        _read_range(split, data[:size].data)
    data[size:] = 0
    data[size] = 10
    chunk = Chunk(data, size, split.name, split.short, split.line, split.offset, split.header)
    return PARSERS[split.format](chunk, options, labelled=labelled)


def forget_handed(staging: Location) -> None:
    """Let go of bytes handed over under `staging` that no step will take any more."""
    for path in [path for path in _handed if path.startswith(f"{staging}/")]:
        _handed.pop(path, None)


def _read_range(split: Split, view: memoryview) -> None:
    if is_address(split.path):
        _fetch_range(split, view)
        return
    with Path(split.path).open("rb", buffering=0) as file:
        file.seek(split.start)
        done = 0
        while done < len(view):
            got = file.readinto(view[done:])
            if not got:
                raise InputError(f"{split.name} has become shorter while it was read; run again.")
            done += got


def _fetch_range(split: Split, view: memoryview) -> None:
    try:
        data = remote_location(split.path).read_range(split.start, split.stop)
    except StorageError:
        raise
    except OSError as error:
        raise InputError(f"{split.name} cannot be read: {error}.") from error
    if len(data) < len(view):
        raise InputError(f"{split.name} has become shorter while it was read; run again.")
    view[:] = data


def save_documents(path: Location, documents: Documents) -> None:
    """Stage documents with class labels."""
    id_bytes, id_offsets = string_buffers(documents.ids)
    label_bytes, label_offsets = string_buffers(documents.labels)
    arrays: Arrays = {
        "data": documents.data,
        "starts": documents.starts,
        "stops": documents.stops,
        "lines": documents.lines,
        "id_bytes": id_bytes,
        "id_offsets": id_offsets,
        "label_bytes": label_bytes,
        "label_offsets": label_offsets,
    }
    save_arrays(path, arrays, {"bad": documents.bad})


def load_documents(path: Location) -> Documents:
    """What `save_documents` staged."""
    arrays, facts = load_arrays(path)
    return Documents(
        arrays["data"],
        arrays["starts"],
        arrays["stops"],
        string_array(arrays["id_bytes"], arrays["id_offsets"]),
        string_array(arrays["label_bytes"], arrays["label_offsets"]),
        arrays["lines"],
        [BadRow(*row) for row in facts["bad"]],
    )


def _stage(path: Location, data: memoryview) -> None:
    with staged(path) as temporary, temporary.open("wb", buffering=0) as file:
        done = 0
        while done < len(data):
            done += file.write(data[done:])
