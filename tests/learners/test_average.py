"""The mean of the iterates of cl-fobos, Theorem 2 of Togari and Yamashita (2016): how it is learned and read."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from sparseoco.training.learner import Learner
from tests.learners.checks import TOLERANCE
from tests.support.errors import raises_code

pytestmark = pytest.mark.formulas
MEAN = {"average": "iterates"}


def test_rows_are_learned_with_the_iterate_and_predicted_with_the_mean() -> None:
    rng = np.random.default_rng(3)
    X = sp.csr_matrix(rng.integers(0, 3, (80, 9)) * (rng.random((80, 9)) < 0.4))
    y = rng.integers(0, 2, 80)
    options: dict[str, Any] = {"n_features": 9, "objective": True, "intercept": True}
    mean = Learner("cl-fobos", grid=[MEAN | {"lam": 0.01}], **options)
    last = Learner("cl-fobos", grid=[{"lam": 0.01}], **options)
    iterates = []
    for row, label in zip(X, y, strict=True):
        iterates.append(np.append(last.weights(), last.intercepts()))
        for learner in (mean, last):
            learner.partial_fit(row, [label])
    expected = np.mean(iterates, axis=0)
    np.testing.assert_allclose(np.append(mean.weights(), mean.intercepts()), expected, **TOLERANCE)
    np.testing.assert_allclose(mean.decision_function(X)[:, 0, 0], X @ expected[:-1] + expected[-1], **TOLERANCE)
    for learner in (mean, last):
        learner.mark()
    assert mean.progress.loss_sum == last.progress.loss_sum
    assert mean.history.objective[-1] == last.history.objective[-1]  # R̄(T) is of the iterates
    assert mean.history.penalty[-1, 0] == pytest.approx(0.01 * np.abs(expected[:-1]).sum())


def test_rounds_before_given_weights_count_with_them() -> None:
    learner = Learner("cl-fobos", loss="squared", grid=[MEAN | {"eta0": 1.0, "lam": 0.0}], n_features=1)
    learner.start_from([[2.0]], 3)
    assert learner.weights()[0, 0] == 2.0
    learner.partial_fit(sp.csr_matrix([[1.0]]), [1])  # x_4 = 2, x_5 = 2 − (2 − 1)/√4
    learner.partial_fit(sp.csr_matrix([[0.0]]), [1])
    assert learner.weights()[0, 0] == pytest.approx((4 * 2.0 + 1.5) / 5)


def test_groups_have_no_mean() -> None:
    with raises_code("unsupported-combination", "average", "group"):
        Learner("cl-fobos", loss="softmax", penalty="group", grid=[MEAN], n_features=3, n_classes=3)
