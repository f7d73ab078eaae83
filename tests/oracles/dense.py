"""Dense transcriptions of the papers' pseudo-code for learners that play in a convex set, by other means than theirs.

A itself is kept and solved with, not its inverse; projections onto a ball go by eigenvalues and bisection, those onto a
simplex try every face. Fit for a few features.
"""

from collections.abc import Callable, Iterator
from itertools import combinations, product
from typing import Any

import numpy as np

from sparseoco.core.compile_cache import compiled
from sparseoco.kernels.dense import direction
from tests.oracles.losses import SLOPES, VALUES, weight_of

Point = np.ndarray
DIRECTION = compiled(direction)


def ball_projection(z: Point, A: np.ndarray, R: float) -> Point:
    """argmin ‖x − z‖_A, ‖x‖ ≤ R: x = (A + μI)⁻¹Az, μ by bisection."""
    if np.linalg.norm(z) <= R:
        return z
    values, vectors = np.linalg.eigh(A)
    c = values * (vectors.T @ z)
    low, high = 0.0, np.linalg.norm(c) / R
    for _ in range(150):
        mu = (low + high) / 2
        low, high = (mu, high) if np.linalg.norm(c / (values + mu)) > R else (low, mu)
    return vectors @ (c / (values + high))


def simplex_projection(z: Point, A: np.ndarray, floor: float) -> Point:
    """argmin ‖x − z‖_A, x_i ≥ floor, Σ x_i = 1: the best of the least points of all faces that are in the set."""
    n, best, found = len(z), np.inf, z
    for size in range(1, n + 1):
        free = np.array(list(combinations(range(n), size)))
        held = np.array([[i for i in range(n) if i not in own] for own in free.tolist()], int)
        # A_ff(x_f − z_f) + A_fh(x_h − z_h) = ν, Σ x_f = 1 − (n − size)·floor
        K = np.ones((len(free), size + 1, size + 1))
        K[:, :-1, :-1], K[:, :-1, -1], K[:, -1, -1] = A[free[:, :, None], free[:, None]], -1.0, 0.0
        right = np.full((len(free), size + 1, 1), 1.0 - (n - size) * floor)
        moved = A[free[:, :, None], held[:, None]] @ (floor - z[held])[..., None]
        right[:, :-1] = K[:, :-1, :-1] @ z[free][..., None] - moved
        x = np.full((len(free), n), floor)
        np.put_along_axis(x, free, np.linalg.solve(K, right)[:, :-1, 0], axis=1)
        distance = np.einsum("fi,ij,fj->f", x - z, A, x - z)
        distance[x.min(axis=1) < floor - 1e-10] = np.inf
        if distance.min() < best:
            best, found = distance.min(), x[distance.argmin()]
    return found


def l1_projection(z: Point, A: np.ndarray, R: float) -> Point:
    """argmin ‖x − z‖_A, ‖x‖₁ ≤ R: the best of the least points of all orthants, each a simplex of size R."""
    if np.abs(z).sum() <= R:
        return z
    signs = [np.array(own) for own in product((-1.0, 1.0), repeat=len(z))]
    found = [R * s * simplex_projection(s * z / R, A * np.outer(s, s), 0.0) for s in signs]
    return min(found, key=lambda x: float((x - z) @ A @ (x - z)))


def projection(domain: str, z: Point, A: np.ndarray, R: float, gamma: float) -> Point:
    """Onto (1 − γ)P."""
    if domain == "l1":
        return l1_projection(z, A, (1 - gamma) * R)
    return ball_projection(z, A, (1 - gamma) * R) if domain == "ball" else simplex_projection(z, A, gamma / len(z))


def centre(domain: str, n: int) -> Point:
    return np.full(n, 1.0 / n if domain == "simplex" else 0.0)


