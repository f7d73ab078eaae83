"""A pass over sources: the client plans splits from what workers report, and workers read and process them."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Generic, TypeAlias

from sparseoco.core.errors import InputError
from sparseoco.text import stored
from sparseoco.text.charsets import AUTO, UTF8
from sparseoco.text.cutting.plans import Plan, plan_source
from sparseoco.text.cutting.surveys import Survey, compose_cuts, memo_name, remove_surveys, survey_part
from sparseoco.text.cutting.work import Finished, Numbered, R, SourceState, Work, work_on_files, work_on_ranges
from sparseoco.text.job import TextJob
from sparseoco.text.sources import FOLDERS, TABLES, Source
from sparseoco.text.splits import Split, check_bad_rows
from sparseoco.text.stored import CHANGED, PartsDigest, SetDigest, changed

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
    return -(-source.bytes // stored.PART_BYTES)


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
