"""Features of a store by how many documents they are in, looked up once in a process."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseoco.shards import Store


def frequency_bins(store: Store) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(bin of each feature, features in each bin): 0 for those in no document, 1 for one, 2 for 2–3, 3 for 4–7, …"""
    return _bins(store.folder, store.manifest.digest)


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


@lru_cache(maxsize=2)
def _bins(folder: Path, digest: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    frequencies = Store.open(folder).document_frequencies()
    bins = np.frexp(frequencies.astype(np.float64))[1].astype(np.int64)
    return bins, np.bincount(bins)
