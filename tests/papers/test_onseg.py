"""The experiments of the ONSEG paper on small data: data sets, runs, tables, claims and the page."""

import gzip
import itertools
import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.sparse import csr_matrix

from sparseoco import Learner
from sparseoco.papers.claims import find_evidence, judge
from sparseoco.papers.onseg import runs
from sparseoco.papers.onseg.experiment import CLAIMS, CRITERIA, ONSEG, RUN_TIMES, TITLES, Criterion, Measures
from sparseoco.papers.onseg.runs import ERROR, LOSS, PAIRS, SETS, TIMED_METHODS, tuned_names
from sparseoco.papers.rows import Row, select
from sparseoco.papers.sources import find_file
from tests.benchmarks.corpora import corpus
from tests.papers.small import rows_of
from tests.support.errors import raises_code

PAPER = "onseg"


def read(data: Path, setting: str = runs.PLAIN) -> list[runs.Dataset]:
    """All data sets in a setting."""
    return [runs.read_dataset(source, find_file(data, source.file) or data, setting) for source in runs.SOURCES]


def test_data_sets_have_the_sizes_of_the_paper(data: Path) -> None:
    datasets = read(data)
    sizes = {dataset.source.name: dataset.features.shape[1] for dataset in datasets}
    assert sizes == {"abalone": 7, "kin": 8, "ionosphere": 33, "cancer": 9}
    assert [dataset.rounds for dataset in datasets] == [150 * len(dataset.labels) for dataset in datasets]


@pytest.mark.corpora
def test_the_real_files_are_those_of_the_paper() -> None:
    sizes = [runs.read_dataset(source, corpus(f"uci/{source.file}")).features.shape for source in runs.SOURCES]
    assert sizes == [(4177, 7), (3000, 8), (351, 33), (683, 9)]  # Table 2
    panels = [runs.read_panel(each, corpus(f"portfolios/{each.file}")) for each in runs.PANELS]
    assert [panel.returns.shape for panel in panels] == [(5651, 36), (127, 171)]
    assert [panel.incomplete for panel in panels] == [0, 0]
    assert all((np.abs(panel.returns) < 0.7).all() for panel in panels)


def test_the_best_fixed_point_is_stationary(data: Path) -> None:
    for dataset in read(data, runs.STANDARDISED):
        x, loss = runs.best_fixed(dataset)
        Z, y = dataset.features, dataset.labels
        if dataset.loss == "squared":
            slopes, own = Z @ x - y, np.mean(0.5 * (Z @ x - y) ** 2)
        else:
            signs = 2 * y - 1
            slopes, own = -signs / (1 + np.exp(signs * (Z @ x))), np.mean(np.logaddexp(0, -signs * (Z @ x)))
        gradient = Z.T @ slopes / len(Z)
        inward = max(-float(x @ gradient), 0.0) / (runs.D / 2) ** 2  # the multiplier of ‖x‖ ≤ D/2
        assert np.linalg.norm(x) <= runs.D / 2 * (1 + 1e-9)
        tolerance = 2e-3 * max(1.0, float(np.linalg.norm(gradient)))
        np.testing.assert_allclose(gradient + inward * x, np.zeros(len(x)), atol=tolerance)
        assert loss == pytest.approx(own)


def test_rows_repeat_in_order_with_any_marks(data: Path) -> None:
    dataset = read(data)[0]
    n = len(dataset.labels)
    game, rounds = runs.Game(dataset.features, dataset.labels, "squared"), 3 * n + 5
    method = runs.OnlineMethod("ONSEG", "onseg", {"D": runs.D, "F": dataset.constants.F, "T": rounds})
    once = runs.play(game, method, [rounds], [4, 1])
    often = runs.play(game, method, runs.even_marks(rounds), [1])
    assert once.loss[-1, 1] == often.loss[-1, 0]
    learner = Learner("onseg", loss="squared", grid=[dict(method.parameters)], n_features=7, n_classes=None)
    order = np.arange(rounds) % n
    learner.partial_fit(csr_matrix(dataset.features[order]), dataset.labels[order])
    assert runs.play(game, method, [rounds], [0]).loss[0, 0] == learner.progress.loss_sum[0] / rounds


