"""The theorems: regret stays under `sparseoco.offline.bounds` for every T, sequence and comparator tried, and only
just."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sparseoco.learners import ALGORITHMS, find_algorithm
from sparseoco.learners.penalties import PENALTIES
from sparseoco.offline import bounds
from sparseoco.offline.bounds import QUANTITIES, THEOREMS, NoBound, regret_bound, state_quantities
from tests.bounds.play import Play, against, bound_of, fixed_labels
from tests.bounds.streams import GAMES, GRIDS, LOGARITHMIC, MODEL, STREAMS, coins, comparators
from tests.oracles.ftrl import importances

pytestmark = pytest.mark.formulas
TOO_SHORT: list[tuple[str, dict[str, float]]] = [
    ("l2", {"lam": 0.5, "eta0": 1.9}),
    ("elastic_net", {"lam": 0.5, "eta0": 2.0, "l1_ratio": 0.4}),
    ("l1", {"lam": 0.5, "eta0": 10.0}),
    ("box", {"R": 1.0, "eta0": 10.0}),
]
"""Penalties, and steps eta0/t that are too short for a bound."""
PREDICTING: list[tuple[str, dict[str, Any]]] = [("ao-gd", {}), ("ftrl-proximal", {"lam": 0.0})]


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("game", GAMES)
def test_regret_is_within_its_bound(game: str, stream: str) -> None:
    assert_within_bounds(GAMES[game].play(*STREAMS[stream](100)))


def assert_within_bounds(play: Play) -> None:
    near = 1e-7 if (play.penalty, play.loss) == ("l1", "hinge") else 1e-9  # the optimum of HiGHS is as good as that
    for c in range(len(play.configurations)):
        for x in comparators(play, c):
            assert play.over(c, x) <= near


@pytest.mark.parametrize("game", [*GRIDS, "fobos l2 inverse", "cl-fobos l2 inverse"])
def test_a_learner_with_a_wrong_sign_is_not(game: str) -> None:
    """What learns from labels turned round is over the bound: it is one that a wrong learner would break."""
    own = GAMES[game]._replace(loss="hinge")
    if own.penalty == "l1":
        own = own._replace(grid=[entry | {"lam": 0.001} if "lam" in entry else entry for entry in own.grid[:2]])
    else:
        own = own._replace(grid=own.grid[1:2])
    X, y = coins(700 if own.penalty == "l1" else 1500)
    play = own.play(X, fixed_labels(y), taught=-1.0)
    x = play.optimum(0) if own.penalty == "l1" else -play.W[-1, :, 0]
    assert play.regret(0, x)[-1] > play.limit(0, x)[-1]


@pytest.mark.parametrize(
    ("game", "stream", "rounds"),
    [*((name, "against", 200) for name in ("stda", "subgradient", "rda")), ("fobos l2 inverse", "alternating", 50)],
)
def test_bounds_are_nearly_reached(game: str, stream: str, rounds: int) -> None:
    """An opponent who knows the margin brings regret to more than half the bound: a constant half as large fails."""
    play = GAMES[game]._replace(loss="hinge").play(*STREAMS[stream](rounds))
    pairs = [(c, x) for c in range(len(play.configurations)) for x in comparators(play, c)]
    assert max(np.max(play.regret(c, x) / play.limit(c, x)) for c, x in pairs) > 0.5


@st.composite
def sequences(draw: st.DrawFn) -> tuple[np.ndarray, Any]:
    """Rows with absent, repeated and empty ones among them; labels drawn, in blocks, or chosen by an opponent."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    T, n = draw(st.integers(1, 60)), draw(st.integers(1, 5))
    scale = draw(st.sampled_from([0.1, 1.0, 3.0]))
    X = scale * rng.normal(size=(T, n)) * (rng.random((T, n)) < rng.choice([0.03, 0.2, 1.0], n))
    X = np.repeat(X, draw(st.sampled_from([1, 2, 5])), axis=0)[:T]
    labels = rng.choice([-1.0, 1.0], T)
    blocks = labels[np.arange(T) // draw(st.integers(2, 30))]
    return X, draw(st.sampled_from([against, fixed_labels(labels), fixed_labels(blocks)]))


@pytest.mark.parametrize("game", GAMES)
@settings(max_examples=6, deadline=None)
@given(sequence=sequences(), loss=st.sampled_from(["hinge", "logistic", "squared", "squared_hinge"]))
def test_no_sequence_exceeds_the_bound(game: str, sequence: tuple[np.ndarray, Any], loss: str) -> None:
    play = GAMES[game].play(*sequence, loss=loss)
    assume(not play.learner.diverged.any())
    assert_within_bounds(play)


@pytest.mark.parametrize("game", LOGARITHMIC)
def test_regret_without_a_regularizer_is_logarithmic(game: str) -> None:
    """With a strongly convex penalty: the bound of 4,000 rounds is less than twice that of 100."""
    name, grid, penalty, _ = LOGARITHMIC[game]
    bound = bound_of(name, ALGORITHMS[name].under(PENALTIES[penalty]).configuration(grid[0]), penalty)
    first, later = bound.value([100, 4000], {**dict.fromkeys(bound.needs, 1.0), "D_b": 0.0, "Delta_b": 0.0})
    assert first < later < 2 * first


def test_regret_with_short_steps_is_not_logarithmic() -> None:
    """With eta0·λ = 0.1 the iterates approach the optimum 1 too slowly, and the bound of eta0·λ = 1 does not hold."""
    T, lam = 2000, 0.5
    grid = [{"lam": lam, "eta0": 0.1 / lam, "step": "inverse"}]
    play = Play("fobos", np.ones((T, 1)), fixed_labels([1.0] * T), grid, penalty="l2")
    x = np.array([1.0])
    would_be = play.quantities(0, x)
    limit = bound_of("fobos", {"lam": lam, "eta0": 1 / lam, "step": "inverse"}, "l2")
    assert play.regret(0, x)[-1] > limit.value(T, {name: value[-1] for name, value in would_be.items()})


def test_correct_predictions_lower_the_regret() -> None:
    """Slopes that hardly change: the bound of ao-gd, and what it pays, stay small while FTRL-proximal's grow."""
    X, y = np.full((400, 2), 0.05), fixed_labels(np.ones(400))
    optimistic, plain = (Play(name, X, y, [{"R": 1.0} | more], "logistic") for name, more in PREDICTING)
    x = np.ones(2)
    assert optimistic.limit(0, x)[-1] < plain.limit(0, x)[-1] / 5
    assert optimistic.regret(0, x)[-1] <= plain.regret(0, x)[-1]


@pytest.mark.parametrize("stream", ["against", "rare"])
def test_regret_with_a_barrier(stream: str) -> None:
    """Corollary 1.3 by Theorem 2 inside the box: ℛ is 2/R²-strongly convex."""
    grid = [
        {"R": R, "eta": eta, "predict_gradient": predict}
        for R, eta in ((1.0, 3.0), (0.3, 0.5))
        for predict in ("none", "last", "mean")
    ]
    play = Play("optimistic-ftrl", *STREAMS[stream](150), grid)
    n = play.X.shape[1]
    for c, values in enumerate(grid):
        R, eta = float(values["R"]), float(values["eta"])
        missed = np.cumsum((play.g[:, :, c] - play.predicted(c)) ** 2, axis=0).sum(axis=1)
        for x in (np.zeros(n), play.W[-1, :, c], np.full(n, 0.9 * R), np.full(n, -0.9 * R)):
            limit = -eta * np.log(1 - (x / R) ** 2).sum() + R**2 / (2 * eta) * missed
            assert (play.regret(c, x) <= limit + 1e-9).all()


@pytest.mark.parametrize("sample", ["uniform", "lipschitz"])
@pytest.mark.parametrize("predict", ["none", "last"])
@pytest.mark.parametrize("regularizer", ["proximal", "centred"])
def test_of_sampled_rows_in_expectation(regularizer: str, sample: str, predict: str) -> None:
    """Theorems 5 and 6: E[Reg_T − 4RΣΔ_T] ≤ 0 over draws, here with three standard errors to spare over 48 seeds."""
    X, y = coins(150)
    X = X * np.random.default_rng(1).lognormal(0, 0.5, (150, 1))
    grid = [
        {"R": 0.5, "lam": 0.01, "keep": 0.4, "sample": sample, "predict_gradient": predict, "seed": s}
        | {"regularizer": regularizer}
        for s in range(48)
    ]
    play = Play("caos-ftrl", X, fixed_labels(y), grid)
    x = play.optimum(0)
    bound = play.bound()
    assert bound.expected
    assert f"Theorem {5 if regularizer == 'proximal' else 6}" in bound.name
    over = []
    for c in range(len(grid)):
        Delta = state_quantities(play.learner, c, x[:, None], x[:, None])["Delta"]
        over.append(play.regret(c, x)[-1] - bound.value(150, {"Delta": Delta[0]}))
    assert np.mean(over) + 3 * np.std(over) / np.sqrt(len(over)) < 0


@pytest.mark.parametrize("sample", ["uniform", "lipschitz"])
def test_of_sampled_rows_without_a_regularizer(sample: str) -> None:
    """Theorem 6 with r ≡ 0: the mean regret of 48 seeds, and three standard errors, is under a bound in log T."""
    X, y = coins(300)
    X = X * np.random.default_rng(1).lognormal(0, 0.5, (300, 1))
    own = {"R": 2.0, "lam": 0.2, "keep": 0.4, "sample": sample, "regularizer": "none", "predict_gradient": "last"}
    play = Play("caos-ftrl", X, fixed_labels(y), [own | {"seed": s} for s in range(48)], "logistic", "l2")
    bound = play.bound()
    assert bound.expected
    limit = bound.value(300, {"penalised": 3.0, "G_inf": np.abs(X).max(), "Delta_b": 0.0})
    for x in (np.zeros(3), 0.3 * MODEL, play.W[-1].mean(axis=1)):
        regret = [play.regret(c, x)[-1] for c in range(48)]
        assert np.mean(regret) + 3 * np.std(regret) / np.sqrt(48) < limit
    assert limit == pytest.approx(3 * 4 * np.abs(X).max() ** 2 / 0.4 * (1 + np.log(300)) / 0.2)


@pytest.mark.parametrize("name", GRIDS)
def test_the_state_holds_what_the_definitions_say(name: str) -> None:
    X, adversary = STREAMS["rare"](99)  # ends in a round in which some features sleep
    play = Play(name, X, adversary, GRIDS[name])
    x = np.array([0.3, -0.2, 0.1, 0.4])
    for c in range(len(play.configurations)):
        peaks = np.abs(play.W[:, :, c]).max(axis=0)
        held = state_quantities(play.learner, c, x[:, None], peaks[:, None])
        defined = play.quantities(c, x)
        assert set(play.bound(c).needs) & {"Delta", "root", "x_root", "peak", "x", "n"} <= set(held)
        for quantity, value in held.items():
            assert value.shape == (1,)
            assert value[0] == pytest.approx(defined[quantity][-1], rel=1e-9), quantity


@pytest.mark.parametrize("sample", ["uniform", "lipschitz"])
def test_the_state_of_sampled_rows_holds_what_the_definitions_say(sample: str) -> None:
    """Δ is of ĝ = (b/q)·g, and of predictions by past ĝ."""
    X, adversary = STREAMS["rare"](99)
    X = X * np.random.default_rng(1).lognormal(0, 0.5, (99, 1))
    grid = [
        {"R": 0.5, "lam": 0.01, "keep": keep, "sample": sample, "predict_gradient": predict, "seed": seed, **more}
        for keep, seed in ((0.2, 3), (0.6, 0))
        for predict, more in (("none", {}), ("last", {"regularizer": "centred"}), ("mean", {"scale": "first"}))
    ]
    play = Play("caos-ftrl", X, adversary, grid)
    x = np.array([[0.3], [-0.2], [0.1], [0.4]])
    for c, values in enumerate(grid):
        drawn = importances(X, np.ones(99), values["keep"], sample, values["seed"])
        assert 0 < np.count_nonzero(drawn) < 99
        of_all_rows = play.quantities(c, x[:, 0])["Delta"][-1]
        play.g[:, :, c] *= drawn[:, None]
        held = state_quantities(play.learner, c, x, x)["Delta"][0]
        assert held == pytest.approx(play.quantities(c, x[:, 0])["Delta"][-1], rel=1e-9)
        assert held != pytest.approx(of_all_rows, rel=1e-3)


def test_every_learner_has_a_theorem_or_a_reason() -> None:
    assert set(THEOREMS) <= set(ALGORITHMS)
    for name, algorithm in ALGORITHMS.items():
        bound = regret_bound(name, algorithm.configuration({}))
        if isinstance(bound, NoBound):
            assert bound.why.endswith(".")
        else:
            assert bound.needs
            assert set(bound.needs) <= set(QUANTITIES)
            assert (np.diff(bound.value([10, 1000], dict.fromkeys(bound.needs, 2.0))) >= 0).all()


def test_a_learner_without_a_theorem_needs_no_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "find_algorithm", {"new": replace(find_algorithm("fobos"), name="new")}.__getitem__)
    bound = regret_bound("new", {"eta0": 1.0})
    assert isinstance(bound, NoBound)
    assert "new" in bound.why


