"""Crammer et al. (2006) in dense NumPy; see `tests.oracles.stream`."""

from collections.abc import Callable, Iterator

import numpy as np

from tests.oracles.weights import weight_of

Slopes = dict[str, Callable[[float, float], float]]


def tau(loss: float, square: float, C: float, variant: str) -> float:
    """Figure 1, (3) and the solutions of PA-I and PA-II; ‖x‖² = 0 leaves nothing to change."""
    if loss == 0 or square == 0:
        return 0.0
    return {"PA": loss / square, "PA-I": min(C, loss / square), "PA-II": loss / (square + 1 / (2 * C))}[variant]


def passive_aggressive(X: np.ndarray, y: np.ndarray, loss: str, C: float, variant: str) -> Iterator[np.ndarray]:
    """Figure 1; a weight multiplies C."""
    assert loss == "hinge"
    w = np.zeros(X.shape[1])
    for x, b in zip(X, y, strict=True):
        incurred = max(0.0, 1 - b * (w @ x))
        w = w + tau(incurred, x @ x, C * weight_of(b), variant) * b * x
        yield w


def multiclass(X: np.ndarray, labels: np.ndarray, classes: int, C: float, variant: str) -> Iterator[np.ndarray]:
    """§8 for one relevant label: the vectors of the true class and of the best other one move, by τ from 2‖x‖²."""
    W = np.zeros((X.shape[1], classes))
    for x, label in zip(X, labels, strict=True):
        truth, weight = int(label), weight_of(label)
        z = x @ W
        rival = max((k for k in range(classes) if k != truth), key=lambda k: z[k])
        step = tau(max(0.0, 1 - z[truth] + z[rival]), 2 * (x @ x), C * weight, variant)
        W = W.copy()
        W[:, truth] += step * x
        W[:, rival] -= step * x
        yield W


def oracles(slopes: Slopes) -> dict[str, Callable[..., Iterator[np.ndarray]]]:
    return {"passive-aggressive": passive_aggressive}


JOINT_ORACLES = {"passive-aggressive": multiclass}
