"""Mohri and Yang (2015), Corollaries 6 and 7, Theorem 7 and Corollary 4 in expectation, by the oracles of the learners.

The learners keep what a round leaves; what it plays, x_t, is the oracles' alone, to which tests/offline holds
them.
"""

from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, minimize

from sparseoco.learners import ALGORITHMS
from tests.bounds.play import bound_of
from tests.offline import oracles
from tests.oracles.stream import SLOPES, VALUES

M, N, EPOCHS, SEEDS = 24, 3, 3, 12


def problem() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    A = rng.normal(size=(M, N)) * (rng.random((M, N)) < 0.8)
    return A, np.sign(A @ np.array([1.0, -1.0, 0.3]) + rng.normal(size=M))


class Objective:
    """H = Σ_j f_j + αψ, ψ = ρ‖x‖₁ + (1 − ρ)‖x‖²/2."""

    def __init__(self, A: np.ndarray, y: np.ndarray, loss: str, alpha: float, ratio: float) -> None:
        self.A, self.y, self.loss, self.alpha, self.ratio = A, y, loss, alpha, ratio

    def values(self, x: np.ndarray) -> np.ndarray:
        """H of points (T, N)."""
        losses = VALUES[self.loss](x @ self.A.T, self.y).sum(axis=1)
        return np.asarray(losses + self.alpha * self.penalty(np.abs(x)))

    def penalty(self, sizes: np.ndarray) -> np.ndarray:
        """ψ of |x|."""
        return np.asarray(self.ratio * sizes.sum(axis=-1) + (1 - self.ratio) * (sizes**2).sum(axis=-1) / 2)

    def slopes(self, x: np.ndarray) -> np.ndarray:
        """Of every f_j at points (T, N)."""
        return np.asarray(SLOPES[self.loss](oracles.margin(x @ self.A.T, self.y, self.loss), self.y))

    def least(self, R: Any) -> float:
        """The minimum over |x_i| ≤ R_i; R is a number or (N,). A hinge is the least ξ_j ≥ 0 with ξ_j ≥ 1 − y_j z_j."""
        sides = [(0, side) for side in np.tile(np.broadcast_to(R, N), 2)]
        signed = self.y[:, None] * self.A
        if self.loss == "hinge":
            above = LinearConstraint(np.hstack([signed, -signed, np.eye(M)]), 1.0, np.inf)
            start, xi = np.concatenate([np.zeros(2 * N), np.ones(M)]), [(0, None)] * M
            found = minimize(self._relaxed, start, bounds=sides + xi, constraints=above, options={"maxiter": 1000})
            assert found.success
            halves = found.x[: 2 * N]
        else:
            halves = minimize(self._of_halves, np.full(2 * N, 0.01), bounds=sides).x
        return float(self.values((halves[:N] - halves[N:])[None])[0])

    def _of_halves(self, h: np.ndarray) -> float:
        losses = Objective(self.A, self.y, self.loss, 0.0, 1.0).values((h[:N] - h[N:])[None])[0]
        return float(losses + self.alpha * self.penalty(h))

    def _relaxed(self, v: np.ndarray) -> float:
        return float(v[2 * N :].sum() + self.alpha * self.penalty(v[: 2 * N]))


def penalty_of(ratio: float) -> str:
    return {1.0: "l1", 0.0: "l2"}.get(ratio, "elastic_net")


LOSSES = [(loss, ratio) for loss in ("logistic", "hinge") for ratio in (1.0, 0.4, 0.0)]


