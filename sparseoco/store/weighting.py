"""Weights of terms: tf, idf and the norm of a row, as scikit-learn's `TfidfTransformer` computes them.

A store has counts. Learners see the weights that a `Weighting` makes of them while rows are read, so that many
weightings share one store.
"""

from threading import Lock
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sparseoco.core.errors import InputError
from sparseoco.core.option_models import OptionModel
from sparseoco.kernels.weighting import BINARY, COUNT, LOG, LOGS, weigh_rows
from sparseoco.store.feature_subset import read_feature_subset
from sparseoco.store.shards import Store

_TF = {"count": COUNT, "binary": BINARY, "log": LOG}
CACHED = 2  # stores whose idf a process keeps
_cache: dict[str, NDArray[np.float64]] = {}
_lock = Lock()


class Weighting(OptionModel):
    """How counts become the values that a learner sees: tf(count)·idf, then the norm of the row.

    >>> Weighting(tf="log", idf=True, norm="l2").label
    'log tf, idf, l2'
    """

    tf: Literal["count", "binary", "log"] = Field(
        "count", description="Term frequency: the count, 1 for every term that occurs, or 1 + ln(count)."
    )
    idf: bool = Field(
        False,
        description="Multiply by the inverse document frequency, ln((1 + n)/(1 + df)) + 1, of all documents in the "
        "store; labels are not used.",
    )
    norm: Literal["none", "l2"] = Field("none", description="Divide each row by its norm.")

    @property
    def is_identity(self) -> bool:
        """Whether values are the counts."""
        return self == Weighting()

    @property
    def label(self) -> str:
        """A short name for tables."""
        parts = [
            {"count": "counts"}.get(self.tf, f"{self.tf} tf"),
            *["idf"] * self.idf,
            *[self.norm] * (self.norm == "l2"),
        ]
        return ", ".join(parts)


COUNTS = Weighting()
"""The counts as they are."""


class TermWeights:
    """A weighting with the idf of the features it is applied to.

    Parameters
    ----------
    weighting : Weighting
    idf : (n_features,) float64
        Not read without ``weighting.idf``.
    """

    def __init__(self, weighting: Weighting, idf: NDArray[np.float64]) -> None:
        self.weighting = weighting
        self._idf = np.ascontiguousarray(idf, np.float64) if weighting.idf else np.empty(0)

    def values(
        self, indptr: NDArray[Any], indices: NDArray[Any], counts: NDArray[Any], dtype: Any = np.float64
    ) -> NDArray[Any]:
        """The weights of rows in CSR format: (nonzeros,) of `dtype`, computed in float64 row by row.

        Raises `InputError` if ``tf = "log"`` and a value is not positive.
        """
        out = np.empty(counts.size, dtype)
        tf, normalized = _TF[self.weighting.tf], self.weighting.norm == "l2"
        if weigh_rows(indptr, indices, counts, tf, LOGS, self._idf, normalized, out) >= 0:
            raise InputError(
                'tf = "log" is the logarithm of counts, and a document has a value that is not positive: use '
                '"count" or "binary".',
                code="invalid-weighting",
            )
        return out


def smooth_idf(document_frequencies: NDArray[Any], n_documents: Any) -> NDArray[np.float64]:
    """ln((1 + n)/(1 + df)) + 1, as scikit-learn's ``smooth_idf``."""
    idf: NDArray[np.float64] = np.log((1.0 + n_documents) / (1.0 + np.asarray(document_frequencies, np.float64))) + 1.0
    return idf


def inverse_document_frequencies(store: Store) -> NDArray[np.float64]:
    """(n_features,) float64: the idf of each feature of a store; of a feature subset those in its source."""
    digest = store.manifest.digest
    with _lock:
        if digest not in _cache:
            while len(_cache) >= CACHED:
                _cache.pop(next(iter(_cache)))
            _cache[digest] = _read_idf(store)
        return _cache[digest]


def _read_idf(store: Store) -> NDArray[np.float64]:
    subset = read_feature_subset(store.folder)
    if subset is not None:
        return np.ascontiguousarray(_read_idf(subset.source)[subset.features])
    return smooth_idf(store.document_frequencies(), store.n_rows)


def term_weights(store: Store, weighting: Weighting) -> TermWeights:
    """A weighting of the features of a store."""
    return TermWeights(weighting, inverse_document_frequencies(store) if weighting.idf else np.empty(0))
