"""Regret of epoch methods: objectives at the ends of epochs against `fit_epochs`, optima, sums and bounds by hand."""

import shutil
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from sparseoco.kernels.columns import RowBatch
from sparseoco.learners.losses import find_loss
from sparseoco.offline.epochs import fit_epochs
from sparseoco.offline.regret.run import Sums, block_quantities, epoch_marks
from sparseoco.pipeline import comparators
from sparseoco.report.charts import styles
from sparseoco.report.figures import regret_lines, suboptimality_figure
from sparseoco.report.page import render
from sparseoco.report.results import leaderboard_rows, read_results
from sparseoco.store.shards import Store, read_shards
from tests.offline.oracles import bounds_of, chances_of
from tests.offline.problems import CLUSTER, FEATURES, ROWS, SEED, files, minimum, table, write_search
from tests.oracles.weights import labels_of, rows_of
from tests.support.pages import figures
from tests.support.stores import make_store, with_columns

EPOCHS = 4


def algorithms(R: float) -> dict[str, dict[str, Any]]:
    box = {"R": [R], "alpha": [2.0]}
    return {
        "caos-erm": box | {"estimate": ["corrected", "sampled"], "sample": ["lipschitz", "uniform"]},
        "cao-rcd": box | {"batch": [2]},
        "fobos": {"lam": [0.01], "eta0": [0.5]},
    }


ALGORITHMS = algorithms(0.5)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("store"), rows=ROWS, features=FEATURES, shard_rows=60)


@pytest.fixture(scope="module")
def run(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return measured(write_search(tmp_path_factory.mktemp("run"), store, algorithms=ALGORITHMS, epochs=EPOCHS))


class Case(NamedTuple):
    """A run, and its rows, dense, with the intercept as the last column if there is one, and their minimum."""

    run: Path
    R: float
    A: np.ndarray
    signs: np.ndarray
    weights: np.ndarray
    best: float
    fit: dict[str, Any]


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "weights and an intercept"])
def case(request: pytest.FixtureRequest, store: Path, tmp_path_factory: pytest.TempPathFactory) -> Case:
    X, labels, weights = read_shards(store)[0], Store.open(store).labels(), np.ones(ROWS)
    folder, R, options = request.getfixturevalue("run"), 0.5, {}
    if request.param:
        R, weights = 3.0, (np.arange(ROWS) % 4) / 2 * np.where(labels == 1, 0.5, 1.0)
        weighted = with_columns(store, tmp_path_factory.mktemp("weighted"))
        own = {"epochs": EPOCHS, "class_weight": {"c1": 0.5}, "intercept": None}
        folder = measured(write_search(tmp_path_factory.mktemp("run"), weighted, algorithms=algorithms(R), **own))
        options = {"sample_weight": weights, "fit_intercept": True}
    A = rows_of(X.toarray().astype(float), intercept=request.param)
    alpha, box = np.append(np.full(FEATURES, 2.0), [0.0] * request.param), [R] * FEATURES + [None] * request.param
    best = minimum(A, 2.0 * labels - 1, alpha, box, weights)
    return Case(folder, R, A, 2.0 * labels - 1, weights, best, {"X": X, "y": labels, **options})


def measured(folder: Path) -> Path:
    comparators.regret(folder, CLUSTER, marks=3, tol=1e-4, numbers=range(6))
    return folder


def regret_rows(run: Path, number: int) -> list[dict[str, Any]]:
    return [row for row in table(run, "regret") if row["configuration"] == number]


