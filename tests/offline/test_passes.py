"""The full-gradient pass: what it computes, and that bits do not depend on the division of the work."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sparseoco.core.errors import StorageError
from sparseoco.execution.clusters import ClusterOptions, WorkerShape, connect
from sparseoco.learners.losses import LOSSES
from sparseoco.offline import passes as passes_module
from sparseoco.offline.cluster import passes as cluster_module
from sparseoco.offline.cluster.epochs import SlopeFiles
from sparseoco.offline.cluster.passes import ClusterPasses, RowsSource, read_rows
from sparseoco.offline.passes import (
    FEWEST_LEAVES,
    MOST_LEAVES,
    FeatureSums,
    GradientBuffer,
    Leaves,
    LocalPasses,
    PassRequest,
    Shape,
    Span,
)
from sparseoco.storage.checkpoints import write_array
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


def local(store: Path, span: Span | None = None) -> LocalPasses:
    X, _ = read_shards(store)
    return LocalPasses.of(X, Store.open(store).labels(), span)


def cluster(client: Client, store: Path, work: Path, span: Span | None = None) -> ClusterPasses:
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


def test_a_span_outside_the_rows_is_refused() -> None:
    with raises_code("invalid-option", 11, "10 rows"):
        Span(stop=11).within(10)


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
    for store, chunk, width in zip(stores, (4096, 7), (5, 2), strict=True):
        monkeypatch.setattr(passes_module, "CHUNK_ROWS", chunk)
        monkeypatch.setattr(ClusterPasses, "_group_width", lambda self, width=width: width)
        there = cluster(client, store, tmp_path / f"work-{chunk}", span)
        totals = there.totals(weights, pass_request)
        same(totals, expected)
        slopes = here.slopes(expected)
        np.testing.assert_array_equal(SlopeFiles(totals.slopes)(np.arange(len(slopes))), slopes)
        conjugates = here.conjugates(expected, pass_request, scale)
        np.testing.assert_array_equal(there.conjugates(totals, pass_request, scale), conjugates)
        np.testing.assert_array_equal(there.squares(), here.squares())


def test_bits_do_not_depend_on_the_number_of_tasks(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(tmp_path / "store")
    weights = np.random.default_rng(1).normal(size=(200, 5))
    expected = local(store).totals(weights, REQUESTS[0])
    for tasks in (1, 100):
        monkeypatch.setattr(cluster_module, "TASKS_PER_SLOT", tasks)
        passes = cluster(client, store, tmp_path / f"work-{tasks}")
        assert len(passes.bounds) == 8
        assert len(passes._runs()) == min(8, 2 * tasks)
        same(passes.totals(weights, REQUESTS[0]), expected)


def test_a_pass_is_reused_unless_its_files_are_corrupt(client: Client, tmp_path: Path) -> None:
    weights = np.random.default_rng(1).normal(size=(200, 5))
    passes = cluster(client, make_store(tmp_path / "store"), tmp_path / "work")
    first = passes.totals(weights, REQUESTS[0])
    (files,) = first.slopes
    written = [path.stat().st_mtime_ns for path in files.slopes]
    same(passes.totals(weights, REQUESTS[0]), first)
    assert [path.stat().st_mtime_ns for path in files.slopes] == written
    data = bytearray(files.total.read_bytes())
    data[-3000] ^= 1
    files.total.write_bytes(data)
    same(passes.totals(weights, REQUESTS[0]), first)
    files.slopes[3].unlink()
    same(passes.totals(weights, REQUESTS[0]), first)
    assert files.slopes[3].exists()
    passes.drop(first)
    assert list((tmp_path / "work").iterdir()) == []


def test_sums_that_do_not_fit_are_split_or_refused(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = np.random.default_rng(1).normal(size=(200, 5))
    passes = cluster(client, make_store(tmp_path / "store"), tmp_path / "work")
    expected = passes.totals(weights, REQUESTS[0])
    column = 200 * 8 * 20
    monkeypatch.setattr(cluster_module, "worker_shape", lambda client: WorkerShape(2, 4 * column, 2))
    assert 1 <= passes._group_width() < 5
    split = passes.totals(weights, REQUESTS[0])
    assert len(split.slopes) > 1
    same(split, expected)
    monkeypatch.setattr(cluster_module, "worker_shape", lambda client: WorkerShape(2, column // 4, 2))
    with raises_code("out-of-memory", "200 features"):
        passes.totals(weights, REQUESTS[0])


def test_worker_processes_give_the_same_bits(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", shard_rows=60)
    weights = np.random.default_rng(1).normal(size=(200, 5))
    expected = local(store).totals(weights, REQUESTS[0])
    with connect(ClusterOptions(workers=2), tmp_path / "scratch") as client:
        same(cluster(client, store, tmp_path / "work").totals(weights, REQUESTS[0]), expected)


def test_a_dropped_pass_is_run_again(tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files are deleted; the client may not have released its tasks yet."""
    monkeypatch.setattr(client, "_dec_ref", lambda key: None)
    passes = cluster(client, make_store(tmp_path / "store"), tmp_path / "work")
    weights = np.ones((passes.shape.n_features, 2))
    once = passes.totals(weights, PassRequest("logistic", (1, 1)))
    passes.drop(once)
    same(once, passes.totals(weights, PassRequest("logistic", (1, 1))))


