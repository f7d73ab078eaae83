"""Crammer, Kulesza and Dredze (2009) in dense NumPy; see `tests.oracles.stream`."""

from collections.abc import Callable, Iterator

import numpy as np

from tests.oracles.weights import weight_of

Slopes = dict[str, Callable[[float, float], float]]


def arow(X: np.ndarray, y: np.ndarray, loss: str, r: float) -> Iterator[np.ndarray]:
    """Figure 1; of Σ, all of which is updated, the diagonal is kept. A weight multiplies 1/r."""
    assert loss == "hinge"
    mu, sigma = np.zeros(X.shape[1]), np.eye(X.shape[1])
    for x, b in zip(X, y, strict=True):
        if weight_of(b) > 0 and b * (mu @ x) < 1:
            beta = 1 / (x @ sigma @ x + r / weight_of(b))
            alpha = max(0.0, 1 - b * (mu @ x)) * beta
            mu = mu + alpha * sigma @ (b * x)
            sigma = np.diag(np.diag(sigma - beta * sigma @ np.outer(x, x) @ sigma))
        yield mu


def oracles(slopes: Slopes) -> dict[str, Callable[..., Iterator[np.ndarray]]]:
    return {"arow": arow}
