"""Checks of what is read from a store against its manifest, before anything is computed with it.

The digests say that a file is the one that was committed. That the numbers in it are those that the manifest promises,
on which compiled code relies, is checked here, once for each shard that is read.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparseoco.core.sparse_rows import csr_fault, increasing_fault, index_fault
from sparseoco.storage.locations import Location
from sparseoco.store.data_files import unlike_manifest
from sparseoco.store.entries import ShardEntry
from sparseoco.store.labels import LabelSets
from sparseoco.store.manifest import Manifest


def check_shard(
    path: Location,
    entry: ShardEntry,
    manifest: Manifest,
    labels: Any,
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    counts: NDArray[Any],
    weights: NDArray[Any] | None,
) -> None:
    """Raises `StorageError` (code ``corrupt-file``) for a shard that is not as its entry and the manifest say.

    Parameters
    ----------
    labels, indptr, indices, counts
        As in `sparseoco.store.shards.ShardRows`.
    weights : (rows,) float32, or None
        The sample weights.
    """
    fault = (
        csr_fault(indptr, indices, entry.rows, manifest.features.count)
        or _counts_fault(entry, indices, counts)
        or _labels_fault(entry, manifest, labels)
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
