"""What learning costs: a configuration, a nonzero, a column, a round, and how it grows."""

import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse import csr_matrix
from sklearn.linear_model import SGDClassifier
from threadpoolctl import threadpool_limits

from sparseoco.kernels.columns import RowBatch
from sparseoco.learners import find_algorithm, streaming
from sparseoco.learners.losses import find_loss
from sparseoco.learners.penalties import find_penalty
from sparseoco.search.packing import COLUMN_COSTS, STREAM_COSTS
from sparseoco.store import corpus as module
from sparseoco.store.corpus import Corpus, weighted_corpus
from sparseoco.store.shards import Store
from sparseoco.store.terms import term_weights
from sparseoco.store.weighting import COUNTS, Weighting
from sparseoco.training.learner import Learner
from sparseoco.training.stream import START, Order, Passes, StreamPosition, range_rows_of, stream, train
from tests.benchmarks.support import IMDB, exponent, imdb_bigrams, least, zipf

# ----------------------------------------------------------------------------------------------------------------------
# What a configuration costs, against scikit-learn's SGDClassifier on the same rows, one core, same run.
#
# Prints ns a nonzero and column, the ratio and the share of this machine's memory bandwidth; both sides take the best
# of several turns, taken in turn.


pytestmark = pytest.mark.benchmark
TURNS = 4


class Case(NamedTuple):
    algorithm: str
    loss: str
    columns: int
    dtype: str
    parameters: dict[str, object]
    asked: dict[str, float]
    """Ratio asked, by matrix."""
    penalty: str = "l1"

    def __str__(self) -> str:
        parameters = [str(value) for value in self.parameters.values()]
        return "-".join([self.algorithm, self.penalty, *parameters, self.loss, str(self.columns), self.dtype])


FAMILY = {"zipf": 18.0, "imdb": 12.0}
OPTIMISTIC = {"zipf": 4.0, "imdb": 4.0}
CASES = [
    Case("fobos", "logistic", 64, "float32", {}, FAMILY),
    Case("cl-fobos", "logistic", 64, "float32", {}, FAMILY),
    Case("fobos", "hinge", 64, "float32", {}, FAMILY),
    Case("cl-fobos", "hinge", 64, "float32", {}, FAMILY),
    Case("subgradient", "logistic", 64, "float32", {}, {}),
    Case("l-fobos", "logistic", 64, "float32", {"K": 100}, FAMILY),
    Case("fobos", "logistic", 64, "float32", {}, {}, "l2"),
    Case("fobos", "logistic", 64, "float32", {}, {}, "elastic_net"),
    Case("cumulative-l1", "logistic", 64, "float32", {}, {}),
    Case("sgft", "logistic", 64, "float32", {"p": 1}, {}),
    Case("sgft", "logistic", 64, "float32", {"p": 2}, {"zipf": 5.0, "imdb": 5.0}),
    Case("sgft", "hinge", 64, "float32", {"p": 2}, {"zipf": 5.0, "imdb": 5.0}),
    Case("sgft", "logistic", 64, "float32", {"p": "inf"}, {}),
    Case("sgft", "logistic", 64, "float32", {"p": 3}, {}),
    Case("sgft-cumulative", "logistic", 64, "float32", {"p": 2}, {}),
    Case("rda", "logistic", 64, "float32", {}, {"zipf": 10.0, "imdb": 10.0}),
    Case("stda", "logistic", 64, "float32", {"p": 2}, {"zipf": 5.0, "imdb": 5.0}),
    Case("stda", "hinge", 64, "float32", {"p": "inf"}, {"zipf": 5.0, "imdb": 5.0}),
    Case("adagrad", "logistic", 64, "float32", {}, {}),
    Case("ftrl-proximal", "logistic", 64, "float32", {}, {}),
    Case("cao-ftrl", "logistic", 64, "float32", {"predict_gradient": "none"}, OPTIMISTIC),
    Case("cao-ftrl", "logistic", 64, "float32", {"predict_gradient": "last"}, OPTIMISTIC),
    Case("cao-ftrl", "logistic", 64, "float32", {"predict_gradient": "mean"}, OPTIMISTIC),
    Case("caos-ftrl", "logistic", 64, "float32", {"predict_gradient": "none"}, {}),
    Case("ao-gd", "logistic", 64, "float32", {}, {}),
    Case("fobos", "logistic", 16, "float32", {}, {}),
    Case("fobos", "logistic", 64, "float64", {}, {}),
    Case("fobos", "logistic", 1, "float32", {}, {"zipf": 1.5, "imdb": 1.5}),
    Case("fobos", "logistic", 1, "float64", {}, {}),
]


