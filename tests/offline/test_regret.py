"""From a search's folder to regret's tables: against dense recursions, other solvers' optima, kills, commands.

Also of streams with weights of rows and classes and an intercept.
"""

import random
import shutil
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.sparse import csr_matrix

from sparseoco.execution.clusters import ClusterOptions
from sparseoco.kernels.columns import RowBatch
from sparseoco.kernels.order import epoch_rows
from sparseoco.learners.losses import find_loss
from sparseoco.offline.epochs import fit_epochs
from sparseoco.offline.regret import run as cluster_regret
from sparseoco.offline.regret.run import Sums, epoch_marks
from sparseoco.pipeline import comparators, steps
from sparseoco.report.charts import styles
from sparseoco.report.figures import regret_lines, suboptimality_figure
from sparseoco.report.page import render
from sparseoco.report.results import leaderboard_rows, read_results
from sparseoco.storage.commit import commit_json, read_json
from sparseoco.storage.tables import write_result_table
from sparseoco.store.shards import Store, read_shards
from sparseoco.store.weighting import FeatureOptions
from sparseoco.training.search_tables import METRICS_SCHEMA
from tests.offline.oracles import bounds_of, chances_of, ranges_of
from tests.offline.problems import minimum
from tests.oracles.ftrl import ranges
from tests.oracles.losses import VALUES, labels_of, rows_of, unpenalised
from tests.oracles.stream import ORACLES
from tests.support.commands import call
from tests.support.damage import KINDS, damage
from tests.support.errors import raises_code
from tests.support.pages import figures
from tests.support.searches import metrics_row, plain_search
from tests.support.stores import make_store, with_columns, with_values

ROWS, FEATURES, MARKS, SEED = 160, 30, 4, 3
SCALED = {"lam": [0.3], "R": [0.2], "predict_gradient": ["none"], "schedule": ["sqrt"], "scale": ["first"]}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "fobos": {"lam": [0.01, 0.003], "eta0": [0.5]},
    "cl-fobos": {"lam": [0.01], "eta0": [0.5]},
    "ftrl-proximal": {"lam": [0.01], "R": [0.2]},
    "stda": {"lam": [0.02], "gamma": [2.0], "p": [2]},
    "rda": {"lam": [0.0], "gamma": [2.0]},
    "cao-ftrl": SCALED,
    "ao-gd": {"R": [0.2], "scale": ["first"]},
}
CLUSTER = ClusterOptions(threads=2)


def write_search(run: Path, store: Path, **more: Any) -> Path:
    """Write the files of a search that regret reads: of a search in which all configurations succeeded."""
    options = plain_search(**({"algorithms": ALGORITHMS, "folds": 1, "seed": SEED, "intercept": False} | more))
    opened = Store.open(store)
    classes = [entry.model_dump(mode="json") for entry in opened.manifest.labels.classes]
    sizes = {"rows": opened.n_rows, "features": opened.n_features, "classes": classes}
    corpus = {"store": opened.manifest.digest, "folder": str(store.resolve()), **sizes}
    search = options.model_dump(mode="json")
    commit_json(run / "run.json", {"name": "r", "seed": SEED, "version": "0", "corpus": corpus, "search": search})
    own: dict[str, Any] = {
        "loss": options.loss,
        "penalty": options.penalty,
        "rows": opened.n_rows,
        "progressive_loss": 0.5,
    }
    own |= {"held_out_rows": 0, "held_out_error": None}
    rows = [
        metrics_row(c.number, -1, 0.1 + c.number / 100, algorithm=c.algorithm, parameters=c.parameters_json)
        | c.weighting.model_dump()
        | own
        for c in options.configurations()
    ]
    write_result_table(run / "search" / "metrics.parquet", rows, METRICS_SCHEMA)
    return run


def table(run: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(run / "regret" / f"{name}.parquet").to_pylist()
    return rows


def files(run: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()}


CLASS_WEIGHT = {"c1": 0.5}
GRID = {"algorithms": {"cl-fobos": {"lam": [0.05], "eta0": [0.5]}}}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("store"), rows=ROWS, features=FEATURES, shard_rows=60)