def test_panels_are_returns_of_stocks_without_gaps(data: Path) -> None:
    relative, weekly = (runs.read_panel(each, find_file(data, each.file) or data) for each in runs.PANELS)
    assert relative.returns.shape == (40, 5)  # the first row is relative to the day before
    assert weekly.returns.shape == (29, 109)
    assert (relative.incomplete, weekly.incomplete) == (0, 1)
    rows = [line.split(",") for line in (data / "portfolios/shanghai_weekly.csv").read_text().splitlines()]
    prices = np.array([[float(cell or "nan") for cell in row[1:]] for row in rows[1:]])
    expected = [after / before - 1 for before, after in itertools.pairwise(prices)]
    np.testing.assert_array_equal(weekly.returns, np.delete(expected, 6, axis=1))
    np.testing.assert_allclose(np.abs(relative.returns).max(), 0.05, atol=0.05)
    draws = [runs.draw_stocks(weekly, k) for k in range(3)]
    assert all(len(np.unique(draw)) == runs.STOCKS for draw in draws)
    assert any(draw.tolist() != draws[0].tolist() for draw in draws[1:])
    assert runs.draw_stocks(relative, 1).tolist() == list(range(5))


@pytest.mark.slow
def test_tables_agree_with_each_other(out: Path) -> None:
    rows = {name: rows_of(out, name) for name in ONSEG.schemas}
    last = {(c["experiment"], c["setting"], c["method"]): c for c in rows["curves"]}  # the last mark stays
    assert len(rows["methods"]) == len(last) == 4 * 3 * 9 + 2 * 3 * 2  # classifications are tuned twice
    for row in rows["methods"]:
        curve = last[row["experiment"], row["setting"], row["method"]]
        own = select(rows["runs"], **{key: row[key] for key in ("experiment", "setting", "method")})
        assert curve["mean_loss"] == pytest.approx(np.mean([run["mean_loss"] for run in own]))
        assert (own[0]["error_rate"] is None) == (row["experiment"] in ("abalone", "kin"))
        assert len(own) == (2 if row["algorithm"] in runs.BANDITS else 1)
        assert (row["at_edge"] is None) == ("best" not in row["method"])
    for row in rows["experiments"]:
        assert row["best_loss"] <= row["zero_loss"]
        assert row["theorem_regret"] > 2 * row["F"]  # as printed it is vacuous
    for row in rows["draws"]:
        assert abs(row["mean_return"]) <= max(panel["F"] for panel in rows["panels"])
    places = {"Abalone, D = 2", "Ionosphere, D = 2, standardised", "NYSE(O) 1962–1984, ‖x‖₁ ≤ 1"}
    assert {row["where"] for row in rows["claims"]} >= places
    assert any(row["where"].startswith("Abalone, D by the printed β (") for row in rows["claims"])


@pytest.mark.slow
def test_the_tuned_methods_have_the_same_directions_and_feasible_sets(out: Path) -> None:
    """OGDEG's and ONSEG's δ and γ are equal where they are compared; the step and β alone differ from the printed."""
    methods = rows_of(out, "methods")
    for measure, settings in ((runs.LOSS, 4 * 3), (runs.ERROR, 2 * 3)):
        ogdeg, onseg = (select(methods, method=name) for name in runs.tuned_names(measure, runs.LARGEST))
        assert len(ogdeg) == len(onseg) == settings
        for left, right in zip(ogdeg, onseg, strict=True):
            assert (left["delta"], left["gamma"]) == (right["delta"], right["gamma"])
            assert left["gamma"] == 0.5
            own = [json.loads(row["parameters"]) for row in (left, right)]
            assert {key for key in own[0].keys() | own[1].keys() if own[0].get(key) != own[1].get(key)} <= {"F", "beta"}


