"""What the proofs say before they round up: inequalities that a step ten times too long, or no shorter, breaks."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.bounds.play import Play
from tests.bounds.streams import GRIDS, STREAMS, comparators

Inequality = Callable[[Play, int, np.ndarray], np.ndarray]


def splitting(play: Play, c: int, x: np.ndarray) -> np.ndarray:
    """D²/(2η_T) + Σ η_t‖g_t‖²/2 + Σ ψ_t(w_t) − ψ_t(w_{t+1}): the step of Duchi et al. (2010), Lemma 1, summed."""
    W, g, T = play.W[:, :, c], play.g[:, :, c], len(play.X)
    eta = play.configurations[c]["eta0"] / np.sqrt(np.arange(1, T + 1))
    D = np.maximum.accumulate(np.linalg.norm(W - x, axis=1))
    after = np.vstack([W[1:], play.learner.weights()[:, c]])
    moved = play.psi(W, c) - play.psi(after, c)
    return np.asarray(D**2 / (2 * eta) + np.cumsum(eta * (g**2).sum(axis=1) / 2 + moved))


def charged(play: Play, c: int, x: np.ndarray) -> np.ndarray:
    """CL-FOBOS as FOBOS with c_{t,i}ψ(w_i) for penalties, Togari and Yamashita (2016), (14), and what that leaves out.

    D²/(2η_T) + Σ η_t‖g_t‖²/2 + Σ_t Σ_i (ψ(w_{t,i}) − ψ(x_i)) − c_{t,i}(ψ(w_{t+1,i}) − ψ(x_i)).
    """
    W, T = play.W[:, :, c], len(play.X)
    after = np.vstack([W[1:], play.learner.weights()[:, c]])
    _, charges = play.sleeps_and_charges(c)
    psi, psi_after = (play.lam[c] * (np.abs(weights) - np.abs(x)) for weights in (W, after))
    eta = play.configurations[c]["eta0"] / np.sqrt(np.arange(1, T + 1))
    D = np.maximum.accumulate(np.linalg.norm(W - x, axis=1))
    steps = eta * (play.g[:, :, c] ** 2).sum(axis=1) / 2
    return np.asarray(D**2 / (2 * eta) + np.cumsum(steps + (psi - charges * psi_after).sum(axis=1)))


def linear(play: Play, c: int, x: np.ndarray) -> np.ndarray:
    """The same for a subgradient λ·sign(w_t) in the step: D²/(2η_T) + Σ η_t‖g_t + λ·sign(w_t)‖²/2."""
    W, T = play.W[:, :, c], len(play.X)
    eta = play.configurations[c]["eta0"] / np.sqrt(np.arange(1, T + 1))
    D = np.maximum.accumulate(np.linalg.norm(W - x, axis=1))
    steps = ((play.g[:, :, c] + play.lam[c] * np.sign(W)) ** 2).sum(axis=1)
    return np.asarray(D**2 / (2 * eta) + np.cumsum(eta * steps / 2))


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
    R, missed = play.configurations[c]["R"], play.g[:, :, c] - play.predicted(c)
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
