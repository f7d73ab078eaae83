"""Bounds on the expected regret of epoch methods: caos-erm and cao-rcd.

Mohri and Yang 2015, Theorem 7 and Corollaries 4 to 7 (cao-rcd, caos-erm): the prediction of a round depends on its
draw, hence so does x_t, and E[ĝ_t | x_t] = g_t, which Theorem 5 needs, fails; regret exceeds the first bound of
Corollary 6 if gradients are noisy and well predicted (tests/bounds), and its worst case is not proved. Line 9 of
Algorithm 4 as printed (caos-erm with predict_gradient = previous) predicts by the draw before: estimates are unbiased
and the worst case of Corollaries 6 and 7 holds. Their first bound does not: its terms g_t^j − ḡ_s^j are of one example
and 0 for linear losses, ĝ_t − g̃_t is of two. With a prediction g̃_t of the whole gradient (ḡ_s = Σ_j ḡ_s^j for
caos-erm) and ĝ_t = g̃_t + (drawn gradient − its prediction)/p, ĝ_t − g̃_t is that of the corollaries and the bounds are
proved. Corollary 4 uses |g − L/2| ≤ L/2, which holds for 0 ≤ g ≤ L; for |g| ≤ L it is 3L/2, three times the bound; the
prediction 0 is better, with twice.

With unbiased estimates, by Theorem 5 and Jensen's inequality,

    E[Reg_T] ≤ E[4 Σ_i R_iΔ_{T,i}] ≤ 4 Σ_i R_i √(Σ_t E(ĝ_{t,i} − g̃_{t,i})²),

the last one being the data-dependent bound of Theorem 7 (E ĝ_i² = E g_i²/p_i) and, for corrected estimates, of
Corollaries 6 and 7. It is a mean over runs and the whole gradients of their rounds, which no run computes, so the
bounds here are its worst cases, functions of L. What a run has is one sample of 4 Σ_i R_iΔ_{T,i}.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from sparseoco.offline.bounds.definition import Bound, NoBound


def caos_erm(configuration: Mapping[str, Any], penalty: str) -> Bound | NoBound:
    """4R Σ_i √(Σ_t E(ĝ_{t,i} − g̃_{t,i})²), F = Σ_j f_j in every round; l mini-batches Π of at most b examples.

    E(ĝ − g̃)² ≤ Σ_Π (2L_Π)²/p_Π, L_Π = Σ_{j∈Π} L_j: with corrected estimates ĝ − g̃ is a draw's change since the pass,
    at most 2L_Π/p_Π; with the previous round's prediction it is the difference of two draws of at most L_Π/p_Π, and
    (a − b)² ≤ 2a² + 2b². p_Π = 1/l gives l·Σ_Π L_Π² ≤ l·b·Σ_j L_j².
    """
    if configuration["placement"] != "serial":
        return NoBound("The corollaries are for sequential rounds, placement='serial'.")
    previous = configuration["predict_gradient"] == "previous"
    if configuration["estimate"] != "corrected" and not previous:
        return NoBound(
            "With estimate='sampled' and predict_gradient='next' the prediction depends on the draw and gradients are "
            "biased, so Corollary 6 does not hold; it does with estimate='corrected', and its worst case with "
            "predict_gradient='previous'."
        )
    R, batch = float(configuration["R"]), int(configuration["batch"])
    note = "For the T iterates x_t of the rounds, with f_t = Σ_j f_j in every round."
    if previous:
        note += " As printed, the prediction is of the previous round's draw: the corollaries' terms do not bound Δ."
    if configuration["sample"] == "uniform":
        return Bound(
            "Mohri and Yang 2015, Corollaries 6 and 7 with equal probabilities",
            "8nR√(T·l·b·Σ_j L_j²), l mini-batches of b = batch examples",
            ("n", "L2", "blocks"),
            lambda T, q: 8 * q["n"] * R * np.sqrt(T * q["blocks"] * batch * q["L2"]),
            radius=R,
            expected=True,
            note=note,
        )
    return Bound(
        "Mohri and Yang 2015, Corollaries 6 and 7",
        "8nR√T·Σ_j L_j",
        ("n", "L"),
        lambda T, q: 8 * q["n"] * R * np.sqrt(T) * q["L"],
        radius=R,
        expected=True,
        note=note,
    )


def cao_rcd(configuration: Mapping[str, Any], penalty: str) -> Bound | NoBound:
    """4 Σ_i R_i √(T·L_i²/p_i), p ∝ (R_i L_i)^{2/3} or 1/n."""
    prediction = configuration["predict_gradient"]
    if prediction != "none":
        return NoBound(
            f"With predict_gradient={prediction!r} the prediction depends on the draw and gradients are biased, "
            "so Theorem 7 does not hold; it does with predict_gradient='none'."
        )
    R = float(configuration["R"])
    if configuration["sample"] == "uniform":
        return Bound(
            "Mohri and Yang 2015, Theorem 7 with equal chances",
            "4√(nT)·Σ_i R_i L_i",
            ("blocks", "RL1"),
            lambda T, q: 4 * np.sqrt(q["blocks"] * T) * q["RL1"],
            radius=R,
            expected=True,
        )
    return Bound(
        "Mohri and Yang 2015, Theorem 7, Corollaries 4 and 5 without a prediction",
        "4√T·(Σ_i (R_i L_i)^{2/3})^{3/2}",
        ("RL",),
        lambda T, q: 4 * np.sqrt(T) * q["RL"] ** 1.5,
        radius=R,
        expected=True,
        note="The paper has 2√T with the prediction L/2, which assumes gradients of one sign.",
    )
