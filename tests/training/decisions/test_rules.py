"""Progressive margins are recorded as they were predicted, for any chunks, and calibrate what has no held-out folds."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from sparseoco.execution.clusters import ClusterOptions
from sparseoco.pipeline import steps
from sparseoco.training.decisions import MarginRecorder, decision_rules, fit_calibration
from sparseoco.training.learner import Learner
from sparseoco.training.models import Model
from sparseoco.training.options import MixtureOptions, SearchOptions, ThresholdRule
from tests.support.stores import make_store

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
    recorder = MarginRecorder.of_first_pass(learner, 50)
    twice, labels = sp.vstack([X, X]).tocsr(), np.concatenate([Y, Y])
    for start, stop in zip([0, *cuts], [*cuts, 100], strict=True):
        part = twice[start:stop]
        recorder.learn_rows(part.indptr, part.indices, part.data, labels[start:stop])
    expected = fit_calibration(margins[40:, 0], Y[40:])
    assert expected is not None
    rules = {"calibration": expected.model_dump(mode="json"), "threshold": None, "never_predicted": []}
    assert recorder.rules() == rules
    np.testing.assert_array_equal(learner.weights(), plain.weights())


def test_numbers_and_no_rows_have_no_calibration() -> None:
    for learner, labels in ((new(None), Y.astype(float)), (new(), Y)):
        recorder = MarginRecorder(learner, 40, 50) if learner.n_classes is None else MarginRecorder(learner, 60, 70)
        recorder.learn_rows(X.indptr, X.indices, X.data, labels)
        assert recorder.rules() == {}


def test_classes_that_are_never_predicted_are_in_the_rules() -> None:
    margins = np.array([[-3.0], [-2.0], [-1.0], [-0.5]])
    labels = np.array([0, 0, 0, 1])
    assert decision_rules(margins, labels, None, 1)["never_predicted"] == [1]
    assert decision_rules(margins, labels, ThresholdRule(rule="f1"), 1)["never_predicted"] == []
    assert decision_rules(margins[:3], labels[:3], None, 1)["never_predicted"] == []
    assert decision_rules(np.eye(3)[[0, 1, 0]], np.array([0, 1, 2]), None, 1)["never_predicted"] == [2]
    sets = np.array([[True, False], [False, True], [True, True], [False, False]])
    assert decision_rules(np.hstack([-margins, margins]), sets, None, 1)["never_predicted"] == [1]


@pytest.mark.parametrize("classes", [2, 3])
def test_models_without_a_search_have_probabilities(tmp_path: Path, classes: int) -> None:
    store, here = make_store(tmp_path / "store", classes=classes), ClusterOptions(threads=1)
    options = SearchOptions(algorithms={"adagrad": {"eta": [0.3], "lam": [1e-5]}}, loss="squared_hinge")
    steps.train(store, tmp_path / "model", options.configurations()[0], options, here, epochs=2)
    steps.train_auto(store, tmp_path / "auto", options, MixtureOptions(), here, epochs=2)
    for name in ("model", "auto"):
        model = Model(tmp_path / name)
        assert model.calibration is not None
        assert model.calibration.rows == 60
        np.testing.assert_allclose(model.probabilities(np.eye(classes)[:, : model.outputs]).sum(axis=1), 1)