@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("corrupt-file", lambda path: path.write_bytes(path.read_bytes()[:-1])),
        ("corrupt-file", lambda path: path.write_bytes(path.read_bytes() + b"\0")),
        ("corrupt-file", lambda path: path.write_bytes(b"\x93NUMPY\x02\x00" + path.read_bytes()[8:])),
        ("corrupt-file", lambda path: np.save(path, np.zeros((3, 2), np.float32))),
        ("corrupt-file", lambda path: np.save(path, np.zeros(5))),
        ("corrupt-file", lambda path: path.write_bytes(b"")),
        ("missing-file", lambda path: path.unlink()),
    ],
)
def test_a_corrupt_file_of_a_pass_is_reported(tmp_path: Path, code: str, change: Any) -> None:
    path, values = tmp_path / "slopes.npy", np.arange(6.0).reshape(3, 2)
    write_array(path, values)
    np.testing.assert_array_equal(read_rows(path, 2), values)
    change(path)
    with raises_code(code, "slopes.npy", kind=StorageError):
        read_rows(path, 2)


# ----------------------------------------------------------------------------------------------------------------------
# Sparse and dense sums of gradients are the same bits, added in any tree.


# Both zeros, subnormal and huge numbers; sums start from +0.0.
VALUES = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.1, -0.3, 1e-320, -1e-320, 1e300, -1e300, np.inf])


@st.composite
def leaves(draw: Any) -> list[np.ndarray]:
    n_features, columns = draw(st.integers(1, 12)), draw(st.integers(1, 3))
    count = draw(st.integers(1, 6))
    return [
        np.where(
            draw(arrays(np.bool_, (n_features, 1))),  # features that occur
            draw(arrays(np.float64, (n_features, columns), elements=VALUES)),
            0.0,
        )
        for _ in range(count)
    ]


def sums(values: np.ndarray, *, sparse: bool) -> FeatureSums:
    buffer = GradientBuffer(*values.shape, sparse=sparse)
    for feature in np.flatnonzero(values.any(axis=1)):
        buffer.occur(np.array([feature]))
        buffer.values[feature] += values[feature]
    found = buffer.take()
    assert not buffer.values.any()
    assert not buffer.take().dense().any()
    return found


@given(leaves(), st.data())
def test_sparse_and_dense_sums_have_the_same_bits(each: list[np.ndarray], data: Any) -> None:
    with np.errstate(invalid="ignore", over="ignore"):
        expected = each[0] + 0.0
        total = sums(each[0], sparse=data.draw(st.booleans()))
        for values in each[1:]:
            other = sums(values, sparse=data.draw(st.booleans()))
            expected, total = expected + (values + 0.0), total + other if data.draw(st.booleans()) else other + total
    assert total.dense().tobytes() == expected.tobytes()
    if total.features is not None:
        assert (np.diff(total.features) > 0).all()


def test_sums_are_sparse_while_few_features_occur() -> None:
    few, others, many = (np.zeros((10, 2)) for _ in range(3))
    few[[1, 8]], others[[2, 8]], many[3:] = 1.0, 2.0, 3.0
    first, second, third = (sums(values, sparse=True) for values in (few, others, many))
    assert (first + second).values.shape == (3, 2)
    assert (first + second + third).features is None
