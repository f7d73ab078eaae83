"""The dual methods of Mohri and Yang (2015) in dense NumPy: every coordinate, every round, nothing of the package.

See `tests.oracles.stream`.
"""

from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import accumulate
from typing import Any

import numpy as np

from tests.oracles.losses import Rounds, weight_of
from tests.oracles.proximal import adagrad_steps, soft


def box_minimizer(b: np.ndarray, A: np.ndarray, k: np.ndarray | float, R: np.ndarray | float) -> np.ndarray:
    """argmin over |x| ≤ R of b·x + A·x²/2 + k|x|; 0 where A = 0."""
    return np.clip(np.divide(-soft(b, k), A, out=np.zeros_like(b), where=A > 0), -R, R)


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
    """g̃ of every round: 0, the last gradient, "mean": the mean of g_{s,i} over the rows s < t with feature i where row
    t has it, else 0; or the row times slopes (rows, columns) that are given, and 0 for a row that is not known."""

    def __init__(self, kind: str | np.ndarray, W: np.ndarray) -> None:
        self.kind, self.g_sum, self.seen, self.g_last = kind, np.zeros_like(W), np.zeros((len(W), 1)), np.zeros_like(W)
        self.rounds = 0

    def add(self, x: np.ndarray, g: np.ndarray) -> None:
        self.g_sum, self.seen, self.g_last = self.g_sum + g, self.seen + (x != 0), g
        self.rounds += 1

    def of(self, coming: np.ndarray | float = 1.0) -> np.ndarray:
        """For the row that comes; by default one that has every feature."""
        if not isinstance(self.kind, str):
            known = isinstance(coming, np.ndarray)
            return coming * self.kind[self.rounds] if known else np.zeros_like(self.g_sum)
        mean = np.where(coming != 0, self.g_sum / np.maximum(self.seen, 1), 0.0)
        return {"none": 0 * mean, "last": self.g_last, "mean": mean}[self.kind]


def cao_ftrl(
    rounds: Rounds,
    R: float,
    predict_gradient: str | np.ndarray,
    lam: Any = 0.0,
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
    R_i, ratio = ranges(rounds.X, R, scale)[:, None], share_of_l1(penalty, l1_ratio)
    prediction, plain = Predictions(predict_gradient, rounds.start), (regularizer == "none") & (lam * (1 - ratio) > 0)
    squares = Delta = rounds.start  # Σ (g − g̃)² and its root
    sigma_sum = sigma_x = rounds.start  # Σ σ_s and Σ σ_s x_s

    def update(t: int, g_tilde: np.ndarray) -> np.ndarray:
        """Line 7 of the round before; where nothing was seen, an end of the range by what is predicted, or 0."""
        total, linear = penalty_totals(schedule)[t] * lam, prediction.g_sum + g_tilde
        centre = np.where(plain | (regularizer == "centred"), 0.0, sigma_x)
        stiffness = np.where(plain, 0.0, sigma_sum) + total * (1 - ratio)
        x = box_minimizer(linear - centre, stiffness, total * ratio, R_i)
        end = -np.sign(linear) * np.where(np.abs(linear) > total * ratio, R_i, 0.0)
        return np.where(plain | (sigma_sum > 0), x, end)

    for t, a, b in rounds.rows():
        g_tilde = prediction.of(a)
        x_t = update(t, g_tilde)
        g = rounds.gradient(x_t, a, b) * (1.0 if importance is None else importance[t - 1])
        squares = squares + (g - g_tilde) ** 2
        sigma = (np.sqrt(squares) - Delta) / R_i
        Delta = np.sqrt(squares)
        sigma_sum, sigma_x = sigma_sum + sigma, sigma_x + sigma * x_t
        prediction.add(a, g)
        yield update(t + 1, prediction.of())


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


def caos_ftrl(rounds: Rounds, keep: float, sample: str, seed: int, **parameters: Any) -> Iterator[np.ndarray]:
    """Algorithm 3 on rows drawn as `importances`."""
    return cao_ftrl(rounds, importance=importances(rounds.X, rounds.y, keep, sample, seed), **parameters)


def adagrad(
    rounds: Rounds,
    eta: float,
    delta: float,
    lam: Any = 0.0,
    penalty: str = "l1",
    l1_ratio: float = 0.0,
    R: float = np.inf,
    predict_gradient: str | np.ndarray = "none",
    schedule: str = "constant",
    model: str = "linear",
) -> Iterator[np.ndarray]:
    """Corollary 1.2, the primal-dual update of Duchi et al. (2011): argmin eta(g_{1:t}·w + tψ(w)) + H_t w²/2.

    With predictions g_{1:t} + g̃_{t+1} and H_t = δ + √Σ(g − g̃)²; x_{t+1} is given for a row that has every feature.
    """
    if model == "truncated":
        yield from adagrad_steps(rounds, eta, delta, lam, penalty, R)
        return
    ratio, prediction = share_of_l1(penalty, l1_ratio), Predictions(predict_gradient, rounds.start)
    missed, H = [rounds.start], rounds.start + delta

    def update(rounds: int, g_tilde: np.ndarray) -> np.ndarray:
        total = eta * lam * penalty_totals(schedule)[rounds]
        return box_minimizer(eta * (prediction.g_sum + g_tilde), H + total * (1 - ratio), total * ratio, R)

    for t, a, b in rounds.rows():
        g_tilde = prediction.of(a)
        g = rounds.gradient(update(t - 1, g_tilde), a, b)
        missed.append(g - g_tilde)
        H = delta + np.linalg.norm(missed, axis=0)
        prediction.add(a, g)
        yield update(t, prediction.of())


def optimistic_ftrl(rounds: Rounds, R: float, eta: float, predict_gradient: str | np.ndarray) -> Iterator[np.ndarray]:
    """Corollary 1.3: argmin (g_{1:t} + g̃_{t+1})·x − eta·Σ log(1 − (x_i/R)²): derivative 0, by bisection."""
    prediction = Predictions(predict_gradient, rounds.start)

    def update(g_tilde: np.ndarray) -> np.ndarray:
        v, x = prediction.g_sum + g_tilde, np.zeros_like(g_tilde)
        for step in R * 0.5 ** np.arange(1, 64):
            x = x - step * np.sign(v * (R - x) * (R + x) + eta * 2 * x)  # the derivative times R² − x²
        return x

    for _, a, b in rounds.rows():
        prediction.add(a, rounds.gradient(update(prediction.of(a)), a, b))
        yield update(prediction.of())


METHODS: dict[str, Callable[..., Iterator[np.ndarray]]] = {
    "adagrad": adagrad,
    "optimistic-ftrl": optimistic_ftrl,
    "ftrl-proximal": partial(cao_ftrl, predict_gradient="none"),
    "ao-ftrl": cao_ftrl,
    "ao-gd": partial(cao_ftrl, predict_gradient="last"),
    "cao-ftrl": cao_ftrl,
    "caos-ftrl": caos_ftrl,
}
