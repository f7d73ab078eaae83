"""Defaults of a search that depend on the store: its classes, their shares and its size."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sparseoco.training.options import HALVED_WEIGHTS, AtMost, Halving, SearchOptions, resolve


def store(classes: list[int], *, features: int = 1000, multilabel: bool = False) -> Any:
    """What the options read of a store with so many documents of each class."""
    labels = SimpleNamespace(
        classes=[SimpleNamespace(name=f"c{k}", rows=rows) for k, rows in enumerate(classes)], kind="classes"
    )
    return SimpleNamespace(
        n_rows=sum(classes),
        n_features=features,
        n_outputs=1 if len(classes) == 2 and not multilabel else len(classes),
        is_multilabel=multilabel,
        counts_dtype=np.dtype("uint16"),
        manifest=SimpleNamespace(labels=labels, fields=()),
    )


def defaults(options: SearchOptions, of: Any) -> SearchOptions:
    return resolve(options, of, search=True)


@pytest.mark.fault(31)
@pytest.mark.parametrize(
    ("rows", "rare"), [([90, 10], True), ([876, 124], True), ([80, 20], False), ([8, 1, 1], False)]
)
def test_a_rare_class_is_chosen_for_by_average_precision(rows: list[int], rare: bool) -> None:
    found = defaults(SearchOptions(), store(rows))
    assert (found.metric, str(found.threshold)) == (("average_precision", "f1") if rare else (None, "None"))
    assert defaults(SearchOptions(metric="error"), store(rows)).threshold is None
    assert defaults(SearchOptions(folds=1), store(rows)).metric is None


@pytest.mark.parametrize(
    ("options", "rows", "since"),
    [
        ({}, [97, 3], "c1 has 3.0% of the documents"),
        ({"metric": "log_loss"}, [97, 3], "c1 has 3.0% of the documents"),
        ({"metric": "average_precision"}, [97, 3], "c1 has 3.0% of the documents"),
        ({"metric": "precision_at_recall_90"}, [50, 50], "precision_at_recall_90 ranks documents"),
        ({"metric": "f1"}, [50, 50], None),
        ({"metric": "error"}, [97, 3], None),
        ({"threshold": "none"}, [97, 3], None),
        ({"metric": "average_precision", "threshold": "none"}, [50, 50], None),
        ({"folds": 1, "threshold": "none"}, [97, 3], None),
        ({"metric": "average_precision"}, [50, 47, 3], None),
    ],
)
def test_a_threshold_is_chosen_by_default_for_a_ranking_or_a_rare_class(
    options: dict[str, Any], rows: list[int], since: str | None
) -> None:
    rule = defaults(SearchOptions(**options), store(rows)).threshold_rule
    assert (rule and (rule.rule, rule.since)) == (since and ("f1", since))


def test_label_sets_have_thresholds_but_not_another_metric() -> None:
    found = defaults(SearchOptions(), store([60, 50, 3], multilabel=True))
    assert found.metric is None
    assert found.threshold_rule is not None
    assert found.threshold_rule.since == "1 of 3 classes have less than an eighth of the documents"
    assert defaults(SearchOptions(), store([60, 50, 30], multilabel=True)).threshold is None
    precise = SearchOptions(threshold={"precision": 0.9})
    assert defaults(precise, store([97, 3])).threshold == precise.threshold


def test_long_searches_have_fewer_folds_and_halve_within_the_first_pass() -> None:
    small, large, several = store([60, 40]), store([6_000, 4_000]), store([30, 30, 40])
    default = SearchOptions()
    assert [defaults(default, each).folds for each in (small, large, several)] == [5, 3, 5]
    assert defaults(default, large).halving is None
    assert defaults(default, several).halving == Halving(factor=3, rungs=(0.5,))
    assert defaults(default, store([1, 1, 1], features=HALVED_WEIGHTS)).halving is None


def test_what_is_set_stays_and_sizes_have_a_grid_of_their_own() -> None:
    given = SearchOptions(folds=5, algorithms={"fobos": {"lam": [0.1]}}, select=AtMost(at_most=7))
    found = defaults(given, store([30, 30, 40]))
    assert found == given.model_copy(update={"loss": found.loss, "features": found.features})
    assert defaults(SearchOptions(algorithms={"fobos": {}}), store([30, 30, 40])).halving is None
    sized = defaults(SearchOptions(select=AtMost(at_most=7)), store([30, 30, 40]))
    assert sized.halving is None
    assert len(sized.configurations()) == 39