def rounds(X: np.ndarray, y: np.ndarray, loss: str, it: Any) -> Iterator[tuple[int, Callable[..., Any]]]:
    """(t, gradient): the gradient at a point, or of a bandit that plays around it, with what it incurred."""
    (_, n), value, slope = X.shape, VALUES[loss], SLOPES[loss]
    m = n - 1 if it["domain"] == "simplex" else n
    for t, (x, label) in enumerate(zip(X, y, strict=True), start=1):

        def gradient(w: Point, t: int = t, x: np.ndarray = x, label: float = label) -> tuple[Point, float]:
            if "delta" not in it:
                return slope(w @ x, label) * x, value(w @ x, label)
            v = np.zeros(n)
            DIRECTION(it["repetition"], t, 0, it["domain"] == "simplex", v)
            incurred = value((w + it["delta"] * v) @ x, label)
            if "F" not in it:
                difference = incurred - value((w - it["delta"] * v) @ x, label)
                return weight_of(label) * m / (2 * it["delta"]) * difference * v, incurred
            return weight_of(label) * m / it["delta"] * incurred * v, incurred

        yield t, gradient


def ogd(X: np.ndarray, y: np.ndarray, loss: str, **it: Any) -> Iterator[tuple[Point, float]]:
    """w_{t+1} and f_t(x_t), t = 1 …; a bandit's step is D/(F√t) along f_t(x_t)v_t, with two points that for
    G = Lm/√(m − 1)."""
    n = X.shape[1]
    w, D = centre(it["domain"], n), np.sqrt(2) if it["domain"] == "simplex" else it["D"]
    m = n - 1 if it["domain"] == "simplex" else n
    for t, gradient in rounds(X, y, loss, it):
        g, incurred = gradient(w)
        if "F" in it:
            step = D / (it["F"] * np.sqrt(t)) * it["delta"] / m
        else:
            step = D / (it.get("G", it.get("L", 0) * m / np.sqrt(max(m - 1, 1))) * np.sqrt(t))
        w = projection(it["domain"], w - step * g, np.eye(n), it["D"] / 2, it.get("gamma", 0.0))
        yield w, incurred


def ons(X: np.ndarray, y: np.ndarray, loss: str, **it: Any) -> Iterator[tuple[Point, float]]:
    """w_{t+1} and f_t(x_t), t = 1 …"""
    n = X.shape[1]
    w, D = centre(it["domain"], n), np.sqrt(2) if it["domain"] == "simplex" else it["D"]
    A = np.eye(n) / (it["beta"] * D) ** 2
    for _, gradient in rounds(X, y, loss, it):
        g, incurred = gradient(w)
        A = A + np.outer(g, g)
        z = w - np.linalg.solve(A, g) / it["beta"]
        w = projection(it["domain"], z, A, it["D"] / 2, it.get("gamma", 0.0))
        yield w, incurred


def ao_eg(X: np.ndarray, y: np.ndarray, loss: str, **it: Any) -> Iterator[tuple[Point, float]]:
    """w_{t+1} and f_t(x_t), t = 1 …: Corollary 3 on the simplex, of 2n corners ±R for l1."""
    n = X.shape[1]
    R, l1 = it["R"], it["domain"] == "l1"
    corners = np.vstack([R * np.eye(n), -R * np.eye(n)]) if l1 else np.eye(n)
    total, guess, S = np.zeros(len(corners)), np.zeros(len(corners)), 0.0
    x = np.full(len(corners), 1.0 / len(corners))
    for _, gradient in rounds(X, y, loss, it):
        g, incurred = gradient(corners.T @ x)
        g = corners @ g
        S += np.abs(g - guess).max() ** 2
        total = total + g
        guess = g if it["predict_gradient"] == "last" else 0 * g
        if len(corners) > 1:
            scale = np.sqrt(2 * (it["C"] + S) / np.log(len(corners)))
            power = np.exp(-(total + guess - (total + guess).min()) / scale)
            x = power / power.sum()
        yield corners.T @ x, incurred


ORACLES = {"ogd": ogd, "ogdeg": ogd, "two-point": ogd, "ons": ons, "onseg": ons, "ao-eg": ao_eg}