def mini_batches(A: np.ndarray, batch: int, sample: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(L_j and the mini-batch of every example, probabilities of the mini-batches)."""
    L, blocks = np.abs(A).max(axis=1), np.arange(M) // batch
    p = np.bincount(blocks, L) if sample == "lipschitz" else np.ones(blocks[-1] + 1)
    return L, blocks, p / p.sum()


def exceeds(regret: list[float], bound: list[float]) -> float:
    """Mean of regret − bound, and three standard errors more."""
    over = np.subtract(regret, bound)
    return float(over.mean() + 3 * over.std(ddof=1) / np.sqrt(len(over)))


def covering(*factors: list[Any]) -> list[tuple[Any, ...]]:
    """The half of all combinations in which any three values are together."""
    numbers = product(*(range(len(values)) for values in factors))
    return [case for case, own in zip(product(*factors), numbers, strict=True) if sum(own) % 2 == 0]


@pytest.mark.parametrize(
    ("objective", "box", "batch", "sample"),
    covering(LOSSES, [(1.0, 0.5), (5.0, 0.0)], [1, 4], ["lipschitz", "uniform"]),
)
def test_caos_erm(objective: tuple[str, float], box: tuple[float, float], batch: int, sample: str) -> None:
    """Corollaries 6 and 7 as data have it, and at their worst."""
    (loss, ratio), (R, alpha) = objective, box
    A, y = problem()
    H = Objective(A, y, loss, alpha, ratio)
    best = H.least(R)
    L, blocks, p = mini_batches(A, batch, sample)
    regret, bound = [], []
    for seed in range(SEEDS):
        x: list[np.ndarray] = []
        heads = [np.zeros(N)]
        shared: dict[str, Any] = {"epochs": EPOCHS, "seed": seed, "batch": batch, "sample": sample}
        shared |= {"estimate": "corrected", "penalty": penalty_of(ratio), "l1_ratio": ratio}
        heads += oracles.caos_erm(A, y, SLOPES[loss], R=R, alpha=alpha, played=x, **shared)
        played = np.array(x)
        rounds = len(played) // EPOCHS
        slopes, passes = H.slopes(played), np.repeat(H.slopes(np.array(heads[:-1])), rounds, axis=0)
        gathered = np.eye(blocks.max() + 1)[blocks].T  # (blocks, examples)
        missed = np.einsum("bj,tj,ji->tbi", gathered, slopes - passes, A)
        regret.append(float((H.values(played) - best).sum()))
        bound.append(float(4 * R * np.sqrt((missed**2 / p[None, :, None]).sum(axis=(0, 1))).sum()))
    assert exceeds(regret, bound) < 0
    entry = {"R": R, "alpha": alpha, "batch": batch, "estimate": "corrected", "sample": sample}
    theorem = bound_of("caos-erm", ALGORITHMS["caos-erm"].configuration(entry), penalty_of(ratio))
    assert theorem.expected
    assert max(bound) < theorem.value(len(played), {"n": N, "L": L.sum(), "L2": L @ L, "blocks": p.size})


@pytest.mark.parametrize("sample", ["lipschitz", "uniform"])
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_caos_erm_as_printed(loss: str, batch: int, sample: str) -> None:
    """If a round predicts the next: 4RΣ√(Σ_t E(ĝ_t − g̃_t)²), also with Σ(ĝ − g̃)² of the draws, and the worst case of
    Corollaries 6 and 7. Given the rounds before, E(ĝ_t − g̃_t)² is a sum over the draws of round t."""
    A, y = problem()
    R, alpha = 1.0, 0.5
    H = Objective(A, y, loss, alpha, 1.0)
    best = H.least(R)
    L, blocks, p = mini_batches(A, batch, sample)
    entry = {"R": R, "alpha": alpha, "batch": batch, "predict_gradient": "previous", "sample": sample}
    theorem = bound_of("caos-erm", ALGORITHMS["caos-erm"].configuration(entry))
    assert theorem.expected
    regret, bound, squares = [], [], []
    for seed in range(SEEDS):
        x, g_hat, g_tilde = oracles.algorithm_4(
            A, y, SLOPES[loss], R=R, alpha=alpha, k=EPOCHS, seed=seed, batch=batch, sample=sample
        )
        regret.append(float((H.values(x[:-1]) - best).sum()))
        bound.append(float(4 * R * np.sqrt(((g_hat - g_tilde) ** 2).sum(axis=0)).sum()))
        estimates = np.einsum("bj,tj,ji->tbi", np.eye(p.size)[blocks].T, H.slopes(x[:-1]), A) / p[None, :, None]
        squares.append(np.einsum("b,tbi->i", p, (estimates - g_tilde[:, None]) ** 2))
    assert exceeds(regret, bound) < 0
    of_the_data = float(4 * R * np.sqrt(np.mean(squares, axis=0)).sum())
    assert exceeds(regret, [of_the_data] * SEEDS) < 0
    assert np.mean(bound) < 1.05 * of_the_data
    measured = {"n": N, "L": L.sum(), "L2": L @ L, "blocks": p.size}
    assert max(*bound, of_the_data) < theorem.value(len(g_hat), measured)


@pytest.mark.parametrize(
    ("objective", "scale", "sample", "blocks"),
    covering(
        LOSSES, ["none", "max_abs"], ["uniform", "lipschitz"], [(1, "consecutive"), (2, "consecutive"), (2, "random")]
    ),
)
def test_cao_rcd(objective: tuple[str, float], scale: str, sample: str, blocks: tuple[int, str]) -> None:
    """Theorem 7 and Corollaries 4 and 5 with no prediction, over |x_i| ≤ R or |x_i| ≤ R_i.

    A random partition is another one for every seed.
    """
    A, y = problem()
    A[:, 1] *= 0.1
    (loss, ratio), (batch, partition) = objective, blocks
    R, alpha, T = 2.0, 0.5, 100
    ranges = oracles.ranges_of(A, y, R, scale)
    H = Objective(A, y, loss, alpha, ratio)
    best, L = H.least(ranges), oracles.bounds_of(A, y, loss, ranges)
    entry = {"R": R, "predict_gradient": "none", "sample": sample, "partition": partition, "scale": scale}
    theorem = bound_of("cao-rcd", ALGORITHMS["cao-rcd"].configuration(entry), penalty_of(ratio))
    regret, bound = [], []
    for seed in range(SEEDS):
        order = oracles.permutation_of(len(L), seed) if partition == "random" else np.arange(len(L))
        parts, p = oracles.chances_of(L, ranges, batch, sample, order)
        chance = np.empty(len(L))
        chance[order] = np.concatenate([np.full(len(part), q) for part, q in zip(parts, p, strict=True)])
        x: list[np.ndarray] = []
        own = {"R": R, "alpha": alpha, "rounds": T, "batch": batch, "partition": partition, "predict_gradient": "none"}
        own |= {"scale": scale, "l1_ratio": ratio}
        list(oracles.cao_rcd(A, y, SLOPES[loss], loss=loss, sample=sample, seed=seed, epochs=1, played=x, **own))
        played = np.array(x)
        g = H.slopes(played) @ A
        regret.append(float((H.values(played) - best).sum()))
        bound.append(float(4 * ranges @ np.sqrt((g**2 / chance).sum(axis=0))))
        sides = np.array([ranges[part].sum() for part in parts]) * [np.linalg.norm(L[part]) for part in parts]
        measured = {"RL": (sides ** (2 / 3)).sum(), "RL1": sides.sum(), "blocks": len(parts)}
        assert bound[-1] < theorem.value(T, measured)
    assert exceeds(regret, bound) < 0
