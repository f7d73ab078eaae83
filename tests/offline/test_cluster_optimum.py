"""The offline optimum of a store, and its passes: same bits as in one process, however divided, stopped and resumed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from sparseoco import offline_optimum
from sparseoco.cli import app
from sparseoco.core.logs import progress_to
from sparseoco.execution.clusters import ClusterOptions, WorkerShape, connect
from sparseoco.learners.losses import LOSSES, find_loss
from sparseoco.offline import passes as full_passes
from sparseoco.offline.cluster import passes as module
from sparseoco.offline.cluster.epochs import SlopeFiles
from sparseoco.offline.optimum import Optimum, OptimumProblem, solved
from sparseoco.offline.quasi_newton import QuasiNewton
from sparseoco.store.shards import Session, Store, read_shards, store_reference
from sparseoco.store.weighting import COUNTS, Weighting
from sparseoco.training.models import Model
from sparseoco.training.options import OptimumOptions
from tests.offline import problems
from tests.offline.problems import local_passes_over
from tests.oracles.losses import VALUES
from tests.support.damage import stopped_at
from tests.support.errors import raises_code
from tests.support.folders import assert_same_folder
from tests.support.models import dense_weights
from tests.support.stores import make_store, with_columns, with_values

ROWS, FEATURES = 100, 30
OPTIONS = OptimumOptions(alphas=(6.0, 15.0), tol=1e-2)  # of which the second takes fewer passes


@pytest.fixture
def by_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for stores whose rows do not fit in a worker."""
    monkeypatch.setattr(module, "NEWTON_NONZEROS", 0)


def small_store(folder: Path, **settings: Any) -> Path:
    return make_store(folder, **{"rows": ROWS, "features": FEATURES, "shard_rows": 60} | settings)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_store(tmp_path_factory.mktemp("store"))


def expected(store: Path, alpha: Any, tol: float, penalty: str = "l1") -> Optimum:
    """By passes in this process, of one α or several."""
    opened = Store.open(store)
    alphas = alpha if isinstance(alpha, list) else [alpha]
    problem = OptimumProblem.of(OptimumOptions(alphas=tuple(alphas), penalty=penalty), 2)
    here = QuasiNewton(full_passes.LocalPasses.of(read_shards(store)[0], opened.labels()), problem, tol=tol)
    while here.active:
        here.step()
    found = solved(here.columns, problem)
    return found if isinstance(alpha, list) else Optimum(*(part[0] for part in found))


def weights(out: Path, alpha: float, features: int = FEATURES) -> np.ndarray:
    return dense_weights(Model(out / f"alpha-{alpha!r}"), features)[:, 0]


Solve = Callable[..., Path]


@pytest.fixture
def solve(client: Client, store: Path, tmp_path: Path) -> Solve:
    """``solve(name, options, rows=store)``: the optimum of a store on the cluster, in a folder of the test."""

    def run(name: str = "out", options: OptimumOptions = OPTIONS, rows: Path = store) -> Path:
        out = tmp_path / name
        out.mkdir(exist_ok=True)
        module.run_optimum(Session(client, Store.open(rows)), out, options)
        return out

    return run


@pytest.mark.parametrize("classes", [2, 3])
def test_a_small_store_gives_the_bits_of_offline_optimum(solve: Solve, tmp_path: Path, classes: int) -> None:
    stores = [small_store(tmp_path / f"{rows}", shard_rows=rows, classes=classes) for rows in (ROWS, 41)]
    X, y = read_shards(stores[0])[0], Store.open(stores[0]).labels()
    here = offline_optimum(X, y, loss="logistic", alpha=list(OPTIONS.alphas), tol=1e-2, n_classes=classes)
    for k, store in enumerate(stores):
        out = solve(f"out-{k}", rows=store)
        rows = pq.read_table(out / "optimum.parquet").to_pylist()
        for i, alpha in enumerate(OPTIONS.alphas):
            mine = [row for row in rows if row["alpha"] == alpha]
            assert sum(row["objective"] for row in mine) == here.objective[i]
            assert sum(row["dual"] for row in mine) == here.dual[i]
            assert max(row["passes"] for row in mine) == here.passes[i]
            assert all(row["converged"] for row in mine)
            assert sum(row["nonzeros"] for row in mine) == np.count_nonzero(here.weights[i])
            if classes == 2:
                np.testing.assert_array_equal(weights(out, alpha), here.weights[i])
        assert sorted(path.name for path in out.iterdir() if path.name.startswith(".")) == []


