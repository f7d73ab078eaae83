"""The theorems of learners that play in a convex set, which `regret` does not measure."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sparseoco.learners.ons import Terms, bandit_terms, diameter, ons_numbers
from sparseoco.offline.bounds import Bound, Floats, Measured

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
    "ao-eg": ao_eg,
}
