"""A weight that only λ·sign(w) pulls on, against the recursion round by round."""

import numpy as np
import pytest

from sparseoco.learners.swings import swing, swing_evenly


def dense(b: float, steps: np.ndarray) -> tuple[float, float]:
    """(b, turns), in the precision of `steps`."""
    b, turns = steps.dtype.type(b), 1.0
    for a in steps:
        turns = -turns if b < a else turns
        b = abs(b - a)
    return float(b), turns


def check(b: float, t: int, rounds: int, shape: float = 0.0) -> bool:
    """Whether the sign is determined: the dense recursion finds the same in two precisions."""
    times = np.arange(t, t + rounds)
    power = {0.0: np.sqrt, 2.0: np.positive}[shape]
    expected, precise = (dense(b, 1 / power(times.astype(kind))) for kind in (np.float64, np.longdouble))
    found, turns = swing(b, float(t), rounds, shape)
    assert found == pytest.approx(expected[0], rel=0, abs=1e-10)
    determined = expected[1] == precise[1]
    if rounds < 500:
        assert determined
        assert turns == expected[1]
    return determined and turns != expected[1]


@pytest.mark.parametrize("shape", [0.0, 2.0])
@pytest.mark.parametrize("start", [1, 2, 10, 60, 100, 700, 5000])
def test_any_number_of_rounds_without_the_feature(start: int, shape: float) -> None:
    rng = np.random.default_rng(start)
    step = 1 / np.sqrt(start) if shape == 0.0 else 1 / start
    for rounds in (1, 2, 3, 20, 90, 400):
        for b in (*rng.uniform(0, 3, 3), *rng.uniform(0, step, 5), 1e-7, 30.0):
            check(float(b), start, rounds, shape)


@pytest.mark.slow
def test_many_rounds_without_the_feature() -> None:
    """The size is exact; the sign hangs on last bits now and then, about as often as the dense recursion's own."""
    rng = np.random.default_rng(0)
    wrong = [check(rng.uniform(0, 10), int(rng.uniform(1, 3000)), int(rng.uniform(1000, 20_000))) for _ in range(150)]
    assert np.mean(wrong) < 0.15


@pytest.mark.parametrize("b", [0.013, 0.97, 1.31, 17.77])
def test_even_steps(b: float) -> None:
    for rounds in (1, 2, 16, 17, 18, 19, 50, 51):
        assert swing_evenly(b, rounds) == pytest.approx(dense(b, np.ones(rounds)))
    assert swing_evenly(3.0, 8) == (0.0, 1.0)
