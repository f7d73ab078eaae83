"""Mohri and Yang (2015), Corollaries 6 and 7, Theorem 7 and Corollary 4 in expectation, by the oracles of the learners.

The learners keep what a round leaves; what it plays, x_t, is the oracles' alone, to which tests/epochs and
tests/coordinates hold them.
"""

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from sparseoco.learners import ALGORITHMS
from sparseoco.offline.bounds import Bound, NoBound, regret_bound
from tests.offline.coordinates.oracle import bounds_of, cao_rcd, chances_of, permutation_of, ranges_of
from tests.offline.epochs.oracle import caos_erm
from tests.offline.epochs.printed import algorithm_4
from tests.oracles.stream import SLOPES

M, N, EPOCHS, SEEDS = 24, 3, 5, 12


def problem() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    A = rng.normal(size=(M, N)) * (rng.random((M, N)) < 0.8)
    return A, np.sign(A @ np.array([1.0, -1.0, 0.3]) + rng.normal(size=M))


def objectives(A: np.ndarray, y: np.ndarray, alpha: float, x: np.ndarray) -> np.ndarray:
    """Σ_j f_j + α‖x‖₁ of points (T, N)."""
    return np.asarray(np.logaddexp(0, -y * (x @ A.T)).sum(axis=1) + alpha * np.abs(x).sum(axis=1))


def least(A: np.ndarray, y: np.ndarray, alpha: float, R: Any) -> float:
    """The minimum over |x_i| ≤ R_i; R is a number or (N,)."""

    def halves(h: np.ndarray) -> float:
        return float(objectives(A, y, 0.0, (h[:N] - h[N:])[None])[0] + alpha * h.sum())

    return float(minimize(halves, np.full(2 * N, 0.01), bounds=[(0, r) for r in np.tile(np.broadcast_to(R, N), 2)]).fun)


def exceeds(regret: list[float], bound: list[float]) -> float:
    """Mean of regret − bound, and three standard errors more."""
    over = np.subtract(regret, bound)
    return float(over.mean() + 3 * over.std(ddof=1) / np.sqrt(len(over)))


@pytest.mark.parametrize("sample", ["lipschitz", "uniform"])
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize(("R", "alpha"), [(1.0, 0.5), (5.0, 0.0)])
def test_caos_erm(R: float, alpha: float, batch: int, sample: str) -> None:
    """Corollaries 6 and 7 as data have it, and at their worst."""
    A, y = problem()
    best, blocks = least(A, y, alpha, R), np.arange(M) // batch
    L = np.abs(A).max(axis=1)
    p = np.bincount(blocks, L) / L.sum()
    if sample == "uniform":
        p = np.full(p.size, 1 / p.size)
    regret, bound = [], []
    for seed in range(SEEDS):
        x: list[np.ndarray] = []
        heads = [np.zeros(N)]
        shared: dict[str, Any] = {"epochs": EPOCHS, "seed": seed, "batch": batch, "sample": sample}
        shared["estimate"] = "corrected"
        heads += caos_erm(A, y, SLOPES["logistic"], R=R, alpha=alpha, played=x, **shared)
        played = np.array(x)
        rounds = len(played) // EPOCHS
        slopes = -y / (1 + np.exp(y * (played @ A.T)))
        passes = np.repeat([-y / (1 + np.exp(y * (A @ head))) for head in heads[:-1]], rounds, axis=0)
        gathered = np.eye(blocks.max() + 1)[blocks].T  # (blocks, examples)
        missed = np.einsum("bj,tj,ji->tbi", gathered, slopes - passes, A)
        regret.append(float((objectives(A, y, alpha, played) - best).sum()))
        bound.append(float(4 * R * np.sqrt((missed**2 / p[None, :, None]).sum(axis=(0, 1))).sum()))
    assert exceeds(regret, bound) < 0
    entry = {"R": R, "alpha": alpha, "batch": batch, "estimate": "corrected", "sample": sample}
    theorem = regret_bound("caos-erm", ALGORITHMS["caos-erm"].configuration(entry))
    assert isinstance(theorem, Bound)
    assert theorem.expected
    assert max(bound) < theorem.value(len(played), {"n": N, "L": L.sum(), "L2": L @ L, "blocks": p.size})


