"""The choice of a search: packing and rungs, selection, the metric, and models of few features."""

import json
import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparseoco import Model
from sparseoco.core.errors import InputError, SparseocoError
from sparseoco.core.option_models import validate
from sparseoco.learners import find_algorithm
from sparseoco.search import packing, selection
from sparseoco.search.packing import Capacity, Job, pack
from sparseoco.search.run import write_block
from sparseoco.store.shards import Store
from sparseoco.text.options import TextOptions
from sparseoco.training.block import search_settings
from sparseoco.training.metrics import majority_error
from sparseoco.training.options import AtMost, Halving, SearchOptions
from sparseoco.training.stream import StreamPosition
from tests.support.errors import raises_code
from tests.support.searches import TablesOf, block_of, cells, metrics_row, plain_search, site
from tests.support.stores import make_store

# ----------------------------------------------------------------------------------------------------------------------
# Blocks of a search: nothing lost or twice, even between tasks; rungs and survivors as rules.


LEGS = (StreamPosition(1, 60),)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder: Path = make_store(tmp_path_factory.mktemp("store"), rows=60, features=20)
    return Store.open(folder)


def packed(store: Store, configurations: int, folds: int, tasks: int, column_bytes: float = 1e9) -> list[Job]:
    """The jobs of a search, which have every configuration once."""
    lam = [float(k) for k in range(1, configurations + 1)]
    options = plain_search(algorithms={"cl-fobos": {"lam": lam}}, folds=folds, dtype="float32")
    settings = search_settings(options, store)
    work = [(chosen, setting, LEGS, None) for setting in settings for chosen in options.configurations()]
    jobs = pack(work, options, store, Capacity(tasks, column_bytes), resumable=False)
    keys = [key for job in jobs for key in job.block.keys]
    assert len(keys) == len(set(keys)) == configurations * folds
    return jobs


def end(jobs: list[Job], tasks: int, store: Store) -> float:
    return packing.schedule([(packing.job_cost(job, store), 1) for job in jobs], tasks)[0]


@given(configurations=st.integers(1, 150), folds=st.integers(1, 7), tasks=st.integers(1, 40))
@settings(max_examples=40)
def test_every_configuration_once_and_even_tasks(store: Store, configurations: int, folds: int, tasks: int) -> None:
    jobs = packed(store, configurations, folds, tasks)
    assert max(len(job.block.configurations) for job in jobs) <= packing.BLOCK_COLUMNS
    costs = [packing.job_cost(job, store) for job in jobs]
    assert costs == sorted(costs, reverse=True)
    assert end(jobs, tasks, store) <= end(packed(store, configurations, folds, 1), tasks, store)


@given(
    configurations=st.integers(1, 100),
    folds=st.integers(1, 4),
    tasks=st.integers(1, 20),
    columns=st.integers(1, 128),
)
@settings(max_examples=40)
def test_not_later_than_wide_blocks(store: Store, configurations: int, folds: int, tasks: int, columns: int) -> None:
    bytes_free = 8.0 * store.n_features * (1 + 2 * columns)
    jobs = packed(store, configurations, folds, tasks, bytes_free)
    assert all(packing.state_bytes(job.block, store) <= bytes_free for job in jobs)
    widest = sorted(packed(store, configurations, folds, 1, bytes_free), key=lambda job: -packing.job_cost(job, store))
    assert 0.99 * end(jobs, tasks, store) <= end(widest, tasks, store)


def test_few_configurations_keep_many_tasks_busy(store: Store) -> None:
    (wide,) = packed(store, 16, 1, 1)
    one = packing.job_cost(wide, store)
    two, eight = packed(store, 16, 1, 2), packed(store, 16, 1, 8)
    assert end(two, 2, store) <= 0.8 * one
    assert end(eight, 8, store) <= 0.6 * one
    assert sum(packing.job_cost(job, store) for job in eight) <= 2.5 * one


