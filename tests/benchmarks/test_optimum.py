"""Seconds of processor to a duality gap: `offline_optimum` against LIBLINEAR.

Uni- and bigrams of the 25,000 training reviews of IMDB, found twice at least; logistic loss, l1, no intercept. Gaps
are relative to the loss at w = 0, and computed from the weights in the same way for all; the last column is the
time relative to ours.
"""

import time
from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.linear_model import LogisticRegression

from sparseoco import offline_optimum
from tests.benchmarks.test_accuracy import split_task

TOL = 1e-6


@pytest.fixture(scope="module")
def imdb() -> tuple[sp.csr_matrix, np.ndarray]:
    train = split_task("imdb/imdb_50k.jsonl.gz").train
    X = CountVectorizer(ngram_range=(1, 2), min_df=2).fit_transform([record["text"] for record in train])
    return X.astype(np.float64), np.array([record["label"] == "pos" for record in train], np.int64)


def relative_gap(X: sp.csr_matrix, y: np.ndarray, alpha: float, w: np.ndarray) -> float:
    signs = 2.0 * y - 1
    margins = signs * (X @ w)
    slopes = -signs / (1 + np.exp(margins))
    scale = min(1.0, alpha / np.abs(X.T @ slopes).max())
    share = np.clip(-scale * slopes * signs, 1e-300, 1 - 1e-16)
    dual = -(share * np.log(share) + (1 - share) * np.log1p(-share)).sum()
    return float((np.logaddexp(0, -margins).sum() + alpha * np.abs(w).sum() - dual) / (len(y) * np.log(2)))


def solvers(X: sp.csr_matrix, y: np.ndarray, alpha: float) -> dict[str, Callable[[], np.ndarray]]:
    found: dict[str, Callable[[], np.ndarray]] = {
        "offline_optimum": lambda: offline_optimum(X, y, alpha=alpha, tol=TOL).weights
    }
    for tol in (1e-4, 1e-6):
        model = LogisticRegression(l1_ratio=1, solver="liblinear", C=1 / alpha, fit_intercept=False, tol=tol)
        found[f"LIBLINEAR, tol {tol:g}"] = lambda model=model: model.set_params(max_iter=1000).fit(X, y).coef_[0]
    return found


@pytest.mark.benchmark
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("weighting", "alpha"), [("counts", 10.0), ("tf-idf", 1.0), ("tf-idf", 0.2)])
def test_seconds_to_a_gap(imdb: tuple, weighting: str, alpha: float) -> None:
    X, y = imdb
    if weighting == "tf-idf":
        X = TfidfTransformer(sublinear_tf=True).fit_transform(X)
    few = np.flatnonzero(np.arange(len(y)) % 50 == 0)
    for solve in solvers(X[few], y[few], alpha).values():
        solve()  # compiles
    print(f"\n{weighting}, α = {alpha:g}: {X.shape[1]:,} features, {X.nnz:,} nonzeros")
    seconds, gaps = {}, {}
    for name, solve in solvers(X, y, alpha).items():
        started = time.process_time()
        weights = solve()
        seconds[name] = time.process_time() - started
        gaps[name] = relative_gap(X, y, alpha, weights)
        ratio = seconds[name] / seconds["offline_optimum"]
        print(f"{name:22}{seconds[name]:8.2f} s{gaps[name]:10.1e}{ratio:8.2f}", flush=True)
    assert gaps["offline_optimum"] <= TOL * 1.01
