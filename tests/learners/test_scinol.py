"""ScInOL₂: units of features do not matter, and its wealth is its bound."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from sparseoco.training.learner import Learner
from tests.learners.streams import Stream, streams
from tests.oracles.losses import VALUES

pytestmark = pytest.mark.formulas
LOSSES = ("logistic", "hinge")


def learned(stream: Stream, loss: str, **arguments: Any) -> Learner:
    learner = Learner("scinol", loss=loss, n_features=stream.X.shape[1], **arguments)
    return learner.partial_fit(stream.csr, stream.labels, stream.weights)


@settings(max_examples=30, deadline=None)
@given(stream=streams(), seed=st.integers(0, 1000))
def test_units_of_features_do_not_matter(stream: Stream, seed: int) -> None:
    """Powers of two, so that the last bit is the same, too."""
    units = 2.0 ** np.random.default_rng(seed).integers(-20, 20, stream.X.shape[1])
    plain, scaled = learned(stream, "logistic"), learned(Stream(stream.X * units, stream.y, stream.epochs), "logistic")
    np.testing.assert_array_equal(plain.weights(), scaled.weights() * units[:, None])
    np.testing.assert_array_equal(plain.progress.loss_sum, scaled.progress.loss_sum)


@pytest.mark.parametrize("loss", LOSSES)
@settings(max_examples=60, deadline=None)
@given(stream=streams(), size=st.sampled_from([0.1, 1.0, 10.0]), seed=st.integers(0, 1000))
def test_regret_is_within_the_bound_and_nobody_loses_everything(
    loss: str, stream: Stream, size: float, seed: int
) -> None:
    """Reg_T(u) ≤ Σ_i (1 − η_{T,i} + u_i·G_{T,i}), also against labels that are wrong whenever they can be."""
    n = stream.X.shape[1]
    learner, incurred, rows = Learner("scinol", loss=loss, n_features=n), 0.0, []
    for row in stream.dense:
        before = learner.progress.loss_sum[0]
        label = int(learner.decision_function(sp.csr_matrix(row[None])).ravel()[0] <= 0)
        learner.partial_fit(sp.csr_matrix(row[None]), [label])
        incurred += learner.progress.loss_sum[0] - before
        rows.append((row, 2.0 * label - 1))
    (_, block), *_ = learner._blocks
    G, _, _, wealth = np.moveaxis(block.state[:n], 1, 0)[:, :, 0]
    assert (wealth > 0).all()
    for u in (np.zeros(n), size * np.random.default_rng(seed).normal(size=n)):
        regret = incurred - sum(VALUES[loss](row @ u, label) for row, label in rows)
        assert regret <= (1 - wealth + u * G).sum() + 1e-9 * (1 + abs(incurred))