@pytest.mark.parametrize(
    ("configurations", "folds", "least"), [(64, 5, 1.8), (32, 5, 1.7), (64, 2, 2.0), (512, 5, 1.95)]
)
def test_two_tasks_end_together(store: Store, configurations: int, folds: int, least: float) -> None:
    one, two = packed(store, configurations, folds, 1), packed(store, configurations, folds, 2)
    assert end(one, 1, store) / end(two, 2, store) >= least


def test_rungs_are_a_function_of_size_and_options() -> None:
    assert selection.rung_positions(Halving(factor=2), 100_000, 8) == [12_500, 25_000, 50_000]
    assert selection.rung_positions(Halving(factor=2), 5000, 8) == [1250, 2500]
    assert selection.rung_positions(Halving(factor=3), 100_000, 9) == [11_111, 33_333]
    assert selection.rung_positions(Halving(factor=3), 100_000, 10) == [3704, 11_111, 33_333]
    assert selection.rung_positions(Halving(factor=4, rungs=(0.5, 0.1, 0.1)), 10_000, 2) == [1000, 5000]
    assert selection.rung_positions(Halving(factor=2), 1, 100) == []


@given(
    factor=st.floats(1.01, 10),
    n_rows=st.integers(1, 10**6),
    epochs=st.integers(1, 6),
    configurations=st.integers(1, 1000),
)
def test_stages_lead_to_the_end(factor: float, n_rows: int, epochs: int, configurations: int) -> None:
    options = plain_search(algorithms={"fobos": {}}, epochs=epochs, halving=Halving(factor=factor))
    stages = selection.plan_stages(options, n_rows, configurations)
    assert all(before.goal < after.goal for before, after in pairwise(stages))
    assert [stage.is_last for stage in stages] == [False] * (len(stages) - 1) + [True]
    assert stages[-1].goal == StreamPosition(epochs, n_rows)
    for stage in stages:
        assert stage.milestones[-1] == stage.goal
        if not stage.is_last:
            assert stage.goal.epoch == 1
            assert selection.MIN_RUNG_ROWS <= stage.goal.position < n_rows


def row(error: float, loss: float = 0.0, status: str = "ok") -> dict[str, Any]:
    return {"progressive_error": error, "progressive_loss": loss, "held_out_error": error, "status": status}


@given(
    table=st.lists(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2, max_size=2), max_size=20),
    factor=st.floats(1.01, 8),
)
def test_survivors_are_the_best_and_never_none_of_the_well(table: list[list[tuple[int, bool]]], factor: float) -> None:
    figures = {
        str(i): [row(error / 4, status="ok" if well else "diverged") for error, well in folds]
        for i, folds in enumerate(table)
    }
    well = {name: sum(r["progressive_error"] for r in rows) for name, rows in figures.items()}
    well = {name: error for name, error in well.items() if all(r["status"] == "ok" for r in figures[name])}
    best = selection.survivors(figures, factor)
    assert best <= set(well)
    assert bool(best) == bool(well)
    assert len(best) <= max(1, len(figures) / factor + 1)
    for kept in best:
        for dropped in set(well) - best:
            assert (well[kept], int(kept)) < (well[dropped], int(dropped))


def test_ties_are_settled_by_loss_then_by_number() -> None:
    figures = {"a": [row(0.1, 0.5)], "b": [row(0.1, 0.4)], "c": [row(0.1, 0.4)], "d": [row(0.2, 0.1)]}
    assert selection.survivors(figures, 4) == {"b"}
    assert selection.survivors(figures, 2) == {"b", "c"}
    assert selection.survivors(figures, 1.4) == {"a", "b", "c"}


# ----------------------------------------------------------------------------------------------------------------------
# The choice among the candidates of a search, and parameters at an edge of their grid.


