"""Features of a store by document frequency, in logarithmic bins."""

from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseoco.store.shards import Store

Bins = tuple[NDArray[np.int64], NDArray[np.int64]]

CACHED = 2  # stores whose bins a process keeps
_cache: dict[str, Bins] = {}
_lock = Lock()


def frequency_bins(store: Store) -> Bins:
    """(bin of each feature, features in each bin): bin 0 is no document, 1 is one, 2 is 2–3, 3 is 4–7, …"""
    digest = store.manifest.digest
    with _lock:
        if digest not in _cache:
            while len(_cache) >= CACHED:
                _cache.pop(next(iter(_cache)))
            bins = np.frexp(store.document_frequencies().astype(np.float64))[1].astype(np.int64)
            _cache[digest] = bins, np.bincount(bins)
        return _cache[digest]


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
