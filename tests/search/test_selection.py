from typing import Any

import pytest

from sparseoco.core.errors import SparseocoError
from sparseoco.core.option_models import validate
from sparseoco.search.selection import candidates, choose, grid_edges
from sparseoco.training.options import AtMost, SearchOptions
from tests.support.errors import raises_code
from tests.support.searches import plain_search


def row(configuration: int, fold: int, error: float, nonzeros: int, **changes: Any) -> dict[str, Any]:
    return {
        "configuration": configuration,
        "algorithm": "fobos",
        "parameters": "{}",
        "fold": fold,
        "epoch": 1,
        "rows": 80,
        "progressive_error": error,
        "held_out_rows": 20,
        "held_out_error": error,
        "nonzeros": nonzeros,
        "status": "ok",
        "reason": "",
    } | changes


TABLE = [
    row(0, 0, 0.10, 100), row(0, 1, 0.14, 100),
    row(1, 0, 0.11, 10), row(1, 1, 0.15, 20),
    row(2, 0, 0.30, 1), row(2, 1, 0.30, 1),
]  # fmt: skip


def test_the_least_error_or_the_sparsest_within_one_standard_error() -> None:
    best = choose(TABLE, "best")
    assert (best.configuration, best.error, best.value("error")) == (0, pytest.approx(0.12), pytest.approx(0.12))
    assert best.standard_error == pytest.approx(0.02)  # (0.14 − 0.10)/√2 over √2
    assert choose(TABLE, "one-standard-error").configuration == 1


def test_what_failed_in_one_fold_is_no_candidate() -> None:
    table = [*TABLE, row(3, 0, 0.0, 5), row(3, 1, 0.0, 5, status="diverged", reason="diverged at row 3")]
    assert [candidate.configuration for candidate in candidates(table)] == [0, 1, 2]
    assert [candidate.configuration for candidate in candidates(table[:-1])] == [0, 1, 2]  # a fold is missing


def test_one_split_has_the_binomial_standard_error() -> None:
    best = choose([row(0, -1, 0.2, 5, held_out_rows=0, held_out_error=None)], "best")
    assert best.standard_error == pytest.approx((0.2 * 0.8 / 80) ** 0.5)


def test_equal_errors_are_settled_by_sparseness_then_by_number() -> None:
    assert choose([row(0, 0, 0.1, 9), row(1, 0, 0.1, 5), row(2, 0, 0.1, 5)], "best").configuration == 1


def test_no_configuration_succeeded() -> None:
    with raises_code("no-candidate", "diverged at row 3", kind=SparseocoError):
        choose([row(0, 0, 0.1, 1, status="diverged", reason="diverged at row 3")], "best")


def test_metrics_of_which_more_is_better() -> None:
    aucs = {0: (0.7, 0.8), 1: (0.9, 0.9), 2: (0.95, None), 3: (None, None)}
    table = [
        row(number, fold, 0.1, 10, held_out_roc_auc=value)
        for number, values in aucs.items()
        for fold, value in enumerate(values)
    ]
    found = candidates(table, "roc_auc")
    assert [candidate.configuration for candidate in found] == [2, 1, 0]  # a fold without positives does not count
    assert [candidate.value("roc_auc") for candidate in found] == pytest.approx([0.95, 0.9, 0.75])
    assert found[2].standard_error == pytest.approx(0.05)
    assert choose(table, "one-standard-error", "roc_auc").configuration == 2
    with raises_code("no-candidate", "roc_auc is not defined", kind=SparseocoError):
        choose(table[-2:], "best", "roc_auc")


def test_the_best_of_at_most_so_many_features() -> None:
    table = [row(k, fold, 0.1 + k / 100, 99, features=[50, 20, 5][k] + fold) for k in range(3) for fold in (0, 1)]
    chosen = [choose(table, AtMost(at_most=size)).configuration for size in (51, 50, 21, 20, 6)]
    assert chosen == [0, 1, 1, 2, 2]
    assert choose(table, AtMost(at_most=5)).configuration == 2  # the model of all the data is cut to them


def test_a_best_value_at_the_edge_of_its_grid() -> None:
    grid = [{"lam": lam, "eta0": eta0, "by": "feature"} for lam in (1e-4, 1e-3, 1e-2) for eta0 in (1.0, 2.0)]
    edges = grid_edges({"lam": 1e-2, "eta0": 1.0, "by": "feature"}, grid)
    assert [(edge.parameter, edge.edge) for edge in edges] == [("lam", "largest"), ("eta0", "smallest")]
    assert "a larger one may be better" in edges[0].sentence
    assert grid_edges({"lam": 1e-3, "eta0": 1.0}, [{"lam": lam, "eta0": 1.0} for lam in (1e-4, 1e-3, 1e-2)]) == []


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
    "options",
    [
        {"metric": "accuracy"},
        {"metric": "r2", "loss": "logistic"},
        {"metric": "f1", "loss": "squared"},
        {"metric": "roc_auc", "folds": 1},
        {"select": "error"},
        {"select": {"at_most": 0}},
    ],
)
def test_metrics_and_rules_that_are_refused(options: dict[str, Any]) -> None:
    with raises_code("invalid-option"):
        validate(SearchOptions, {"algorithms": {"adagrad": {}}, **options})


def test_a_metric_of_other_labels_is_refused() -> None:
    options = plain_search(algorithms={"adagrad": {}}, metric="f1")
    options.check_metric("two classes")
    with raises_code("invalid-metric", "f1_macro"):
        options.check_metric("classes")


def test_the_rule_on_a_command_line() -> None:
    given = plain_search(algorithms={"adagrad": {}}, select="at_most=10_000")
    assert given.select == AtMost(at_most=10_000)
    assert SearchOptions.model_validate(given.model_dump(mode="json")) == given
