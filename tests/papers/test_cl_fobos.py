"""The experiments of the CL-FOBOS paper on small data: runs, tables, claims and the page."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from sparseoco.papers.cl_fobos import printed
from sparseoco.papers.cl_fobos import runs as published
from sparseoco.papers.cl_fobos.experiment import TIMING_CLAIMS, VARIANTS, Measures, cl_fobos_claims
from sparseoco.papers.cl_fobos.runs import CL_FOBOS, Draw, Printed, Setting
from sparseoco.papers.claims import OWN, find_evidence, judge
from sparseoco.papers.rows import Records, Row, select
from tests.oracles.stream import ORACLES
from tests.papers.small import load, rows_of

PAPER = "cl-fobos"
EQUAL = 20
"""Pairs of the same difference that decide: see the sign test of `Pair.less`."""


def iterates(X: np.ndarray, b: np.ndarray, setting: Setting) -> np.ndarray:
    """x_1 … x_{T+1} of Algorithms 1 to 4, as printed."""
    (name, own, K), lam, eta0 = setting
    period = {"K": K} if name.startswith("L-FOBOS") else {}
    return np.array([np.zeros(X.shape[1]), *ORACLES[own](X, b, "logistic", eta0=eta0, lam=lam, **period)])


def dense(X: np.ndarray, b: np.ndarray, setting: Setting) -> tuple[float, float, np.ndarray]:
    """R̄(T), rate of right predictions and x after T rounds."""
    x = iterates(X, b, setting)
    margins = b * (X * x[:-1]).sum(axis=1)
    objective = np.logaddexp(0, -margins) + setting.lam * np.abs(x[:-1]).sum(axis=1)
    return objective.mean(), np.mean(margins > 0), x[-1]


@pytest.fixture(scope="module")
def draws(data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Draw]:
    """Two data sets of 450 rounds."""
    documents = load(data, "books-text", tmp_path_factory.mktemp("stores"))
    return [Draw(documents.rows, documents.labels.astype(np.int64), "any", k, 450) for k in range(2)]


def examples(draw: Draw) -> tuple[np.ndarray, np.ndarray]:
    """The examples of all rounds, dense, and their signs."""
    order = draw.order()
    return draw.features.toarray()[order].astype(float), 2.0 * draw.labels[order] - 1


@pytest.mark.parametrize("method", [CL_FOBOS, published.lazy(100), published.FOBOS, published.SUBGRADIENT])
@pytest.mark.parametrize("lam", [5e-3, 0.1])
def test_results_match_the_algorithms_as_printed(draws: list[Draw], method: published.FobosMethod, lam: float) -> None:
    setting = Setting(method, lam, 0.3)
    found = published.result_cell(draws[1], [setting]).run()[0]
    objective, right, x = dense(*examples(draws[1]), setting)
    assert found["objective"] == pytest.approx(objective, rel=1e-9)
    assert found["right"] == pytest.approx(right, abs=1e-9 if lam < 0.1 else 0.01)  # margins of 0, up to rounding
    assert found["nonzeros"] == np.count_nonzero(x)


@pytest.mark.parametrize(
    "method", [published.SUBGRADIENT, CL_FOBOS, published.FOBOS, published.lazy(7), published.lazy(100)]
)
def test_timed_algorithms_are_those_printed(draws: list[Draw], method: published.FobosMethod) -> None:
    timed = printed.AsPrinted(draws[1].examples(), 0.05, 0.4, method.K)
    assert timed.run(90) + timed.run(450) > 0
    expected = dense(*examples(draws[1]), Setting(method, 0.05, 0.4))[2]
    np.testing.assert_allclose(timed.x, expected, rtol=1e-9, atol=1e-12)


def readings(X: np.ndarray, b: np.ndarray, lam: float, alpha0: float, reading: str) -> tuple[float, np.ndarray]:
    """R̄(T) and x after T rounds of Algorithm 4: by (9) as printed with L1, or with L2 by (10) or Step 2."""
    x, updated, alphas, costs = np.zeros(X.shape[1]), np.zeros(X.shape[1], int), [0.0], []
    check, xi = 0.0, np.zeros(X.shape[1])  # α̌_t, α_ξ
    for t, (a, sign) in enumerate(zip(X, b, strict=True), start=1):
        l1 = reading.startswith("(9)")
        costs.append(np.logaddexp(0, -sign * (a @ x)) + lam * (np.abs(x).sum() if l1 else 0.5 * x @ x))
        alphas.append(alpha0 / np.sqrt(t))
        hat = x + alphas[t] * sign * a / (1 + np.exp(sign * (a @ x)))
        for i in np.flatnonzero(a):
            pending = lam * np.array(alphas[updated[i] + 1 : t + 1])
            maps = {"L2, (10) as printed": 1 + pending.sum(), "L2, one map after the other": np.prod(1 + pending)}
            shrunk = np.sign(hat[i]) * max(abs(hat[i]) - lam * (check - xi[i]), 0.0)
            x[i] = shrunk if l1 else hat[i] / maps[reading]
            xi[i], updated[i] = check + alphas[t], t
        check += alphas[t]
    return float(np.mean(costs)), x


@pytest.mark.parametrize("reading", published.READINGS)
def test_readings_are_their_formulas(draws: list[Draw], reading: str) -> None:
    own, rounds = draws[1].examples(), examples(draws[1])
    row = printed.measure_reading(own, 0.05, 0.4, **published.READINGS[reading])
    objective, expected = readings(*rounds, 0.05, 0.4, reading)
    assert row["objective"] == pytest.approx(objective, rel=1e-9)
    assert row["nonzeros"] == np.count_nonzero(expected)
    ours = printed.measure_reading(own, 0.05, 0.4)["objective"]  # (10) with L1
    assert ours == pytest.approx(dense(*rounds, Setting(CL_FOBOS, 0.05, 0.4))[0], rel=1e-9)
    assert abs(ours - objective) > 0.001


def test_every_step_is_found_by_few_tries() -> None:
    for best in published.STEPS:
        for start, most in [(published.COARSE, 34), *((published.around(published.STEPS[k]), 50) for k in (0, 5, 199))]:
            tried = {step: abs(math.log(step / best)) for step in start}
            while new := published.finer(tried):
                tried |= {step: abs(math.log(step / best)) for step in new}
            assert min(tried, key=lambda step: tried[step]) == best
            assert len(tried) <= most


def test_tables_are_complete_and_consistent(out: Path, draws: list[Draw]) -> None:
    search, results, runs = rows_of(out, "search"), rows_of(out, "results"), rows_of(out, "runs")
    assert len(results) == len(published.LADDER_LAMS) * len(published.METHODS) + 2 * (len(published.PRINTED) + 1)
    assert len(runs) == 2 * (len(results) + 2 * len(published.PUBLISHED) * len(published.PRINTED))  # 2 data sets
    for row in results:
        own = [r for r in select(search, lam=row["lam"], method=row["method"]) if r["objective"] is not None]
        best = min(own, key=lambda r: r["objective"])
        assert best["chosen"]
        assert best["eta0"] == row["eta0"]
        assert abs(row["float32_difference"]) < 1e-5
        assert row["objective"] <= (row["objective_counts"] or math.inf) + 1e-6
    snapshots = rows_of(out, "snapshots", repetition=1)
    assert [row["rounds"] for row in snapshots] == [399, 400] * 2
    X, b = draws[1].features.toarray(), 2.0 * draws[1].labels - 1
    for figure, setting in itertools.product(published.FIGURES[:1], published.FIGURES[0]):
        x = iterates(*examples(draws[1]), setting)
        own = {"method": setting.method.name, "repetition": 1}
        for row in rows_of(out, "nonzeros", lam=figure.lam, **own):
            assert row["nonzeros"] == np.count_nonzero(x[row["rounds"]]) == round(row["share"] * X.shape[1])
        for row in select(snapshots, **own):
            assert row["right"] == np.sum(b * (X @ x[row["rounds"]]) > 0)


def paper_rows() -> list[tuple[float, str, Printed]]:
    """Tables 1 to 6, with runs of Figure 2 and FOBOS that are not printed, all like those next to them."""
    others = [(5e-3, "L-FOBOS, K = 400", Printed(0.04, 1.05, 0.61, 0.781))]
    others += [(1e-5, "L-FOBOS, K = 750", Printed(0.595, 1.5, 0.1514, 0.981))]
    tables = [(lam, name, row) for lam, table in published.PUBLISHED.items() for name, row in table.items()]
    best = {lam: min(row.objective for _, row in table.items()) for lam, table in published.PUBLISHED.items()}
    return [*tables, *others, *((lam, "FOBOS", Printed(0.01, 90.0, best[lam] - 0.01, 0.5)) for lam in best)]


def paper_runs() -> list[Row]:
    return [
        {"lam": lam, "method": method, "words": words, "eta0_of": eta0_of, "undecided": 0.0}
        | {"objective": row.objective, "right": row.right}
        for words, eta0_of in VARIANTS
        for lam, method, row in paper_rows()
        if method != "FOBOS" or eta0_of == "here"
        for _ in range(EQUAL)
    ]


def paper_timings() -> list[Row]:
    times = {(lam, method): row.seconds for lam, method, row in paper_rows()}
    rows = [(lam, method, "as printed", seconds) for (lam, method), seconds in times.items()]
    rows += [(lam, "Algorithm 1", "as printed", 90.0) for lam in published.LAMS]
    settings = [setting for figure in published.FIGURES for setting in figure]
    rows += [(own.lam, own.method.name, "figure 2", times[own.lam, own.method.name]) for own in settings]
    rows += [(lam, method, "lazy", 1.0) for lam in (5e-3, 1e-5) for method in published.PUBLISHED[lam]]
    return [dict(zip(("lam", "method", "what", "seconds"), row, strict=True)) for row in rows for _ in range(EQUAL)]


def paper_records(**tables: list[Row]) -> Records:
    """The paper's own numbers, and these tables."""
    empty: Records = {name: [] for name in ("snapshots", "nonzeros", "equal_time", "means", "readings", "short")}
    return empty | {"runs": paper_runs(), "timings": paper_timings()} | tables


