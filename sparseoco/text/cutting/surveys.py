"""Surveys of the parts of a plain file, each by its own task, from which the client composes the cuts of the file.

A survey says what a part contributes to the cuts for each state in which the part may begin, since quoted fields may
contain line ends. It holds numbers only.
"""

import hashlib
import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from sparseoco.core.errors import InputError
from sparseoco.storage.commit import digest_value, remove_file
from sparseoco.storage.locations import Location, location
from sparseoco.text import stored
from sparseoco.text.array_files import load_arrays, save_arrays
from sparseoco.text.charsets import AUTO, SAMPLE, UTF8, check_text, detect
from sparseoco.text.cutting.rule import Cut, Head, read_head
from sparseoco.text.kernels.csv_records import (
    CLOSED,
    NEWLINE,
    NO_QUOTE,
    QUOTE,
    QUOTED,
    RECORD_START,
    RETURN,
    UNQUOTED,
    record_ends,
)
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers import DELIMITERS
from sparseoco.text.parsers.csv_records import BOM, line_starts
from sparseoco.text.sources import Source
from sparseoco.text.stored import BLOCK, read_range

HEAD_BYTES = 4 << 20  # a header that is longer is read in order
_STATES = (RECORD_START, UNQUOTED, QUOTED, CLOSED)
TEXT = 4  # the state of a file whose quotes are text


class Ends(NamedTuple):
    """Ends of records in a part, if it begins in a certain state. Offsets are those of the file.

    Parameters
    ----------
    final : int
        The state at the end of the part.
    first, last : int
        The first and the last end; -1 if there is none.
    first_line : int
        Lines of the part up to the first end.
    longest : int
        Bytes of the longest record between two ends.
    edges, lines : sequence of int
        For each edge of a split in the part up to the last end, the first end at or beyond it, and the lines of the
        part up to there.
    runs : sequence of [int, int]
        Ends of consecutive runs of bytes, which are the whole part, and their XXH3. Splits are made of whole runs.
    """

    final: int
    first: int
    last: int
    first_line: int
    longest: int
    edges: Sequence[int]
    lines: Sequence[int]
    runs: Sequence[Sequence[int]]


class Survey(NamedTuple):
    """What a part of a file contributes to its cuts.

    Parameters
    ----------
    start, stop : int
        Bytes of the part, without a line feed that ends the line before it, and with one that ends its last line.
    sha256 : str
    n_lines : int
        Ends of lines.
    head : Head or None
        Of the first part.
    regular : bool
        Whether the file can be cut by parts, as far as this part shows: otherwise it is read in order.
    ends : dict
        By the state at the start of the part.
    """

    start: int
    stop: int
    sha256: str
    n_lines: int
    head: Head | None
    regular: bool
    ends: dict[int, Ends]


def survey_part(source: Source, number: int, options: TextOptions, shard_bytes: int, memo: str) -> Survey:
    """Survey part `number` of a plain file; the result is in the file `memo`, and an existing one is reused.

    Raises `InputError` for a file that changed, and `StorageError`.
    """
    path = location(memo)
    if path.exists():
        return _from_json(load_arrays(path)[1]["survey"])
    start = number * stored.PART_BYTES
    stop = min(start + stored.PART_BYTES, source.bytes)
    before, after = int(start > 0), int(stop < source.bytes)
    data = np.empty(before + stop - start + after, np.uint8)
    read_range(source.absolute, source.path, start - before, data.data, source.pin)
    survey = _survey(data, before, before + stop - start, start, source, options, shard_bytes)
    save_arrays(path, {}, {"survey": survey})
    return survey


def memo_name(source: Source, number: int, options: TextOptions, shard_bytes: int) -> str:
    """The name of the file of a survey."""
    state = [source.key, source.format, options.counting_digest, shard_bytes, stored.PART_BYTES, number]
    return f"{digest_value(state)[:32]}.survey"


