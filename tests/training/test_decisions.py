"""Decisions: calibrations, thresholds, rules and tables of predictions; defaults that depend on the store."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.special import expit, softmax
from sklearn.calibration import _sigmoid_calibration, _TemperatureScaling
from sklearn.metrics import f1_score, precision_score, recall_score

from sparseoco.core.errors import DamagedError
from sparseoco.core.option_models import validate
from sparseoco.execution.clusters import ClusterOptions
from sparseoco.pipeline import steps
from sparseoco.storage.tables import write_parquet
from sparseoco.training import decisions
from sparseoco.training.learner import Learner
from sparseoco.training.models import Model
from sparseoco.training.options import HALVED_WEIGHTS, AtMost, Halving, SearchOptions, ThresholdRule, resolve
from tests.support.errors import raises_code
from tests.support.stores import make_store

# ----------------------------------------------------------------------------------------------------------------------
# Calibrations are scikit-learn's, and never contradict the order of the margins.


SEEDS = st.integers(0, 2**32 - 1)


def _two_classes(seed: int, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    margins = random.normal(0, 2, 60)
    labels = (random.random(60) < expit(0.7 * margins - 0.5)).astype(np.int32)
    return scale * margins, labels


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.sampled_from([1e-3, 1.0, 1e4]))
def test_a_sigmoid_is_that_of_scikit_learn(seed: int, scale: float) -> None:
    margins, labels = _two_classes(seed, scale)
    a, b = _sigmoid_calibration(margins, labels)
    assume(a < 0)
    found: Any = decisions.fit_calibration(margins[:, None], labels)
    np.testing.assert_allclose(found.probabilities(margins[:, None])[:, 0], expit(-(a * margins + b)), atol=2e-4)
    # scikit-learn stops earlier: ours has no greater loss.
    assert _platt_loss(-np.array(found.slopes[0]), -found.offsets[0], margins, labels) <= 1e-9 + _platt_loss(
        a, b, margins, labels
    )


def _platt_loss(a: float, b: float, margins: np.ndarray, labels: np.ndarray) -> float:
    positive, negative = (labels == 1).sum(), (labels == 0).sum()
    targets = np.where(labels == 1, (positive + 1) / (positive + 2), 1 / (negative + 2))
    p = expit(-(a * margins + b))
    return float(-(targets * np.log(p) + (1 - targets) * np.log(1 - p)).sum())


@settings(max_examples=20, deadline=None)
@given(SEEDS, st.sampled_from([1e-2, 1.0, 1e3]))
def test_a_temperature_is_that_of_scikit_learn_for_smoothed_labels(seed: int, scale: float) -> None:
    random = np.random.default_rng(seed)
    margins = scale * random.normal(0, 2, (40, 4))
    labels = np.array([random.choice(4, p=row) for row in softmax(margins / scale, axis=1)])
    missed = 1 / (40 + 2)
    targets = np.full((40, 4), missed / 3)
    targets[np.arange(40), labels] = 1 - missed
    every = np.repeat(margins, 4, axis=0), np.tile(np.arange(4), 40), targets.ravel()
    expected = _TemperatureScaling().fit(every[0], every[1], sample_weight=every[2]).beta_
    found: Any = decisions.fit_calibration(margins, labels)
    assert found.slopes == (pytest.approx(expected, rel=1e-5, abs=5e-5 / scale),)
    np.testing.assert_allclose(found.probabilities(margins), softmax(found.slopes[0] * margins, axis=1), atol=1e-12)


def test_labels_of_several_classes_have_a_sigmoid_each() -> None:
    parts = [_two_classes(seed) for seed in (1, 2)]
    margins, labels = (np.stack(columns, axis=1) for columns in zip(*parts, strict=True))
    both: Any = decisions.fit_calibration(margins, labels)
    alone = [decisions.fit_calibration(own[:, None], truth) for own, truth in parts]
    assert both.method == "sigmoid"
    assert both.slopes == tuple(found.slopes[0] for found in alone if found is not None)
    assert both.offsets == tuple(found.offsets[0] for found in alone if found is not None)


def test_chances_of_error_are_those_of_labels_drawn_from_the_probabilities() -> None:
    margins = np.array([[2.0, -1.0], [-0.3, 0.2]])
    found = decisions.Calibration(method="sigmoid", slopes=(1.0, 0.5), offsets=(0.0, 1.0), rows=9)
    p, q = found.probabilities(margins).T
    np.testing.assert_allclose(found.chances_of_error(margins), 1 - np.array([p[0] * (1 - q[0]), (1 - p[1]) * q[1]]))
    one = decisions.Calibration(method="sigmoid", slopes=(2.0,), offsets=(0.5,), rows=9)
    likely = one.probabilities(margins[:, :1])[:, 0]
    np.testing.assert_allclose(one.chances_of_error(margins[:, :1]), [1 - likely[0], likely[1]])
    classes = decisions.Calibration(method="temperature", slopes=(2.0,), rows=9)
    np.testing.assert_allclose(classes.chances_of_error(margins), 1 - classes.probabilities(margins).max(axis=1))


@pytest.mark.parametrize("labels", [[0, 0, 0, 0], [1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 0, 1]])
@pytest.mark.parametrize("margins", [[2.0, 2.0, 2.0, 2.0], [0.0, 0.0, 0.0, 0.0], [9.0, 4.0, -3.0, -900.0]])
def test_a_sigmoid_of_few_rows_is_finite_and_increasing(labels: list[int], margins: list[float]) -> None:
    found: Any = decisions.fit_calibration(np.array(margins)[:, None], np.array(labels))
    p = found.probabilities(np.array(margins)[:, None])
    assert ((p > 0) & (p < 1)).all()
    assert (np.diff(p[np.argsort(margins), 0]) >= 0).all()


@pytest.mark.parametrize("right", [True, False])
def test_a_temperature_of_rows_that_are_all_right_or_wrong_is_finite(right: bool) -> None:
    margins = np.eye(3)[[0, 1, 2, 0]] * 5
    labels = np.array([0, 1, 2, 0] if right else [1, 2, 0, 1])
    found: Any = decisions.fit_calibration(margins, labels)
    p = found.probabilities(margins)[np.arange(4), labels]
    assert (p > 0.8).all() if right else (p == 1 / 3).all()


@pytest.mark.parametrize(
    "values",
    [
        {"method": "sigmoid", "slopes": [1.0], "offsets": []},
        {"method": "sigmoid", "slopes": [-1.0], "offsets": [0.0]},
        {"method": "sigmoid", "slopes": [float("nan")], "offsets": [0.0]},
        {"method": "temperature", "slopes": [1.0, 2.0]},
        {"method": "temperature", "slopes": []},
    ],
)
def test_a_calibration_that_is_read_is_checked(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        decisions.Calibration.model_validate(values)


# ----------------------------------------------------------------------------------------------------------------------
# A threshold is the best of all cuts under its rule, and separates the rows that it was chosen to separate.


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
    found = decisions.choose_threshold(ThresholdRule.model_validate(rule), margins, positive, reverse=reverse)
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


@settings(max_examples=40)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=9))
def test_figures_are_those_of_scikit_learn(rows: list[tuple[bool, bool]]) -> None:
    positive, predicted = np.array(rows).T
    expected = [score(positive, predicted, zero_division=0.0) for score in (precision_score, recall_score, f1_score)]
    assert _figures(positive, predicted)[:3] == pytest.approx(expected)


def _figures(positive: np.ndarray, predicted: np.ndarray) -> tuple[float, float, float, float]:
    """Precision, recall, F1 and share; the first three are 0 where they are not defined."""
    right, said, true = (positive & predicted).sum(), predicted.sum(), positive.sum()
    return right / max(said, 1), right / max(true, 1), 2 * right / max(said + true, 1), predicted.mean()


@given(st.floats(-1e6, 1e6), st.booleans())
def test_neighbouring_floats_are_separated(low: float, reverse: bool) -> None:
    margins = np.array([low, np.nextafter(low, np.inf)])
    positive = np.array([reverse, not reverse])
    found = decisions.choose_threshold(ThresholdRule(rule="f1"), margins, positive, reverse=reverse)
    assert (margins > found.margin).tolist() == [False, True]
    assert decisions.Threshold.model_validate_json(found.model_dump_json()) == found


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
    rare, frequent = decisions.choose_thresholds(ThresholdRule(rule="f1"), margins, truth, 1).outputs
    assert (rare.share, rare.reached, rare.margin) == (0.0, False, 99.0)
    assert (frequent.share, frequent.reached, frequent.f1) == (0.1, True, 1.0)
    alone = decisions.choose_thresholds(ThresholdRule(rule="f1"), margins[:, :1], truth[:, 0].astype(int), 1).outputs[0]
    assert (alone.share, alone.reached) == (0.5, True)


# ----------------------------------------------------------------------------------------------------------------------
# Progressive margins are recorded as they were predicted, for any chunks, and calibrate what has no held-out folds.


X = sp.random(50, 8, 0.4, "csr", random_state=0)
Y = (X @ np.linspace(-1, 1, 8) > 0).astype(np.int32)


def new(classes: int | None = 2) -> Learner:
    return Learner("adagrad", loss="squared" if classes is None else "squared_hinge", n_features=8, n_classes=classes)


@pytest.mark.parametrize("cuts", [[], [7, 40, 41], list(range(1, 100))])
def test_margins_of_the_last_rows_of_the_first_pass_are_recorded(cuts: list[int]) -> None:
    margins = np.empty((50, 1, 1))
    plain = new()
    plain.learn_rows(X.indptr, X.indices, X.data, Y, margins_out=margins)
    plain.partial_fit(X, Y)
    learner = new()
    recorder = decisions.MarginRecorder.of_first_pass(learner, 50)
    twice, labels = sp.vstack([X, X]).tocsr(), np.concatenate([Y, Y])
    for start, stop in zip([0, *cuts], [*cuts, 100], strict=True):
        part = twice[start:stop]
        recorder.learn_rows(part.indptr, part.indices, part.data, labels[start:stop])
    expected: Any = decisions.fit_calibration(margins[40:, 0], Y[40:])
    rules = {"calibration": expected.model_dump(mode="json"), "threshold": None, "never_predicted": []}
    assert recorder.rules() == rules
    np.testing.assert_array_equal(learner.weights(), plain.weights())


def test_numbers_and_no_rows_have_no_calibration() -> None:
    assert decisions.fit_calibration(np.empty((0, 1)), np.empty(0, np.int32)) is None
    for learner, labels, last in ((new(None), Y.astype(float), (40, 50)), (new(), Y, (60, 70))):
        recorder = decisions.MarginRecorder(learner, *last)
        recorder.learn_rows(X.indptr, X.indices, X.data, labels)
        assert recorder.rules() == {}


def test_classes_that_are_never_predicted_are_in_the_rules() -> None:
    margins = np.array([[-3.0], [-2.0], [-1.0], [-0.5]])
    labels = np.array([0, 0, 0, 1])
    assert decisions.decision_rules(margins, labels, None, 1)["never_predicted"] == [1]
    assert decisions.decision_rules(margins, labels, ThresholdRule(rule="f1"), 1)["never_predicted"] == []
    assert decisions.decision_rules(margins[:3], labels[:3], None, 1)["never_predicted"] == []
    assert decisions.decision_rules(np.eye(3)[[0, 1, 0]], np.array([0, 1, 2]), None, 1)["never_predicted"] == [2]
    sets = np.array([[True, False], [False, True], [True, True], [False, False]])
    assert decisions.decision_rules(np.hstack([-margins, margins]), sets, None, 1)["never_predicted"] == [1]


@pytest.mark.parametrize("classes", [2, 3])
def test_models_without_a_search_have_probabilities(tmp_path: Path, classes: int) -> None:
    store, here = make_store(tmp_path / "store", classes=classes), ClusterOptions(threads=1)
    options = SearchOptions(algorithms={"adagrad": {"eta": [0.3], "lam": [1e-5]}}, loss="squared_hinge")
    steps.train(store, tmp_path / "model", options.configurations()[0], options, here, epochs=2)
    model: Any = Model(tmp_path / "model")
    assert model.calibration.rows == 60
    np.testing.assert_allclose(model.probabilities(np.eye(classes)[:, : model.outputs]).sum(axis=1), 1)


# ----------------------------------------------------------------------------------------------------------------------
# Tables of predictions are read as they were written, and only by models of their classes.


IDS = pa.array(["a", "b", "c"])
THREE = ["x", "y", "z"]
CASES = {
    "two classes": (["n", "y"], np.array([1, 0, 1], np.int32), 1),
    "three classes": (THREE, np.array([2, 0, 1], np.int32), 3),
    "several labels": (THREE, np.array([[True, False, True], [False] * 3, [False, True, False]]), 3),
    "numbers": ([], np.array([0.5, -1.0, 2.0]), 1),
}


@pytest.mark.parametrize("folds", [None, np.array([0, 1, 1], np.int32)])
@pytest.mark.parametrize("case", CASES)
def test_a_table_is_read_as_it_was_written(case: str, folds: np.ndarray | None, tmp_path: Path) -> None:
    classes, labels, outputs = CASES[case]
    margins = np.random.default_rng(0).normal(size=(3, outputs))
    write_parquet(
        tmp_path / "p.parquet", decisions.predictions_table(decisions.Predictions(IDS, folds, labels, margins), classes)
    )
    found = decisions.read_predictions(tmp_path / "p.parquet", classes)
    assert found.ids.equals(IDS)
    assert (found.folds is None) == (folds is None)
    assert found.folds is None or (found.folds == folds).all()
    np.testing.assert_array_equal(found.labels, labels)
    np.testing.assert_array_equal(found.margins, margins)


WRITTEN = decisions.Predictions(IDS, None, np.array([0, 1, 1], np.int32), np.ones((3, 1)))
NOT_FINITE = WRITTEN._replace(margins=np.array([[1.0], [np.nan], [0.0]]))


@pytest.mark.parametrize(
    ("table", "classes"),
    [
        *((decisions.predictions_table(WRITTEN, ["n", "y"]), classes) for classes in (["n"], THREE, ["n", "m"])),
        (decisions.predictions_table(NOT_FINITE, ["n", "y"]), ["n", "y"]),
        (pa.table({"margin": [1.0]}), ["n", "y"]),
        (None, ["n", "y"]),
    ],
    ids=["one class", "three", "another", "not finite", "other columns", "no table"],
)
def test_a_table_of_other_predictions_is_refused(table: pa.Table | None, classes: list[str], tmp_path: Path) -> None:
    if table is None:
        (tmp_path / "p.parquet").write_bytes(b"PAR1")
    else:
        write_parquet(tmp_path / "p.parquet", table)
    with raises_code("corrupt-file", tmp_path / "p.parquet", kind=DamagedError):
        decisions.read_predictions(tmp_path / "p.parquet", classes)


# ----------------------------------------------------------------------------------------------------------------------
# Defaults of a search that depend on the store: its classes, their shares and its size.


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
    found: Any = defaults(SearchOptions(), store([60, 50, 3], multilabel=True))
    assert found.metric is None
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