@pytest.fixture(scope="module")
def weighted_store(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_columns(store, tmp_path_factory.mktemp("weighted"))


@pytest.fixture(scope="module")
def run(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return measured(write_search(tmp_path_factory.mktemp("run"), store))


@pytest.fixture(scope="module")
def weighted_run(weighted_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    options = {"intercept": None, "class_weight": CLASS_WEIGHT}
    return measured(write_search(tmp_path_factory.mktemp("weighted run"), weighted_store, **options))


def measured(folder: Path, marks: int = MARKS, tol: float = 1e-7, configurations: int = 8) -> Path:
    comparators.regret(folder, CLUSTER, marks=marks, tol=tol, numbers=range(configurations))
    return folder


ORDER = epoch_rows(SEED, 1, True, ROWS, 0, ROWS, -1, 1)


DENSE = [
    ("fobos", 0, {"eta0": 0.5, "lam": 0.01}),
    ("fobos", 1, {"eta0": 0.5, "lam": 0.003}),
    ("cl-fobos", 2, {"eta0": 0.5, "lam": 0.01}),
    ("ftrl-proximal", 3, {"R": 0.2, "lam": 0.01}),
    ("stda", 4, {"gamma": 2.0, "lam": 0.02, "p": 2, "by": "subgradient", "V": 1e8}),
    ("cao-ftrl", 6, {name: value for name, (value,) in SCALED.items()}),
    ("ao-gd", 7, {"R": 0.2, "scale": "first"}),
]


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize(("name", "number", "parameters"), DENSE, ids=[f"{n}-{k}" for n, k, _ in DENSE])
def test_regret_is_what_brute_force_says(
    name: str, number: int, parameters: dict[str, Any], weighted: bool, store: Path, request: pytest.FixtureRequest
) -> None:
    X, labels = read_shards(store)[0].toarray()[ORDER].astype(float), Store.open(store).labels()[ORDER]
    weights, own, signs = np.ones(ROWS), parameters, 2.0 * labels - 1
    if weighted:
        weights = (ORDER % 4) / 2 * np.where(labels == 1, 0.5, 1.0)
        own = unpenalised(parameters, FEATURES + 1)
    A = rows_of(X, intercept=weighted)
    learned, y = A * (weights > 0)[:, None], labels_of(signs, weights)
    w = np.array([np.zeros(A.shape[1]), *ORACLES[name](learned, y, "logistic", **own)][:ROWS])
    losses = weights * VALUES["logistic"](np.einsum("ti,ti->t", A, w), signs)
    h = np.ones(A.shape)
    if name == "stda":
        slopes = -weights * signs / (1 + np.exp(signs * np.einsum("ti,ti->t", A, w)))
        h = np.sqrt(((slopes[:, None] * A) ** 2).cumsum(axis=0))
    if "schedule" in parameters:  # ψ_t = (√t − √(t − 1))ψ, so that Σ_t ψ_t = √T·ψ
        h *= np.diff(np.sqrt(np.arange(ROWS + 1)))[:, None]
    lam = own.get("lam", 0.0)
    penalties = (lam * h * np.abs(w)).sum(axis=1)
    folder = request.getfixturevalue("weighted_run" if weighted else "run")
    rows = [row for row in table(folder, "regret") if row["configuration"] == number]
    assert [row["T"] for row in rows] == [50, 74, 109, 160]
    R = [parameters.get("R")] * FEATURES + [None] * weighted
    if "scale" in parameters:  # features in no row have any
        R = [*ranges(learned[:, :FEATURES], parameters["R"], "first"), *R[FEATURES:]]
    for row in rows:
        T = row["T"]
        incurred = losses[:T].sum() + penalties[:T].sum()
        best = minimum(A[:T], signs[:T], lam * h[:T].sum(axis=0), R, weights[:T])
        assert row["learner_loss"] == pytest.approx(incurred, rel=1e-9)
        assert row["optimum"] - row["gap"] - 1e-6 <= best <= row["optimum"] + 1e-6
        assert row["gap"] <= 1e-7 * T * np.log(2)
        assert row["regret"] == pytest.approx(incurred - best, abs=1e-4)
        assert row["objective"].startswith("Σ_t f_t(w, b)" if weighted else "Σ_t f_t(w)")
        assert row["exact"]
        assert row["algorithm"] == name
        if row["bound"] is None or name == "stda":
            assert row["loss_bound"] is None
        else:  # ψ(x) ≥ 0 is what is not known of the optimum
            at_x = row["loss_bound"] - row["bound"]
            assert row["loss_regret"] == pytest.approx(losses[:T].sum() - (row["optimum"] - at_x), abs=1e-9)
            assert (at_x > 0) == bool(np.any(lam))
            assert row["loss_bound"] > row["loss_regret"]
        assert weighted or row["regret"] > 0
        if weighted and "R" in parameters:  # whose theorem has a box, which the best intercept may leave
            assert row["bound"] is None or row["bound"] > row["regret"]
        else:
            assert row["bound"] > row["regret"]


def test_the_tables_agree_and_give_reasons(run: Path) -> None:
    rows, ends = table(run, "regret"), table(run, "slopes")
    assert [end["configuration"] for end in ends] == list(range(8))
    for end in ends[:5]:
        last = [row for row in rows if row["configuration"] == end["configuration"]][-1]
        assert (end["T"], end["regret"], end["bound"]) == (ROWS, last["regret"], last["bound"])
        assert end["bound_share"] == pytest.approx(end["regret"] / end["bound"])
        assert end["status"] == "ok"
    assert ends[3]["objective"] == "Σ_t f_t(w) + Tλ‖w‖₁, |w_i| ≤ 0.2"
    assert ends[4]["objective"] == "Σ_t f_t(w) + λ·Σ_t‖h_t∘w‖₁"
    assert ends[6]["objective"] == "Σ_t f_t(w) + √T·λ‖w‖₁, |w_i| ≤ 0.2/|x_i| of its first row"
    assert ends[5]["status"] == "failed"
    assert "lam=0 has no comparator" in ends[5]["reason"]


@pytest.mark.fault(52)
def test_only_missing_and_damaged_results_are_computed(run: Path, tmp_path: Path) -> None:
    before = files(run)
    cells = [Path(name).name for name in before if "cells" in name]
    assert {name.split("-")[0] for name in cells} == {"curve", "optimum", "bound"}
    other = tmp_path / "run"
    shutil.copytree(run, other)
    stamps = {path: path.stat().st_mtime_ns for path in (other / "regret" / "cells").iterdir()}
    comparators.regret(other, CLUSTER, marks=MARKS, tol=1e-7, numbers=range(8))
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    shutil.rmtree(other / "regret")
    kept = [path for path in (run / "regret" / "cells").iterdir() if path.name.startswith("curve")]
    kept += sorted((run / "regret" / "cells").glob("optimum-*"), key=lambda path: path.stat().st_mtime_ns)[:5]
    (other / "regret" / "cells").mkdir(parents=True)
    for path in kept:  # as of a run that was killed while it searched for optima
        shutil.copy(path, other / "regret" / "cells")
    for number, path in enumerate(sorted((other / "regret" / "cells").iterdir())):
        if number % 3 == 0:
            damage(path, KINDS[number // 3 % len(KINDS)], random.Random(number))
    comparators.regret(other, ClusterOptions(threads=1), marks=MARKS, tol=1e-7, numbers=range(8))
    assert files(other) == before


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_long_prefixes_are_solved_by_passes_on_the_cluster(
    weighted: bool, store: Path, weighted_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights go through the passes on the cluster; an intercept does not, and is refused if it is asked for."""
    tried = GRID["algorithms"] if weighted else {"stda": {"lam": [0.02], "gamma": [2.0]}, "cao-ftrl": SCALED}
    rows, tables = weighted_store if weighted else store, []
    for name, limit in (("near", cluster_regret.NEWTON_NONZEROS), ("far", 0)):
        monkeypatch.setattr(cluster_regret, "NEWTON_NONZEROS", limit)
        run = write_search(tmp_path / name, rows, algorithms=tried, intercept=False if limit else None)
        comparators.regret(run, CLUSTER, marks=2, tol=1e-2, numbers=range(len(tried)))
        tables.append(table(run, "regret"))
        assert not list((run / "regret" / "cells").glob("solving-*"))
    for near, far in zip(*tables, strict=True):
        assert near["objective"] == far["objective"]
        assert near["learner_loss"] == far["learner_loss"]
        assert abs(near["optimum"] - far["optimum"]) <= max(near["gap"], far["gap"]) + 1e-9
    asked = write_search(tmp_path / "asked", rows, **GRID, intercept=True)
    with raises_code("unsupported-combination", "intercept"):
        comparators.regret(asked, CLUSTER, marks=MARKS, numbers=[0])


def test_by_default_the_best_of_each_algorithm(run: Path, store: Path, tmp_path: Path) -> None:
    folder = write_search(tmp_path, store)
    shutil.copytree(run / "regret", folder / "regret")
    comparators.regret(folder, CLUSTER, marks=MARKS, tol=1e-7)
    assert [end["configuration"] for end in table(folder, "slopes")] == [0, 2, 3, 4, 5, 6, 7]


def test_regret_adds_up_over_classes(tmp_path: Path) -> None:
    """One-vs-rest: the regret is the sum of the binary ones."""
    store = make_store(tmp_path / "store", rows=60, features=12, classes=3)
    run = write_search(tmp_path / "run", store, algorithms={"fobos": {"lam": [0.01], "eta0": [0.5]}}, shuffle=False)
    comparators.regret(run, CLUSTER, marks=3, tol=1e-7)
    X, y = read_shards(store)[0].toarray().astype(float), Store.open(store).labels()
    (last,) = [row for row in table(run, "regret") if row["T"] == 60]
    best = [minimum(X, np.where(y == k, 1.0, -1.0), np.full(12, 0.6), None) for k in range(3)]
    assert last["optimum"] == pytest.approx(sum(best), abs=1e-4)


def test_a_diverging_learner_is_reported(store: Path, tmp_path: Path) -> None:
    run = write_search(tmp_path, store, algorithms={"fobos": {"lam": [0.01], "eta0": [0.5, 5e6]}})
    comparators.regret(run, CLUSTER, marks=3, numbers=[1])
    (end,) = table(run, "slopes")
    assert end["status"] == "diverged"
    assert end["reason"].startswith("diverged at row ")
    assert len(table(run, "regret")) < 3


def test_the_command(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A search and its regret, from the shards to the page."""
    shutil.copytree(store, tmp_path / "store")
    options = plain_search(algorithms={"rda": {"lam": [0.01], "gamma": [2.0]}}, folds=1, seed=SEED)
    steps.search(tmp_path / "store", tmp_path / "run", options, CLUSTER)
    assert read_json(tmp_path / "run" / "run.json")["corpus"]["folder"] == "../store"
    assert call(monkeypatch, "regret", tmp_path / "run", "--marks", "5", "--tol", "1e-5", "--threads", "2") == 0
    assert "rda" in capsys.readouterr().out
    assert ">Regret</h2>" in (tmp_path / "run" / "report" / "report.html").read_text()
    assert len(table(tmp_path / "run", "regret")) == 5
    shutil.move(tmp_path / "store", tmp_path / "moved")
    assert call(monkeypatch, "regret", tmp_path / "run", "--marks", "5", "--tol", "1e-5") == 2
    assert "[missing-store]" in capsys.readouterr().err
    named = ("--store", tmp_path / "moved")
    assert call(monkeypatch, "regret", tmp_path / "run", "--marks", "5", "--tol", "1e-5", *named) == 0
    assert call(monkeypatch, "regret", tmp_path / "run", "--configuration", "7", *named) == 2
    assert "There is no configuration 7: they are numbered 0 to 0." in capsys.readouterr().err


def test_errors(store: Path, tmp_path: Path) -> None:
    with raises_code("no-results", tmp_path / "nothing"):
        comparators.regret(tmp_path / "nothing", CLUSTER)
    three = make_store(tmp_path / "three", rows=40, features=12, classes=3)
    softmax = write_search(tmp_path / "softmax", three, algorithms={"fobos": {"lam": [0.01]}}, loss="softmax")
    with raises_code("no-comparator", "softmax"):
        comparators.regret(softmax, CLUSTER)
    with raises_code("store-changed", store):
        comparators.regret(softmax, CLUSTER, store_folder=store)
    run = write_search(tmp_path / "run", store)
    with raises_code("invalid-option", "tol=0.0"):
        comparators.regret(run, CLUSTER, tol=0.0)
    described = read_json(run / "run.json")
    del described["corpus"]["folder"]
    commit_json(run / "run.json", described)
    with raises_code("missing-store", run):
        comparators.regret(run, CLUSTER)


@pytest.mark.parametrize("nonzeros", [0, cluster_regret.NEWTON_NONZEROS])
def test_regret_on_weighted_counts_is_that_on_their_values(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nonzeros: int
) -> None:
    """A search of two weightings; the first configuration of the second."""
    monkeypatch.setattr(cluster_regret, "NEWTON_NONZEROS", nonzeros)
    features = FeatureOptions(tf=("count", "log"), idf=(True,), norm=("l2",))
    values = with_values(store, tmp_path / "values", features.weightings[1])
    weighted = write_search(tmp_path / "weighted", store, features=features, **GRID)
    plain = write_search(tmp_path / "plain", values, **GRID)
    comparators.regret(weighted, CLUSTER, marks=2, tol=0.1, numbers=[0, 1])
    comparators.regret(plain, CLUSTER, marks=2, tol=0.1, numbers=[0])
    for name in ("regret", "slopes"):
        found = [row for row in table(weighted, name) if row["configuration"] == 1]
        assert [row | {"configuration": 0} for row in found] == table(plain, name)


def test_the_first_rows_may_be_of_one_class(weighted_store: Path, tmp_path: Path) -> None:
    """Documents are sorted by class: before the second class the loss tends to 0 as the intercept to −∞."""
    folder = write_search(tmp_path, weighted_store, **GRID, intercept=True, shuffle=False)
    comparators.regret(folder, CLUSTER, marks=MARKS, tol=1e-4, numbers=[0])
    rows = table(folder, "regret")
    ones = Store.open(weighted_store).labels().cumsum()
    before = [row["optimum"] for row in rows if not ones[row["T"] - 1]]
    assert before
    assert max(before) < 1e-300
    assert rows[-1]["optimum"] > 1.0
    assert all(row["gap"] <= 1e-4 * ROWS for row in rows)


# ----------------------------------------------------------------------------------------------------------------------
# Regret of epoch methods: objectives at the ends of epochs against `fit_epochs`, optima, sums and bounds by hand.


EPOCHS = 3
OF_FEATURES = {"batch": [2], "sample": ["lipschitz"], "scale": ["max_abs"]}


def algorithms(R: float) -> dict[str, dict[str, Any]]:
    box = {"R": [R], "alpha": [2.0]}
    return {
        "caos-erm": box | {"estimate": ["corrected", "sampled"], "sample": ["lipschitz", "uniform"]},
        "cao-rcd": box | OF_FEATURES,
        "fobos": {"lam": [0.01], "eta0": [0.5]},
        "optimistic-averaging": box,
    }


EPOCH_METHODS = algorithms(0.5)


@pytest.fixture(scope="module")
def run_of_epochs(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return measured(
        write_search(tmp_path_factory.mktemp("run"), store, algorithms=EPOCH_METHODS, epochs=EPOCHS), 3, 1e-4, 7
    )


class Case(NamedTuple):
    """A run, and its rows, dense, with the intercept as the last column if there is one, and their minimum."""

    run: Path
    R: float
    A: np.ndarray
    signs: np.ndarray
    weights: np.ndarray
    ranges: np.ndarray
    """R_i of cao-rcd, with that of the intercept."""
    best: tuple[float, float]
    """With one R, and with these."""
    fit: dict[str, Any]


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "weights and an intercept"])
def case(request: pytest.FixtureRequest, store: Path, tmp_path_factory: pytest.TempPathFactory) -> Case:
    X, labels, weights = read_shards(store)[0], Store.open(store).labels(), np.ones(ROWS)
    folder, R, options = request.getfixturevalue("run_of_epochs"), 0.5, {}
    if request.param:
        R, weights = 3.0, (np.arange(ROWS) % 4) / 2 * np.where(labels == 1, 0.5, 1.0)
        weighted = with_columns(store, tmp_path_factory.mktemp("weighted"))
        own = {"epochs": EPOCHS, "class_weight": {"c1": 0.5}, "intercept": None}
        folder = measured(
            write_search(tmp_path_factory.mktemp("run"), weighted, algorithms=algorithms(R), **own), 3, 1e-4, 7
        )
        options = {"sample_weight": weights, "fit_intercept": True}
    A = rows_of(X.toarray().astype(float), intercept=request.param)
    alpha, signs, free = np.append(np.full(FEATURES, 2.0), [0.0] * request.param), 2.0 * labels - 1, [None]
    ranges = ranges_of(A, labels_of(signs, weights), R, "max_abs")
    boxes = ([*own[:FEATURES], *free * request.param] for own in (np.full(FEATURES, R), ranges))
    one, several = (minimum(A, signs, alpha, box, weights) for box in boxes)
    return Case(folder, R, A, signs, weights, ranges, (one, several), {"X": X, "y": labels, **options})


def regret_rows(run: Path, number: int) -> list[dict[str, Any]]:
    return [row for row in table(run, "regret") if row["configuration"] == number]


@pytest.mark.parametrize(
    ("number", "name", "grid"),
    [
        (0, "caos-erm", {"estimate": ["corrected"]}),
        (1, "caos-erm", {"estimate": ["corrected"], "sample": ["uniform"]}),
        (2, "caos-erm", {"estimate": ["sampled"]}),
        (4, "cao-rcd", OF_FEATURES),
        (6, "optimistic-averaging", {}),
    ],
)
def test_convergence_to_the_optimum(case: Case, number: int, name: str, grid: dict[str, Any]) -> None:
    grid = grid | {"R": [case.R], "alpha": [2.0]}
    fit = fit_epochs(**case.fit, algorithm=name, grid=grid, epochs=EPOCHS, seed=SEED)
    best, rows = case.best[number == 4], regret_rows(case.run, number)
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    first, H = rows[0]["T"], [case.weights.sum() * np.log(2), *fit.objective[:, 0]]
    every = [1, *(s + 1 if number == 6 else first * s for s in range(1, EPOCHS + 1))]  # means: a round an epoch
    for s, row in enumerate(rows, start=1):
        assert row["T"] == every[s]
        assert row["epoch_objective"] == pytest.approx(H[s], rel=1e-12)
        assert row["suboptimality"] == pytest.approx(H[s] - best, abs=1e-3)
        assert row["optimum"] == pytest.approx(row["T"] * best, rel=1e-5)
        losses = np.interp(np.arange(1, every[s] + 1), every[: s + 1], H[: s + 1])
        assert row["learner_loss"] == pytest.approx(losses.sum())
        assert row["regret"] == pytest.approx(row["learner_loss"] - row["optimum"])
        assert not row["exact"]
    (end,) = [end for end in table(case.run, "slopes") if end["configuration"] == number]
    assert end["suboptimality"] == rows[-1]["suboptimality"] >= -end["suboptimality_open"]
    variables, own = "w, b" if "fit_intercept" in case.fit else "w", "/max_j |a_{j,i}|" if number == 4 else ""
    assert end["objective"] == f"Σ_j f_j({variables}) + α‖w‖₁, |w_i| ≤ {case.R:g}{own}"
    assert end["exact"] is False


def test_bounds(case: Case) -> None:
    """Corollary 6 and Theorem 7 with their quantities counted on the dense matrix; a sentence where neither holds.

    The intercept is one coordinate more.
    """
    A, R, n = case.A, case.R, case.A.shape[1]
    sizes = case.weights * np.abs(A).max(axis=1)
    for number, size in enumerate([sizes.sum(), np.sqrt(np.count_nonzero(sizes) * (sizes**2).sum())]):
        for row in regret_rows(case.run, number):
            assert row["bound"] == pytest.approx(8 * n * R * np.sqrt(row["T"]) * size)
            assert row["bound"] > row["regret"]
    box = case.ranges
    L = bounds_of(A, labels_of(case.signs, case.weights), "logistic", box)
    blocks, _ = chances_of(L, box, 2, "lipschitz")
    sides = np.array([box[block].sum() * np.linalg.norm(L[block]) for block in blocks])
    for row in regret_rows(case.run, 4):
        assert row["bound"] == pytest.approx(4 * np.sqrt(row["T"]) * (sides ** (2 / 3)).sum() ** 1.5)
        assert row["bound"] > row["regret"]
    norms = np.abs(A).sum(axis=1)
    G, M = case.weights @ norms, 0.25 * case.weights @ norms**2
    for row in regret_rows(case.run, 6):
        T = row["T"]
        worst = min(8 * 6.2 * R * G * np.sqrt(T / 3), (2 * 6.2 * R * G + 4 * (6.2 * R) ** 2 * M) * T / (T + 1))
        assert row["bound"] == pytest.approx(worst)
        assert worst > row["regret"]
        assert row["data_bound"] is None
    none = [row for number in (2, 3) for row in regret_rows(case.run, number)]
    assert {row[bound] for row in none for bound in ("bound", "data_bound")} == {None}
    assert all(0 < row["data_bound"] < row["bound"] for number in (0, 1, 4) for row in regret_rows(case.run, number))
    ends = {end["configuration"]: end for end in table(case.run, "slopes")}
    assert "estimate='corrected'" in ends[2]["bound_note"]
    assert ends[0]["bound_expected"]
    assert ends[5]["epoch"] is None


def test_sums_in_a_box() -> None:
    """Of losses without a bound on their slope the box gives one, met at a corner; parts add up."""
    X = np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    y, R = np.array([0, 1, 1, 0]), 0.5
    sparse = csr_matrix(X)
    loss = find_loss("squared_hinge")
    corners = R * np.array(list(product([-1, 1], repeat=3)))
    steepest = [max(abs(loss.slope(x @ w, 2.0 * b - 1)) for w in corners) for x, b in zip(X, y, strict=True)]
    found = Sums.of(RowBatch(sparse.indptr, sparse.indices, sparse.data, y), loss, [1], R)
    assert pytest.approx(np.array(steepest) @ X.max(axis=1)) == found.L
    assert pytest.approx(((np.array(steepest) * X.max(axis=1)) ** 2).sum()) == found.L2
    assert found.at_zero == 4.0
    parts = [csr_matrix(X[part]) for part in (slice(0, 2), slice(2, 4))]
    halves = [
        Sums.of(RowBatch(p.indptr, p.indices, p.data, q), loss, [1], R)
        for p, q in zip(parts, (y[:2], y[2:]), strict=True)
    ]
    assert halves[0] + halves[1] == pytest.approx(found)


def test_the_error_from_every_second_epoch() -> None:
    straight, bent = (
        list(epoch_marks(10, H[0], H[1:], [1.0, 2.0, 3.0], [4.0, 5.0, 6.0])) for H in ([9, 6, 3, 0], [9, 1, 3, 0])
    )
    assert [(mark["T"], mark["data_bound"]) for mark in bent] == [(10, 4), (20, 5), (30, 6)]
    assert bent[0]["penalty_error"] == 0
    assert bent[1]["penalty_error"] > 30
    assert straight[2]["penalty_error"] < 5


def test_existing_results_are_reused(run_of_epochs: Path, tmp_path: Path) -> None:
    """A run that lost a curve, or all but the cells of its epochs, gives the same bytes."""
    before, other = files(run_of_epochs), tmp_path / "run"
    assert not (run_of_epochs / "regret" / "cells" / "epochs").exists()
    shutil.copytree(run_of_epochs, other)
    for path in (other / "regret" / "cells").iterdir():
        if path.name.startswith(("curve", "optimum", "bound")):
            path.unlink()
    stamps = {path: path.stat().st_mtime_ns for path in (other / "regret" / "cells").iterdir()}
    assert len(stamps) == 6 * EPOCHS
    comparators.regret(other, CLUSTER, marks=3, tol=1e-4, numbers=range(7))
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    assert files(other) == before


def test_the_page(run_of_epochs: Path) -> None:
    """Epoch methods have a figure and a table of their own; the streams' leave them out."""
    results = read_results(run_of_epochs)
    board = leaderboard_rows(results)
    lines = [line for line in regret_lines(results, board) if line.epochs]
    assert {line.end["configuration"] for line in lines} == {0, 1, 2, 3, 4, 6}
    figure = suboptimality_figure(lines, styles(EPOCH_METHODS))
    assert {own.name for own in figure.series} == {"caos-erm", "cao-rcd", "optimistic-averaging"}
    for line, own in zip(lines, figure.series, strict=True):
        marks = [mark for mark in line.marks if mark["suboptimality"] > mark["gap"] / mark["T"]]
        assert own.y == [mark["suboptimality"] for mark in marks]
        assert own.x == [mark["passes"] for mark in marks]
    page = render(results, board, run_of_epochs)
    assert page.count("(in expectation)") == 3
    assert {"suboptimality", "growth"} < set(figures(page))
