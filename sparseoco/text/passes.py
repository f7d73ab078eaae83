"""A pass over sources: their splits are found, and work is done on each, by the tasks that read them."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from sparseoco.core.errors import DamagedError, InputError
from sparseoco.storage import inputs
from sparseoco.storage.commit import digest_value, remove_file
from sparseoco.storage.inputs import CHANGED, SetDigest
from sparseoco.storage.locations import location
from sparseoco.text.array_files import load_arrays, save_arrays
from sparseoco.text.cutting import Plan, SplitReader, plan_source
from sparseoco.text.documents import BadRow
from sparseoco.text.formats import FOLDERS, TABLES
from sparseoco.text.options import TextOptions
from sparseoco.text.sources import Source
from sparseoco.text.splits import Content, Split, check_bad_rows
from sparseoco.text.streams import AUTO, UTF8
from sparseoco.text.tables import close_tables
from sparseoco.text.tasks import TextJob

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
                _add_digest(digests, result)
            if finished.error is not None:
                raise finished.error
            digests |= finished.digests
            done += finished.bytes
            job.progress(work.step, done, total)
    except InputError as error:
        if error.code == CHANGED:  # perhaps since it was planned
            for path in job.staging.glob("*.plan"):
                remove_file(path)
        raise
    finally:
        close_tables()
    return results, [digests[index] for index in range(len(sources))]


def _add_digest(digests: dict[int, str], result: SplitResult) -> None:
    """Add the digest of some files of a folder to that of the folder."""
    if result.digest:
        digest = SetDigest()
        digest.update(digests[result.split.source])
        digest.update(result.digest)
        digests[result.split.source] = digest.hexdigest()


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
