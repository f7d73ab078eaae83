"""Segments: the files that list the shards and the sources of a store.

Each ingest adds its entries as a segment, merged with those before it that are not more than twice as long, as in a
log-structured merge tree. So each segment is more than twice as long as the next one: their number grows with the
logarithm of the number of entries, and so does how often an entry is written again. Segments are never changed; earlier
versions of the store keep theirs.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sparseoco.core.errors import StorageError
from sparseoco.storage.locations import Location
from sparseoco.store.data_files import parse_table, read_all_verified, read_verified, write_data_file
from sparseoco.store.entries import (
    EntryTable,
    IncrementEntry,
    IncrementTable,
    ShardEntry,
    ShardTable,
    SourceEntry,
    SourceTable,
)
from sparseoco.store.manifest import Manifest, Segment, ShardTotals, read_manifests

RATIO = 2
EMPTY_CHAIN = "0" * 64


def add_entries(
    folder: Location, previous: Manifest | None, shards: Iterable[ShardEntry], sources: Iterable[SourceEntry] = ()
) -> dict[str, Any]:
    """Write the segments of a new version of a store.

    Parameters
    ----------
    folder : Location
        The folder of the store.
    previous : Manifest or None
        The version to which entries are added; None for the first one.
    shards, sources : iterable of ShardEntry, SourceEntry
        The new entries.

    Returns
    -------
    dict
        The fields of the `Manifest` of the new version that depend on its shards and sources.

    Raises
    ------
    StorageError
        If a segment is corrupt or cannot be written.
    """
    new_shards = shards if isinstance(shards, ShardTable) else ShardTable.of(shards)
    new_sources = sources if isinstance(sources, SourceTable) else SourceTable.of(sources)
    added = shard_totals(new_shards)
    before = () if previous is None else previous.shard_segments
    sources_before = () if previous is None else previous.source_segments
    totals = added
    if previous is not None:
        totals = ShardTotals(
            n_shards=previous.n_shards + added.n_shards,
            rows=previous.rows + added.rows,
            nonzeros=previous.nonzeros + added.nonzeros,
            bytes=previous.bytes + added.bytes,
            shards_digest=chain_digest(new_shards, previous.shards_digest),
        )
    return {
        **dict(totals),
        "added": added,
        "shard_segments": add_segment(folder, "shards", before, new_shards),
        "n_sources": (0 if previous is None else previous.n_sources) + len(new_sources),
        "source_segments": add_segment(folder, "sources", sources_before, new_sources),
    }


def add_increment_entry(folder: Location, previous: Manifest | None, manifest: Manifest) -> Manifest:
    """The manifest of a new version of a store with the segments that list what each version added.

    Raises as `add_entries`.
    """
    if previous is None:
        return manifest
    earlier = () if previous.increment_segments else read_manifests(folder, previous.version)
    entries = IncrementTable.of(map(_increment_entry, (*earlier, manifest)))
    segments = add_segment(folder, "increments", previous.increment_segments, entries)
    return manifest.model_copy(update={"increment_segments": segments})


def read_increment_table(folder: Location, manifest: Manifest) -> IncrementTable:
    """What each version of a store added, up to that of the manifest. Raises as `read_source_table`."""
    if not manifest.increment_segments:
        return IncrementTable.of(map(_increment_entry, read_manifests(folder, manifest.version)))
    return IncrementTable(read_last(folder, manifest.increment_segments, manifest.version, IncrementTable.schema))


def _increment_entry(manifest: Manifest) -> IncrementEntry:
    added = manifest.increment
    return IncrementEntry(
        sha256=added.digest, rows=added.rows, nonzeros=added.nonzeros, features=manifest.features.count
    )


def shard_totals(shards: ShardTable) -> ShardTotals:
    """The sums over shards, and the chain of their digests."""
    return ShardTotals(
        n_shards=len(shards),
        rows=int(shards.row_offsets[-1]),
        nonzeros=int(shards.nonzero_offsets[-1]),
        bytes=int(shards.column("bytes").sum()),
        shards_digest=chain_digest(shards),
    )


def chain_digest(shards: ShardTable, digest: str = EMPTY_CHAIN) -> str:
    """The digest of a sequence of shards, given that of those before; it does not depend on how shards are grouped.

    dᵢ₊₁ is the SHA-256 of dᵢ and of shard i: the SHA-256 of its file, its rows and its nonzeros.
    """
    numbers = np.stack([shards.column("rows"), shards.column("nonzeros")], axis=1).astype("<i8", order="C")
    records = np.hstack([shards.digests, numbers.view(np.uint8).reshape(len(shards), 16)])
    state = bytes.fromhex(digest)
    for record in records:
        state = hashlib.sha256(state + record.tobytes()).digest()
    return state.hex()


def read_shard_table(folder: Location, manifest: Manifest) -> ShardTable:
    """The shards of a version of a store.

    Raises `StorageError` if a segment is missing or corrupt, or its entries cannot be those of the manifest.
    """
    table = ShardTable(read_last(folder, manifest.shard_segments, manifest.n_shards, ShardTable.schema))
    totals = tuple(int(table.column(name).sum()) for name in ("rows", "nonzeros", "bytes"))
    numbers = [table.column(name) for name in ("rows", "nonzeros", "bytes", "source", "labels")]
    if totals != (manifest.rows, manifest.nonzeros, manifest.bytes) or any(
        column.min(initial=0) < 0 for column in numbers
    ):
        names = ", ".join(segment.file for segment in manifest.shard_segments)
        raise StorageError(
            f"{folder}: the shards in {names} are not those of the manifest of version {manifest.version}. Ingest "
            "again into a new folder.",
            code="corrupt-file",
        )
    return table


def read_source_table(folder: Location, manifest: Manifest) -> SourceTable:
    """The sources of a version of a store. Raises `StorageError` if a segment is missing or corrupt."""
    return SourceTable(read_last(folder, manifest.source_segments, manifest.n_sources, SourceTable.schema))


def add_segment(
    folder: Location, kind: str, segments: Sequence[Segment], added: EntryTable[Any]
) -> tuple[Segment, ...]:
    """The segments with those of more entries; the last ones are merged with them. Raises as `add_entries`."""
    kept, tables, size = list(segments), [added.table], len(added)
    if not size:
        return tuple(kept)
    while kept and kept[-1].entries <= RATIO * size:
        last = kept.pop()
        tables.insert(0, _table(folder, last, read_verified(folder, last), added.schema))
        size += last.entries
    entry = write_data_file(folder, kind, pa.concat_tables(tables), use_dictionary=list(added.repeated))
    return (*kept, Segment(**entry.model_dump(), entries=size))


def read_last(folder: Location, segments: Sequence[Segment], count: int, schema: pa.Schema) -> pa.Table:
    """The last `count` entries of segments. Raises `StorageError` if a segment is missing or corrupt."""
    first, size = len(segments), 0
    while size < count:
        first -= 1
        size += segments[first].entries
    chosen = segments[first:]
    tables = [
        _table(folder, segment, data, schema)
        for segment, data in zip(chosen, read_all_verified(folder, chosen), strict=True)
    ]
    return pa.concat_tables(tables or [schema.empty_table()]).slice(size - count)


def _table(folder: Location, segment: Segment, data: bytes, schema: pa.Schema) -> pa.Table:
    table = parse_table(folder / segment.file, data)
    if table.num_rows != segment.entries or not table.schema.equals(schema):
        raise StorageError(
            f"{folder / segment.file} is corrupt: it does not have the entries that the manifest counts. Ingest again "
            "into a new folder.",
            code="corrupt-file",
        )
    return table
