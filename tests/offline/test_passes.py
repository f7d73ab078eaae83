"""The full-gradient pass: what it computes, and that bits do not depend on the division of the work."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st

from sparseoco.execution.clusters import ClusterOptions, WorkerShape, connect
from sparseoco.learners.losses import LOSSES
from sparseoco.offline.cluster.epochs import SlopeFiles
from sparseoco.offline.cluster.passes import ClusterPasses, RowsSource
from sparseoco.offline.passes import (
    FEWEST_LEAVES,
    MOST_LEAVES,
    WHOLE,
    Leaves,
    LocalPasses,
    PassRequest,
    Shape,
    Span,
)
from sparseoco.store.shards import Store, read_shards, store_reference
from tests.support.errors import raises_code
from tests.support.stores import make_store

SPANS = [
    Span(),
    Span(seed=5, epoch=2, range_rows=1, stop=170),
    Span(seed=5, fold=1, folds=3, start=20),
    Span(seed=5, range_rows=1, fold=0, folds=4, start=10, stop=290),
]
REQUESTS = [
    PassRequest("logistic", (1, 0, 1, 0, 1)),
    PassRequest("squared", (-1, -1, 0, 1, -1)),
    PassRequest("hinge", (1, 1, 0, 0, 1), (0.5, 0.25, 0.125, 1.0, 1e-3)),
]


def examples(rows: int, features: int, seed: int = 0) -> tuple[Any, np.ndarray]:
    random = np.random.default_rng(seed)
    X = sp.random(rows, features, 0.3, format="csr", random_state=random, data_rvs=lambda n: random.integers(1, 5, n))
    return X.astype(np.int64), random.integers(0, 2, rows).astype(np.float64)


def local(store: Path, span: Span = WHOLE) -> LocalPasses:
    X, _ = read_shards(store)
    return LocalPasses.of(X, Store.open(store).labels(), span)


def cluster(client: Client, store: Path, work: Path, span: Span = WHOLE) -> ClusterPasses:
    return ClusterPasses(client, RowsSource(store_reference(Store.open(store))), work, span)


def same(a: Any, b: Any) -> None:
    for name in ("loss_sum", "exact_sum", "gradient"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


@given(
    rows=st.integers(0, 60),
    features=st.integers(1, 12),
    loss=st.sampled_from(["logistic", "squared", "squared_hinge", "hinge"]),
    span=st.tuples(st.integers(0, 20), st.integers(20, 60), st.booleans(), st.integers(-1, 2)),
)
@settings(max_examples=40, deadline=None)
def test_a_pass_is_the_dense_formula(rows: int, features: int, loss: str, span: tuple[int, int, bool, int]) -> None:
    X, y = examples(rows, features)
    first, last, shuffle, fold = span
    where = Span(seed=2, range_rows=int(shuffle), fold=fold, folds=3, start=min(first, rows), stop=min(last, rows))
    weights = np.random.default_rng(1).normal(size=(features, 3))
    pass_request = PassRequest(loss, (-1, -1, -1) if loss == "squared" else (1, 0, 1))
    passes = LocalPasses.of(X, y, where)
    totals = passes.totals(weights, pass_request)
    chosen = where.rows(rows, where.start, where.stop)
    z = X[chosen].toarray() @ weights
    targets = np.stack([y[chosen] if p < 0 else np.where(y[chosen] == p, 1.0, -1.0) for p in pass_request.positive], 1)
    scalar = LOSSES[loss]
    pairs = list(zip(z.ravel(), targets.ravel(), strict=True))
    values, slopes = (np.array([f(*pair) for pair in pairs]).reshape(-1, 3) for f in (scalar.value, scalar.slope))
    np.testing.assert_allclose(passes.slopes(totals), slopes, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(totals.loss_sum, values.sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(totals.gradient, X[chosen].toarray().T @ slopes, rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(passes.squares(), (X[chosen].toarray() ** 2).sum(axis=0))
    if loss != "hinge":  # Fenchel and Young: ℓ*(s) = sz − ℓ(z) at the slope s of z
        linear = (targets * slopes).sum(axis=0) if loss == "squared" else 0.0
        conjugates = passes.conjugates(totals, pass_request, np.ones(3)) + linear
        np.testing.assert_allclose(conjugates, (slopes * z - values).sum(axis=0), rtol=1e-9, atol=1e-9)


@given(
    rows=st.integers(0, 10**7),
    features=st.integers(1, 10**6),
    each=st.integers(0, 500),
    cut=st.integers(0, 10**6),
    nonzeros=st.none() | st.integers(1, 10**7),
)
def test_leaves_are_a_power_of_two_of_ranges_that_cover_the_span(
    rows: int, features: int, each: int, cut: int, nonzeros: int | None
) -> None:
    span = Span(start=min(cut, rows))
    bounds = Leaves(span, Shape(rows, features, rows * each), nonzeros).bounds()
    assert len(bounds) & (len(bounds) - 1) == 0
    assert FEWEST_LEAVES <= len(bounds) <= MOST_LEAVES
    assert [start for start, _ in bounds[1:]] == [stop for _, stop in bounds[:-1]]
    assert (bounds[0][0], bounds[-1][1]) == (span.start, rows)
    sizes = {stop - start for start, stop in bounds}
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("pass_request", REQUESTS, ids=lambda pass_request: pass_request.loss)
def test_the_cluster_gives_the_bits_of_one_process(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, span: Span, pass_request: PassRequest
) -> None:
    stores = [make_store(tmp_path / f"{rows}", shard_rows=rows) for rows in (300, 41)]
    weights = np.random.default_rng(1).normal(size=(200, 5))
    scale = np.linspace(0.5, 1.0, 5)
    here = local(stores[0], span)
    expected = here.totals(weights, pass_request)
    for store, chunk in zip(stores, (4096, 7), strict=True):
        monkeypatch.setattr("sparseoco.offline.passes.CHUNK_ROWS", chunk)
        there = cluster(client, store, tmp_path / f"work-{chunk}", span)
        totals = there.totals(weights, pass_request)
        same(totals, expected)
        slopes = here.slopes(expected)
        np.testing.assert_array_equal(SlopeFiles(totals.slopes[0])(np.arange(len(slopes))), slopes)
        conjugates = here.conjugates(expected, pass_request, scale)
        np.testing.assert_array_equal(there.conjugates(totals, pass_request, scale), conjugates)
        np.testing.assert_array_equal(there.squares(), here.squares())
        there.drop(totals)
        assert list((tmp_path / f"work-{chunk}").iterdir()) == []


def test_bits_do_not_depend_on_the_number_of_tasks(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(tmp_path / "store")
    weights = np.random.default_rng(1).normal(size=(200, 5))
    expected = local(store).totals(weights, REQUESTS[0])
    for tasks in (1, 100):
        monkeypatch.setattr("sparseoco.offline.cluster.passes.TASKS_PER_SLOT", tasks)
        passes = cluster(client, store, tmp_path / f"work-{tasks}")
        assert len(passes.bounds) == 8
        assert len(passes._runs()) == min(8, 2 * tasks)
        same(passes.totals(weights, REQUESTS[0]), expected)


def test_sums_that_do_not_fit_are_refused(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = cluster(client, make_store(tmp_path / "store"), tmp_path / "work")
    small = WorkerShape(2, 200 * 8 * 20, 2)
    monkeypatch.setattr("sparseoco.offline.cluster.passes.worker_shape", lambda client: small)
    with raises_code("out-of-memory", "5 columns", "200 features"):
        passes.totals(np.ones((200, 5)), REQUESTS[0])


def test_worker_processes_give_the_same_bits(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", shard_rows=60)
    weights = np.random.default_rng(1).normal(size=(200, 5))
    expected = local(store).totals(weights, REQUESTS[0])
    with connect(ClusterOptions(workers=2), tmp_path / "scratch") as client:
        same(cluster(client, store, tmp_path / "work").totals(weights, REQUESTS[0]), expected)
