"""Each paper's own pseudo-code in dense NumPy: no laziness, no columns, nothing of the package.

An oracle takes ``X`` (T, n) and labels ``y`` (T,) — ±1 for classification, with weights as in `tests.oracles.weights` —
with a loss name and the learner's parameters, of which ``lam`` may be one number per feature, and gives the iterates
w_2 … w_{T+1}, one after every row. Slow on purpose. Other modules of this package add theirs by a function `oracles`.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from pkgutil import iter_modules

import numpy as np

import tests.oracles
from tests.oracles.truncated import eta
from tests.oracles.weights import weighted

# Losses: slope dℓ/dz at margin z, times the weight of the row.
_SLOPES: dict[str, Callable[[float, float], float]] = {
    "logistic": lambda z, y: -y * np.exp(-np.logaddexp(0.0, y * z)),
    "hinge": lambda z, y: -y if y * z < 1 else 0.0,
    "squared_hinge": lambda z, y: -2 * y * max(0.0, 1 - y * z),
    "squared": lambda z, y: z - y,
    "huber": lambda z, y: np.clip(z - y, -1.0, 1.0),
    "given": lambda z, slope: slope,  # the label is the slope: for losses that several vectors of weights share
}
SLOPES = {name: weighted(slope) for name, slope in _SLOPES.items()}
VALUES: dict[str, Callable[[float, float], float]] = {
    "logistic": lambda z, y: np.logaddexp(0.0, -y * z),
    "hinge": lambda z, y: max(0.0, 1 - y * z),
    "squared_hinge": lambda z, y: max(0.0, 1 - y * z) ** 2,
    "squared": lambda z, y: (z - y) ** 2 / 2,
    "huber": lambda z, y: min((z - y) ** 2 / 2, abs(z - y) - 0.5) if abs(z - y) > 1 else (z - y) ** 2 / 2,
}


def softmax_slopes(z: np.ndarray, truth: int) -> np.ndarray:
    p = np.exp(z - z.max())
    return p / p.sum() - np.eye(len(z))[int(truth)]


def multiclass_hinge_slopes(z: np.ndarray, truth: int) -> np.ndarray:
    """Oiwa et al. 2011, (15)."""
    wrong = [k for k in range(len(z)) if k != truth]
    rival = max(wrong, key=lambda k: z[k])  # the first of equals
    one = np.eye(len(z))
    true = int(truth)
    return one[rival] - one[true] if 1 - z[true] + z[rival] > 0 else np.zeros(len(z))


JOINT_SLOPES: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "softmax": weighted(softmax_slopes),
    "multiclass_hinge": weighted(multiclass_hinge_slopes),
}
JOINT_VALUES: dict[str, Callable[[np.ndarray, int], float]] = {
    "softmax": lambda z, truth: np.logaddexp.reduce(z) - z[truth],
    "multiclass_hinge": lambda z, truth: max(0.0, 1 - z[truth] + np.delete(z, truth).max()),
}


def soft(v: np.ndarray, a: np.ndarray | float) -> np.ndarray:
    return np.sign(v) * np.maximum(np.abs(v) - a, 0.0)


def prox(v: np.ndarray, a: float, penalty: str, l1_ratio: float, R: float) -> np.ndarray:
    """argmin_w ½(w − v)² + a·ψ(w); for a box ψ is 0 in it, else infinite."""
    if penalty == "box":
        return np.clip(v, -R, R)
    ratio = {"l1": 1.0, "l2": 0.0}.get(penalty, l1_ratio)
    return soft(v, a * ratio) / (1 + a * (1 - ratio))


def fobos(
    X: np.ndarray,
    y: np.ndarray,
    loss: str,
    eta0: float,
    lam: float = 0.0,
    step: str = "sqrt",
    penalty: str = "l1",
    l1_ratio: float = 0.0,
    R: float = 0.0,
) -> Iterator[np.ndarray]:
    """Togari and Yamashita 2016, Algorithm 2."""
    x_t = np.zeros(X.shape[1])
    for t, (a, b) in enumerate(zip(X, y, strict=True), start=1):
        alpha = eta(eta0, t, step)
        x_hat = x_t - alpha * SLOPES[loss](a @ x_t, b) * a  # (5)
        x_t = prox(x_hat, lam * alpha, penalty, l1_ratio, R)  # (6)
        yield x_t


def subgradient(
    X: np.ndarray, y: np.ndarray, loss: str, eta0: float, lam: float, step: str = "sqrt"
) -> Iterator[np.ndarray]:
    """Togari and Yamashita 2016, Algorithm 1 with r = λ‖·‖₁ and the subgradient that is 0 at 0."""
    x_t = np.zeros(X.shape[1])
    for t, (a, b) in enumerate(zip(X, y, strict=True), start=1):
        s_t = SLOPES[loss](a @ x_t, b) * a + lam * np.sign(x_t)
        x_t = x_t - eta(eta0, t, step) * s_t
        yield x_t


def l_fobos(
    X: np.ndarray,
    y: np.ndarray,
    loss: str,
    eta0: float,
    K: int,
    lam: float = 0.0,
    step: str = "sqrt",
    penalty: str = "l1",
    l1_ratio: float = 0.0,
    R: float = 0.0,
) -> Iterator[np.ndarray]:
    """Togari and Yamashita 2016, Algorithm 3, its Step 2 one prox at a time."""
    x_t = np.zeros(X.shape[1])
    for t, (a, b) in enumerate(zip(X, y, strict=True), start=1):
        x_t = x_t - eta(eta0, t, step) * SLOPES[loss](a @ x_t, b) * a
        if t % K == 0:
            for j in range(1, K + 1):
                x_t = prox(x_t, lam * eta(eta0, t - K + j, step), penalty, l1_ratio, R)  # (7)
        yield x_t


def cl_fobos(
    X: np.ndarray,
    y: np.ndarray,
    loss: str,
    eta0: float,
    lam: float = 0.0,
    step: str = "sqrt",
    penalty: str = "l1",
    l1_ratio: float = 0.0,
    R: float = 0.0,
    average: str = "none",
) -> Iterator[np.ndarray]:
    """Togari and Yamashita 2016, Algorithm 4, its Step 2 one prox at a time.

    I_t is the support of the gradient: empty where the slope is zero. The logistic slope is never zero. With average =
    iterates: the mean of x_1 … x_t of Theorem 2.
    """
    x_t = total = np.zeros(X.shape[1])
    updated = np.zeros(X.shape[1], int)  # the round of the most recent update, 0 for none
    for t, (a, b) in enumerate(zip(X, y, strict=True), start=1):
        slope = SLOPES[loss](a @ x_t, b)
        total = total + x_t
        x_t = x_t.copy()
        if slope != 0 or loss == "logistic":
            for i in np.flatnonzero(a):
                v = x_t[i] - eta(eta0, t, step) * slope * a[i]  # (8)
                for j in range(updated[i] + 1, t + 1):
                    v = prox(v, np.broadcast_to(lam, len(x_t))[i] * eta(eta0, j, step), penalty, l1_ratio, R)
                x_t[i] = v
                updated[i] = t
        yield x_t if average == "none" else total / t


def rda(
    X: np.ndarray,
    y: np.ndarray,
    loss: str,
    gamma: float,
    lam: float = 0.0,
    penalty: str = "l1",
    l1_ratio: float = 0.0,
    R: float = 0.0,
) -> Iterator[np.ndarray]:
    """Oiwa et al. 2012, (3) with h = ½‖·‖², β_t = γ√t, its minimum coordinate by coordinate."""
    w = np.zeros(X.shape[1])
    g_bar = np.zeros(X.shape[1])
    ratio = {"l1": 1.0, "l2": 0.0}.get(penalty, l1_ratio)
    for t, (x, b) in enumerate(zip(X, y, strict=True), start=1):
        g = SLOPES[loss](x @ w, b) * x
        g_bar = (t - 1) / t * g_bar + g / t
        if penalty == "box":
            w = np.clip(-np.sqrt(t) / gamma * g_bar, -R, R)
        else:
            w = -soft(g_bar, lam * ratio) / (lam * (1 - ratio) + gamma / np.sqrt(t))
        yield w


def stda(
    X: np.ndarray, y: np.ndarray, loss: str, gamma: float, lam: float, p: float | str, by: str, V: float
) -> Iterator[np.ndarray]:
    """Oiwa et al. 2012, Algorithm 1 with (12)–(15), (18), (21); by = "feature": (24)."""
    w = np.zeros(X.shape[1])
    g_bar, r_bar = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    history: list[np.ndarray] = []
    for t, (x, b) in enumerate(zip(X, y, strict=True), start=1):
        g = SLOPES[loss](x @ w, b) * x
        g_bar = (t - 1) * g_bar / t + g / t
        history.append(np.abs(x if by == "feature" else g))
        past = np.array(history)
        r = past.max(axis=0) if p == "inf" else (past ** float(p)).sum(axis=0) ** (1 / float(p))
        r = np.minimum(V, r)  # (21)
        r_bar = (t - 1) / t * r_bar + r / t  # (15)
        epsilon = g_bar - np.sign(g_bar) * lam * r_bar
        w = np.where(np.abs(g_bar) <= lam * r_bar, 0.0, -t / (gamma * np.sqrt(t)) * epsilon)  # (18)
        yield w


ORACLES: dict[str, Callable[..., Iterator[np.ndarray]]] = {
    "subgradient": subgradient,
    "fobos": fobos,
    "l-fobos": l_fobos,
    "cl-fobos": cl_fobos,
    "rda": rda,
    "stda": stda,
}
JOINT_ORACLES: dict[str, Callable[..., Iterator[np.ndarray]]] = {}
"""Of learners whose step depends on all classes at once: ``(X, labels, classes, …)`` to iterates (n, classes)."""

for _, name, _ in iter_modules(tests.oracles.__path__):
    if name != "stream":
        module = import_module(f"tests.oracles.{name}")
        ORACLES |= module.oracles(SLOPES) if hasattr(module, "oracles") else {}
        JOINT_ORACLES |= getattr(module, "JOINT_ORACLES", {})
