"""Mohri and Yang (2015), Corollaries 6 and 7, Theorem 7 and Corollary 4 in expectation, by the oracles of the learners.

The learners of epochs keep what a round leaves; what it plays, x_t, is the oracles' alone, to which tests/offline holds
them. Also the theorems of learners that play in a convex set.
"""

from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, minimize

from sparseoco.learners import ALGORITHMS
from sparseoco.training.learner import Learner
from tests.bounds.play import Play, bound_of, fixed_labels
from tests.offline import oracles
from tests.offline.problems import PREVIOUS, minimum
from tests.oracles.losses import SLOPES, VALUES

M, N, EPOCHS, SEEDS = 24, 3, 3, 10


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
        box = np.broadcast_to(R, N).tolist()
        if self.loss != "hinge":
            return minimum(self.A, self.y, np.full(N, self.alpha), box, loss=self.loss, rho=self.ratio)
        signed, sides = self.y[:, None] * self.A, [*((0, side) for side in box * 2), *[(0, None)] * M]
        above = LinearConstraint(np.hstack([signed, -signed, np.eye(M)]), 1.0, np.inf)
        start = np.concatenate([np.zeros(2 * N), np.ones(M)])
        found = minimize(self._relaxed, start, bounds=sides, constraints=above, options={"maxiter": 1000})
        assert found.success
        return float(self.values((found.x[:N] - found.x[N : 2 * N])[None])[0])

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


def exceeds(regret: Any, bound: Any) -> float:
    """Mean of regret − bound, and three standard errors more."""
    over = np.subtract(regret, bound)
    return float(over.mean() + 3 * over.std(ddof=1) / np.sqrt(len(over)))


def covering(*factors: list[Any]) -> list[tuple[Any, ...]]:
    """A third of all combinations, in which any two values are together."""
    numbers = product(*(range(len(values)) for values in factors))
    return [case for case, own in zip(product(*factors), numbers, strict=True) if sum(own) % 3 == 0]


