"""Defaults of a search."""

from sparseoco.learners import find_algorithm
from sparseoco.training.options.values import Values

RARE_CLASS = 0.125
"""The least share of the documents at which a class is not rare."""
MANY_DOCUMENTS = 10_000
"""Documents from which on three folds estimate a metric well enough."""
HALVED_WEIGHTS = 30_000_000
"""Weights of a configuration of several classes up to which a search halves by default: at a rung all are stored."""
DEFAULT_ALGORITHM = "adagrad"
AUTO = "auto"
DEFAULT_LOSSES = ("squared_hinge", "hinge", "logistic")
"""Losses for classes, in order of preference."""
SIZED_GRID: dict[str, dict[str, Values]] = {
    DEFAULT_ALGORITHM: {
        "eta": [0.1, 0.3, 1.0],
        "lam": [1e-6, 5e-6, 1e-5, 2e-5, 3e-5, 5e-5, 7e-5, 1e-4, 1.5e-4, 2e-4, 3e-4, 5e-4, 1e-3],
    }
}
"""The default grid if a model may have only so many features: close values of λ, so that one comes near that size."""


def default_grid() -> dict[str, dict[str, Values]]:
    """The grid of a search that names no algorithm."""
    return {DEFAULT_ALGORITHM: dict(find_algorithm(DEFAULT_ALGORITHM).grid)}
