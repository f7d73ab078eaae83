"""Constants of rows on a ball: right on every point of it, and reached."""

import numpy as np
import pytest

from sparseoco.learners.domains import ball_constants
from tests.support.errors import raises_code


def play(loss: str, margins: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Value, slope and curvature of a loss, labels ±1 where it is logistic."""
    if loss == "squared":
        u = margins - labels
        return 0.5 * u * u, u, np.ones_like(u)
    e = np.exp(-labels * margins)
    return np.log1p(e), -labels * e / (1 + e), e / (1 + e) ** 2


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("D", [0.5, 2.0, 6.0])
def test_constants_bound_every_point_and_are_reached(loss: str, D: float) -> None:
    rng = np.random.default_rng(3)
    Z = rng.normal(size=(40, 4))
    y = rng.normal(size=40) if loss == "squared" else rng.choice([-1.0, 1.0], 40)
    constants = ball_constants(Z, y, loss, D)
    sizes = np.linalg.norm(Z, axis=1, keepdims=True)
    inside = rng.normal(size=(500, 4))
    inside *= D / 2 * rng.random((500, 1)) / np.linalg.norm(inside, axis=1, keepdims=True)
    worst = np.vstack([D / 2 * Z / sizes, -D / 2 * Z / sizes])  # along z the margin is largest
    for points, reached in ((inside, False), (worst, True)):
        value, slope, curvature = play(loss, points @ Z.T, y)
        F, G, alpha = np.abs(value).max(), (np.abs(slope) * sizes.T).max(), (curvature / slope**2).min()
        assert F <= constants.F * (1 + 1e-12)
        assert G <= constants.G * (1 + 1e-12)
        assert alpha >= constants.alpha * (1 - 1e-12)
        if reached:
            assert constants == pytest.approx((F, G, alpha))


def test_undefined_constants_have_a_reason() -> None:
    with raises_code("unsupported-combination", "squared", "logistic"):
        ball_constants(np.ones((2, 2)), np.ones(2), "hinge", 2.0)
    with raises_code("unbounded-losses", "D"):
        ball_constants(np.full((2, 2), 1e6), np.ones(2), "logistic", 2.0)
    for features, labels in ((1e200, 1.0), (1e100, 1e200), (1.0, 1e160)):
        with raises_code("unbounded-losses", "F = inf"):
            ball_constants(np.full((2, 2), features), np.full(2, labels), "squared", 2.0)
