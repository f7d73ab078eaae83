"""cao-rcd against the paper's recursion with every weight moved in every round."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from sparseoco.kernels.coordinate import TERMS, fill_basis
from sparseoco.learners.cao_rcd import fill_series
from sparseoco.learners.losses import find_loss
from sparseoco.learners.numerics import cube_root
from sparseoco.learners.penalties import find_penalty
from sparseoco.offline.coordinates import Coordinates
from sparseoco.offline.passes import column_major
from tests.offline.coordinates.oracle import (
    cao_rcd,
    stable_weights,
)
from tests.offline.coordinates.problems import CONFIGURATIONS, parameters, problems
from tests.oracles.stream import SLOPES, VALUES
from tests.oracles.weights import labels_of, rows_of

pytestmark = pytest.mark.formulas
LOSSES = ("logistic", "hinge", "squared_hinge", "squared")


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("weighted", [False, True])
@settings(max_examples=60, deadline=None)
@given(
    problem=problems(),
    configuration=CONFIGURATIONS,
    seed=st.integers(0, 2**53 - 1),
    intercept=st.booleans(),
    ratio=st.sampled_from([1.0, 1.0, 0.0, 0.02, 0.5, 0.98]),
)
def test_lazy_equals_dense(
    loss: str,
    weighted: bool,
    problem: tuple[np.ndarray, np.ndarray],
    configuration: dict[str, Any],
    seed: int,
    intercept: bool,
    ratio: float,
) -> None:
    """l1 (ρ = 1), l2 (ρ = 0) and the elastic net, whose penalty the intercept does not have."""
    A, y = problem
    penalty, own_ratio = {1.0: ("l1", {}), 0.0: ("l2", {})}.get(ratio, ("elastic_net", {"l1_ratio": ratio}))
    A = rows_of(A, intercept=intercept)
    alpha = np.full(A.shape[1], configuration["alpha"])
    alpha[A.shape[1] - intercept :] = 0.0
    weights = np.random.default_rng(seed).choice([0.0, 0.371, 1.0, 2.93] if weighted else [1.0], len(y))
    assume(A[weights > 0].any())
    signs = labels_of(2 * y - 1, weights)
    method = Coordinates(
        column_major(sp.csr_matrix(A), y),
        [configuration | own_ratio],
        loss=find_loss(loss),
        penalty=find_penalty(penalty),
        positive=[1],
        seed=seed,
        weights=weights if weighted else None,
        intercept=intercept,
    )
    own = configuration | {"alpha": alpha, "l1_ratio": ratio}
    expected = stable_weights(A, signs, SLOPES[loss], loss=loss, seed=seed, epochs=3, **own)
    assume(expected is not None)
    for x in expected or []:
        method.play()
        np.testing.assert_allclose(method.weights()[:, 0], x, rtol=0, atol=1e-9)
        np.testing.assert_allclose(method.margins()[:, 0], A @ x, rtol=0, atol=1e-9)
        losses = sum(b.weight * VALUES[loss](z, b) for z, b in zip(A @ x, signs, strict=True))
        np.testing.assert_allclose(method.losses(), [losses], rtol=1e-9, atol=1e-9)  # a square of margins next to 0


@st.composite
def count_problems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Small counts: with weights at 0 or ±R, R a power of two, many margins are exactly at the kink yz = 1."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows, features = draw(st.integers(1, 30)), draw(st.integers(1, 11))
    A = rng.integers(0, 4, (rows, features)) * (rng.random((rows, features)) < rng.choice([0.1, 0.5, 1.0], features))
    return A.astype(float), rng.integers(0, 2, rows).astype(float)


# In round 3 the weights of features 2 and 6 are ±R(1 − 3α/|Z|) with |Z| = 9 and 3, so that the margin 3x_2 + x_6 of row
# 11 is exactly 1; in floating point it is 1 − 2⁻⁵².
ROWS_WITH_A_TIE = """00110330 00100120 10200330 00200233 30300201 00300220 20000200 00100220 10100130 00000300 10300200
00300310 00200021 00200220"""
TIE = (
    np.array([[float(count) for count in row] for row in ROWS_WITH_A_TIE.split()]),
    np.array([float(label) for label in "00100011101110"]),
)


# The gradient of feature 3 is 1.4 + 0.7 − 1.4 − 0.7 in its first draw, which is 0 but for rounding.
ROWS_WITH_A_SUM_OF_0 = [
    [1.4, -1.4, 0.0, 0.0, 0.7],
    [0.0, -0.7, 0.0, 1.4, 0.0],
    [0.0, 0.0, -1.4, 0.0, 0.0],
    [0.0, -1.4, 0.0, 0.0, 0.0],
    [-0.7, 1.4, 0.0, 0.7, 0.7],
    [0.0, 0.0, 0.0, 1.4, 0.0],
    [-0.7, 0.0, 0.0, -0.7, 2.1],
]


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@settings(max_examples=60, deadline=None)
@example(
    problem=(np.array(ROWS_WITH_A_SUM_OF_0), np.array([1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0])),
    configuration={
        "alpha": 0.0,
        "rounds": 8,
        "batch": 1,
        "partition": "consecutive",
        "predict_gradient": "none",
        "sample": "lipschitz",
        "scale": "max_abs",
    },
    R=0.1,
    seed=250502515651,
)
@example(
    problem=TIE,
    configuration={
        "alpha": 1.37e-3,
        "rounds": 3,
        "batch": 3,
        "partition": "consecutive",
        "predict_gradient": "none",
        "sample": "uniform",
        "scale": "none",
    },
    R=0.5,
    seed=255,
)
@given(
    problem=count_problems(),
    configuration=CONFIGURATIONS,
    R=st.sampled_from([0.25, 0.5, 1.0]),
    seed=st.integers(0, 2**53 - 1),
)
def test_margins_at_the_kink_have_the_subgradient_of_the_dense_recursion(
    loss: str, problem: tuple[np.ndarray, np.ndarray], configuration: dict[str, Any], R: float, seed: int
) -> None:
    A, y = problem
    assume(A.any())
    configuration = configuration | {"R": R}
    expected = stable_weights(A, 2 * y - 1, SLOPES[loss], loss=loss, seed=seed, epochs=3, **configuration)
    assume(expected is not None)
    method = Coordinates(
        column_major(sp.csr_matrix(A), y), [configuration], loss=find_loss(loss), positive=[1], seed=seed
    )
    for x in expected or []:
        method.play()
        np.testing.assert_allclose(method.weights()[:, 0], x, rtol=0, atol=1e-9)


@pytest.mark.parametrize("predict_gradient", ["none", "last"])
def test_a_gradient_that_is_0_but_for_rounding_moves_nothing(predict_gradient: str) -> None:
    """0.1 + 0.2 − 0.3 is 2⁻⁵⁴ in floating point. The intercept, and 0.1 + 0.2 − 0.2, are not 0."""
    A = np.array([[0.1, 0.1], [0.2, 0.2], [-0.3, -0.2]])
    own = parameters(R=0.5, alpha=0.0, rounds=30, predict_gradient=predict_gradient)
    shared = {"loss": find_loss("logistic"), "positive": [1], "seed": 0}
    method = Coordinates(column_major(sp.csr_matrix(A[:, :1]), np.zeros(3)), [own], **shared)
    method.play()
    np.testing.assert_array_equal(method.weights(), [[0.0]])
    np.testing.assert_array_equal(method.state()["0"], np.zeros_like(method.state()["0"]))
    method = Coordinates(column_major(sp.csr_matrix(A[:, 1:]), np.zeros(3)), [own], **shared)
    method.play()
    assert method.weights()[0, 0] < 0


def test_a_penalty_that_equals_the_gradients_has_weight_0() -> None:
    """Half its bound predicts the gradient of feature 0 exactly, so that nothing is square: from round 2 on its weight
    is −R, and from round 4 on, where |Z| = 4 = 4α, it is 0."""
    A, y = np.array([[1.0, 0.0], [1.0, 0.0], [2.0, 1.0]]), np.zeros(3)
    own = parameters(R=0.75, alpha=1.0, rounds=12, predict_gradient="half", sample="uniform")
    played: list[np.ndarray] = []
    (x,) = cao_rcd(A, 2 * y - 1, SLOPES["hinge"], loss="hinge", seed=255, epochs=1, played=played, **own)
    np.testing.assert_array_equal([x[0] for x in played[:4]], [0.0, -0.75, -0.75, 0.0])
    method = Coordinates(column_major(sp.csr_matrix(A), y), [own], loss=find_loss("hinge"), positive=[1], seed=255)
    method.play()
    np.testing.assert_allclose(method.weights()[:, 0], x, rtol=0, atol=1e-12)


@settings(max_examples=200, deadline=None)
@given(
    sign=st.sampled_from([-1.0, 1.0]),
    start=st.floats(0.0, 1.0),
    Delta=st.sampled_from([0.0, 1e-6, 0.3, 7.0, 1e3]),
    origin=st.integers(1, 10**6),
    R=st.sampled_from([0.0371, 1.03]),
    alpha=st.sampled_from([1e-6, 0.119, 11.3]),
    ratio=st.sampled_from([0.0, 0.5, 0.99]),
)
def test_the_series_of_a_free_segment_is_its_hyperbola(
    sign: float, start: float, Delta: float, origin: int, R: float, alpha: float, ratio: float
) -> None:
    """From |x| = start·R in round `origin` on, in all rounds up to twice that."""
    l1, ridge = alpha * ratio, alpha * (1.0 - ratio)
    Z = sign * (origin * l1 + start * (Delta + origin * ridge * R))
    series, basis = np.empty(TERMS), np.empty(TERMS)
    fill_series(Z, Delta, float(origin), R, l1, ridge, series)
    for k in {0, 1, origin // 3, origin // 2, origin}:
        fill_basis(k, float(origin), basis)
        t = origin + k
        x = -sign * R * (abs(Z) - t * l1) / (Delta + t * ridge * R)
        np.testing.assert_allclose(basis @ series, x, rtol=0, atol=1e-13 * max(R, np.abs(series).max()))


@pytest.mark.parametrize("penalty", ["l1", "l2"])
@settings(max_examples=20, deadline=None)
@given(problem=problems(), configuration=CONFIGURATIONS)
def test_margins_stay_those_of_the_weights_within_an_epoch(
    penalty: str, problem: tuple[np.ndarray, np.ndarray], configuration: dict[str, Any]
) -> None:
    """What a round sees is made of what the rounds before left: one long epoch is many short ones but for the draws."""
    A, y = problem
    assume(A.any())
    configuration |= {"alpha": 0.119, "rounds": 400}
    data = column_major(sp.csr_matrix(A), y)
    own = {"penalty": find_penalty(penalty), "loss": find_loss("logistic"), "positive": [1], "seed": 1}
    method = Coordinates(data, [configuration], **own)
    ratio = float(penalty == "l1")
    (x,) = cao_rcd(A, 2 * y - 1, SLOPES["logistic"], loss="logistic", seed=1, epochs=1, l1_ratio=ratio, **configuration)
    method.play()
    np.testing.assert_allclose(method.weights()[:, 0], x, rtol=0, atol=1e-9)


def test_regression_takes_the_label() -> None:
    rng = np.random.default_rng(3)
    A, y = rng.normal(size=(20, 5)), rng.normal(size=20)
    own = parameters(R=0.7, alpha=0.3, rounds=40, batch=2, predict_gradient="last")
    method = Coordinates(column_major(sp.csr_matrix(A), y), [own], loss=find_loss("squared"), positive=[-1], seed=4)
    for x in cao_rcd(A, y, SLOPES["squared"], loss="squared", seed=4, epochs=3, **own):
        method.play()
        np.testing.assert_allclose(method.weights()[:, 0], x, rtol=0, atol=1e-9)


@given(st.floats(0.0, 1e300))
def test_cube_roots(x: float) -> None:
    np.testing.assert_allclose(cube_root(x), np.cbrt(x), rtol=1e-15)
