"""Segments, the Parquet files that list shards and sources, and what is checked of shards."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import scipy  # loads scipy.sparse when it is used
from numpy.typing import NDArray

from sparseoco import __version__
from sparseoco.core.sparse_rows import csr_fault, increasing_fault, index_fault
from sparseoco.storage.locations import Location
from sparseoco.store.entries import (
    EntryTable,
    IncrementEntry,
    IncrementTable,
    ShardEntry,
    ShardTable,
    SourceEntry,
    SourceTable,
    parse_table,
    read_all_verified,
    read_verified,
    unlike_manifest,
    write_data_file,
)
from sparseoco.store.manifest import SCHEMA_VERSION, Manifest, Segment, ShardTotals, read_manifests

if TYPE_CHECKING:
    from sparseoco.store.shards import ShardRows

# ----------------------------------------------------------------------------------------------------------------------
# Labels: of documents that have any number of classes each, and how many outputs a model of them has.


@dataclass(frozen=True)
class LabelSets:
    """The classes of consecutive documents, in CSR format.

    Parameters
    ----------
    indptr : (rows + 1,) int64
        Where documents begin in `classes`.
    classes : int32
        Class indices, increasing within a document.
    """

    indptr: NDArray[np.int64]
    classes: NDArray[np.int32]

    def __len__(self) -> int:
        """Number of documents."""
        return int(self.indptr.size - 1)

    def indicator(self, n_classes: int) -> NDArray[np.bool_]:
        """(rows, n_classes): whether a document has a class."""
        indicator = np.zeros((len(self), n_classes), np.bool_)
        indicator[np.repeat(np.arange(len(self)), np.diff(self.indptr)), self.classes] = True
        return indicator

    def matrix(self, n_classes: int) -> "scipy.sparse.csr_matrix":
        """The indicator as a sparse matrix of ones, int8."""
        ones = np.ones(self.classes.size, np.int8)
        return scipy.sparse.csr_matrix((ones, self.classes, self.indptr), shape=(len(self), n_classes))

    @classmethod
    def concatenate(cls, parts: "list[LabelSets]") -> "LabelSets":
        """The documents of all parts, in order."""
        sizes = [np.diff(part.indptr) for part in parts]
        indptr = np.concatenate([np.zeros(1, np.int64), *sizes]).cumsum()
        return cls(indptr, np.concatenate([np.empty(0, np.int32), *(part.classes for part in parts)]))


def n_outputs(classes: int, *, label_sets: bool) -> int:
    """Columns of weights: one per class; of two classes, of which each document has one, and for numbers one."""
    return classes if classes > 2 or label_sets else 1


# ----------------------------------------------------------------------------------------------------------------------
# The terms of features: from the vocabulary, or of hashed features from the files of their names.


NAMES = pa.schema({"feature": pa.int64(), "term": pa.string(), "count": pa.int64(), "documents": pa.int64()})


def describe_terms(parts: Iterable[pa.Table], features: NDArray[np.int64]) -> pa.Table:
    """The rows of features, in their order, in the parts of a vocabulary."""
    found, rows = [NAMES.empty_table()], []
    for part in parts:
        known = part["feature"].to_numpy()
        places = np.searchsorted(known, features)
        own = np.flatnonzero(np.append(known, -1)[places] == features)
        found.append(part.take(pa.array(places[own])))
        rows.append(own)
    order = np.argsort(np.concatenate([np.empty(0, np.int64), *rows]), kind="stable")
    return pa.concat_tables(found, promote_options="permissive").take(pa.array(order))


def describe_hashed(names: pa.Table, features: NDArray[np.int64]) -> pa.Table:
    """A row for each hashed feature, in their order; see `Store.describe`."""
    by_term = names.group_by(["feature", "term"]).aggregate([("count", "sum"), ("documents", "sum")])
    ordered = by_term.sort_by([("feature", "ascending"), ("count_sum", "descending"), ("term", "ascending")])
    grouped = ordered.group_by("feature", use_threads=False).aggregate(
        [("term", "first"), ("term", "count"), ("count_sum", "sum"), ("documents_sum", "sum")]
    )
    rows = {}
    for feature, term, terms, count, documents in zip(*grouped.to_pydict().values(), strict=True):
        rows[feature] = {
            "feature": feature,
            "term": term if terms == 1 else f"{term} (+{terms - 1} more)",
            "count": count,
            "documents": documents,
        }
    missing = {"term": "", "count": 0, "documents": 0}
    named = [rows.get(feature, {"feature": feature, **missing}) for feature in features.tolist()]
    return pa.Table.from_pylist(named, schema=NAMES)


# ----------------------------------------------------------------------------------------------------------------------
# Segments: the files that list the shards and the sources of a store.
#
# Each ingest adds its entries as a segment, merged with those before it that are not more than twice as long, as in a
# log-structured merge tree. So each segment is more than twice as long as the next one: their number grows with the
# logarithm of the number of entries, and so does how often an entry is written again. Segments are never changed;
# earlier versions of the store keep theirs.


RATIO = 2
EMPTY_CHAIN = "0" * 64
NO_SHARDS = ShardTotals(n_shards=0, rows=0, nonzeros=0, bytes=0, shards_digest=EMPTY_CHAIN)


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
    new_shards, new_sources = ShardTable.of(shards), SourceTable.of(sources)
    before = () if previous is None else previous.shard_segments
    sources_before = () if previous is None else previous.source_segments
    return {
        **dict(shard_totals(new_shards, previous or NO_SHARDS)),
        "added": shard_totals(new_shards),
        "shard_segments": add_segment(folder, "shards", before, new_shards),
        "n_sources": (0 if previous is None else previous.n_sources) + len(new_sources),
        "source_segments": add_segment(folder, "sources", sources_before, new_sources),
    }


def first_manifest(
    folder: Location, shards: Iterable[ShardEntry], sources: Iterable[SourceEntry] = (), **described: Any
) -> Manifest:
    """The manifest of the first version of a store, whose segments are written; `described` has its other fields."""
    return Manifest(
        schema_version=SCHEMA_VERSION,
        version=1,
        sparseoco=__version__,
        **described,
        **add_entries(folder, None, shards, sources),
    )


def add_increment_entry(folder: Location, previous: Manifest | None, manifest: Manifest) -> Manifest:
    """The manifest of a new version of a store with the segments that list what each version added.

    Raises `StorageError`.
    """
    if previous is None:
        return manifest
    earlier = () if previous.increment_segments else read_manifests(folder, previous.version)
    entries = IncrementTable.of(map(_increment_entry, (*earlier, manifest)))
    segments = add_segment(folder, "increments", previous.increment_segments, entries)
    return manifest.model_copy(update={"increment_segments": segments})


def read_increment_table(folder: Location, manifest: Manifest) -> IncrementTable:
    """What each version of a store added, up to that of the manifest. Raises `StorageError`."""
    if not manifest.increment_segments:
        return IncrementTable.of(map(_increment_entry, read_manifests(folder, manifest.version)))
    return IncrementTable(read_last(folder, manifest.increment_segments, manifest.version, IncrementTable.schema))


def _increment_entry(manifest: Manifest) -> IncrementEntry:
    added = manifest.increment
    return IncrementEntry(
        sha256=added.digest, rows=added.rows, nonzeros=added.nonzeros, features=manifest.features.count
    )


def shard_totals(shards: ShardTable, before: ShardTotals = NO_SHARDS) -> ShardTotals:
    """The sums over shards and those before, and the chain of their digests."""
    return ShardTotals(
        n_shards=before.n_shards + len(shards),
        rows=before.rows + int(shards.row_offsets[-1]),
        nonzeros=before.nonzeros + int(shards.nonzero_offsets[-1]),
        bytes=before.bytes + int(shards.column("bytes").sum()),
        shards_digest=chain_digest(shards, before.shards_digest),
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
        names = ", ".join(str(folder / segment.file) for segment in manifest.shard_segments)
        raise unlike_manifest(names, f"the shards are not those of version {manifest.version}")
    return table


def read_source_table(folder: Location, manifest: Manifest) -> SourceTable:
    """The sources of a version of a store. Raises `StorageError` if a segment is missing or corrupt."""
    return SourceTable(read_last(folder, manifest.source_segments, manifest.n_sources, SourceTable.schema))


def add_segment(
    folder: Location, kind: str, segments: Sequence[Segment], added: EntryTable[Any]
) -> tuple[Segment, ...]:
    """The segments with those of more entries; the last ones are merged with them. Raises `StorageError`."""
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
        raise unlike_manifest(folder / segment.file, "it does not have the entries that the manifest counts")
    return table


# ----------------------------------------------------------------------------------------------------------------------
# Checks of what is read from a store against its manifest, before anything is computed with it.
#
# The digests say that a file is the one that was committed. That the numbers in it are those that the manifest
# promises, on which compiled code relies, is checked here, once for each shard that is read.


def check_shard(path: Location, entry: ShardEntry, manifest: Manifest, rows: "ShardRows") -> None:
    """Raises `StorageError` (code ``corrupt-file``) for a shard that is not as its entry and the manifest say."""
    weights = rows.columns.get("weight")
    fault = (
        csr_fault(rows.indptr, rows.indices, entry.rows, manifest.features.count)
        or _counts_fault(entry, rows.indices, rows.counts)
        or _labels_fault(entry, manifest, rows.labels)
        or (_weights_fault(entry, weights) if weights is not None else None)
    )
    if fault is not None:
        raise unlike_manifest(path, fault)


def check_columns(path: Location, table: pa.Table, types: Mapping[str, pa.DataType]) -> None:
    """Raises `StorageError` for a table without columns of these types, or with nulls in them."""
    for name, wanted in types.items():
        place = table.schema.get_field_index(name)
        if place < 0 or table.schema.types[place] != wanted or table[name].null_count:
            raise unlike_manifest(path, f"it has no column {name} of {wanted} without nulls")


def check_features(path: Location, features: NDArray[Any], count: int) -> None:
    """Raises `StorageError` for a file of features whose ids do not increase, or are not below `count`."""
    fault = increasing_fault(features, count)
    if fault is not None:
        raise unlike_manifest(path, fault)


def _counts_fault(entry: ShardEntry, indices: NDArray[Any], counts: NDArray[Any]) -> str | None:
    if indices.size != entry.nonzeros or counts.size != entry.nonzeros:
        return f"there are not {entry.nonzeros:,} counts"
    if counts.dtype.name != entry.counts:
        return f"counts are {counts.dtype}, not {entry.counts}"
    if counts.size and counts.dtype.kind == "u" and not counts.min():
        return "a count is 0"
    if counts.size and counts.dtype.kind == "f" and not _is_finite(counts):
        return "a value is not finite"
    return None


def _labels_fault(entry: ShardEntry, manifest: Manifest, labels: Any) -> str | None:
    n_classes = len(manifest.labels.classes)
    if isinstance(labels, LabelSets):
        if labels.classes.size != entry.labels:
            return f"there are not {entry.labels} labels"
        fault = csr_fault(labels.indptr, labels.classes, entry.rows, n_classes)
    elif len(labels) != entry.rows:
        return f"there are not {entry.rows:,} labels"
    elif manifest.labels.kind == "numbers":
        return None if labels.dtype == np.float64 and _is_finite(labels) else "a label is not a finite number"
    elif not n_classes:  # labels of documents without any are −1, those of features 0
        fault = index_fault(labels + 1, 2)
    else:
        fault = index_fault(labels, n_classes)
    return None if fault is None else f"of the labels, {fault}"


def _weights_fault(entry: ShardEntry, weights: NDArray[Any]) -> str | None:
    if weights.shape != (entry.rows,) or not (_is_finite(weights) and weights.min(initial=0) >= 0):
        return f"there are not {entry.rows:,} sample weights of at least 0"
    return None


def _is_finite(values: NDArray[Any]) -> bool:
    """Whether all numbers are finite; the least and the largest are NaN if one is."""
    return bool(np.isfinite(values.min(initial=0)) and np.isfinite(values.max(initial=0)))