@pytest.mark.slow
def test_settings_that_are_the_same_are_compared_once(out: Path) -> None:
    """Theorem 3.1's γ is 1 or more in so few rounds: ½ is in its place, and δ is r/2."""
    parameters = {"D": runs.D, "F": 1.0, "T": 2_000}
    assert [pair.name for pair in runs.tuned_pairs(parameters, 7)] == [*runs.tuned_names(runs.LOSS, runs.LARGEST)]
    both = [*runs.tuned_names(runs.LOSS, ""), *runs.tuned_names(runs.LOSS, runs.LARGEST)]
    assert [pair.name for pair in runs.tuned_pairs(parameters | {"T": 2_000_000}, 7)] == both
    comparisons = rows_of(out, "comparisons")
    assert not [row for row in comparisons if row["what"] == "δ and γ of Theorem 3.1"]
    compared = [row for row in comparisons if row["what"] == "δ = r/2, γ = ½" and "at the same" in row["claim"]]
    assert len(compared) == 4 * 3 + 2 * 2


@pytest.mark.slow
def test_verdicts_on_classifications_are_there_for_every_criterion(out: Path) -> None:
    """The first criterion has the claims; of the methods tuned by errors these are what is compared."""
    rules = rows_of(out, "rules")
    assert [row for row in rules if row["rule"] == CRITERIA[0].title] == [
        {"rule": CRITERIA[0].title} | {name: row[name] for name in ("claim", "where", "holds")}
        for row in rows_of(out, "claims")
    ]
    assert {row["rule"] for row in rules} == {criterion.title for criterion in CRITERIA}
    comparisons = pq.read_table(out / "comparisons.parquet").to_pandas()
    played = pq.read_table(out / "runs.parquet").to_pandas().set_index(["experiment", "setting", "method"])
    ogdeg, onseg = (
        played.loc["cancer", "D = 2", name].error_rate.to_numpy() for name in runs.tuned_names(runs.ERROR, runs.LARGEST)
    )
    found = comparisons[(comparisons["where"] == "Breast cancer, D = 2") & (comparisons.what == "δ = r/2, γ = ½")]
    found = found[found.claim.str.contains("at the same")]
    assert found.difference.item() == pytest.approx(float(np.mean(onseg - ogdeg)))


@pytest.mark.slow
def test_the_best_value_by_errors_has_the_fewest_errors(data: Path, out: Path) -> None:
    dataset = read(data)[3]
    game = runs.Game(dataset.features, dataset.labels, dataset.loss)
    terms = {"D": runs.D, "F": dataset.constants.F, "T": dataset.rounds}
    *_, onseg = runs.tuned_pairs(terms, 9, runs.ERROR)

    def errors(beta: float) -> float:
        trials = range(2, 2 + runs.TRIALS)  # those after the two that are reported
        return float(runs.play(game, onseg.with_value(beta), [dataset.rounds], trials).error.mean())

    assert onseg.name == runs.tuned_names(runs.ERROR, runs.LARGEST)[1]
    (row,) = rows_of(out, "methods", experiment="cancer", setting="D = 2", method=onseg.name)
    assert errors(row["beta"]) <= min(errors(beta) for beta in runs.BETAS)


def test_the_implied_diameter_gives_the_printed_step(data: Path) -> None:
    for dataset in read(data, runs.IMPLIED):
        assert pytest.approx(dataset.source.beta_ons, rel=1e-9) == 1 / (8 * dataset.constants.G * dataset.D)


