"""Count all sources of an ingest, with one task per split."""

from typing import NamedTuple

from sparseoco.core.errors import InputError
from sparseoco.storage.locations import Location
from sparseoco.text.counting.partial_counts import PartialCounts, count_split
from sparseoco.text.job import IngestJob
from sparseoco.text.sources import UNLABELLED, Source
from sparseoco.text.splits import SplitReader, check_bad_rows
from sparseoco.text.tasks import Result


class SourceState(NamedTuple):
    """Size and digest of a source as it was read."""

    bytes: int
    sha256: str


def count_sources(job: IngestJob, sources: list[Source]) -> tuple[list[PartialCounts], list[SourceState]]:
    """Split and count all sources, with just enough splits in flight to keep the workers busy.

    Raises `InputError` with file and line if more than `max_bad_rows` rows of all sources together are bad.
    """
    submitted: list[Result] = []
    counted: list[PartialCounts] = []
    states: list[SourceState] = []
    total = sum(source.bytes for source in sources)
    done = bad = 0

    def collect(limit: int) -> None:
        """Wait for results, in order, until at most `limit` are pending."""
        nonlocal bad
        while len(submitted) - len(counted) > limit:
            counts: PartialCounts = submitted[len(counted)].result()
            bad = check_bad_rows(counts.split, counts.bad, job.options, bad)
            counted.append(counts)

    def counts_path(key: str) -> Location:
        return job.staging / f"{key}.counts"

    for index, source in enumerate(sources):
        splits = SplitReader(
            index,
            source,
            job.options,
            job.shard_bytes,
            job.staging,
            is_counted=lambda key: counts_path(key).exists(),
            in_memory=job.tasks.in_process,
        )
        labelled = source.format not in UNLABELLED
        try:
            for split in splits:
                path = str(counts_path(split.key))
                submitted.append(job.tasks(count_split, split, job.options, path, labelled))
                collect(2 * job.tasks.width + 1)
                job.progress("count", done + splits.bytes, total)
        except InputError:
            collect(0)  # an error earlier in the input is reported first
            raise
        states.append(SourceState(splits.bytes, splits.sha256))
        done += source.bytes
    collect(0)
    job.progress("count", total, total)
    return counted, states
