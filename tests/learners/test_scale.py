"""Ranges of single coordinates, R_i of Mohri and Yang (2015), Corollary 2: `scale` of the FTRL learners of streams.

test_battery has them against the oracles, which know R_i from round 1 on.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from sparseoco.training.learner import Learner

pytestmark = pytest.mark.formulas
FIRST = {"scale": "first"}
PREDICTIONS = [(predict, dtype) for predict in ("none", "last", "mean") for dtype in ("float32", "float64")]


def new(grid: Any, dtype: str = "float64") -> Learner:
    return Learner("cao-ftrl", loss="hinge", grid=grid, n_features=7, dtype=dtype, intercept=True)


def bits(learner: Learner, factors: np.ndarray | None = None) -> tuple[bytes, ...]:
    """Weights, times the factors of the features, intercepts and sums of losses."""
    weights = learner.weights() if factors is None else (learner.weights() * factors[:, None]).astype(learner.dtype)
    return weights.tobytes(), learner.intercepts().tobytes(), learner.progress.loss_sum.tobytes()


def rows(seed: int, values: list[float]) -> tuple[sp.csr_matrix, np.ndarray]:
    """Of rare and frequent features with these values, and labels."""
    rng = np.random.default_rng(seed)
    rates = rng.choice([0.02, 0.1, 0.5, 1.0], 7)
    return sp.csr_matrix(rng.choice(values, (60, 7)) * (rng.random((60, 7)) < rates)), rng.integers(0, 2, 60)


@pytest.mark.parametrize(("predict", "dtype"), PREDICTIONS)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), R=st.floats(0.01, 10.0), lam=st.sampled_from([0.0, 0.013]))
def test_features_of_size_one_have_the_bits_of_one_range(
    predict: str, dtype: str, seed: int, R: float, lam: float
) -> None:
    X, y = rows(seed, [-1.0, 1.0])
    grid = {"R": R, "lam": lam, "predict_gradient": predict, "regularizer": ["proximal", "centred"]}
    own, plain = (new(grid | {"scale": scale}, dtype).partial_fit(X, y) for scale in ("first", "none"))
    assert bits(own) == bits(plain)


@pytest.mark.parametrize(("predict", "dtype"), PREDICTIONS)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), R=st.floats(0.01, 10.0), data=st.data())
def test_without_a_penalty_units_of_features_do_not_matter(
    predict: str, dtype: str, seed: int, R: float, data: st.DataObject
) -> None:
    """A feature times 2^k has its weight times 2^−k, bit by bit."""
    X, y = rows(seed, [-3.7, 0.9, 1.0, 2.1])
    factors = 2.0 ** np.array(data.draw(st.lists(st.integers(-12, 12), min_size=7, max_size=7)))
    grid = {"R": [R, 1.0], "lam": 0.0, "predict_gradient": predict, **FIRST}
    own, other = (new(grid, dtype).partial_fit(rows, y) for rows in (X, sp.csr_matrix(X.multiply(factors))))
    assert bits(other, factors) == bits(own)


@pytest.mark.parametrize(("predict", "dtype"), PREDICTIONS)
def test_the_same_bits_for_any_cut_and_company(predict: str, dtype: str, tmp_path: Path) -> None:
    X, y = rows(3, [-3.7, 0.9, 1.0, 2.1])
    grid = [{"R": R, "lam": lam, "predict_gradient": predict, **FIRST} for R in (0.1, 1.0) for lam in (0.0, 0.01)]
    whole, pieces = new(grid, dtype).partial_fit(X, y), new(grid, dtype)
    for a in range(0, len(y), 17):
        pieces.save(tmp_path / "state")
        pieces = Learner.load(tmp_path / "state").partial_fit(X[a : a + 17], y[a : a + 17])
        pieces.weights()
    assert bits(pieces) == bits(whole)
    assert bits(new(grid[1:3], dtype).partial_fit(X, y)) == bits(whole.select([1, 2]))


def test_given_weights_keep_the_range_of_all() -> None:
    """Features that start with a weight learn as with one range; those that start with 0 as if they were new."""
    X, y = rows(5, [-3.7, 0.9, 1.0, 2.1])
    weights = np.array([0.05, -0.07, 0.1, 0.02, 0.3, -0.5, 0.01])[:, None]
    grid = {"R": [0.1, 0.2], "lam": 0.001, "predict_gradient": "last"}
    own, plain = (new(grid | {"scale": scale}).start_from(weights, 40) for scale in ("first", "none"))
    assert bits(own.partial_fit(X, y)) == bits(plain.partial_fit(X, y))
    zero, idle = new(grid | FIRST).start_from(0 * weights, 40), new(grid | FIRST)
    idle.partial_fit(sp.csr_matrix((40, 7)), np.zeros(40, int), np.zeros(40)).partial_fit(X, y)
    assert bits(zero.partial_fit(X, y))[:2] == bits(idle)[:2]


@pytest.mark.filterwarnings("ignore:overflow")
def test_ranges_of_tiny_values_are_finite() -> None:
    """R_i is at most 2⁶⁴·R, so that a value without a reciprocal in float32 does no harm."""
    X = sp.csr_matrix([[1e-42, 1.0], [1e-42, 2.0], [0.0, -1.0]])
    learner = Learner("ao-gd", loss="hinge", grid=FIRST, n_features=2, dtype="float32").partial_fit(X, [0, 1, 0])
    assert np.isfinite(learner.weights()).all()
    assert learner.slots_of(0)["scale"].ravel().tolist() == [2.0**64, 1.0]
