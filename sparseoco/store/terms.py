"""Terms of a store: frequencies, files, weights, chosen subsets."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import csv

from sparseoco.core.errors import DamagedError, InputError
from sparseoco.kernels.order import BINARY, COUNT, LOG, RowWeighting, weigh_rows
from sparseoco.storage.commit import commit_json, digest_value, read_bytes, read_validated
from sparseoco.storage.locations import Location
from sparseoco.storage.tables import read_checkpoint, write_checkpoint
from sparseoco.store import manifest as manifests
from sparseoco.store import shards as stores
from sparseoco.store.entries import ShardEntry, first_manifest
from sparseoco.store.manifest import FieldEntry
from sparseoco.store.shards import Store
from sparseoco.store.weighting import Weighting

# ----------------------------------------------------------------------------------------------------------------------
# Features of a store by document frequency, in logarithmic bins.


def frequency_bins(store: Store) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(bin of each feature, features in each bin): bin 0 is no document, 1 is one, 2 is 2–3, 3 is 4–7, …"""
    return _cached(_bins, store.manifest.digest, lambda: _read_bins(store))


def _read_bins(store: Store) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    bins = np.frexp(store.document_frequencies().astype(np.float64))[1].astype(np.int64)
    return bins, np.bincount(bins)


def frequency_rows(kept: NDArray[np.int64], features: NDArray[np.int64]) -> list[dict[str, Any]]:
    """Rows of the table `feature_survival`: nonzero weights and features of each bin that is not empty."""
    return [
        {
            "documents_from": 2 ** (b - 1),
            "documents_to": 2**b - 1,
            "features": int(features[b]),
            "nonzeros": int(kept[b]),
        }
        for b in range(1, features.size)
        if features[b]
    ]


# ----------------------------------------------------------------------------------------------------------------------
# A store with some features of another: the same documents, and new feature ids.
#
# Its format is that of any store, so every step works on a feature subset, with results identical to those on the
# columns of the matrix. Its vocabulary has the terms of its features; a file in the same folder has the source and the
# ids there. Documents without any of the features stay: they count as rounds.


SUBSET = "features.npz"


