"""Tests of Mohri and Yang's claims on a small data set: regret, objectives, tables and the page."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from sparseoco.offline.epochs import fit_epochs
from sparseoco.papers.caos import runs
from sparseoco.papers.caos.experiment import TESTED_RADII
from sparseoco.papers.caos.saga import saga
from sparseoco.papers.rows import Row, column, grouped, select
from sparseoco.papers.sources import Documents
from tests.offline.oracles import cao_rcd, caos_erm, uniform
from tests.oracles.losses import SLOPES
from tests.oracles.stream import ORACLES
from tests.papers.small import load, rows_of

PAPER = "caos"
ROWS = 40


@pytest.fixture(scope="module")
def documents(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Documents:
    return load(data, "books", tmp_path_factory.mktemp("stores"))


def last_row(part: Any, R: float, factor: float | None) -> Row:
    """The row of a learner's cell after the last document."""
    return select(part["rows"], R=R, factor=factor)[-1]


def played(documents: Documents, order: np.ndarray, learner: Any, R: float, **it: float) -> tuple[float, np.ndarray]:
    """The losses of a learner in the box, dense, and the gradients of all rounds."""
    X, signs = documents.rows.toarray()[order], 2.0 * documents.labels[order] - 1
    after = ORACLES[learner.algorithm](X, signs, "logistic", R=R, **it)
    margins = np.array([x @ row for x, row in zip([np.zeros(X.shape[1]), *list(after)[:-1]], X, strict=True)])
    return np.logaddexp(0, -signs * margins).sum(), (-signs / (1 + np.exp(signs * margins)))[:, None] * X


def test_losses_match_the_formulas(documents: Documents) -> None:
    """AdaGrad and OGD in the box, round by round."""
    found, R = runs.playing_cell(documents, 0, "shuffled").run(), runs.ONLINE_RADII[1]
    step, X = runs.theorem_step(runs.OGD, R, documents.rows), documents.rows.toarray()
    assert step == pytest.approx(2 * R * X.shape[1] ** 0.5 / np.linalg.norm(X, axis=1).max())
    for learner, it in ((runs.ADAGRAD, {"eta": R, "delta": 1e-6}), (runs.OGD, {"eta0": step})):
        loss, _ = played(documents, runs.shuffle(ROWS, 0), learner, R, penalty="box", **it)
        assert last_row(found[learner.name], R, 1.0)["loss"] == pytest.approx(loss, rel=1e-9)


def test_bound_of_ao_gd_matches_its_gradients(documents: Documents) -> None:
    found, R = runs.playing_cell(documents, 1, "10 times in a row").run()[runs.AO_GD.name], runs.ONLINE_RADII[0]
    loss, gradients = played(documents, np.repeat(runs.shuffle(ROWS, 1), 10), runs.AO_GD, R)
    Delta = np.linalg.norm(np.diff(gradients, axis=0, prepend=0), axis=0)
    last = last_row(found, R, None)
    assert last["loss"] == pytest.approx(loss, rel=1e-9)
    assert last["bound"] == pytest.approx(4 * R * Delta.sum(), rel=1e-9)


def test_regret_is_against_the_best_point_of_the_box(out: Path, documents: Documents) -> None:
    rows = rows_of(out, "regret")
    A = (1 - 2 * documents.labels)[:, None] * documents.rows.toarray()
    for R in runs.ONLINE_RADII:
        best = minimize(
            lambda x: (np.logaddexp(0, A @ x).sum(), A.T @ expit(A @ x)),
            np.zeros(A.shape[1]),
            jac=True,
            method="L-BFGS-B",
            bounds=[(-R, R)] * A.shape[1],
            options={"ftol": 1e-14, "gtol": 1e-10},
        ).fun
        last = column(select(rows, R=R, T=ROWS, arrangement="shuffled"), "optimum")
        assert last == pytest.approx([best] * len(last), rel=2 * runs.TOLERANCE)
    assert {row["method"] for row in rows} >= {runs.AO_GD.name, runs.ADAGRAD.name + runs.BEST, runs.OGD.name}
    for row in rows:
        assert row["regret"] == pytest.approx(row["loss"] - row["optimum"])
        if row["bound"] is not None:
            assert row["regret"] <= row["bound"]
    for steps in grouped(rows_of(out, "steps"), "arrangement", "R", "algorithm"):
        (chosen,) = select(steps, chosen=True)
        assert chosen["loss"] == min(column(steps, "loss"))


