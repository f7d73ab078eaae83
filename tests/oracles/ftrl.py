"""The dual methods of Mohri and Yang (2015) in dense NumPy: every coordinate, every round, nothing of the package.

As `tests.oracles.stream`: an oracle takes X (T, n), labels and parameters and gives x_2 … x_{T+1}, one after every row.
"""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np

from tests.oracles.weights import weight_of

Slopes = dict[str, Callable[[float, float], float]]


def box_minimizer(b: np.ndarray, A: np.ndarray, k: np.ndarray | float, R: np.ndarray | float) -> np.ndarray:
    """argmin over |x| ≤ R of b·x + A·x²/2 + k|x|, a coordinate at a time by its sign; 0 where A = 0."""
    x, k, R = np.zeros(len(b)), np.broadcast_to(k, len(b)), np.broadcast_to(R, len(b))
    for i in np.flatnonzero(A > 0):
        if -b[i] - k[i] > 0:
            x[i] = min(R[i], (-b[i] - k[i]) / A[i])
        elif -b[i] + k[i] < 0:
            x[i] = max(-R[i], (-b[i] + k[i]) / A[i])
    return x


def ranges(X: np.ndarray, R: float, scale: str) -> np.ndarray:
    """R_i of every feature, fixed before round 1: R, or with "first" R over |x| of the first row with the feature."""
    first = np.argmax(X != 0, axis=0)
    size = np.abs(X[first, np.arange(X.shape[1])]) if scale == "first" else np.ones(X.shape[1])
    return R / np.where(size > 0, size, 1.0)


def share_of_l1(penalty: str, l1_ratio: float) -> float:
    """ρ of λ(ρ|x| + (1 − ρ)x²/2)."""
    return {"l1": 1.0, "l2": 0.0}.get(penalty, l1_ratio)


@cache
def penalty_totals(schedule: str) -> list[float]:
    """Σ_{s≤t} α_s of the penalties ψ_s = α_sψ, one by one, for t = 0, 1, …, as many as any test has."""
    alpha = {
        "constant": lambda t: 1.0,
        "sqrt": lambda t: np.sqrt(t) - np.sqrt(t - 1),
        "first": lambda t: 1.0 if t == 1 else 0.0,
    }[schedule]
    return [0.0, *accumulate(float(alpha(t)) for t in range(1, 20_002))]


class Predictions:
    """g̃ of every round: 0, the last gradient, or "mean": the mean of g_{s,i} over the rows s < t with feature i where
    row t has it, else 0."""

    def __init__(self, kind: str, n: int) -> None:
        self.kind, self.g_sum, self.seen, self.g_last = kind, np.zeros(n), np.zeros(n), np.zeros(n)

    def add(self, row: np.ndarray, g: np.ndarray) -> None:
        self.g_sum, self.seen, self.g_last = self.g_sum + g, self.seen + (row != 0), g

    def of(self, coming: np.ndarray) -> np.ndarray:
        """For the row that comes."""
        if self.kind == "last":
            return self.g_last
        if self.kind == "mean":
            return np.where(coming != 0, self.g_sum / np.maximum(self.seen, 1), 0.0)
        return np.zeros(len(coming))


def cao_ftrl(
    X: np.ndarray,
    y: np.ndarray,
    slope: Callable[[float, float], float],
    R: float,
    lam: float,
    predict_gradient: str,
    importance: np.ndarray | None = None,
    penalty: str = "l1",
    l1_ratio: float = 0.0,
    regularizer: str = "proximal",
    schedule: str = "constant",
    scale: str = "none",
) -> Iterator[np.ndarray]:
    """Algorithm 2 with the regularizer of Corollary 2; with `importance`, Algorithm 3: ĝ_t = importance_t·g_t.

    r_{0:t} is around the iterates, or "centred": Δ_t x²/(2R), or "none": 0 where ψ is strongly convex.

    With the prediction "mean" x_{t+1} is given for a row that has every feature.
    """
    n, R_i = X.shape[1], ranges(X, R, scale)
    prediction, ratio = Predictions(predict_gradient, n), share_of_l1(penalty, l1_ratio)
    squares, Delta = np.zeros(n), np.zeros(n)  # Σ (g − g̃)² and its root
    sigma_sum, sigma_x = np.zeros(n), np.zeros(n)  # Σ σ_s and Σ σ_s x_s

    def update(t: int, g_tilde: np.ndarray) -> np.ndarray:
        """Line 7 of the round before; 0 where nothing was seen."""
        total, linear = penalty_totals(schedule)[t] * lam, prediction.g_sum + g_tilde
        plain = (regularizer == "none") & (np.broadcast_to(lam, n) * (1 - ratio) > 0)
        centre = np.where(plain | (regularizer == "centred"), 0.0, sigma_x)
        stiffness = np.where(plain, 0.0, sigma_sum) + total * (1 - ratio)
        x = box_minimizer(linear - centre, stiffness, total * ratio, R_i)
        return np.where(plain | (sigma_sum > 0), x, 0.0)

    for t, (a, b) in enumerate(zip(X, y, strict=True), start=1):
        g_tilde = prediction.of(a)
        x_t = update(t, g_tilde)
        g = slope(a @ x_t, b) * a * (1.0 if importance is None else importance[t - 1])
        squares = squares + (g - g_tilde) ** 2
        sigma = (np.sqrt(squares) - Delta) / R_i
        Delta = np.sqrt(squares)
        sigma_sum, sigma_x = sigma_sum + sigma, sigma_x + sigma * x_t
        prediction.add(a, g)
        yield update(t + 1, prediction.of(np.ones(n)))


