"""The theorems: regret stays under `sparseoco.offline.bounds` for every T, sequence and comparator tried, and only
just."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sparseoco.learners import ALGORITHMS, find_algorithm
from sparseoco.learners.penalties import PENALTIES
from sparseoco.offline.bounds import QUANTITIES, THEOREMS, Bound, NoBound, regret_bound, state_quantities
from tests.bounds.play import Adversary, Play, against, bound_of, fixed_labels
from tests.offline.oracles import algorithm_4
from tests.oracles.ftrl import importances

pytestmark = pytest.mark.formulas

# ----------------------------------------------------------------------------------------------------------------------
# Grids, streams and the comparators of a play.


# Two configurations a learner or three: without a penalty (or with little), and with one that bites. sg-l1, and l-fobos
# with K = 1, are fobos bit for bit.
GRIDS: dict[str, list[dict[str, Any]]] = {
    **{name: [{"eta0": 0.7, "lam": 0.0}, {"eta0": 0.2, "lam": 0.05}] for name in ("subgradient", "cl-fobos")},
    "fobos": [
        *({"eta0": 0.7, "lam": 0.0, "model": model} for model in ("linear", "truncated")),
        *({"eta0": eta0, "lam": 0.05, "model": model} for eta0, model in ((0.2, "linear"), (2.0, "truncated"))),
    ],
    "sgft": [
        {"eta0": 0.7, "lam": 0.2, "p": 2},
        *({"eta0": 0.2, "lam": 0.05, "p": p, "V": 0.5} for p in (2, 1, 3, "inf")),  # p > 2 is Lemma 1's other case
    ],
    "rda": [{"gamma": 1.0, "lam": 0.0}, {"gamma": 3.0, "lam": 0.05}],
    "stda": [
        {"gamma": 1.0, "lam": 0.001, "p": 2},
        *({"gamma": 3.0, "lam": 0.02, "p": p, "V": 2.0} for p in (2, 1, 3, "inf")),
    ],
    "adagrad": [
        {"eta": 0.7, "delta": 1.5, "lam": 0.0},
        {"eta": 0.2, "delta": 0.3, "lam": 0.05},
        {"eta": 0.2, "delta": 1.1, "lam": 0.05, "predict_gradient": "last"},
        {"eta": 0.7, "delta": 1.1, "lam": 0.01, "predict_gradient": "mean"},
        {"eta": 0.7, "delta": 1.1, "lam": 0.05, "predict_gradient": "last", "schedule": "sqrt"},
        {"eta": 0.7, "delta": 1e-6, "lam": 0.0, "model": "truncated"},
        {"eta": 2.0, "delta": 0.1, "lam": 0.05, "model": "truncated"},
    ],
    "ftrl-proximal": [{"R": 0.5, "lam": 0.0}, {"R": 2.0, "lam": 0.05}],
    "ao-gd": [{"R": 0.5}, {"R": 2.0}],
    "ao-ftrl": [
        {"R": 0.5, "predict_gradient": "none"},
        {"R": 2.0, "predict_gradient": "last"},
        {"R": 1.0, "predict_gradient": "mean"},
        {"R": 1.0, "predict_gradient": "last", "regularizer": "centred"},
    ],
    "cao-ftrl": [
        {"R": 0.5, "lam": 0.001, "predict_gradient": "last"},
        {"R": 2.0, "lam": 0.05, "predict_gradient": "last"},
        {"R": 0.5, "lam": 0.01, "predict_gradient": "none", "regularizer": "centred"},
        {"R": 1.0, "lam": 0.2, "predict_gradient": "last", "schedule": "sqrt"},
        {"R": 0.5, "lam": 0.001, "predict_gradient": "last", "scale": "first"},
    ],
}


class Game(NamedTuple):
    """What is played: a grid of a learner, with a penalty and a loss."""

    name: str
    grid: list[dict[str, Any]]
    penalty: str = "l1"
    loss: str = "hinge"

    def play(self, X: np.ndarray, adversary: Adversary, taught: float = 1.0, loss: str | None = None) -> Play:
        return Play(self.name, X, adversary, self.grid, loss or self.loss, self.penalty, taught)


def inverse_steps(penalty: str, **own: float) -> list[dict[str, Any]]:
    """Steps eta0/t with a strongly convex penalty: the shortest ones of the theorem, and three times as long."""
    least = 1 / (1 - own.get("l1_ratio", 0.0))  # eta0·λ for eta0·λ(1 − ρ) = 1
    chosen = ((0.5, 1.0), (0.1, 1.0), (0.3, 3.0))
    return [{"lam": lam, "eta0": factor * least / lam, "step": "inverse", **own} for lam, factor in chosen]


NO_REGULARIZER: list[dict[str, Any]] = [
    {"R": 2.0, "lam": lam, "predict_gradient": predict, "regularizer": "none"}
    for lam in (0.05, 0.5)
    for predict in ("none", "last", "mean")
]
"""Theorem 4 with r ≡ 0."""
LOGARITHMIC = {
    f"{name} {penalty} inverse": Game(name, inverse_steps(penalty, **own), penalty, "logistic")
    for name in ("fobos", "cl-fobos")
    for penalty, own in (("l2", {}), ("elastic_net", {"l1_ratio": 0.4}))
} | {
    "cao-ftrl l2 alone": Game("cao-ftrl", [*NO_REGULARIZER, NO_REGULARIZER[0] | {"schedule": "sqrt"}], "l2", "logistic")
}
GAMES = (
    {name: Game(name, grid) for name, grid in GRIDS.items()}
    | {
        f"{name} l2": Game(name, [entry for entry in grid if name != "adagrad" or "model" not in entry], "l2")
        for name, grid in GRIDS.items()
        if "l2" in ALGORITHMS[name].penalties and isinstance(regret_bound(name, grid[0], "l2"), Bound)
    }
    | LOGARITHMIC
)
MODEL = np.array([1.0, -1.0, 0.5])


def coins(T: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of ±1/√3, labels by a model and noise."""
    rng = np.random.default_rng(seed)
    X = rng.choice([-1.0, 1.0], (T, 3)) / np.sqrt(3)
    return X, np.sign(X @ MODEL + 0.8 * rng.normal(size=T))