def test_bounds_of_cao_rcd_are_those_of_theorem_7(out: Path, documents: Documents) -> None:
    """Per √T: 4 Σ_i R L_i/√p_i with p ∝ (R L)^⅔ and with p = 1/n, L_i = Σ_j |a_{j,i}| for logistic losses."""
    (row,) = rows_of(out, "chances")
    L = np.abs(documents.rows.toarray()).sum(axis=0)
    p = (runs.BOUND_R * L) ** (2 / 3) / ((runs.BOUND_R * L) ** (2 / 3)).sum()
    assert row["lipschitz"] == pytest.approx(4 * runs.BOUND_R * (L / np.sqrt(p)).sum())
    assert row["uniform"] == pytest.approx(4 * runs.BOUND_R * (L * np.sqrt(len(L))).sum())


def test_values_are_chosen_by_the_mean_of_the_seeds(out: Path) -> None:
    table = pq.read_table(out / "objectives.parquet").to_pandas()
    assert set(table.seed) == {0, 1}
    tuned = table[table.tuned != ""]
    last = tuned[tuned.passes == tuned.groupby("method").passes.transform("max")]
    for _, rows in last.groupby(["set", "alpha", "method"]):
        means = rows.groupby("value").objective.mean()
        assert set(rows[rows.chosen].value) == {means.idxmin()}


def test_claims_compare_seeds_and_orders_in_pairs(out: Path) -> None:
    """One comparison per claim and problem, of the last mark."""
    comparisons = pq.read_table(out / "comparisons.parquet").to_pandas()
    assert not comparisons.duplicated(["claim", "where"]).any()
    assert set(comparisons.pairs) == {2}
    of_saga = comparisons.claim.str.startswith("CAOS-ERM gets nearer to the optimum than SAGA")
    found = comparisons[of_saga & (comparisons["where"] == "books, α = 10")].iloc[0]
    rows = pq.read_table(out / "objectives.parquet").to_pandas()
    rows = rows[(rows.alpha == 10) & rows.chosen]
    rows = rows[rows.passes == 2 * runs.EPOCHS[-1]].set_index(["method", "seed"]).excess
    differences = [rows[runs.SAMPLED.name, seed] - rows[runs.SAGA.name, seed] for seed in (0, 1)]
    assert found.difference == pytest.approx(np.mean(differences))
    R = TESTED_RADII[1]
    claim = "The regret of AO-GD is less than that of online gradient descent with its theorem's step."
    found = comparisons[(comparisons.claim == claim) & (comparisons["where"] == f"books, shuffled, R = {R:g}")].iloc[0]
    rows = pq.read_table(out / "regret.parquet").to_pandas()
    rows = rows[(rows.arrangement == "shuffled") & (rows.R == R) & (rows["T"] == ROWS)]
    rows = rows.set_index(["method", "order"]).regret
    assert found.difference == pytest.approx(
        np.mean([rows[runs.AO_GD.name, k] - rows[runs.OGD.name, k] for k in (0, 1)])
    )


def test_objectives_are_above_the_optimum(out: Path) -> None:
    rows = rows_of(out, "objectives")
    assert {row["method"] for row in rows} == {method.name for method in runs.METHODS}
    assert min(row["excess"] for row in rows) > -1e-6


