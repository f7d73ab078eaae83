"""Algorithms 4 and 5 of Mohri and Yang (2015) from their printed lines, in dense NumPy; Algorithm 4 is `batch` = 1.

What the lines leave open: x_1 = 0, g̃_1 = 0, x_1 of line 5 is x_t, as in line 7, and T/k is the number of mini-batches.
"""

import numpy as np

from tests.offline.epochs.oracle import Slope, uniform


def algorithm_4(
    A: np.ndarray,
    y: np.ndarray,
    slope: Slope,
    *,
    R: float,
    alpha: float,
    k: int,
    seed: int,
    batch: int = 1,
    sample: str = "lipschitz",
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(x_1 … x_{T+1}; ĝ_t, t ≤ T; g̃_t, t ≤ T) for ψ = ‖·‖₁ in the box, with r_{0:t} of Corollary 6."""
    m, n = A.shape
    Pi = [range(j, min(j + batch, m)) for j in range(0, m, batch)]
    L = np.array([np.abs(A[list(block)]).max(axis=1).sum() for block in Pi])
    if sample == "uniform":
        L = (L > 0).astype(float)
    p = L / L.sum()
    per_epoch = len(Pi)
    T = k * per_epoch

    def grad(block: range, x: np.ndarray) -> np.ndarray:
        return np.sum([slope(A[j] @ x, y[j]) * A[j] for j in block], axis=0)

    def draw(t: int) -> int:
        s, a = divmod(t - 1, per_epoch)
        return int(np.searchsorted(np.cumsum(p), uniform(seed, s + 1, 0, a), side="right"))

    def least(slopes: np.ndarray, sigma: np.ndarray, centres: np.ndarray, l1: float) -> np.ndarray:
        """argmin of slopes·x + Σ_s σ_s(x − x_s)²/2 + l1·|x| in the box: the best of the candidates."""
        x = np.zeros(n)
        for i in range(n):
            total = sigma[:, i].sum()
            pull = slopes[i] - sigma[:, i] @ centres[:, i]
            inner = [-(pull + l1) / total, -(pull - l1) / total] if total > 0 else []
            feasible = [0.0, *(v for v in inner if abs(v) <= R), -R, R]
            values = [pull * v + total * v * v / 2 + l1 * abs(v) for v in feasible]
            x[i] = feasible[int(np.argmin(values))]
        return x

    xs, g_hats, g_tildes, Deltas = [np.zeros(n)], [], [np.zeros(n)], [np.zeros(n)]
    j = draw(1)  # line 3
    t = 1
    for _ in range(k):  # line 4
        g_bar = [grad(block, xs[-1]) for block in Pi]  # line 5
        for _ in range(per_epoch):  # line 6
            g_hats.append(grad(Pi[j], xs[-1]) / p[j])  # line 8
            Deltas.append(np.sqrt(np.sum((np.array(g_hats) - np.array(g_tildes)) ** 2, axis=0)))
            following = draw(t + 1) if t < T else 0  # line 9
            g_tildes.append(g_bar[j] / p[j])  # lines 9 and 10 of Algorithm 5
            sigma = np.diff(Deltas, axis=0) / R
            xs.append(least(np.sum(g_hats, axis=0) + g_tildes[-1], sigma, np.array(xs), (t + 1) * alpha))
            j, t = following, t + 1
    return np.array(xs), np.array(g_hats), np.array(g_tildes[:-1])
