"""From sources to splits: tasks of a job, the cut rule, sources that are new, and a pass of work over all splits."""

import ctypes
import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar
from weakref import WeakSet

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64_intdigest

from sparseoco.core.errors import DamagedError, InputError, SparseocoError, unsupported
from sparseoco.core.logs import report_progress
from sparseoco.storage import inputs
from sparseoco.storage.commit import digest_value, remove_file
from sparseoco.storage.locations import Location, is_remote_uri, location, map_concurrently, real_path
from sparseoco.store.entries import SourceEntry
from sparseoco.store.manifest import Manifest
from sparseoco.store.shards import Store
from sparseoco.text.array_files import load_arrays, save_arrays
from sparseoco.text.documents import BadRow
from sparseoco.text.formats import AUTO, DELIMITERS, FOLDERS, TABLES, UNLABELLED, UTF8, Stream
from sparseoco.text.options import PER_INGEST, SHARD_BYTES, TextOptions
from sparseoco.text.parsers import BOM, SLACK, RecordScanner, line_starts, line_too_long, parse_header
from sparseoco.text.sources import Source, check_apart, check_applied, files_again, find_sources, with_unique_names
from sparseoco.text.splits import Content, Listing, Split, check_bad_rows, read_files
from sparseoco.text.tables import RowGroup, close_tables, open_table, projection

# ----------------------------------------------------------------------------------------------------------------------
# Settings of the C library's memory allocator.


# Names and numbers of <malloc.h>.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
RETAINED_BYTES = 1 << 30


