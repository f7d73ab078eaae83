"""What a configuration costs, against scikit-learn's SGDClassifier on the same rows, one core, same run.

Run by hand: ``pytest -m benchmark -s tests/benchmarks/test_learners.py``. Prints ns a nonzero and column, the ratio and
the share of this machine's memory bandwidth; both sides take the best of several turns, taken in turn.
"""

import time
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import SGDClassifier
from threadpoolctl import threadpool_limits

from sparseoco.learners import find_algorithm
from sparseoco.learners.losses import find_loss
from sparseoco.learners.penalties import find_penalty
from sparseoco.training.learner import Learner
from tests.benchmarks.matrices import IMDB, imdb_bigrams, zipf

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
    return 2 * a.nbytes / best(lambda: np.add(a, 1, out=a)) / 1e9


def best(*runs: Callable[[], object]) -> float:
    seconds = []
    for _ in range(TURNS):
        for run in runs:
            start = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - start)
    return min(seconds)


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
        theirs = min(theirs, _seconds(peer))
        ours = min(ours, _seconds(lambda: learner.learn_rows(X.indptr, X.indices, X.data, y)))
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


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
