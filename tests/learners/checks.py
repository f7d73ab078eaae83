"""Comparison of a learner with dense iterates, for the tests of learners."""

import numpy as np

from sparseoco.training.learner import Learner
from tests.learners.streams import Stream

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}


def check_every_row(learner: Learner, stream: Stream, oracles: list) -> None:
    """After each row, every column equals its oracle's iterate."""
    X, y, weights = stream.csr, stream.labels, stream.weights
    for t, iterates in enumerate(zip(*oracles, strict=True)):
        learner.partial_fit(X[t], y[t : t + 1], None if weights is None else weights[t : t + 1])
        np.testing.assert_allclose(all_weights(learner), np.column_stack(iterates), **TOLERANCE)


def all_weights(learner: Learner) -> np.ndarray:
    """(features, columns), the intercept, if any, as the last feature."""
    if not learner.intercept:
        return learner.weights()
    return np.vstack([learner.weights(), learner.intercepts().reshape(1, -1)])


def at_a_jump(name: str, before: np.ndarray, after: np.ndarray) -> bool:
    """Whether rounding decides where the recursion goes: λ·sign(w) with a w that has come to 0, or to 1e-17."""
    return name == "subgradient" and bool(((before != 0) & (np.abs(after) < 1e-11)).any())
