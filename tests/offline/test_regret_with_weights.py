"""Regret of streams with weights of rows and classes and an intercept: against dense recursions and SciPy."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparseoco.kernels.order import epoch_rows
from sparseoco.offline.epochs import fit_epochs
from sparseoco.offline.regret import run as cluster_regret
from sparseoco.pipeline import comparators
from sparseoco.store.shards import Store, read_shards
from tests.offline.problems import CLUSTER, FEATURES, MARKS, ROWS, SEED, minimum, table, write_search
from tests.oracles.stream import ORACLES, VALUES
from tests.oracles.weights import labels_of, rows_of, unpenalised
from tests.support.errors import raises_code
from tests.support.stores import make_store, with_columns

CLASS_WEIGHT = {"c1": 0.5}
GRID = {"algorithms": {"cl-fobos": {"lam": [0.01], "eta0": [0.5]}}}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    plain = make_store(folder / "plain", rows=ROWS, features=FEATURES, shard_rows=60)
    (folder / "weighted").mkdir()
    return with_columns(plain, folder / "weighted")


@pytest.fixture(scope="module")
def run(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_search(tmp_path_factory.mktemp("run"), store, intercept=None, class_weight=CLASS_WEIGHT)
    comparators.regret(folder, CLUSTER, marks=MARKS, tol=1e-7, numbers=range(6))
    return folder


DENSE = [
    ("fobos", 0, {"eta0": 0.5, "lam": 0.01}),
    ("cl-fobos", 2, {"eta0": 0.5, "lam": 0.01}),
    ("ftrl-proximal", 3, {"R": 0.2, "lam": 0.01}),
    ("stda", 4, {"gamma": 2.0, "lam": 0.02, "p": 2, "by": "subgradient", "V": 1e8}),
]


@pytest.mark.parametrize(("name", "number", "parameters"), DENSE, ids=[name for name, *_ in DENSE])
def test_regret_is_what_brute_force_says(
    run: Path, store: Path, name: str, number: int, parameters: dict[str, Any]
) -> None:
    order = epoch_rows(SEED, 1, True, ROWS, 0, ROWS, -1, 1)
    labels = Store.open(store).labels()[order]
    weights = (order % 4) / 2 * np.where(labels == 1, 0.5, 1.0)
    A = rows_of(read_shards(store)[0].toarray()[order].astype(float), intercept=True)
    X, y = A * (weights > 0)[:, None], labels_of(2.0 * labels - 1, weights)
    own = unpenalised(parameters, FEATURES + 1)
    w = np.array([np.zeros(FEATURES + 1), *ORACLES[name](X, y, "logistic", **own)][:ROWS])
    losses = weights * [VALUES["logistic"](x @ v, float(b)) for x, v, b in zip(A, w, y, strict=True)]
    h = np.ones((ROWS, FEATURES + 1))
    signs = y.astype(float)
    if name == "stda":
        slopes = -weights * signs / (1 + np.exp(signs * np.einsum("ti,ti->t", A, w)))
        h = np.sqrt(((slopes[:, None] * X) ** 2).cumsum(axis=0))
    penalties = (own["lam"] * h * np.abs(w)).sum(axis=1)
    rows = [row for row in table(run, "regret") if row["configuration"] == number]
    assert [row["T"] for row in rows] == [50, 74, 109, 160]
    R = [parameters.get("R")] * FEATURES + [None]
    for row in rows:
        T = row["T"]
        incurred = losses[:T].sum() + penalties[:T].sum()
        best = minimum(A[:T], signs[:T], own["lam"] * h[:T].sum(axis=0), R, weights[:T])
        assert row["learner_loss"] == pytest.approx(incurred, rel=1e-9)
        assert row["optimum"] - row["gap"] - 1e-6 <= best <= row["optimum"] + 1e-6
        assert row["gap"] <= 1e-7 * T * np.log(2)
        assert row["regret"] == pytest.approx(incurred - best, abs=1e-4)
        assert row["objective"].startswith("Σ_t f_t(w, b)")
        assert row["bound"] is None or row["bound"] > row["regret"]
    if name != "ftrl-proximal":  # whose theorem has a box, which the best intercept may leave
        assert all(row["bound"] for row in rows)


def test_epoch_methods(store: Path, tmp_path: Path) -> None:
    """The objective of `fit_epochs` against the optimum over weights and intercept; bounds have one coordinate more."""
    R, alpha, epochs = 3.0, 2.0, 2
    own = {"R": [R], "alpha": [alpha]}
    algorithms = {"caos-erm": own | {"estimate": ["corrected"]}, "cao-rcd": own}
    options = {"algorithms": algorithms, "epochs": epochs, "class_weight": CLASS_WEIGHT, "intercept": None}
    folder = write_search(tmp_path, store, **options)
    comparators.regret(folder, CLUSTER, tol=1e-4, numbers=range(2))
    X, labels = read_shards(store)[0], Store.open(store).labels()
    weights = (np.arange(ROWS) % 4) / 2 * np.where(labels == 1, 0.5, 1.0)
    A = rows_of(X.toarray().astype(float), intercept=True)
    best = minimum(A, 2.0 * labels - 1, np.append(np.full(FEATURES, alpha), 0.0), [R] * FEATURES + [None], weights)
    L = weights[:, None] * np.abs(A)
    bounds = {
        "caos-erm": lambda T: 8 * (FEATURES + 1) * R * np.sqrt(T) * L.max(axis=1).sum(),
        "cao-rcd": lambda T: 4 * np.sqrt(T) * ((R * L.sum(axis=0)) ** (2 / 3)).sum() ** 1.5,
    }
    for number, (name, grid) in enumerate(algorithms.items()):
        arguments = {"grid": grid, "epochs": epochs, "seed": SEED, "sample_weight": weights, "fit_intercept": True}
        fit = fit_epochs(X, labels, algorithm=name, **arguments)
        rows = [row for row in table(folder, "regret") if row["configuration"] == number]
        for s, row in enumerate(rows):
            assert row["objective"] == f"Σ_j f_j(w, b) + α‖w‖₁, |w_i| ≤ {R:g}"
            assert row["epoch_objective"] == pytest.approx(fit.objective[s, 0], rel=1e-12)
            assert row["suboptimality"] == pytest.approx(fit.objective[s, 0] - best, abs=1e-3)
            assert row["bound"] == pytest.approx(bounds[name](row["T"]))
            assert row["bound"] > row["regret"]


def test_the_first_rows_may_be_of_one_class(store: Path, tmp_path: Path) -> None:
    """Documents are sorted by class: before the second class the loss tends to 0 as the intercept to −∞."""
    folder = write_search(tmp_path, store, **GRID, intercept=True, shuffle=False)
    comparators.regret(folder, CLUSTER, marks=MARKS, tol=1e-4, numbers=[0])
    rows = table(folder, "regret")
    ones = Store.open(store).labels().cumsum()
    before = [row["optimum"] for row in rows if not ones[row["T"] - 1]]
    assert before
    assert max(before) < 1e-300
    assert rows[-1]["optimum"] > 1.0
    assert all(row["gap"] <= 1e-4 * ROWS for row in rows)


def test_large_stores(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights go through the passes on the cluster; an intercept does not, and is refused if it is asked for."""
    tables = []
    for name, size in (("tasks", cluster_regret.NEWTON_NONZEROS), ("passes", 0)):
        monkeypatch.setattr(cluster_regret, "NEWTON_NONZEROS", size)
        folder = write_search(tmp_path / name, store, **GRID, intercept=None if not size else False)
        comparators.regret(folder, CLUSTER, marks=MARKS, tol=1e-6, numbers=[0])
        tables.append(table(folder, "regret"))
    for here, there in zip(*tables, strict=True):
        assert here["objective"] == there["objective"] == "Σ_t f_t(w) + Tλ‖w‖₁"
        assert here["learner_loss"] == there["learner_loss"]
        assert abs(here["optimum"] - there["optimum"]) <= max(here["gap"], there["gap"]) + 1e-9
    asked = write_search(tmp_path / "asked", store, **GRID, intercept=True)
    with raises_code("unsupported-combination", "intercept"):
        comparators.regret(asked, CLUSTER, marks=MARKS, numbers=[0])
