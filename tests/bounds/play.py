"""A learner played row by row against a stream, densely: its losses, and the quantities of its theorem, at every T."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

from sparseoco.learners.ons import Terms, bandit_terms, diameter, ons_numbers
from sparseoco.offline.bounds import Bound, Floats, Measured, NoBound, regret_bound
from sparseoco.training.learner import Learner
from tests.oracles.ftrl import penalty_totals, ranges, share_of_l1
from tests.oracles.losses import KINDS, SLOPES, VALUES

Adversary = Callable[[int, float], float]
"""``(t, margin) -> y``: the label ±1 of row t, revealed after the margin of the first configuration."""


def against(t: int, margin: float) -> float:
    """The wrong label, or at 0 each in turn."""
    return -np.sign(margin) if margin else 1.0 - 2.0 * (t % 2)


def fixed_labels(y: Sequence[float]) -> Adversary:
    """Given labels."""
    return lambda t, margin: float(y[t])


def any_bound(algorithm: str, configuration: dict[str, Any], penalty: str) -> Bound | NoBound:
    """The bound of a learner with a penalty or in a convex set."""
    own = THEOREMS.get(algorithm)
    return regret_bound(algorithm, configuration, penalty) if own is None else own(configuration)


def bound_of(algorithm: str, configuration: dict[str, Any], penalty: str = "l1") -> Bound:
    """The bound of a learner that has one."""
    bound = any_bound(algorithm, configuration, penalty)
    assert isinstance(bound, Bound), bound
    return bound


class Play:
    """T rounds of a grid of configurations, C columns.

    W (T, n, C) : w_t, which predicts row t; g (T, n, C) : its gradients; h (T, n, C) : h_t after row t, or None.
    """

    def __init__(
        self,
        algorithm: str,
        X: np.ndarray,
        adversary: Adversary,
        grid: Sequence[dict[str, Any]],
        loss: str = "hinge",
        penalty: str = "l1",
        taught: float = 1.0,
        kind: str = "two classes",
    ) -> None:
        """`taught` = −1 learns from labels turned round."""
        T, n = X.shape
        self.X, self.loss, self.penalty = X, loss, penalty
        self.learner = Learner(algorithm, loss=loss, penalty=penalty, grid=grid, n_features=n, **KINDS[kind][1])
        self.configurations = self.learner.configurations
        C = len(self.configurations)
        self.bounds: list[Bound | NoBound] = [any_bound(algorithm, c, penalty) for c in self.configurations]
        self.lam = np.array([c.get("lam", 0.0) for c in self.configurations])
        totals = [penalty_totals(c.get("schedule", "constant"))[: T + 1] for c in self.configurations]
        self.alpha = np.diff(totals, axis=1).T  # (T, C): α_t of the penalties α_tψ
        self.W, self.g, self.y = np.zeros((T, n, C)), np.zeros((T, n, C)), np.zeros(T)
        thresholds = self.learner.thresholds_of(0) is not None
        self.h = np.ones((T, n, C))
        for t, x in enumerate(X):
            self.W[t] = self.learner.weights()
            margins = x @ self.W[t]
            self.y[t] = adversary(t, margins[0])
            self.g[t] = x[:, None] * SLOPES[loss](margins, self.y[t])
            label, present = taught * self.y[t], np.flatnonzero(x)
            own = label if kind == "numbers" else float(label > 0)
            self.learner.learn_rows(np.array([0, present.size]), present, x[present], np.array([own]))
            if thresholds:
                self.h[t] = np.hstack([self.learner.thresholds_of(c) for c in range(C)])
        self.own_history = thresholds

    def psi(self, weights: np.ndarray, c: int) -> np.ndarray:
        """ψ_t(w) of every round (T,), for weights (n,) or (T, n)."""
        ratio = self.l1_ratio(c)
        absolute = (self.h[:, :, c] * np.abs(weights)).sum(axis=1)
        return self.lam[c] * self.alpha[:, c] * (ratio * absolute + (1 - ratio) * (weights**2).sum(axis=-1) / 2)

    def l1_ratio(self, c: int) -> float:
        """ρ: 1 for l1, 0 for l2."""
        return float(share_of_l1(self.penalty, self.configurations[c].get("l1_ratio", 1.0)))

    def losses(self, weights: np.ndarray) -> np.ndarray:
        """f_t(w) of every round (T,), for weights (n,) or (T, n)."""
        return np.asarray(VALUES[self.loss]((self.X * weights).sum(axis=1), self.y))

    def regret(self, c: int, x: np.ndarray) -> np.ndarray:
        """Reg_T(x) for T = 1 … (T,)."""
        return self.incurred(c) - self.objective(c, x)

    def incurred(self, c: int) -> np.ndarray:
        """Σ_{t≤T} f_t(w_t) + ψ_t(w_t) for T = 1 … (T,)."""
        w = self.W[:, :, c]
        return np.cumsum(self.losses(w) + self.psi(w, c))

    def objective(self, c: int, x: np.ndarray) -> np.ndarray:
        """Σ_{t≤T} f_t(x) + ψ_t(x) for T = 1 … (T,)."""
        return np.cumsum(self.losses(x) + self.psi(x, c))

    def optimum(self, c: int, rounds: int | None = None) -> np.ndarray:
        """argmin of Σ_t f_t + ψ_t over the first rounds, in the box if the theorem has one: hinge and l1, by HiGHS."""
        T, n = rounds or len(self.X), self.X.shape[1]
        signed = self.y[:T, None] * self.X[:T]
        weight = self.lam[c] * (self.alpha[:T, c, None] * self.h[:T, :, c]).sum(axis=0)
        sides = self.radius(c)
        cost = np.concatenate([weight, weight, np.ones(T)])
        rows = sp.hstack([sp.csr_matrix(-signed), sp.csr_matrix(signed), -sp.eye_array(T)])
        found = linprog(cost, rows, -np.ones(T), bounds=[(0, side) for side in (*sides, *sides)] + [(0, None)] * T)
        return np.array(found.x[:n] - found.x[n : 2 * n])

    def radius(self, c: int, otherwise: float = 1e3) -> np.ndarray:
        """R_i of the theorem's box (n,)."""
        bound = self.bounds[c]
        R = bound.radius if isinstance(bound, Bound) and bound.radius is not None else otherwise
        return R * self.scale(c)

    def scale(self, c: int) -> np.ndarray:
        """R_i/R (n,)."""
        return ranges(self.X, 1.0, self.configurations[c].get("scale", "none"))

    def quantities(self, c: int, x: np.ndarray) -> dict[str, np.ndarray]:
        """`sparseoco.offline.bounds.QUANTITIES` at T = 1 …, each from its definition."""
        W, g, h, lam = self.W[:, :, c], self.g[:, :, c], self.h[:, :, c], self.lam[c]
        T, n = self.X.shape
        most = np.maximum.accumulate
        configuration = self.configurations[c]
        missed = g - self.predicted(c)
        roots, miss = np.sqrt(np.cumsum(missed**2, axis=0)), np.abs(missed).max(axis=1) ** 2
        seen = (np.cumsum(self.X != 0, axis=0) > 0).sum(axis=1)
        sleeps = np.ones(T)
        psi, psi_x = lam * np.abs(W), lam * np.abs(x)
        ratio = self.l1_ratio(c)
        U = lam * (ratio * np.sqrt(seen) + (1 - ratio) * most(np.linalg.norm(W, axis=1)))
        if self.own_history:
            U = lam * np.linalg.norm(h, axis=1)
        if self.learner.algorithm == "cl-fobos":
            sleeps, charges = self.sleeps_and_charges(c)
            if self.penalty == "l1":
                U = most(lam * np.linalg.norm(charges, axis=1))
        return {
            "D": most(np.linalg.norm(W - x, axis=1)),
            "D_b": np.zeros(T),
            "x": np.full(T, np.linalg.norm(x)),
            "G": most(np.linalg.norm(g, axis=1)),
            "G_inf": most(np.abs(g).max(axis=1)),
            "U": U,
            "K": sleeps,
            "spread": most(np.abs(psi - psi_x).sum(axis=1)),
            "S": most(psi.max(axis=1)),
            "n": np.full(T, float(n)),
            "peak": lam * (h * most(np.abs(W))).sum(axis=1),
            "Delta": (roots * self.scale(c)).sum(axis=1),
            "Delta_b": np.zeros(T),
            "penalised": np.full(T, float(n)),
            "root": roots.sum(axis=1),
            "missed": np.cumsum(miss),
            "miss": most(miss),
            "x_root": ((configuration.get("delta", 0.0) + roots) * x**2).sum(axis=1),
        }

    def sleeps_and_charges(self, c: int) -> tuple[np.ndarray, np.ndarray]:
        """K (T,), and (Σ η since the last update)/η_t of the coordinates updated (T, n)."""
        T, n = self.X.shape
        last, longest = np.zeros(n), 0.0
        K, charges = np.zeros(T), np.zeros((T, n))
        for t in range(1, T + 1):
            updated = self.g[t - 1, :, c] != 0
            longest = max(longest, (t - last)[updated].max(initial=0.0))
            for i in np.flatnonzero(updated):
                charges[t - 1, i] = np.sqrt(t) * (1 / np.sqrt(np.arange(last[i] + 1, t + 1))).sum()
            last[updated] = t
            K[t - 1] = max(longest, (t - last)[last > 0].max(initial=1.0))
        return K, charges

    def predicted(self, c: int) -> np.ndarray:
        """g̃_t (T, n)."""
        g = self.g[:, :, c]
        predict = {"ao-gd": "last"}.get(self.learner.algorithm, self.configurations[c].get("predict_gradient", "none"))
        if predict == "none":
            return np.zeros_like(g)
        before = np.vstack([np.zeros_like(g[:1]), g[:-1]])
        if predict == "last":
            return before
        rows_seen = np.cumsum(np.vstack([np.zeros_like(g[:1]), self.X[:-1] != 0]), axis=0)
        return np.where(self.X != 0, np.cumsum(before, axis=0) / np.maximum(rows_seen, 1), 0.0)

    def bound(self, c: int = 0) -> Bound:
        """The theorem's."""
        return bound_of(self.learner.algorithm, self.configurations[c], self.penalty)

    def limit(self, c: int, x: np.ndarray) -> np.ndarray:
        """The bound at T = 1 … (T,)."""
        return self.bound(c).value(np.arange(1, len(self.X) + 1), self.quantities(c, x))

    def over(self, c: int, x: np.ndarray) -> float:
        """The most that regret is over its bound, relative to what was incurred."""
        return float((self.regret(c, x) - self.limit(c, x)).max() / (1 + abs(self.incurred(c)[-1])))


