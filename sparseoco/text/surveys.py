"""Surveys, which find where a large file is cut, and the passes over all splits in which work is done."""

import hashlib
import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from sparseoco.core.errors import DamagedError, InputError
from sparseoco.storage import inputs
from sparseoco.storage.commit import digest_value, remove_file
from sparseoco.storage.inputs import BLOCK, CHANGED, PartsDigest, SetDigest, changed, read_range
from sparseoco.storage.locations import Location, location
from sparseoco.text.array_files import load_arrays, save_arrays, work_once
from sparseoco.text.cutting import Cut, Head, Plan, SplitReader, plan_source, read_head
from sparseoco.text.documents import BadRow
from sparseoco.text.formats import DELIMITERS, FOLDERS, TABLES
from sparseoco.text.kernels.records import (
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
from sparseoco.text.parsers.delimited import line_starts
from sparseoco.text.parsers.rows import BOM
from sparseoco.text.sources import Source
from sparseoco.text.splits import Content, Split, check_bad_rows
from sparseoco.text.streams import AUTO, SAMPLE, UTF8, check_text, detect
from sparseoco.text.tasks import TextJob

# ----------------------------------------------------------------------------------------------------------------------
# Work on each split of some sources, and the tasks that do it: for splits of plain files, or for whole files.


Numbered = tuple[int, Source]
"""A source and its position among the sources."""


class SplitResult(Protocol):
    """What the client needs of the result of work on a split; `digest` is that of the files of a folder, or empty."""

    @property
    def split(self) -> Split: ...
    @property
    def bad(self) -> list[BadRow]: ...
    @property
    def digest(self) -> str: ...


R = TypeVar("R", bound=SplitResult)
R_co = TypeVar("R_co", bound=SplitResult, covariant=True)


class Work(Protocol[R_co]):
    """What is done with each split: a small value that travels to workers. Results are files, which are reused."""

    @property
    def step(self) -> str:
        """Its name, for progress."""

    @property
    def options(self) -> TextOptions:
        """How documents are read."""

    def path(self, split: Split) -> str:
        """The file of the result of a split."""

    def run(self, split: Split, content: Content | None) -> R_co:
        """Do it, with the content that `read_split` takes."""

    def describe(self, split: Split) -> R_co:
        """The result in an existing file. Raises `DamagedError` if it is corrupt."""


def existing(work: Work[R], split: Split) -> R | None:
    """The result of a split that is there already; None if it is missing or corrupt."""
    if location(work.path(split)).exists():
        with suppress(DamagedError):
            return work.describe(split)
    return None


def work_on_split(work: Work[R], split: Split, content: Content | None) -> R:
    """The result of a split; one that is there already and not corrupt is reused."""
    found = existing(work, split)
    return work.run(split, content) if found is None else found


class SourceState(NamedTuple):
    """Size and digest of a source as it was read."""

    bytes: int
    sha256: str


class Finished(NamedTuple, Generic[R]):
    """What a task did.

    Parameters
    ----------
    results : list of SplitResult
        Of its splits, in order.
    states : dict
        Of sources that were read in whole, by position.
    bytes : int
        Stored bytes that were read.
    error : InputError or None
        What ended the reading, after these splits.
    """

    results: list[R]
    states: dict[int, SourceState]
    bytes: int
    error: InputError | None = None


def work_on_ranges(splits: Sequence[Split], work: Work[R]) -> Finished[R]:
    """Work on splits, one after the other, each of which is read by itself."""
    results: list[R] = []
    for split in splits:
        try:
            results.append(work_on_split(work, split, None))
        except InputError as error:
            error.source = split.name
            return Finished(results, {}, 0, error)
    return Finished(results, {}, sum(split.bytes for split in splits))


def work_on_files(files: Sequence[Numbered], first: int, work: Work[R], shard_bytes: int, staging: str) -> Finished[R]:
    """Work on whole files, each read once and in order; on the first only from its byte `first` on, a cut.

    The splits and digests are staged at the end, so that a run that resumes does not read the files again. More bad
    rows than are allowed end the task.
    """
    options = work.options
    memo = location(staging) / f"{_key(files, first, work, shard_bytes)}.files"
    if memo.exists():
        finished = _load(memo, files, first, work)
        if finished is not None:
            return finished
    results: list[R] = []
    digests: list[str] = []
    bad = 0
    for number, (index, source) in enumerate(files):
        reader = SplitReader(index, source, options, shard_bytes)
        try:
            for split, content in reader:
                if number == 0 and split.start < first:
                    continue
                results.append(work_on_split(work, split, content))
                bad += sum(row.counted for row in results[-1].bad)
                if bad > options.max_bad_rows:
                    return Finished(results, {}, 0)
        except InputError as error:
            error.source = source.path
            return Finished(results, {}, 0, error)
        digests.append(reader.sha256)
    position = {index: number for number, (index, _) in enumerate(files)}
    splits = [[position[result.split.source], *result.split.place] for result in results]
    save_arrays(memo, {}, {"splits": splits, "sha256": digests})
    return _finished(files, results, digests, first)


def _key(files: Sequence[Numbered], first: int, work: Work[R], shard_bytes: int) -> str:
    state = [[source.key, source.short, source.format] for _, source in files]
    options = work.options.counting_digest
    return digest_value([work.step, state, first, options, shard_bytes, inputs.PART_BYTES])[:32]


def _load(memo: Location, files: Sequence[Numbered], first: int, work: Work[R]) -> Finished[R] | None:
    """What an earlier run did; None if some of its files are missing or corrupt."""
    facts = load_arrays(memo)[1]
    results = []
    for position, *place in facts["splits"]:
        index, source = files[position]
        split = Split.of(index, source, work.options, *place)
        result = existing(work, split)
        if result is None:
            return None
        results.append(result)
    return _finished(files, results, facts["sha256"], first)


def _finished(files: Sequence[Numbered], results: list[R], digests: Sequence[str], first: int) -> Finished[R]:
    states = {index: SourceState(source.bytes, sha256) for (index, source), sha256 in zip(files, digests, strict=True)}
    return Finished(results, states, sum(source.bytes for _, source in files) - first)


# ----------------------------------------------------------------------------------------------------------------------
# Surveys of the parts of a plain file, each by its own task, from which the client composes the cuts of the file.
#
# A survey says what a part contributes to the cuts for each state in which the part may begin, since quoted fields may
# contain line ends. It holds numbers only.


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

    def work() -> dict[str, Any]:
        start = number * inputs.PART_BYTES
        stop = min(start + inputs.PART_BYTES, source.bytes)
        before, after = int(start > 0), int(stop < source.bytes)
        data = np.empty(before + stop - start + after, np.uint8)
        read_range(source.absolute, source.path, start - before, data.data, source.pin)
        return {"survey": _survey(data, before, before + stop - start, start, source, options, shard_bytes)}

    return _from_json(work_once(location(memo), work)["survey"])


def memo_name(source: Source, number: int, options: TextOptions, shard_bytes: int) -> str:
    """The name of the file of a survey."""
    state = [source.key, source.format, options.counting_digest, shard_bytes, inputs.PART_BYTES, number]
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
    return _STATES if source.format == "csv" else (*_STATES, TEXT)


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


# ----------------------------------------------------------------------------------------------------------------------
# A pass over sources: the client plans splits from what workers report, and workers read and process them.


Call: TypeAlias = tuple[Any, ...]
"""A function and its arguments."""

AHEAD = 4096  # tasks whose results are not collected yet: one long file does not keep other workers idle


def pass_over(job: TextJob, sources: list[Source], work: Work[R]) -> tuple[list[R], list[SourceState]]:
    """Cut all sources and work on their splits, on the workers; results in the order of the input.

    Raises `InputError` with file and line for the first error in the order of the input, and if more than
    `max_bad_rows` rows of all sources together are bad.
    """
    try:
        return _pass_over(job, sources, work)
    except InputError as error:
        if error.code == CHANGED:
            remove_surveys(job.staging)
        raise


def _pass_over(job: TextJob, sources: list[Source], work: Work[R]) -> tuple[list[R], list[SourceState]]:
    results: list[R] = []
    states: dict[int, SourceState] = {}
    total = sum(source.bytes for source in sources)
    done = bad = 0
    calls = _Calls(job, sources, work, states)
    finished: Finished[R]
    for finished in job.tasks.in_order(calls, AHEAD):
        for result in finished.results:
            with _reading(sources[result.split.source]):
                bad = check_bad_rows(result.split, result.bad, job.options, bad)
            results.append(result)
            _add_digest(states, result.split.source, result.digest)
        if finished.error is not None:
            raise finished.error
        for index, state in finished.states.items():
            with _reading(sources[index]):
                _set_state(states, index, state, sources[index])
        done += finished.bytes
        job.progress(work.step, done, total)
    return results, [states[index] for index in range(len(sources))]


@contextmanager
def _reading(source: Source) -> Iterator[None]:
    """An `InputError` is that of a source."""
    try:
        yield
    except InputError as error:
        error.source = source.path
        raise


def _set_state(states: dict[int, SourceState], index: int, state: SourceState, source: Source) -> None:
    """Set the state of a source, of which a survey may have found another before it was read in order."""
    if states.setdefault(index, state) != state:
        raise changed(source.path)


def _add_digest(states: dict[int, SourceState], index: int, sha256: str) -> None:
    """Add the digest of some files of a folder to that of the folder."""
    if sha256:
        state = states[index]
        digest = SetDigest()
        digest.update(state.sha256)
        digest.update(sha256)
        states[index] = state._replace(sha256=digest.hexdigest())


def _is_read_in_order(source: Source, job: TextJob) -> bool:
    """Whether one task reads the whole file: it is compressed, in another encoding, or small."""
    if source.format in TABLES | FOLDERS:
        return False
    plain = source.compression is None and job.options.encoding in (UTF8, AUTO)
    return not plain or source.bytes <= job.shard_bytes


def _n_parts(source: Source) -> int:
    return -(-source.bytes // inputs.PART_BYTES)


def _plan_calls(job: TextJob, sources: list[Source]) -> Iterator[Call]:
    """The calls that find where sources are cut, in order."""
    for index, source in enumerate(sources):
        if source.format in TABLES | FOLDERS:
            yield plan_source, index, source, job.options, job.shard_bytes, str(job.staging)
        elif not _is_read_in_order(source, job):
            for number in range(_n_parts(source)):
                memo = job.staging / memo_name(source, number, job.options, job.shard_bytes)
                yield survey_part, source, number, job.options, job.shard_bytes, str(memo)


class _Calls(Generic[R]):
    """The calls that work on all sources, in order, as soon as it is known where the sources are cut.

    A call takes up to `per_task` splits, or as much text in small files. The states of sources that are cut by several
    tasks are added to `states`.
    """

    def __init__(self, job: TextJob, sources: list[Source], work: Work[R], states: dict[int, SourceState]) -> None:
        self._job, self._sources, self._work, self._states = job, sources, work, states
        self._per_task = job.splits_per_task(sum(source.bytes for source in sources) // job.shard_bytes)

    def __iter__(self) -> Iterator[Call]:
        job, per_task = self._job, self._per_task
        planned = job.tasks.in_order(_plan_calls(job, self._sources), 4 * job.tasks.width)
        group: list[Numbered] = []
        for index, source in enumerate(self._sources):
            if _is_read_in_order(source, job):
                group.append((index, source))
                if sum(source.bytes for _, source in group) < per_task * job.shard_bytes:
                    continue
            if group:
                yield self._files(group)
                group = []
            if source.format in TABLES | FOLDERS:
                with _reading(source):
                    plan: Plan = next(planned)
                self._states[index] = SourceState(source.bytes, plan.sha256)
                for begin in range(0, len(plan.splits), per_task):
                    yield self._ranges(plan.splits[begin : begin + per_task])
            elif not _is_read_in_order(source, job):
                with _reading(source):
                    yield from self._surveyed(index, source, islice(planned, _n_parts(source)))
        if group:
            yield self._files(group)

    def _surveyed(self, index: int, source: Source, surveys: Iterable[Survey]) -> Iterator[Call]:
        """The calls that work on a plain file, from the surveys of its parts."""
        job, digest = self._job, PartsDigest()

        def digested() -> Iterator[Survey]:
            for survey in surveys:
                digest.add_part(survey.sha256)
                yield survey

        parts = digested()
        done = 0
        group: list[Split] = []
        rest: list[Call] = []
        for found in compose_cuts(source, parts, job.options, job.shard_bytes):
            if found is None:
                rest = [self._files([(index, source)], done)]
                break
            head, cut = found
            done = cut.stop
            size = cut.stop - cut.start
            place = cut.start, cut.stop, size, cut.line, head.header, head.quoted, cut.runs
            group.append(Split.of(index, source, job.options, *place))
            if len(group) == self._per_task:
                yield self._ranges(group)
                group = []
        if group:
            yield self._ranges(group)
        yield from rest
        for _ in parts:
            pass  # not needed
        _set_state(self._states, index, SourceState(source.bytes, digest.hexdigest()), source)

    def _ranges(self, splits: list[Split]) -> Call:
        return work_on_ranges, splits, self._work

    def _files(self, files: list[Numbered], first: int = 0) -> Call:
        return work_on_files, files, first, self._work, self._job.shard_bytes, str(self._job.staging)
