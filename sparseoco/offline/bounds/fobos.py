"""Bounds on the regret of gradient steps: subgradient, fobos, cl-fobos and sgft.

They are as printed in the papers if those hold. What does not, or needs another proof:

- Oiwa et al. 2011 (sgft), Theorem 1 holds as printed, though (29) takes one w for the largest |w_{t,i}| of every
  coordinate: r_t(w_t) − r_t(w_{t+1}) ≤ U‖w_t − w_{t+1}‖ ≤ 2U²η_t and ½η_t U² per step sum to (D²/(2c) + 5U²c)√T.
- Togari and Yamashita 2016, Theorem 1. (16) uses FOBOS' bound for the penalties c_t·r, so G must bound their
  subgradients, not only those of r as in Assumption 2 (iii): with c_{t,i} = (Σ η since i's last update)/η_t, U below is
  the largest λ‖c_t‖₂ over the coordinates updated. By the argument above, (16) then holds although c_t varies. Property
  1 does not hold for ½w², so the theorem is for l1 and the box.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseoco.learners.penalties import find_penalty
from sparseoco.offline.bounds.definition import Bound, Measured, NoBound, box_radius


def subgradient(configuration: Mapping[str, Any], penalty: str) -> Bound:
    """Σ η_t‖g_t + λ·sign(w_t)‖²/2 ≤ c(G + U)²√T and D²/(2η_T)."""
    c = configuration["eta0"]
    return Bound(
        "Zinkevich 2003, Theorem 1, as Togari and Yamashita 2016, §2.1, cite it",
        "(D²/(2c) + (G + U)²c)√T, c = eta0",
        ("D", "G", "U"),
        lambda T, q: (q["D"] ** 2 / (2 * c) + (q["G"] + q["U"]) ** 2 * c) * np.sqrt(T),
        note="The paper states only O(√T); the constant is that of Zinkevich's proof with the penalty in the loss.",
    )


def splitting(name: str, gradients: float, extra: str = "") -> Callable[[Mapping[str, Any], str], Bound]:
    """2GD + (D²/(2c) + kG²c)√T for η_t = c/√t, all of ‖g_t‖₂ and the penalty's subgradients at most G."""

    def theorem(configuration: Mapping[str, Any], penalty: str) -> Bound:
        c = configuration["eta0"]

        def compute(T: NDArray[np.float64], q: Measured) -> NDArray[np.float64]:
            return _fobos(T, c, q["D"], np.maximum(q["G"], q["U"]), gradients)

        formula = f"2GD + (D²/(2c) + {gradients:g}G²c)√T, c = eta0"
        return Bound(name, formula, ("D", "G", "U"), compute, radius=box_radius(configuration, penalty), note=extra)

    return theorem


def _fobos(T: Any, c: float, D: Any, G: Any, gradients: float) -> NDArray[np.float64]:
    return np.asarray(2 * G * D + (D**2 / (2 * c) + gradients * G**2 * c) * np.sqrt(T))


def cl_fobos(configuration: Mapping[str, Any], penalty: str) -> Bound | NoBound:
    """(24) with (16) and Lemmas 3 and 4: U_γ(T) + P(T) + 2nKS."""
    if find_penalty(penalty).decaying:
        return NoBound("The theorem needs proximal maps that add up (Property 1); those of ½w² do not.")
    if find_penalty(penalty).grouped:
        return NoBound("The quantities of the theorem are of single coordinates, and a group couples the classes.")
    if configuration.get("average", "none") != "none":
        return NoBound("The theorem is for the iterates, and with average='iterates' their mean is read.")
    c = configuration["eta0"]

    def compute(T: NDArray[np.float64], q: Measured) -> NDArray[np.float64]:
        K, spread = q["K"], q["spread"]
        U = _fobos(T, c, q["D"], np.maximum(q["G"], q["U"]), 7.0)
        late = np.where(T >= K, 1.0 + np.log(np.maximum(T - K + 1.0, 1.0)), 0.0)
        P = K * (K * np.sqrt(K) - K + 1.0) * spread + K * (K - 1.0) * spread / 2 * late
        return np.asarray(U + P + 2 * q["n"] * K * q["S"])

    return Bound(
        "Togari and Yamashita 2016, Theorem 1, (16), (24), Lemmas 3 and 4",
        "2GD + (D²/(2c) + 7G²c)√T + K(K√K − K + 1)R + ½K(K − 1)R(1 + log(T − K + 1)) + 2nKS, c = eta0",
        ("D", "G", "U", "K", "spread", "S", "n"),
        compute,
        radius=box_radius(configuration, penalty),
        note="G also bounds the penalties c_t·r in the proof. K is that of the rarest feature: "
        "if a feature occurs once, K is about T and the bound is trivial.",
    )
