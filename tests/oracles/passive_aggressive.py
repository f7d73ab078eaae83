"""Learners without a penalty in dense NumPy, see `tests.oracles.stream`: Crammer et al. (2006), Crammer, Kulesza and
Dredze (2009), and ScInOL₂ of Kempka, Kotłowski and Warmuth (2019), Algorithm 2."""

from collections.abc import Iterator

import numpy as np

from tests.oracles.losses import Rounds, weight_of


def tau(loss: float, square: float, C: float, variant: str) -> float:
    """Figure 1, (3) and the solutions of PA-I and PA-II; ‖x‖² = 0 leaves nothing to change."""
    if loss == 0 or square == 0:
        return 0.0
    return {"PA": loss / square, "PA-I": min(C, loss / square), "PA-II": loss / (square + 1 / (2 * C))}[variant]


def passive_aggressive(rounds: Rounds, C: float, variant: str) -> Iterator[np.ndarray]:
    """Figure 1 for the hinge; §8 for one relevant label, whose class and the best other one move, by τ from 2‖x‖².

    A weight multiplies C.
    """
    W, loss = rounds.start, rounds.loss
    for x, b in zip(rounds.X, rounds.y, strict=True):
        weight, z = weight_of(b), x @ W
        if weight > 0:
            towards = -np.sign(loss.slopes(z, b))
            W = W + tau(loss.value(z, b), (x @ x) * (towards @ towards), C * weight, variant) * np.outer(x, towards)
        yield W


def arow(rounds: Rounds, r: float) -> Iterator[np.ndarray]:
    """Figure 1 for the hinge; of Σ, all of which is updated, the diagonal is kept. A weight multiplies 1/r."""
    mu, sigma = rounds.start[:, 0], np.eye(rounds.X.shape[1])
    for x, b in zip(rounds.X, rounds.y, strict=True):
        if weight_of(b) > 0 and b * (mu @ x) < 1:
            beta = 1 / (x @ sigma @ x + r / weight_of(b))
            alpha = max(0.0, 1 - b * (mu @ x)) * beta
            mu = mu + alpha * sigma @ (b * x)
            sigma = np.diag(np.diag(sigma - beta * sigma @ np.outer(x, x) @ sigma))
        yield mu[:, None]


def scinol(rounds: Rounds, played: list[np.ndarray] | None = None) -> Iterator[np.ndarray]:
    """The weights after every row, of rows whose values are not larger than any before; `played` gets every w_t."""
    M, (G, S2), eta = np.zeros(rounds.start.shape), np.zeros((2, *rounds.start.shape)), np.ones(rounds.start.shape)

    def weights() -> np.ndarray:
        S_hat = np.sqrt(S2 + M**2)
        theta = np.divide(G, S_hat, out=np.zeros_like(G), where=S_hat > 0)
        bet = np.sign(theta) * np.minimum(np.abs(theta), 1) * eta / 2
        return np.divide(bet, S_hat, out=np.zeros_like(G), where=S_hat > 0)

    for _, x, label in rounds.rows():
        M = np.maximum(M, np.abs(x) * weight_of(label))
        w = weights()
        if played is not None:
            played.append(w)
        g = rounds.gradient(w, x, label)
        G, S2, eta = G - g, S2 + g**2, eta - g * w
        yield weights()


METHODS = {"passive-aggressive": passive_aggressive, "arow": arow, "scinol": scinol}
