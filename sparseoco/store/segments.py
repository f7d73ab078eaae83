"""Listings, the Parquet files that list shards and sources, and what is checked of shards."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import scipy  # loads scipy.sparse when it is used
from numpy.typing import NDArray

from sparseoco import __version__
from sparseoco.core.sparse_rows import csr_fault, increasing_fault, index_fault
from sparseoco.storage.commit import digest_value
from sparseoco.storage.locations import Location
from sparseoco.store.entries import ShardEntry, ShardTable, SourceEntry, SourceTable, unlike_manifest
from sparseoco.store.manifest import SCHEMA_VERSION, Manifest, ShardTotals

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
# Listings: each version of a store has a file that lists all its shards, and one for its sources.


def add_entries(
    folder: Location, previous: Manifest | None, shards: Iterable[ShardEntry], sources: Iterable[SourceEntry] = ()
) -> dict[str, Any]:
    """Write the listings of a new version of a store.

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
        If the listing of the previous version is corrupt, or a listing cannot be written.
    """
    new_shards, all_sources = ShardTable.of(shards), SourceTable.of(sources)
    all_shards = new_shards
    if previous is not None:
        all_shards = read_shard_table(folder, previous) + new_shards
        all_sources = read_source_table(folder, previous) + all_sources
    return {
        **dict(shard_totals(all_shards)),
        "added": shard_totals(new_shards),
        "shard_listing": all_shards.write(folder, "shards"),
        "n_sources": len(all_sources),
        "source_listing": all_sources.write(folder, "sources") if len(all_sources) else None,
    }


def first_manifest(
    folder: Location, shards: Iterable[ShardEntry], sources: Iterable[SourceEntry] = (), **described: Any
) -> Manifest:
    """The manifest of the first version of a store, whose listings are written; `described` has its other fields."""
    return Manifest(
        schema_version=SCHEMA_VERSION,
        version=1,
        sparseoco=__version__,
        **described,
        **add_entries(folder, None, shards, sources),
    )


def shard_totals(shards: ShardTable) -> ShardTotals:
    """The sums over shards, and the digest of their files, rows and nonzeros."""
    return ShardTotals(
        n_shards=len(shards),
        rows=int(shards.row_offsets[-1]),
        nonzeros=int(shards.nonzero_offsets[-1]),
        bytes=int(shards.column("bytes").sum()),
        shards_digest=digest_value(shards.table.select(["sha256", "rows", "nonzeros"]).to_pydict()),
    )


def read_shard_table(folder: Location, manifest: Manifest) -> ShardTable:
    """The shards of a version of a store, or of its increment: the last ones that are listed.

    Raises `StorageError` if the listing is missing or corrupt, or its entries cannot be those of the manifest.
    """
    listed = ShardTable.read(folder, manifest.shard_listing)
    table = listed[len(listed) - manifest.n_shards :]
    totals = [len(table), *(int(table.column(name).sum()) for name in ("rows", "nonzeros", "bytes"))]
    numbers = [table.column(name) for name in ("rows", "nonzeros", "bytes", "source", "labels")]
    if totals != [manifest.n_shards, manifest.rows, manifest.nonzeros, manifest.bytes] or any(
        column.min(initial=0) < 0 for column in numbers
    ):
        path = folder / manifest.shard_listing.file
        raise unlike_manifest(path, f"the shards are not those of version {manifest.version}")
    return table


def read_source_table(folder: Location, manifest: Manifest) -> SourceTable:
    """The sources of a version of a store. Raises `StorageError` if their listing is missing or corrupt."""
    return SourceTable.read(folder, manifest.source_listing)


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