TABLE = [
    metrics_row(0, 0, 0.10, 100), metrics_row(0, 1, 0.14, 100),
    metrics_row(1, 0, 0.11, 10), metrics_row(1, 1, 0.15, 20),
    metrics_row(2, 0, 0.30, 1), metrics_row(2, 1, 0.30, 1),
]  # fmt: skip


def test_the_least_error_or_the_sparsest_within_one_standard_error() -> None:
    best = selection.choose(TABLE, "best")
    assert (best.configuration, best.error, best.value("error")) == (0, pytest.approx(0.12), pytest.approx(0.12))
    assert best.standard_error == pytest.approx(0.02)  # (0.14 − 0.10)/√2 over √2
    assert selection.choose(TABLE, "one-standard-error").configuration == 1


def test_what_failed_in_one_fold_is_no_candidate() -> None:
    table = [
        *TABLE,
        metrics_row(3, 0, 0.0, 5),
        metrics_row(3, 1, 0.0, 5, status="diverged", reason="diverged at row 3"),
    ]
    assert [candidate.configuration for candidate in selection.candidates(table)] == [0, 1, 2]
    assert [candidate.configuration for candidate in selection.candidates(table[:-1])] == [0, 1, 2]  # a fold is missing


def test_one_split_has_the_binomial_standard_error() -> None:
    best = selection.choose([metrics_row(0, -1, 0.2, 5, held_out_rows=0, held_out_error=None)], "best")
    assert best.standard_error == pytest.approx((0.2 * 0.8 / 80) ** 0.5)


def test_equal_errors_are_settled_by_sparseness_then_by_number() -> None:
    table = [metrics_row(number, 0, 0.1, nonzeros) for number, nonzeros in enumerate((9, 5, 5))]
    assert selection.choose(table, "best").configuration == 1


def test_no_configuration_succeeded() -> None:
    with raises_code("no-candidate", "diverged at row 3", kind=SparseocoError):
        selection.choose([metrics_row(0, 0, 0.1, 1, status="diverged", reason="diverged at row 3")], "best")


def test_metrics_of_which_more_is_better() -> None:
    aucs = {0: (0.7, 0.8), 1: (0.9, 0.9), 2: (0.95, None), 3: (None, None)}
    table = [
        metrics_row(number, fold, 0.1, 10, held_out_roc_auc=value)
        for number, values in aucs.items()
        for fold, value in enumerate(values)
    ]
    found = selection.candidates(table, "roc_auc")
    assert [candidate.configuration for candidate in found] == [2, 1, 0]  # a fold without positives does not count
    assert [candidate.value("roc_auc") for candidate in found] == pytest.approx([0.95, 0.9, 0.75])
    assert found[2].standard_error == pytest.approx(0.05)
    assert selection.choose(table, "one-standard-error", "roc_auc").configuration == 2
    with raises_code("no-candidate", "roc_auc is not defined", kind=SparseocoError):
        selection.choose(table[-2:], "best", "roc_auc")


def test_the_best_of_at_most_so_many_features() -> None:
    table = [
        metrics_row(k, fold, 0.1 + k / 100, 99, features=[50, 20, 5][k] + fold) for k in range(3) for fold in (0, 1)
    ]
    chosen = [selection.choose(table, AtMost(at_most=size)).configuration for size in (51, 50, 21, 20, 6)]
    assert chosen == [0, 1, 1, 2, 2]
    assert selection.choose(table, AtMost(at_most=5)).configuration == 2  # the model of all the data is cut to them


def test_a_best_value_at_the_edge_of_its_grid() -> None:
    grid = [{"lam": lam, "eta0": eta0, "by": "feature"} for lam in (1e-4, 3e-4, 1e-3) for eta0 in (1.0, 10.0)]
    edges = selection.grid_edges({"lam": 1e-3, "eta0": 1.0, "by": "feature"}, grid)
    assert edges == [("lam", 1e-3, "larger", 3e-3), ("eta0", 1.0, "smaller", 0.1)]
    assert selection.grid_edges({"lam": 3e-4}, grid) == []
    for grid in ([0.0, 1.0], [0.0, 0.1, 1.0]):
        rows = [{"lam": lam} for lam in grid]
        assert selection.grid_edges({"lam": 0.0}, rows) == [("lam", 0.0, "smaller", None)]
        assert selection.grid_edges({"lam": 1.0}, rows) == [("lam", 1.0, "larger", None if len(grid) == 2 else 10.0)]