def rare(T: int) -> np.ndarray:
    """Features of every row, every 7th, 40th and 150th, their rows repeated."""
    t = np.arange(T)
    return np.stack([np.full(T, 0.5), t % 7 < 2, t % 40 < 2, t % 150 < 2], axis=1).astype(float) / 1.8


STREAMS = {
    "coins": lambda T: (coins(T)[0], fixed_labels(coins(T)[1])),
    "against": lambda T: (np.eye(3)[np.arange(T) % 3], against),
    "repeated": lambda T: (np.tile([[0.6, -0.8]], (T, 1)), fixed_labels(np.where(np.arange(T) // 30 % 2, -1.0, 1.0))),
    "rare": lambda T: (rare(T), against),
    "alternating": lambda T: (np.ones((T, 1)), fixed_labels(1.0 - 2.0 * (np.arange(T) % 2))),
}


@cache
def played(game: str, stream: str) -> Play:
    """A play of 80 rounds, for tests that only read it; "rare" ends in a round in which some features sleep."""
    return GAMES[game].play(*STREAMS[stream](80))


def comparators(play: Play, c: int, seed: int = 0) -> list[np.ndarray]:
    """The optimum, or the last iterate near it, its opposite, 0, the mean iterate and a point of the domain."""
    rng, n, R, W = np.random.default_rng(seed), play.X.shape[1], play.radius(c, 3.0), play.W[:, :, c]
    best = play.optimum(c) if (play.penalty, play.loss) == ("l1", "hinge") else np.clip(W[-1], -R, R)
    return [best, np.zeros(n), W.mean(axis=0), -best, rng.uniform(-R, R, n)]


# ----------------------------------------------------------------------------------------------------------------------
# Regret and bounds.


TOO_SHORT: list[tuple[str, dict[str, float]]] = [
    ("l2", {"lam": 0.5, "eta0": 1.9}),
    ("elastic_net", {"lam": 0.5, "eta0": 2.0, "l1_ratio": 0.4}),
    ("l1", {"lam": 0.5, "eta0": 10.0}),
    ("box", {"R": 1.0, "eta0": 10.0}),
]
"""Penalties, and steps eta0/t that are too short for a bound."""
PREDICTING: list[tuple[str, dict[str, Any]]] = [("ao-gd", {}), ("ftrl-proximal", {"lam": 0.0})]


@pytest.mark.parametrize(
    ("game", "stream"),
    [*product(GRIDS, STREAMS), *product((game for game in GAMES if game not in GRIDS), ("coins", "against", "rare"))],
)
def test_regret_is_within_its_bound(game: str, stream: str) -> None:
    assert_within_bounds(played(game, stream))


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
        own = own._replace(grid=[entry | {"lam": 0.001} if "lam" in entry else entry for entry in own.grid[:1]])
    else:
        own = own._replace(grid=own.grid[1:2])
    X, y = coins(500 if own.penalty == "l1" else 1500)
    play = own.play(X, fixed_labels(y), taught=-1.0)
    x = play.optimum(0) if own.penalty == "l1" else -play.W[-1, :, 0]
    assert play.regret(0, x)[-1] > play.limit(0, x)[-1]


@pytest.mark.parametrize("game", ["stda", "subgradient", "rda", "fobos l2 inverse"])
def test_bounds_are_nearly_reached(game: str) -> None:
    """An opponent who knows the margin brings regret to more than half the bound: a constant half as large fails."""
    own = GAMES[game]
    play = played(game, "against") if own.penalty == "l1" else own.play(*STREAMS["alternating"](50), loss="hinge")
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
@settings(max_examples=4, deadline=None)
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


@pytest.mark.parametrize(
    ("regularizer", "sample", "predict"),
    [
        ("proximal", "uniform", "none"),
        ("proximal", "lipschitz", "last"),
        ("centred", "uniform", "last"),
        ("centred", "lipschitz", "none"),
    ],
)
def test_of_sampled_rows_in_expectation(regularizer: str, sample: str, predict: str) -> None:
    """Theorems 5 and 6: E[Reg_T − 4RΣΔ_T] ≤ 0 over draws, here with three standard errors to spare over 48 seeds."""
    X, y = coins(100)
    X = X * np.random.default_rng(1).lognormal(0, 0.5, (100, 1))
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
        over.append(play.regret(c, x)[-1] - bound.value(100, {"Delta": Delta[0]}))
    assert np.mean(over) + 3 * np.std(over) / np.sqrt(len(over)) < 0


@pytest.mark.parametrize("sample", ["uniform", "lipschitz"])
def test_of_sampled_rows_without_a_regularizer(sample: str) -> None:
    """Theorem 6 with r ≡ 0: the mean regret of 48 seeds, and three standard errors, is under a bound in log T."""
    T = 100
    X, y = coins(T)
    X = X * np.random.default_rng(1).lognormal(0, 0.5, (T, 1))
    own = {"R": 2.0, "lam": 0.2, "keep": 0.4, "sample": sample, "regularizer": "none", "predict_gradient": "last"}
    play = Play("caos-ftrl", X, fixed_labels(y), [own | {"seed": s} for s in range(48)], "logistic", "l2")
    bound = play.bound()
    assert bound.expected
    limit = bound.value(T, {"penalised": 3.0, "G_inf": np.abs(X).max(), "Delta_b": 0.0})
    for x in (np.zeros(3), 0.3 * MODEL, play.W[-1].mean(axis=1)):
        regret = [play.regret(c, x)[-1] for c in range(48)]
        assert np.mean(regret) + 3 * np.std(regret) / np.sqrt(48) < limit
    assert limit == pytest.approx(3 * 4 * np.abs(X).max() ** 2 / 0.4 * (1 + np.log(T)) / 0.2)


@pytest.mark.parametrize("name", GRIDS)
def test_the_state_holds_what_the_definitions_say(name: str) -> None:
    play = played(name, "rare")
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
    new = {"new": replace(find_algorithm("fobos"), name="new")}
    monkeypatch.setattr("sparseoco.offline.bounds.find_algorithm", new.__getitem__)
    assert "new" in regret_bound("new", {"eta0": 1.0}).why


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
    assert word in bound.why


# ----------------------------------------------------------------------------------------------------------------------
# What the proofs say before they round up: inequalities that a step ten times too long, or no shorter, breaks.


Inequality = Callable[[Play, int, np.ndarray], np.ndarray]


def primal(play: Play, c: int, x: np.ndarray, g: np.ndarray, more: np.ndarray | float = 0.0) -> np.ndarray:
    """D²/(2η_T) + Σ η_t‖g_t‖²/2 + Σ more_t."""
    W, T = play.W[:, :, c], len(play.X)
    eta = play.configurations[c]["eta0"] / np.sqrt(np.arange(1, T + 1))
    D = np.maximum.accumulate(np.linalg.norm(W - x, axis=1))
    return np.asarray(D**2 / (2 * eta) + np.cumsum(eta * (g**2).sum(axis=1) / 2 + more))


def after(play: Play, c: int) -> np.ndarray:
    """w_{t+1} (T, n)."""
    return np.vstack([play.W[1:, :, c], play.learner.weights()[:, c]])


def splitting(play: Play, c: int, x: np.ndarray) -> np.ndarray:
    """D²/(2η_T) + Σ η_t‖g_t‖²/2 + Σ ψ_t(w_t) − ψ_t(w_{t+1}): the step of Duchi et al. (2010), Lemma 1, summed."""
    moved = play.psi(play.W[:, :, c], c) - play.psi(after(play, c), c)
    return primal(play, c, x, play.g[:, :, c], moved)


def charged(play: Play, c: int, x: np.ndarray) -> np.ndarray:
    """CL-FOBOS as FOBOS with c_{t,i}ψ(w_i) for penalties, Togari and Yamashita (2016), (14), and what that leaves out.

    D²/(2η_T) + Σ η_t‖g_t‖²/2 + Σ_t Σ_i (ψ(w_{t,i}) − ψ(x_i)) − c_{t,i}(ψ(w_{t+1,i}) − ψ(x_i)).
    """
    _, charges = play.sleeps_and_charges(c)
    psi, psi_after = (play.lam[c] * (np.abs(weights) - np.abs(x)) for weights in (play.W[:, :, c], after(play, c)))
    return primal(play, c, x, play.g[:, :, c], (psi - charges * psi_after).sum(axis=1))


def linear(play: Play, c: int, x: np.ndarray) -> np.ndarray:
    """The same for a subgradient λ·sign(w_t) in the step: D²/(2η_T) + Σ η_t‖g_t + λ·sign(w_t)‖²/2."""
    return primal(play, c, x, play.g[:, :, c] + play.lam[c] * np.sign(play.W[:, :, c]))


def averaging(play: Play, c: int, x: np.ndarray) -> np.ndarray:
    """β_T‖x‖²/2 + Σ ‖g_t‖²/(2β_{t−1}) (Oiwa et al. 2012, (42)) + Σ Ψ_t(w_t) − Ψ_{t−1}(w_t), which is lacking there."""
    g, h, W = play.g[:, :, c], play.h[:, :, c], np.abs(play.W[:, :, c])
    t = np.arange(1, len(g) + 1)
    gamma = play.configurations[c]["gamma"]
    before = np.vstack([h[:1], h[:-1]])
    grown = play.lam[c] * ((h - before) * W).sum(axis=1)
    steps = (g**2).sum(axis=1) / (2 * gamma * np.sqrt(np.maximum(t - 1, 1)))
    return np.asarray(gamma * np.sqrt(t) * (x**2).sum() / 2 + np.cumsum(steps + grown))


def own_steps(play: Play, c: int, x: np.ndarray) -> np.ndarray:
    """Theorem 4: r_{0:T}(x) + Σ ‖g_t − g̃_t‖²_{(t−1),*}, with ½ for a method that predicts nothing.

    Truncated: Σ (‖w_t − x‖² − ‖w_{t+1} − x‖²)/(2η) + η‖g_t‖²_{*}/2 in H_t, and ψ(w_t) − ψ(w_{t+1}).
    """
    missed = play.g[:, :, c] - play.predicted(c)
    eta, delta = play.configurations[c]["eta"], play.configurations[c]["delta"]
    H = delta + np.sqrt(np.cumsum(missed**2, axis=0))
    if play.configurations[c]["model"] == "truncated":  # composite mirror descent, whose penalty is one round late
        W = play.W[:, :, c]
        nearer = H * ((W - x) ** 2 - (after(play, c) - x) ** 2) / (2 * eta) + eta * missed**2 / (2 * H)
        return np.cumsum(nearer.sum(axis=1) + play.psi(W, c) - play.psi(after(play, c), c))
    before = np.vstack([np.full_like(H[:1], delta), H[:-1]])
    half = 0.5 if play.configurations[c]["predict_gradient"] == "none" else 1.0
    return np.asarray((H * x**2).sum(axis=1) / (2 * eta) + np.cumsum((half * eta * missed**2 / before).sum(axis=1)))


INEQUALITIES: dict[str, Inequality] = {
    "subgradient": linear,
    "fobos": splitting,
    "cl-fobos": charged,
    "sgft": splitting,
    "rda": averaging,
    "stda": averaging,
    "adagrad": own_steps,
    **dict.fromkeys(("ftrl-proximal", "ao-gd", "ao-ftrl", "cao-ftrl"), lambda play, c, x: both_halves(play, c, x)[1]),
}


@pytest.mark.parametrize("stream", ["against", "repeated", "alternating"])
@pytest.mark.parametrize("name", INEQUALITIES)
def test_proofs_hold_step_by_step(name: str, stream: str) -> None:
    play = played(name, stream)
    for c in range(len(play.configurations)):
        for x in comparators(play, c):
            over = play.regret(c, x) - INEQUALITIES[name](play, c, x)
            assert over.max() <= 1e-7 * (1 + abs(play.incurred(c)[-1]))


def both_halves(play: Play, c: int, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mohri and Yang (2015), Theorems 3 and 4, of regret without and with ψ, for T = 1 ….

    Both with ψ_{1:T}(x) where the paper has ψ_{1:T−1}(x), and without ψ_{t+1} in the norm of round t (see
    the tests of printed theorems below). A step is at most 2R.
    """
    configuration, missed = play.configurations[c], play.g[:, :, c] - play.predicted(c)
    R, regularizer = configuration["R"] * play.scale(c), configuration.get("regularizer", "proximal")
    convexity = play.lam[c] if play.penalty == "l2" else 0.0
    ridge = convexity * np.cumsum(play.alpha[:, c])[:, None]
    kept = 0.0 if regularizer == "none" and convexity else 1.0
    Delta = np.sqrt(np.cumsum(missed**2, axis=0)) * kept

    def shifted(values: np.ndarray) -> np.ndarray:
        return np.vstack([np.zeros_like(values[:1]), values[:-1]])

    def steps(stiffness: np.ndarray) -> np.ndarray:
        free = np.divide(missed**2, stiffness, out=np.full_like(missed, np.inf), where=stiffness > 0)
        return np.minimum(free, 2 * R * np.abs(missed)).cumsum(axis=0).sum(axis=1)

    if regularizer == "centred":
        r = Delta * x**2 / (2 * R)
    else:
        r = np.cumsum((Delta - shifted(Delta)) / R * (x - play.W[:, :, c]) ** 2 / 2, axis=0)
    general = shifted(r).sum(axis=1) + steps(shifted(Delta) / R + ridge)
    proximal = r.sum(axis=1) + steps(Delta / R + ridge)
    return np.cumsum(play.psi(x, c)) + general, general if regularizer == "centred" else proximal


EVERY = list(product(("none", "last", "mean"), ("constant", "sqrt", "first")))


@pytest.mark.parametrize("penalty", ["l1", "l2"])
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_both_halves_of_theorems_3_and_4(penalty: str, seed: int) -> None:
    """For every regularizer, and predictions and sequences of penalties."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 3)) * (rng.random((60, 3)) < [1.0, 0.4, 0.1])
    grid = [
        {"R": float(R), "lam": float(lam), "regularizer": regularizer, "predict_gradient": predict, "schedule": own}
        for regularizer, (predict, own) in product(
            ("proximal", "centred", "none")[: 3 if penalty == "l2" else 2], EVERY
        )
        for R, lam in [(rng.lognormal(0, 1), rng.lognormal(-2, 1))]
    ]
    play = Play("cao-ftrl", X, fixed_labels(rng.choice([-1.0, 1.0], 60)), grid, "logistic", penalty)
    for c, entry in enumerate(grid):
        W, R = play.W[:, :, c], entry["R"]
        for x in (W.mean(axis=0), W[-1], np.zeros(3), *rng.uniform(-R, R, (3, 3))):
            first, second = both_halves(play, c, x)
            assert (np.cumsum(play.losses(W) - play.losses(x)) <= first + 1e-9).all()
            assert (play.regret(c, x) <= second + 1e-9).all()


@pytest.mark.parametrize("K", [1, 2, 7, 50])
def test_lemma_2_of_cl_fobos(K: int) -> None:
    """|1 − c̃_t| ≤ δ(t), (30) and (31): c̃_t is the mean of the last k ≤ K steps over the step of round t."""
    reached = []
    for t in range(1, 1000):
        k = np.arange(1, min(K, t) + 1)
        mean = np.cumsum(np.sqrt(t / np.arange(t, t - len(k), -1))) / k
        delta = np.sqrt(t) - 1 if t <= K - 1 else (K - 1) / (2 * (t - K + 1))
        assert mean.min() >= 1
        assert mean.max() - 1 <= delta + 1e-12
        reached.append((mean[-1] - 1) / delta if delta > 0 else 0.0)
    assert K == 1 or reached[-1] > 0.45


# ----------------------------------------------------------------------------------------------------------------------
# Theorem 2 of Togari and Yamashita 2016: the objective of the mean of the iterates, for examples drawn from a set.


TRUTH = np.append(MODEL, 0.0)


def mean_bound(values: dict[str, Any], penalty: str) -> Bound:
    """The bound on E F(x̄_T) − F(x), F(x) = E f_t(x) + ψ(x), for examples drawn independently of each other.

    The theorem has a limit and no rate, and its φ is the mean over the T examples that x̄_T is learned from.
    As in Xiao (2010), whose proof Theorem 2 follows, F is the expected objective, (40), E F(x_t) =
    E[f_t(x_t) + ψ(x_t)], and by convexity E F(x̄_T) − F(x) ≤ E Reg_T(x)/T. The quantities are of the iterates.
    """
    bound = bound_of("cl-fobos", values, penalty)
    return replace(bound, compute=lambda T, q: bound.compute(T, q) / T)


class Problem:
    """Examples (m, n), and draws of T of them."""

    def __init__(self, seed: int, penalty: str = "l1", noise: float = 1.0) -> None:
        self.rng = np.random.default_rng(seed)
        self.X = self.rng.normal(size=(40, 4)) * (self.rng.random((40, 4)) < 0.7)
        self.y = np.where(self.X @ TRUTH + noise * self.rng.normal(size=40) > 0, 1.0, -1.0)
        self.penalty = penalty

    def objective(self, x: np.ndarray, lam: float) -> float:
        psi = np.abs(x).sum() if self.penalty == "l1" else (x**2).sum() / 2
        return float(np.logaddexp(0.0, -self.y * (self.X @ x)).mean() + lam * psi)

    def play(self, T: int, values: dict[str, Any], taught: float = 1.0) -> Play:
        drawn = self.rng.integers(0, len(self.y), T)
        return Play("cl-fobos", self.X[drawn], fixed_labels(self.y[drawn]), [values], "logistic", self.penalty, taught)


def over(
    problem: Problem, T: int, values: dict[str, Any], x: np.ndarray, taught: float = 1.0, draws: int = 8
) -> tuple[Any, Any]:
    """F(x̄_T) − F(x) less its bound, and F(x̄_T) − R̄(T), of each draw."""
    bound = mean_bound(values, problem.penalty)
    excess, gap = [], []
    for _ in range(draws):
        play = problem.play(T, values, taught)
        of_mean = problem.objective(play.W[:, :, 0].mean(axis=0), values["lam"])
        limit = bound.value(T, {name: value[-1] for name, value in play.quantities(0, x).items()})
        excess.append(of_mean - problem.objective(x, values["lam"]) - limit)
        gap.append(of_mean - play.incurred(0)[-1] / T)
    return np.array(excess), np.array(gap)


def spare(values: np.ndarray) -> float:
    """Three standard errors."""
    return float(3 * values.std(ddof=1) / np.sqrt(len(values)))


@pytest.mark.parametrize(
    ("penalty", "values"),
    [("l1", {"eta0": 0.5, "lam": 0.02}), ("l2", {"eta0": 2.0, "lam": 0.5, "step": "inverse"})],
)
def test_the_mean_is_within_its_bound(penalty: str, values: dict[str, Any]) -> None:
    problem = Problem(1, penalty)
    for T in (1, 40):
        excess, gap = over(problem, T, values, np.array([0.8, -0.8, 0.4, 0.0]))
        assert excess.mean() + spare(excess) < 0
    assert gap.mean() < spare(gap)  # E F(x̄_T) ≤ E R̄(T), from which it follows


def test_the_mean_of_what_learns_from_wrong_labels_is_not() -> None:
    excess, _ = over(Problem(2, noise=0.0), 900, {"eta0": 0.4, "lam": 0.0}, TRUTH / 2, taught=-1.0, draws=3)
    assert excess.mean() - spare(excess) > 0


# ----------------------------------------------------------------------------------------------------------------------
# Where a theorem is not as printed: a sequence over the paper's bound, and under the one that its proof gives.


def test_stda_and_features_that_occur_twice() -> None:
    """Oiwa et al. 2012, Theorem 1, p = 1: slopes −1, then +1, each pair of rows a feature of its own.

    The first row leaves w = (1 − λ)/√t, whose cost in the second is (1 + 2λ)w: Σ (1 − λ)(1 + 2λ)/√t over odd t, which
    is 9/8·√T less a constant for λ = 1/4, against x = 0 and a bound of √T for G = γ = 1 and D as small as you like.
    """
    pairs = 60
    X = np.repeat(np.eye(pairs), 2, axis=0)
    play = Play("stda", X, fixed_labels(np.tile([1.0, -1.0], pairs)), [{"gamma": 1.0, "lam": 0.25, "p": 1}])
    assert np.linalg.norm(play.g[:, :, 0], axis=1) == pytest.approx(np.ones(2 * pairs))
    x, T = np.zeros(pairs), np.arange(1, 2 * pairs + 1)
    regret = play.regret(0, x)
    odd = np.arange(1, 2 * pairs, 2)
    assert regret[-1] == pytest.approx(9 / 8 * (1 / np.sqrt(odd)).sum())
    assert regret[-1] > np.sqrt(T[-1]) * 1.05
    assert (regret <= play.limit(0, x)).all()
    assert "Lemma 3" in play.bound().note


def rounds_of_caos_erm(b: np.ndarray, R: float, T: int, seed: int, whole: bool) -> Iterator[tuple[float, float, float]]:
    """Mohri and Yang 2015, Algorithm 4, one epoch from x̄ = 0 on f_j(x) = ½(x − b_j)²: x_t, Δ_t and Σ_{s≤t} of
    Σ_j (g_s^j − ḡ^j)²/p_j, p_j = 1/m.

    The prediction is that of the example drawn for the coming round, as Corollary 6 has it; or, `whole`, the gradient
    of all at x̄, with ĝ_t = g̃_t + (g_t^j − ḡ^j)/p_j. Both miss by the same.
    """
    m, Z, Delta, terms = len(b), 0.0, 0.0, 0.0
    for j in np.random.default_rng(seed).integers(m, size=T):
        g_tilde = -b.sum() if whole else -b[j] * m
        v = -(Z + g_tilde)
        x = float(np.clip(R * v / Delta, -R, R)) if Delta > 0 else R * float(np.sign(v))
        terms += m * m * x * x
        missed = x * m
        grown = float(np.hypot(Delta, missed))
        Z += g_tilde + missed - (grown - Delta) / R * x
        Delta = grown
        yield x, Delta, terms


def test_caos_erm_and_predictions_that_know_the_draw() -> None:
    """Corollary 6: x_t depends on the example that ĝ_t is of, so ĝ_t is not unbiased: regret passes the bound.

    Every ½(x − b_j)² is predicted but for x_t − x̄, so Δ knows nothing of the noise |b_j| ≫ R, which drives x_t from
    wall to wall. Predicted by the whole gradient ĝ_t is unbiased, the proof holds, and so does the bound.
    """
    b, R, T = np.array([20.0, -20.0, 20.5, -19.5]), 1.0, 400
    optimum = float(np.clip(b.mean(), -R, R))

    def regret_and_bound(seed: int, whole: bool) -> tuple[float, float]:
        x, Delta, terms = np.array(list(rounds_of_caos_erm(b, R, T, seed, whole))).T
        assert Delta[-1] == pytest.approx(np.sqrt(terms[-1]))
        regret = ((x[:, None] - b) ** 2 - (optimum - b) ** 2).sum() / 2
        return float(regret), float(4 * R * np.sqrt(terms[-1]))

    as_printed, mended = (np.array([regret_and_bound(seed, whole) for seed in range(16)]) for whole in (False, True))
    assert (as_printed[:, 0] > 1.5 * as_printed[:, 1]).all()
    assert (mended[:, 0] < mended[:, 1]).all()


def test_corollary_6_and_linear_losses() -> None:
    """The data-dependent bound of Corollary 6 has g_t^j − ḡ_s^j of one example, which is 0 for f_j(x) = b_j·x.

    Algorithm 4 as printed predicts by the example drawn before, and its regret is not 0: not in the first round, where
    g̃_1 = 0, and not later.
    """
    b, R, epochs = np.array([[1.0], [2.0], [-1.0], [0.5]]), 1.0, 5
    total = b.sum()
    for seed in range(4):
        x, *_ = algorithm_4(b, np.ones(len(b)), lambda z, y: 1.0, R=R, alpha=0.0, k=epochs, seed=seed)
        regret = np.cumsum(total * x[:-1, 0]) + np.arange(1, len(x)) * abs(total) * R
        assert (regret >= abs(total) * R).all()
        assert regret[-1] < 8 * R * np.sqrt(len(regret)) * np.abs(b).sum()


def test_composite_regret_without_the_last_penalty() -> None:
    """Mohri and Yang 2015, Theorems 3 to 6, first half: ψ_{1:T−1}(x) must be ψ_{1:T}(x).

    The proof applies Theorem 2 with r_t + ψ_t, but the update has ψ_{1:t+1}. In one round with r ≡ 0, ψ = λx²/2 and a
    linear loss, regret against x = −cg is cg² and ‖g‖² in the norm of h_0 is g²/λ, which is less if c > 1/λ; the
    logistic loss is near enough to a linear one.
    """
    lam = 2.0
    entry = {"R": 2.0, "lam": lam, "predict_gradient": "none", "regularizer": "none"}
    play = Play("cao-ftrl", np.array([[2.0]]), fixed_labels([1.0]), [entry], "logistic", "l2")
    g, x = play.g[0, :, 0], np.array([2.0])
    assert g == pytest.approx([-1.0])
    regret = (play.losses(play.W[:, :, 0]) - play.losses(x))[0]
    as_printed = g[0] ** 2 / lam
    assert regret > 1.3 * as_printed
    assert regret <= play.psi(x, 0)[0] + as_printed


def test_composite_regret_in_a_norm_of_the_next_round() -> None:
    """Mohri and Yang 2015: the second halves of Theorem 3, in the norm of h_{0:t}, and of Theorem 4, as printed.

    Theorem 3 needs the norm of h_{0:t−1} + r_t, without ψ_{t+1}; Theorem 4 that of h_{0:t−1}, as its proof and Theorem
    6 have it, without r_t as well. One round with r_0 = 0 and ψ_1 = λ_1x²/2: regret is g²/(2λ_1) against x = −g/λ_1,
    and g²/(λ_1 + more) is less if ψ_2, or the r_1 of Theorem 4, brings more than λ_1. For ψ_t that do not grow
    α_{1:t+1} is at most 2α_{1:t}.
    """
    g, first, more = 1.0, 0.5, 2.0
    x = np.linspace(-4.0, 4.0, 801)
    regret = -(g * x + first * x**2 / 2).min()  # x_1 = 0 is the minimum of ψ_1
    assert regret > 2 * g**2 / (first + more)
    assert regret <= g**2 / first


def test_strongly_convex_losses_without_a_regularizer() -> None:
    """Mohri and Yang 2015, §2.1: r ≡ 0 for strongly convex f_t is no FTRL with g_t·x alone.

    h is linear and x_{t+1} an end of the box: on f_t(x) = (x − 0.3)²/2 regret grows as T, Σ g_t²/t as log T. With the
    strongly convex part of f_t kept in h, regret is within it.
    """
    b, R, T = 0.3, 1.0, 2000

    def play(convexity: float) -> tuple[float, float]:
        gradients, centres, regret, bound = 0.0, 0.0, 0.0, 0.0
        for t in range(1, T + 1):
            v = gradients - convexity * centres
            x = float(np.clip(-v / (convexity * (t - 1)), -R, R)) if convexity and t > 1 else -R * float(np.sign(v))
            g = x - b
            regret += g * g / 2
            bound += g * g / t
            gradients, centres = gradients + g, centres + x
        return regret, bound

    regret, bound = play(convexity=0.0)
    assert regret > 0.2 * T
    assert regret > 20 * bound
    regret, bound = play(convexity=1.0)
    assert regret <= bound
