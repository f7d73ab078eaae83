"""Document frequencies of a store whose vocabulary files do not have those of all documents.

Each shard's are staged by the task that writes it; tasks sum those of a group of shards, then of groups, in memory
bounded by the features.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseoco.storage.commit import digest_value
from sparseoco.storage.locations import Location, location
from sparseoco.store.manifest import FileEntry, Manifest
from sparseoco.store.shards import Store
from sparseoco.store.writing import write_frequencies
from sparseoco.text.array_files import load_arrays, save_arrays
from sparseoco.text.job import TextJob

Frequencies = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Feature ids, increasing, and documents with each."""

GROUP = 256  # files that one task sums
PENDING = 1 << 22  # frequencies of shards in memory before they are summed


def stage_frequencies(path: Location, indices: NDArray[Any]) -> None:
    """Stage the document frequencies of a shard with these feature ids, unique in each row."""
    features, documents = np.unique(indices, return_counts=True)
    save_arrays(path, {"features": features.astype(np.int64), "documents": documents.astype(np.int64)})


def merge_frequencies(job: TextJob, previous: Manifest | None, paths: list[str]) -> FileEntry:
    """Write the document frequencies of a store with these new shards."""
    while len(paths) > GROUP:
        groups = [paths[first : first + GROUP] for first in range(0, len(paths), GROUP)]
        targets = [str(job.staging / f"{digest_value(group)[:32]}.frequencies") for group in groups]
        job.wait("sum", [job.tasks(_sum_group, *call) for call in zip(groups, targets, strict=True)])
        paths = targets
    entry: FileEntry = job.tasks(_write_sum, str(job.out), previous, paths).result()
    return entry


def _sum_group(paths: list[str], target: str) -> None:
    if not location(target).is_file():
        features, documents = sum_frequencies([], _staged(paths))
        save_arrays(location(target), {"features": features, "documents": documents})


def _write_sum(out: str, previous: Manifest | None, paths: list[str]) -> FileEntry:
    known = [] if previous is None else [Store(location(out), previous).present_frequencies()]
    return write_frequencies(location(out), *sum_frequencies(known, _staged(paths)))


def _staged(paths: list[str]) -> Iterator[Frequencies]:
    for path in paths:
        arrays, _ = load_arrays(location(path))
        yield arrays["features"], arrays["documents"]


def sum_frequencies(known: list[Frequencies], parts: Iterable[Frequencies]) -> Frequencies:
    """The sums over all parts. Parts are summed when they are as large as the sum, so that each is read few times."""
    pending, size, total = known, 0, 0
    for part in parts:
        pending.append(part)
        size += part[0].size
        if size > max(PENDING, total):
            pending, size = [_sum(pending)], 0
            total = pending[0][0].size
    return _sum(pending)


def _sum(parts: list[Frequencies]) -> Frequencies:
    features, position = np.unique(np.concatenate([np.empty(0, np.int64), *(p[0] for p in parts)]), return_inverse=True)
    documents = np.zeros(features.size, np.int64)
    np.add.at(documents, position, np.concatenate([np.empty(0, np.int64), *(p[1] for p in parts)]))
    return features, documents
