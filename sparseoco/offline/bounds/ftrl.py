"""Bounds on the regret of adaptive FTRL (Mohri and Yang 2015, Theorems 1 to 6): the CAO-FTRL family and adagrad.

They are as printed if that holds. What does not (counterexamples are in tests/bounds):

- Theorems 3 to 6 have ψ_{1:T−1}(x) in their first halves, of regret without ψ, and Theorems 3 and 5 the norm of h_{0:t}
  in their second: the proofs take ψ_{1:t} for the ψ_{1:t+1} of the update. With ψ_{1:T}(x), and the norm of
  h_{0:t−1} + r_t, which lacks ψ_{t+1}, they hold. The first halves then follow from Theorem 4's second and ψ ≥ 0.
  Bounds here are of second halves, since regret is measured with ψ.
- §2.1: r ≡ 0 for strongly convex f_t needs their strongly convex part in h; it is the penalty here.
- Corollary 1.2 puts AdaGrad's regularizer, centred at 0, into Theorem 3, which needs r_t to be least at x_t; Theorem 4
  applies instead, with the norm of t−1 (its second bound has (t), unlike its proof and Theorem 6). The sum of
  g²/(δ + ‖g_{1:t−1}‖₂) is at most 2·max(1, G∞/δ)·‖g_{1:T}‖₂, so the bound is meaningful only if δ is of the size of the
  gradients.

With a `schedule` of penalties α_tψ the bounds are the same but where ψ is the regularizer. adagrad's x_{t+1} has
α_{1:t}ψ, so its ψ_{t+1} is α_tψ; as α_t does not grow, regret with α_tψ in round t is no larger.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sparseoco.offline.bounds.definition import Bound, NoBound, box_radius, convexity


def adaptive(
    proximal: str, centred: str = "", expected: bool = False
) -> Callable[[Mapping[str, Any], str], Bound | NoBound]:
    """Per coordinate, R = R_i: r_{0:T}(x) ≤ 2RΔ_T and Σ_t (g_t − g̃_t)²·R/Δ_t ≤ 2RΔ_T, if it is around the iterates.

    Around 0: r_{0:T}(x) ≤ RΔ_T/2, and a step is at most 2R as well, so that round t costs at most
    R·min(u²/Δ_{t−1}, 2u) ≤ (1 + √5)R(Δ_t − Δ_{t−1}), u = |g_t − g̃_t|. In all less than 4RΔ_T.
    """

    def theorem(configuration: Mapping[str, Any], penalty: str) -> Bound | NoBound:
        R, regularizer = float(configuration["R"]), configuration.get("regularizer", "proximal")
        strength = convexity(configuration, penalty)
        if regularizer == "none" and strength > 0:
            return _strongly_convex(configuration, strength)
        ranges = "4R Σ_i" if configuration.get("scale", "none") == "none" else "4 Σ_i R_i"
        formula = f"{ranges} √(Σ_t (g_{{t,i}} − g̃_{{t,i}})²)"
        name = f"Mohri and Yang 2015, {centred if regularizer == 'centred' else proximal}"
        return Bound(name, formula, ("Delta",), lambda T, q: 4 * R * q["Delta"] + 0 * T, radius=R, expected=expected)

    return theorem


_SERIES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "constant": ("(1 + log T)", lambda T: 1 + np.log(T)),
    "sqrt": ("2√T", lambda T: 2 * np.sqrt(T)),
    "first": ("T", lambda T: T),
}
"""By `schedule`: at least Σ_{t≤T} 1/Σ_{s≤t} α_s, for penalties α_tψ."""


def _strongly_convex(configuration: Mapping[str, Any], strength: float) -> Bound:
    """Σ_t ‖g_t − g̃_t‖²/(α_{1:t}λ(1 − ρ)): h_{0:t−1} has the penalties ψ_{1:t}; an intercept has none and keeps 4RΔ.

    With sampled rows E ĝ² = g²/q ≤ G∞²/keep, of the predictions as well: q_t is keep, or keep·L_t/L̄_t with |g| ≤ L_t
    and L̄_t ≤ G∞.
    """
    R, missed, keep = float(configuration["R"]), _missed(configuration), configuration.get("keep")
    series, total = _SERIES[configuration.get("schedule", "constant")]
    square = f"{'' if missed == 1.0 else '4'}G∞²" + ("" if keep is None else "/keep")
    factor = missed**2 / strength / (keep or 1.0)
    return Bound(
        f"Mohri and Yang 2015, Theorem {'4' if keep is None else '6'} with r ≡ 0",
        f"n·{square}·{series}/(λ(1 − ρ)) + 4RΔ of the intercept, ρ = 0 for l2",
        ("penalised", "G_inf", "Delta_b"),
        lambda T, q: q["penalised"] * q["G_inf"] ** 2 * factor * total(T) + 4 * R * q["Delta_b"],
        radius=R,
        expected=keep is not None,
        note="An intercept has no penalty and keeps the regularizer around the iterates.",
    )


def adagrad(configuration: Mapping[str, Any], penalty: str) -> Bound:
    """r_{0:T}(x) + Σ_t ‖g_t − g̃_t‖²_{(t−1),*} with r_{0:t}(x) = Σ_i (δ + ‖(g − g̃)_{1:t,i}‖₂)x_i²/(2·eta)."""
    eta, delta, missed = configuration["eta"], configuration["delta"], _missed(configuration)
    norm, most = ("g_{1:T,i}", "G∞") if missed == 1.0 else ("(g − g̃)_{1:T,i}", "2G∞")
    return Bound(
        "Mohri and Yang 2015, Corollary 1.2 by Theorem 4",
        f"Σ_i (δ + ‖{norm}‖₂)x_i²/(2η) + 2η·max(1, {most}/δ)·Σ_i ‖{norm}‖₂, η = eta",
        ("x_root", "root", "G_inf"),
        lambda T, q: (
            q["x_root"] / (2 * eta) + 2 * eta * np.maximum(1.0, missed * q["G_inf"] / delta) * q["root"] + 0 * T
        ),
        radius=box_radius(configuration, penalty),
        note="With delta far below the largest gradient the bound is trivial.",
    )


def _missed(configuration: Mapping[str, Any]) -> float:
    """Largest |g_{t,i} − g̃_{t,i}| over G∞: predictions are past gradients, or means of some."""
    return 1.0 if configuration.get("predict_gradient", "none") == "none" else 2.0
