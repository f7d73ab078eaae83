"""Crammer et al. (2006) in dense NumPy; see `tests.oracles.stream`."""

from collections.abc import Iterator

import numpy as np

from tests.oracles.losses import Rounds
from tests.oracles.weights import weight_of


def tau(loss: float, square: float, C: float, variant: str) -> float:
    """Figure 1, (3) and the solutions of PA-I and PA-II; ‖x‖² = 0 leaves nothing to change."""
    if loss == 0 or square == 0:
        return 0.0
    return {"PA": loss / square, "PA-I": min(C, loss / square), "PA-II": loss / (square + 1 / (2 * C))}[variant]


def passive_aggressive(rounds: Rounds, C: float, variant: str) -> Iterator[np.ndarray]:
    """Figure 1 for the hinge; §8 for one relevant label, whose class and the best other one move, by τ from 2‖x‖².

    A weight multiplies C.
    """
    W, loss = rounds.start, rounds.loss
    for x, b in zip(rounds.X, rounds.y, strict=True):
        weight, z = weight_of(b), x @ W
        if weight > 0:
            towards = -np.sign(loss.slopes(z, b))
            W = W + tau(loss.value(z, b), (x @ x) * (towards @ towards), C * weight, variant) * np.outer(x, towards)
        yield W


METHODS = {"passive-aggressive": passive_aggressive}