def test_steps_follow_from_the_theorem_at_a_diameter(data: Path) -> None:
    """½·δ/(4dFD) of `bandit_terms`, as printed where the D is that of ONSEG's own β."""
    for dataset in read(data, runs.IMPLIED):
        source = dataset.source._replace(beta_onseg=0.5 * runs.printed_steps(dataset)["beta_onseg_largest"])
        row = runs.printed_steps(dataset._replace(source=source))
        for D, beta in ((row["D_ons"], row["beta_onseg_at_D_ons"]), (row["D_onseg"], source.beta_onseg)):
            F, d, T = runs.largest_loss(*dataset[3:6], D), dataset.features.shape[1], dataset.rounds
            delta = (25 * d**4 * D**2 * math.log(T) ** 2 * D / 2 / (3 * T**2)) ** (1 / 3)
            assert beta == pytest.approx(0.5 * delta / (4 * d * F * D))
        above = source._replace(beta_onseg=1.01 * row["beta_onseg_largest"])
        assert runs.printed_steps(dataset._replace(source=above))["D_onseg"] is None


@pytest.mark.corpora
def test_the_printed_steps_of_the_real_files_contradict_each_other() -> None:
    """As solved independently: D by ONS and by ONSEG, ONSEG's β at the former, ½·α there."""
    wanted = [
        (3.1, None, 5.6e-7, 4.75e-4),
        (6.6, 3.3, 4.2e-6, 2.8e-3),
        (5.9, 8.5, 1.3e-4, 2.3e-8),
        (17.5, 6.2, 3.9e-6, 1.3e-109),
    ]
    for source, own in zip(runs.SOURCES, wanted, strict=True):
        row = runs.printed_steps(runs.read_dataset(source, corpus(f"uci/{source.file}"), runs.IMPLIED))
        found = [row[name] for name in ("D_ons", "D_onseg", "beta_onseg_at_D_ons", "half_alpha")]
        assert [value if value is None else pytest.approx(value, rel=0.04) for value in found] == list(own)


@pytest.mark.parametrize(
    ("best", "chosen", "at_edge"), [(3.0, 10.0**0.5, False), (1e-9, 1e-2 / runs.FINER, True), (1.2, 1.0, False)]
)
def test_the_best_of_a_grid_and_of_finer_values_is_chosen(best: float, chosen: float, at_edge: bool) -> None:
    tuned = runs.OnlineMethod("x", "ogdeg", {"F": 1.0}, runs.LOSS)
    method, found = runs.choose(tuned, lambda method: abs(math.log(1 / method.parameters["F"] / best)))
    assert 1 / method.parameters["F"] == pytest.approx(chosen)
    assert found == at_edge
    assert runs.choose(tuned._replace(tuned_by=""), lambda method: 0.0)[1] is None


@pytest.mark.slow
def test_gradient_descent_comes_near_the_best_fixed_point(out: Path) -> None:
    for row in rows_of(out, "experiments"):
        (own,) = rows_of(out, "runs", experiment=row["experiment"], setting=row["setting"], method="OGD")
        bound = 1.5 * row["G"] * row["D"] / math.sqrt(row["T"])  # Zinkevich's, per round
        assert own["mean_loss"] <= row["best_loss"] + bound + 1e-9


@pytest.mark.parametrize(
    ("name", "change", "code"),
    [
        ("abalone", lambda text: text.replace(",", ",x,", 20), "invalid-table"),
        ("abalone", lambda text: re.sub(r"(?m)^M,[0-9.e-]+", "M,", text), "invalid-table"),
        ("kin", lambda text: re.sub(r"(?m),[^,]*$", "", text), "invalid-table"),
        ("ionosphere", lambda text: text.replace("1,", "nan,", 1), "invalid-table"),
        ("cancer", lambda text: re.sub("^[24],", "3,", text), "wrong-number-of-classes"),
        ("cancer", lambda text: text.encode("utf-16"), "invalid-table"),
        ("nyse_o", lambda text: re.sub(r"(?m),.*$", "", text), "too-small"),
        ("nyse_o", lambda text: "".join(text.splitlines(keepends=True)[:2]), "too-small"),
        ("shanghai", lambda text: text.replace("\n", ",1\n", 5), "invalid-table"),
        *(
            ("nyse_o", lambda text, cell=cell: re.sub("(?m)^[0-9.]+", cell, text), "invalid-table")
            for cell in ("x", "0", "-1", "inf")
        ),
    ],
)
def test_damaged_files(data: Path, tmp_path: Path, name: str, change: Callable[[str], str | bytes], code: str) -> None:
    (source,) = (each for each in (*runs.SOURCES, *runs.PANELS) if each.name == name)
    path = find_file(data, source.file)
    assert path is not None
    text = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode()
    changed = change(text)
    own = tmp_path / "own.csv"
    own.write_bytes(changed if isinstance(changed, bytes) else changed.encode())
    with raises_code(code, own):
        if isinstance(source, runs.PanelSource):
            runs.read_panel(source, own)
        else:
            runs.read_dataset(source, own)


