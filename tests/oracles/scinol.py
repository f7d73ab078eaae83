"""ScInOL₂ (Kempka, Kotłowski and Warmuth 2019, Algorithm 2) in dense NumPy, in the words of the paper."""

from collections.abc import Iterator

import numpy as np

from tests.oracles.losses import Rounds
from tests.oracles.weights import weight_of


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


METHODS = {"scinol": scinol}
