"""Primal methods and dual averaging of the papers; see `tests.oracles.stream`.

Togari and Yamashita (2016): FOBOS and its lazy variants. Oiwa, Matsushima and Nakagawa (2011): truncation by history.
Oiwa et al. (2012): dual averaging.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tests.oracles.losses import Rounds


def soft(v: np.ndarray, a: np.ndarray | float) -> np.ndarray:
    return np.sign(v) * np.maximum(np.abs(v) - a, 0.0)


def group_prox(V: np.ndarray, a: np.ndarray | float) -> np.ndarray:
    """Each row v: v·max(0, 1 − a/‖v‖)."""
    norm = np.linalg.norm(V, axis=1, keepdims=True)
    return np.where(norm > a, V * (1 - a / np.where(norm > 0, norm, 1)), 0.0)


def l1_part(penalty: str, l1_ratio: float) -> tuple[Callable[..., np.ndarray], float]:
    """The prox of the norm in ρ‖w‖ + (1 − ρ)‖w‖²/2, and ρ."""
    return group_prox if penalty == "group" else soft, {"l1": 1.0, "group": 1.0, "l2": 0.0}.get(penalty, l1_ratio)


def prox(v: np.ndarray, a: Any, penalty: str = "l1", l1_ratio: float = 0.0, R: float = 0.0) -> np.ndarray:
    """argmin_w ½(w − v)² + a·ψ(w); for a box ψ is 0 in it, else infinite."""
    if penalty == "box":
        return np.clip(v, -R, R)
    shrink, ratio = l1_part(penalty, l1_ratio)
    return shrink(v, a * ratio) / (1 + a * (1 - ratio))


def eta(eta0: float, t: int, step: str) -> float:
    return eta0 / {"constant": 1.0, "sqrt": np.sqrt(t), "inverse": t}[step]


def truncated_step(step: float, loss: float, square: float) -> float:
    """Asi and Duchi 2019: argmin of max(loss + ⟨g, w − w_t⟩, 0) + ‖w − w_t‖²/(2·step) is w_t − this·g."""
    return min(step, loss / square) if square > 0 else step


def adagrad_steps(
    rounds: Rounds, eta: float, delta: float, lam: Any = 0.0, penalty: str = "l1", R: float = np.inf
) -> Iterator[np.ndarray]:
    """Composite mirror descent of Duchi et al. (2011) in H_t = δ + √Σg², with truncated models of the loss."""
    W = squares = rounds.start
    for _, x, b in rounds.rows():
        g = rounds.gradient(W, x, b)
        squares = squares + g**2
        H = delta + np.sqrt(squares)
        step = truncated_step(eta, rounds.value(W, x, b), (g**2 / H).sum())
        W = prox(W - step * g / H, eta * lam / H, penalty, R=R)
        yield W


def subgradient(rounds: Rounds, eta0: float, lam: Any, step: str = "sqrt") -> Iterator[np.ndarray]:
    """Togari and Yamashita 2016, Algorithm 1 with r = λ‖·‖₁ and the subgradient that is 0 at 0."""
    W = rounds.start
    for t, x, b in rounds.rows():
        W = W - eta(eta0, t, step) * (rounds.gradient(W, x, b) + lam * np.sign(W))
        yield W


def l_fobos(
    rounds: Rounds, eta0: float, K: int, lam: Any = 0.0, step: str = "sqrt", model: str = "linear", **psi: Any
) -> Iterator[np.ndarray]:
    """Togari and Yamashita 2016, Algorithm 3 (K = 1: Algorithm 2), its Step 2 one prox at a time."""
    W = rounds.start
    for t, x, b in rounds.rows():
        g, eta_t = rounds.gradient(W, x, b), eta(eta0, t, step)
        W = W - (eta_t if model == "linear" else truncated_step(eta_t, rounds.value(W, x, b), (g**2).sum())) * g  # (5)
        if t % K == 0:
            for j in range(1, K + 1):
                W = prox(W, lam * eta(eta0, t - K + j, step), **psi)  # (6), (7)
        yield W


def cl_fobos(
    rounds: Rounds, eta0: float, lam: Any = 0.0, step: str = "sqrt", average: str = "none", **psi: Any
) -> Iterator[np.ndarray]:
    """Togari and Yamashita 2016, Algorithm 4, its Step 2 one prox at a time.

    I_t is the support of the gradient: empty where the slope is zero; of groups, the features of which any output's
    slope is not. With average = iterates: the mean of x_1 … x_t of Theorem 2.
    """
    W = total = rounds.start
    lams, grouped = np.broadcast_to(lam, W.shape), psi.get("penalty") == "group"
    updated = np.zeros(W.shape, int)  # the round of the most recent update, 0 for none
    for t, x, b in rounds.rows():
        slopes = rounds.slopes(W, x, b)
        total, half = total + W, W - eta(eta0, t, step) * x * slopes  # (8)
        due = (x != 0) & (slopes.any() if grouped else slopes != 0)
        W = W.copy()
        for i in np.flatnonzero(due.any(axis=1)):
            for k in [slice(None)] if grouped else np.flatnonzero(due[i]):
                v = half[i, k].reshape(1, -1)
                for j in range(np.min(updated[i, k]) + 1, t + 1):
                    v = prox(v, np.max(lams[i, k]) * eta(eta0, j, step), **psi)
                W[i, k], updated[i, k] = np.squeeze(v), t
        yield W if average == "none" else total / t


def history_norm(past: list[np.ndarray], p: float | str, V: float) -> np.ndarray:
    """H_t of (9)."""
    u = np.abs(np.array(past))
    if p == "inf":
        return u.max(axis=0)
    h = (u ** float(p)).sum(axis=0) ** (1 / float(p))
    return np.minimum(h, V) if float(p) <= 2 else h


def truncated(
    rounds: Rounds,
    eta0: float,
    lam: Any,
    *,
    cumulative: bool,
    p: Any = None,
    V: float = np.inf,
    step: str = "sqrt",
    second: str = "same",
) -> Iterator[np.ndarray]:
    """Oiwa et al. 2011, (2), (4), without a history (H_t = 1) or (6) with (9); or cumulative: (13), (14)."""
    W = q = rounds.start
    u_t = 0.0
    updates: list[np.ndarray] = []
    for t, x, b in rounds.rows():
        updates.append(-eta(eta0, t, step) * rounds.gradient(W, x, b))
        half = W + updates[-1]
        h = 1.0 if p is None else history_norm(updates, p, V)
        eta_half = eta(eta0, t + 1 if second == "next" else t, step)  # η_{t+1/2}
        if cumulative:
            u_t = u_t + lam * eta_half  # (11)
            due = h * u_t
            W_t = np.where(half >= 0, np.maximum(0, half - (due + q)), np.minimum(0, half + (due - q)))
            W, q = np.where(x != 0, W_t, W), np.where(x != 0, q + (W_t - half), q)
        else:
            due = eta_half * h * lam
            W = np.where(half >= 0, np.maximum(0, half - due), np.minimum(0, half + due))
        yield W


def rda(
    rounds: Rounds, gamma: float, lam: Any = 0.0, penalty: str = "l1", l1_ratio: float = 0.0, R: float = 0.0
) -> Iterator[np.ndarray]:
    """Oiwa et al. 2012, (3) with h = ½‖·‖², β_t = γ√t, its minimum coordinate by coordinate, or group by group."""
    W = g_bar = rounds.start
    shrink, ratio = l1_part(penalty, l1_ratio)
    for t, x, b in rounds.rows():
        g_bar = (t - 1) / t * g_bar + rounds.gradient(W, x, b) / t
        if penalty == "box":
            W = np.clip(-np.sqrt(t) / gamma * g_bar, -R, R)
        else:
            W = -shrink(g_bar, lam * ratio) / (lam * (1 - ratio) + gamma / np.sqrt(t))
        yield W


def stda(rounds: Rounds, gamma: float, lam: Any, p: float | str, by: str, V: float) -> Iterator[np.ndarray]:
    """Oiwa et al. 2012, Algorithm 1 with (12)–(15), (18), (21); by = "feature": (24)."""
    W = g_bar = r_bar = rounds.start
    history: list[np.ndarray] = []
    for t, x, b in rounds.rows():
        g = rounds.gradient(W, x, b)
        g_bar = (t - 1) * g_bar / t + g / t
        history.append(np.abs(x if by == "feature" else g))
        past = np.array(history)
        r = past.max(axis=0) if p == "inf" else (past ** float(p)).sum(axis=0) ** (1 / float(p))
        r = np.minimum(V, r)  # (21)
        r_bar = (t - 1) / t * r_bar + r / t  # (15)
        epsilon = g_bar - np.sign(g_bar) * lam * r_bar
        W = np.where(np.abs(g_bar) <= lam * r_bar, 0.0, -t / (gamma * np.sqrt(t)) * epsilon)  # (18)
        yield W


METHODS: dict[str, Callable[..., Iterator[np.ndarray]]] = {
    "subgradient": subgradient,
    "fobos": partial(l_fobos, K=1),
    "l-fobos": l_fobos,
    "cl-fobos": cl_fobos,
    "sg-l1": partial(truncated, cumulative=False),
    "sgft": partial(truncated, cumulative=False),
    "cumulative-l1": partial(truncated, cumulative=True),
    "sgft-cumulative": partial(truncated, cumulative=True),
    "rda": rda,
    "stda": stda,
}
