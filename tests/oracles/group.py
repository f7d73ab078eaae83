"""Dense NumPy transcriptions with r = λ Σ_j ‖w_j‖₂, w_j the weights of feature j for all classes; see
`tests.oracles.stream`.

Weights W are (features, classes); `slopes(z, truth)` gives dℓ/dz for the margins z = W'x.
"""

from collections.abc import Callable, Iterator

import numpy as np

from tests.oracles.truncated import eta

Slopes = Callable[[np.ndarray, int], np.ndarray]


def group_prox(V: np.ndarray, a: np.ndarray | float) -> np.ndarray:
    """Each row v: v·max(0, 1 − a/‖v‖)."""
    a = np.reshape(a, (-1, 1))
    norm = np.linalg.norm(V, axis=1, keepdims=True)
    return np.where(norm > a, V * (1 - a / np.where(norm > 0, norm, 1)), 0.0)


def fobos(
    X: np.ndarray, y: np.ndarray, classes: int, slopes: Slopes, eta0: float, lam: float, step: str
) -> Iterator[np.ndarray]:
    return l_fobos(X, y, classes, slopes, eta0, lam, 1, step)


def l_fobos(
    X: np.ndarray, y: np.ndarray, classes: int, slopes: Slopes, eta0: float, lam: float, K: int, step: str
) -> Iterator[np.ndarray]:
    """Togari and Yamashita 2016, Algorithm 3 (K = 1: Algorithm 2), Step 2 one prox at a time."""
    W = np.zeros((X.shape[1], classes))
    for t, (x, b) in enumerate(zip(X, y, strict=True), start=1):
        W = W - eta(eta0, t, step) * np.outer(x, slopes(x @ W, b))
        if t % K == 0:
            for j in range(1, K + 1):
                W = group_prox(W, lam * eta(eta0, t - K + j, step))
        yield W


def cl_fobos(
    X: np.ndarray, y: np.ndarray, classes: int, slopes: Slopes, eta0: float, lam: float, step: str, average: str
) -> Iterator[np.ndarray]:
    """Togari and Yamashita 2016, Algorithm 4 for blocks of variables, Step 2 one prox at a time.

    x^(i) is row i of W, and i is in I_t if the gradient of any class is nonzero.
    """
    assert average == "none"
    W = np.zeros((X.shape[1], classes))
    lams = np.broadcast_to(lam, len(W))
    updated = np.zeros(X.shape[1], int)  # the round of the most recent update, 0 for none
    for t, (x, b) in enumerate(zip(X, y, strict=True), start=1):
        gradient = np.outer(x, slopes(x @ W, b))
        W = W.copy()
        for i in np.flatnonzero(gradient.any(axis=1)):
            v = W[i] - eta(eta0, t, step) * gradient[i]  # (8)
            for j in range(updated[i] + 1, t + 1):
                v = group_prox(v[None], lams[i] * eta(eta0, j, step))[0]
            W[i] = v
            updated[i] = t
        yield W


def rda(X: np.ndarray, y: np.ndarray, classes: int, slopes: Slopes, gamma: float, lam: float) -> Iterator[np.ndarray]:
    """Oiwa et al. 2012, (3) with h = ½‖·‖², β_t = γ√t."""
    W = G = np.zeros((X.shape[1], classes))
    for t, (x, b) in enumerate(zip(X, y, strict=True), start=1):
        G = G + np.outer(x, slopes(x @ W, b))
        W = -np.sqrt(t) / gamma * group_prox(G / t, lam)
        yield W


GROUP_ORACLES: dict[str, Callable[..., Iterator[np.ndarray]]] = {
    "fobos": fobos,
    "l-fobos": l_fobos,
    "cl-fobos": cl_fobos,
    "rda": rda,
}
