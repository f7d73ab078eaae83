"""Grids and streams for the tests of the regret bounds, and the comparators of a play."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from sparseoco.learners import ALGORITHMS
from sparseoco.offline.bounds import Bound, regret_bound
from tests.bounds.play import Adversary, Play, against, fixed_labels

# Two configurations a learner or three: without a penalty (or with little), and with one that bites. sg-l1, and l-fobos
# with K = 1, are fobos bit for bit.
GRIDS: dict[str, list[dict[str, Any]]] = {
    "subgradient": [{"eta0": 0.7, "lam": 0.0}, {"eta0": 0.2, "lam": 0.05}],
    "fobos": [{"eta0": 0.7, "lam": 0.0}, {"eta0": 0.2, "lam": 0.05}],
    "cl-fobos": [{"eta0": 0.7, "lam": 0.0}, {"eta0": 0.2, "lam": 0.05}],
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
        f"{name} l2": Game(name, grid, "l2")
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
    "repeated": lambda T: (np.tile([[0.6, -0.8]], (T, 1)), fixed_labels(np.where(np.arange(T) // 50 % 2, -1.0, 1.0))),
    "rare": lambda T: (rare(T), against),
    "alternating": lambda T: (np.ones((T, 1)), fixed_labels(1.0 - 2.0 * (np.arange(T) % 2))),
}


@cache
def played(game: str, stream: str) -> Play:
    """A play of 110 rounds, for tests that only read it; "rare" ends in a round in which some features sleep."""
    return GAMES[game].play(*STREAMS[stream](110))


def comparators(play: Play, c: int, seed: int = 0) -> list[np.ndarray]:
    """The optimum, or the last iterate near it, 0, the mean iterate and points of the domain."""
    rng, n, R, W = np.random.default_rng(seed), play.X.shape[1], play.radius(c, 3.0), play.W[:, :, c]
    best = play.optimum(c) if (play.penalty, play.loss) == ("l1", "hinge") else np.clip(W[-1], -R, R)
    return [best, np.zeros(n), W.mean(axis=0), -best, *rng.uniform(-R, R, (3, n))]