class FeatureSubset(NamedTuple):
    """The source of a feature subset and the features that were selected."""

    source: Store
    features: NDArray[np.int64]
    """Ids in the source, increasing: feature i of the subset is feature ``features[i]`` of the source."""
    model_sha256: str
    """SHA-256 of the model.json of the model that selected them."""

    @property
    def description(self) -> dict[str, Any]:
        """The description of the subset in models that were learned on it."""
        ids = digest_value(self.features.tolist())
        return {"model_sha256": self.model_sha256, "features": self.features.size, "features_sha256": ids}

    def subset_ids(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The ids in the subset of features of the source, −1 for those not selected (and for −1)."""
        found = np.minimum(np.searchsorted(self.features, ids), self.features.size - 1)
        return np.where(self.features[found] == ids, found, -1)


def read_feature_subset(folder: Location) -> FeatureSubset | None:
    """The feature subset in a folder, None for a store that was ingested.

    Raises `StorageError` if its source is another one than when the subset was written.
    """
    path = folder / SUBSET
    if not path.exists():
        return None
    with read_checkpoint(path) as (described, read):
        return FeatureSubset(
            stores.open_store(stores.StoreReference(*described["source"])), read("features"), described["model_sha256"]
        )


def write_feature_subset(subset: FeatureSubset, folder: Location) -> None:
    """Write the file that `read_feature_subset` reads."""
    described = {"source": list(stores.store_reference(subset.source)), "model_sha256": subset.model_sha256}
    write_checkpoint(folder / SUBSET, described, [("features", subset.features)])


def cut_shard(subset: FeatureSubset, shard: int, folder: Location) -> ShardEntry:
    """Write the selected features of one shard of the source, and return its entry, which is stored for a rerun."""
    entry_path = folder / f"entry-{shard}.json"
    with suppress(DamagedError):  # missing or corrupt: it is written again
        entry = read_validated(entry_path, ShardEntry)
        if (folder / entry.file).exists():
            return entry
    rows = subset.source.read(shard)
    ids = subset.subset_ids(rows.indices)
    selected = ids >= 0
    before = np.concatenate([[0], np.cumsum(selected)])
    part = rows._replace(indptr=before[rows.indptr], indices=ids[selected], counts=rows.counts[selected])
    entry = stores.write_shard(folder, part, n_features=subset.features.size)
    commit_json(entry_path, entry.model_dump(mode="json"))
    return entry


def commit_feature_subset(subset: FeatureSubset, folder: Location) -> Store:
    """Commit the manifest of the shards that `cut_shard` wrote, and open the store.

    Its digest is a function of those of its source and of the model.
    """
    source = subset.source.manifest
    shards = [cut_shard(subset, shard, folder) for shard in range(subset.source.n_shards)]
    named = subset.source.describe(subset.features)
    documents = subset.source.document_frequencies()[subset.features]
    ids = np.arange(subset.features.size)
    vocabulary = stores.write_terms(folder, "vocabulary", ids, named["term"], named["count"], documents)
    manifest = first_manifest(
        folder,
        shards,
        subset.source.sources,
        options=source.options,
        options_digest=digest_value([source.digest, subset.model_sha256]),
        features=manifests.FeatureTable(kind="vocabulary", count=subset.features.size, files=(vocabulary,)),
        labels=source.labels,
        columns=source.columns,
        fields=source.fields,
    )
    if manifests.latest_manifest(folder) is None:
        manifests.commit_manifest(folder, manifest)
    return Store.open(folder)


# ----------------------------------------------------------------------------------------------------------------------
# A small store of given counts.


def write_dense(
    folder: Location, counts: NDArray[np.int64], labels: NDArray[np.int32], options: dict[str, Any], *, shard_rows: int
) -> None:
    """Write a small store: counts (documents, features) of terms t0, t1, …; labels are classes c0, c1, ….

    Parameters
    ----------
    options : dict
        The text options that its manifest names.
    shard_rows : int
        Documents per shard.
    """
    rows, features = counts.shape
    entries = []
    for first in range(0, rows, shard_rows):
        part = counts[first : first + shard_rows]
        where = np.nonzero(part)
        shard = stores.ShardRows(
            ids=pa.array([f"d{i}" for i in range(first, first + len(part))]),
            labels=labels[first : first + len(part)],
            indptr=np.concatenate([[0], np.cumsum((part > 0).sum(axis=1))]),
            indices=where[1].astype(np.int32),
            counts=part[where].astype(np.uint16),
        )
        entries.append(stores.write_shard(folder, shard, n_features=features))
    terms = pa.array([f"t{j}" for j in range(features)])
    totals, documents = counts.sum(axis=0), (counts > 0).sum(axis=0)
    vocabulary = stores.write_terms(folder, "vocabulary", np.arange(features), terms, totals, documents)
    classes = tuple(manifests.ClassEntry(name=f"c{k}", rows=n) for k, n in enumerate(np.bincount(labels).tolist()))
    manifest = first_manifest(
        folder,
        entries,
        options=options,
        options_digest="",
        features=manifests.FeatureTable(kind="vocabulary", count=features, files=(vocabulary,)),
        labels=manifests.LabelTable(kind="classes", classes=classes),
    )
    manifests.commit_manifest(folder, manifest)


# ----------------------------------------------------------------------------------------------------------------------
# Weights of terms in rows: a `Weighting` applied to counts, with the idf of the features of a store.


_TF = {"count": COUNT, "binary": BINARY, "log": LOG}
CACHED = 2  # stores whose idf, bins and fields a process keeps
_bins: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
_idf: dict[str, NDArray[Any]] = {}
_fields: dict[str, NDArray[Any]] = {}
_lock = Lock()
T = TypeVar("T")


ONE_FIELD = np.empty(0, np.int16)


class TermWeights:
    """A weighting with the idf of the features it is applied to.

    Parameters
    ----------
    weighting : Weighting
    idf : (n_features,) float64
        Not read without ``weighting.idf``.
    fields : (n_features,) int16, or empty
        The text field of each feature, from 1: each is weighted on its own. Features of 0 stay as they are.
    """

    def __init__(self, weighting: Weighting, idf: NDArray[np.float64], fields: NDArray[np.int16] = ONE_FIELD) -> None:
        self.weighting = weighting
        self.fields = fields
        self.idf = np.ascontiguousarray(idf, np.float64) if weighting.idf else np.empty(0)
        """Empty without ``weighting.idf``; 1 for features that stay as they are."""
        if self.idf.size and fields.size:
            self.idf = np.where(fields > 0, self.idf, 1.0)
        self.rows = RowWeighting(_TF[weighting.tf], self.idf, fields, weighting.norm == "l2")
        """The weighting as compiled code takes it."""

    def values(
        self, indptr: NDArray[Any], indices: NDArray[Any], counts: NDArray[Any], dtype: Any = np.float64
    ) -> NDArray[Any]:
        """The weights of rows in CSR format: (nonzeros,) of `dtype`, computed in float64 row by row.

        Raises `InputError` if ``tf = "log"`` and a value is not positive.
        """
        out = np.empty(counts.size, dtype)
        counts = np.ascontiguousarray(counts, np.float64)  # of any type: one kernel
        if weigh_rows(np.asarray(indptr, np.int64), indices, counts, self.rows, out) >= 0:
            raise InputError(
                'tf = "log" is the logarithm of counts, and a document has a value that is not positive: use '
                '"count" or "binary".',
                code="invalid-weighting",
            )
        return out


def smooth_idf(document_frequencies: Any, n_documents: int) -> NDArray[np.float64]:
    """ln((1 + n)/(1 + df)) + 1, as scikit-learn's ``smooth_idf``."""
    return np.asarray(np.log((1.0 + n_documents) / (1.0 + np.asarray(document_frequencies, np.float64))) + 1.0)


def inverse_document_frequencies(store: Store) -> NDArray[np.float64]:
    """(n_features,) float64: the idf of each feature of a store; of a feature subset those in its source."""
    return _cached(_idf, store.manifest.digest, lambda: _read_idf(store))


def _cached(cache: dict[str, T], key: str, read: Callable[[], T]) -> T:
    with _lock:
        if key not in cache:
            while len(cache) >= CACHED:
                cache.pop(next(iter(cache)))
            cache[key] = read()
        return cache[key]


def _read_idf(store: Store) -> NDArray[np.float64]:
    subset = read_feature_subset(store.folder)
    if subset is not None:
        return np.ascontiguousarray(_read_idf(subset.source)[subset.features])
    return smooth_idf(store.document_frequencies(), store.n_rows)


def increment_weights(folder: Location, version: int, weighting: Weighting) -> TermWeights:
    """A weighting of the features of a version of a store, whose idf is never changed by later versions.

    The idf of a feature is that in the documents which the first version with it added.
    """
    if weighting.is_identity:
        return TermWeights(weighting, np.empty(0))
    store = Store(folder, manifests.read_manifest(folder, version))
    idf = np.empty(0)
    if weighting.idf:
        idf = _cached(_idf, f"increments-{store.manifest.digest}", lambda: _read_increment_idf(store))
    return TermWeights(weighting, idf, store_fields(store))


def _read_increment_idf(store: Store) -> NDArray[np.float64]:
    idf = np.empty(store.n_features)
    if store.manifest.features.kind == "vocabulary":
        documents, first = store.term_frequencies(), 0
        for manifest in manifests.read_manifests(store.folder, store.manifest.version):
            own = slice(first, manifest.features.count)
            idf[own], first = smooth_idf(documents[own], manifest.added.rows), own.stop
        return idf
    before, known = 0, np.zeros(store.n_features, np.bool_)
    for manifest in manifests.read_manifests(store.folder, store.manifest.version):
        features, frequencies = Store(store.folder, manifest).present_frequencies()
        if not before:
            idf[:] = smooth_idf(0, manifest.rows)
        new = ~known[features]
        idf[features[new]], known[features[new]] = smooth_idf(frequencies[new], manifest.rows - before), True
        before = manifest.rows
    return idf


def term_weights(store: Store, weighting: Weighting) -> TermWeights:
    """A weighting of the features of a store."""
    idf = inverse_document_frequencies(store) if weighting.idf else np.empty(0)
    return TermWeights(weighting, idf, store_fields(store))


def store_fields(store: Store) -> NDArray[np.int16]:
    """The text field of each feature of a store, as `text_fields`."""
    entries = store.manifest.fields
    if not entries:
        return ONE_FIELD
    return _cached(_fields, store.manifest.digest, lambda: _read_fields(store))


def _read_fields(store: Store) -> NDArray[np.int16]:
    fields = np.empty(store.n_features, np.int16)
    for part in store.vocabulary_files(["feature", "term"]):
        fields[part["feature"].to_numpy()] = text_fields(part["term"], store.manifest.fields)
    return fields


def read_group_table(path: Location) -> pa.Table:
    """Columns term and group, strings, of a CSV or Parquet file. Raises `InputError` if it has others or no rows."""
    try:
        source = pa.BufferReader(read_bytes(path))
        as_text = csv.ConvertOptions(column_types=dict.fromkeys(("term", "group"), pa.string()))
        parquet = path.suffix == ".parquet"
        table = pq.read_table(source) if parquet else csv.read_csv(source, convert_options=as_text)
        table = table.select(["term", "group"]).cast(pa.schema([("term", pa.large_string()), ("group", pa.string())]))
    except (pa.ArrowException, KeyError) as error:
        problem = " ".join(str(error).split())[:200]
        raise InputError(
            f"{path} is no table with the columns term and group, CSV or Parquet: {problem}", code="invalid-table"
        ) from error
    if not table.num_rows or table["term"].null_count or table["group"].null_count:
        raise InputError(f"{path} has no rows, or one without a term or a group.", code="invalid-table")
    if pc.count_distinct(table["term"]).as_py() < table.num_rows:
        raise InputError(f"{path} has a term twice: a feature is in one group.", code="invalid-table")
    return table


def grouped_features(store: Store, table: pa.Table | None) -> NDArray[np.int64]:
    """(n_features,): the group of each feature by what `read_group_table` returns or, without it, the field.

    A feature without a group is one of its own. Raises `InputError` for hashed features, and if no feature has a group.
    """
    subset = read_feature_subset(store.folder)
    if subset is not None:
        return np.asarray(grouped_features(subset.source, table)[subset.features])
    groups = np.empty(store.n_features, np.int64)
    fields = store.manifest.fields
    named = np.empty(0) if table is None else np.asarray(table["group"].combine_chunks().dictionary_encode().indices)
    for part in store.vocabulary_files(["feature", "term"]):
        if table is None:
            own = np.select([_is_of(part["term"], entry) for entry in fields], range(len(fields)), -1)
        else:
            terms = part["term"].cast(pa.large_string())
            places = pc.index_in(terms, value_set=table["term"].combine_chunks()).fill_null(-1).to_numpy()
            own = np.where(places < 0, -1, named[places])
        groups[part["feature"].to_numpy()] = own
    alone = np.flatnonzero(groups < 0)
    if alone.size == groups.size:
        raise InputError(f"No feature of {store.folder} is in a group.", code="no-common-features")
    groups[alone] = groups.max() + 1 + np.arange(alone.size)
    return groups


def text_fields(terms: Any, entries: Sequence[FieldEntry]) -> NDArray[np.int16]:
    """The text field of each term, which begins with its name and a colon, from 1; 0 for categories and numbers.

    Empty without fields.
    """
    if not entries:
        return ONE_FIELD
    found = np.zeros(len(terms), np.int16)
    for number, entry in enumerate((entry for entry in entries if entry.type == "text"), 1):
        found[_is_of(terms, entry)] = number
    return found


def _is_of(terms: Any, entry: FieldEntry) -> NDArray[np.bool_]:
    """Whether each term is of a field: NAME:term of texts, NAME of numbers, NAME=value of categories, bins, vectors."""
    begins = pc.starts_with(terms, f"{entry.name}:" if entry.type == "text" else f"{entry.name}=")
    return np.asarray(begins if entry.type != "number" else pc.or_(begins, pc.equal(terms, entry.name)))
