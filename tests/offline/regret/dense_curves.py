"""Streams of dense rows, and what dense recursions compute on them."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from sparseoco.offline.regret.bounds import FirstEpoch
from sparseoco.training.stream import MatrixRows, Order
from tests.oracles.stream import ORACLES, SLOPES

ROWS, FEATURES = 90, 9
MARKS = [3, 20, 41, ROWS]
ALL_ROUNDS = list(range(1, ROWS + 1))


def data(classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    return rng.normal(0, 1, (ROWS, FEATURES)) * (rng.random((ROWS, FEATURES)) < 0.3), rng.integers(0, classes, ROWS)


def first_epoch(X: np.ndarray, y: np.ndarray) -> FirstEpoch:
    return FirstEpoch(MatrixRows(sp.csr_matrix(X), y), Order())


def iterates(name: str, y: np.ndarray, loss: str, **parameters: Any) -> np.ndarray:
    """(ROWS, features): w_1 … w_T."""
    X, _ = data()
    return np.array([np.zeros(FEATURES), *ORACLES[name](X, y, loss, **parameters)][:ROWS])


def dense_thresholds(
    name: str, w: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None, p: float | str = 2
) -> np.ndarray:
    """(ROWS, features): h_t without V, sgft (5) and stda (14). With `weights` of the rows w ends with an intercept."""
    X, _ = data()
    full = X if weights is None else np.column_stack([X, np.ones(ROWS)])
    slopes = np.array([SLOPES["logistic"](x @ v, b) for x, v, b in zip(full, w, y, strict=True)])
    slopes = slopes if weights is None else weights * slopes
    eta = 1.0 if name == "stda" else 0.5 / np.sqrt(np.arange(1, ROWS + 1))[:, None]
    steps = np.abs(eta * slopes[:, None] * X)
    return np.array([np.linalg.norm(steps[: t + 1], np.inf if p == "inf" else float(p), axis=0) for t in range(ROWS)])