@pytest.mark.parametrize(
    ("number", "name", "grid"),
    [
        (0, "caos-erm", {"estimate": ["corrected"]}),
        (1, "caos-erm", {"estimate": ["corrected"], "sample": ["uniform"]}),
        (2, "caos-erm", {}),
        (4, "cao-rcd", {"batch": [2]}),
    ],
)
def test_convergence_to_the_optimum(case: Case, number: int, name: str, grid: dict[str, Any]) -> None:
    grid = grid | {"R": [case.R], "alpha": [2.0]}
    fit = fit_epochs(**case.fit, algorithm=name, grid=grid, epochs=EPOCHS, seed=SEED)
    best, rows = case.best, regret_rows(case.run, number)
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4]
    each, H = rows[0]["T"], [case.weights.sum() * np.log(2), *fit.objective[:, 0]]
    for s, row in enumerate(rows, start=1):
        assert row["T"] == each * s
        assert row["epoch_objective"] == pytest.approx(H[s], rel=1e-12)
        assert row["suboptimality"] == pytest.approx(H[s] - best, abs=1e-3)
        assert row["optimum"] == pytest.approx(row["T"] * best, rel=1e-5)
        ends = [1, *range(each, each * s + 1, each)]
        assert row["learner_loss"] == pytest.approx(np.interp(np.arange(1, each * s + 1), ends, H[: s + 1]).sum())
        assert row["regret"] == pytest.approx(row["learner_loss"] - row["optimum"])
        assert not row["exact"]
    (end,) = [end for end in table(case.run, "slopes") if end["configuration"] == number]
    assert end["suboptimality"] == rows[-1]["suboptimality"] >= -end["suboptimality_open"]
    assert end["objective"] == f"Σ_j f_j({'w, b' if 'fit_intercept' in case.fit else 'w'}) + α‖w‖₁, |w_i| ≤ {case.R:g}"
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
    box = np.full(n, R)
    L = bounds_of(A, labels_of(case.signs, case.weights), "logistic", box)
    blocks, _ = chances_of(L, box, 2, "lipschitz")
    sides = np.array([len(block) * R * np.linalg.norm(L[block]) for block in blocks])
    for row in regret_rows(case.run, 4):
        assert row["bound"] == pytest.approx(4 * np.sqrt(row["T"]) * (sides ** (2 / 3)).sum() ** 1.5)
        assert row["bound"] > row["regret"]
    assert {row["bound"] for number in (2, 3) for row in regret_rows(case.run, number)} == {None}
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


def test_a_short_last_block() -> None:
    found = block_quantities(np.array([3.0, 4.0, 0.0, 0.0, 2.0]), np.full(5, 0.5), 2)
    assert found == pytest.approx({"RL": 5.0 ** (2 / 3) + 1.0, "RL1": 6.0, "blocks": 2.0})


def test_the_error_from_every_second_epoch() -> None:
    straight, bent = (list(epoch_marks(10, H[0], H[1:], [1.0, 2.0, 3.0])) for H in ([9, 6, 3, 0], [9, 1, 3, 0]))
    assert [mark["T"] for mark in bent] == [10, 20, 30]
    assert bent[0]["penalty_error"] == 0
    assert bent[1]["penalty_error"] > 30
    assert straight[2]["penalty_error"] < 5


def test_existing_results_are_reused(run: Path, tmp_path: Path) -> None:
    """A run that lost a curve, or all but the cells of its epochs, gives the same bytes."""
    before, other = files(run), tmp_path / "run"
    assert not (run / "regret" / "cells" / "epochs").exists()
    shutil.copytree(run, other)
    for path in (other / "regret" / "cells").iterdir():
        if path.name.startswith(("curve", "optimum", "bound")):
            path.unlink()
    stamps = {path: path.stat().st_mtime_ns for path in (other / "regret" / "cells").iterdir()}
    assert len(stamps) == 5 * EPOCHS
    comparators.regret(other, CLUSTER, marks=3, tol=1e-4, numbers=range(6))
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    assert files(other) == before


def test_the_page(run: Path) -> None:
    """Epoch methods have a figure and a table of their own; the streams' leave them out."""
    results = read_results(run)
    board = leaderboard_rows(results)
    lines = [line for line in regret_lines(results, board) if line.epochs]
    assert {line.end["configuration"] for line in lines} == {0, 1, 2, 3, 4}
    figure = suboptimality_figure(lines, styles(ALGORITHMS))
    assert {own.name for own in figure.series} == {"caos-erm", "cao-rcd"}
    for line, own in zip(lines, figure.series, strict=True):
        marks = [mark for mark in line.marks if mark["suboptimality"] > mark["gap"] / mark["T"]]
        assert own.y == [mark["suboptimality"] for mark in marks]
        assert own.x == [mark["passes"] for mark in marks]
    page = render(results, board, run)
    assert page.count("(in expectation)") == 3
    assert {"suboptimality", "growth"} < set(figures(page))