@pytest.mark.parametrize(
    ("objective", "box", "batch", "sample"),
    [
        *covering(LOSSES, [(1.0, 0.5), (5.0, 0.0)], [1, 4], ["lipschitz", "uniform"]),
        *((objective, (1.0, 0.5), 1, "adaptive") for objective in LOSSES),
    ],
)
def test_caos_erm(objective: tuple[str, float], box: tuple[float, float], batch: int, sample: str) -> None:
    """Corollaries 6 and 7 as data have it, by the draws of the runs (`data_bound`) as well, and at their worst."""
    (loss, ratio), (R, alpha) = objective, box
    A, y = problem()
    H = Objective(A, y, loss, alpha, ratio)
    best = H.least(R)
    L, blocks, p = mini_batches(A, batch, "uniform" if sample == "uniform" else "lipschitz")
    regret, bound, of_draws = [], [], []
    for seed in range(SEEDS):
        x: list[np.ndarray] = []
        p_of_epochs: list[np.ndarray] = []
        heads = [np.zeros(N)]
        shared: dict[str, Any] = {"epochs": EPOCHS, "seed": seed, "batch": batch, "sample": sample}
        shared |= {"estimate": "corrected", "penalty": penalty_of(ratio), "l1_ratio": ratio}
        heads += oracles.caos_erm(A, y, SLOPES[loss], R=R, alpha=alpha, played=x, p_of_epochs=p_of_epochs, **shared)
        played = np.array(x)
        rounds = len(played) // EPOCHS
        chance = np.repeat(p_of_epochs, rounds, axis=0)[:, :, None]
        slopes, passes = H.slopes(played), np.repeat(H.slopes(np.array(heads[:-1])), rounds, axis=0)
        gathered = np.eye(blocks.max() + 1)[blocks].T  # (blocks, examples)
        missed = np.einsum("bj,tj,ji->tbi", gathered, slopes - passes, A)
        regret.append(float((H.values(played) - best).sum()))
        bound.append(float(4 * R * np.sqrt((missed**2 / chance).sum(axis=(0, 1))).sum()))
        numbers = [oracles.uniform(seed, t // rounds + 1, 0, t % rounds) for t in range(len(played))]
        drawn = (np.cumsum(chance[:, :, 0], axis=1) <= np.array(numbers)[:, None]).sum(axis=1)
        errors = (missed / chance)[np.arange(len(played)), drawn]
        of_draws.append(float(4 * R * np.sqrt((errors**2).sum(axis=0)).sum()))
    assert exceeds(regret, bound) < 0
    assert exceeds(regret, of_draws) < 0
    assert np.mean(of_draws) < 1.05 * np.mean(bound)
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
    entry = {"R": R, "alpha": alpha, "batch": batch, "sample": sample, **PREVIOUS}
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
    assert exceeds(regret, of_the_data) < 0
    assert np.mean(bound) < 1.05 * of_the_data
    measured = {"n": N, "L": L.sum(), "L2": L @ L, "blocks": p.size}
    assert max(*bound, of_the_data) < theorem.value(len(g_hat), measured)


@pytest.mark.formulas
@pytest.mark.parametrize("box", [(1.0, 0.5), (5.0, 0.0)])
@pytest.mark.parametrize("objective", LOSSES)
def test_optimistic_averaging(objective: tuple[str, float], box: tuple[float, float]) -> None:
    """Of every x̄_t, by its Δ and at its worst, and of their sum; gradients of the wrong sign exceed it."""
    (loss, ratio), (R, alpha), T = objective, box, 60
    A, y, CR = *problem(), 6.2 * R
    H, t = Objective(A, y, loss, alpha, ratio), np.arange(1, T + 1)
    best, shared = H.least(R), {"R": R, "alpha": alpha, "T": T, "penalty": penalty_of(ratio), "l1_ratio": ratio}
    means, wrong = (
        oracles.optimistic_averaging(A, y, lambda z, b, way=way: way * SLOPES[loss](z, b), **shared)
        for way in (1.0, -1.0)
    )

    def by_errors(found: oracles.Averaging) -> np.ndarray:
        sums = np.sqrt(np.cumsum(found.missed**2, axis=0)).sum(axis=1)
        return np.asarray(CR * sums / (t * (t + 1) / 2))

    gap, sizes = H.values(means.means) - best, np.abs(A).sum(axis=1)
    assert (gap <= by_errors(means)).all()
    assert H.values(wrong.means)[-1] - best > by_errors(wrong)[-1]
    smooth, G = (0.25 if loss == "logistic" else 0.0) * (sizes @ sizes), sizes.sum()
    worst = 4 * CR * G / np.sqrt(3 * t)
    assert (by_errors(means) <= worst).all()
    if smooth:
        worst = np.minimum(worst, (2 * CR * np.abs(means.gradients[0]).sum() + 4 * CR**2 * smooth) / (t * (t + 1)))
    assert (gap <= worst).all()
    theorem = bound_of("optimistic-averaging", ALGORITHMS["optimistic-averaging"].configuration({"R": R}))
    assert (np.cumsum(gap) <= theorem.value(t, {"G_1": G, "M": smooth})).all()
    assert (np.cumsum(worst) <= theorem.value(t, {"G_1": G, "M": smooth})).all()
    later = 10**6  # after which the bound says more than that 0 is not the minimum
    assert theorem.value(later, {"G_1": G, "M": smooth}) < later * gap[0]


BLOCKS = [(1, "consecutive"), (2, "consecutive"), (2, "random")]


@pytest.mark.parametrize(
    ("objective", "scale", "sample", "blocks"),
    covering(LOSSES, ["none", "max_abs"], ["uniform", "lipschitz"], BLOCKS),
)
def test_cao_rcd(objective: tuple[str, float], scale: str, sample: str, blocks: tuple[int, str]) -> None:
    """Theorem 7 and Corollaries 4 and 5 with no prediction, over |x_i| ≤ R or |x_i| ≤ R_i.

    A random partition is another one for every seed.
    """
    A, y = problem()
    A[:, 1] *= 0.1
    (loss, ratio), (batch, partition) = objective, blocks
    R, alpha, T = 2.0, 0.5, 60
    ranges = oracles.ranges_of(A, y, R, scale)
    H = Objective(A, y, loss, alpha, ratio)
    best, L = H.least(ranges), oracles.bounds_of(A, y, loss, ranges)
    entry = {"R": R, "predict_gradient": "none", "sample": sample, "partition": partition, "scale": scale}
    theorem = bound_of("cao-rcd", ALGORITHMS["cao-rcd"].configuration(entry), penalty_of(ratio))
    regret, bound = [], []
    for seed in range(SEEDS):
        order = oracles.permutation_of(len(L), seed) if partition == "random" else np.arange(len(L))
        parts, _ = oracles.chances_of(L, ranges, batch, sample, order)
        x: list[np.ndarray] = []
        p: list[np.ndarray] = []
        own = {"R": R, "alpha": alpha, "rounds": T // EPOCHS, "batch": batch, "partition": partition, "scale": scale}
        own |= {"loss": loss, "sample": sample, "predict_gradient": "none", "l1_ratio": ratio, "seed": seed}
        list(oracles.cao_rcd(A, y, SLOPES[loss], epochs=EPOCHS, played=x, chances=p, **own))
        played, chance = np.array(x), np.empty((EPOCHS, len(L)))
        chance[:, order] = np.repeat(p, [len(part) for part in parts], axis=1)
        chance = np.repeat(chance, T // EPOCHS, axis=0)
        g = H.slopes(played) @ A
        regret.append(float((H.values(played) - best).sum()))
        bound.append(float(4 * ranges @ np.sqrt((g**2 / chance).sum(axis=0))))
        sides = np.array([ranges[part].sum() for part in parts]) * [np.linalg.norm(L[part]) for part in parts]
        measured = {"RL": (sides ** (2 / 3)).sum(), "RL1": sides.sum(), "blocks": len(parts)}
        assert bound[-1] < theorem.value(T, measured)
    assert exceeds(regret, bound) < 0


# ----------------------------------------------------------------------------------------------------------------------
# The theorems of learners that play in a convex set, and what two of them lack as printed.


def play_of(name: str, X: np.ndarray, y: np.ndarray, loss: str, taught: float = 1.0, **entry: Any) -> Play:
    kind = "two classes" if loss == "logistic" else "numbers"
    return Play(name, X, fixed_labels(y), [entry], loss, taught=taught, kind=kind)


def best(play: Play, inside: Any, start: np.ndarray) -> np.ndarray:
    """The best point in hindsight of {x : inside(x) ≥ 0}."""

    def total(x: np.ndarray) -> float:
        return float(play.losses(x).mean())

    return minimize(total, start, method="SLSQP", constraints=inside, options={"ftol": 1e-12}).x


def stream(seed: int, T: int = 250, n: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Rows of norm 1 at most, labels ±1 by a model that changes sign twice."""
    rng = np.random.default_rng(seed)
    X = rng.choice([-1.0, 1.0], (T, n)) * rng.uniform(0.2, 1, (T, 1)) / np.sqrt(n)
    w = rng.normal(size=n) * np.where(np.arange(T) // (T // 3) == 1, -1, 1)[:, None]
    return X, np.sign((X * w).sum(axis=1) + 0.3 * rng.normal(size=T))


BALL = ({"type": "ineq", "fun": lambda x: 1.0 - x @ x},)
OCTAHEDRON = ({"type": "ineq", "fun": lambda x: 1.0 - np.abs(x).sum()},)
# D = 2 and rows of norm 1 at most: |z| ≤ 1, so exp(−α·loss) is concave for α = e⁻¹ (logistic) and ¼ (squared)
CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("ogd", "logistic", {"D": 2.0, "G": 1.0}),
    ("ogd", "squared", {"D": 2.0, "G": 2.0}),
    ("ons", "logistic", {"D": 2.0, "G": 1.0, "alpha": np.exp(-1)}),
    ("ons", "squared", {"D": 2.0, "G": 2.0, "alpha": 0.25}),
    ("ao-eg", "logistic", {"R": 1.0, "C": 1.0}),
    ("ao-eg", "squared", {"R": 1.0, "C": 0.01, "predict_gradient": "none"}),
]


@pytest.mark.formulas
@pytest.mark.parametrize(("name", "loss", "entry"), CASES)
@pytest.mark.parametrize("seed", range(2))
def test_regret_is_within_its_bound(name: str, loss: str, entry: dict[str, Any], seed: int) -> None:
    X, y = stream(seed)
    play = play_of(name, X, y, loss, **entry)
    rng = np.random.default_rng(seed)
    least = best(play, OCTAHEDRON if name == "ao-eg" else BALL, np.full(3, 0.1))
    for x in [least, -least, *rng.normal(size=(5, 3))]:
        inside = x / max(np.abs(x).sum() if name == "ao-eg" else np.linalg.norm(x), 1.0)
        assert (play.regret(0, inside) <= play.limit(0, inside)).all()
    assert play.limit(0, least)[-1] < 2.0 * len(X)  # and it says something


@pytest.mark.formulas
@pytest.mark.parametrize(("name", "entry"), [(name, entry) for name, loss, entry in CASES if loss == "logistic"])
def test_a_learner_with_a_wrong_sign_is_not(name: str, entry: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    X = np.eye(3)[rng.integers(0, 3, 700)]
    y = np.sign(X @ np.array([1.0, -1.0, 1.0]))
    play = play_of(name, X, y, "logistic", taught=-1.0, **entry)
    x = best(play, OCTAHEDRON if name == "ao-eg" else BALL, np.zeros(3))
    assert play.regret(0, x)[-1] > play.limit(0, x)[-1]


@pytest.mark.formulas
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), C=st.sampled_from([0.01, 1.0, 100.0]), predict=st.sampled_from(["last", "none"]))
def test_no_sequence_exceeds_the_bound_of_ao_eg(seed: int, C: float, predict: str) -> None:
    """Corollary 3 on linear losses of any size, at every corner of the simplex and every T; as printed, where C ≥ m."""
    rng = np.random.default_rng(seed)
    T, n = int(rng.integers(1, 60)), int(rng.integers(2, 6))
    X = rng.normal(size=(T, n)) * rng.choice([0.1, 1.0, 10.0]) + rng.normal(size=n)
    X = np.repeat(X, rng.integers(1, 4), axis=0)[:T]
    play = play_of("ao-eg", X, np.zeros(T), "return", domain="simplex", C=C, predict_gradient=predict)
    regret = np.max([play.regret(0, corner) for corner in np.eye(n)], axis=0)
    assert (regret <= play.limit(0, np.eye(n)[0]) * (1 + 1e-12)).all()
    miss = np.abs(play.g[:, :, 0] - play.predicted(0)).max(axis=1) ** 2
    printed = 2 * np.sqrt(2 * np.log(n) * (C + np.cumsum(miss) - miss))
    assert (regret <= np.where(np.maximum.accumulate(miss) <= C, printed, np.inf) * (1 + 1e-12)).all()


@pytest.mark.formulas
def test_corollary_3_takes_more_than_it_asks_for() -> None:
    """‖g_t‖ ≤ C = 100, one round: uniform shares of a loss (100, −100) have regret 100; printed is 2√(2·log 2·100)."""
    C, corner = 100.0, np.array([0.0, 1.0])
    play = play_of("ao-eg", np.array([[-100.0, 100.0]]), np.zeros(1), "return", domain="simplex", C=C)
    (regret,) = play.regret(0, corner)
    assert regret == pytest.approx(100.0)
    assert regret > 4 * 2 * np.sqrt(2 * np.log(2) * C)
    assert regret < play.limit(0, corner)[0] * 1.0001


@pytest.mark.formulas
def test_newton_steps_have_logarithmic_regret() -> None:
    """Universal portfolios: −log⟨w, x⟩ is 1-exp-concave. The bound grows by a constant while T is multiplied by 4."""
    rng = np.random.default_rng(1)
    T, n = 1600, 4
    X = np.exp(0.15 * rng.normal(size=(T, n)))
    G = float((np.linalg.norm(X, axis=1) / X.min(axis=1)).max())
    play = play_of("ons", X, np.zeros(T), "log_return", domain="simplex", G=G)
    sums = ({"type": "eq", "fun": lambda x: x.sum() - 1}, {"type": "ineq", "fun": lambda x: x})
    least = best(play, sums, np.full(n, 1 / n))
    limit = play.limit(0, least)
    for x in (least, *np.eye(n)):
        assert (play.regret(0, x) <= limit).all()
    beta = 0.5 / (4 * G * np.sqrt(2))
    assert limit[-1] - limit[T // 4 - 1] < n * np.log(4) / (2 * beta)


def printed_theorem_3_1(d: float, T: float, D: float, F: float, sigma: float) -> float:
    """6F·T^{2/3}·∛(15d²D·log T/r) + 5d/α·log T with its δ, on a ball of diameter D, r = D/2."""
    r, log = D / 2, np.log(T)
    delta = (25 * d**4 * D**2 * log**2 * r / (3 * T**2)) ** (1 / 3)
    alpha = sigma * delta**2 / (d * F) ** 2
    return float(6 * F * T ** (2 / 3) * (15 * d**2 * D * log / r) ** (1 / 3) + 5 * d / alpha * log)


def test_theorem_3_1_says_nothing() -> None:
    """Liu et al. 2019: more than 2FT, which no regret can pass, for every d and T; σ ≤ 16F/D² since |f| ≤ F.

    (f(u) + f(−u) − 2f(0) ≥ σ‖u‖² with ‖u‖ = D/2 is at most 4F.) What is called T^{2/3} grows as T^{4/3}.
    """
    for D, F in ((1.0, 1.0), (20.0, 3.0)):
        for d in (1, 2, 7, 33, 94, 10_000):
            for T in 10.0 ** np.arange(1, 40):
                assert printed_theorem_3_1(d, T, D, F, 16 * F / D**2) > 2 * F * T
    growth = printed_theorem_3_1(7, 1e33, 2.0, 1.0, 1.0) / printed_theorem_3_1(7, 1e30, 2.0, 1.0, 1.0)
    assert growth == pytest.approx(1e4, rel=0.1)


def expected_regret(learner: Learner, X: np.ndarray, y: np.ndarray, best: float) -> float:
    """Mean over configurations, which are repetitions, and three standard errors more."""
    return exceeds(learner.partial_fit(sp.csr_matrix(X), y).progress.loss_sum, best)


def test_onseg_in_expectation() -> None:
    """The mended Theorem 3.2, ½(x − y_t)² on [−1, 1]: 1-strongly convex, 2-Lipschitz, F = 2."""
    T, rng = 30_000, np.random.default_rng(0)
    y = np.where(rng.random(T) < 0.7, 1.0, -0.5)
    grid = [{"D": 2.0, "F": 2.0, "sigma": 1.0, "L": 2.0, "T": T, "delta": 0.1, "repetition": i} for i in range(12)]
    learner = Learner("onseg", loss="squared", grid=grid, n_features=1, n_classes=None)
    best = float((0.5 * (y.mean() - y) ** 2).sum())
    bound = bound_of("onseg", learner.configurations[0])
    assert bound.expected
    limit = float(bound.value(T, {"n": 1.0}))
    assert limit < 2 * 2.0 * T / 3
    assert expected_regret(learner, np.ones((T, 1)), y, best) < limit
    steep = bound_of("onseg", learner.configurations[0] | {"beta": 0.1})
    assert steep.value(T, {"n": 1.0}) == np.inf  # strong convexity does not pay for steps as small as these


def test_ogdeg_in_expectation() -> None:
    """Flaxman et al.'s bound for logistic losses of rows of norm 1 at most, which are 1-Lipschitz."""
    T, F = 30_000, float(np.log1p(np.e))
    X, y = stream(4, T)
    grid = [{"D": 2.0, "F": F, "L": 1.0, "T": T, "repetition": i} for i in range(12)]
    learner = Learner("ogdeg", loss="logistic", grid=grid, n_features=3)

    def total(x: np.ndarray) -> float:
        return float(np.logaddexp(0, -y * (X @ x)).sum())

    best = minimize(total, np.zeros(3), method="SLSQP", constraints=BALL).fun

    def limit(**entry: float) -> float:
        return float(bound_of("ogdeg", learner.configurations[0] | entry).value(T, {"n": 3.0}))

    assert limit() < F * T
    assert expected_regret(learner, X, y, best) < limit()
    for delta in (0.05, 0.2):
        assert limit(delta=delta, gamma=delta) > limit()  # what is computed is the least


@pytest.mark.parametrize("domain", ["ball", "l1"])
def test_two_points_in_expectation(domain: str) -> None:
    """½(x_i − y_t)² of each coordinate in turn, |y_t| ≤ 1: 2-Lipschitz. The best point is inside the set."""
    T, n = 6_000, 5
    X = np.eye(n)[np.arange(T) % n]
    y = np.random.default_rng(3).choice([-1.0, 1.0], T) * 2.0 ** -(np.arange(T) % n)
    grid = [{"domain": domain, "D": 2.0, "L": 2.0, "T": T, "repetition": i} for i in range(12)]
    learner = Learner("two-point", loss="squared", grid=grid, n_features=n, n_classes=None)
    means = [y[i::n].mean() for i in range(n)]
    assert np.abs(means).sum() < 1
    best = float(sum(0.5 * ((y[i::n] - mean) ** 2).sum() for i, mean in enumerate(means)))
    limit = float(bound_of("two-point", learner.configurations[0]).value(T, {"n": float(n)}))
    assert limit < 2.0 * T / 5  # of losses up to 2
    assert 0 < expected_regret(learner, X, y, best) < limit