def test_saga_matches_its_recursion_and_converges(out: Path, documents: Documents) -> None:
    """Every weight of every round, dense; at the end the objective is the least."""
    A, signs = documents.rows.toarray().astype(float), 2.0 * documents.labels - 1
    L, alpha = (A**2).sum(axis=1) / 4, runs.ALPHAS[0]
    p, gamma = L / L.sum(), 1 / (3 * L.mean())  # of the mean of the losses
    x, phi = np.zeros(A.shape[1]), -0.5 * signs
    for t in range(3 * ROWS):
        mark, k = (2, t) if t < ROWS else (4, t - ROWS)
        j = int(np.searchsorted(np.cumsum(p), uniform(5, mark, 0, k), side="right"))
        slope = -signs[j] / (1 + np.exp(signs[j] * (A[j] @ x)))
        v = x - gamma * ((slope - phi[j]) * A[j] / (ROWS * p[j]) + phi @ A / ROWS)
        x, phi[j] = np.sign(v) * np.maximum(np.abs(v) - gamma * alpha / ROWS, 0), slope
    found = saga(documents.rows, documents.labels, alpha, (2, 4), 5)[-1]
    np.testing.assert_allclose(found, x, rtol=1e-10, atol=1e-12)
    x = saga(documents.rows, documents.labels, alpha, (3000,), 5)[0]
    value = np.logaddexp(0, -signs * (A @ x)).sum() + alpha * np.abs(x).sum()
    assert value == pytest.approx(rows_of(out, "optima", alpha=alpha)[0]["objective"], rel=1e-6)


def test_variances_are_those_of_all_draws(out: Path, documents: Documents) -> None:
    """The dense oracle's points; 40 documents are four mini-batches of 10."""
    A, signs = documents.rows.toarray().astype(float), 2.0 * documents.labels - 1
    alpha, epochs = runs.ALPHAS[0], runs.VARIANCE_EPOCHS
    points = caos_erm(A, signs, SLOPES["logistic"], R=1.0, alpha=alpha, epochs=epochs, seed=0)[-2:]
    s_bar, s = (SLOPES["logistic"](A @ x, signs) for x in points)
    L = np.abs(A).max(axis=1).reshape(-1, 10).sum(axis=1)
    (row,) = rows_of(out, "variances", alpha=alpha, batch=10, partition="consecutive")
    for name, slopes in (("plain", s), ("predicted", s - s_bar)):
        g = (slopes[:, None] * A).reshape(len(L), 10, -1).sum(axis=1)
        estimates, p = g / (L / L.sum())[:, None], L / L.sum()
        expected = p @ ((estimates - g.sum(axis=0)) ** 2).sum(axis=1)
        assert row[name] == pytest.approx(expected, rel=1e-8)
    assert rows_of(out, "variances", alpha=alpha, batch=10, partition="random")[0]["plain"] != row["plain"]


CAO_RCD = runs.COORDINATES[:2]


@pytest.mark.parametrize(
    "method", [runs.EQUAL, runs.PRINTED, runs.LAST, runs.BATCHES, *CAO_RCD], ids=lambda method: method.name
)
@pytest.mark.parametrize(("alpha", "R", "seed"), [(1.0, 0.3, 0), (10.0, 0.03, 1)])
def test_objectives_match_the_algorithms(
    out: Path, documents: Documents, method: runs.Method, alpha: float, R: float, seed: int
) -> None:
    """H of the dense oracle's weights at every mark."""
    rows = rows_of(out, "objectives", alpha=alpha, method=method.name, value=R, seed=seed)
    X, signs = documents.rows.toarray(), 2.0 * documents.labels - 1
    shared = {"R": R, "alpha": alpha, "epochs": runs.EPOCHS[-1], "seed": seed} | method.parameters
    if method in CAO_RCD:
        rounds = int(str(rows[0]["rounds"]))
        own = {"loss": "logistic", "rounds": rounds, "batch": 1, "scale": "none"}
        weights = list(cao_rcd(X, signs, SLOPES["logistic"], **shared, **own))
        assert [row["rounds"] for row in rows] == [rounds * epoch for epoch in runs.EPOCHS]
    else:
        weights = caos_erm(X, signs, SLOPES["logistic"], **shared)
        assert [row["passes"] for row in rows] == [2 * epoch for epoch in runs.EPOCHS]
    x = np.array(weights)[np.array(runs.EPOCHS) - 1]
    expected = np.logaddexp(0, -signs * (x @ X.T)).sum(axis=1) + alpha * np.abs(x).sum(axis=1)
    assert [row["objective"] for row in rows] == pytest.approx(expected.tolist(), rel=1e-9)


