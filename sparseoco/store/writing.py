"""Writing the data files of a store: shards, vocabulary, names, document frequencies and quarantined rows."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.storage.locations import Location
from sparseoco.store.data_files import write_data_file
from sparseoco.store.entries import SHARD, ShardEntry
from sparseoco.store.labels import LabelSets
from sparseoco.store.manifest import FileEntry
from sparseoco.store.shards import COLUMN_DTYPES, MAX_INT32, ShardRows
from sparseoco.store.term_names import NAMES


def write_shard(folder: Location, rows: ShardRows, *, n_features: int, source: int = 0) -> ShardEntry:
    """Write documents as one shard, and return its entry. Raises `InputError` for 2^31 nonzeros or more."""
    if rows.indices.size > MAX_INT32:
        raise InputError(
            f"A shard of {rows.indices.size:,} nonzeros is too large: lower the shard size.", code="shard-too-large"
        )
    index_type = pa.int32() if n_features <= MAX_INT32 + 1 else pa.int64()  # as Store.indices_dtype
    offsets = pa.array(rows.indptr.astype(np.int32))
    ids = rows.ids if rows.ids is not None else pa.array([""] * len(rows.labels), pa.string())
    sets = rows.labels if isinstance(rows.labels, LabelSets) else None
    columns: dict[str, pa.Array] = {"id": ids}
    if sets is None:
        columns["label"] = pa.array(rows.labels)
    else:
        columns["labels"] = _lists(pa.array(sets.indptr.astype(np.int32)), pa.array(sets.classes, pa.int32()))
    columns["indices"] = _lists(offsets, pa.array(rows.indices, index_type))
    columns["counts"] = _lists(offsets, pa.array(rows.counts))
    for name in sorted(rows.columns):
        columns[name] = pa.array(np.asarray(rows.columns[name], COLUMN_DTYPES[name]))
    schema = pa.schema([pa.field(name, column.type, nullable=False) for name, column in columns.items()])
    table = pa.Table.from_arrays(list(columns.values()), schema=schema)
    leaves = {*columns, "labels.list.element"} if sets is not None else set(columns)
    # The high bytes of ids in order of frequency are mostly zero: split into streams, they compress well.
    entry = write_data_file(
        folder,
        SHARD,
        table,
        use_dictionary=[name for name in ("label", "labels.list.element", "weight", "group") if name in leaves],
        column_encoding={
            "indices.list.element": "BYTE_STREAM_SPLIT",
            "counts.list.element": "BYTE_STREAM_SPLIT",
            "id": "PLAIN",
        },
    )
    return ShardEntry(
        **entry.model_dump(),
        rows=len(rows.labels),
        nonzeros=int(rows.indices.size),
        counts=rows.counts.dtype.name,
        source=source,
        labels=None if sets is None else int(sets.classes.size),
    )


def write_vocabulary(
    folder: Location,
    features: NDArray[np.int64],
    terms: pa.Array,
    counts: NDArray[np.int64],
    documents: NDArray[np.int64],
) -> FileEntry:
    """Write a part of the vocabulary: the terms of increasing features, their total counts and document frequencies."""
    table = pa.table({"feature": features, "term": terms, "count": counts, "documents": documents})
    encoding = dict.fromkeys(("term", "count", "documents"), "PLAIN") | {"feature": "DELTA_BINARY_PACKED"}
    return write_data_file(folder, "vocabulary", table, use_dictionary=False, column_encoding=encoding)


def write_names(
    folder: Location,
    features: NDArray[np.int64],
    terms: pa.Array,
    counts: NDArray[np.int64],
    documents: NDArray[np.int64],
) -> FileEntry:
    """Write a part of the table of terms of hashed features; a feature may have several terms."""
    columns = {"feature": features, "term": terms, "count": counts, "documents": documents}
    table = pa.table(columns).cast(NAMES)
    return write_data_file(folder, "names", table, use_dictionary=False)


def write_frequencies(folder: Location, features: NDArray[np.int64], documents: NDArray[np.int64]) -> FileEntry:
    """Write the document frequencies of features, whose ids increase; those of all others are 0."""
    table = pa.table({"feature": features, "documents": documents})
    encoding = {"feature": "DELTA_BINARY_PACKED", "documents": "DELTA_BINARY_PACKED"}
    return write_data_file(folder, "frequencies", table, use_dictionary=False, column_encoding=encoding)


def write_quarantine(folder: Location, rows: Sequence[tuple[str, int, int, str]]) -> FileEntry:
    """Write the quarantined rows: (file, line, byte offset, reason), never their text."""
    columns = zip(*rows, strict=True)
    types = {"file": pa.string(), "line": pa.int64(), "offset": pa.int64(), "reason": pa.string()}
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types.values(), strict=True)]
    return write_data_file(folder, "quarantine", pa.Table.from_arrays(arrays, list(types)))


def _lists(offsets: pa.Array, values: pa.Array) -> pa.ListArray:
    element = pa.field("element", values.type, nullable=False)
    return pa.ListArray.from_arrays(offsets, values, type=pa.list_(element))
