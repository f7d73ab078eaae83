"""What a round of a dense learner costs, against the same recursion in NumPy, one core, same run.

Run by hand: ``pytest -m benchmark -s tests/benchmarks/test_dense.py``. Prints µs a round for a number of features.
"""

import time

import numpy as np
import pytest
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from sparseoco.training.learner import Learner

pytestmark = pytest.mark.benchmark
ROUNDS = {8: 20_000, 33: 20_000, 94: 5_000, 300: 2_000, 1000: 300}


def newton_steps(X: np.ndarray, y: np.ndarray, beta: float, D: float) -> np.ndarray:
    """ONS with squared loss, its inverse by Sherman and Morrison; the ball is left out."""
    w, B = np.zeros(X.shape[1]), np.eye(X.shape[1]) * (beta * D) ** 2
    for x, target in zip(X, y, strict=True):
        g = (x @ w - target) * x
        p = B @ g
        q = 1.0 + g @ p
        B -= np.outer(p, p / q)
        w -= p / (beta * q)
    return w


@pytest.mark.parametrize("n", ROUNDS)
def test_rounds(n: int) -> None:
    T, rng = ROUNDS[n], np.random.default_rng(n)
    X = rng.normal(size=(T, n)) / np.sqrt(n)
    y = X @ rng.normal(size=n)
    rows = sp.csr_matrix(X)
    figures = []
    with threadpool_limits(1):
        start = time.perf_counter()
        newton_steps(X, y, 0.01, 10.0)
        peer = time.perf_counter() - start
        for name, entry in (("ons", {"beta": 0.01, "D": 10.0}), ("onseg", {"T": T}), ("ogd", {}), ("ogdeg", {"T": T})):
            learner = Learner(name, loss="squared", grid=entry, n_features=n, n_classes=None)
            Learner(name, loss="squared", grid=entry, n_features=n, n_classes=None).partial_fit(rows[:1], y[:1])
            start = time.perf_counter()
            learner.partial_fit(rows, y)
            seconds = time.perf_counter() - start
            figures.append(f"{name} {seconds / T * 1e6:.2f}")
            if name == "ons":
                figures.append(f"NumPy {peer / T * 1e6:.2f} ({peer / seconds:.1f} times as long)")
    print(f"\n{n} features, µs a round: {', '.join(figures)}")
