"""Work on each split of some sources, and the tasks that do it: for splits of plain files, or for whole files."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Generic, NamedTuple, Protocol, TypeVar

from sparseoco.core.errors import DamagedError, InputError
from sparseoco.storage.commit import digest_value
from sparseoco.storage.locations import Location, location
from sparseoco.text import stored
from sparseoco.text.array_files import load_arrays, save_arrays
from sparseoco.text.cutting.reader import SplitReader
from sparseoco.text.documents import BadRow
from sparseoco.text.options import TextOptions
from sparseoco.text.sources import Source
from sparseoco.text.splits import Content, Split

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
    return digest_value([work.step, state, first, options, shard_bytes, stored.PART_BYTES])[:32]


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
