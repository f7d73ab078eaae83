"""Theorem 2 of Togari and Yamashita 2016: the objective of the mean of the iterates, for examples drawn from a set."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sparseoco.offline.bounds import Bound
from tests.bounds.play import Play, bound_of, fixed_labels

pytestmark = pytest.mark.formulas

ERRORS = 3.0
"""Standard errors to spare."""
MODEL = np.array([1.0, -1.0, 0.5, 0.0])


def mean_bound(values: dict[str, Any], penalty: str) -> Bound:
    """The bound on E F(x̄_T) − F(x), F(x) = E f_t(x) + ψ(x), for examples drawn independently of each other.

    The theorem has a limit and no rate, and its φ is the mean over the T examples that x̄_T is learned from.
    As in Xiao (2010), whose proof Theorem 2 follows, F is the expected objective, (40), E F(x_t) =
    E[f_t(x_t) + ψ(x_t)], and by convexity E F(x̄_T) − F(x) ≤ E Reg_T(x)/T. The quantities are of the iterates.
    """
    bound = bound_of("cl-fobos", values, penalty)
    return replace(bound, compute=lambda T, q: bound.compute(T, q) / T)


class Problem:
    """Examples (m, n), and draws of T of them."""

    def __init__(self, seed: int, penalty: str = "l1", noise: float = 1.0) -> None:
        self.rng = np.random.default_rng(seed)
        self.X = self.rng.normal(size=(40, 4)) * (self.rng.random((40, 4)) < 0.7)
        self.y = np.where(self.X @ MODEL + noise * self.rng.normal(size=40) > 0, 1.0, -1.0)
        self.penalty = penalty

    def objective(self, x: np.ndarray, lam: float) -> float:
        psi = np.abs(x).sum() if self.penalty == "l1" else (x**2).sum() / 2
        return float(np.logaddexp(0.0, -self.y * (self.X @ x)).mean() + lam * psi)

    def play(self, T: int, values: dict[str, Any], taught: float = 1.0) -> Play:
        drawn = self.rng.integers(0, len(self.y), T)
        return Play("cl-fobos", self.X[drawn], fixed_labels(self.y[drawn]), [values], "logistic", self.penalty, taught)


def over(
    problem: Problem, T: int, values: dict[str, Any], x: np.ndarray, taught: float = 1.0, draws: int = 8
) -> tuple[Any, Any]:
    """F(x̄_T) − F(x) less its bound, and F(x̄_T) − R̄(T), of each draw."""
    bound = mean_bound(values, problem.penalty)
    excess, gap = [], []
    for _ in range(draws):
        play = problem.play(T, values, taught)
        of_mean = problem.objective(play.W[:, :, 0].mean(axis=0), values["lam"])
        limit = bound.value(T, {name: value[-1] for name, value in play.quantities(0, x).items()})
        excess.append(of_mean - problem.objective(x, values["lam"]) - limit)
        gap.append(of_mean - play.incurred(0)[-1] / T)
    return np.array(excess), np.array(gap)


def spare(values: np.ndarray) -> float:
    return float(ERRORS * values.std(ddof=1) / np.sqrt(len(values)))


@pytest.mark.parametrize(
    ("penalty", "values"),
    [("l1", {"eta0": 0.5, "lam": 0.02}), ("l2", {"eta0": 2.0, "lam": 0.5, "step": "inverse"})],
)
def test_the_mean_is_within_its_bound(penalty: str, values: dict[str, Any]) -> None:
    problem = Problem(1, penalty)
    for T in (1, 40):
        excess, gap = over(problem, T, values, np.array([0.8, -0.8, 0.4, 0.0]))
        assert excess.mean() + spare(excess) < 0
    assert gap.mean() < spare(gap)  # E F(x̄_T) ≤ E R̄(T), from which it follows


def test_the_mean_of_what_learns_from_wrong_labels_is_not() -> None:
    excess, _ = over(Problem(2, noise=0.0), 900, {"eta0": 0.4, "lam": 0.0}, MODEL / 2, taught=-1.0, draws=4)
    assert excess.mean() - spare(excess) > 0