def with_errors(options: SearchOptions, error: Callable[[dict[str, Any]], float]) -> list[dict[str, Any]]:
    """The metrics of a search whose errors are a function of the parameters, and 0.01 more in the second fold."""
    return [
        metrics_row(
            c.number, fold, error(c.parameters) + fold / 100, algorithm=c.algorithm, parameters=c.parameters_json
        )
        for c in options.configurations()
        for fold in (0, 1)
    ]


@pytest.mark.parametrize("select", ["best", "one-standard-error"])
@pytest.mark.parametrize(("best", "expected"), [(3e-5, []), (1e-6, [3.3e-7]), (2e-3, [1e-3, 3e-3, 1e-2])])
def test_a_default_grid_grows_towards_the_best(best: float, expected: list[float], select: Any) -> None:
    grid = find_algorithm("adagrad").grid
    algorithms: dict[str, Any] = {"adagrad": {"lam": grid["lam"], "eta": [0.1]}, "rda": {"lam": [1.0], "gamma": [1.0]}}
    options, last = plain_search(algorithms=algorithms, folds=2, select=select), None
    defaults, steps = selection.default_grids(options), 0
    assert defaults == {"adagrad": {"lam": grid["lam"]}, "rda": {}}  # values of one's own are not extended
    while options is not last:
        last, steps = options, steps + 1
        table = with_errors(last, lambda parameters: 0.1 + abs(math.log(parameters["lam"] / best)) / 100)
        options = selection.wider_grids(last, defaults, selection.Leading.of(table, last))
    assert options.algorithms["adagrad"]["lam"] == sorted([*grid["lam"], *expected])
    assert steps == 1 + len(expected)
    assert len(expected) <= selection.FURTHER_VALUES


@pytest.mark.parametrize(("gains", "improved"), [((0.02, 0.021), True), ((0.02, 0.01), False), ((0.0, 0.0), False)])
def test_what_improves_by_no_more_than_noise_ends_the_growth(gains: tuple[float, float], improved: bool) -> None:
    options = plain_search(algorithms={"adagrad": {}}, folds=2)
    before = selection.Leading.of([metrics_row(0, fold, 0.2 + fold / 10) for fold in (0, 1)], options)
    after = [metrics_row(0, fold, 0.2 + fold / 10 - gain) for fold, gain in enumerate(gains)]
    assert selection.Leading.of(after, options).improves_on(before) == improved


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "error"),
        ({"metric": "f1"}, "f1"),
        ({"loss": "squared"}, "rmse"),
        ({"loss": "squared", "folds": 1}, "loss"),
        ({"metric": "loss", "folds": 1}, "loss"),
    ],
)
def test_the_metric_of_a_search(options: dict[str, Any], expected: str) -> None:
    assert plain_search(algorithms={"adagrad": {}}, **options).selection_metric == expected


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"metric": "accuracy"}, "metric='accuracy'"),
        ({"metric": "roc_auc", "folds": 1}, "set folds to 2 or more"),
        ({"threshold": "f1", "folds": 1}, "set folds to 2 or more"),
        ({"select": "error"}, "select: "),
        ({"select": {"at_most": 0}}, "at_most: must be at least 1"),
        ({"halving": {"rungs": [0.5, 2]}}, "halving.rungs.1: must be below 1"),
        ({"halving": 1}, "must be above 1"),
        ({"time_limit": "soon"}, "time_limit: "),
        ({"max_memory": "plenty"}, "write a size as"),
        ({"class_weight": "even"}, "class_weight: "),
        ({"class_weight": {"c0": -1.0}}, "class_weight.c0: must be at least 0"),
        ({"class_weight": {"c0": "much"}}, "class_weight.c0: must be a number"),
        ({"penalty": "l2", "algorithms": {"cl-fobos": {"lam": {"relative": [0.1]}}}}, "λ_max"),
        ({"algorithms": {"cl-fobos": {"eta0": {"relative": [0.1]}}}}, "λ_max"),
        ({"algorithms": {"fobos": {"R": 1.0}}, "penalty": "box", "intercept": True}, "penalty box"),
        ({"algorithms": {"caos-erm": {}}, "warm_start": "x"}, "warm_start"),
        ({"algorithms": {"ogd": {"parts": 2}}}, "ogd"),
        *(({"algorithms": {"fobos": {"parts": parts}}}, "fobos: parts=") for parts in (0, -1, 2.5, "all", 10**6)),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError) as refused:
        validate(SearchOptions, {"algorithms": {"adagrad": {}}} | options)
    assert named in str(refused.value)


