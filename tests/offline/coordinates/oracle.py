"""CAO-RCD as the paper writes it: dense, every weight of every round by the argmin, gradients of F in full."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.oracles.ftrl import split_mix_64
from tests.oracles.weights import weight_of

STREAM, PART = 4, 2**32
ROUNDING = 2.0**-34
"""What differs by less is a tie: gradients relative to their bounds, and sums of gradients."""


def uniform(seed: int, epoch: int, k: int) -> float:
    """The number of [0, 1) of a round."""
    key = split_mix_64(split_mix_64(split_mix_64(seed) ^ STREAM) ^ epoch)
    return (split_mix_64(split_mix_64(key ^ PART) ^ k) >> 11) / 2**53


def ranges_of(A: np.ndarray, y: np.ndarray, R: float, scale: str) -> np.ndarray:
    """R_i: R, or R/max_j |a_{j,i}| over the examples of weight > 0, and R for a feature in none of them."""
    own = A[np.array([weight_of(b) > 0 for b in y])]
    largest = np.abs(own).max(axis=0, initial=0.0)
    return R / np.where(largest > 0, largest, 1.0) if scale == "max_abs" else np.full(A.shape[1], R)


def bounds_of(A: np.ndarray, y: np.ndarray, loss: str, R: np.ndarray) -> np.ndarray:
    """L_i ≥ |∇_iF| in the box |x_i| ≤ R_i."""
    largest = np.abs(A) @ R
    slopes = {
        "logistic": np.ones(len(A)),
        "hinge": np.ones(len(A)),
        "squared_hinge": 2 * (1 + largest),
        "squared": np.abs(y.astype(float)) + largest,
    }[loss]
    return np.abs(A).T @ (slopes * [weight_of(b) for b in y])


def permutation_of(n: int, seed: int) -> np.ndarray:
    """The random order of n features: six Feistel rounds, repeated until the image is below n."""
    bits = 1
    while 4**bits < n:
        bits += 1
    key, low = split_mix_64(split_mix_64(split_mix_64(seed) ^ 1)), 2**bits - 1

    def image(i: int) -> int:
        left, right = i >> bits, i & low
        for r in range(6):
            left, right = right, left ^ (split_mix_64(key ^ (right << 8) ^ r) & low)
        i = (left << bits) | right
        return i if i < n else image(i)

    return np.array([image(i) for i in range(n)])


def chances_of(
    L: np.ndarray, R: np.ndarray, batch: int, sample: str, order: np.ndarray | None = None
) -> tuple[list[np.ndarray], np.ndarray]:
    """The blocks Π and p of Corollary 5 (of Corollary 4 for a batch of one)."""
    order = np.arange(len(L)) if order is None else order
    blocks = [order[first : first + batch] for first in range(0, len(L), batch)]
    p = np.array([(R[block].sum() * np.linalg.norm(L[block])) ** (2 / 3) for block in blocks])
    if sample == "uniform":
        p = (p > 0).astype(float)
    return blocks, p / p.sum()


def margin(z: float, y: float, loss: str) -> float:
    """z, or the kink yz = 1 of a hinge where only rounding separates them.

    Exact arithmetic has many margins there (weights at ±R, or moved by gradients in the ratio of two counts), and the
    subgradient is 0 only there.
    """
    return float(y) if loss in ("hinge", "squared_hinge") and abs(1 - y * z) < 1e-12 else z


def cao_rcd(
    A: np.ndarray,
    y: np.ndarray,
    slope: Callable[[float, float], float],
    *,
    loss: str,
    R: float,
    alpha: float | np.ndarray,
    rounds: int,
    batch: int,
    predict_gradient: str,
    sample: str,
    scale: str,
    seed: int,
    partition: str = "consecutive",
    l1_ratio: float = 1.0,
    epochs: int,
    played: list[np.ndarray] | None = None,
    perturbation: float = 0.0,
) -> Iterator[np.ndarray]:
    """The weights without a prediction after each epoch (Theorem 7, with Σ_s σ_s(x − x_s)²/2 kept term by term).

    `played` receives every x_t; the gradient of row j is multiplied by 1 + `perturbation`·cos j, so that sums that are
    0 but for rounding are not 0.
    """
    n = A.shape[1]
    box = ranges_of(A, y, R, scale)
    L = bounds_of(A, y, loss, box)
    order = permutation_of(n, seed) if partition == "random" else np.arange(n)
    blocks, p = chances_of(L, box, batch, sample, order)
    g_sum, squares, Delta, g_last = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)
    sigma_sum, sigma_x = np.zeros(n), np.zeros(n)

    def argmin(t: int, g_tilde: np.ndarray) -> np.ndarray:
        """argmin v·x + (Σσ)x²/2 + tα(ρ|x| + (1 − ρ)x²/2) over |x_i| ≤ R_i: 0 or a corner where nothing is square."""
        v = g_sum + g_tilde - sigma_x
        pull = -np.sign(v) * np.maximum(np.abs(v) - t * alpha * l1_ratio, 0)
        square = sigma_sum + t * alpha * (1 - l1_ratio)
        pull[(square == 0) & (np.abs(pull) <= ROUNDING * np.abs(v))] = 0  # a tie: |v| is tαρ
        x = np.divide(pull, square, out=np.where(pull == 0, 0, np.copysign(np.inf, pull)), where=square > 0)
        return np.clip(x, -box, box)

    t = 0
    for epoch in range(1, epochs + 1):
        for k in range(rounds):
            t += 1
            which = int(np.searchsorted(np.cumsum(p), uniform(seed, epoch, k) * p.sum(), side="right"))
            block = blocks[which]
            prediction = {"none": np.zeros(n), "half": L / 2, "last": g_last}[predict_gradient]
            g_tilde = np.zeros(n)
            g_tilde[block] = prediction[block] / p[which]
            x_t = argmin(t, g_tilde)
            if played is not None:
                played.append(x_t)
            slopes = [slope(margin(z, b, loss), b) for z, b in zip(A @ x_t, y, strict=True)]
            gradient = A.T @ (np.array(slopes) * (1.0 + perturbation * np.cos(np.arange(len(slopes)))))
            tied = (Delta == 0) & (np.abs(gradient - prediction) <= ROUNDING * L)
            gradient = np.where(tied, prediction, gradient)
            g = np.zeros(n)
            g[block] = gradient[block] / p[which]
            squares = squares + (g - g_tilde) ** 2
            sigma = (np.sqrt(squares) - Delta) / box
            Delta = np.sqrt(squares)
            sigma_sum, sigma_x = sigma_sum + sigma, sigma_x + sigma * x_t
            g_sum = g_sum + g
            g_last[block] = gradient[block]
        yield argmin(t + 1, np.zeros(n))


def stable_weights(*arguments: Any, **options: Any) -> list[np.ndarray] | None:
    """The weights after each epoch, or None where the dense recursion itself depends on rounding.

    At large R a round can overshoot its minimum by more than the step before, so that errors grow with every round.
    """
    epochs = list(cao_rcd(*arguments, **options))
    for perturbation in (2.0**-50, -(2.0**-49)):
        perturbed = cao_rcd(*arguments, **options, perturbation=perturbation)
        if not all(np.allclose(a, b, rtol=0, atol=1e-10) for a, b in zip(epochs, perturbed, strict=True)):
            return None
    return epochs


def objective(
    A: np.ndarray, y: np.ndarray, value: Callable[[float, float], float], alpha: float, x: Any, l1_ratio: float = 1.0
) -> float:
    """Σ_j f_j(x) + α(ρ‖x‖₁ + (1 − ρ)‖x‖²/2)."""
    psi = l1_ratio * float(np.abs(x).sum()) + (1 - l1_ratio) * float((x**2).sum()) / 2
    return sum(value(z, b) for z, b in zip(A @ x, y, strict=True)) + alpha * psi
