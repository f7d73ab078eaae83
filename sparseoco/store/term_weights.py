"""Weights of terms in rows: a `Weighting` applied to counts, with the idf of the features of a store."""

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.kernels.weighting import BINARY, COUNT, LOG, RowWeighting, weigh_rows
from sparseoco.storage.locations import Location
from sparseoco.store.feature_subset import read_feature_subset
from sparseoco.store.manifest import FieldEntry, read_manifest, read_manifests
from sparseoco.store.segments import read_increment_table
from sparseoco.store.shards import Store
from sparseoco.store.weighting import Weighting

_TF = {"count": COUNT, "binary": BINARY, "log": LOG}
CACHED = 2  # stores whose idf, and whose fields, a process keeps
_idf: dict[str, NDArray[Any]] = {}
_fields: dict[str, NDArray[Any]] = {}
_lock = Lock()


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
        if weigh_rows(indptr, indices, counts, self.rows, out) >= 0:
            raise InputError(
                'tf = "log" is the logarithm of counts, and a document has a value that is not positive: use '
                '"count" or "binary".',
                code="invalid-weighting",
            )
        return out


def smooth_idf(document_frequencies: Any, n_documents: int) -> NDArray[np.float64]:
    """ln((1 + n)/(1 + df)) + 1, as scikit-learn's ``smooth_idf``."""
    idf: NDArray[np.float64] = np.log((1.0 + n_documents) / (1.0 + np.asarray(document_frequencies, np.float64))) + 1.0
    return idf


def inverse_document_frequencies(store: Store) -> NDArray[np.float64]:
    """(n_features,) float64: the idf of each feature of a store; of a feature subset those in its source."""
    return _cached(_idf, store.manifest.digest, lambda: _read_idf(store))


def _cached(cache: dict[str, NDArray[Any]], key: str, read: Callable[[], NDArray[Any]]) -> NDArray[Any]:
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
    store = Store(folder, read_manifest(folder, version))
    idf = np.empty(0)
    if weighting.idf:
        idf = _cached(_idf, f"increments-{store.manifest.digest}", lambda: _read_increment_idf(store))
    return TermWeights(weighting, idf, store_fields(store))


def _read_increment_idf(store: Store) -> NDArray[np.float64]:
    idf = np.empty(store.n_features)
    if store.manifest.features.kind == "vocabulary":
        documents = np.empty(store.n_features, np.int64)  # among those of the ingest that added the term
        for part in store.vocabulary_files(["feature", "documents"]):
            documents[part["feature"].to_numpy()] = part["documents"].to_numpy()
        increments, first = read_increment_table(store.folder, store.manifest), 0
        for rows, last in zip(increments.column("rows").tolist(), increments.column("features").tolist(), strict=True):
            own = slice(first, last)
            idf[own], first = smooth_idf(documents[own], rows), last
        return idf
    before, known = 0, np.zeros(store.n_features, np.bool_)
    for manifest in read_manifests(store.folder, store.manifest.version):
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


def text_fields(terms: Any, entries: Sequence[FieldEntry]) -> NDArray[np.int16]:
    """The text field of each term, which begins with its name and a colon, from 1; 0 for categories and numbers.

    Empty without fields.
    """
    if not entries:
        return ONE_FIELD
    found = np.zeros(len(terms), np.int16)
    for number, name in enumerate((entry.name for entry in entries if entry.type == "text"), 1):
        found[np.asarray(pc.starts_with(terms, f"{name}:"))] = number
    return found
