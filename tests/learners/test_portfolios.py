"""Losses of portfolios: what they are of, and what is refused."""

import numpy as np
import pytest
import scipy.sparse as sp

from sparseoco import Learner
from tests.support.errors import raises_code

pytestmark = pytest.mark.formulas


def learner(loss: str, domain: str, n_classes: int | None = None) -> Learner:
    return Learner("ons", loss=loss, grid={"domain": [domain]}, n_features=3, n_classes=n_classes)


def test_a_portfolio_has_no_classes() -> None:
    with raises_code("invalid-labels", "n_classes"):
        learner("return", "simplex", n_classes=2)


def test_only_shares_have_a_log_return() -> None:
    with raises_code("unsupported-combination", "domain=simplex"):
        learner("log_return", "ball")


def test_relatives_are_not_negative_and_nothing_is_learned_of_those_that_are() -> None:
    X = sp.csr_matrix([[1.0, 1.1, 0.0], [0.9, 1.0, 1.2], [1.0, 1.0, -0.5]])
    shares = learner("log_return", "simplex")
    before = shares.weights()
    with raises_code("invalid-input", "Row 2", "-0.5"):
        shares.partial_fit(X, np.zeros(3))
    np.testing.assert_array_equal(shares.weights(), before)
    shares.partial_fit(X[:2], np.zeros(2))
    assert shares.progress.rows == 2
    assert shares.weights().sum() == pytest.approx(1.0)
