"""Algorithms 4 and 5 of Mohri and Yang (2015) in dense NumPy: every coordinate, every round, nothing of the package."""

from collections.abc import Callable

import numpy as np

from tests.oracles.ftrl import share_of_l1, split_mix_64
from tests.oracles.weights import weight_of

Slope = Callable[[float, float], float]


def argmin(
    v: np.ndarray, Delta: np.ndarray, t: int, R: float, alpha: np.ndarray, ratio: float, inside: list[float]
) -> np.ndarray:
    """argmin over |x| ≤ R of v·x + Δx²/(2R) + tα(ρ|x| + (1 − ρ)x²/2), by the subgradient at 0 and at the wall.

    `inside` is given the second derivative times R where the minimum is between these.
    """
    x = np.zeros(len(v))
    for i, b in enumerate(v):
        pull = abs(b) - t * alpha[i] * ratio  # how steeply the sum falls away from 0, against the sign of b
        stiffness = Delta[i] / R + t * alpha[i] * (1 - ratio)
        if pull > 0:
            x[i] = -np.sign(b) * (R if pull >= stiffness * R else pull / stiffness)
            if pull < stiffness * R:
                inside.append(stiffness * R)
    return x


def uniform(seed: int, epoch: int, part: int, t: int) -> float:
    """The number that round t (from 0) of a part of an epoch is drawn by."""
    key = split_mix_64(split_mix_64(split_mix_64(seed) ^ 4) ^ epoch)
    return (split_mix_64(split_mix_64(key ^ part) ^ t) >> 11) / 2**53


def caos_erm(
    X: np.ndarray,
    y: np.ndarray,
    slope: Slope,
    *,
    R: float,
    alpha: float | np.ndarray,
    epochs: int,
    seed: int,
    rounds: int | str = "pass",
    batch: int = 1,
    estimate: str = "sampled",
    placement: str = "serial",
    parts: int = 1,
    predict_gradient: str = "next",
    sample: str = "lipschitz",
    penalty: str = "l1",
    l1_ratio: float = 0.0,
    played: list[np.ndarray] | None = None,
    inside: list[float] | None = None,
) -> list[np.ndarray]:
    """x̄ after each epoch.

    `played` is given every x_t, `inside` what `argmin` gives it. `y` is ±1, or numbers; `Label`s have weights. α may be
    of each coordinate.
    """
    m, n = X.shape
    alpha, inside = np.broadcast_to(alpha, n), [] if inside is None else inside
    ratio = share_of_l1(penalty, l1_ratio)
    partition = [list(range(first, min(first + batch, m))) for first in range(0, m, batch)]
    bound = np.array([sum(weight_of(y[j]) * np.abs(X[j]).max(initial=0.0) for j in block) for block in partition])
    if sample == "uniform":
        bound = np.sign(bound)
    rounds = len(partition) if rounds == "pass" else int(rounds)
    parts = parts if placement != "serial" else 1
    dealt = [range(p, len(partition), parts) for p in range(parts)]
    dealt = [blocks for blocks in dealt if bound[blocks].sum() > 0]

    def gradients(block: list[int], x: np.ndarray) -> np.ndarray:
        return np.sum([slope(X[j] @ x, y[j]) * X[j] for j in block], axis=0)

    g_sum, sigma_x, squares, t = np.zeros(n), np.zeros(n), np.zeros(n), 0  # ĝ_{1:t}, Σ σ_s x_s, Δ_t²
    ahead = np.zeros(n)  # g̃_{t+1} if it is the previous draw's
    x = np.zeros(n)
    iterates = []
    for epoch in range(1, epochs + 1):
        anchor_gradients = [gradients(block, x) for block in partition]
        whole = np.sum(anchor_gradients, axis=0)
        ends = []
        for p, blocks in enumerate(dealt):
            g, sx, q, at, g_next = g_sum.copy(), sigma_x.copy(), squares.copy(), t, ahead
            chances = bound[blocks] / bound[blocks].sum()
            for a in range(-(-rounds // len(dealt))):
                at += 1
                drawn = int(np.searchsorted(np.cumsum(chances), uniform(seed, epoch, p, a), side="right"))
                j, probability = blocks[drawn], chances[drawn] / len(dealt)
                g_tilde = anchor_gradients[j] / probability if estimate == "sampled" else whole
                if predict_gradient == "previous":
                    g_tilde, g_next = g_next, g_tilde
                x_t = argmin(g + g_tilde - sx, np.sqrt(q), at, R, alpha, ratio, inside)
                if played is not None:
                    played.append(x_t)
                g_hat = gradients(partition[j], x_t) / probability
                if estimate == "corrected":
                    g_hat = whole + g_hat - anchor_gradients[j] / probability
                sigma = (np.sqrt(q + (g_hat - g_tilde) ** 2) - np.sqrt(q)) / R
                g, sx, q = g + g_hat, sx + sigma * x_t, q + (g_hat - g_tilde) ** 2
            ends.append((g, sx, np.sqrt(q), g_next))
        if ends:
            g_sum, sigma_x, Delta, ahead = (np.mean(figure, axis=0) for figure in zip(*ends, strict=True))
            squares, t = Delta**2, at
        x = argmin(g_sum + ahead - sigma_x, np.sqrt(squares), t + 1, R, alpha, ratio, inside)
        iterates.append(x)
    return iterates