def remove_surveys(staging: Location) -> None:
    """Remove all staged surveys, of which one does not agree with what was read later."""
    for path in staging.glob("*.survey"):
        remove_file(path)


def _from_json(value: list[Any]) -> Survey:
    survey = Survey(*value)
    head = None if survey.head is None else Head(tuple(survey.head[0]), *survey.head[1:])
    return survey._replace(head=head, ends={int(state): Ends(*ends) for state, ends in survey.ends.items()})


def _survey(
    data: NDArray[np.uint8], begin: int, end: int, start: int, source: Source, options: TextOptions, shard_bytes: int
) -> Survey:
    """The survey of data[begin:end], which begins at byte `start` of the file; `data` may have a byte around it."""
    sha256 = hashlib.sha256(data[begin:end].data).hexdigest()
    base = start - begin  # of offsets in `data`
    delimiter = DELIMITERS.get(source.format)
    low, high = begin, end
    if delimiter is not None:  # CRLF is one end
        low, high = begin + _within_crlf(data, begin), end + _within_crlf(data, end)
    head, regular = None, True
    if start == 0:
        size = min(end, HEAD_BYTES)
        head = _head(data[:size].tobytes(), source, options, at_end=size == data.size)
        regular = head is not None
    edges = np.arange(-(-(base + low + 1) // shard_bytes), (base + high) // shard_bytes + 1) * shard_bytes - base
    scans = [_Scan(state, edges) for state in _start_states(source, options, head)] if regular else []
    marked = start == 0 and data[: len(BOM)].tobytes() == BOM
    n_lines, position = 0, low + len(BOM) * marked
    while position < high and regular:
        stop = min(position + BLOCK, high)
        if delimiter is None:
            line_ends = np.flatnonzero(data[position:stop] == NEWLINE) + position + 1
            found = {RECORD_START: (line_ends, RECORD_START)}
        else:
            stop += _within_crlf(data, stop)
            line_ends = line_starts(data[position:stop], stop - position)[1:] + position
            found = {state: _record_ends(data, position, stop, state, delimiter) for state in {s.state for s in scans}}
        for scan in scans:
            scan.add(*found[scan.state], line_ends, n_lines)
        n_lines += line_ends.size
        position = stop
    bounds = [low, high, *(() if head is None else (begin + head.size,))]
    ends = {scan.start: scan.result(data, base, bounds) for scan in scans}
    return Survey(base + low, base + high, sha256, n_lines, head, regular, ends)


def _within_crlf(data: NDArray[np.uint8], at: int) -> bool:
    """Whether CRLF is on both sides of data[at]."""
    return bool(0 < at < data.size and data[at] == NEWLINE and data[at - 1] == RETURN)


def _head(data: bytes, source: Source, options: TextOptions, *, at_end: bool) -> Head | None:
    """What the beginning of the file decides; None if the file must be read in order, for its encoding or an error."""
    try:
        if options.encoding == AUTO and detect(data[:SAMPLE]) not in (None, UTF8):
            return None
        check_text(data[:BLOCK], source.path, UTF8)
        return read_head(data, source, options, at_end=at_end)
    except InputError:
        return None


def _start_states(source: Source, options: TextOptions, head: Head | None) -> tuple[int, ...]:
    """The states in which a part may begin; the first part has a `head`."""
    if source.format not in DELIMITERS:
        return (RECORD_START,)
    if head is not None:
        return (RECORD_START if head.quoted else TEXT,)
    if source.format == "csv" or options.quoting != "auto":
        return (TEXT,) if options.quoting == "none" else _STATES
    return (*_STATES, TEXT)


def _record_ends(
    data: NDArray[np.uint8], begin: int, stop: int, state: int, delimiter: str
) -> tuple[NDArray[np.int64], int]:
    """The ends of records in data[begin:stop], and the state at its end."""
    ends = np.empty(stop - begin, np.int64)
    text = state == TEXT
    n, _, state = record_ends(
        data, begin, stop, RECORD_START if text else state, ord(delimiter), NO_QUOTE if text else QUOTE, ends
    )
    return ends[:n], TEXT if text else int(state)


class _Scan:
    """Collects the ends of records of a part that begins in the state `start`."""

    def __init__(self, start: int, edges: NDArray[np.int64]) -> None:
        self.start = self.state = start
        self._edges, self._found = edges, 0
        self._first = self._last = -1
        self._first_line = self._longest = 0
        self._ends: list[int] = []
        self._lines: list[int] = []

    def add(self, ends: NDArray[np.int64], state: int, line_ends: NDArray[np.int64], n_lines: int) -> None:
        """Add the ends and the final state of the next block, of whose lines `n_lines` precede it in the part."""
        self.state = state
        if not ends.size:
            return
        if self._first < 0:
            self._first = int(ends[0])
            self._first_line = n_lines + int(np.searchsorted(line_ends, self._first, "right"))
        else:
            self._longest = max(self._longest, int(ends[0]) - self._last)
        self._longest = max(self._longest, int(np.diff(ends).max(initial=0)))
        self._last = int(ends[-1])
        edges = self._edges[self._found : np.searchsorted(self._edges, self._last, "right")]
        self._found += edges.size
        at = ends[np.searchsorted(ends, edges)]
        self._ends += at.tolist()
        self._lines += (n_lines + np.searchsorted(line_ends, at, "right")).tolist()

    def result(self, data: NDArray[np.uint8], base: int, bounds: Sequence[int]) -> Ends:
        """The ends, whose offsets in the file are larger by `base`, and the runs between them and `bounds`."""
        first, last = (-1 if at < 0 else base + at for at in (self._first, self._last))
        cuts = sorted({*bounds, *self._ends, *([] if first < 0 else [self._first])})
        runs = [[base + stop, xxh3_64_intdigest(data[at:stop].data)] for at, stop in itertools.pairwise(cuts)]
        ends = [base + end for end in self._ends]
        return Ends(self.state, first, last, self._first_line, self._longest, ends, self._lines, runs)


def compose_cuts(
    source: Source, surveys: Iterable[Survey], options: TextOptions, shard_bytes: int
) -> Iterator[tuple[Head, Cut] | None]:
    """The cuts of a file from the surveys of its parts, in order.

    The last one is None if the rest of the file must be read in order: it is in another encoding, or a line, a record
    or a quoted field is not as it should be, which `cut_in_order` then reports.
    """
    head, state = Head(), RECORD_START
    offset = begin = n_lines = 0
    line = 1
    runs: deque[tuple[int, int]] = deque()

    def runs_until(stop: int) -> tuple[tuple[int, int], ...]:
        return tuple(runs.popleft() for _ in range(sum(end <= stop for end, _ in runs)))

    for survey in surveys:
        if survey.head is not None:
            head = survey.head
            offset, line = head.size, 1 + head.lines
            state = next(iter(survey.ends))
        if not survey.regular:
            yield None
            return
        ends = survey.ends[state]
        runs.extend((end, digest) for end, digest in ends.runs)
        if survey.head is not None:
            runs_until(offset)
        longest = max(ends.longest, ends.first - begin, survey.stop - max(begin, ends.last))
        if longest > options.max_line_bytes:
            yield None
            return
        first_edge = -(-(survey.start + 1) // shard_bytes)
        while (number := offset // shard_bytes) + 1 <= ends.last // shard_bytes:
            k = number + 1 - first_edge
            stop, lines = (ends.edges[k], ends.lines[k]) if k >= 0 else (ends.first, ends.first_line)
            yield head, Cut(number, offset, stop, line, runs_until(stop))
            offset, line = stop, 1 + n_lines + lines
        begin, state, n_lines = max(begin, ends.last), ends.final, n_lines + survey.n_lines
    if state == QUOTED or (source.format == "lines" and not n_lines):
        yield None
    elif offset < source.bytes:
        yield head, Cut(offset // shard_bytes, offset, source.bytes, line, runs_until(source.bytes))