def split_mix_64(x: int) -> int:
    """One step of Steele, Lea and Flood (2014), Figure 17, in whole numbers: the output after state x."""
    x = (x + 0x9E3779B97F4A7C15) % 2**64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
    return x ^ (x >> 31)


def importances(X: np.ndarray, y: np.ndarray, keep: float, sample: str, seed: int) -> np.ndarray:
    """b_t/q_t of every row: drawn with chance keep, or in proportion to L_t = weight·max |x| over the mean L so far."""
    L = np.abs(X).max(axis=1) * [weight_of(b) for b in y]
    key = split_mix_64(split_mix_64(seed) ^ 3)
    out = np.zeros(len(X))
    for t in range(1, len(X) + 1):
        mean = L[:t].mean()
        q = min(1.0, keep * L[t - 1] / mean) if sample == "lipschitz" and mean > 0 else keep
        if (split_mix_64(key ^ t) >> 11) / 2**53 < q:
            out[t - 1] = 1 / q
    return out


def caos_ftrl(
    X: np.ndarray,
    y: np.ndarray,
    slope: Callable[[float, float], float],
    keep: float,
    sample: str,
    seed: int,
    **parameters: Any,
) -> Iterator[np.ndarray]:
    """Algorithm 3 on rows drawn as `importances`."""
    return cao_ftrl(X, y, slope, importance=importances(X, y, keep, sample, seed), **parameters)


def adagrad(
    X: np.ndarray,
    y: np.ndarray,
    slope: Callable[[float, float], float],
    eta: float,
    delta: float,
    lam: float = 0.0,
    penalty: str = "l1",
    l1_ratio: float = 0.0,
    R: float = np.inf,
    predict_gradient: str = "none",
    schedule: str = "constant",
) -> Iterator[np.ndarray]:
    """Corollary 1.2, the primal-dual update of Duchi et al. (2011): argmin eta(g_{1:t}·w + tψ(w)) + H_t w²/2.

    With predictions g_{1:t} + g̃_{t+1} and H_t = δ + √Σ(g − g̃)²; x_{t+1} is given for a row that has every feature.
    """
    ratio, n = share_of_l1(penalty, l1_ratio), X.shape[1]
    prediction, missed, H = Predictions(predict_gradient, n), [np.zeros(n)], np.full(n, delta)

    def update(rounds: int, g_tilde: np.ndarray) -> np.ndarray:
        total = eta * lam * penalty_totals(schedule)[rounds]
        return box_minimizer(eta * (prediction.g_sum + g_tilde), H + total * (1 - ratio), total * ratio, R)

    for t, (a, b) in enumerate(zip(X, y, strict=True), start=1):
        g_tilde = prediction.of(a)
        g = slope(a @ update(t - 1, g_tilde), b) * a
        missed.append(g - g_tilde)
        H = delta + np.linalg.norm(missed, axis=0)
        prediction.add(a, g)
        yield update(t, prediction.of(np.ones(n)))


def optimistic_ftrl(
    X: np.ndarray, y: np.ndarray, slope: Callable[[float, float], float], R: float, eta: float, predict_gradient: str
) -> Iterator[np.ndarray]:
    """Corollary 1.3: argmin (g_{1:t} + g̃_{t+1})·x − eta·Σ log(1 − (x_i/R)²): derivative 0, by bisection."""
    prediction = Predictions(predict_gradient, X.shape[1])

    def update(g_tilde: np.ndarray) -> np.ndarray:
        v = prediction.g_sum + g_tilde
        low, high = np.full(len(v), -R), np.full(len(v), R)
        for _ in range(64):
            x = (low + high) / 2
            rising = v * (R - x) * (R + x) + eta * 2 * x > 0  # the derivative times R² − x²
            low, high = np.where(rising, low, x), np.where(rising, x, high)
        return (low + high) / 2

    for a, b in zip(X, y, strict=True):
        g = slope(a @ update(prediction.of(a)), b) * a
        prediction.add(a, g)
        yield update(prediction.of(np.ones(len(a))))


def oracles(slopes: Slopes) -> dict[str, Callable[..., Iterator[np.ndarray]]]:
    """By name, with the face of `tests.oracles.stream.ORACLES`."""

    def face(method: Callable[..., Iterator[np.ndarray]], **fixed: object) -> Callable[..., Iterator[np.ndarray]]:
        return lambda X, y, loss, **parameters: method(X, y, slopes[loss], **parameters, **fixed)

    return {
        "adagrad": face(adagrad),
        "optimistic-ftrl": face(optimistic_ftrl),
        "ftrl-proximal": face(cao_ftrl, predict_gradient="none"),
        "ao-ftrl": face(cao_ftrl, lam=0.0),
        "ao-gd": face(cao_ftrl, lam=0.0, predict_gradient="last"),
        "cao-ftrl": face(cao_ftrl),
        "caos-ftrl": face(caos_ftrl),
    }