def test_a_metric_of_other_labels_is_refused() -> None:
    options = plain_search(algorithms={"adagrad": {}}, metric="f1")
    options.check_metric("two classes")
    for kind, other in (("classes", "f1_macro"), ("numbers", "rmse")):
        with raises_code("invalid-metric", other):
            options.check_metric(kind)


def test_rules_sizes_and_times_on_a_command_line() -> None:
    units = {"halving": 3, "time_limit": "1h 30min", "max_memory": "2GB"}
    given = plain_search(algorithms={"adagrad": {}}, select="at_most=10_000", **units)
    assert given.select == AtMost(at_most=10_000)
    assert (given.halving, given.time_limit, given.max_memory) == (Halving(factor=3), 5400, 2_000_000_000)
    assert SearchOptions.model_validate(given.model_dump(mode="json")) == given


# ----------------------------------------------------------------------------------------------------------------------
# Searches that compare configurations by another metric than the error.


LAM = [1e-5, 1e-3, 1e-2, 0.5]
GRID: dict[str, Any] = {"cl-fobos": {"lam": LAM, "eta0": [0.5]}}


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("store"), rows=240, features=80)


@pytest.mark.usefixtures("early_rungs")
def test_halving_keeps_the_best_held_out_metric(tables_of: TablesOf, labelled: Path) -> None:
    halving = {"factor": 2, "rungs": [0.5]}
    options = plain_search(algorithms=GRID, folds=2, metric="log_loss", halving=halving)
    metrics = tables_of(labelled, "search", options)["metrics"]
    at_rung = [[row for row in metrics if row["configuration"] == c and row["status"] == "dropped"] for c in range(4)]
    dropped = [rows for rows in at_rung if rows]
    assert len(dropped) == 2
    assert all(row["held_out_rows"] > 0 and row["held_out_log_loss"] is not None for rows in dropped for row in rows)
    plain = plain_search(algorithms=GRID, folds=2, metric="error", halving=halving)
    by_error = tables_of(labelled, "search", plain)["metrics"]
    assert all(row["held_out_rows"] == 0 for row in by_error if row["status"] == "dropped")


def test_another_metric_needs_no_new_training(tables_of: TablesOf, labelled: Path, tmp_path: Path) -> None:
    options = plain_search(algorithms=GRID, folds=2, epochs=3)
    tables_of(labelled, "search", options)
    before = cells(tmp_path / "search")
    by_auc = options.model_copy(update={"metric": "roc_auc", "epochs": 1})
    assert len(tables_of(labelled, "search", by_auc)["metrics"]) == 8
    assert cells(tmp_path / "search") == before


