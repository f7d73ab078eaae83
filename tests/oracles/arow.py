"""Crammer, Kulesza and Dredze (2009) in dense NumPy; see `tests.oracles.stream`."""

from collections.abc import Iterator

import numpy as np

from tests.oracles.losses import Rounds
from tests.oracles.weights import weight_of


def arow(rounds: Rounds, r: float) -> Iterator[np.ndarray]:
    """Figure 1 for the hinge; of Σ, all of which is updated, the diagonal is kept. A weight multiplies 1/r."""
    mu, sigma = rounds.start[:, 0], np.eye(rounds.X.shape[1])
    for x, b in zip(rounds.X, rounds.y, strict=True):
        if weight_of(b) > 0 and b * (mu @ x) < 1:
            beta = 1 / (x @ sigma @ x + r / weight_of(b))
            alpha = max(0.0, 1 - b * (mu @ x)) * beta
            mu = mu + alpha * sigma @ (b * x)
            sigma = np.diag(np.diag(sigma - beta * sigma @ np.outer(x, x) @ sigma))
        yield mu[:, None]


METHODS = {"arow": arow}
