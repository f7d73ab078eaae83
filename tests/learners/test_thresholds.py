"""What a coordinate's own history makes of λ, as `Learner.thresholds_of` gives it."""

import numpy as np
import pytest
import scipy.sparse as sp

from sparseoco.training.learner import Learner
from tests.oracles.stream import SLOPES

pytestmark = pytest.mark.formulas
ROWS, FEATURES = 60, 9


@pytest.mark.parametrize("p", [1, 1.5, 2, 3, "inf"])
@pytest.mark.parametrize("name", ["sgft", "sgft-cumulative", "stda"])
def test_thresholds_are_norms_of_the_gradients_so_far(name: str, p: int | str) -> None:
    """sgft (5), (9): ‖(η_1 g_1, …, η_t g_t)‖_p below V; stda (14), (21): the same without steps."""
    rng = np.random.default_rng(3)
    X = rng.normal(0, 1, (ROWS, FEATURES)) * (rng.random((ROWS, FEATURES)) < 0.3)
    y = rng.integers(0, 2, ROWS)
    V = 2.0
    grid = [{"lam": 0.0, "p": p}, {"lam": 0.01, "p": p, "V": V}]
    learner = Learner(name, loss="hinge", grid=grid, n_features=FEATURES)
    order = np.inf if p == "inf" else float(p)
    steps = []
    for t in range(ROWS):
        slope = SLOPES["hinge"](X[t] @ learner.weights()[:, 1], 2 * y[t] - 1)
        eta = 1.0 if name == "stda" else 0.5 / np.sqrt(t + 1)
        steps.append(eta * slope * X[t])
        learner.partial_fit(sp.csr_matrix(X[t : t + 1]), y[t : t + 1])
        expected = np.linalg.norm(np.array(steps), ord=order, axis=0)
        bounded = name == "stda" or p in (1, 2)
        values = learner.thresholds_of(1)
        assert values is not None
        np.testing.assert_allclose(values[:, 0], np.minimum(expected, V) if bounded else expected, rtol=1e-10)


def test_of_other_learners_there_are_none() -> None:
    assert Learner("fobos", n_features=FEATURES).thresholds_of(0) is None
