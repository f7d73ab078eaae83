"""Documents whose id occurred before."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.storage.locations import location
from sparseoco.store.shards import Store
from sparseoco.text.array_files import load_arrays, stored_strings
from sparseoco.text.counting.partial_counts import PartialCounts, without_rows
from sparseoco.text.hashing import hash_strings
from sparseoco.text.job import IngestJob
from sparseoco.text.options import TextOptions
from sparseoco.text.sources import TABLES


def drop_duplicates(job: IngestJob, counts: list[PartialCounts], store: Store | None) -> list[PartialCounts]:
    """The partial counts without documents whose id occurred before (see `find_duplicates`)."""
    found = find_duplicates(counts, job.options, store)
    results = {index: job.tasks(without_rows, counts[index], rows) for index, rows in found.items()}
    return [results[index].result() if index in results else split for index, split in enumerate(counts)]


def find_duplicates(
    counts: list[PartialCounts], options: TextOptions, store: Store | None
) -> dict[int, NDArray[np.int64]]:
    """Rows, by split, whose id occurred before in the store or in these splits; none if duplicates are allowed.

    Raises `InputError`, with both positions, if duplicates are an error.
    """
    if options.duplicates == "all":
        return {}
    documents = _Ids(counts, store)
    hashes = np.empty(documents.starts[-1], np.int64)  # the only memory per document
    for part in documents.parts:
        hashes[documents.starts[part] : documents.starts[part + 1]] = _hash_ids(documents.ids(part))
    suspects = _repeated(hashes)
    if not suspects.size:
        return {}
    # Different ids may have equal hashes: compare the ids.
    cuts = np.searchsorted(suspects, documents.starts)
    rows = [suspects[cuts[part] : cuts[part + 1]] - documents.starts[part] for part in documents.parts]
    ids = [
        documents.ids(part).take(pa.array(rows[part])).cast(pa.large_string())
        for part in documents.parts
        if rows[part].size
    ]
    codes = pa.chunked_array(ids, pa.large_string()).combine_chunks().dictionary_encode().indices.to_numpy()
    _, first = np.unique(codes, return_index=True)
    repeated = np.ones(codes.size, np.bool_)
    repeated[first] = False
    repeated[: cuts[documents.n_shards]] = False  # duplicates in the store were allowed when they were ingested
    if not repeated.any():
        return {}
    if options.duplicates == "error":
        later = int(np.argmax(repeated))
        earlier = int(np.argmax(codes == codes[later]))
        positions = " and ".join(documents.position(int(suspects[k])) for k in (earlier, later))
        raise InputError(
            f"Two documents have the same id: {positions} (duplicates = first keeps the first, all keeps both).",
            code="duplicate-id",
        )
    found = {}
    for index in range(len(counts)):
        part = documents.n_shards + index
        dropped = rows[part][repeated[cuts[part] : cuts[part + 1]]]
        if dropped.size:
            found[index] = dropped
    return found


class _Ids:
    """Ids of the documents of a store and of new splits; a part is a shard or a split."""

    def __init__(self, counts: list[PartialCounts], store: Store | None) -> None:
        self._counts = counts
        self._store = store
        shards = store.manifest.shards if store is not None else ()
        self.n_shards = len(shards)
        self.parts = range(self.n_shards + len(counts))
        self.starts = np.cumsum([0, *(shard.rows for shard in shards), *(split.rows for split in counts)])

    def ids(self, part: int) -> pa.Array:
        if part < self.n_shards:
            assert self._store is not None
            return self._store.read(part, ids=True).ids
        arrays, _ = load_arrays(location(self._counts[part - self.n_shards].path))
        return stored_strings(arrays, "id")

    def position(self, document: int) -> str:
        """File and line of a document, for messages."""
        part = int(np.searchsorted(self.starts, document, side="right")) - 1
        if part < self.n_shards:
            assert self._store is not None
            return self._store.manifest.sources[self._store.manifest.shards[part].source].path
        counts = self._counts[part - self.n_shards]
        arrays, _ = load_arrays(location(counts.path))
        unit = "row" if counts.split.format in TABLES else "line"
        return f"{counts.split.name}, {unit} {int(arrays['lines'][document - self.starts[part]])}"


def _hash_ids(ids: pa.Array) -> NDArray[np.int64]:
    return hash_strings(ids, 0, 63)


def _repeated(hashes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions of the values that occur more than once."""
    ordered = np.sort(hashes)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    return np.flatnonzero(np.isin(hashes, repeated)) if repeated.size else repeated
