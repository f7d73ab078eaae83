"""Losses by finite differences, proximal maps by their optimality condition, functions of numbers by slower ones."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sparseoco.learners.losses import LOSSES, find_loss
from sparseoco.learners.numerics import cbrt1p_of_fraction, exp_of_negative, log1p_of_fraction
from sparseoco.learners.penalties import PENALTIES, find_penalty
from tests.oracles.losses import JOINT_SLOPES, JOINT_VALUES, SLOPES, VALUES
from tests.support.errors import raises_code

pytestmark = pytest.mark.formulas
margins = st.floats(-40, 40)
OF_ONE_MARGIN = [name for name, loss in LOSSES.items() if not loss.joint]
JOINT = [name for name, loss in LOSSES.items() if loss.joint]


@pytest.mark.parametrize("name", OF_ONE_MARGIN)
@given(z=margins, y=st.sampled_from([-1.0, 1.0]))
def test_slope_is_the_derivative_of_the_value(name: str, z: float, y: float) -> None:
    loss, h = LOSSES[name], 1e-5
    assume(abs(y * z - 1) > 2 * h)  # the kink of the hinges
    assume(abs(abs(z - y) - 1) > 2 * h)  # those of the slope of huber
    difference = (loss.value(z + h, y) - loss.value(z - h, y)) / (2 * h)
    assert loss.slope(z, y) == pytest.approx(difference, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", OF_ONE_MARGIN)
@given(z=st.floats(-700, 700), y=st.sampled_from([-1.0, 1.0]))
def test_losses_equal_the_oracles(name: str, z: float, y: float) -> None:
    assert LOSSES[name].value(z, y) == pytest.approx(VALUES[name](z, y), rel=1e-13, abs=1e-300)
    assert LOSSES[name].slope(z, y) == pytest.approx(SLOPES[name](z, y), rel=1e-13, abs=1e-300)


@pytest.mark.parametrize("name", OF_ONE_MARGIN)
@given(z=margins, other=margins, y=st.sampled_from([-1.0, 1.0]))
def test_losses_are_convex(name: str, z: float, other: float, y: float) -> None:
    loss = LOSSES[name]
    assert loss.value(other, y) >= loss.value(z, y) + loss.slope(z, y) * (other - z) - 1e-9


def joint(name: str, z: np.ndarray, truth: int) -> tuple[float, np.ndarray]:
    """(loss, slopes), the margins lying in the middle of others."""
    padded, u = np.pad(z, 2, constant_values=9e9), np.full(len(z) + 4, 7.0)
    value = LOSSES[name].value(padded, u, 2, len(z) + 2, truth + 2)
    assert (u[[0, 1, -2, -1]] == 7).all()
    return value, u[2:-2]


@pytest.mark.parametrize("name", JOINT)
@given(data=st.data(), classes=st.integers(3, 6))
def test_joint_losses(name: str, data: st.DataObject, classes: int) -> None:
    """Values as the oracles have them, slopes by finite differences, convex, and a sum of slopes of 0."""
    z, other = (np.array(data.draw(st.lists(margins, min_size=classes, max_size=classes))) for _ in range(2))
    truth = data.draw(st.integers(0, classes - 1))
    value, slopes = joint(name, z, truth)
    assert value == pytest.approx(JOINT_VALUES[name](z, truth), rel=1e-13, abs=1e-13)
    assert slopes == pytest.approx(JOINT_SLOPES[name](z, truth), rel=1e-13, abs=1e-15)
    assert slopes.sum() == pytest.approx(0.0, abs=1e-14)
    assert joint(name, other, truth)[0] >= value + slopes @ (other - z) - 1e-9
    assert joint(name, z + 3.0, truth)[0] == pytest.approx(value, abs=1e-12)


@given(z=st.floats(allow_nan=False, allow_infinity=False), y=st.sampled_from([-1.0, 1.0]))
def test_the_logistic_slope_is_never_zero(z: float, y: float) -> None:
    assert -y * LOSSES["logistic"].slope(z, y) > 0.0
    assert math.isfinite(LOSSES["logistic"].value(z, y))


@pytest.mark.parametrize("name", ["l1", "l2", "elastic_net"])
@given(v=st.floats(-1e6, 1e6), a=st.floats(0, 1e6))
def test_prox_is_optimal(name: str, v: float, a: float) -> None:
    """0 ∈ w − v + a·∂|w|."""
    w = PENALTIES[name].prox(v, a)
    if w == 0:
        assert abs(v) <= a or v == w
    else:
        assert w - v + a * math.copysign(1.0, w) == pytest.approx(0.0, abs=1e-9 * max(1.0, abs(v), a))


@given(x=st.floats(-700, 0))
def test_exp(x: float) -> None:
    assert exp_of_negative(x) == pytest.approx(math.exp(x), rel=4.5e-16)


@given(x=st.floats(0, 1))
def test_log1p(x: float) -> None:
    assert log1p_of_fraction(x) == pytest.approx(math.log1p(x), rel=4.5e-16, abs=1e-323)


@given(x=st.floats(0, 1))
def test_cube_root_of_one_and_a_fraction(x: float) -> None:
    assert cbrt1p_of_fraction(np.float64(x)) == pytest.approx(math.cbrt(1 + x), rel=4.5e-16)
    assert cbrt1p_of_fraction(0.0) == 1.0


def test_unknown_names() -> None:
    with raises_code("unknown-loss", "'log'", "logistic"):
        find_loss("log")
    with raises_code("unknown-penalty", "'lasso'", "l1"):
        find_penalty("lasso")
    assert np.isnan(LOSSES["squared"].value(np.nan, 1.0))