def test_the_choice_is_described(tables_of: TablesOf, labelled: Path) -> None:
    options, store = plain_search(algorithms=GRID, folds=2, metric="log_loss"), Store.open(labelled)
    metrics = tables_of(labelled, "search", options)["metrics"]
    best = selection.describe_choice(metrics, options, store)
    values = [np.mean([row["held_out_log_loss"] for row in metrics if row["configuration"] == c]) for c in range(4)]
    assert (best["configuration"], best["value"]) == (int(np.argmin(values)), pytest.approx(min(values)))
    assert (best["metric"], best["beats_baseline"]) == ("log_loss", True)
    assert best["baseline"] == pytest.approx(0.69, abs=0.01)
    features = [max(row["features"] for row in metrics if row["configuration"] == c) for c in range(4)]
    small = selection.describe_choice(
        metrics, options.model_copy(update={"select": AtMost(at_most=features[2])}), store
    )
    assert small["features"] <= features[2] < max(features)
    assert small["rule"] == "at-most"


def test_a_model_that_never_says_yes_does_not_beat_the_largest_class(labelled: Path) -> None:
    options = plain_search(algorithms={"cl-fobos": {"lam": [1e-3], "eta0": [0.5]}}, folds=3)
    (chosen,) = options.configurations()
    named = {"algorithm": "cl-fobos", "parameters": json.dumps(chosen.parameters), "features": 4}
    rows = []
    for fold, (positives, n) in enumerate([(33, 992), (34, 1044), (35, 964)]):
        majority = majority_error([n - positives, positives])
        own = {"rows": 2 * n, "held_out_rows": n, "held_out_majority_error": majority}
        rows.append(metrics_row(0, fold, positives / n, 4, **named, **own))
    best = selection.describe_choice(rows, options, Store.open(labelled))
    assert best["value"] == best["baseline"]
    assert not best["beats_baseline"]


def test_nothing_beats_the_largest_class(tables_of: TablesOf, labelled: Path) -> None:
    options = plain_search(algorithms={"cl-fobos": {"lam": [100.0, 200.0], "eta0": [0.5]}}, folds=2, intercept=False)
    metrics = tables_of(labelled, "search", options)["metrics"]
    best = selection.describe_choice(metrics, options, Store.open(labelled))
    assert not best["beats_baseline"]
    assert "no configuration beats always predicting the largest class" in best["notes"][0]
    assert "lam = 100 is the smallest value of its grid: a smaller one, such as 50, may be better" in best["notes"][1]


# ----------------------------------------------------------------------------------------------------------------------
# Models with at most so many features.


@pytest.mark.parametrize("classes", [2, 3])
def test_the_strongest_features_are_kept(tmp_path: Path, classes: int) -> None:
    store = Store.open(make_store(tmp_path / "store", features=60, classes=classes))
    store.manifest.options.update(TextOptions().plain())
    options = plain_search(algorithms={"adagrad": {"lam": [1e-5], "eta": [0.3]}})
    block = block_of(options, store)

    def weights(at_most: int | None) -> dict[tuple[int, str], float]:
        rules = {} if at_most is None else {"at_most": at_most}
        write_block(site(store, tmp_path), block, tmp_path / "model", rules, None)
        model = Model(tmp_path / "model")
        assert at_most is None or model.feature_ids.size <= at_most
        pruned = model.feature_ids.size == at_most
        assert (tmp_path / "model" / "learner.npz").exists() != pruned
        columns = (model.table[name].to_pylist() for name in ("feature_id", "class", "weight"))
        return {(feature, of): weight for feature, of, weight in zip(*columns, strict=True)}

    every, few, fewer = weights(None), weights(20), weights(5)
    assert fewer.items() <= few.items() <= every.items()
    documents = store.document_frequencies()
    strength = np.zeros(60)
    for (feature, _), weight in every.items():
        strength[feature] += weight**2 * documents[feature]
    assert {feature for feature, _ in fewer} == set(np.argsort(-strength)[:5].tolist())
    assert weights(1000) == every
