"""How far above its optimum an objective is after some epochs, ours and scikit-learn's, on IMDB; what a round costs.

Run by hand: ``pytest -m benchmark -s tests/benchmarks/test_epochs.py``. Unigrams of the 25,000 training reviews, found
twice at least; logistic loss, l1 with α = 10, no intercept. Documents lie sorted by class, as they came, and shuffled.
"""

import gzip
import json
import time
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, SGDClassifier

from sparseoco.offline.epochs import Blocks, EpochProblem, fit_epochs, play_rounds, row_sizes
from sparseoco.offline.optimum import offline_optimum
from sparseoco.offline.passes import LocalPasses
from tests.benchmarks.corpora import corpus

pytestmark = [
    pytest.mark.benchmark,
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]
ALPHA = 10.0
EPOCHS = (1, 2, 5, 10)
WAYS: dict[str, dict[str, Any]] = {
    "serial, sampled": {},
    "serial, sampled, batch 10": {"batch": 10},
    "serial, corrected": {"estimate": "corrected"},
    "dealt, 4 parts": {"estimate": "corrected", "placement": "dealt", "parts": 4},
    "dealt, 8 parts": {"estimate": "corrected", "placement": "dealt", "parts": 8},
}


@pytest.fixture(scope="module")
def imdb() -> tuple[sp.csr_matrix, np.ndarray]:
    with gzip.open(corpus("imdb/imdb_50k.jsonl.gz"), "rt", encoding="utf-8") as lines:
        records = [record for record in map(json.loads, lines) if record["split"] == "train"]
    X = CountVectorizer(min_df=2).fit_transform([record["text"] for record in records])
    y = np.array([record["label"] == "pos" for record in records], np.int64)
    order = np.argsort(y, kind="stable")
    return X[order].astype(np.float64), y[order]


def test_gap_to_the_optimum(imdb: tuple[sp.csr_matrix, np.ndarray]) -> None:
    X, y = imdb
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
    for eta0 in (0.03, 0.1, 0.3, 1.0):
        peers = [
            SGDClassifier(
                loss="log_loss",
                penalty="l1",
                alpha=ALPHA / len(y),
                fit_intercept=False,
                learning_rate="invscaling",
                eta0=eta0,
                max_iter=epochs,
                tol=None,
                random_state=0,
            )
            for epochs in EPOCHS
        ]
        print_row(f"scikit-learn SGD, eta0 = {eta0}", [objective(peer.fit(X, y).coef_[0]) for peer in peers])
    sagas = [
        LogisticRegression(l1_ratio=1.0, C=1 / ALPHA, solver="saga", fit_intercept=False, max_iter=epochs, tol=0.0)
        for epochs in EPOCHS
    ]
    print_row("scikit-learn SAGA", [objective(peer.fit(X, y).coef_[0]) for peer in sagas])


@pytest.mark.parametrize("estimate", ["sampled", "corrected"])
@pytest.mark.parametrize("columns", [1, 16, 64])
def test_cost_of_a_round(estimate: str, columns: int, imdb: tuple[sp.csr_matrix, np.ndarray]) -> None:
    X, y = imdb
    problem = EpochProblem.of(
        "caos-erm", "logistic", "l1", [{"alpha": ALPHA, "estimate": estimate}] * columns, 2, X.shape[1]
    )
    passes = LocalPasses.of(X, y.astype(np.float64))
    totals = passes.totals(np.zeros((X.shape[1], columns)), problem.pass_request)
    slopes = passes.slopes(totals)
    blocks = Blocks.of(row_sizes(passes.source, passes.span, 0, len(y)), problem.configurations[0])
    (share,) = blocks.shares(problem.configurations[0])
    drawn = float(np.diff(X.indptr) @ blocks.weights / blocks.weights.sum())  # nonzeros a round, expected
    best = np.inf
    for _ in range(4):
        method = problem.sampled()
        run = (passes.source, np.arange(len(y)), slopes.__getitem__, totals.gradient if estimate != "sampled" else None)
        started = time.perf_counter()
        for _ in play_rounds(method, *run, blocks, share, 0, 1):
            pass
        best = min(best, time.perf_counter() - started)
    cost = best / share.rounds / drawn / columns * 1e9
    print(f"\n{estimate:10} {columns:3} columns: {cost:.1f} ns a nonzero and column")
