"""Projections onto balls and simplices in the norm of a matrix, against other means; constants on a ball."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparseoco.learners import domains
from tests.oracles.dense import ball_projection, l1_projection, simplex_projection
from tests.oracles.losses import SLOPES, VALUES
from tests.support.errors import raises_code


def projected(f: Any, z: np.ndarray, A: np.ndarray, R: float, gamma: float) -> np.ndarray:
    x = z.copy()
    B = np.linalg.inv(A)
    f(x, (B + B.T) / 2, domains.Numbers(R, gamma, 0.0, 0.0, 0.0, 0.0))
    return x


@st.composite
def problems(draw: st.DrawFn, most: int = 5) -> tuple[np.ndarray, np.ndarray, float, float]:
    """A point, a matrix of a condition number up to 10⁶, R and γ."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(1, most))
    Q, _ = np.linalg.qr(rng.normal(size=(n, n)))
    values = 10.0 ** rng.uniform(0, draw(st.sampled_from([0.0, 2.0, 6.0])), n) * draw(st.sampled_from([1e-3, 1.0, 1e4]))
    z = rng.normal(size=n) * draw(st.sampled_from([0.1, 1.0, 30.0]))
    return z, (Q * values) @ Q.T, draw(st.sampled_from([0.3, 1.0, 20.0])), draw(st.sampled_from([0.0, 0.2, 0.9]))


@pytest.mark.formulas
@settings(max_examples=100, deadline=None)
@given(problem=problems(9))
def test_ball(problem: tuple[np.ndarray, np.ndarray, float, float]) -> None:
    z, A, R, gamma = problem
    size = (1 - gamma) * R
    x = projected(domains.onto_ball_in_metric, z, A, R, gamma)
    np.testing.assert_allclose(x, ball_projection(z, A, size), rtol=1e-7, atol=1e-8 * size)
    assert np.linalg.norm(x) <= size * (1 + 1e-14) or np.linalg.norm(z) <= size
    unit = np.eye(len(z))
    np.testing.assert_allclose(
        projected(domains.onto_ball, z, A, R, gamma), ball_projection(z, unit, size), atol=1e-12 * R
    )


@pytest.mark.formulas
@settings(max_examples=50, deadline=None)
@given(problem=problems())
def test_simplex(problem: tuple[np.ndarray, np.ndarray, float, float]) -> None:
    z, A, R, gamma = problem
    floor = gamma / len(z)
    x = projected(domains.onto_simplex_in_metric, z, A, R, gamma)
    wanted = simplex_projection(z, A, floor)
    least = (wanted - z) @ A @ (wanted - z)
    assert (x - z) @ A @ (x - z) <= least * (1 + 1e-9) + 1e-9
    np.testing.assert_allclose(x, wanted, atol=1e-6)
    for y in (x, projected(domains.onto_simplex, z, A, R, gamma)):
        assert y.min() >= floor * (1 - 1e-14)
        assert y.sum() == pytest.approx(1.0, abs=1e-14)
    flat = projected(domains.onto_simplex, z, A, R, gamma)
    np.testing.assert_allclose(flat, simplex_projection(z, np.eye(len(z)), floor), atol=1e-12 * max(1, abs(z).max()))


@pytest.mark.formulas
@settings(max_examples=50, deadline=None)
@given(problem=problems())
def test_l1(problem: tuple[np.ndarray, np.ndarray, float, float]) -> None:
    z, A, R, gamma = problem
    size = (1 - gamma) * R
    for f, metric in ((domains.onto_l1_in_metric, A), (domains.onto_l1, np.eye(len(z)))):
        x, wanted = projected(f, z, A, R, gamma), l1_projection(z, metric, size)
        least = (wanted - z) @ metric @ (wanted - z)
        assert (x - z) @ metric @ (x - z) <= least * (1 + 1e-9) + 1e-9
        np.testing.assert_allclose(x, wanted, atol=1e-6 * max(1.0, size))
        assert np.abs(x).sum() <= size * (1 + 1e-14) or np.abs(z).sum() <= size


def assert_optimal_on_ball(x: np.ndarray, z: np.ndarray, A: np.ndarray) -> None:
    """By the conditions of Karush, Kuhn and Tucker, in which 0 is 10⁻⁷ of what is added up."""
    slope, scale = A @ (x - z), np.abs(A @ z).max()
    mu = -(slope @ x)
    assert mu > 0
    assert np.abs(slope + mu * x).max() < 1e-7 * scale


