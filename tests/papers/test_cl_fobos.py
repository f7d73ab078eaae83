"""The experiments of the CL-FOBOS paper on small data: runs, tables, claims and the page."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from sparseoco.papers.cl_fobos import runs as published
from sparseoco.papers.cl_fobos.experiment import TIMING_CLAIMS, Measures, cl_fobos_claims
from sparseoco.papers.cl_fobos.runs import Draw, Setting
from sparseoco.papers.claims import find_evidence, judge
from sparseoco.papers.experiment import Run
from sparseoco.papers.rows import select
from tests.oracles.stream import ORACLES
from tests.papers.small import load, rows_of

PAPER = "cl-fobos"
EQUAL = 20
"""Pairs of the same difference that decide: see the sign test of `Pair.less`."""


def iterates(X: np.ndarray, b: np.ndarray, lam: float, eta0: float, K: int | None) -> np.ndarray:
    """x_1 … x_{T+1} of Algorithms 3 and 4, as printed."""
    name, own = ("cl-fobos", {}) if K is None else ("l-fobos", {"K": K})
    return np.array([np.zeros(X.shape[1]), *ORACLES[name](X, b, "logistic", eta0=eta0, lam=lam, **own)])


def dense(X: np.ndarray, b: np.ndarray, lam: float, eta0: float, K: int | None) -> tuple[float, float, np.ndarray]:
    """R̄(T), rate of right predictions and x after T rounds."""
    x = iterates(X, b, lam, eta0, K)
    margins = b * (X * x[:-1]).sum(axis=1)
    objective = np.logaddexp(0, -margins) + lam * np.abs(x[:-1]).sum(axis=1)
    return objective.mean(), np.mean(margins > 0), x[-1]


@pytest.fixture(scope="module")
def draws(data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Draw]:
    """Two data sets of 450 rounds."""
    documents = load(data, "books", tmp_path_factory.mktemp("stores"))
    return [Draw(documents.rows, documents.labels.astype(np.int64), "any", k, 450) for k in range(2)]


def examples(draw: Draw) -> tuple[np.ndarray, np.ndarray]:
    """The examples of all rounds, dense, and their signs."""
    order = draw.order()
    return draw.features.toarray()[order].astype(float), 2.0 * draw.labels[order] - 1


@pytest.mark.parametrize("method", [published.CL_FOBOS, published.lazy(100)])
def test_results_match_the_algorithms_as_printed(draws: list[Draw], method: published.FobosMethod) -> None:
    found = published.result_cell(draws[1], [Setting(method, 5e-3, 0.3)]).run()[0]
    objective, right, x = dense(*examples(draws[1]), 5e-3, 0.3, method.K)
    assert found["objective"] == pytest.approx(objective, rel=1e-9)
    assert found["right"] == right
    assert found["nonzeros"] == np.count_nonzero(x)


@pytest.mark.parametrize("K", [None, 7, 100])
def test_timed_algorithms_are_those_printed(K: int | None) -> None:
    rng = np.random.default_rng(K or 0)
    X = rng.integers(1, 4, (50, 20)) * (rng.random((50, 20)) < 0.2)
    labels, order = rng.integers(0, 2, 50), rng.integers(0, 50, 200)
    features = csr_matrix(X.astype(float))
    found, seconds = published.run_as_printed(features, labels, order, 0.05, 0.4, K)
    _, _, expected = dense(X[order].astype(float), 2.0 * labels[order] - 1, 0.05, 0.4, K)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert 0 < np.count_nonzero(found) < 20
    assert seconds > 0


def test_tables_are_complete_and_consistent(out: Path) -> None:
    search, results, runs = rows_of(out, "search"), rows_of(out, "results"), rows_of(out, "runs")
    assert len(search) == len(published.PUBLISHED) * len(published.METHODS) * len(published.STEPS)
    assert len(results) == len(published.PUBLISHED) * len(published.METHODS)
    assert len(runs) == len(results) * 4 * 2  # here and the paper's α₀, and all words in two ways; two data sets each
    for row in results:
        own = [r for r in select(search, lam=row["lam"], method=row["method"]) if r["objective"] is not None]
        best = min(own, key=lambda r: r["objective"])
        assert best["chosen"]
        assert best["eta0"] == row["eta0"]
        assert abs(row["float32_difference"]) < 1e-5
        assert row["objective"] <= row["objective_at_paper_eta0"] + 1e-6
        assert None not in (row["objective_all_counts"], row["right_all_presence"])
    snapshots = rows_of(out, "snapshots")
    assert {row["rounds"] for row in snapshots} == {399, 400}
    assert len(snapshots) == len(published.SNAPSHOTS) * 2 * 2


def paper_runs() -> list[dict[str, object]]:
    return [
        {"lam": lam, "method": method, "words": published.OWN, "eta0_of": "here", "undecided": 0.0}
        | {"objective": row.objective, "right": row.right}
        for lam, printed in published.PUBLISHED.items()
        for method, row in printed.items()
        for _ in range(EQUAL)
    ]


def test_verdicts_of_the_claims_on_the_papers_own_numbers() -> None:
    snapshots = [
        {"method": name, "rounds": rounds, "right": right}
        for name, numbers in published.SNAPSHOTS.items()
        for rounds, (_, right) in zip(published.SNAPSHOT_ROUNDS, numbers, strict=True)
        for _ in range(EQUAL)
    ]
    rows = judge(cl_fobos_claims({"runs": paper_runs(), "snapshots": snapshots, "nonzeros": [], "means": []}))["claims"]
    doubtful = [(row["where"], row["holds"]) for row in rows if row["holds"] != "yes"]
    improves = [row["where"] for row in rows if "improves" in row["claim"]]
    assert improves == ["x_399 to x_9999", "x_9999 to x_99999"]
    # 0.787 against 0.788, and 0.905 against 0.906, for K = 100; 0.4199 and 0.421 are not claimed to be equal
    assert doubtful == [("λ = 0.005", "mixed"), ("λ = 0.0005", "mixed")]
    assert "for 3 of 5 λ" in next(
        row["paper"] for row in rows if row["where"] == "λ = 0.005" and "rate" in row["claim"]
    )


@pytest.mark.parametrize(("after", "ours", "holds"), [(0.01, 0.1, "yes"), (0.4, 0.6, "no")])
def test_claims_on_sparsity_follow_the_shares_at_lazy_evaluations(after: float, ours: float, holds: str) -> None:
    nonzeros = []
    for figure, k in itertools.product(published.FIGURES, range(3)):
        dense_share = (2.0 if figure.lam < 1e-3 else 1.0) * (1 + 0.01 * k)
        for t in (figure.K - 1, figure.K, 2 * figure.K - 1, 2 * figure.K):
            for setting, share in ((figure.theirs, 0.5 if t % figure.K else after), (figure.ours, ours)):
                row = {"method": setting.method.name, "lam": setting.lam, "repetition": k, "rounds": t}
                nonzeros.append(row | {"share": share * dense_share, "nonzeros": round(1e5 * share * dense_share)})
    rows = judge(
        cl_fobos_claims({"runs": paper_runs(), "snapshots": [], "nonzeros": nonzeros, "means": []}, printed=False)
    )["claims"]
    about = {row["claim"].split(":")[0]: row["holds"] for row in rows if row["where"] == "λ = 0.005, K = 400"}
    assert list(about.values()) == [holds] * 4
    denser = [row["holds"] for row in rows if "denser" in row["claim"]]
    assert denser == ["yes", "yes"]


def paper_timings() -> list[dict[str, object]]:
    """As printed, and with the K of Figure 2 as long as CL-FOBOS takes with the strong λ alone."""
    timings = [
        {"lam": lam, "method": method, "what": what, "seconds": seconds}
        for lam, table in published.PUBLISHED.items()
        for method, row in table.items()
        for what, seconds in (("as printed", row.seconds), ("lazy", 1.0))
    ]
    timings += [
        {"lam": figure.lam, "method": setting.method.name, "what": "figure 2", "seconds": seconds}
        for figure, lazy_seconds in zip(published.FIGURES, (1.0, 1.5), strict=True)
        for setting, seconds in ((figure.theirs, lazy_seconds), (figure.ours, 1.0))
    ]
    return [row for row in timings for _ in range(EQUAL)]


def test_claims_on_run_times_of_the_papers_own_numbers() -> None:
    records = {"runs": paper_runs(), "timings": paper_timings(), "equal_time": []}
    rows = judge(find_evidence(TIMING_CLAIMS, Measures(records)))["claims"]
    doubtful = [(row["where"], row["holds"]) for row in rows if row["holds"] != "yes"]
    # 0.599 in 2.15 s against 0.601 in 1.05 s is not better in both
    assert doubtful == [("λ = 1e-5, K = 750", "no")]


@pytest.mark.parametrize(("slower", "sparser", "holds"), [(1.0, 0.3, "yes"), (1.5, 0.9, "no")])
def test_claims_at_equal_time_follow_the_runs(slower: float, sparser: float, holds: str) -> None:
    rows = [
        {"lam": lam, "method": method.name, "K": 640, "repetition": k}
        | {"seconds": (1.0 if method == published.CL_FOBOS else slower) * (1 + 0.001 * (k - own)), "right": 0.8}
        | {"objective": 0.4 + 0.001 * own * (1 + 0.1 * k) * (1 if holds == "no" else -1 if lam > 1e-3 else 0)}
        | {"before": 0.2 + 0.1 * (own if holds == "no" else -own) + 0.001 * k, "after": 0.2 * sparser + 0.001 * k}
        for lam in (5e-3, 1e-5)
        for own, method in enumerate((published.lazy(640), published.CL_FOBOS))
        for k in range(EQUAL)
    ]
    records = {"runs": paper_runs(), "timings": paper_timings(), "equal_time": rows}
    found = [
        row for row in judge(find_evidence(TIMING_CLAIMS, Measures(records)))["claims"] if "K = 640" in row["where"]
    ]
    assert [row["holds"] for row in found] == [holds] * 8


def test_the_mean_is_measured_by_the_objective_of_all_examples(draws: list[Draw], out: Path) -> None:
    X, b = draws[1].features.toarray().astype(float), 2.0 * draws[1].labels - 1
    (row,) = rows_of(out, "means", repetition=1, lam=5e-3)
    lam = row["lam"]
    x = iterates(*examples(draws[1]), lam, row["eta0"], None)

    def objective(x: np.ndarray) -> float:
        return float(np.logaddexp(0, -b * (X @ x)).mean() + lam * np.abs(x).sum())

    assert row["of_last"] == pytest.approx(objective(x[-1]), rel=1e-9)
    assert row["of_mean"] == pytest.approx(objective(np.mean(x[:-1], axis=0)), rel=1e-9)
    bounds = [row["bound"] for row in rows_of(out, "means") if row["bound"] is not None]
    assert len(bounds) == 1
    assert bounds[0] > 1


def test_the_matching_period_is_between_those_of_known_times() -> None:
    times = {100: 3.0, 200: 2.0, 400: 1.5, 800: 1.6}  # 1.6 is noise: half as many Steps 2 do not take longer
    assert published.matching_period(times, 2.0, 100_000) == 200
    assert published.matching_period(times, 2.5, 100_000) == 133  # 750 Steps 2
    assert published.matching_period(times, 1.5, 100_000) is None
    assert published.matching_period(times, 3.1, 100_000) is None


def test_runs_at_equal_time_are_complete(draws: list[Draw], tmp_path: Path) -> None:
    chosen = {
        (method, lam): 0.02 + 0.01 * k
        for lam in published.PUBLISHED
        for k, method in enumerate(reversed(published.METHODS))
    }

    run = Run(tmp_path / "out")
    ladder = published.ladder_timings(draws, chosen, run)
    assert [row["method"] for row in select(ladder, lam=5e-3, repetition=0)] == [
        "CL-FOBOS",
        *(f"L-FOBOS, K = {K}" for K in (100, 200, 400)),
    ]
    assert all(row["seconds"] > 0 for row in ladder)
    times = {"CL-FOBOS": 2.0, "L-FOBOS, K = 100": 3.0, "L-FOBOS, K = 200": 2.0, "L-FOBOS, K = 400": 1.0}
    rows = published.equal_time_runs(draws, chosen, [row | {"seconds": times[row["method"]]} for row in ladder], run)
    assert len(rows) == 2 * 2 * 2
    assert {row["K"] for row in rows} == {225}  # two Steps 2 in 450 rounds
    own = select(rows, lam=5e-3, repetition=1)
    assert [row["method"] for row in own] == ["L-FOBOS, K = 225", "CL-FOBOS"]
    assert 0.04 <= own[0]["eta0"] <= 0.05  # between those chosen for K = 500 and 100
    for row, method in zip(own, (published.lazy(225), published.CL_FOBOS), strict=True):
        X, b = examples(draws[1])
        objective, right, _ = dense(X, b, 5e-3, row["eta0"], method.K)
        assert (row["objective"], row["right"]) == (pytest.approx(objective, rel=1e-9), right)
        x = iterates(X, b, 5e-3, row["eta0"], method.K)
        shares = [np.count_nonzero(x[t]) / 12 for t in (224, 225, 449, 450)]
        assert (row["before"], row["after"]) == pytest.approx((np.mean(shares[::2]), np.mean(shares[1::2])))
        assert row["seconds"] > 0


def test_a_step_size_that_diverges_in_one_repetition_is_not_chosen() -> None:
    assert published.mean_objectives([[1.0, None, 2.0], [3.0, 0.1, 1.0]]).tolist() == [2.0, math.inf, 1.5]