# ----------------------------------------------------------------------------------------------------------------------
# The theorems of learners that play in a convex set, which `regret` does not measure.


# Bounds on the regret of dense learners against the best point x of their set P.
#
# For bandits they bound the expected regret for a fixed sequence of losses: E over the directions of
# Σ_t f_t(x_t) − f_t(x), for |f_t| ≤ F in P. Bounds are as printed in the papers if they hold. Those that do not:
#
# - Mohri and Yang 2015, Corollary 3 assumes ‖g_t‖ ≤ C, but its proof uses ‖g_t − g̃_t‖∞² ≤ C: under the former a single
#   round can exceed the bound (tests/bounds). If C is less than the largest, m, the sum of ‖g_t − g̃_t‖²/√(C + Σ_{s<t})
#   is larger by a factor of at most √(m/C), which is included here.
# - Liu et al. 2019, Theorem 3.1, is trivial as printed: α = σδ²/(d²F²) with its δ makes 5d/α·log T grow as T^{4/3}, not
#   T^{2/3}, and on a ball the right-hand side exceeds 2FT for every d, T and every σ compatible with |f_t| ≤ F
#   (tests/bounds). Theorem 3.2's α has the same δ². The proof also has a gap: it uses the curvature β/2·(∇_tᵀ(y_t −
#   y*))² of f̂_t, while A_t costs β/2·(g_tᵀ(y_t − y*))², whose mean is larger by the noise of g_t. That mean is at most
#   β/2·dF²/δ²·‖y_t − y*‖², which strong convexity compensates if β ≤ σδ²/(dF²). So the closest true form is for
#   σ-strongly convex f_t, with the sum in the proof before rounding up:
#
#       (d·log(1 + dF²β²D²T/δ²) + 1)/(2β) + 3LδT + 2γFT,    L = 2F/(γr) where no constant is known,
#
#   of order T^{4/5} with the best δ and γ, and T^{2/3} for L-Lipschitz losses. Squared and logistic losses of one
#   margin are not strongly convex in more than one dimension, nor are their averages f̂, so no theorem covers those
#   experiments.
# - Flaxman, Kalai and McMahan 2005, Theorem 1 has a constant step; for D/(F√t) Zinkevich's sum is 1.5 times as large.