def assert_optimal_on_simplex(x: np.ndarray, z: np.ndarray, A: np.ndarray, least: float) -> None:
    """The same, for coordinates of at least `least`."""
    slope, scale, free = A @ (x - z), np.abs(A @ z).max(), x > least
    assert 0 < free.sum() < len(x)
    assert np.ptp(slope[free]) < 1e-7 * scale
    assert slope[~free].min() > slope[free].max() - 1e-7 * scale


def assert_optimal_in_l1(x: np.ndarray, z: np.ndarray, A: np.ndarray) -> None:
    """The same: A(z − x) is λ·sign(x_i), and not larger where x_i = 0."""
    slope = A @ (z - x)
    level = np.abs(slope).max()
    assert np.abs(x).sum() == pytest.approx(1.0, rel=1e-14)
    assert np.abs(slope - level * np.sign(x))[x != 0].max() < 1e-7 * np.abs(A @ z).max()


@pytest.mark.formulas
@pytest.mark.parametrize("n", [40, 60])
def test_of_many_dimensions_is_optimal(n: int) -> None:
    """In metrics whose axes differ by a factor of 10⁴."""
    rng = np.random.default_rng(n)
    Q, _ = np.linalg.qr(rng.normal(size=(n, n)))
    A = (Q * 10.0 ** rng.uniform(-1, 3, n)) @ Q.T
    z = 3 * rng.normal(size=n)
    assert_optimal_on_ball(projected(domains.onto_ball_in_metric, z, A, 1.0, 0.0), z, A)
    assert_optimal_on_simplex(projected(domains.onto_simplex_in_metric, z, A, 1.0, 0.1), z, A, 0.1 / n * (1 + 1e-9))
    # Of equal numbers, in the plain metric, all become 0 together. More dimensions take long without compilation.
    for own in (z, np.full(n, -1.0)) if n == 40 else ():
        for metric in (A, np.eye(n)):
            assert_optimal_in_l1(projected(domains.onto_l1_in_metric, own, metric, 1.0, 0.0), own, metric)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("D", [0.5, 2.0, 6.0])
def test_constants_bound_every_point_and_are_reached(loss: str, D: float) -> None:
    rng = np.random.default_rng(3)
    Z = rng.normal(size=(40, 4))
    y = rng.normal(size=40) if loss == "squared" else rng.choice([-1.0, 1.0], 40)
    constants = domains.ball_constants(Z, y, loss, D)
    sizes = np.linalg.norm(Z, axis=1, keepdims=True)
    inside = rng.normal(size=(500, 4))
    inside *= D / 2 * rng.random((500, 1)) / np.linalg.norm(inside, axis=1, keepdims=True)
    worst = np.vstack([D / 2 * Z / sizes, -D / 2 * Z / sizes])  # along z the margin is largest
    for points, reached in ((inside, False), (worst, True)):
        value, slope = VALUES[loss](points @ Z.T, y), SLOPES[loss](points @ Z.T, y)
        curvature = 1.0 if loss == "squared" else np.abs(slope) * (1 - np.abs(slope))
        F, G, alpha = np.abs(value).max(), (np.abs(slope) * sizes.T).max(), (curvature / slope**2).min()
        assert F <= constants.F * (1 + 1e-12)
        assert G <= constants.G * (1 + 1e-12)
        assert alpha >= constants.alpha * (1 - 1e-12)
        if reached:
            assert constants == pytest.approx((F, G, alpha))


def test_undefined_constants_have_a_reason() -> None:
    with raises_code("unsupported-combination", "squared", "logistic"):
        domains.ball_constants(np.ones((2, 2)), np.ones(2), "hinge", 2.0)
    with raises_code("unbounded-losses", "D"):
        domains.ball_constants(np.full((2, 2), 1e6), np.ones(2), "logistic", 2.0)
    for features, labels in ((1e200, 1.0), (1e100, 1e200), (1.0, 1e160)):
        with raises_code("unbounded-losses", "F = inf"):
            domains.ball_constants(np.full((2, 2), features), np.full(2, labels), "squared", 2.0)
