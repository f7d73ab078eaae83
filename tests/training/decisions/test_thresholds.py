"""A threshold is the best of all cuts under its rule, and separates the rows that it was chosen to separate."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score, precision_recall_curve, precision_score, recall_score

from sparseoco.core.option_models import validate
from sparseoco.training.decisions import Threshold, choose_threshold, choose_thresholds
from sparseoco.training.options import ThresholdRule
from tests.support.errors import raises_code

RULES = [
    {"rule": "f1"},
    {"rule": "precision", "value": 0.75},
    {"rule": "recall", "value": 0.6},
    {"rule": "top", "value": 0.3},
]
ROWS = st.lists(st.tuples(st.integers(-4, 4), st.booleans()), min_size=1, max_size=12)


@pytest.mark.parametrize("reverse", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["rule"])
@settings(max_examples=40, deadline=None)
@given(rows=ROWS)
def test_a_threshold_is_the_best_of_all_cuts(
    rule: dict[str, float], reverse: bool, rows: list[tuple[int, bool]]
) -> None:
    margins, positive = np.array([z / 3 for z, _ in rows]), np.array([p for _, p in rows])
    found = choose_threshold(ThresholdRule.model_validate(rule), margins, positive, reverse=reverse)
    predicted = margins <= found.margin if reverse else margins > found.margin
    figures = _figures(positive, predicted)
    assert (found.precision, found.recall, found.f1, found.share) == pytest.approx(figures)
    cuts = [np.full(len(rows), False)]
    cuts += [margins <= z if reverse else margins >= z for z in np.unique(margins)]
    every = [_figures(positive, cut) for cut in cuts]
    value = rule.get("value", 0.0)
    if rule["rule"] == "f1":
        assert found.f1 == pytest.approx(max(f1 for _, _, f1, _ in every))
    elif rule["rule"] == "precision":
        reached = [recall for precision, recall, _, _ in every if precision >= value]
        assert found.reached == bool(reached)
        best = max(reached) if reached else max(precision for precision, _, _, _ in every)
        assert (found.recall if reached else found.precision) == pytest.approx(best)
    elif rule["rule"] == "recall":
        assert found.reached == positive.any()
        assert not found.reached or found.precision == max(p for p, recall, _, _ in every if recall >= value)
    else:
        assert found.share == max(share for _, _, _, share in every if share <= value)


def _figures(positive: np.ndarray, predicted: np.ndarray) -> tuple[float, float, float, float]:
    scores = (score(positive, predicted, zero_division=0.0) for score in (precision_score, recall_score, f1_score))
    precision, recall, f1 = scores
    return float(precision), float(recall), float(f1), float(predicted.mean())


def test_cuts_are_those_of_the_precision_recall_curve() -> None:
    random = np.random.default_rng(0)
    margins = random.normal(size=500).round(1)
    positive = random.random(500) < 1 / (1 + np.exp(-margins))
    precision, recall, _ = precision_recall_curve(positive, margins)
    found = choose_threshold(ThresholdRule(rule="precision", value=0.7), margins, positive)
    assert found.recall == recall[precision >= 0.7].max()
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-300)
    assert choose_threshold(ThresholdRule(rule="f1"), margins, positive).f1 == pytest.approx(f1.max())


@given(st.floats(-1e6, 1e6), st.booleans())
def test_neighbouring_floats_are_separated(low: float, reverse: bool) -> None:
    margins = np.array([low, np.nextafter(low, np.inf)])
    positive = np.array([reverse, not reverse])
    found = choose_threshold(ThresholdRule(rule="f1"), margins, positive, reverse=reverse)
    assert (margins > found.margin).tolist() == [False, True]
    assert Threshold.model_validate_json(found.model_dump_json()) == found


@pytest.mark.parametrize(
    ("given_", "rule", "value"),
    [("f1", "f1", None), ("precision=0.9", "precision", 0.9), ({"top": 0.01}, "top", 0.01), (RULES[2], "recall", 0.6)],
)
def test_a_rule_has_short_forms(given_: object, rule: str, value: float | None) -> None:
    found = validate(ThresholdRule, given_)
    assert (found.rule, found.value) == (rule, value)
    assert validate(ThresholdRule, str(found)) == found


@pytest.mark.parametrize("given_", ["f1=1", "precision", {"recall": 0}, {"top": 1.5}, {"top": float("nan")}, "f2"])
def test_a_rule_that_means_nothing_is_refused(given_: object) -> None:
    with raises_code("invalid-option"):
        validate(ThresholdRule, given_)


def test_a_rare_class_of_label_sets_is_not_predicted_for_all_rows() -> None:
    """Whose one document is in the middle of all: its greatest F1 is that of predicting half of them."""
    margins = np.stack([np.arange(100.0), np.arange(100.0)], axis=1)
    truth = np.zeros((100, 2), bool)
    truth[50, 0] = truth[90:, 1] = True
    rare, frequent = choose_thresholds(ThresholdRule(rule="f1"), margins, truth).outputs
    assert (rare.share, rare.reached, rare.margin) == (0.0, False, 99.0)
    assert (frequent.share, frequent.reached, frequent.f1) == (0.1, True, 1.0)
    alone = choose_thresholds(ThresholdRule(rule="f1"), margins[:, :1], truth[:, 0].astype(int)).outputs[0]
    assert (alone.share, alone.reached) == (0.5, True)