def test_verdicts_of_the_claims_on_the_papers_own_numbers() -> None:
    snapshots = [
        {"method": name, "rounds": rounds, "right": right}
        for name, numbers in published.SNAPSHOTS.items()
        for rounds, (_, right) in zip(published.SNAPSHOT_ROUNDS, numbers, strict=True)
        for _ in range(EQUAL)
    ]
    rows = judge(cl_fobos_claims(paper_records(snapshots=snapshots)))["claims"]
    doubtful = [
        (row["where"].split(",")[0], row["holds"]) for row in rows if row["holds"] != "yes" if row["paper"] != OWN
    ]
    improves = [row["where"] for row in rows if "improves" in row["claim"]]
    assert improves == ["x_399 to x_9999", "x_9999 to x_99999"]
    # 0.787 against 0.788, and 0.905 against 0.906, for K = 100; 0.4199 and 0.421 are not claimed to be equal
    assert doubtful == [("λ = 0.005", "mixed"), ("λ = 0.0005", "mixed")] * 3


@pytest.mark.parametrize(("after", "ours", "holds"), [(0.01, 0.1, "yes"), (0.4, 0.6, "no")])
def test_claims_on_sparsity_follow_the_shares_at_lazy_evaluations(after: float, ours: float, holds: str) -> None:
    nonzeros = []
    for figure, k in itertools.product(published.FIGURES, range(3)):
        dense_share = (2.0 if figure.lam < 1e-3 else 1.0) * (1 + 0.01 * k)
        for t in (figure.period - 1, figure.period, 2 * figure.period - 1, 2 * figure.period):
            for setting, share in ((figure.theirs, 0.5 if t % figure.period else after), (figure.ours, ours)):
                row = {
                    "method": setting.method.name,
                    "lam": setting.lam,
                    "repetition": k,
                    "rounds": t,
                    "K": figure.period,
                }
                nonzeros.append(row | {"share": share * dense_share, "nonzeros": round(1e5 * share * dense_share)})
    records = paper_records(nonzeros=nonzeros, equal_time=nonzeros)
    rows = judge(cl_fobos_claims(records, printed=False))["claims"]
    about = {row["claim"].split(":")[0]: row["holds"] for row in rows if row["where"] == "λ = 0.005, K = 400"}
    assert list(about.values()) == [holds] * 4
    denser = [row["holds"] for row in rows if "denser" in row["claim"]]
    assert denser == ["yes", "yes"]
    timed = judge(find_evidence(TIMING_CLAIMS, Measures(records)))["claims"]
    assert [row["holds"] for row in timed if "sparse" in row["claim"] or "fewer" in row["claim"]] == [holds] * 4


