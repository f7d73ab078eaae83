"""Dense NumPy transcriptions of Oiwa, Matsushima and Nakagawa (2011); see `tests.oracles.stream`."""

from collections.abc import Callable, Iterator

import numpy as np

Slopes = dict[str, Callable[[float, float], float]]


def eta(eta0: float, t: int, step: str) -> float:
    return eta0 / {"constant": 1.0, "sqrt": np.sqrt(t), "inverse": t}[step]


def eta_half(eta0: float, t: int, step: str, second: str) -> float:
    """η_{t+1/2}."""
    return eta(eta0, t + 1 if second == "next" else t, step)


def history_norm(past: list[np.ndarray], p: float | str, V: float) -> np.ndarray:
    """H_t of (9)."""
    u = np.abs(np.array(past))
    if p == "inf":
        return u.max(axis=0)
    h = (u ** float(p)).sum(axis=0) ** (1 / float(p))
    return np.minimum(h, V) if float(p) <= 2 else h


def oracles(slopes: Slopes) -> dict[str, Callable[..., Iterator[np.ndarray]]]:
    def sg_l1(
        X: np.ndarray, y: np.ndarray, loss: str, eta0: float, lam: float, step: str = "sqrt", second: str = "same"
    ) -> Iterator[np.ndarray]:
        """(2), then (4): one case for each sign."""
        w = np.zeros(X.shape[1])
        for t, (x, b) in enumerate(zip(X, y, strict=True), start=1):
            half = w - eta(eta0, t, step) * slopes[loss](x @ w, b) * x
            a = lam * eta_half(eta0, t, step, second)
            w = np.where(half >= 0, np.maximum(0, half - a), np.minimum(0, half + a))
            yield w

    def sgft(
        X: np.ndarray,
        y: np.ndarray,
        loss: str,
        eta0: float,
        lam: float,
        p: float | str,
        V: float,
        step: str = "sqrt",
        second: str = "same",
    ) -> Iterator[np.ndarray]:
        """(6) with (9)."""
        w = np.zeros(X.shape[1])
        updates: list[np.ndarray] = []
        for t, (x, b) in enumerate(zip(X, y, strict=True), start=1):
            updates.append(-eta(eta0, t, step) * slopes[loss](x @ w, b) * x)
            half = w + updates[-1]
            a = eta_half(eta0, t, step, second) * history_norm(updates, p, V) * lam
            w = np.sign(half) * np.maximum(np.abs(half) - a, 0)
            yield w

    def cumulative(
        X: np.ndarray, y: np.ndarray, loss: str, eta0: float, lam: float, step: str, second: str, h: Callable
    ) -> Iterator[np.ndarray]:
        """(13), (14), for the features of the row; h gives H_t from the updates so far."""
        w, q = np.zeros(X.shape[1]), np.zeros(X.shape[1])
        updates: list[np.ndarray] = []
        u_t = 0.0
        for t, (x, b) in enumerate(zip(X, y, strict=True), start=1):
            updates.append(-eta(eta0, t, step) * slopes[loss](x @ w, b) * x)
            u_t += lam * eta_half(eta0, t, step, second)  # (11)
            half = w + updates[-1]
            due = h(updates) * u_t
            truncated = np.where(half >= 0, np.maximum(0, half - (due + q)), np.minimum(0, half + (due - q)))
            w = np.where(x != 0, truncated, w)
            q = np.where(x != 0, q + (w - half), q)
            yield w

    def cumulative_l1(
        X: np.ndarray, y: np.ndarray, loss: str, eta0: float, lam: float, step: str = "sqrt", second: str = "same"
    ) -> Iterator[np.ndarray]:
        return cumulative(X, y, loss, eta0, lam, step, second, lambda updates: np.ones(X.shape[1]))

    def sgft_cumulative(
        X: np.ndarray,
        y: np.ndarray,
        loss: str,
        eta0: float,
        lam: float,
        p: float | str,
        V: float,
        step: str = "sqrt",
        second: str = "same",
    ) -> Iterator[np.ndarray]:
        return cumulative(X, y, loss, eta0, lam, step, second, lambda updates: history_norm(updates, p, V))

    return {"sg-l1": sg_l1, "cumulative-l1": cumulative_l1, "sgft": sgft, "sgft-cumulative": sgft_cumulative}
