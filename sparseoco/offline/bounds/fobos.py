"""Bounds on the regret of gradient steps: subgradient, fobos, cl-fobos and sgft.

They are as printed in the papers if those hold. What does not, or needs another proof:

- Oiwa et al. 2011 (sgft), Theorem 1 holds as printed, though (29) takes one w for the largest |w_{t,i}| of every
  coordinate: r_t(w_t) − r_t(w_{t+1}) ≤ U‖w_t − w_{t+1}‖ ≤ 2U²η_t and ½η_t U² per step sum to (D²/(2c) + 5U²c)√T.
- Togari and Yamashita 2016, Theorem 1. (16) uses FOBOS' bound for the penalties c_t·r, so G must bound their
  subgradients, not only those of r as in Assumption 2 (iii): with c_{t,i} = (Σ η since i's last update)/η_t, U below is
  the largest λ‖c_t‖₂ over the coordinates updated. By the argument above, (16) then holds although c_t varies. Property
  1 does not hold for ½w², so the theorem is for l1 and the box.
- Togari and Yamashita 2016, §2.1, has O(log T) for strongly convex losses, of the subgradient method, without steps or
  a constant; nothing for cl-fobos. A loss of one margin is not strongly convex, so here the penalty is: ψ with
  σ = λ(1 − ρ), of l2 and the elastic net, and steps c/t with cσ ≥ 1. A prox with η_s from y to y' has
  ψ(y') − ψ(x) ≤ s(y − x)²/(2c) − (s/c + σ)(y' − x)²/2, and s/c + σ ≥ (s + 1)/c makes a sum over s telescope.

  fobos: Σ_t f_t(w_t) + ψ(w_{t+1}) − f_t(x) − ψ(x) ≤ ‖x‖²/(2c) + Σ_t c‖g_t‖²/(2t), and Σ_t ψ(w_t) is at most the sum
  here, as ψ(w_1) = 0.

  cl-fobos, without Property 1: the k prox of an update in round t, with the steps of rounds t − k + 1 … t, start at
  w_t − η_t g_t, and what does not telescope is (k − 1)/t·g_{t,i}(w_{t,i} − x_i), in a round at most (K − 1)GD/t. The
  weight after j of them is less than |w_{t,i}| by at most η_t|g_{t,i}| + ψ'(w_{t,i})·(the sum of their steps), so that
  ψ(w_t) in the k rounds before is more than ψ after each prox by KcU(G + U)/t in a round. The rounds after the last
  update cost K·ψ(w_T) ≤ KU‖w_T‖.

  An intercept b_t has no penalty: its (b_t − b)²/(2c) of every round remains.
- Togari and Yamashita 2016, Theorem 2, has a limit and no rate, and its φ is the mean over the T examples that x̄_T is
  learned from. As in Xiao (2010), whose proof it follows, F below is the expected objective, (40): for independent
  examples E F(x_t) = E[f_t(x_t) + ψ(x_t)], and by convexity E F(x̄_T) − F(x) ≤ E Reg_T(x)/T.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseoco.learners.penalties import find_penalty
from sparseoco.offline.bounds.definition import Bound, Measured, NoBound, box_radius, convexity


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
        return _mean_is_read()
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


def inverse_steps(configuration: Mapping[str, Any], penalty: str, *, lazy: bool) -> Bound | NoBound:
    """Steps c/t and a penalty that is strongly convex with σ, cσ ≥ 1; `lazy` for cl-fobos."""
    c = configuration["eta0"]
    if c * convexity(configuration, penalty) < 1 - 1e-12:
        return NoBound(
            "With steps eta0/t the bound needs eta0·λ(1 − ρ) ≥ 1, of l2 or the elastic net; others are for eta0/√t."
        )
    if configuration.get("average", "none") != "none":
        return _mean_is_read()

    def steps(T: NDArray[np.float64], q: Measured) -> NDArray[np.float64]:
        later = c * q["G"] ** 2 / 2 * (1 + np.log(T))
        return np.asarray((q["x"] ** 2 + T * q["D_b"] ** 2) / (2 * c) + later)

    def lazy_steps(T: NDArray[np.float64], q: Measured) -> NDArray[np.float64]:
        D, G, U, K = (q[name] for name in ("D", "G", "U", "K"))
        late = (K - 1) * G * D + c * K * U * (G + U)
        return np.asarray(steps(T, q) + late * (1 + np.log(T)) + K * U * (D + q["x"]))

    formula = "(‖x‖² + T·D_b²)/(2c) + ½cG²(1 + log T)"
    if lazy:
        formula += " + ((K − 1)GD + cKU(G + U))(1 + log T) + KU(D + ‖x‖)"
    return Bound(
        "Togari and Yamashita 2016, §2.1: O(log T) for strongly convex objectives",
        f"{formula}, c = eta0",
        ("x", "D", "G", "U", "K", "D_b") if lazy else ("x", "G", "D_b"),
        lazy_steps if lazy else steps,
        note="The paper states it of the subgradient method, without a constant. With an intercept, which has no "
        "penalty, the bound is linear in T.",
    )


def _mean_is_read() -> NoBound:
    return NoBound("Regret is of the iterates, and with average='iterates' their mean is read: see mean_bound.")


def of_mean(bound: Bound) -> Bound:
    """The bound on E F(x̄_T) − F(x) that follows from one on the regret of the iterates."""
    return replace(
        bound,
        name=f"Togari and Yamashita 2016, Theorem 2, by {bound.name}",
        formula=f"({bound.formula})/T",
        compute=lambda T, q: bound.compute(T, q) / T,
        expected=True,
        note="For independent examples; x is the same for all draws. " + bound.note,
    )
