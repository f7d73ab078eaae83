"""What cao-rcd draws, with which chances, and the ranges and gradient bounds that they follow from."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from sparseoco.learners.losses import find_loss
from sparseoco.offline.coordinates import Coordinates
from sparseoco.offline.epochs import fit_epochs
from sparseoco.offline.passes import column_major
from tests.offline.coordinates.oracle import (
    bounds_of,
    chances_of,
    permutation_of,
    ranges_of,
)
from tests.offline.coordinates.problems import parameters, problems, random_problem
from tests.oracles.stream import SLOPES

pytestmark = pytest.mark.formulas


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
        method = Coordinates(column_major(sp.csr_matrix(A), y), [own], loss=find_loss(loss), positive=[1], seed=0)
        L = method.bounds(0)
        gradient = A.T @ np.array([SLOPES[loss](z, b) for z, b in zip(A @ corner, signs, strict=True)])
        assert (np.abs(gradient) <= L * (1 + 1e-12)).all()
        np.testing.assert_allclose(L, bounds_of(A, signs, loss, ranges), rtol=1e-12)
        np.testing.assert_allclose(method.ranges(0), ranges, rtol=1e-12)


def test_equal_bounds_make_equal_chances() -> None:
    """Where S_Π L_Π is the same for all blocks, drawing by it is drawing uniformly."""
    A = np.kron(np.eye(4), np.ones((3, 2)))  # every feature in three rows
    y = np.tile([0.0, 1.0], 6)
    fits = [
        fit_epochs(
            sp.csr_matrix(A),
            y,
            algorithm="cao-rcd",
            grid={"batch": 2, "sample": sample, "rounds": 30, "R": 0.3, "alpha": 0.1},
        )
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
            method = Coordinates(column_major(X, y == 1), [own], loss=find_loss("hinge"), positive=[1], seed=0)
            _, p = chances_of(bounds_of(A, y, "hinge", R), R, batch, "lipschitz", order)
            np.testing.assert_allclose(method.chances(0), p, rtol=1e-12)
            np.testing.assert_array_equal(method.order(0), order)


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
        method = Coordinates(column_major(X, y), [own], loss=find_loss("hinge"), positive=[1], seed=0)
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
        method = Coordinates(column_major(X, y), [own], loss=find_loss("hinge"), positive=[1], seed=2)
        sizes = np.add.reduceat(nonzeros[method.order(0)], np.arange(0, 50, batch))
        expected = method.rounds[0] * (method.chances(0) * sizes).sum()
        assert abs(expected - X.nnz) <= (method.chances(0) * sizes).sum()
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
    configuration = parameters(
        alpha=0.0,
        R=0.31,
        rounds=80,
        batch=batch,
        predict_gradient=predict_gradient,
        sample="uniform" if batch > 1 else "lipschitz",
        scale="max_abs",
    )
    plain, scaled = (
        Coordinates(
            column_major(sp.csr_matrix(matrix), y), [configuration], loss=find_loss(loss), positive=[1], seed=seed
        )
        for matrix in (A, A * powers)
    )
    for _ in range(2):
        for method in (plain, scaled):
            method.play()
        np.testing.assert_array_equal(plain.weights()[:, 0], scaled.weights()[:, 0] * powers)
        np.testing.assert_array_equal(plain.margins(), scaled.margins())


def test_ranges_are_those_of_the_examples_to_learn_from() -> None:
    """A row of weight 0 has no part in the largest value, and no weight leaves its range."""
    A = np.array([[3.0, 0.0, 0.5], [-4.0, 1.0, 0.0], [100.0, 100.0, 100.0]])
    own = parameters(R=2.0, alpha=0.0, rounds=200, scale="max_abs")
    method = Coordinates(
        column_major(sp.csr_matrix(A), np.array([0, 1, 1])),
        [own],
        loss=find_loss("logistic"),
        positive=[1],
        seed=0,
        weights=np.array([1.0, 2.0, 0.0]),
    )
    method.play()
    ranges = np.array([0.5, 2.0, 4.0])
    np.testing.assert_array_equal(method.ranges(0), ranges)
    np.testing.assert_array_equal(np.abs(method.weights()[:, 0]), ranges)


def test_a_box_is_l1_with_alpha_0() -> None:
    X, y = random_problem(80, 20)
    grid = {"R": [0.1, 0.7], "rounds": 150, "predict_gradient": "last", "scale": ["none", "max_abs"]}
    shared = {"algorithm": "cao-rcd", "epochs": 3, "n_classes": 3, "fit_intercept": True}
    box = fit_epochs(X, y, penalty="box", grid=grid, **shared)
    l1 = fit_epochs(X, y, penalty="l1", grid={**grid, "alpha": 0.0}, **shared)
    assert all("alpha" not in configuration for configuration in box.configurations)
    np.testing.assert_array_equal(box.weights, l1.weights)
    np.testing.assert_array_equal(box.intercepts, l1.intercepts)
    np.testing.assert_array_equal(box.objective, l1.objective)
    assert box.weights.any()
