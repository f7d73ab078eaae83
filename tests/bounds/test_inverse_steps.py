"""Steps eta0/t with a strongly convex penalty: regret stays under its bound, which grows like log T."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from sparseoco.offline.bounds import Bound, NoBound, regret_bound
from tests.bounds.play import Play, fixed_labels
from tests.bounds.streams import STREAMS, coins
from tests.bounds.test_bounds import sequences

pytestmark = pytest.mark.formulas

PENALTIES: dict[str, dict[str, Any]] = {"l2": {}, "elastic_net": {"l1_ratio": 0.4}}
LEAST = {"l2": 1.0, "elastic_net": 1 / 0.6}
"""eta0·λ for eta0·λ(1 − ρ) = 1."""


def grid(penalty: str) -> list[dict[str, Any]]:
    """The shortest steps of the theorem, and three times as long."""
    own = PENALTIES[penalty] | {"step": "inverse"}
    return [
        {"lam": lam, "eta0": factor * LEAST[penalty] / lam, **own}
        for lam, factor in ((0.5, 1.0), (0.1, 1.0), (0.3, 3.0))
    ]


def comparators(play: Play, c: int) -> list[np.ndarray]:
    """Near the optimum: the mean of the iterates and the last one; and points that are not."""
    W, rng = play.W[:, :, c], np.random.default_rng(0)
    return [W.mean(axis=0), W[-1], np.zeros(W.shape[1]), -W[-1], *rng.uniform(-1, 1, (2, W.shape[1]))]


def check(play: Play) -> None:
    for c in range(len(play.configurations)):
        for x in comparators(play, c):
            over = play.regret(c, x) - play.limit(c, x)
            assert over.max() <= 1e-9 * (1 + abs(play.incurred(c)[-1]))


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("name", ["fobos", "cl-fobos"])
def test_regret_is_within_its_bound(name: str, penalty: str) -> None:
    for X, adversary in (stream(150) for stream in STREAMS.values()):
        check(Play(name, X, adversary, grid(penalty), "logistic", penalty))


@pytest.mark.parametrize("name", ["fobos", "cl-fobos"])
@settings(max_examples=12, deadline=None)
@given(sequence=sequences())
def test_no_sequence_exceeds_the_bound(name: str, sequence: tuple[np.ndarray, Any]) -> None:
    for penalty in PENALTIES:
        check(Play(name, *sequence, grid(penalty), penalty=penalty))


def test_the_bound_of_fobos_is_nearly_reached() -> None:
    """In the first rounds a constant half as large would fail."""
    play = Play("fobos", *STREAMS["alternating"](50), grid("l2"), penalty="l2")
    ratios = [play.regret(c, x) / play.limit(c, x) for c in range(3) for x in comparators(play, c)]
    assert np.max(ratios) > 0.5


@pytest.mark.parametrize("name", ["fobos", "cl-fobos"])
def test_a_learner_with_a_wrong_sign_is_not_within_it(name: str) -> None:
    X, y = coins(1500)
    play = Play(name, X, fixed_labels(y), grid("l2")[1:2], "hinge", "l2", taught=-1.0)
    x = -play.W[-1, :, 0]
    assert play.regret(0, x)[-1] > play.limit(0, x)[-1]


@pytest.mark.parametrize("name", ["fobos", "cl-fobos"])
def test_the_bound_is_logarithmic(name: str) -> None:
    bound = regret_bound(name, grid("l2")[0], "l2")
    assert isinstance(bound, Bound)
    value = bound.value([100, 10_000], {**dict.fromkeys(bound.needs, 1.0), "D_b": 0.0})
    assert value[1] < 2 * value[0]


@pytest.mark.parametrize(
    ("penalty", "values"),
    [
        ("l2", {"lam": 0.5, "eta0": 1.9}),
        ("elastic_net", {"lam": 0.5, "eta0": 2.0, "l1_ratio": 0.4}),
        ("l1", {"lam": 0.5, "eta0": 10.0}),
        ("box", {"R": 1.0, "eta0": 10.0}),
    ],
)
def test_shorter_steps_and_other_penalties_have_no_bound(penalty: str, values: dict[str, Any]) -> None:
    bound = regret_bound("cl-fobos", values | {"step": "inverse"}, penalty)
    assert isinstance(bound, NoBound)
    assert "eta0·λ(1 − ρ) ≥ 1" in bound.why


def test_regret_with_short_steps_is_not_logarithmic() -> None:
    """With eta0·λ = 0.1 the iterates approach the optimum 1 too slowly, and the bound of eta0·λ = 1 does not hold."""
    T, lam = 2000, 0.5
    grid = [{"lam": lam, "eta0": 0.1 / lam, "step": "inverse"}]
    play = Play("fobos", np.ones((T, 1)), fixed_labels([1.0] * T), grid, penalty="l2")
    x = np.array([1.0])
    would_be = play.quantities(0, x)
    limit = regret_bound("fobos", {"lam": lam, "eta0": 1 / lam, "step": "inverse"}, "l2")
    assert isinstance(limit, Bound)
    assert play.regret(0, x)[-1] > limit.value(T, {name: value[-1] for name, value in would_be.items()})
