"""Bounds on the regret of dual averaging with steps of γ√t: rda and stda.

Oiwa et al. 2012 (stda), Theorem 1. Lemma 3 there needs Ψ_t ≥ Ψ_{t+1} and Ψ grows: (34) replaces Ψ_t(w_{t+1}) by
Ψ_{t+1}(w_{t+1}). The proof gives a bound on Σ ℓ_t(w_t) + Ψ_{t−1}(w_t), and streams of features that occur twice
exceed (γD² + G²/γ)√T (tests/bounds). The missing term Σ_t Ψ_t(w_t) − Ψ_{t−1}(w_t) ≤ Σ_i λ·h_{T,i}·max_t|w_{t,i}|
is added; it is about the penalty of one round.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseoco.offline.bounds.definition import Bound, Measured, box_radius


def dual_averaging(name: str, peak: bool, note: str = "") -> Callable[[Mapping[str, Any], str], Bound]:
    """β_T h(x) + Σ_t ‖g_t‖²/(2β_{t−1}) with β_t = γ√t, h = ½‖w‖²; D² = h(x)."""

    def theorem(configuration: Mapping[str, Any], penalty: str) -> Bound:
        gamma = configuration["gamma"]

        def compute(T: NDArray[np.float64], q: Measured) -> NDArray[np.float64]:
            value = (gamma * q["x"] ** 2 / 2 + q["G"] ** 2 / gamma) * np.sqrt(T)
            return np.asarray(value + q["peak"] if peak else value)

        formula = "(γD² + G²/γ)√T" + (" + Σ_i λh_{T,i}·max_t|w_{t,i}|" if peak else "") + ", D² = ½‖x‖²"
        needs = ("x", "G", "peak") if peak else ("x", "G")
        return Bound(name, formula, needs, compute, radius=box_radius(configuration, penalty), note=note)

    return theorem