@pytest.fixture(scope="module", params=["zipf", "imdb"])
def matrix(request: pytest.FixtureRequest) -> tuple[str, sp.csr_matrix, np.ndarray]:
    if request.param == "imdb" and not IMDB.exists():
        pytest.skip(f"no IMDB corpus at {IMDB}")
    X, y = zipf(20_000, 332_000) if request.param == "zipf" else imdb_bigrams()
    return request.param, X, y


@pytest.fixture(scope="module")
def bandwidth() -> float:
    """GB/s of reading and writing back an array far larger than the caches."""
    a = np.zeros(1 << 26, np.float32)
    a += 1
    return 2 * a.nbytes / least(lambda: np.add(a, 1, out=a), turns=TURNS) / 1e9


@pytest.fixture(autouse=True)
def one_core() -> Iterator[None]:
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SGDClassifier has not converged after one epoch
        yield


@pytest.mark.parametrize("case", CASES, ids=str)
def test_cost_of_a_configuration(case: Case, matrix: tuple, bandwidth: float) -> None:
    name, X, y = matrix
    peer_X = X.astype(np.float64)
    definition = find_algorithm(case.algorithm).under(find_penalty(case.penalty))
    own = definition.configuration({})
    grid = {key: [value] for key, value in case.parameters.items()}
    grid |= {rate: [0.5] for rate in ("eta0", "gamma", "eta", "R") if rate in own}
    varied = (
        {"lam": np.geomspace(1e-8, 1e-4, case.columns)} if "lam" in own else {"R": np.geomspace(0.1, 1, case.columns)}
    )
    grid |= {key: list(values) for key, values in varied.items()}
    learner = Learner(
        case.algorithm, loss=case.loss, penalty=case.penalty, grid=grid, n_features=X.shape[1], dtype=case.dtype
    )
    learner.learn_rows(X.indptr, X.indices, X.data, y)  # compiled, memory touched

    peer_loss = {"logistic": "log_loss"}.get(case.loss, case.loss)

    def peer() -> None:
        SGDClassifier(loss=peer_loss, penalty="l1", alpha=1e-6, max_iter=1, tol=None).fit(peer_X, y)

    theirs, ours = np.inf, np.inf
    for _ in range(TURNS):  # in turn, so that a busy machine is busy for both
        theirs = min(theirs, least(peer, turns=1))
        ours = min(ours, least(lambda: learner.learn_rows(X.indptr, X.indices, X.data, y), turns=1))
    each = ours / case.columns
    ratio = theirs / each
    rule = definition.rule(find_loss(case.loss), find_penalty(case.penalty), definition.configuration(case.parameters))
    bytes_moved = X.nnz * 2 * len(rule.slots) * case.columns * np.dtype(case.dtype).itemsize
    asked = case.asked.get(name)
    print(
        f"\n{name} {case}: "
        f"{each / X.nnz * 1e9:.2f} ns a nonzero·column, {ratio:.1f}× SGDClassifier ({theirs:.3f} s)"
        f"{f', asked {asked:g}×' if asked else ''}, {bytes_moved / ours / 1e9 / bandwidth:.0%} of {bandwidth:.0f} GB/s"
    )
    if asked:
        assert ratio >= asked


# ----------------------------------------------------------------------------------------------------------------------
# Processor seconds per 10⁹ nonzeros to read a stream and to learn it with blocks of columns of each width.
#
# `sparseoco.search.packing` predicts the end of a search from these figures: repeat it when kernels or the layout
# change.


ROWS = 12_288
LEARNERS = {"adagrad": "eta", "cl-fobos": "eta0", "fobos": "eta0", "rda": "gamma"}


