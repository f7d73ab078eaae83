"""What the proofs say before they round up: inequalities that a step ten times too long, or no shorter, breaks."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bounds.play import Play, fixed_labels
from tests.bounds.streams import GRIDS, STREAMS, comparators

pytestmark = pytest.mark.formulas
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


def adaptive(play: Play, c: int, x: np.ndarray) -> np.ndarray:
    """Mohri and Yang (2015), Theorem 3: r_{0:T}(x) + Σ ‖g_t − g̃_t‖²_{(t),*}.

    Around 0 Theorem 4, with (t−1) and steps of at most 2R.
    """
    R, missed = play.radius(c), play.g[:, :, c] - play.predicted(c)
    Delta = np.sqrt(np.cumsum(missed**2, axis=0))
    if play.configurations[c].get("regularizer") == "centred":
        before = np.vstack([np.zeros_like(Delta[:1]), Delta[:-1]])
        free = np.divide(missed**2, before, out=np.full_like(Delta, np.inf), where=before > 0)
        steps = R * np.minimum(free, 2 * np.abs(missed)).cumsum(axis=0)
        return np.asarray((Delta * x**2 / (2 * R) + steps).sum(axis=1))
    sigma = np.diff(Delta, axis=0, prepend=0.0) / R
    steps = R * np.divide(missed**2, Delta, out=np.zeros_like(Delta), where=Delta > 0)
    return np.asarray(np.cumsum((sigma * (x - play.W[:, :, c]) ** 2 / 2 + steps).sum(axis=1)))


def own_steps(play: Play, c: int, x: np.ndarray) -> np.ndarray:
    """Theorem 4: r_{0:T}(x) + Σ ‖g_t − g̃_t‖²_{(t−1),*}, with ½ for a method that predicts nothing."""
    missed = play.g[:, :, c] - play.predicted(c)
    eta, delta = play.configurations[c]["eta"], play.configurations[c]["delta"]
    H = delta + np.sqrt(np.cumsum(missed**2, axis=0))
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
    "ftrl-proximal": adaptive,
    "ao-gd": adaptive,
    "ao-ftrl": adaptive,
    "cao-ftrl": adaptive,
}


@pytest.mark.parametrize("stream", ["against", "repeated", "alternating"])
@pytest.mark.parametrize("name", INEQUALITIES)
def test_proofs_hold_step_by_step(name: str, stream: str) -> None:
    play = Play(name, *STREAMS[stream](150), GRIDS[name])
    for c in range(len(play.configurations)):
        for x in comparators(play, c):
            over = play.regret(c, x) - INEQUALITIES[name](play, c, x)
            assert over.max() <= 1e-7 * (1 + abs(play.incurred(c)[-1]))


def both_halves(play: Play, c: int, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mohri and Yang (2015), Theorems 3 and 4, of regret without and with ψ, for T = 1 ….

    Both with ψ_{1:T}(x) where the paper has ψ_{1:T−1}(x), and without ψ_{t+1} in the norm of round t (see
    `tests.bounds.test_printed`). A step is at most 2R.
    """
    configuration, missed = play.configurations[c], play.g[:, :, c] - play.predicted(c)
    R, regularizer = configuration["R"], configuration["regularizer"]
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
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_both_halves_of_theorems_3_and_4(penalty: str, seed: int) -> None:
    """For every regularizer, and predictions and sequences of penalties."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 3)) * (rng.random((60, 3)) < [1.0, 0.4, 0.1])
    grid = [
        {"R": float(R), "lam": float(lam), "regularizer": regularizer, "predict_gradient": predict, "schedule": own}
        for regularizer, (predict, own) in product(("proximal", "centred", "none"), EVERY)
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