def test_an_intercept_is_that_of_offline_optimum(solve: Solve, store: Path) -> None:
    X, y = read_shards(store)[0], Store.open(store).labels()
    here = offline_optimum(X, y, alpha=1.0, tol=1e-3, fit_intercept=True)
    out = solve(options=OptimumOptions(tol=1e-3, intercept=True))
    assert Model(out / "alpha-1.0").intercepts.tolist() == [here.intercept]
    assert here.intercept != 0
    np.testing.assert_array_equal(weights(out, 1.0), here.weights)


@pytest.mark.usefixtures("by_passes")
def test_a_large_store_has_no_intercept(solve: Solve) -> None:
    with raises_code("unsupported-combination"):
        solve(options=OptimumOptions(intercept=True))


def test_solved_columns_are_not_solved_again(solve: Solve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that failed at its end resumes from its columns; a corrupt one is solved again."""
    whole = solve("whole")
    with stopped_at("sparseoco.storage.tables.write_result_table"):
        solve("parts")
    left = sorted((tmp_path / "parts").rglob("*.npz"))
    assert len(left) == len(OPTIONS.alphas)
    left[1].write_bytes(b"PK torn")
    written = Mock(wraps=module.write_column)
    monkeypatch.setattr(module, "write_column", written)
    parts = solve("parts")
    assert [call.args[1] for call in written.call_args_list] == [left[1]]
    assert_same_folder(parts, whole)


@pytest.mark.usefixtures("by_passes")
def test_bits_do_not_depend_on_shards_workers_or_columns(
    solve: Solve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = small_store(tmp_path / "a", shard_rows=ROWS)
    second = small_store(tmp_path / "b", shard_rows=41)
    alone = [expected(first, alpha=alpha, tol=1e-2) for alpha in OPTIONS.alphas]
    together = expected(first, alpha=list(OPTIONS.alphas), tol=1e-2)
    a = solve("out-a", rows=first)
    monkeypatch.setattr("sparseoco.offline.quasi_newton.SOLVER_BYTES", 1)
    b = solve("out-b", rows=second)
    rows = pq.read_table(a / "optimum.parquet").to_pylist()
    assert (b / "optimum.parquet").read_bytes() == (a / "optimum.parquet").read_bytes()
    for i, alpha in enumerate(OPTIONS.alphas):
        np.testing.assert_array_equal(together.weights[i], alone[i].weights)
        for out in (a, b):
            np.testing.assert_array_equal(weights(out, alpha), alone[i].weights)
        for name in ("objective", "dual", "gap", "passes", "converged"):
            assert rows[i][name] == getattr(alone[i], name) == getattr(together, name)[i], name
        assert rows[i]["class"] == "c1"
        assert rows[i]["nonzeros"] == np.count_nonzero(alone[i].weights)


@pytest.mark.usefixtures("by_passes")
def test_a_stopped_run_resumes_with_the_same_bits(solve: Solve, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = solve("whole")
    monkeypatch.setattr(module, "SOLVER_SECONDS", -1.0)
    taken = []
    plain = QuasiNewton.step

    def step(self: QuasiNewton) -> None:
        taken.append("pass")
        plain(self)

    def stop_sometimes(step: str, done: int, total: int) -> None:
        if len(taken) % 4 == 3:
            taken.append("stopped")
            raise KeyboardInterrupt

    monkeypatch.setattr(QuasiNewton, "step", step)
    for _ in range(100):
        try:
            with progress_to(stop_sometimes):
                parts = solve("parts")
            break
        except KeyboardInterrupt:
            continue
    passes = pq.read_table(whole / "optimum.parquet")["passes"].to_pylist()
    assert taken.count("stopped") >= 2
    assert taken.count("pass") == max(passes)
    assert_same_folder(parts, whole)


@pytest.mark.usefixtures("by_passes")
def test_a_finished_run_is_repeated_for_other_options_only(solve: Solve) -> None:
    before = {path: path.stat().st_mtime_ns for path in solve().rglob("*")}
    assert {path: path.stat().st_mtime_ns for path in solve().rglob("*")} == before
    out = solve(options=OPTIONS.model_copy(update={"alphas": (9.0,)}))
    assert pq.read_table(out / "optimum.parquet")["alpha"].to_pylist() == [9.0]


@pytest.mark.usefixtures("by_passes")
@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
def test_weights_of_documents_in_a_large_store(solve: Solve, tmp_path: Path, loss: str) -> None:
    store = with_columns(small_store(tmp_path / "plain", rows=80, features=12), tmp_path / "store")
    out = solve(options=OptimumOptions(alphas=(1.0,), tol=1e-2, loss=loss), rows=store)
    (row,) = pq.read_table(out / "optimum.parquet").to_pylist()
    X, y = read_shards(store)[0], Store.open(store).labels()
    own = (np.arange(len(y)) % 4) / 2
    here = offline_optimum(X, y, alpha=1.0, loss=loss, tol=1e-2, sample_weight=own)
    assert row["converged"]
    assert row["dual"] <= here.objective
    assert here.dual <= row["objective"]
    w = weights(out, 1.0, 12)
    assert row["objective"] == pytest.approx(own @ VALUES[loss](X @ w, 2 * y - 1) + np.abs(w).sum(), rel=1e-9)


@pytest.mark.usefixtures("by_passes")
def test_a_corrupt_state_is_ignored(solve: Solve, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    monkeypatch.setattr(module, "SOLVER_SECONDS", -1.0)
    torn: list[Path] = []

    def tear(step: str, done: int, total: int) -> None:
        if not torn:
            torn.extend(out.glob(".columns/*/state.npz"))
            torn[0].write_bytes(b"PK torn")

    with progress_to(tear):
        solve()
    assert len(torn) == 1
    alone = expected(store, alpha=OPTIONS.alphas[0], tol=1e-2)
    np.testing.assert_array_equal(weights(out, OPTIONS.alphas[0]), alone.weights)


def test_a_restored_solver_continues_with_the_same_bits() -> None:
    random = np.random.default_rng(0)
    X, y = random.integers(0, 3, (80, 20)), random.integers(0, 2, 80).astype(np.float64)
    passes = full_passes.LocalPasses.of(sp.csr_matrix(X), y)
    problem = OptimumProblem.of(OptimumOptions(alphas=(0.5, 30.0), loss="hinge"), 2)
    one = QuasiNewton(passes, problem, tol=1e-2)
    for _ in range(12):
        one.step()
    other = QuasiNewton(passes, problem, tol=1e-2, saved=one.state())
    for _ in range(5):
        one.step()
        other.step()
    for name, value in one.state().items():
        np.testing.assert_array_equal(other.state()[name], value, err_msg=name)


def test_the_command_writes_models_that_predict(tmp_path: Path) -> None:
    store = small_store(tmp_path / "store", classes=3)
    arguments = ["optimum", str(store), "--out", str(tmp_path / "out"), "--alpha", "5,20", "--penalty", "elastic_net"]
    arguments += ["--tf", "count", "--idf", "false", "--norm", "none", "--tol", "1e-2", "--threads", "2"]
    found = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert found.exit_code == 0, found.output
    assert "objective" in found.output
    rows = pq.read_table(tmp_path / "out" / "optimum.parquet").to_pylist()
    assert [(row["alpha"], row["class"]) for row in rows] == [(a, f"c{k}") for a in (5.0, 20.0) for k in range(3)]
    assert all(row["converged"] and row["relative_gap"] <= 1e-2 for row in rows)
    model = Model(tmp_path / "out" / "alpha-20.0")
    assert model.outputs == 3
    X, y = read_shards(store)[0], Store.open(store).labels()
    whole = offline_optimum(X, y, alpha=20.0, tol=1e-2, penalty="elastic_net", n_classes=3)
    assert model.description["objective"] == whole.objective
    assert model.description["nonzeros"] == np.count_nonzero(whole.weights)


@pytest.mark.parametrize(
    ("options", "code", "values"),
    [
        (["--loss", "squared"], "invalid-labels", ["loss='squared'"]),
        (["--loss", "softmax"], "unsupported-combination", ["loss='softmax'", "loss='logistic'"]),
        (["--alpha", "0"], "invalid-option", ["alpha", "box"]),
        (["--alpha", "1,x"], "invalid-option", ["alphas.1"]),
        (["--alpha", "1,-2"], "invalid-option", ["alpha", "above 0"]),
        (["--box", "-1"], "invalid-option", ["box"]),
        (["--tol", "0"], "invalid-option", ["tol"]),
        (["--max-passes", "0"], "invalid-option", ["max_passes"]),
        (["--penalty", "elastic_net", "--l1-ratio", "2"], "invalid-option", ["l1_ratio"]),
    ],
)
def test_invalid_options_are_refused(
    store: Path, tmp_path: Path, options: list[str], code: str, values: list[str]
) -> None:
    command = ["optimum", str(store), "--out", str(tmp_path / "out"), *options]
    with raises_code(code, *values):
        CliRunner().invoke(app, command, catch_exceptions=False)


@pytest.mark.parametrize("nonzeros", [0, module.NEWTON_NONZEROS])
def test_optima_of_weighted_counts_are_those_of_their_values(
    solve: Solve, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nonzeros: int
) -> None:
    monkeypatch.setattr(module, "NEWTON_NONZEROS", nonzeros)
    weighting = Weighting(tf="log", idf=True, norm="l2")
    values = with_values(store, tmp_path / "values", weighting)
    options = OptimumOptions(alphas=(2.0,), tol=0.1)
    expected = solve("expected", options, values)
    out = solve(options=options.model_copy(update={"weighting": weighting}))
    np.testing.assert_array_equal(weights(out, 2.0), weights(expected, 2.0))
    assert pq.read_table(out / "optimum.parquet").equals(pq.read_table(expected / "optimum.parquet"))
    assert Model(out / "alpha-2.0").weighting == weighting


# ----------------------------------------------------------------------------------------------------------------------
# λ_max against dense formulas and the optimum itself.


RANDOM = np.random.default_rng(0)
X = sp.csr_matrix(RANDOM.poisson(0.4, (90, 25)) * RANDOM.random(25))
LABELS = RANDOM.integers(0, 3, 90)
BINARY = (LABELS > 0).astype(np.int64)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge", "hinge"])
def test_all_weights_are_0_from_it_on(loss: str) -> None:
    largest = 90 * module.lambda_max_of(full_passes.Matrix(X, BINARY), 25, find_loss(loss), 1)
    for factor, nonzeros in ((1.001, False), (0.98, True)):
        optimum = offline_optimum(X, BINARY, loss=loss, alpha=factor * largest, tol=1e-9)
        assert np.any(np.abs(optimum.weights) > 1e-9) == nonzeros, factor


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(
    ("loss", "labels"),
    [
        *((loss, BINARY) for loss in ("logistic", "squared_hinge")),
        *((loss, LABELS) for loss in ("logistic", "softmax")),
        ("squared", RANDOM.normal(3.0, 1.0, 90)),
    ],
)
def test_it_is_the_largest_slope_at_the_best_intercept(
    loss: str, labels: np.ndarray, intercept: bool, weighted: bool
) -> None:
    weights = np.random.default_rng(1).integers(0, 3, 90).astype(np.float64) if weighted else np.ones(90)
    truth = labels[:, None] == (np.arange(3) if labels is LABELS else np.ones(1))
    truth = labels[:, None] if loss == "squared" else truth.astype(float)
    outputs = truth.shape[1]
    mean, signs = weights @ truth / weights.sum(), 2 * truth - 1
    p = mean if intercept else 1 / max(outputs, 2) if loss == "softmax" else 0.5
    slopes = {
        "logistic": p - truth,
        "softmax": p - truth,
        "squared_hinge": -2 * signs * (1 - signs * (2 * p - 1)),
        "squared": mean * intercept - truth,
    }[loss]
    gradient = X.T @ (weights[:, None] * slopes) / 90
    source = full_passes.Matrix(X, labels, weights)
    for grouped, largest in ((False, np.abs(gradient).max()), (True, np.linalg.norm(gradient, axis=1).max())):
        value = module.lambda_max_of(source, 25, find_loss(loss), outputs, intercept=intercept, grouped=grouped)
        assert value == pytest.approx(largest, rel=1e-9 if intercept else 1e-12)


def test_of_a_store(client: Client, tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", rows=150, features=60, classes=3)
    weighting = Weighting(tf="log", idf=True, norm="l2")
    values = with_values(store, tmp_path / "values", weighting)
    expected = full_passes.Matrix(read_shards(values)[0], Store.open(values).labels())
    reference, alone = store_reference(Store.open(store)), module.lambda_max_of(expected, 60, find_loss("logistic"), 3)
    plain = {"grouped": False, "intercept": False}
    assert module.lambda_max(client, module.RowsSource(reference, weighting), "logistic", **plain) == alone
    assert module.lambda_max(client, module.RowsSource(reference, COUNTS), "logistic", **plain) != alone
    doubled = module.lambda_max(
        client, module.RowsSource(reference, weighting, (2.0, 2.0, 2.0)), "logistic", grouped=False, intercept=True
    )
    single = module.lambda_max_of(expected, 60, find_loss("logistic"), 3, intercept=True)
    assert doubled == pytest.approx(2 * single, rel=1e-12)


# ----------------------------------------------------------------------------------------------------------------------
# The full-gradient pass: what it computes, and that bits do not depend on the division of the work.


SPANS = [
    full_passes.Span(),
    full_passes.Span(seed=5, epoch=2, range_rows=1, stop=170),
    full_passes.Span(seed=5, fold=1, folds=3, start=20),
    full_passes.Span(seed=5, range_rows=1, fold=0, folds=4, start=10, stop=290),
]
REQUESTS = [
    full_passes.PassRequest("logistic", (1, 0, 1, 0, 1)),
    full_passes.PassRequest("squared", (-1, -1, 0, 1, -1)),
    full_passes.PassRequest("hinge", (1, 1, 0, 0, 1), (0.5, 0.25, 0.125, 1.0, 1e-3)),
]


COLUMNS = np.random.default_rng(1).normal(size=(200, 5))
"""Weights of the requests."""


def local(store: Path, span: full_passes.Span = full_passes.WHOLE) -> full_passes.LocalPasses:
    X, _ = read_shards(store)
    return local_passes_over(X, Store.open(store).labels(), span)


def cluster(
    client: Client, store: Path, work: Path, span: full_passes.Span = full_passes.WHOLE
) -> module.ClusterPasses:
    return module.ClusterPasses(client, module.RowsSource(store_reference(Store.open(store))), work, span)


def same(a: Any, b: Any) -> None:
    for name in ("loss_sum", "exact_sum", "gradient"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


@pytest.mark.formulas
@given(
    rows=st.integers(0, 60),
    features=st.integers(1, 12),
    loss=st.sampled_from(["logistic", "squared", "squared_hinge", "hinge"]),
    span=st.tuples(st.integers(0, 20), st.integers(20, 60), st.booleans(), st.integers(-1, 2)),
)
@settings(max_examples=40, deadline=None)
def test_a_pass_is_the_dense_formula(rows: int, features: int, loss: str, span: tuple[int, int, bool, int]) -> None:
    X, signs = problems.problem("logistic", rows, features, 0)
    y, (first, last, shuffle, fold) = (signs > 0).astype(np.float64), span
    where = full_passes.Span(
        seed=2, range_rows=int(shuffle), fold=fold, folds=3, start=min(first, rows), stop=min(last, rows)
    )
    weights = np.random.default_rng(1).normal(size=(features, 3))
    pass_request = full_passes.PassRequest(loss, (-1, -1, -1) if loss == "squared" else (1, 0, 1))
    passes = local_passes_over(X, y, where)
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
@settings(max_examples=40)
def test_leaves_are_a_power_of_two_of_ranges_that_cover_the_span(
    rows: int, features: int, each: int, cut: int, nonzeros: int | None
) -> None:
    span = full_passes.Span(start=min(cut, rows))
    bounds = full_passes.Leaves(span, full_passes.Shape(rows, features, rows * each), nonzeros).bounds()
    assert len(bounds) & (len(bounds) - 1) == 0
    assert full_passes.FEWEST_LEAVES <= len(bounds) <= full_passes.MOST_LEAVES
    assert [start for start, _ in bounds[1:]] == [stop for _, stop in bounds[:-1]]
    assert (bounds[0][0], bounds[-1][1]) == (span.start, rows)
    sizes = {stop - start for start, stop in bounds}
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(("span", "pass_request"), [*zip(SPANS, [*REQUESTS, REQUESTS[2]], strict=True)])
def test_the_cluster_gives_the_bits_of_one_process(
    client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    span: full_passes.Span,
    pass_request: full_passes.PassRequest,
) -> None:
    stores = [make_store(tmp_path / f"{rows}", shard_rows=rows) for rows in (300, 41)]
    scale = np.linspace(0.5, 1.0, 5)
    here = local(stores[0], span)
    expected = here.totals(COLUMNS, pass_request)
    for store, chunk in zip(stores, (4096, 7), strict=True):
        monkeypatch.setattr("sparseoco.offline.passes.CHUNK_ROWS", chunk)
        there = cluster(client, store, tmp_path / f"work-{chunk}", span)
        totals = there.totals(COLUMNS, pass_request)
        same(totals, expected)
        slopes = here.slopes(expected)
        np.testing.assert_array_equal(SlopeFiles(totals.slopes[0])(np.arange(len(slopes))), slopes)
        conjugates = here.conjugates(expected, pass_request, scale)
        np.testing.assert_array_equal(there.conjugates(totals, pass_request, scale), conjugates)
        np.testing.assert_array_equal(there.squares(), here.squares())
        there.drop(totals)
        assert list((tmp_path / f"work-{chunk}").iterdir()) == []


def test_bits_do_not_depend_on_the_number_of_tasks_or_processes(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(tmp_path / "store", shard_rows=60)
    expected = local(store).totals(COLUMNS, REQUESTS[0])
    for tasks in (1, 100):
        monkeypatch.setattr("sparseoco.offline.cluster.passes.TASKS_PER_SLOT", tasks)
        passes = cluster(client, store, tmp_path / f"work-{tasks}")
        assert len(passes.bounds) == 8
        assert len(passes._runs()) == min(8, 2 * tasks)
        same(passes.totals(COLUMNS, REQUESTS[0]), expected)
    monkeypatch.undo()
    with connect(ClusterOptions(workers=1), tmp_path / "scratch") as processes:
        same(cluster(processes, store, tmp_path / "work").totals(COLUMNS, REQUESTS[0]), expected)


def test_sums_that_do_not_fit_are_refused(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = cluster(client, make_store(tmp_path / "store"), tmp_path / "work")
    small = WorkerShape(2, 200 * 8 * 20, 2)
    monkeypatch.setattr("sparseoco.offline.cluster.passes.worker_shape", lambda client: small)
    with raises_code("out-of-memory", "5 columns", "200 features"):
        passes.totals(np.ones((200, 5)), REQUESTS[0])