def ogd(configuration: Mapping[str, Any]) -> Bound:
    """D²/(2η_T) + ½Σ η_t‖g_t‖², η_t = D/(G√t)."""
    D, G = diameter(configuration), configuration["G"]
    return Bound(
        "Zinkevich 2003, Theorem 1",
        "(G/2 + ‖g‖²/G)·D√T, ‖g‖ the largest of ‖g_t‖",
        ("G",),
        lambda T, q: (G / 2 + q["G"] ** 2 / G) * D * np.sqrt(T),
    )


def ons(configuration: Mapping[str, Any]) -> Bound:
    """(Σ g_tᵀA_t⁻¹g_t)/(2β) + βεD²/2, where the sum is at most log(det A_T/det A_0) ≤ n·log(1 + G²T/(nε))."""
    D, beta = diameter(configuration), 1.0 / ons_numbers(configuration, 1).rate

    def compute(T: Floats, q: Measured) -> Floats:
        value = (q["n"] * np.log1p((q["G"] * beta * D) ** 2 * T / q["n"]) + 1.0) / (2.0 * beta)
        return np.where(8.0 * beta * q["G"] * D <= 1.0 + 1e-12, value, np.inf)

    return Bound(
        "Hazan, Agarwal and Kale 2007, Theorem 2",
        "(n·log(1 + β²D²G²T/n) + 1)/(2β), for β ≤ ½·min{1/(4GD), α}",
        ("n", "G"),
        compute,
        note="For 2β-exp-concave losses; the paper rounds it up to 5(1/α + GD)·n·log T.",
    )


