"""Document frequencies of a store whose vocabulary files do not have those of all documents.

Each shard's are staged by the task that writes it; one task sums them, in memory bounded by the features.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseoco.storage.locations import Location, location
from sparseoco.store.manifest import FileEntry, Manifest
from sparseoco.store.shards import Store
from sparseoco.store.writing import write_frequencies
from sparseoco.text.array_files import load_arrays, save_arrays

Frequencies = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Feature ids, increasing, and documents with each."""

PENDING = 1 << 22  # frequencies of shards in memory before they are summed


def stage_frequencies(path: Location, indices: NDArray[Any]) -> None:
    """Stage the document frequencies of a shard with these feature ids, unique in each row."""
    features, documents = np.unique(indices, return_counts=True)
    save_arrays(path, {"features": features.astype(np.int64), "documents": documents.astype(np.int64)})


def merge_frequencies(out: str, previous: Manifest | None, paths: list[str]) -> FileEntry:
    """Write the document frequencies of a store with these new shards."""
    known = [] if previous is None else [Store(location(out), previous).present_frequencies()]
    staged = (load_arrays(location(path))[0] for path in paths)
    features, documents = sum_frequencies([*known], ((arrays["features"], arrays["documents"]) for arrays in staged))
    return write_frequencies(location(out), features, documents)


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
