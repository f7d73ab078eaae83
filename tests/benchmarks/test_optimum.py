"""How near an optimum solvers and epoch methods are after so many seconds or epochs."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression, SGDClassifier

from sparseoco import offline_optimum
from sparseoco.offline.epochs import fit_epochs
from tests.benchmarks.corpora import Matrix, imdb_counts

# ----------------------------------------------------------------------------------------------------------------------
# Seconds of processor to a duality gap: `offline_optimum` against LIBLINEAR.
#
# Uni- and bigrams of the 25,000 training reviews of IMDB, found twice at least; logistic loss, l1, no intercept. Gaps
# are relative to the loss at w = 0, and computed from the weights in the same way for all; the last column is the
# time relative to ours.


TOL = 1e-6


@pytest.fixture(scope="module")
def imdb() -> Matrix:
    return imdb_counts(2)


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
def test_seconds_to_a_gap(imdb: Matrix, weighting: str, alpha: float) -> None:
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


# ----------------------------------------------------------------------------------------------------------------------
# How far above its optimum an objective is after some epochs, ours and scikit-learn's, on IMDB.
#
# Unigrams of the 25,000 training reviews, found twice at least; logistic loss, l1 with α = 10, no intercept.
# Documents lie sorted by class, as they came, and shuffled.


ALPHA = 10.0
EPOCHS = (1, 2, 5, 10)
WAYS: dict[str, dict[str, Any]] = {
    "serial, sampled": {"estimate": "sampled"},
    "serial, sampled, batch 10": {"estimate": "sampled", "batch": 10},
    "serial, corrected": {},
    "dealt, 4 parts": {"placement": "dealt", "parts": 4},
    "dealt, 8 parts": {"placement": "dealt", "parts": 8},
}


@pytest.fixture(scope="module")
def sorted_imdb() -> Matrix:
    """Unigrams, sorted by class."""
    X, y = imdb_counts(1)
    order = np.argsort(y, kind="stable")
    return X[order], y[order]


@pytest.mark.benchmark
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_gap_to_the_optimum(sorted_imdb: Matrix) -> None:
    X, y = sorted_imdb
    optimum = float(np.ravel(offline_optimum(X, y, loss="logistic", alpha=ALPHA).objective)[0])
    signs = 2.0 * y - 1

    def print_row(name: str, objectives: list[float]) -> None:
        gaps = "".join(f"{100 * (objective / optimum - 1):10.2f} %" for objective in objectives)
        print(f"{name:44}{gaps}", flush=True)

    def objective(w: np.ndarray) -> float:
        return float(np.logaddexp(0, -signs * (X @ w)).sum() + ALPHA * np.abs(w).sum())

    print(f"\noptimum {optimum:.2f}; above it after {EPOCHS} epochs")
    for name, way in WAYS.items():
        for R in (0.3, 1.0):
            fit = fit_epochs(X, y, grid=[{"alpha": ALPHA, "R": R, **way}], epochs=EPOCHS[-1])
            print_row(f"caos-erm {name}, R = {R}", [fit.objective[epoch - 1, 0] for epoch in EPOCHS])
    shuffled = np.random.default_rng(3).permutation(len(y))
    for name in ("serial, corrected", "dealt, 4 parts", "dealt, 8 parts"):
        fit = fit_epochs(X[shuffled], y[shuffled], grid=[{"alpha": ALPHA, **WAYS[name]}], epochs=EPOCHS[-1])
        print_row(f"caos-erm {name}, R = 1.0, shuffled", [fit.objective[epoch - 1, 0] for epoch in EPOCHS])
    sgd = SGDClassifier(loss="log_loss", penalty="l1", alpha=ALPHA / len(y), fit_intercept=False, tol=None)
    sgd.set_params(learning_rate="invscaling", random_state=0)
    saga = LogisticRegression(l1_ratio=1.0, C=1 / ALPHA, solver="saga", fit_intercept=False, tol=0.0)
    peers = {f"SGD, eta0 = {eta0}": clone(sgd).set_params(eta0=eta0) for eta0 in (0.03, 0.1, 0.3, 1.0)}
    for name, peer in {**peers, "SAGA": saga}.items():
        fits = (peer.set_params(max_iter=epochs).fit(X, y) for epochs in EPOCHS)
        print_row(f"scikit-learn {name}", [objective(fit.coef_[0]) for fit in fits])