def test_standardised_features() -> None:
    features = np.random.default_rng(0).normal(3, 2, (20, 3))
    features[:, 1] = 0.1
    found = runs.standardised(features)
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(found.std(axis=0), [1, 0, 1])


# ----------------------------------------------------------------------------------------------------------------------
# Verdicts on the claims, given small numbers with a known answer and the paper's returns.


BEST, PRINTED = "at the same δ and γ", "with the printed β"


def records() -> dict[str, list[Row]]:
    """ONSEG has half of OGDEG's loss on abalone, tuned, and twice as printed.

    On ionosphere, tuned by errors, it has fewer errors; tuned by the loss, more errors and a lower loss. As printed
    it has fewer errors and a higher loss. Portfolios have the paper's returns, the printed ones the other way round.
    """
    values: dict[tuple[str, str], list[tuple[str, float, float]]] = {}  # ONSEG's method: data set, loss and error rate
    for suffix in PAIRS.values():
        values[tuned_names(LOSS, suffix)] = [("abalone", 1.0, 0.0), ("ionosphere", 1.0, 4.0)]
        values[tuned_names(ERROR, suffix)] = [("ionosphere", 4.0, 1.0)]
    values["OGDEG", "ONSEG"] = [("abalone", 4.0, 0.0), ("ionosphere", 4.0, 1.0)]
    values["unused", "two-point"] = [("abalone", 0.999, 0.0), ("ionosphere", 8.0, 8.0)]
    runs = [
        {"experiment": name, "setting": "D = 2", "method": method, "mean_loss": loss, "error_rate": errors}
        for (ogdeg, onseg), sets in values.items()
        for name, *own in sets
        for seed in range(3)
        for noise in [0.00199 if onseg == "two-point" else 0.002]
        for method, (loss, errors) in (
            (ogdeg, (0.2 + 0.001 * seed, 0.2 + 0.001 * seed)),
            (onseg, (0.1 * own[0] + noise * seed, 0.1 * own[1] + noise * seed)),
        )
    ]
    experiments = [
        {"experiment": name, "setting": "D = 2", "D": 2.0, "loss": loss, "F": 1.0}
        | {"theorem_gamma": gamma, "theorem_regret": regret}
        for name, loss, gamma, regret in (("abalone", "squared", 0.5, 1.9), ("ionosphere", "logistic", 0.5, 2.1))
    ]
    draws = [
        {"panel": "nyse", "within": within, "method": method, "mean_return": value + 0.0001 * seed * (k + 1)}
        for within in SETS
        for pair in values
        if "by errors" not in pair[0]
        for k, (method, value) in enumerate(zip(pair, (0.0102, 0.0288), strict=True))
        for seed in range(3)
    ]
    for row in draws:
        row["mean_return"] *= -1 if row["method"] in ("OGDEG", "ONSEG") else 1
    panel = {"panel": "nyse", "title": "NYSE", "period": "week", "equal_shares": 0.01, "best_stock": 0.03}
    printed = [
        {"experiment": name, "D_ons": 2.0, "D_onseg": D, "beta_onseg": 1e-5}
        | {"beta_onseg_at_D_ons": beta, "beta_onseg_largest": 2e-5}
        for name, D, beta in (("abalone", None, 1.05e-5), ("ionosphere", 3.0, 1.2e-5))
    ]
    return {"runs": runs, "experiments": experiments, "draws": draws, "panels": [panel], "printed": printed}