def _perturbation_cost(configuration: Mapping[str, Any], T: Floats, it: Terms) -> Floats:
    """3LδT + 2γFT: the cost of playing x_t instead of y_t, of f̂ instead of f, and of the shrunk set."""
    F = configuration["F"]
    L = configuration["L"] or 2.0 * F / (it.gamma * it.r)
    return np.asarray(3.0 * L * it.delta * T + 2.0 * it.gamma * F * T)


def ogdeg(configuration: Mapping[str, Any]) -> Bound:
    """`ogd` with ‖g_t‖ ≤ G = mF/δ, for f̂_t on the shrunk set, plus `_perturbation_cost`."""

    def compute(T: Floats, q: Measured) -> Floats:
        it = bandit_terms(configuration, int(np.max(q["n"])))
        steps = 1.5 * it.D * it.m * configuration["F"] / it.delta * np.sqrt(T)
        return np.asarray(steps + _perturbation_cost(configuration, T, it))

    return Bound(
        "Flaxman, Kalai and McMahan 2005, Theorems 1 and 2",
        "3mDF√T/(2δ) + 3LδT + 2γFT, L = 2F/(γr) where none is known",
        ("n",),
        compute,
        expected=True,
        note="The first term is 1.5 times the paper's, for steps D/(F√t).",
    )


