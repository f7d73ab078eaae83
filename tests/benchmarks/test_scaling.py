"""How cost grows: linear in nonzeros, flat in the number of features, over three decades each. Prints exponents."""

import time

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from sparseoco.learners import streaming
from sparseoco.training.learner import Learner

pytestmark = pytest.mark.benchmark
ROW_NONZEROS = 100


def rows(nonzeros: int, n_features: int) -> tuple[csr_matrix, np.ndarray]:
    """Rows of different features whose frequencies fall as 1/rank over 10,000 ranks, spread over all features."""
    random = np.random.default_rng(0)
    n_rows = nonzeros // ROW_NONZEROS
    ranks = np.exp(random.random((n_rows, 2 * ROW_NONZEROS)) * np.log(10_000)).astype(np.int64)
    chosen = [np.unique(row)[:ROW_NONZEROS] for row in ranks]
    indices = np.concatenate(chosen) * (n_features // 10_000)
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in chosen])])
    counts = np.ones(len(indices))
    return csr_matrix((counts, indices, indptr), (n_rows, n_features)), random.integers(0, 2, n_rows)


def seconds(algorithm: str, X: csr_matrix, y: np.ndarray) -> float:
    learner = Learner(algorithm, grid=[{}] * 16, n_features=X.shape[1], dtype="float32")
    learner.partial_fit(X, y)  # the system hands out memory at its first touch, once
    best = np.inf
    for _ in range(3):
        started = time.perf_counter()
        learner.partial_fit(X, y)
        best = min(best, time.perf_counter() - started)
    return float(best)


def exponent(sizes: list[int], times: list[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


@pytest.mark.parametrize("algorithm", streaming())
def test_exponents(algorithm: str) -> None:
    nonzeros = [10**5, 10**6, 10**7]
    work = [seconds(algorithm, *rows(size, 10**5)) for size in nonzeros]
    features = [10**4, 10**5, 10**6, 10**7]
    width = [seconds(algorithm, *rows(10**6, size)) for size in features]
    real = [rows(size, 10**4)[0].nnz for size in nonzeros]
    print(
        f"\n{algorithm:16} time ~ nonzeros^{exponent(real, work):.2f}  features^{exponent(features, width):+.2f}"
        f"   ({work[-1] / real[-1] / 16 * 1e9:.2f} ns a nonzero·column; "
        f"{width[0] * 1e3:.0f} ms at 10^4 features, {width[-1] * 1e3:.0f} ms at 10^7)"
    )