@pytest.mark.parametrize(
    ("criterion", "best", "printed"),
    [(CRITERIA[0], "yes", "yes"), (CRITERIA[1], "no", "yes"), (CRITERIA[2], "yes", "no")],
    ids=lambda value: value.title if isinstance(value, Criterion) else value,
)
def test_verdicts_follow_the_losses_errors_and_returns(criterion: Criterion, best: str, printed: str) -> None:
    rows = judge(find_evidence(CLAIMS, Measures(records(), criterion)))["claims"]
    found = {(row["claim"], row["where"]): row["holds"] for row in rows}
    abalone, ionosphere = (f"{TITLES[name]}, D = 2" for name in ("abalone", "ionosphere"))

    def verdict(start: str, words: str, where: str) -> str:
        (holds,) = (held for (claim, at), held in found.items() if (start in claim and words in claim and at == where))
        return str(holds)

    assert [verdict("ONSEG converges", BEST, where) for where in (abalone, ionosphere)] == ["yes", best]
    assert [verdict("ONSEG converges", PRINTED, where) for where in (abalone, ionosphere)] == ["no", printed]
    for within in SETS:
        assert [verdict("mean return", words, f"NYSE, {within}") for words in (BEST, PRINTED)] == ["yes", "no"]
    # less than ONSEG with either, but than with the best by less than 1 %: that is no
    assert [verdict("two-point", words, abalone) for words in (PRINTED, "best β")] == ["yes", "no"]
    assert [verdict("The D that", "", where) for where in (TITLES["abalone"], TITLES["ionosphere"])] == ["yes", "no"]
    assert [verdict("Theorem 3.1", "", where) for where in (abalone, ionosphere)] == ["yes", "no"]
    assert len(found) == 4 + 4 + 4 + 2 + 2
    assert {row["paper"] for row in rows if "NYSE" in row["where"]} == {
        "2.88\N{NO-BREAK SPACE}% against 1.02\N{NO-BREAK SPACE}% per week"
    }


@pytest.mark.parametrize(("gamma", "regret", "holds"), [(0.9, 1.9, "yes"), (1.0, 1.9, "no"), (0.9, 2.0, "no")])
def test_the_theorem_says_something_if_gamma_and_the_bound_are_small(gamma: float, regret: float, holds: str) -> None:
    given = records()
    for row in given["experiments"]:
        row.update(theorem_gamma=gamma, theorem_regret=regret)
    rows = [row for row in judge(find_evidence(CLAIMS, Measures(given)))["claims"] if "Theorem 3.1 has" in row["claim"]]
    assert [row["holds"] for row in rows] == [holds] * 2


@pytest.mark.parametrize(
    ("seconds", "holds"),
    [((2, 3, 1, 1), "yes"), ((1, 3, 1, 2), "mixed"), ((3, 1, 1, 2), "mixed"), ((1,) * 4, "no")],
)
def test_a_round_is_compared_with_those_of_ogd_and_ons(seconds: tuple[int, ...], holds: str) -> None:
    """The seconds are of OGD, ONS, OGDEG and ONSEG, whose rounds are half as many in the last case."""
    timings = [
        {"experiment": "kin", "method": name, "seconds": own + 0.001 * turn * (k + 1)}
        | {"rounds": 500 if len(set(seconds)) == 1 and name == "ONSEG" else 1000}
        for k, (name, own) in enumerate(zip(TIMED_METHODS, seconds, strict=True))
        for turn in range(3)
    ]
    (row,) = judge(find_evidence(RUN_TIMES, Measures({"timings": timings})))["claims"]
    assert (row["where"], row["holds"]) == (TITLES["kin"], holds)