@pytest.mark.parametrize(
    ("name", "values", "penalty", "word"),
    [
        ("fobos", {"step": "constant"}, "l1", "eta0/√t"),
        ("cl-fobos", {"step": "inverse"}, "l1", "eta0/√t"),
        ("sgft", {"second": "next"}, "l1", "second='same'"),
        ("l-fobos", {"K": 10}, "l1", "l-fobos"),
        ("cl-fobos", {}, "l2", "Property 1"),
        ("cl-fobos", {}, "group", "group"),
        ("cl-fobos", {"average": "iterates"}, "l1", "mean"),
        ("cumulative-l1", {}, "l1", "cumulative"),
        ("optimistic-ftrl", {}, "l1", "end of the box"),
        *(("cl-fobos", {"step": "inverse", **values}, penalty, "eta0·λ(1 − ρ) ≥ 1") for penalty, values in TOO_SHORT),
        ("caos-erm", {"estimate": "sampled"}, "l1", "estimate='corrected'"),
        ("caos-erm", {"placement": "dealt"}, "l1", "placement='serial'"),
        ("cao-rcd", {"predict_gradient": "half"}, "l1", "predict_gradient='none'"),
        ("cao-rcd", {"predict_gradient": "last"}, "l1", "predict_gradient='none'"),
    ],
)
def test_a_missing_bound_has_a_reason(name: str, values: dict[str, Any], penalty: str, word: str) -> None:
    bound = regret_bound(name, ALGORITHMS[name].under(PENALTIES[penalty]).configuration(values), penalty)
    assert isinstance(bound, NoBound)
    assert word in bound.why
