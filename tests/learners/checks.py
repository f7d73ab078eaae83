"""Comparison of a learner with dense iterates, for the tests of learners."""

from collections.abc import Callable

import numpy as np
from hypothesis import assume

from sparseoco.training.learner import Learner
from tests.learners.streams import Stream

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}


def learn_row(learner: Learner, stream: Stream, t: int) -> None:
    """`partial_fit` of one row without its checks, which take longer than the row."""
    X, weights = stream.csr, stream.weights
    weight = None if weights is None else weights[t : t + 1]
    learner.learn_rows(X.indptr[t : t + 2], X.indices, X.data, stream.labels[t : t + 1], weight)


def check_every_row(
    learner: Learner, stream: Stream, X: np.ndarray, iterates: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """After each row, every column equals its iterate for rows X, unless rounding decides what that is.

    Returns the iterates (rows, features, columns).
    """
    found = []
    wanted = iterates(X)
    for t in range(len(wanted)):
        learn_row(learner, stream, t)
        found.append(all_weights(learner))
    if not np.allclose(found, wanted, **TOLERANCE):  # with long steps errors grow
        for noise in np.random.default_rng(0).standard_normal((4, *X.shape)):
            assume(np.allclose(iterates(X * (1 + 2.0**-50 * noise)), wanted, **TOLERANCE))
    np.testing.assert_allclose(found, wanted, **TOLERANCE)
    return wanted


def all_weights(learner: Learner) -> np.ndarray:
    """(features, columns), the intercept, if any, as the last feature."""
    if not learner.intercept:
        return learner.weights()
    return np.vstack([learner.weights(), learner.intercepts().reshape(1, -1)])


def at_a_jump(name: str, before: np.ndarray, after: np.ndarray) -> bool:
    """Whether rounding decides where the recursion goes: λ·sign(w) with a w that has come to 0, or to 1e-17."""
    return name == "subgradient" and bool(((before != 0) & (np.abs(after) < 1e-11)).any())