def two_point(configuration: Mapping[str, Any]) -> Bound:
    """`ogd` with E‖g_t‖² ≤ G², for f̂_t on the shrunk set, and 3δ + γD for points played, f̂ and the shrunk set."""

    def compute(T: Floats, q: Measured) -> Floats:
        it, L = bandit_terms(configuration, int(np.max(q["n"]))), configuration["L"]
        G = L * it.m / np.sqrt(max(it.m - 1, 1))
        return np.asarray(1.5 * G * it.D * np.sqrt(T) + (3.0 * it.delta + it.gamma * it.D) * L * T)

    return Bound(
        "Agarwal, Dekel and Xiao 2010; Shamir 2017",
        "3GD√T/2 + (3δ + γD)LT, G = Lm/√(m − 1)",
        ("n",),
        compute,
        expected=True,
        note="The bound of the variance is that of Poincaré's inequality on the sphere, with its constant.",
    )


def onseg(configuration: Mapping[str, Any]) -> Bound:
    """`ons` with ‖g_t‖ ≤ mF/δ, if strong convexity compensates the noise of g_t."""
    F, sigma = configuration["F"], configuration["sigma"]

    def compute(T: Floats, q: Measured) -> Floats:
        it = bandit_terms(configuration, int(np.max(q["n"])))
        if it.beta > sigma * it.delta**2 / (it.m * F * F):
            return np.full_like(T, np.inf)
        inside = it.m * (F * it.beta * it.D / it.delta) ** 2 * T
        steps = (it.m * np.log1p(inside) + 1.0) / (2.0 * it.beta)
        return np.asarray(steps + _perturbation_cost(configuration, T, it))

    return Bound(
        "Liu et al. 2019, Theorems 3.1 and 3.2, corrected",
        "(m·log(1 + mF²β²D²T/δ²) + 1)/(2β) + 3LδT + 2γFT, L = 2F/(γr) where none is known, for β ≤ σδ²/(mF²)",
        ("n",),
        compute,
        expected=True,
        note="For σ-strongly convex losses only. As printed the theorems are trivial: their bounds exceed 2FT.",
    )


def ao_eg(configuration: Mapping[str, Any]) -> Bound:
    """r_{0:T}(x) + Σ_t ‖g_t − g̃_t‖²_{(t−1),*}."""
    C, l1 = configuration["C"], configuration["domain"] == "l1"
    width, halves = (configuration["R"] ** 2, 2.0) if l1 else (1.0, 1.0)

    def compute(T: Floats, q: Measured) -> Floats:
        S, m = width * q["missed"], width * q["miss"]
        value = np.sqrt(C + S) + np.maximum(1.0, np.sqrt(m / C)) * np.sqrt(S)
        return np.asarray(np.sqrt(2.0 * np.log(halves * q["n"])) * value + 0 * T)

    return Bound(
        "Mohri and Yang 2015, Corollary 3",
        "√(2 log n)·(√(C + S) + max(1, √(m/C))·√S), S = Σ_t ‖g_t − g̃_t‖∞², m the largest of them"
        + ("; 2n for n, and g of R(g, −g)" if l1 else ""),
        ("n", "missed", "miss"),
        compute,
        note="At most the paper's 2√(2 log n·(C + S)) if C ≥ m, which the paper does not require.",
    )


THEOREMS: dict[str, Callable[[Mapping[str, Any]], Bound]] = {
    "ogd": ogd,
    "ons": ons,
    "ogdeg": ogdeg,
    "onseg": onseg,
    "two-point": two_point,
    "ao-eg": ao_eg,
}