def played_sum(documents: Documents, method: runs.Method, alpha: float, R: float) -> tuple[float, float]:
    """Σ H(x_t) of two epochs of Algorithm 4, dense, and H at the end."""
    X, signs, iterates = documents.rows.toarray(), 2.0 * documents.labels - 1, list[np.ndarray]()
    it = {"R": R, "alpha": alpha, "epochs": 2, "seed": 0} | method.parameters
    ends = caos_erm(X, signs, SLOPES["logistic"], played=iterates, **it)
    x = np.array([*iterates, ends[-1]])
    values = np.logaddexp(0, -signs * (x @ X.T)).sum(axis=1) + alpha * np.abs(x).sum(axis=1)
    return values[:-1].sum(), values[-1]


@pytest.mark.parametrize("method", runs.PLAYED, ids=lambda method: method.name)
def test_regret_of_the_iterates_matches_the_algorithm(documents: Documents, method: runs.Method) -> None:
    """With H evaluated in every round; the last iterate is that of the learner."""
    found = runs.played_cell(documents, method, 0, runs=ROWS).run()["rows"]
    for alpha, R in itertools.product(runs.ALPHAS, runs.PLAYED_RADII):
        total, _ = played_sum(documents, method, alpha, R)
        assert select(found, alpha=alpha, R=R, T=2 * ROWS)[0]["loss"] == pytest.approx(total, rel=1e-7)
    _, last = played_sum(documents, method, 1.0, 0.3)
    grid = {"alpha": 1.0, "R": 0.3, **method.parameters}
    fit = fit_epochs(documents.rows, documents.labels, grid=grid, epochs=2, seed=0)
    assert fit.objective[-1, 0] == pytest.approx(last, rel=1e-7)


def test_evaluating_some_iterates_estimates_the_regret_without_bias(documents: Documents) -> None:
    T = runs.EPOCH_MARKS[-1] * ROWS
    exact, estimate = (
        [row["loss"] for row in select(cell.run()["rows"], T=T)]
        for cell in (runs.played_cell(documents, runs.PRINTED, 0, runs=count) for count in (ROWS, ROWS // 2))
    )
    assert estimate != exact
    np.testing.assert_allclose(estimate, exact, rtol=0.05)


def test_regret_of_the_iterates_is_against_the_optimum_and_within_its_bound(out: Path, documents: Documents) -> None:
    table = pq.read_table(out / "played.parquet").to_pandas()
    optima = pq.read_table(out / "optima.parquet").to_pandas()
    least = optima.set_index("alpha").objective
    np.testing.assert_allclose(table.regret, table.loss - table["T"] * table.alpha.map(least))
    proved = {runs.PRINTED.name, runs.PRINTED_EQUAL.name, runs.CORRECTED.name}
    assert set(table[table.bound.notna()].method) == proved == set(table.method) - {runs.SAMPLED.name, runs.EQUAL.name}
    X = documents.rows.toarray()
    L = np.abs(X).max(axis=1)
    printed = table[table.method == runs.PRINTED.name]
    np.testing.assert_allclose(printed.bound, 8 * X.shape[1] * printed.R * np.sqrt(printed["T"]) * L.sum())
    equal = table[table.method == runs.PRINTED_EQUAL.name]
    np.testing.assert_allclose(equal.bound, 8 * X.shape[1] * equal.R * np.sqrt(equal["T"] * len(L) * (L**2).sum()))
