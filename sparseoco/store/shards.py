"""A store of shards: opening, reading, checking, writing, references that travel."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy  # loads scipy.sparse when it is used
from numpy.typing import NDArray

from sparseoco.core.errors import InputError, StorageError, unsupported
from sparseoco.storage.commit import digest_value
from sparseoco.storage.locations import Location, is_inside, location
from sparseoco.store.entries import ShardEntry, ShardTable, SourceTable, read_table, unlike_manifest, write_data_file
from sparseoco.store.manifest import Column, FileEntry, Manifest, latest_manifest, read_manifest

if TYPE_CHECKING:
    from distributed import Client


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
# The store of term counts: immutable Parquet shards and a manifest.
#
# A store is a folder::
#
#     manifest-00000001.json       format version, options, sums, and its listings
#     shards-<digest>.parquet      the shards of a version, with rows, nonzeros and SHA-256
#     sources-<digest>.parquet     its sources, with what detects a change
#     shard-<digest>.parquet       id, label (or labels, a list), indices, counts, and the optional columns weight,
#                                  group and time: one row per document, in document order
#     vocabulary-<digest>.parquet  feature, term, count, documents: a part of the terms, by feature
#     names-<digest>.parquet       (hashed features) feature, term, count, documents
#     frequencies-<digest>.parquet (hashed features, and after several ingests) feature, documents: of all documents
#
# Data files are named by their content and become visible when a manifest lists them. Manifests are numbered and
# created only if absent, and the highest number counts, so the files of two writers never mix.


MAX_INT32 = 2**31 - 1
COLUMN_DTYPES: dict[Column, np.dtype[Any]] = {
    "weight": np.dtype(np.float32),
    "group": np.dtype(np.int64),
    "time": np.dtype(np.float64),
}
NO_COLUMNS: Mapping[Column, NDArray[Any]] = {}


class ShardRows(NamedTuple):
    """Consecutive documents in CSR format; feature ids strictly increase within a row.

    Parameters
    ----------
    ids : (rows,) string, or None
        The ids of the documents, None if they were not requested.
    labels : (rows,) int32 or float64, or LabelSets
        Class indices, numbers, or any number of class indices per document.
    indptr : (rows + 1,) int64
        Where rows begin in `indices` and `counts`.
    indices : (nonzeros,) int32 or int64
        Feature ids, int64 if the store has more than 2^31 features.
    counts : (nonzeros,) uint16, uint32 or float64
        Counts of the features.
    columns : mapping of (rows,)
        The optional columns, by name.
    """

    ids: pa.StringArray | None
    labels: Any
    indptr: NDArray[np.int64]
    indices: NDArray[Any]
    counts: NDArray[Any]
    columns: Mapping[Column, NDArray[Any]] = NO_COLUMNS


class Store:
    """A version of a store, opened for reading.

    Parameters
    ----------
    folder : Location
        The folder of the store.
    manifest : Manifest
        The manifest of the version to read.
    shards : ShardTable, optional
        Its shards; by default their listing is read when they are needed.
    """

    def __init__(self, folder: Location, manifest: Manifest, shards: ShardTable | None = None) -> None:
        self.folder = folder
        self.manifest = manifest
        if shards is not None:
            self.shards = shards

    @classmethod
    def find(cls, folder: Location) -> "Store | None":
        """Open the newest version of a store; None if the folder has none. Raises `StorageError` if it is corrupt."""
        manifest = latest_manifest(folder)
        return None if manifest is None else cls(folder, manifest)

    @classmethod
    def open(cls, folder: str | Location) -> "Store":
        """Open the newest version of a store. Raises `InputError` if the folder is none."""
        path = location(folder)
        store = cls.find(path)
        if store is None:
            inner = path / "shards"  # of a run
            found = isinstance(path, Path) and latest_manifest(inner) is not None
            mend = f"did you mean {inner}?" if found else "create one with `sparseoco ingest`."
            raise InputError(f"{path} is not a store (no manifest): {mend}", code="not-a-store")
        return store

    @cached_property
    def shards(self) -> ShardTable:
        """The shards, in document order. Raises `StorageError` if their listing is missing or corrupt."""
        return ShardTable.of_version(self.folder, self.manifest)

    @cached_property
    def sources(self) -> SourceTable:
        """The raw inputs. Raises `StorageError` if their listing is missing or corrupt."""
        return SourceTable.read(self.folder, self.manifest.source_listing)

    @property
    def increment(self) -> "Store":
        """The documents that this version added, over its features."""
        return Store(self.folder, self.manifest.increment)

    @property
    def n_shards(self) -> int:
        """Number of shards."""
        return self.manifest.n_shards

    @property
    def n_features(self) -> int:
        """Number of columns of the matrix."""
        return self.manifest.features.count

    @property
    def n_rows(self) -> int:
        """Number of documents."""
        return self.manifest.rows

    @property
    def indices_dtype(self) -> np.dtype[Any]:
        """dtype of feature ids in every shard: int32, or int64 if there are more than 2^31 features."""
        return np.dtype(np.int32 if self.n_features <= MAX_INT32 + 1 else np.int64)

    @property
    def counts_dtype(self) -> np.dtype[Any]:
        """The narrowest dtype for the counts of every shard."""
        return np.result_type(np.uint16, *self.shards.counts_dtypes)

    @property
    def labels_dtype(self) -> np.dtype[Any]:
        """int32 for class indices, float64 for numbers."""
        return np.dtype(np.float64 if self.manifest.labels.kind == "numbers" else np.int32)

    @property
    def is_multilabel(self) -> bool:
        """Whether documents have any number of labels."""
        return self.manifest.labels.kind == "multi"

    @property
    def classes(self) -> list[str]:
        """Names of the classes by index; empty if labels are numbers."""
        return [entry.name for entry in self.manifest.labels.classes]

    @property
    def n_classes(self) -> int | None:
        """Number of classes as learners take it: at least two, None for numbers."""
        return None if self.manifest.labels.kind == "numbers" else max(2, len(self.classes))

    @property
    def n_outputs(self) -> int:
        """Columns of weights: one per class, of two classes and for numbers one."""
        return n_outputs(len(self.classes), label_sets=self.is_multilabel)

    def read(self, shard: int, *, ids: bool = False) -> ShardRows:
        """Read a shard and verify its SHA-256.

        Parameters
        ----------
        shard : int
            Index of the shard.
        ids : bool
            Whether to read the ids of the documents too.

        Returns
        -------
        ShardRows
            The documents of the shard.

        Raises
        ------
        StorageError
            If the file is missing, its SHA-256 is not the committed one, or its numbers are not those of the manifest.
        """
        entry = self.shards[shard]
        label = "labels" if self.is_multilabel else "label"
        columns = (["id"] if ids else []) + [label, "indices", "counts", *self.manifest.columns]
        table = read_table(self.folder, entry, columns).combine_chunks()
        path = self.folder / entry.file
        check_columns(path, table, self._column_types(entry))
        indices, counts = (_only_chunk(table[name]) for name in ("indices", "counts"))
        labels = _only_chunk(table[label])
        rows = ShardRows(
            ids=_only_chunk(table["id"]) if ids else None,
            labels=LabelSets(labels.offsets.to_numpy().astype(np.int64), labels.values.to_numpy())
            if self.is_multilabel
            else labels.to_numpy(zero_copy_only=False),
            indptr=indices.offsets.to_numpy().astype(np.int64),
            indices=indices.values.to_numpy(),
            counts=counts.values.to_numpy(),
            columns={name: _only_chunk(table[name]).to_numpy() for name in self.manifest.columns},
        )
        check_shard(path, entry, self.manifest, rows)
        return rows

    def _column_types(self, entry: ShardEntry) -> dict[str, pa.DataType]:
        """The types of the columns of a shard."""
        types = {
            "indices": _list_of(pa.from_numpy_dtype(self.indices_dtype)),
            "counts": _list_of(pa.from_numpy_dtype(np.dtype(entry.counts))),
        }
        if self.is_multilabel:
            types["labels"] = _list_of(pa.int32())
        else:
            types["label"] = pa.from_numpy_dtype(self.labels_dtype)
        return types | {name: pa.from_numpy_dtype(COLUMN_DTYPES[name]) for name in self.manifest.columns}

    def check_outside(self, out: Location) -> None:
        """Raises `InputError` for an output in the folder of the store."""
        if is_inside(out, self.folder):
            raise unsupported(f"{out} is in the folder of the shards, {self.folder}: choose another.")

    def ids(self, shard: int) -> pa.StringArray:
        """The ids of the documents of a shard. Raises `StorageError` as `read`."""
        return _only_chunk(read_table(self.folder, self.shards[shard], ["id"])["id"])

    def labels(self) -> Any:
        """The labels of all documents, in order.

        Returns
        -------
        (n_rows,) int32 or float64, or (n_rows, n_classes) csr_matrix
            Class indices or numbers; an indicator matrix if documents have any number of labels.
        """
        parts: list[Any] = [self.read(shard).labels for shard in range(self.n_shards)]
        if self.is_multilabel:
            return LabelSets.concatenate(parts).matrix(len(self.classes))
        return np.concatenate([np.empty(0, self.labels_dtype), *parts])

    def column(self, name: Column) -> NDArray[Any]:
        """(n_rows,): an optional column of all documents, in order. Raises `InputError` if the store has none."""
        if name not in self.manifest.columns:
            raise InputError(
                f"{self.folder} has no column {name}: ingest the text with {name}_field.", code="missing-column"
            )
        parts = [self.read(shard).columns[name] for shard in range(self.n_shards)]
        return np.concatenate([np.empty(0, COLUMN_DTYPES[name]), *parts])

    def vocabulary(self) -> pa.Table:
        """Columns term, count, documents; row i is feature i. Raises `InputError` for hashed features."""
        table = pa.concat_tables(self.vocabulary_files())
        features = table["feature"].to_numpy()
        if np.any(features[1:] < features[:-1]):
            table = table.sort_by("feature")
        return table.drop_columns("feature")

    def vocabulary_files(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The vocabulary in parts, each by increasing feature: feature, term, count, documents, or feature and others.

        Raises `InputError` for hashed features, `StorageError` if the terms are not those of the manifest.
        """
        if self.manifest.features.kind != "vocabulary":
            raise InputError(f"{self.folder} has hashed features, and no vocabulary.", code="hashed-features")
        size = 0
        for entry in self.manifest.features.files:
            part = read_table(self.folder, entry, columns)
            check_features(self.folder / entry.file, part["feature"].to_numpy(), self.n_features)
            size += part.num_rows
            yield part
        if size != self.n_features:
            raise unlike_manifest(self.folder, f"the vocabulary has {size:,} terms, not {self.n_features:,}")

    def describe(self, features: NDArray[np.int64]) -> pa.Table:
        """Columns feature, term, count, documents of the given feature ids, in their order.

        A hashed feature with several terms gets the most frequent one and the number of others; its counts are summed.
        """
        if self.manifest.features.kind == "vocabulary":
            return describe_terms(self.vocabulary_files(), features)
        chosen = pc.field("feature").isin(pa.array(np.unique(features)))
        parts = [read_table(self.folder, entry).filter(chosen) for entry in self.manifest.features.files]
        # Some parts may have narrower integers.
        names = pa.concat_tables([NAMES.empty_table(), *parts], promote_options="permissive")
        return describe_hashed(names, features)

    def features_digest(self, count: int | None = None) -> str:
        """SHA-256 of the meaning of feature ids, or of those below `count`: terms in order, or the hash function."""
        features = self.manifest.features
        if features.kind == "hashed":
            return digest_value(["hashed", features.hash_bits])
        terms = _only_chunk(self.vocabulary()["term"].cast(pa.large_string())).slice(0, count)
        digest = hashlib.sha256(pc.binary_length(terms).to_numpy(zero_copy_only=False).astype("<i8").tobytes())
        for first in range(0, len(terms), 1 << 20):
            digest.update("".join(terms.slice(first, 1 << 20).to_pylist()).encode())
        return digest.hexdigest()

    def document_frequencies(self) -> NDArray[np.int64]:
        """(n_features,) int64: the number of documents of the store with each feature."""
        frequencies = np.zeros(self.n_features, dtype=np.int64)
        features, documents = self.present_frequencies()
        frequencies[features] = documents
        return frequencies

    def present_frequencies(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(features, documents with each) of the features that occur, or could; ids increase."""
        if self.manifest.frequencies is not None:
            table = read_table(self.folder, self.manifest.frequencies)
            path = self.folder / self.manifest.frequencies.file
            check_features(path, table["feature"].to_numpy(), self.n_features)
            return table["feature"].to_numpy(), table["documents"].to_numpy()
        if self.manifest.features.kind == "vocabulary":
            return np.arange(self.n_features), self.term_frequencies()
        return np.empty(0, np.int64), np.empty(0, np.int64)

    def term_frequencies(self) -> NDArray[np.int64]:
        """(n_features,): the documents with each term of the vocabulary, of the ingest that added it."""
        documents = np.empty(self.n_features, np.int64)
        for part in self.vocabulary_files(["feature", "documents"]):
            documents[part["feature"].to_numpy()] = part["documents"].to_numpy()
        return documents


def read_shards(folder: str | Location) -> "tuple[scipy.sparse.csr_matrix, list[str]]":
    """Read all counts as one SciPy matrix.

    Parameters
    ----------
    folder : str or Location
        The folder of a store.

    Returns
    -------
    matrix : (n_rows, n_features) csr_matrix of int64 or float64
        The counts, in document order.
    terms : list of str
        The terms of the columns; "" for hashed columns without documents.

    Raises
    ------
    InputError
        If the folder is not a store.
    StorageError
        If a shard is missing or corrupt.
    """
    store = Store.open(folder)
    rows, nonzeros = store.shards.row_offsets, store.shards.nonzero_offsets
    indptr = np.zeros(rows[-1] + 1, dtype=np.int64)
    indices = np.empty(nonzeros[-1], dtype=store.indices_dtype)
    data = np.empty(nonzeros[-1], dtype=np.int64 if store.counts_dtype.kind == "u" else np.float64)
    for shard, (row, nonzero) in enumerate(zip(rows[:-1], nonzeros[:-1], strict=True)):
        part = store.read(shard)
        indptr[row : row + part.indptr.size] = part.indptr + nonzero
        indices[nonzero : nonzero + part.indices.size] = part.indices
        data[nonzero : nonzero + part.counts.size] = part.counts
    matrix = scipy.sparse.csr_matrix((data, indices, indptr), shape=(store.n_rows, store.n_features), copy=False)
    if store.manifest.features.kind == "vocabulary":
        return matrix, store.vocabulary()["term"].to_pylist()
    terms = [""] * store.n_features
    used = np.unique(indices).astype(np.int64)
    for feature, term in zip(used.tolist(), store.describe(used)["term"].to_pylist(), strict=True):
        terms[feature] = term
    return matrix, terms


def _list_of(kind: pa.DataType) -> pa.ListType:
    return pa.list_(pa.field("element", kind, nullable=False))


def _only_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


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
# Checks of what is read from a store against its manifest, before anything is computed with it.
#
# The digests say that a file is the one that was committed. That the numbers in it are those that the manifest
# promises, on which compiled code relies, is checked here, once for each shard that is read.


def check_shard(path: Location, entry: ShardEntry, manifest: Manifest, rows: ShardRows) -> None:
    """Raises `StorageError` (code ``corrupt-file``) for a shard that is not as its entry and the manifest say."""
    fault = (
        csr_fault(rows.indptr, rows.indices, entry.rows, manifest.features.count)
        or _counts_fault(entry, rows.indices, rows.counts)
        or _labels_fault(entry, manifest, rows.labels)
    )
    weights = rows.columns.get("weight")
    if fault is None and weights is not None:
        are_valid = weights.shape == (entry.rows,) and _is_finite(weights) and weights.min(initial=0) >= 0
        fault = None if are_valid else f"there are not {entry.rows:,} sample weights of at least 0"
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


def csr_fault(indptr: NDArray[Any], indices: NDArray[Any], n_rows: int, n_columns: int) -> str | None:
    """Why arrays are not those of a CSR matrix of this shape, as the end of a sentence; None if they are.

    Parameters
    ----------
    indptr : (n_rows + 1,) signed integers
        Where rows begin in `indices`, from 0 on, and the end of the last one.
    indices : signed integers
        The columns of the entries.
    """
    if indptr.dtype.kind != "i" or indices.dtype.kind != "i":
        return f"row offsets are {indptr.dtype} and indices {indices.dtype}, not integers"
    if indptr.shape != (n_rows + 1,) or indices.ndim != 1:
        return f"there are not the offsets of {n_rows:,} rows"
    if indptr[0] != 0 or indptr[-1] != indices.size or (indptr[1:] < indptr[:-1]).any():
        return f"row offsets do not increase from 0 to the {indices.size:,} entries"
    return index_fault(indices, n_columns)


def index_fault(indices: NDArray[Any], size: int) -> str | None:
    """Why some integers are not indices below `size`, as the end of a sentence; None if they are."""
    if indices.dtype.kind not in "iu":
        return f"indices are {indices.dtype}, not integers"
    if indices.size and indices.view(f"u{indices.itemsize}").max() >= size:  # negative ones are large then
        return f"there is an index outside 0 … {size - 1}"
    return None


def increasing_fault(indices: NDArray[Any], size: int) -> str | None:
    """Why some integers are not increasing indices below `size`, as `index_fault`."""
    fault = index_fault(indices, size)
    return "indices do not increase" if fault is None and (indices[1:] <= indices[:-1]).any() else fault


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


def _is_finite(values: NDArray[Any]) -> bool:
    """Whether all numbers are finite; the least and the largest are NaN if one is."""
    return bool(np.isfinite(values.min(initial=0)) and np.isfinite(values.max(initial=0)))


# ----------------------------------------------------------------------------------------------------------------------
# Writing the data files of a store: shards, vocabulary, names, document frequencies and quarantined rows.


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
        "shard",
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


def write_terms(
    folder: Location, kind: Literal["vocabulary", "names"], features: Any, terms: Any, counts: Any, documents: Any
) -> FileEntry:
    """Write a part of the vocabulary, or of the terms of hashed features, by columns.

    Parameters
    ----------
    folder : Location
    kind : {"vocabulary", "names"}
    features : int64
        Increasing; of names, a feature may have several terms.
    terms : string
    counts, documents : int64
        Total counts and document frequencies.
    """
    table = pa.table([features, terms, counts, documents], NAMES.names)
    if kind == "names":
        return write_data_file(folder, kind, table.cast(NAMES), use_dictionary=False)
    encoding = dict.fromkeys(("term", "count", "documents"), "PLAIN") | {"feature": "DELTA_BINARY_PACKED"}
    return write_data_file(folder, kind, table, use_dictionary=False, column_encoding=encoding)


def write_frequencies(folder: Location, features: NDArray[np.int64], documents: NDArray[np.int64]) -> FileEntry:
    """Write the document frequencies of features, whose ids increase; those of all others are 0."""
    table = pa.table({"feature": features, "documents": documents})
    encoding = {"feature": "DELTA_BINARY_PACKED", "documents": "DELTA_BINARY_PACKED"}
    return write_data_file(folder, "frequencies", table, use_dictionary=False, column_encoding=encoding)


def write_quarantine(folder: Location, rows: Sequence[tuple[str, int, int, str]]) -> FileEntry:
    """Write the quarantined rows: (file, line, byte offset, reason), never their text."""
    schema = pa.schema({"file": pa.string(), "line": pa.int64(), "offset": pa.int64(), "reason": pa.string()})
    table = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)
    return write_data_file(folder, "quarantine", table)


def _lists(offsets: pa.Array, values: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(offsets, values, type=_list_of(values.type))


# ----------------------------------------------------------------------------------------------------------------------
# The files of terms and of quarantined rows of a store, merged as they grow: their number is logarithmic.


MERGED_BYTES = 16 << 20  # of a merged file at most: it is read into memory
FileKind = Literal["vocabulary", "names", "quarantine"]
RATIO = 2  # a file is merged with later ones of at least half its size


def add_files(
    folder: Location, kind: FileKind, files: Sequence[FileEntry], added: Sequence[FileEntry]
) -> tuple[FileEntry, ...]:
    """The files of a new version: those before that are not more than twice as large as the new ones are merged.

    Parameters
    ----------
    folder : Location
        The folder of the store.
    kind : {"vocabulary", "names", "quarantine"}
    files, added : sequence of FileEntry
        The files of the previous version, and the new ones.

    Returns
    -------
    tuple of FileEntry
        The files of the new version; merged ones are written.

    Raises
    ------
    StorageError
        If a file is corrupt or cannot be written.
    """
    kept, merged, size = list(files), list(added), sum(entry.bytes for entry in added)
    while added and kept and kept[-1].bytes <= min(RATIO * size, MERGED_BYTES - size):
        merged.insert(0, kept.pop())
        size += merged[0].bytes
    if len(merged) == len(added):
        return (*kept, *added)
    tables = [read_table(folder, entry) for entry in merged]
    table = pa.concat_tables(tables, promote_options="permissive")
    if kind == "quarantine":
        return (*kept, write_quarantine(folder, [tuple(row.values()) for row in table.to_pylist()]))
    if kind == "names":  # a term of a feature may be in several files
        sums = table.group_by(["feature", "term"]).aggregate([("count", "sum"), ("documents", "sum")])
        table = sums.rename_columns(["feature", "term", "count", "documents"])
    table = table.sort_by([("feature", "ascending"), ("term", "ascending")]).combine_chunks()
    return (*kept, write_terms(folder, kind, *table.columns))


# ----------------------------------------------------------------------------------------------------------------------
# References to stores: what tasks are sent, and open from a cache of their process.


CACHED = 8  # stores that a process keeps open


class Session(NamedTuple):
    """Work on a store by a cluster: its client, and the store."""

    client: "Client"
    store: Store


class StoreReference(NamedTuple):
    """A version of a store, or its increment.

    Parameters
    ----------
    folder : str
        The folder of the store.
    version : int
        The version.
    digest : str
        The digest of the manifest, which is that of the version or that of its increment.
    """

    folder: str
    version: int
    digest: str


def store_reference(store: Store) -> StoreReference:
    """The reference from which a task opens exactly this store."""
    return StoreReference(str(store.folder.resolve()), store.manifest.version, store.manifest.digest)


@lru_cache(CACHED)
def open_store(reference: StoreReference) -> Store:
    """The store of a reference, from a cache of the process: the folder is not listed, later versions do not matter.

    Raises `StorageError` if its manifest is missing or corrupt, or another one than when the reference was made.
    """
    folder = location(reference.folder)
    whole = Store(folder, read_manifest(folder, reference.version))
    for store in (whole, whole.increment):
        if store.manifest.digest == reference.digest:
            return store
    raise StorageError(
        f"{folder} was changed while a run was reading version {reference.version}; run again.", code="store-changed"
    )
