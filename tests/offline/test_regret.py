"""From a search's folder to regret's tables: against dense recursions, other solvers' optima, kills, commands.

Also of streams with weights of rows and classes and an intercept.
"""

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparseoco.execution.clusters import ClusterOptions
from sparseoco.kernels.order import epoch_rows
from sparseoco.offline.regret import run as cluster_regret
from sparseoco.pipeline import comparators, steps
from sparseoco.storage.commit import commit_json, read_json
from sparseoco.store.shards import Store, read_shards
from sparseoco.store.weighting import FeatureOptions
from tests.offline.problems import CLUSTER, FEATURES, MARKS, ROWS, SEED, files, minimum, table, write_search
from tests.oracles.stream import ORACLES, VALUES
from tests.oracles.weights import labels_of, rows_of, unpenalised
from tests.support.commands import call
from tests.support.damage import KINDS, damage
from tests.support.errors import raises_code
from tests.support.searches import plain_search
from tests.support.stores import make_store, with_columns, with_values

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


def measured(folder: Path) -> Path:
    comparators.regret(folder, CLUSTER, marks=MARKS, tol=1e-7, numbers=range(7))
    return folder


ORDER = epoch_rows(SEED, 1, True, ROWS, 0, ROWS, -1, 1)


def the_stream(store: Path) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels, in the order of the run's first epoch."""
    X, _ = read_shards(store)
    return X.toarray()[ORDER].astype(float), Store.open(store).labels()[ORDER]


DENSE = [
    ("fobos", 0, {"eta0": 0.5, "lam": 0.01}),
    ("fobos", 1, {"eta0": 0.5, "lam": 0.003}),
    ("cl-fobos", 2, {"eta0": 0.5, "lam": 0.01}),
    ("ftrl-proximal", 3, {"R": 0.2, "lam": 0.01}),
    ("stda", 4, {"gamma": 2.0, "lam": 0.02, "p": 2, "by": "subgradient", "V": 1e8}),
    ("cao-ftrl", 6, {"R": 0.2, "lam": 0.3, "predict_gradient": "none", "schedule": "sqrt"}),
]


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize(("name", "number", "parameters"), DENSE, ids=[f"{n}-{k}" for n, k, _ in DENSE])
def test_regret_is_what_brute_force_says(
    name: str, number: int, parameters: dict[str, Any], weighted: bool, store: Path, request: pytest.FixtureRequest
) -> None:
    X, labels = the_stream(store)
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
    penalties = (own["lam"] * h * np.abs(w)).sum(axis=1)
    folder = request.getfixturevalue("weighted_run" if weighted else "run")
    rows = [row for row in table(folder, "regret") if row["configuration"] == number]
    assert [row["T"] for row in rows] == [50, 74, 109, 160]
    R = [parameters.get("R")] * FEATURES + [None] * weighted
    for row in rows:
        T = row["T"]
        incurred = losses[:T].sum() + penalties[:T].sum()
        best = minimum(A[:T], signs[:T], own["lam"] * h[:T].sum(axis=0), R, weights[:T])
        assert row["learner_loss"] == pytest.approx(incurred, rel=1e-9)
        assert row["optimum"] - row["gap"] - 1e-6 <= best <= row["optimum"] + 1e-6
        assert row["gap"] <= 1e-7 * T * np.log(2)
        assert row["regret"] == pytest.approx(incurred - best, abs=1e-4)
        assert row["objective"].startswith("Σ_t f_t(w, b)" if weighted else "Σ_t f_t(w)")
        assert row["exact"]
        assert row["algorithm"] == name
        assert weighted or row["regret"] > 0
        if weighted and "R" in parameters:  # whose theorem has a box, which the best intercept may leave
            assert row["bound"] is None or row["bound"] > row["regret"]
        else:
            assert row["bound"] > row["regret"]


def test_the_tables_agree_and_give_reasons(run: Path) -> None:
    rows, ends = table(run, "regret"), table(run, "slopes")
    assert [end["configuration"] for end in ends] == list(range(7))
    for end in ends[:5]:
        last = [row for row in rows if row["configuration"] == end["configuration"]][-1]
        assert (end["T"], end["regret"], end["bound"]) == (ROWS, last["regret"], last["bound"])
        assert end["bound_share"] == pytest.approx(end["regret"] / end["bound"])
        assert end["status"] == "ok"
    assert ends[3]["objective"] == "Σ_t f_t(w) + Tλ‖w‖₁, |w_i| ≤ 0.2"
    assert ends[4]["objective"] == "Σ_t f_t(w) + λ·Σ_t‖h_t∘w‖₁"
    assert ends[6]["objective"] == "Σ_t f_t(w) + √T·λ‖w‖₁, |w_i| ≤ 0.2"
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
    comparators.regret(other, CLUSTER, marks=MARKS, tol=1e-7, numbers=range(7))
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
    comparators.regret(other, ClusterOptions(threads=1), marks=MARKS, tol=1e-7, numbers=range(7))
    assert files(other) == before


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_long_prefixes_are_solved_by_passes_on_the_cluster(
    weighted: bool, store: Path, weighted_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights go through the passes on the cluster; an intercept does not, and is refused if it is asked for."""
    tried = GRID["algorithms"] | ({} if weighted else {"stda": {"lam": [0.02], "gamma": [2.0]}})
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
    assert [end["configuration"] for end in table(folder, "slopes")] == [0, 2, 3, 4, 5, 6]


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
    described = read_json(tmp_path / "run" / "run.json")
    assert described["corpus"]["folder"] == "../store"
    assert call(monkeypatch, "regret", tmp_path / "run", "--marks", "5", "--tol", "1e-5", "--threads", "2") == 0
    said = capsys.readouterr().out
    assert "rda" in said
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
    (tmp_path / "values").mkdir()
    values = with_values(store, tmp_path / "values", features.weightings[1])
    weighted = write_search(tmp_path / "weighted", store, features=features, **GRID)
    plain = write_search(tmp_path / "plain", values, **GRID)
    comparators.regret(weighted, CLUSTER, marks=3, tol=0.1, numbers=[0, 1])
    comparators.regret(plain, CLUSTER, marks=3, tol=0.1, numbers=[0])
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
