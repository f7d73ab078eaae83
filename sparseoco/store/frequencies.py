"""Features of a store by how many documents they are in, looked up once in a process."""

from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseoco.store.shards import Store

Bins = tuple[NDArray[np.int64], NDArray[np.int64]]

KEPT = 2  # stores whose bins a process keeps
_found: dict[str, Bins] = {}
_lock = Lock()


def frequency_bins(store: Store) -> Bins:
    """(bin of each feature, features in each bin): 0 for those in no document, 1 for one, 2 for 2–3, 3 for 4–7, …"""
    digest = store.manifest.digest
    with _lock:
        if digest not in _found:
            while len(_found) >= KEPT:
                _found.pop(next(iter(_found)))
            bins = np.frexp(store.document_frequencies().astype(np.float64))[1].astype(np.int64)
            _found[digest] = bins, np.bincount(bins)
        return _found[digest]


def kept_rows(kept: NDArray[np.int64], features: NDArray[np.int64]) -> list[dict[str, Any]]:
    """Rows of the table `kept`, from the weights kept in each bin and the features in it; empty bins are left out."""
    return [
        {
            "documents_from": 2 ** (b - 1),
            "documents_to": 2**b - 1,
            "features": int(features[b]),
            "kept": int(kept[b]),
        }
        for b in range(1, features.size)
        if features[b]
    ]