@pytest.mark.parametrize("sample", ["lipschitz", "uniform"])
@pytest.mark.parametrize("batch", [1, 4])
def test_caos_erm_as_printed(batch: int, sample: str) -> None:
    """If a round predicts the next: 4RΣ√(Σ_t E(ĝ_t − g̃_t)²), also with Σ(ĝ − g̃)² of the draws, and the worst case of
    Corollaries 6 and 7. Given the rounds before, E(ĝ_t − g̃_t)² is a sum over the draws of round t."""
    A, y = problem()
    R, alpha = 1.0, 0.5
    best, L, blocks = least(A, y, alpha, R), np.abs(A).max(axis=1), np.arange(M) // batch
    p = np.bincount(blocks, L) / L.sum()
    if sample == "uniform":
        p = np.full(p.size, 1 / p.size)
    entry = {"R": R, "alpha": alpha, "batch": batch, "predict_gradient": "previous", "sample": sample}
    theorem = regret_bound("caos-erm", ALGORITHMS["caos-erm"].configuration(entry))
    assert isinstance(theorem, Bound)
    assert theorem.expected
    regret, bound, squares = [], [], []
    for seed in range(SEEDS):
        x, g_hat, g_tilde = algorithm_4(
            A, y, SLOPES["logistic"], R=R, alpha=alpha, k=EPOCHS, seed=seed, batch=batch, sample=sample
        )
        regret.append(float((objectives(A, y, alpha, x[:-1]) - best).sum()))
        bound.append(float(4 * R * np.sqrt(((g_hat - g_tilde) ** 2).sum(axis=0)).sum()))
        slopes = -y / (1 + np.exp(y * (x[:-1] @ A.T)))
        estimates = np.einsum("bj,tj,ji->tbi", np.eye(p.size)[blocks].T, slopes, A) / p[None, :, None]
        squares.append(np.einsum("b,tbi->i", p, (estimates - g_tilde[:, None]) ** 2))
    assert exceeds(regret, bound) < 0
    of_the_data = float(4 * R * np.sqrt(np.mean(squares, axis=0)).sum())
    assert exceeds(regret, [of_the_data] * SEEDS) < 0
    assert np.mean(bound) < 1.05 * of_the_data
    measured = {"n": N, "L": L.sum(), "L2": L @ L, "blocks": p.size}
    assert max(*bound, of_the_data) < theorem.value(len(g_hat), measured)


@pytest.mark.parametrize("scale", ["none", "max_abs"])
@pytest.mark.parametrize("sample", ["uniform", "lipschitz"])
@pytest.mark.parametrize(("batch", "partition"), [(1, "consecutive"), (2, "consecutive"), (2, "random")])
def test_cao_rcd(sample: str, batch: int, partition: str, scale: str) -> None:
    """Theorem 7 and Corollaries 4 and 5 with no prediction, over |x_i| ≤ R or |x_i| ≤ R_i.

    A random partition is another one for every seed.
    """
    A, y = problem()
    A[:, 1] *= 0.1
    R, alpha, T = 2.0, 0.5, 150
    ranges = ranges_of(A, y, R, scale)
    best, L = least(A, y, alpha, ranges), bounds_of(A, y, "logistic", ranges)
    entry = {"R": R, "predict_gradient": "none", "sample": sample, "partition": partition, "scale": scale}
    theorem = regret_bound("cao-rcd", ALGORITHMS["cao-rcd"].configuration(entry))
    assert isinstance(theorem, Bound)
    regret, bound = [], []
    for seed in range(SEEDS):
        order = permutation_of(len(L), seed) if partition == "random" else np.arange(len(L))
        blocks, p = chances_of(L, ranges, batch, sample, order)
        chance = np.empty(len(L))
        chance[order] = np.concatenate([np.full(len(block), q) for block, q in zip(blocks, p, strict=True)])
        x: list[np.ndarray] = []
        own = {"R": R, "alpha": alpha, "rounds": T, "batch": batch, "partition": partition, "predict_gradient": "none"}
        own |= {"scale": scale}
        list(cao_rcd(A, y, SLOPES["logistic"], loss="logistic", sample=sample, seed=seed, epochs=1, played=x, **own))
        played = np.array(x)
        g = (-y / (1 + np.exp(y * (played @ A.T)))) @ A
        regret.append(float((objectives(A, y, alpha, played) - best).sum()))
        bound.append(float(4 * ranges @ np.sqrt((g**2 / chance).sum(axis=0))))
        sides = np.array([ranges[block].sum() for block in blocks]) * [np.linalg.norm(L[block]) for block in blocks]
        measured = {"RL": (sides ** (2 / 3)).sum(), "RL1": sides.sum(), "blocks": len(blocks)}
        assert bound[-1] < theorem.value(T, measured)
    assert exceeds(regret, bound) < 0


@pytest.mark.parametrize(
    ("name", "values", "word"),
    [
        ("caos-erm", {"estimate": "sampled"}, "estimate='corrected'"),
        ("caos-erm", {"placement": "parallel"}, "placement='serial'"),
        ("cao-rcd", {"predict_gradient": "half"}, "predict_gradient='none'"),
        ("cao-rcd", {"predict_gradient": "last"}, "predict_gradient='none'"),
    ],
)
def test_where_the_proof_fails_it_says_so(name: str, values: dict[str, Any], word: str) -> None:
    bound = regret_bound(name, ALGORITHMS[name].configuration(values))
    assert isinstance(bound, NoBound)
    assert word in bound.why
