"""The features of a saved model: what is counted in a text, and the values that its weights multiply.

Values need the idf of the features that have a nonzero weight, which is in weights.parquet. The norm of a row needs all
the features that the model was trained on: they are in a file of their own.

vocabulary.parquet  feature_id, feature, idf: of models with norm = "l2"; of hashed features those that occurred
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from sparseoco.core.errors import DamagedError
from sparseoco.core.sparse_rows import increasing_fault, index_fault
from sparseoco.kernels.weighting import weighted_sums
from sparseoco.storage.commit import digest_file, remove_file
from sparseoco.storage.locations import Location
from sparseoco.storage.metrics import WEIGHTS
from sparseoco.storage.parquet import read_parquet_file, write_parquet
from sparseoco.storage.validated import LARGEST
from sparseoco.store.feature_subset import FeatureSubset
from sparseoco.store.manifest import FieldEntry
from sparseoco.store.shards import Store
from sparseoco.store.term_weights import TermWeights, text_fields
from sparseoco.store.weighting import Weighting
from sparseoco.text.documents import Documents
from sparseoco.text.options import TextOptions
from sparseoco.text.tokenizer import Naming
from sparseoco.text.transform import Features, Inputs, as_documents, count_texts

VOCABULARY = "vocabulary.parquet"
VOCABULARY_SCHEMA = pa.schema([("feature_id", pa.int64()), ("feature", pa.string()), ("idf", pa.float64())])


def write_vocabulary(
    folder: Location, store: Store, subset: FeatureSubset | None, weights: TermWeights, used: NDArray[np.int64]
) -> dict[str, Any]:
    """Commit the features that norms need, if any; returns the keys of `model.json` that describe them.

    `used` are the features of the store that have a nonzero weight.
    """
    if weights.weighting.norm == "none":
        remove_file(folder / VOCABULARY)  # of a model that is replaced
        return {}
    described: dict[str, Any] = {}
    hashed = (store if subset is None else subset.source).manifest.features.kind == "hashed"
    if subset is not None:
        ids, own = subset.features, np.arange(subset.features.size)
    elif not hashed:
        ids = own = np.arange(store.n_features)
    else:
        ids = own = np.union1d(store.present_frequencies()[0], used)  # a warm start may have weights of others
        unseen = np.setdiff1d(np.arange(min(store.n_features, ids.size + 1)), ids, assume_unique=True)
        if weights.idf.size and unseen.size:
            described["unseen_idf"] = float(weights.idf[unseen[0]])
    terms = pa.nulls(ids.size, pa.string()) if hashed else store.vocabulary()["term"].cast(pa.string())
    idf = pa.array(weights.idf[own]) if weights.idf.size else pa.nulls(ids.size, pa.float64())
    table = pa.Table.from_arrays([pa.array(ids, pa.int64()), terms, idf], schema=VOCABULARY_SCHEMA)
    write_parquet(folder / VOCABULARY, table)
    return described | {"vocabulary_sha256": digest_file(folder / VOCABULARY)}


def check_weights(path: Location, table: pa.Table, n_features: int, classes: Sequence[str], *, has_idf: bool) -> None:
    """Check the table of weights of a model, whose ids and classes are used as positions.

    Parameters
    ----------
    path : Location
        Its file.
    n_features : int
        Features of the store that it was trained on.
    classes : sequence of str
        Those that have weights.
    has_idf : bool
        Whether values are multiplied by the idf.

    Raises
    ------
    DamagedError
        If it is not a table of weights of these features and classes.
    """
    columns = ("feature_id", "feature", "class", "weight", *(["idf"] if has_idf else []))
    if not table.schema.equals(WEIGHTS) or any(table[name].null_count for name in columns):
        fault: str | None = "it is not a table of weights"
    elif not set(pc.unique(table["class"]).to_pylist()) <= set(classes):
        fault = "it has a class that model.json does not have"
    elif not all(within_bounds(table[name].to_numpy()) for name in columns[3:]):
        fault = f"a weight or an idf is not finite, or larger than {LARGEST:.0e}"
    else:
        fault = index_fault(table["feature_id"].to_numpy(), n_features)
    if fault is not None:
        raise _unlike_model(path, fault)


def within_bounds(values: NDArray[np.float64]) -> bool:
    """Whether numbers of a model are finite and at most `LARGEST`."""
    return bool((np.abs(values) <= LARGEST).all())


def _unlike_model(path: Location, fault: str) -> DamagedError:
    return DamagedError(f"{path} or model.json is corrupt: {fault}. Train again.", code="corrupt-model")


class ModelFeatures(NamedTuple):
    """How the documents of a model become rows of values.

    Parameters
    ----------
    counted : Features
        What is counted.
    weights : TermWeights
        What is made of the counts.
    known : (features,) int64, or None
        The counted ids that have an idf, increasing; all others are like one more. None: every counted id has one.
    used : (counted or known features,) int32
        The row of the model's weights of each of them, or −1.
    n_used : int
        Features with a nonzero weight.
    ids : (counted features,) int64, or None
        The feature of each of them in the store that the model was trained on, increasing. None: it is the same.
    """

    counted: Features
    weights: TermWeights
    known: NDArray[np.int64] | None
    used: NDArray[np.int32]
    n_used: int
    ids: NDArray[np.int64] | None

    def select(
        self, indptr: NDArray[np.int64], features: NDArray[Any], counts: NDArray[Any]
    ) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]:
        """Rows of counts of the features of the store that the model was trained on, as rows of counted features."""
        if self.ids is None:
            return indptr, features, counts
        places = np.searchsorted(self.ids, features)
        known = np.append(self.ids, -1)[places] == features
        return np.concatenate([[0], np.cumsum(known)])[indptr], places[known], counts[known]

    def text_margins(self, texts: Inputs, options: TextOptions, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """(texts, outputs): `matrix` times the weights (features with a nonzero weight, outputs), of texts to count."""
        documents = as_documents(texts, options)
        if isinstance(documents, Documents) and not options.fields:
            return self.counted.ngrams.weighted_sums(documents.spans, options, self.weights.rows, self.used, weights)
        return self.margins(*count_texts(documents, self.counted, options), weights)

    def margins(
        self, indptr: NDArray[np.int64], indices: NDArray[Any], counts: NDArray[Any], weights: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """(documents, outputs): `matrix` times the weights (features with a nonzero weight, outputs), of counts."""
        indices, values = self._weigh(indptr, indices, counts)
        sums: NDArray[np.float64] = weighted_sums(indptr, indices, values, self.used, weights)
        return sums

    def matrix(self, indptr: NDArray[np.int64], indices: NDArray[Any], counts: NDArray[Any]) -> csr_matrix:
        """(documents, features with a nonzero weight): the values of counted documents."""
        indices, values = self._weigh(indptr, indices, counts)
        rows = self.used[indices]
        kept = rows >= 0
        indptr = np.concatenate([[0], np.cumsum(kept)])[indptr]
        return csr_matrix((values[kept], rows[kept], indptr), shape=(len(indptr) - 1, self.n_used))

    def _weigh(
        self, indptr: NDArray[np.int64], indices: NDArray[Any], counts: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """The features of `weights`, and the values, of counted documents."""
        if self.known is not None:
            places = np.searchsorted(self.known, indices)
            found = np.append(self.known, -1)[places] == indices
            indices = np.where(found, places, self.known.size)
        identity = self.weights.weighting.is_identity
        return indices, counts if identity else self.weights.values(indptr, indices, counts)


def read_features(
    folder: Location, described: dict[str, Any], ids: NDArray[np.int64], terms: pa.Array, idf: NDArray[np.float64]
) -> ModelFeatures:
    """The features of a model.

    Parameters
    ----------
    described : dict
        The content of model.json.
    ids, terms, idf : arrays
        Of the features with a nonzero weight, by id.

    Raises
    ------
    DamagedError
        If the vocabulary is not the one that the model was saved with.
    """
    weighting, features = Weighting.model_validate(described["weighting"]), described["features"]
    naming = TextOptions.model_validate(described["text"]).naming
    entries = [FieldEntry.model_validate(entry) for entry in described.get("fields", ())]
    hashed = features["kind"] == "hashed"
    if weighting.norm == "none":
        counted = (
            Features.hashed(ids, features["hash_bits"], features["hash_seed"])
            if hashed
            else _named(folder / "weights.parquet", terms, naming)
        )
        used = np.arange(ids.size, dtype=np.int32)
        return ModelFeatures(
            counted, TermWeights(weighting, idf, text_fields(terms, entries)), None, used, ids.size, ids
        )
    path = folder / VOCABULARY
    if not path.exists() or digest_file(path) != described.get("vocabulary_sha256"):
        raise DamagedError(
            f"{path} is missing or corrupt: it is not the file that the model was saved with.", code="corrupt-model"
        )
    table = read_parquet_file(path)
    columns = ("feature_id", *([] if hashed else ["feature"]), *(["idf"] if weighting.idf else []))
    if not table.schema.equals(VOCABULARY_SCHEMA) or any(table[name].null_count for name in columns):
        raise _unlike_model(path, "it is not a table of features")
    fault = increasing_fault(table["feature_id"].to_numpy(), features["count"])
    if fault is None and weighting.idf and not within_bounds(table["idf"].to_numpy()):
        fault = "an idf is not finite, or too large"
    if fault is None and not np.isin(ids, table["feature_id"].to_numpy(), assume_unique=True).all():
        fault = "a feature with a weight is missing"
    if fault is not None:
        raise _unlike_model(path, fault)
    every, every_idf = table["feature_id"].to_numpy(), table["idf"].to_numpy()
    used = np.full(every.size + 1, -1, np.int32)
    used[np.searchsorted(every, ids)] = np.arange(ids.size)
    known = None
    if not hashed:
        counted = _named(path, table["feature"], naming)
    elif "features_from" in described:
        counted = Features.hashed(every, features["hash_bits"], features["hash_seed"])
    else:
        counted, known = Features.hashed(every, features["hash_bits"], features["hash_seed"], counts_others=True), every
        every_idf = np.append(every_idf, described.get("unseen_idf", 1.0))
    fields = text_fields(table["feature"], entries)
    own = None if known is not None else every
    return ModelFeatures(counted, TermWeights(weighting, every_idf, fields), known, used, ids.size, own)


def _named(path: Location, terms: pa.Array, naming: Naming) -> Features:
    """`Features.named` of the terms in a file. Raises `DamagedError`."""
    try:
        return Features.named(terms, naming)
    except ValueError as error:
        raise _unlike_model(path, str(error)) from error