def cpu_seconds(call: Callable[[], object]) -> float:
    """The least processor time of some calls; the first, which compiles, does not count."""
    call()
    return least(call, clock=time.process_time)


@pytest.mark.parametrize(("order", "mapped"), STREAM_COSTS)
def test_cost_of_the_stream(
    imdb_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, mapped: bool
) -> None:
    monkeypatch.setattr(module, "MAPPED_BYTES", 1 << 40 if mapped else 0)
    rows = Corpus(imdb_store, tmp_path)
    range_rows = range_rows_of(order, rows.n_rows, imdb_store.manifest.nonzeros)

    def read() -> None:
        for _ in stream(rows, Order(0, range_rows), START, StreamPosition(1, rows.n_rows)):
            pass

    cost = cpu_seconds(read) / imdb_store.manifest.nonzeros * 1e9
    print(f"\norder {order}, mapped={mapped}: {cost:.1f} (packing: {STREAM_COSTS[order, mapped]:.1f})")


def test_cost_of_columns(imdb_store: Store, tmp_path: Path) -> None:
    rows = Corpus(imdb_store, tmp_path)
    batches: list[RowBatch] = [batch for _, batch in stream(rows, Order(0, 1), START, StreamPosition(1, ROWS))]
    nonzeros = sum(len(batch.indices) for batch in batches)
    costs: dict[int, list[float]] = {width: [] for width in COLUMN_COSTS}
    for name, step in LEARNERS.items():
        for width, found in costs.items():
            grid = [{step: 0.1 * (k + 1), "lam": 1e-6} for k in range(width)]
            learner = Learner(
                name, loss="squared_hinge", grid=grid, n_features=imdb_store.n_features, n_classes=2, intercept=True
            )

            def learn(learner: Learner = learner) -> None:
                for batch in batches:
                    learner.learn_rows(*batch)

            found.append(cpu_seconds(learn) / nonzeros * 1e9)
    print("\ncolumns  " + "  ".join(f"{name:>8}" for name in LEARNERS) + "      mean  packing")
    for width, found in costs.items():
        print(
            f"{width:>7}  "
            + "  ".join(f"{cost:8.1f}" for cost in found)
            + f"  {np.mean(found):8.1f}  {COLUMN_COSTS[width]:7.1f}"
        )


# ----------------------------------------------------------------------------------------------------------------------
# What weighting costs: an epoch of 64 columns on sublinear tf-idf against one on counts. Prints the ratio.


EPOCHS = 9


def test_tfidf_against_counts(imdb_store: Store, tmp_path: Path) -> None:
    """Processor time of one thread, in turns over the same rows; at most 10 % more."""
    store, seconds = imdb_store, dict[str, list[float]]()
    grid = {"lam": np.geomspace(1e-7, 1e-4, 16).tolist(), "eta0": [0.03, 0.1, 0.3, 1.0]}
    trained = {
        weighting: (
            weighted_corpus(store, tmp_path, term_weights(store, weighting), np.float32),
            Learner("cl-fobos", grid=grid, n_features=store.n_features, dtype="float32"),
        )
        for weighting in (COUNTS, Weighting(tf="log", idf=True, norm="l2"))
    }
    for epoch in range(1, EPOCHS + 1):
        for weighting, (rows, learner) in trained.items():
            started = time.thread_time()
            passes = Passes(Order(0, True), StreamPosition(epoch, ROWS), StreamPosition(epoch, 0))
            for _ in train(learner, rows, passes):
                pass
            seconds.setdefault(weighting.label, []).append(time.thread_time() - started)
    plain, weighted = (np.array(own[1:]) for own in seconds.values())
    print(f"\ntf-idf on 64 columns costs {np.median(weighted / plain) - 1:+.1%} over counts")


# ----------------------------------------------------------------------------------------------------------------------
# How cost grows: linear in nonzeros, flat in the number of features, over three decades each. Prints exponents.


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
    return least(lambda: learner.partial_fit(X, y))


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


# ----------------------------------------------------------------------------------------------------------------------
# What a round of a dense learner costs, against the same recursion in NumPy, one core, same run.
#
# Prints µs a round for a number of features.


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
