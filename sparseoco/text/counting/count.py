"""Count all sources of an ingest: the client plans splits from what workers report, and workers read and count them."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TypeAlias

from sparseoco.core.errors import InputError
from sparseoco.text import stored
from sparseoco.text.charsets import AUTO, UTF8
from sparseoco.text.counting.partial_counts import PartialCounts
from sparseoco.text.counting.tasks import Counted, Numbered, SourceState, count_files, count_ranges
from sparseoco.text.cutting.plans import Plan, plan_source
from sparseoco.text.cutting.surveys import Survey, compose_cuts, memo_name, remove_surveys, survey_part
from sparseoco.text.job import IngestJob
from sparseoco.text.sources import FOLDERS, TABLES, Source
from sparseoco.text.splits import Split, check_bad_rows
from sparseoco.text.stored import CHANGED, PartsDigest, SetDigest, changed

Call: TypeAlias = tuple[Any, ...]
"""A function and its arguments."""

AHEAD = 4096  # counting tasks whose results are not collected yet: one long file does not keep other workers idle


def count_sources(job: IngestJob, sources: list[Source]) -> tuple[list[PartialCounts], list[SourceState]]:
    """Cut and count all sources on the workers.

    Raises `InputError` with file and line for the first error in the order of the input, and if more than
    `max_bad_rows` rows of all sources together are bad.
    """
    try:
        return _count(job, sources)
    except InputError as error:
        if error.code == CHANGED:
            remove_surveys(job.staging)
        raise


def _count(job: IngestJob, sources: list[Source]) -> tuple[list[PartialCounts], list[SourceState]]:
    counted: list[PartialCounts] = []
    states: dict[int, SourceState] = {}
    total = sum(source.bytes for source in sources)
    done = bad = 0
    per_task = job.splits_per_task(total // job.shard_bytes)
    result: Counted
    for result in job.tasks.in_order(_count_calls(job, sources, states, per_task), AHEAD):
        for counts in result.counts:
            bad = check_bad_rows(counts.split, counts.bad, job.options, bad)
            counted.append(counts)
            _add_digest(states, counts)
        if result.error is not None:
            raise result.error
        for index, state in result.states.items():
            _set_state(states, index, state, sources[index])
        done += result.bytes
        job.progress("count", done, total)
    return counted, [states[index] for index in range(len(sources))]


def _set_state(states: dict[int, SourceState], index: int, state: SourceState, source: Source) -> None:
    """Set the state of a source, of which a survey may have found another before it was read in order."""
    if states.setdefault(index, state) != state:
        raise changed(source.path)


def _add_digest(states: dict[int, SourceState], counts: PartialCounts) -> None:
    """Add the digest of some files of a folder to that of the folder."""
    if counts.digest:
        state = states[counts.split.source]
        digest = SetDigest()
        digest.update(state.sha256)
        digest.update(counts.digest)
        states[counts.split.source] = state._replace(sha256=digest.hexdigest())


def _count_calls(
    job: IngestJob, sources: list[Source], states: dict[int, SourceState], per_task: int
) -> Iterator[Call]:
    """The calls that count all sources, in order, as soon as it is known where the sources are cut.

    A call counts up to `per_task` splits, or as much text in small files. The states of sources that are cut by
    several tasks are added to `states`.
    """
    planned = job.tasks.in_order(_plan_calls(job, sources), 4 * job.tasks.width)
    group: list[Numbered] = []
    for index, source in enumerate(sources):
        if _is_read_in_order(source, job):
            group.append((index, source))
            if sum(source.bytes for _, source in group) < per_task * job.shard_bytes:
                continue
        if group:
            yield _files_call(job, group)
            group = []
        if source.format in TABLES | FOLDERS:
            plan: Plan = next(planned)
            states[index] = SourceState(source.bytes, plan.sha256)
            for begin in range(0, len(plan.splits), per_task):
                yield _ranges_call(job, plan.splits[begin : begin + per_task])
        elif not _is_read_in_order(source, job):
            surveys = islice(planned, _n_parts(source))
            yield from _surveyed_calls(job, index, source, surveys, states, per_task)
    if group:
        yield _files_call(job, group)


def _is_read_in_order(source: Source, job: IngestJob) -> bool:
    """Whether one task reads the whole file: it is compressed, in another encoding, or small."""
    if source.format in TABLES | FOLDERS:
        return False
    plain = source.compression is None and job.options.encoding in (UTF8, AUTO)
    return not plain or source.bytes <= job.shard_bytes


def _n_parts(source: Source) -> int:
    return -(-source.bytes // stored.PART_BYTES)


def _plan_calls(job: IngestJob, sources: list[Source]) -> Iterator[Call]:
    """The calls that find where sources are cut, in order."""
    for index, source in enumerate(sources):
        if source.format in TABLES | FOLDERS:
            yield plan_source, index, source, job.options, job.shard_bytes, str(job.staging)
        elif not _is_read_in_order(source, job):
            for number in range(_n_parts(source)):
                memo = job.staging / memo_name(source, number, job.options, job.shard_bytes)
                yield survey_part, source, number, job.options, job.shard_bytes, str(memo)


def _surveyed_calls(
    job: IngestJob,
    index: int,
    source: Source,
    surveys: Iterable[Survey],
    states: dict[int, SourceState],
    per_task: int,
) -> Iterator[Call]:
    """The calls that count a plain file, from the surveys of its parts."""
    digest = PartsDigest()

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
            rest = [_files_call(job, [(index, source)], done)]
            break
        head, cut = found
        done = cut.stop
        size = cut.stop - cut.start
        place = cut.start, cut.stop, size, cut.line, head.header, head.quoted, cut.runs
        group.append(Split.of(index, source, job.options, *place))
        if len(group) == per_task:
            yield _ranges_call(job, group)
            group = []
    if group:
        yield _ranges_call(job, group)
    yield from rest
    for _ in parts:
        pass  # not needed
    _set_state(states, index, SourceState(source.bytes, digest.hexdigest()), source)


def _ranges_call(job: IngestJob, splits: list[Split]) -> Call:
    return count_ranges, splits, job.options, str(job.staging)


def _files_call(job: IngestJob, files: list[Numbered], first: int = 0) -> Call:
    return count_files, files, first, job.options, job.shard_bytes, str(job.staging)
