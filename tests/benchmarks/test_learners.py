"""What learning costs: a configuration, a nonzero, a column."""

import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import SGDClassifier
from threadpoolctl import threadpool_limits

from sparseoco.kernels.columns import RowBatch
from sparseoco.learners import find_algorithm
from sparseoco.search.packing import COLUMN_COSTS, STREAM_COSTS
from sparseoco.store import corpus as module
from sparseoco.store.corpus import Corpus
from sparseoco.store.shards import Store, read_shards
from sparseoco.training.learner import Learner
from sparseoco.training.stream import Order, Passes, StreamPosition, range_rows_of, stream
from tests.benchmarks.support import in_turns, least, zipf

# ----------------------------------------------------------------------------------------------------------------------
# What a configuration costs, against scikit-learn's SGDClassifier on the same rows, one core, same run.
#
# Prints ns a nonzero and column, and the ratio; both sides take the best of several turns, taken in turn.


pytestmark = pytest.mark.benchmark
TURNS = 4


class Case(NamedTuple):
    algorithm: str
    loss: str
    columns: int
    parameters: dict[str, object]
    asked: dict[str, float]
    """Ratio asked, by matrix."""

    def __str__(self) -> str:
        return "-".join([self.algorithm, *map(str, self.parameters.values()), self.loss, str(self.columns)])


FAMILY = {"zipf": 18.0, "imdb": 12.0}
CASES = [
    *(Case(name, loss, 64, {}, FAMILY) for name in ("fobos", "cl-fobos") for loss in ("logistic", "hinge")),
    Case("l-fobos", "logistic", 64, {"K": 100}, FAMILY),
    *(Case("sgft", loss, 64, {"p": 2}, dict.fromkeys(FAMILY, 5.0)) for loss in ("logistic", "hinge")),
    Case("rda", "logistic", 64, {}, dict.fromkeys(FAMILY, 10.0)),
    Case("stda", "logistic", 64, {"p": 2}, dict.fromkeys(FAMILY, 5.0)),
    Case("stda", "hinge", 64, {"p": "inf"}, dict.fromkeys(FAMILY, 5.0)),
    *(
        Case("cao-ftrl", "logistic", 64, {"predict_gradient": predict}, dict.fromkeys(FAMILY, 4.0))
        for predict in ("none", "last", "mean")
    ),
    Case("fobos", "logistic", 1, {}, dict.fromkeys(FAMILY, 1.5)),
]


@pytest.fixture(scope="module", params=["zipf", "imdb"])
def matrix(request: pytest.FixtureRequest) -> tuple[str, sp.csr_matrix, np.ndarray]:
    if request.param == "zipf":
        return "zipf", *zipf(20_000, 332_000)
    store = request.getfixturevalue("imdb_store")
    order = np.random.default_rng(0).permutation(store.n_rows)
    labels = np.concatenate([store.read(shard).labels for shard in range(store.n_shards)])
    return "imdb", read_shards(store.folder)[0][order], labels[order]


@pytest.fixture(autouse=True)
def one_core() -> Iterator[None]:
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SGDClassifier has not converged after one epoch
        yield


@pytest.mark.parametrize("case", CASES, ids=str)
def test_cost_of_a_configuration(case: Case, matrix: tuple) -> None:
    name, X, y = matrix
    peer_X, own = X.astype(np.float64), find_algorithm(case.algorithm).configuration({})
    grid: dict[str, object] = {"lam": np.geomspace(1e-8, 1e-4, case.columns).tolist(), **case.parameters}
    grid |= {rate: 0.5 for rate in ("eta0", "gamma", "R") if rate in own}
    learner = Learner(case.algorithm, loss=case.loss, grid=grid, n_features=X.shape[1], dtype="float32")
    learner.learn_rows(X.indptr, X.indices, X.data, y)  # compiled, memory touched
    peer_loss = {"logistic": "log_loss"}.get(case.loss, case.loss)
    peer = SGDClassifier(loss=peer_loss, penalty="l1", alpha=1e-6, max_iter=1, tol=None)
    works = {"peer": lambda: peer.fit(peer_X, y), "ours": lambda: learner.learn_rows(X.indptr, X.indices, X.data, y)}
    theirs, ours = in_turns(works, turns=TURNS).values()
    each = ours / case.columns
    print(
        f"\n{name} {case}: {each / X.nnz * 1e9:.2f} ns a nonzero·column, {theirs / each:.1f}× SGDClassifier "
        f"({theirs:.3f} s), asked {case.asked[name]:g}×"
    )
    assert theirs / each >= case.asked[name]


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
        for _ in stream(rows, Passes(Order(0, range_rows), StreamPosition(1, rows.n_rows))):
            pass

    cost = cpu_seconds(read) / imdb_store.manifest.nonzeros * 1e9
    print(f"\norder {order}, mapped={mapped}: {cost:.1f} (packing: {STREAM_COSTS[order, mapped]:.1f})")


def test_cost_of_columns(imdb_store: Store, tmp_path: Path) -> None:
    rows = Corpus(imdb_store, tmp_path)
    batches: list[RowBatch] = [batch for _, batch in stream(rows, Passes(Order(0, 1), StreamPosition(1, ROWS)))]
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
