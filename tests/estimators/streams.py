"""Small streams, and estimators that learn them in one pass in document order."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from sparseoco import SparseOnlineClassifier, SparseOnlineRegressor

ROWS, FEATURES = 200, 30


def rows(seed: int = 3, dtype: Any = np.int64) -> sp.csr_matrix:
    rng = np.random.default_rng(seed)
    frequent = rng.random((ROWS, FEATURES)) < 1.0 / np.arange(1, FEATURES + 1)
    return sp.csr_matrix((rng.integers(1, 5, (ROWS, FEATURES)) * frequent).astype(dtype))


def classes(number: int, seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, number, ROWS)


def bits(estimator: Any) -> tuple[bytes, bytes]:
    return estimator.coef_.tobytes(), estimator.intercept_.tobytes()


def plain_classifier(algorithm: str = "fobos", **parameters: Any) -> SparseOnlineClassifier:
    """One pass in document order with logistic loss, unless the parameters say otherwise."""
    return SparseOnlineClassifier(algorithm, **({"loss": "logistic", "epochs": 1, "shuffle": False} | parameters))


def plain_regressor(algorithm: str = "fobos", **parameters: Any) -> SparseOnlineRegressor:
    """One pass in document order, unless the parameters say otherwise."""
    return SparseOnlineRegressor(algorithm, **({"epochs": 1, "shuffle": False} | parameters))
