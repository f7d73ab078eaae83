"""cao-rcd against the paper's recursion with every weight moved in every round."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from sparseoco.kernels.coordinate import TERMS, fill_basis
from sparseoco.learners.cao_rcd import fill_series
from sparseoco.learners.numerics import cube_roots
from sparseoco.offline.epochs import fit_epochs
from tests.offline.oracles import bounds_of, cao_rcd, chances_of, permutation_of, ranges_of, stable_weights
from tests.offline.problems import CONFIGURATIONS, coordinates, parameters, problems, random_problem
from tests.oracles.stream import SLOPES, VALUES
from tests.oracles.weights import labels_of, rows_of

pytestmark = pytest.mark.formulas

LOSSES = ("logistic", "hinge", "squared_hinge", "squared")


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("weighted", [False, True])
@settings(max_examples=20, deadline=None)
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
    shared = {"loss": loss, "penalty": penalty, "seed": seed, "intercept": intercept}
    method = coordinates(A, y, configuration | own_ratio, weights=weights if weighted else None, **shared)
    own = configuration | {"alpha": alpha, "l1_ratio": ratio}
    expected = stable_weights(A, signs, SLOPES[loss], loss=loss, seed=seed, epochs=3, **own)
    assume(expected is not None)
    for x in expected or []:
        method.play()
        np.testing.assert_allclose(method.weights()[:, 0], x, rtol=0, atol=1e-9)
        np.testing.assert_allclose(method.margins()[:, 0], A @ x, rtol=0, atol=1e-9)
        losses = (weights * VALUES[loss](A @ x, 2 * y - 1)).sum()
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


PLAIN = {"partition": "consecutive", "predict_gradient": "none"}


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@settings(max_examples=60, deadline=None)
@example(
    problem=(np.array(ROWS_WITH_A_SUM_OF_0), np.array([1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0])),
    configuration=PLAIN | {"alpha": 0.0, "rounds": 8, "batch": 1, "sample": "lipschitz", "scale": "max_abs"},
    R=0.1,
    seed=250502515651,
)
@example(
    problem=TIE,
    configuration=PLAIN | {"alpha": 1.37e-3, "rounds": 3, "batch": 3, "sample": "uniform", "scale": "none"},
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
    method = coordinates(A, y, configuration, loss=loss, seed=seed)
    for x in expected or []:
        method.play()
        np.testing.assert_allclose(method.weights()[:, 0], x, rtol=0, atol=1e-9)


@pytest.mark.parametrize("predict_gradient", ["none", "last"])
def test_a_gradient_that_is_0_but_for_rounding_moves_nothing(predict_gradient: str) -> None:
    """0.1 + 0.2 − 0.3 is 2⁻⁵⁴ in floating point. The intercept, and 0.1 + 0.2 − 0.2, are not 0."""
    A = np.array([[0.1, 0.1], [0.2, 0.2], [-0.3, -0.2]])
    own = parameters(R=0.5, alpha=0.0, rounds=30, predict_gradient=predict_gradient)
    method = coordinates(A[:, :1], np.zeros(3), own)
    method.play()
    np.testing.assert_array_equal(method.weights(), [[0.0]])
    np.testing.assert_array_equal(method.state, np.zeros_like(method.state))
    method = coordinates(A[:, 1:], np.zeros(3), own)
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
    method = coordinates(A, y, own, loss="hinge", seed=255)
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
@settings(max_examples=10, deadline=None)
@given(problem=problems(), configuration=CONFIGURATIONS)
def test_margins_stay_those_of_the_weights_within_an_epoch(
    penalty: str, problem: tuple[np.ndarray, np.ndarray], configuration: dict[str, Any]
) -> None:
    """What a round sees is made of what the rounds before left: one long epoch is many short ones but for the draws."""
    A, y = problem
    assume(A.any())
    configuration |= {"alpha": 0.119, "rounds": 250}
    method = coordinates(A, y, configuration, penalty=penalty, seed=1)
    ratio = float(penalty == "l1")
    (x,) = cao_rcd(A, 2 * y - 1, SLOPES["logistic"], loss="logistic", seed=1, epochs=1, l1_ratio=ratio, **configuration)
    method.play()
    np.testing.assert_allclose(method.weights()[:, 0], x, rtol=0, atol=1e-9)


def test_regression_takes_the_label() -> None:
    rng = np.random.default_rng(3)
    A, y = rng.normal(size=(20, 5)), rng.normal(size=20)
    own = parameters(R=0.7, alpha=0.3, rounds=40, batch=2, predict_gradient="last")
    method = coordinates(A, y, own, loss="squared", positive=(-1,), seed=4)
    for x in cao_rcd(A, y, SLOPES["squared"], loss="squared", seed=4, epochs=3, **own):
        method.play()
        np.testing.assert_allclose(method.weights()[:, 0], x, rtol=0, atol=1e-9)


@given(st.floats(0.0, 1e300))
def test_cube_roots(x: float) -> None:
    np.testing.assert_allclose(cube_roots(x), np.cbrt(x), rtol=1e-15)


# ----------------------------------------------------------------------------------------------------------------------
# What cao-rcd draws, with which chances, and the ranges and gradient bounds that they follow from.


@settings(max_examples=50, deadline=None)
@given(
    problem=problems(), x=st.integers(0, 2**32 - 1), R=st.floats(0.01, 10.0), scale=st.sampled_from(["none", "max_abs"])
)
def test_gradients_in_the_box_are_within_their_bounds(
    problem: tuple[np.ndarray, np.ndarray], x: int, R: float, scale: str
) -> None:
    A, y = problem
    signs = 2 * y - 1
    ranges = ranges_of(A, signs, R, scale)
    corner = ranges * np.random.default_rng(x).choice([-1.0, 1.0], A.shape[1])
    for loss in ("logistic", "hinge", "squared_hinge", "squared"):
        own = parameters(R=R, alpha=0.0, rounds=1, scale=scale)
        method = coordinates(A, y, own, loss=loss)
        L = method.draws.sampling.L
        gradient = A.T @ SLOPES[loss](A @ corner, signs)
        assert (np.abs(gradient) <= L * (1 + 1e-12)).all()
        np.testing.assert_allclose(L, bounds_of(A, signs, loss, ranges), rtol=1e-12)
        np.testing.assert_allclose(method.ranges[:, 0], ranges, rtol=1e-12)


def test_equal_bounds_make_equal_chances() -> None:
    """Where S_Π L_Π is the same for all blocks, drawing by it is drawing uniformly."""
    A = np.kron(np.eye(4), np.ones((3, 2)))  # every feature in three rows
    y = np.tile([0.0, 1.0], 6)
    own = {"batch": 2, "rounds": 30, "R": 0.3, "alpha": 0.1}
    fits = [
        fit_epochs(sp.csr_matrix(A), y, algorithm="cao-rcd", grid=own | {"sample": sample})
        for sample in ("uniform", "lipschitz")
    ]
    np.testing.assert_array_equal(fits[0].weights, fits[1].weights)
    assert np.abs(fits[0].weights).max() > 0.1


def test_chances_are_those_of_corollary_5() -> None:
    X, y = random_problem(50, 30)
    A = X.toarray().astype(float)
    for batch, scale in ((1, "none"), (4, "none"), (1, "max_abs"), (4, "max_abs")):
        own = parameters(R=0.3, alpha=0.0, rounds=1, batch=batch, scale=scale)
        R = ranges_of(A, y, 0.3, scale)
        for partition, order in (("consecutive", np.arange(30)), ("random", permutation_of(30, 0))):
            own |= {"partition": partition}
            sampling = coordinates(X, y == 1, own, loss="hinge").draws.sampling
            _, p = chances_of(bounds_of(A, y, "hinge", R), R, batch, "lipschitz", order)
            np.testing.assert_allclose(sampling.chances, p, rtol=1e-12)
            np.testing.assert_array_equal(sampling.order, order)


@given(st.integers(1, 300), st.integers(0, 2**53 - 1))
def test_a_random_partition_has_every_feature_once(n: int, seed: int) -> None:
    order = permutation_of(n, seed)
    np.testing.assert_array_equal(np.sort(order), np.arange(n))
    assert n < 30 or (order != permutation_of(n, seed + 1)).any()


def test_features_in_no_example_are_never_drawn() -> None:
    X, y = random_problem(40, 10)
    X = sp.csr_matrix(X.toarray() * (np.arange(10) % 2))
    for sample in ("uniform", "lipschitz"):
        own = parameters(R=0.3, alpha=0.0, rounds=500, predict_gradient="half", sample=sample)
        method = coordinates(X, y, own, loss="hinge")
        method.play()
        assert (method.weights()[::2] == 0).all()
        assert (method.weights()[1::2] != 0).any()


def test_a_pass_is_worth_of_rounds() -> None:
    """By default an epoch is expected to read as many nonzeros as there are."""
    X, y = random_problem(200, 50)
    nonzeros = np.diff(X.tocsc().indptr)
    for sample, batch, partition in (
        ("uniform", 1, "consecutive"),
        ("lipschitz", 1, "consecutive"),
        ("lipschitz", 7, "consecutive"),
        ("lipschitz", 7, "random"),
    ):
        own = parameters(R=0.5, alpha=0.3, batch=batch, partition=partition, sample=sample)
        method = coordinates(X, y, own, loss="hinge", seed=2)
        sampling = method.draws.sampling
        each = (sampling.chances * np.add.reduceat(nonzeros[sampling.order], np.arange(0, 50, batch))).sum()
        assert abs(method.draws.rounds * each - X.nnz) <= each
    assert fit_epochs(X, y > 0, algorithm="cao-rcd").weights.any()


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
@pytest.mark.parametrize("predict_gradient", ["none", "half", "last"])
@settings(max_examples=20, deadline=None)
@given(problem=problems(), seed=st.integers(0, 2**32 - 1), batch=st.sampled_from([1, 3]))
def test_units_of_features_do_not_matter_with_max_abs(
    loss: str, predict_gradient: str, problem: tuple[np.ndarray, np.ndarray], seed: int, batch: int
) -> None:
    """Features multiplied by powers of two have the same margins, and weights divided by these powers, bit for bit."""
    A, y = problem
    powers = 2.0 ** np.random.default_rng(seed).integers(-8, 9, A.shape[1])
    own = {"batch": batch, "predict_gradient": predict_gradient, "sample": "uniform" if batch > 1 else "lipschitz"}
    configuration = parameters(alpha=0.0, R=0.31, rounds=40, scale="max_abs", **own)
    plain, scaled = (coordinates(matrix, y, configuration, loss=loss, seed=seed) for matrix in (A, A * powers))
    for _ in range(2):
        for method in (plain, scaled):
            method.play()
        np.testing.assert_array_equal(plain.weights()[:, 0], scaled.weights()[:, 0] * powers)
        np.testing.assert_array_equal(plain.margins(), scaled.margins())


def test_ranges_are_those_of_the_examples_to_learn_from() -> None:
    """A row of weight 0 has no part in the largest value, and no weight leaves its range."""
    A = np.array([[3.0, 0.0, 0.5], [-4.0, 1.0, 0.0], [100.0, 100.0, 100.0]])
    own = parameters(R=2.0, alpha=0.0, rounds=200, scale="max_abs")
    method = coordinates(A, np.array([0, 1, 1]), own, weights=np.array([1.0, 2.0, 0.0]))
    method.play()
    ranges = np.array([0.5, 2.0, 4.0])
    np.testing.assert_array_equal(method.ranges[:, 0], ranges)
    np.testing.assert_array_equal(np.abs(method.weights()[:, 0]), ranges)


def test_a_box_is_l1_with_alpha_0() -> None:
    X, y = random_problem(40, 12)
    grid = {"R": [0.1, 0.7], "rounds": 60, "predict_gradient": "last", "scale": ["none", "max_abs"]}
    shared = {"algorithm": "cao-rcd", "epochs": 3, "n_classes": 3, "fit_intercept": True}
    box = fit_epochs(X, y, penalty="box", grid=grid, **shared)
    l1 = fit_epochs(X, y, penalty="l1", grid={**grid, "alpha": 0.0}, **shared)
    assert all("alpha" not in configuration for configuration in box.configurations)
    np.testing.assert_array_equal(box.weights, l1.weights)
    np.testing.assert_array_equal(box.intercepts, l1.intercepts)
    np.testing.assert_array_equal(box.objective, l1.objective)
    assert box.weights.any()
