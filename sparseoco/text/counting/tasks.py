"""The tasks that count documents: a split of a plain file, or whole files that are read in order."""

from collections.abc import Sequence
from typing import NamedTuple

from sparseoco.core.errors import InputError
from sparseoco.storage.commit import digest_value
from sparseoco.storage.locations import Location, location
from sparseoco.text import stored
from sparseoco.text.array_files import load_arrays, save_arrays
from sparseoco.text.counting.partial_counts import PartialCounts, count_split, describe_counts
from sparseoco.text.cutting.reader import SplitReader
from sparseoco.text.options import TextOptions
from sparseoco.text.sources import UNLABELLED, Source
from sparseoco.text.splits import Split

Numbered = tuple[int, Source]
"""A source and its position in the ingest."""


class SourceState(NamedTuple):
    """Size and digest of a source as it was read."""

    bytes: int
    sha256: str


class Counted(NamedTuple):
    """What a task counted.

    Parameters
    ----------
    counts : list of PartialCounts
        Of its splits, in order.
    states : dict
        Of sources that were read in whole, by position.
    bytes : int
        Stored bytes that were read.
    error : InputError or None
        What ended the reading, after these splits.
    """

    counts: list[PartialCounts]
    states: dict[int, SourceState]
    bytes: int
    error: InputError | None = None


def count_ranges(splits: Sequence[Split], options: TextOptions, staging: str) -> Counted:
    """Count splits, one after the other, each of which is read by itself."""
    counts: list[PartialCounts] = []
    for split in splits:
        try:
            counts.append(count_split(split, options, counts_path(staging, split), split.format not in UNLABELLED))
        except InputError as error:
            return Counted(counts, {}, 0, error)
    return Counted(counts, {}, sum(split.bytes for split in splits))


def counts_path(staging: str, split: Split) -> str:
    """The file of the partial counts of a split."""
    return str(location(staging) / f"{split.key}.counts")


def count_files(files: Sequence[Numbered], first: int, options: TextOptions, shard_bytes: int, staging: str) -> Counted:
    """Count whole files, each read once and in order; of the first only from its byte `first` on, a cut.

    The splits and digests are staged at the end, so that a run that resumes does not read the files again. More bad
    rows than are allowed end the task.
    """
    memo = location(staging) / f"{_key(files, first, options, shard_bytes)}.files"
    if memo.exists():
        counted = _load(memo, files, first, options, staging)
        if counted is not None:
            return counted
    counts: list[PartialCounts] = []
    digests: list[str] = []
    bad = 0
    for number, (index, source) in enumerate(files):
        reader = SplitReader(index, source, options, shard_bytes)
        try:
            for split, content in reader:
                if number == 0 and split.start < first:
                    continue
                path = counts_path(staging, split)
                counts.append(count_split(split, options, path, source.format not in UNLABELLED, content))
                bad += sum(row.counted for row in counts[-1].bad)
                if bad > options.max_bad_rows:
                    return Counted(counts, {}, 0)
        except InputError as error:
            return Counted(counts, {}, 0, error)
        digests.append(reader.sha256)
    position = {index: number for number, (index, _) in enumerate(files)}
    splits = [[position[part.split.source], *part.split.place] for part in counts]
    save_arrays(memo, {}, {"splits": splits, "sha256": digests})
    return _counted(files, counts, digests, first)


def _key(files: Sequence[Numbered], first: int, options: TextOptions, shard_bytes: int) -> str:
    state = [[source.key, source.short, source.format] for _, source in files]
    return digest_value([state, first, options.counting_digest, shard_bytes, stored.PART_BYTES])[:32]


def _load(memo: Location, files: Sequence[Numbered], first: int, options: TextOptions, staging: str) -> Counted | None:
    """What an earlier run counted; None if some of its files are gone."""
    facts = load_arrays(memo)[1]
    counts = []
    for position, *place in facts["splits"]:
        index, source = files[position]
        split = Split.of(index, source, options, *place)
        path = location(counts_path(staging, split))
        if not path.exists():
            return None
        counts.append(describe_counts(path, split))
    return _counted(files, counts, facts["sha256"], first)


def _counted(files: Sequence[Numbered], counts: list[PartialCounts], digests: Sequence[str], first: int) -> Counted:
    states = {index: SourceState(source.bytes, sha256) for (index, source), sha256 in zip(files, digests, strict=True)}
    return Counted(counts, states, sum(source.bytes for _, source in files) - first)