@pytest.mark.parametrize(("K", "objective", "seconds", "holds"), [(75, 0.6, 1.0, "no"), (50, 0.6, 1.1, "yes")])
def test_claims_on_run_times_follow_the_numbers(K: int, objective: float, seconds: float, holds: str) -> None:
    records = paper_records()  # with one more K, whose run is better in both than 0.601 in 1.05 s, or in one of them
    own = {"lam": 5e-3, "method": f"L-FOBOS, K = {K}", "words": "counts", "eta0_of": "here", "what": "as printed"}
    records["runs"] += [own | {"objective": objective, "right": 0.8, "undecided": 0.0}] * EQUAL
    records["timings"] += [own | {"seconds": seconds}] * EQUAL
    rows = judge(find_evidence(TIMING_CLAIMS, Measures(records)))["claims"]
    doubtful = [(row["where"], row["holds"]) for row in rows if row["holds"] != "yes" if row["paper"] != OWN]
    # the paper's 1.5 s for 1 s, and 0.1514 and 0.152; the K that is added, which is next to the time of CL-FOBOS
    expected = ["λ = 1e-5, K = 750", "λ = 1e-5, K = 1000", f"λ = 0.005, K = {K}"]
    assert sorted(doubtful) == sorted((where, "no") for where in expected + ["λ = 0.005"] * (holds == "no"))


def test_the_mean_is_measured_by_the_objective_of_all_examples(draws: list[Draw], out: Path) -> None:
    X, b = draws[1].features.toarray().astype(float), 2.0 * draws[1].labels - 1
    (row,) = rows_of(out, "means", repetition=1, lam=5e-3)
    lam = row["lam"]
    x = iterates(*examples(draws[1]), Setting(CL_FOBOS, lam, row["eta0"]))

    def objective(x: np.ndarray) -> float:
        return float(np.logaddexp(0, -b * (X @ x)).mean() + lam * np.abs(x).sum())

    assert row["of_last"] == pytest.approx(objective(x[-1]), rel=1e-9)
    assert row["of_mean"] == pytest.approx(objective(np.mean(x[:-1], axis=0)), rel=1e-9)
    bounds = [row["bound"] for row in rows_of(out, "means") if row["bound"] is not None]
    assert len(bounds) == 1
    assert bounds[0] > 1