@cache
def retain_freed_memory() -> None:
    """Let glibc keep up to `RETAINED_BYTES` of freed memory; without effect on other C libraries.

    Every split needs buffers of the same sizes. Returning them to the system and requesting them again would cost a
    tenth of the time of an ingest in page faults.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option, value in ((M_MMAP_THRESHOLD, RETAINED_BYTES), (M_TRIM_THRESHOLD, RETAINED_BYTES), (M_ARENA_MAX, 1)):
            mallopt(option, value)


def call_and_release(step: Callable[..., Any], *arguments: Any) -> Any:
    """Run a step of an ingest and return freed memory to the system: the process of a worker has a limit."""
    try:
        return step(*arguments)
    finally:
        pa.default_memory_pool().release_unused()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


# ----------------------------------------------------------------------------------------------------------------------
# Run the steps of ingest on a Dask cluster, or in threads of this process.


Result: TypeAlias = Future[Any]
"""The result of a submitted step; of a cluster a `SubmittedTask`, which has the same interface."""


class Tasks(NamedTuple):
    """Runs steps: functions of paths and small values."""

    submit: Callable[..., Result]
    """Starts a function with arguments."""
    width: int
    """Number of steps that run at once."""
    on_machine: bool
    """Whether they run on this machine."""

    def in_order(self, calls: Iterable[Sequence[Any]], ahead: int) -> Iterator[Any]:
        """The results of calls, each a function and its arguments, in order, with at most `ahead` of them pending.

        An error of the iteration over `calls` is raised after the results of the calls before it.
        """
        pending: deque[Result] = deque()
        remaining = iter(calls)
        failure: SparseocoError | None = None
        while failure is None:
            try:
                pending.append(self.submit(*next(remaining)))
            except StopIteration:
                break
            except SparseocoError as error:
                failure = error
            while pending and (len(pending) > ahead or pending[0].done()):
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
        if failure is not None:
            raise failure


@contextmanager
def open_tasks(client: Any = None, failure: str = "A step of ingest failed") -> Iterator[Tasks]:
    """Tasks on a `distributed.Client`, or on one thread per processor (the kernels release the GIL).

    On an error, steps that have not started are cancelled. Raises `SparseocoError` for a step whose workers keep dying.
    """
    if client is not None:
        yield from _cluster_tasks(client, failure)
        return
    width = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(width, thread_name_prefix="ingest") as threads:
        try:
            yield Tasks(threads.submit, width, on_machine=True)
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def _cluster_tasks(client: Any, failure: str) -> Iterator[Tasks]:
    from distributed import LocalCluster

    from sparseoco.execution.clusters import SubmittedTask, TaskError, TaskPool

    pool = TaskPool(client, failure)
    submitted: WeakSet[Any] = WeakSet()  # a result is freed when nothing here waits for it

    def submit(function: Callable[..., Any], *arguments: Any) -> Any:
        task = SubmittedTask(pool, pool.submit(call_and_release, function, *arguments, name=function.__name__))
        submitted.add(task.future)
        return task

    cores = client.ncores()
    in_process = all(address.startswith("inproc://") for address in cores)
    on_machine = in_process or isinstance(client.cluster, LocalCluster)
    try:
        yield Tasks(submit, max(1, sum(cores.values())), on_machine)
    except TaskError as error:
        if error.code != "worker-killed":
            raise
        raise SparseocoError(
            "A worker died several times on one step, perhaps for lack of memory: keep fewer terms (min_df, "
            "max_features, hash_bits), lower shard_bytes, or give workers more.",
            code="worker-killed",
        ) from error
    finally:
        client.cancel([future for future in submitted if not future.done()])


# ----------------------------------------------------------------------------------------------------------------------
# The context that the steps over one text share.


TASKS = 16  # of each worker at least, before a task takes several splits
TASK_BYTES = 128 << 20  # of the splits of one task


class TextJob(NamedTuple):
    """Folders, options and tasks of an ingest, or of scoring.

    Parameters
    ----------
    out, staging : Location
        The folder of the results, and the folder for staging files.
    shard_bytes : int
        Raw text per shard.
    tasks : Tasks
        Runs the steps.
    """

    out: Location
    staging: Location
    options: TextOptions
    shard_bytes: int
    tasks: Tasks

    def splits_per_task(self, splits: int) -> int:
        """How many of so many splits a task takes, one after the other: the client sends fewer tasks."""
        return max(1, min(TASK_BYTES // self.shard_bytes, splits // (self.tasks.width * TASKS)))

    def once(self, path: Location, step: Callable[..., None], *arguments: Any) -> Result:
        """Start `step(path, *arguments)`, which writes the file `path`, unless an earlier run did."""
        return self.tasks.submit(_run_once, path, step, *arguments)

    def wait(self, step: str, results: Sequence[Result]) -> list[object]:
        """The results of submitted tasks, with progress."""
        values = []
        for number, result in enumerate(results, 1):
            values.append(result.result())
            report_progress(step, number, len(results))
        return values


def _run_once(path: Location, step: Callable[..., None], *arguments: Any) -> None:
    if not path.is_file():
        step(path, *arguments)


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
    blank = len(data) - len(data.lstrip(BOM + b"\r\n"))  # the mark and blank lines before the first record
    size = scanner.find_end(data, blank, 1, at_end=at_end)
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


def cut_groups(groups: Sequence[RowGroup], size: int) -> Iterator[tuple[int, int]]:
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
        sha256 = inputs.SetDigest().hexdigest() if folder else reader.sha256 or digest_source(source, options)
    except InputError as error:
        error.source = source.path
        return Plan(splits, "", error)
    save_arrays(memo, {}, {"splits": [split.place for split in splits], "sha256": sha256})
    return Plan(splits, sha256)


def digest_source(source: Source, options: TextOptions) -> str:
    """The digest that an ingest of this source gives. Raises `InputError`."""
    if source.format in FOLDERS:
        digest = inputs.SetDigest()
        for split, listing in SplitReader(0, source, options, SHARD_BYTES):
            assert isinstance(listing, Listing)
            digest.update(read_files(split, listing, options).digest)
        return digest.hexdigest()
    # A remote table is not read only for its digest: its ETag identifies it.
    if source.format in TABLES and is_remote_uri(source.path):
        return source.key
    return inputs.digest_stored(source.absolute, source.path, source.pin)


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
            if not self.source.bytes:
                return
            table = open_table(self.source.absolute, self.source.format, self.source.key, self.source.pin)
            groups = table.row_groups(projection(table, self.options, labelled=False))
            total, size = sum(group.rows for group in groups), self.source.bytes
            for start, stop in cut_groups(groups, self.shard_bytes):
                yield self._split(start, stop, size * stop // total - size * start // total), None
        elif self.source.format in FOLDERS:
            self.codec = self.options.encoding
            listing = Listing.of(self.source.absolute, files_again(self.source, self.options))
            for start, stop, size in listing.cuts(self.shard_bytes):
                yield self._split(start, stop, size), listing._replace(table=listing.table.slice(start, stop - start))
        else:
            yield from self._read_file()

    def _split(self, *place: Any) -> Split:
        return Split.of(self.index, self.source, self.options, *place)

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


# ----------------------------------------------------------------------------------------------------------------------
# The sources of an increment: those that a store or scores do not have yet, and whether a source is still the same.


def find_new(
    inputs: list[str], out: Location, options: TextOptions, store: Store | None, left_out: Collection[str] = ()
) -> tuple[list[Source], int]:
    """The sources of the inputs that are not in the store yet, and the number of those that are."""
    if store is not None:
        _check_options(out, options, store.manifest)
    found = find_sources(inputs, options, may_be_empty=store is not None)
    check_apart(out, inputs, options, (source.absolute for source in found))
    found = [source for source in found if source.absolute not in left_out]
    sources = new_sources(found, options, store)
    return sources, len(found) - len(sources)


def new_sources(sources: list[Source], options: TextOptions, store: Store | None) -> list[Source]:
    """The sources that are not in the store yet, if there is one, with unique short names.

    Raises `InputError` for sources that do not fit the options, the store or each other.
    """
    if store is None:  # later files need not be of the formats of the first
        check_applied(sources, options, options.model_fields_set)
    new = sources_beyond(() if store is None else tuple(store.sources), sources, options)
    check_label_kinds(new, options, None if store is None else store.manifest)
    return new


def check_label_kinds(sources: Sequence[Source], options: TextOptions, previous: Manifest | None) -> None:
    """Check that either all documents of a store have labels or none has. Empty files match any kind.

    Raises `InputError` also for a folder of class folders if labels are numbers.
    """
    sources = [source for source in sources if source.bytes]
    unlabelled = [source.path for source in sources if source.format in UNLABELLED]
    labelled = [source.path for source in sources if source.format not in UNLABELLED]
    problem = None
    if previous is None:
        if labelled and unlabelled:
            problem = f"{unlabelled[0]} is plain text without labels, and other inputs have labels"
    elif previous.labels.kind == "numbers" or previous.labels.classes:
        if unlabelled:
            problem = f"{unlabelled[0]} is plain text without labels, and the documents of the store have labels"
    elif labelled:
        problem = f"{labelled[0]} has labels, and the documents of the store have none"
    folders = [source.path for source in sources if source.format == "folder"]
    if problem is None and folders and options.labels == "numbers":
        problem = f"{folders[0]} is a folder of class folders, and classes are not numbers"
    if problem is not None:
        raise unsupported(f"{problem}: ingest it into another folder.")


def _check_options(out: Location, options: TextOptions, previous: Manifest) -> None:
    """Raises `InputError` for options that differ from those of the store, except for `PER_INGEST`."""
    if digest_value(previous.options) != previous.options_digest:
        raise unsupported(f"{out} holds shards made from those of another folder: ingest into a new one.")
    before = TextOptions().plain() | previous.options
    changed = {key for key, value in options.plain().items() if before[key] != value} - PER_INGEST
    if changed:
        raise InputError(
            f"{out} was ingested with other options ({', '.join(sorted(changed))}): ingest into a new folder (set "
            "another out in a run file), or use the same options.",
            code="options-changed",
        )


def sources_beyond(before: Sequence[SourceEntry], sources: Sequence[Source], options: TextOptions) -> list[Source]:
    """The sources that are not among those `before`, with unique short names.

    Raises `InputError` if one of those before has changed, or if a source is given twice.
    """
    known = {real_path(entry.path): entry for entry in before}
    seen: set[str] = set()
    new: list[Source] = []
    for source in sources:
        path = source.real
        if path in seen:
            raise InputError(f"{source.path} is given twice.", code="duplicate-input")
        seen.add(path)
        entry = known.get(path)
        if entry is None:
            new.append(source)
        else:
            check_ingested(source, entry, options)
    return with_unique_names(new, [entry.path for entry in before])


def check_ingested(source: Source, entry: SourceEntry, options: TextOptions, sha256: str = "") -> None:
    """Check that a source, or the digest of what was read of it, is the version that was read first.

    Raises `InputError`, and `StorageError`.
    """
    same = (entry.bytes, entry.modified_ns) == (source.bytes, source.modified_ns)
    if sha256:
        same = entry.sha256 == sha256
    elif not same and entry.bytes == source.bytes:
        same = entry.sha256 == digest_source(source, options)
    if not same:
        raise InputError(
            f"{source.path} has changed since it was first read: choose a new folder (out) for the results.",
            code="input-changed",
        )


def check_sources(sources: Sequence[Source], options: TextOptions) -> None:
    """Check that sources are still the versions that `find_sources` found, before an ingest commits.

    Remote files were read by requests that named their versions; those without a version are checked.

    Raises `InputError` with the file, and `StorageError`.
    """
    map_concurrently(lambda source: _check_source(source, options), sources)


def _check_source(source: Source, options: TextOptions) -> None:
    if source.pin is None:
        for _ in () if is_remote_uri(source.path) else files_again(source, options):
            pass
    elif source.pin.condition is None:
        inputs.check_unchanged(source.path, source.pin)


# ----------------------------------------------------------------------------------------------------------------------
# Work on each split of some sources, and the tasks that do it: for splits that can be read alone, or for whole files.


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
    """A task run once per split. Pickled to workers. Results are files, which are reused."""

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


class Finished(NamedTuple, Generic[R]):
    """What a task did.

    Parameters
    ----------
    results : list of SplitResult
        Of its splits, in order.
    digests : dict
        SHA-256 of sources that were read in whole, by position.
    bytes : int
        Stored bytes that were read.
    error : InputError or None
        What ended the reading, after these splits.
    """

    results: list[R]
    digests: dict[int, str]
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


def work_on_files(files: Sequence[Numbered], work: Work[R], shard_bytes: int, staging: str) -> Finished[R]:
    """Work on whole files, each read once and in order.

    The splits and digests are staged at the end, so that a run that resumes does not read the files again. More bad
    rows than are allowed end the task.
    """
    options = work.options
    versions = [[source.key, source.short, source.format] for _, source in files]
    state = [work.step, versions, options.counting_digest, shard_bytes, inputs.PART_BYTES, Split._fields]
    memo = location(staging) / f"{digest_value(state)[:32]}.files"
    positions, size = [index for index, _ in files], sum(source.bytes for _, source in files)
    results: list[R] = []
    if memo.exists():
        facts = load_arrays(memo)[1]
        splits = [Split.of(files[number][0], files[number][1], options, *place) for number, *place in facts["splits"]]
        results = [found for split in splits if (found := existing(work, split)) is not None]
        if len(results) == len(splits):
            return Finished(results, dict(zip(positions, facts["sha256"], strict=True)), size)
        results.clear()
    places: list[list[Any]] = []
    digests: list[str] = []
    bad = 0
    for number, (index, source) in enumerate(files):
        reader = SplitReader(index, source, options, shard_bytes)
        try:
            for split, content in reader:
                results.append(work_on_split(work, split, content))
                places.append([number, *split.place])
                bad += sum(row.counted for row in results[-1].bad)
                if bad > options.max_bad_rows:
                    return Finished(results, {}, 0)
        except InputError as error:
            error.source = source.path
            return Finished(results, {}, 0, error)
        digests.append(reader.sha256)
    save_arrays(memo, {}, {"splits": places, "sha256": digests})
    return Finished(results, dict(zip(positions, digests, strict=True)), size)


# ----------------------------------------------------------------------------------------------------------------------
# The pass: the client plans tasks from the splits that workers report, and workers read and process them.


Call: TypeAlias = tuple[Any, ...]
"""A function and its arguments."""

AHEAD = 4096  # tasks whose results are not collected yet: one long file does not keep other workers idle


def pass_over(job: TextJob, sources: list[Source], work: Work[R]) -> tuple[list[R], list[str]]:
    """Cut all sources and work on their splits, on the workers.

    Returns the results, and the SHA-256 of the sources, in the order of the input. Raises `InputError` with file and
    line for the first error in the order of the input, and if more than `max_bad_rows` rows of all sources together
    are bad.
    """
    results: list[R] = []
    digests: dict[int, str] = {}
    total = sum(source.bytes for source in sources)
    done = bad = 0
    finished: Finished[R]
    try:
        for finished in job.tasks.in_order(_calls(job, sources, work, digests), AHEAD):
            for result in finished.results:
                bad = check_bad_rows(result.split, result.bad, job.options, bad)
                results.append(result)
                if result.digest:  # of some files of a folder: added to that of the folder
                    digest = inputs.SetDigest()
                    digest.update(digests[result.split.source])
                    digest.update(result.digest)
                    digests[result.split.source] = digest.hexdigest()
            if finished.error is not None:
                raise finished.error
            digests |= finished.digests
            done += finished.bytes
            report_progress(work.step, done, total)
    except InputError as error:
        if error.code == inputs.CHANGED:  # perhaps since it was planned
            for path in job.staging.glob("*.plan"):
                remove_file(path)
        raise
    finally:
        close_tables()
    return results, [digests[index] for index in range(len(sources))]


def _is_read_in_order(source: Source, job: TextJob) -> bool:
    """Whether one task reads the whole file: it is compressed, in another encoding, or small."""
    if source.format in TABLES | FOLDERS:
        return False
    plain = source.compression is None and job.options.encoding in (UTF8, AUTO)
    return not plain or source.bytes <= job.shard_bytes


def _calls(job: TextJob, sources: list[Source], work: Work[R], digests: dict[int, str]) -> Iterator[Call]:
    """The calls that work on all sources, in order, as soon as it is known where the sources are cut.

    A call takes up to `splits_per_task` splits, or as much text in small files. The digests of sources that are read
    by several tasks are added to `digests`.
    """
    staging = str(job.staging)
    per_task = job.splits_per_task(sum(source.bytes for source in sources) // job.shard_bytes)
    plans = (
        (plan_source, index, source, job.options, job.shard_bytes, staging)
        for index, source in enumerate(sources)
        if not _is_read_in_order(source, job)
    )
    planned = job.tasks.in_order(plans, 4 * job.tasks.width)
    group: list[Numbered] = []
    for index, source in enumerate(sources):
        plan: Plan | None = None if _is_read_in_order(source, job) else next(planned)
        if plan is None:
            group.append((index, source))
        if group and (plan is not None or sum(source.bytes for _, source in group) >= per_task * job.shard_bytes):
            yield work_on_files, group, work, job.shard_bytes, staging
            group = []
        if plan is not None:
            digests[index] = plan.sha256
            for begin in range(0, len(plan.splits), per_task):
                yield work_on_ranges, plan.splits[begin : begin + per_task], work
            if plan.error is not None:
                raise plan.error
    if group:
        yield work_on_files, group, work, job.shard_bytes, staging
