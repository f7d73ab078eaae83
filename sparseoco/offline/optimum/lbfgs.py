"""The quasi-Newton metric: the Hessian of the loss, approximated from pairs of steps and gradient changes.

Compact L-BFGS (Byrd, Nocedal & Schnabel 1994, Representations of quasi-Newton matrices, Theorem 2.3), from a
diagonal D = σ·q with q_i = Σ_j a_{j,i}² instead of a multiple of the identity, because word counts, and so the
curvatures of coordinates, differ by orders of magnitude.

    B = D − [DS Y] M⁻¹ [DS Y]ᵀ,  M = ( SᵀDS  L ; Lᵀ  −diag(s_kᵀy_k) ),  L_kl = s_kᵀy_l for k > l, else 0
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.kernels.quadratic import FACTOR, INNER, OUTSIDE_SLOPES, PAIR_PRODUCTS
from sparseoco.offline.partial_sums import Floats

MOST_PAIRS, FEWEST_PAIRS = 30, 5
PAIR_BYTES = 1 << 30  # per column; limits the number of pairs
MIN_COSINE = 1e-12  # of a pair; less is only rounding
MIN_EIGENVALUE = 1e-10  # of M, relative to the largest; less means redundant pairs


class Model(NamedTuple):
    """B = diag(D) − Q·diag(J)·Qᵀ on the features `members`; `T` maps the pairs to Q."""

    members: NDArray[np.int64]
    D: Floats
    Q: Floats
    J: Floats
    T: Floats
    order: NDArray[np.int64]


def max_pairs(n_features: int) -> int:
    """Number of pairs per column; a pair takes 16 bytes per feature."""
    return min(max(PAIR_BYTES // (16 * n_features), FEWEST_PAIRS), MOST_PAIRS)


class Metric:
    """The last `pairs` pairs (s, y), scaled so that sᵀy = 1. `q` (features,) is positive."""

    def __init__(self, q: Floats) -> None:
        self.q = q
        self.pairs = max_pairs(q.size)
        self.S: Floats
        self.Y: Floats
        self.moved: NDArray[np.bool_]
        self.order: list[int]
        """Positions of the pairs in S and Y, the oldest first."""
        self.release()
        self.sqs, self.sy = np.zeros((self.pairs, self.pairs)), np.zeros((self.pairs, self.pairs))

    def add(self, s: Floats, y: Floats) -> None:
        """Store a pair unless it has no curvature; replaces the oldest if all positions are used."""
        curvature = INNER(s, y)
        if not curvature > MIN_COSINE * np.sqrt(INNER(s, s) * INNER(y, y)):
            return
        place = self.order.pop(0) if len(self.order) == self.pairs else self._free_place()
        if not self.S.size:
            self.S, self.Y = np.zeros((self.q.size, self.pairs)), np.zeros((self.q.size, self.pairs))
            self.moved = np.zeros(self.q.size, np.bool_)
        scale = 1.0 / np.sqrt(curvature)
        s, y = scale * s, scale * y
        self.S[:, place], self.Y[:, place] = s, y
        self.moved |= s != 0.0
        out = np.zeros((3, self.pairs))
        PAIR_PRODUCTS(np.flatnonzero(self.moved), s, y, self.q, self.S, self.Y, out)
        self.sqs[place] = self.sqs[:, place] = out[0]
        self.sy[place], self.sy[:, place] = out[1], out[2]
        self.order.append(place)

    def release(self) -> None:
        """Drop all pairs and free their memory."""
        self.S, self.Y = np.zeros((0, self.pairs)), np.zeros((0, self.pairs))
        self.moved = np.zeros(0, np.bool_)
        self.order = []

    def _free_place(self) -> int:
        return min(set(range(self.pairs)) - set(self.order))

    def forget(self) -> None:
        """Drop all pairs."""
        self.order.clear()

    def sigma(self, members: NDArray[np.int64], otherwise: float) -> float:
        """σ = Σ_i y_i²/q_i over `members` for the last pair, an estimate of the largest curvature."""
        if not self.order:
            return otherwise
        y = self.Y[members, self.order[-1]]
        sigma = float(INNER(y, y / self.q[members]))
        return sigma if sigma > 0.0 else otherwise

    def model(self, members: NDArray[np.int64], sigma: float) -> Model:
        """B on some of the features; drops older pairs that are redundant."""
        while True:
            m = len(self.order)
            order = np.array(self.order, np.int64)
            pick = np.ix_(order, order)
            lower = np.tril(self.sy[pick], -1)
            M = np.block([[sigma * self.sqs[pick], lower], [lower.T, -np.eye(m)]]) if m else np.zeros((0, 0))
            values, vectors = np.linalg.eigh(M)
            if not m or np.abs(values).min() > MIN_EIGENVALUE * np.abs(values).max():
                break
            self.order.pop(0)
        T = vectors / np.sqrt(np.abs(values))
        D = sigma * self.q
        Q = np.empty((members.size, 2 * m))
        FACTOR(members, D, self.S, self.Y, order, T, Q)
        return Model(members, D[members], Q, np.sign(values), T, order)

    def outside_slopes(self, model: Model, sigma: float, g: Floats, v: Floats, rows: NDArray[np.int64]) -> Floats:
        """(rows,): the slope of the model at features with x_i = w_i, for v = J∘Qᵀ(x − w)."""
        out = np.empty(rows.size)
        OUTSIDE_SLOPES(rows, g, sigma * self.q, self.S, self.Y, model.order, model.T @ v, out)
        return out

    STATE = ("S", "Y", "order", "sqs", "sy")

    def state(self) -> dict[str, NDArray[Any]]:
        """The state as arrays."""
        return {"S": self.S, "Y": self.Y, "order": np.array(self.order, np.int64), "sqs": self.sqs, "sy": self.sy}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore what `state` returned."""
        self.S, self.Y, self.sqs, self.sy = (state[name].copy() for name in ("S", "Y", "sqs", "sy"))
        self.order = [int(place) for place in state["order"]]
        self.moved = (self.S != 0.0).any(axis=1)
