"""Regret bounds of the papers' theorems, by learner."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparseoco.learners import find_algorithm
from sparseoco.learners.caos_erm import KEPT
from sparseoco.learners.optimistic_averaging import BOUND
from sparseoco.learners.penalties import find_penalty
from sparseoco.training.learner import Learner

# ----------------------------------------------------------------------------------------------------------------------
# Bounds: a theorem's formula and the quantities in it.


QUANTITIES = {
    "D": "largest ‖w_t − x‖₂, t ≤ T",
    "D_b": "largest |b_t − b| of the intercept and that of the comparator, t ≤ T; 0 without one",
    "x": "‖x‖₂ of the comparator",
    "G": "largest ‖g_t‖₂, t ≤ T, or the bound max |ℓ'|·max ‖x_t‖₂",
    "G_inf": "at least the largest |g_{t,i}|, t ≤ T: max |ℓ'|·max |x_{t,i}|",
    "U": "largest norm of a subgradient of the penalty at w_t: λ√(features seen) for l1, λ‖w_t‖₂ for l2, 0 for a box; "
    "λ‖h_T‖₂ for sgft; λ‖c_t‖₂ for cl-fobos with l1",
    "K": "longest run of rounds without an update of a coordinate that is ever updated, from round 0 and up to T",
    "spread": "largest Σ_i |ψ(w_{t,i}) − ψ(x_i)|, R of Togari and Yamashita's (12)",
    "S": "largest ψ(w_{t,i}) of a coordinate, their (13)",
    "n": "number of features, and of the intercept if there is one",
    "peak": "Σ_i λ·h_{T,i}·max_{t≤T}|w_{t,i}|",
    "Delta": "Σ_i (R_i/R)·Δ_{T,i}, Δ_{T,i} = √(Σ_{t≤T} (g_{t,i} − g̃_{t,i})²); R_i = R with scale = none",
    "Delta_b": "Δ_T of the intercept, 0 without one",
    "penalised": "number of features, without the intercept",
    "root": "Σ_i √(Σ_{t≤T} (g_{t,i} − g̃_{t,i})²)",
    "x_root": "Σ_i (δ + √(Σ_{t≤T} (g_{t,i} − g̃_{t,i})²))·x_i²",
    "L": "Σ_j L_j, L_j the largest |∂f_j/∂x_i|: the loss's slope bound times max_i |a_{j,i}|",
    "L2": "Σ_j L_j² of the same L_j",
    "G_1": "at least Σ_i |∂F/∂x_i| of the sum F of all losses: Σ_j ‖a_j‖₁ times the loss's slope bound",
    "M": "Σ_i M_i, F'' ≤ diag(M): Σ_j ‖a_j‖₁² times the largest ℓ''; 0 if ℓ is not smooth",
    "RL": "Σ_i (R_i L_i)^{2/3} over coordinates; over blocks, R the sum and L the 2-norm of theirs",
    "RL1": "Σ_i R_i L_i, over coordinates or blocks",
    "blocks": "number of coordinates, blocks or mini-batches that can be drawn",
}

Quantities = Mapping[str, ArrayLike]
Measured = Mapping[str, NDArray[np.float64]]
Formula = Callable[[NDArray[np.float64], Measured], NDArray[np.float64]]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Bound:
    """A theorem for one configuration; `value` evaluates the bound on its regret."""

    name: str
    formula: str
    needs: tuple[str, ...]
    """The arguments of `value`, see `QUANTITIES`."""
    compute: Formula
    radius: float | None = None
    """R if x must be in the box |x_i| ≤ R; of a learner with a range per coordinate, |x_i| ≤ R_i."""
    expected: bool = False
    """Whether both sides are expectations over the learner's draws."""
    note: str = ""
    """Differences from the paper."""

    def value(self, T: ArrayLike, quantities: Quantities) -> NDArray[np.float64]:
        """The bound after T rounds; T and the quantities are broadcast against each other."""
        rounds = np.asarray(T, np.float64)
        measured = {name: np.asarray(quantities[name], np.float64) for name in self.needs}
        return np.asarray(self.compute(rounds, measured), np.float64)


class NoBound(NamedTuple):
    """No theorem covers the configuration; `why` is a sentence."""

    why: str


MEAN_IS_READ = NoBound("Regret is of the iterates, and with average='iterates' their mean is read.")


Theorem = Callable[[Mapping[str, Any], str], Bound | NoBound]
"""The bound of a learner with these parameters and penalty."""


def box_radius(configuration: Mapping[str, Any], penalty: str) -> float | None:
    """R of the box if it is the penalty, else None."""
    return float(configuration["R"]) if penalty == "box" else None


def convexity(configuration: Mapping[str, Any], penalty: str) -> float:
    """λ(1 − ρ), by which the penalty is strongly convex."""
    share = {"l2": 1.0, "elastic_net": 1.0 - float(configuration.get("l1_ratio", 1.0))}.get(penalty, 0.0)
    return float(configuration.get("lam", 0.0)) * share


# ----------------------------------------------------------------------------------------------------------------------
# Bounds on the regret of dual averaging with steps of γ√t: rda and stda.
#
# Oiwa et al. 2012 (stda), Theorem 1. Lemma 3 there needs Ψ_t ≥ Ψ_{t+1} and Ψ grows: (34) replaces Ψ_t(w_{t+1}) by
# Ψ_{t+1}(w_{t+1}). The proof gives a bound on Σ ℓ_t(w_t) + Ψ_{t−1}(w_t), and streams of features that occur twice
# exceed (γD² + G²/γ)√T (tests/bounds). The missing term Σ_t Ψ_t(w_t) − Ψ_{t−1}(w_t) ≤ Σ_i λ·h_{T,i}·max_t|w_{t,i}|
# is added; it is about the penalty of one round.


def dual_averaging(name: str, peak: bool, note: str = "") -> Theorem:
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


# ----------------------------------------------------------------------------------------------------------------------
# Bounds on the regret of gradient steps: subgradient, fobos, cl-fobos and sgft.
#
# They are as printed in the papers if those hold. What does not, or needs another proof:
#
# - Oiwa et al. 2011 (sgft), Theorem 1 holds as printed, though (29) takes one w for the largest |w_{t,i}| of every
#   coordinate: r_t(w_t) − r_t(w_{t+1}) ≤ U‖w_t − w_{t+1}‖ ≤ 2U²η_t and ½η_t U² per step sum to (D²/(2c) + 5U²c)√T.
# - Togari and Yamashita 2016, Theorem 1. (16) uses FOBOS' bound for the penalties c_t·r, so G must bound their
#   subgradients, not only those of r as in Assumption 2 (iii): with c_{t,i} = (Σ η since i's last update)/η_t, U below
#   is the largest λ‖c_t‖₂ over the coordinates updated. By the argument above, (16) then holds although c_t varies.
#   Property 1 does not hold for ½w², so the theorem is for l1 and the box.
# - Togari and Yamashita 2016, §2.1, has O(log T) for strongly convex losses, of the subgradient method, without steps
#   or a constant; nothing for cl-fobos. A loss of one margin is not strongly convex, so here the penalty is: ψ with σ =
#   λ(1 − ρ), of l2 and the elastic net, and steps c/t with cσ ≥ 1. A prox with η_s from y to y' has ψ(y') − ψ(x) ≤ s(y
#   − x)²/(2c) − (s/c + σ)(y' − x)²/2, and s/c + σ ≥ (s + 1)/c makes a sum over s telescope.
#
#   fobos: Σ_t f_t(w_t) + ψ(w_{t+1}) − f_t(x) − ψ(x) ≤ ‖x‖²/(2c) + Σ_t c‖g_t‖²/(2t), and Σ_t ψ(w_t) is at most the sum
#   here, as ψ(w_1) = 0.
#
#   cl-fobos, without Property 1: the k prox of an update in round t, with the steps of rounds t − k + 1 … t, start at
#   w_t − η_t g_t, and what does not telescope is (k − 1)/t·g_{t,i}(w_{t,i} − x_i), in a round at most (K − 1)GD/t. The
#   weight after j of them is less than |w_{t,i}| by at most η_t|g_{t,i}| + ψ'(w_{t,i})·(the sum of their steps), so
#   that ψ(w_t) in the k rounds before is more than ψ after each prox by KcU(G + U)/t in a round. The rounds after the
#   last update cost K·ψ(w_T) ≤ KU‖w_T‖.
#
#   An intercept b_t has no penalty: its (b_t − b)²/(2c) of every round remains.


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


def splitting(name: str, gradients: float) -> Theorem:
    """2GD + (D²/(2c) + kG²c)√T for η_t = c/√t, all of ‖g_t‖₂ and the penalty's subgradients at most G."""

    def theorem(configuration: Mapping[str, Any], penalty: str) -> Bound:
        c = configuration["eta0"]

        def compute(T: NDArray[np.float64], q: Measured) -> NDArray[np.float64]:
            return _fobos(T, c, q["D"], np.maximum(q["G"], q["U"]), gradients)

        formula = f"2GD + (D²/(2c) + {gradients:g}G²c)√T, c = eta0"
        return Bound(name, formula, ("D", "G", "U"), compute, radius=box_radius(configuration, penalty))

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
        return MEAN_IS_READ
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
        return MEAN_IS_READ

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


# ----------------------------------------------------------------------------------------------------------------------
# Bounds on the regret of adaptive FTRL (Mohri and Yang 2015, Theorems 1 to 6): the CAO-FTRL family and adagrad.
#
# They are as printed if that holds. What does not (counterexamples are in tests/bounds):
#
# - Theorems 3 to 6 have ψ_{1:T−1}(x) in their first halves, of regret without ψ, and Theorems 3 and 5 the norm of
#   h_{0:t} in their second: the proofs take ψ_{1:t} for the ψ_{1:t+1} of the update. With ψ_{1:T}(x), and the norm of
#   h_{0:t−1} + r_t, which lacks ψ_{t+1}, they hold. The first halves then follow from Theorem 4's second and ψ ≥ 0.
#   Bounds here are of second halves, since regret is measured with ψ; `regret` adds ψ_{1:T}(x) for the first.
# - §2.1: r ≡ 0 for strongly convex f_t needs their strongly convex part in h; it is the penalty here.
# - Corollary 1.2 puts AdaGrad's regularizer, centred at 0, into Theorem 3, which needs r_t to be least at x_t; Theorem
#   4 applies instead, with the norm of t−1 (its second bound has (t), unlike its proof and Theorem 6). The sum of g²/(δ
#   + ‖g_{1:t−1}‖₂) is at most 2·max(1, G∞/δ)·‖g_{1:T}‖₂, so the bound is meaningful only if δ is of the size of the
#   gradients.
#
# With a `schedule` of penalties α_tψ the bounds are the same but where ψ is the regularizer. adagrad's x_{t+1} has
# α_{1:t}ψ, so its ψ_{t+1} is α_tψ; as α_t does not grow, regret with α_tψ in round t is no larger.


def adaptive(proximal: str, centred: str = "", expected: bool = False) -> Theorem:
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
    """r_{0:T}(x) + Σ_t ‖g_t − g̃_t‖²_{(t−1),*} with r_{0:t}(x) = Σ_i (δ + ‖(g − g̃)_{1:t,i}‖₂)x_i²/(2·eta).

    Truncated: Σ_t (‖w_t − x‖²_{H_t} − ‖w_{t+1} − x‖²_{H_t})/(2η) + η‖g_t‖²_{H_t⁻¹}/2, where D is at least every
    |w_{t,i} − x_i| and the sum of g²/‖g_{1:t}‖₂ at most 2‖g_{1:T}‖₂.
    """
    eta, delta, missed = configuration["eta"], configuration["delta"], _missed(configuration)
    if configuration.get("model") == "truncated":
        return Bound(
            "Duchi, Hazan and Singer 2011, Theorem 5 (composite mirror descent)",
            "D²·(nδ + Σ_i ‖g_{1:T,i}‖₂)/(2η) + η·Σ_i ‖g_{1:T,i}‖₂, η = eta",
            ("D", "n", "root"),
            lambda T, q: q["D"] ** 2 * (q["n"] * delta + q["root"]) / (2 * eta) + eta * q["root"] + 0 * T,
            radius=box_radius(configuration, penalty),
            note="The paper has the largest |w_{t,i} − x_i| for D. Truncated steps have the inequality of full ones.",
        )
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


# ----------------------------------------------------------------------------------------------------------------------
# Bounds on the regret of epoch methods: caos-erm and cao-rcd, in expectation, and optimistic-averaging.
#
# Mohri and Yang 2015, Theorem 7 and Corollaries 4 to 7 (cao-rcd, caos-erm): the prediction of a round depends on its
# draw, hence so does x_t, and E[ĝ_t | x_t] = g_t, which Theorem 5 needs, fails; regret exceeds the first bound of
# Corollary 6 if gradients are noisy and well predicted (tests/bounds), and its worst case is not proved. Line 9 of
# Algorithm 4 as printed (caos-erm with predict_gradient = previous) predicts by the draw before: estimates are unbiased
# and the worst case of Corollaries 6 and 7 holds. Their first bound does not: its terms g_t^j − ḡ_s^j are of one
# example and 0 for linear losses, ĝ_t − g̃_t is of two. With a prediction g̃_t of the whole gradient (ḡ_s = Σ_j ḡ_s^j
# for caos-erm) and ĝ_t = g̃_t + (drawn gradient − its prediction)/p, ĝ_t − g̃_t is that of the corollaries and the
# bounds are proved. Corollary 4 uses |g − L/2| ≤ L/2, which holds for 0 ≤ g ≤ L; for |g| ≤ L it is 3L/2, three times
# the bound; the prediction 0 is better, with twice.
#
# With unbiased estimates, by Theorem 5 and Jensen's inequality,
#
#     E[Reg_T] ≤ E[4 Σ_i R_iΔ_{T,i}] ≤ 4 Σ_i R_i √(Σ_t E(ĝ_{t,i} − g̃_{t,i})²),
#
# the last one being the data-dependent bound of Theorem 7 (E ĝ_i² = E g_i²/p_i) and, for corrected estimates, of
# Corollaries 6 and 7. This needs no more of p_t than that it is known before round t's draw, as with sample = adaptive
# of caos-erm; there p_t is at least `KEPT` times that of lipschitz, so that the worst cases grow by 1/√KEPT. The last
# one is a mean over runs and the whole gradients of their rounds, which no run computes, so the bounds here are its
# worst cases, functions of L. What a run has is one sample of 4 Σ_i R_iΔ_{T,i}, `data_bound`.


def caos_erm(configuration: Mapping[str, Any], penalty: str) -> Bound | NoBound:
    """4R Σ_i √(Σ_t E(ĝ_{t,i} − g̃_{t,i})²), F = Σ_j f_j in every round; l mini-batches Π of at most b examples.

    E(ĝ − g̃)² ≤ Σ_Π (2L_Π)²/p_Π, L_Π = Σ_{j∈Π} L_j: with corrected estimates ĝ − g̃ is a draw's change since the pass,
    at most 2L_Π/p_Π; with the previous round's prediction it is the difference of two draws of at most L_Π/p_Π, and
    (a − b)² ≤ 2a² + 2b². p_Π = 1/l gives l·Σ_Π L_Π² ≤ l·b·Σ_j L_j².
    """
    sample = configuration["sample"]
    if configuration["placement"] != "serial":
        return NoBound("The corollaries are for sequential rounds, placement='serial'.")
    previous = configuration["predict_gradient"] == "previous"
    if configuration["estimate"] != "corrected" and not previous:
        prediction = configuration["predict_gradient"]
        return NoBound(
            f"With estimate='sampled' and predict_gradient={prediction!r} the prediction depends on the draw and "
            "gradients are biased, so Corollary 6 does not hold; it does with estimate='corrected', and its worst case "
            "with predict_gradient='previous'."
        )
    R, batch = float(configuration["R"]), int(configuration["batch"])
    note = "For the T iterates x_t of the rounds, with f_t = Σ_j f_j in every round."
    if previous:
        note += " As printed, the prediction is of the previous round's draw: the corollaries' terms do not bound Δ."
    common: dict[str, Any] = {"radius": R, "expected": True, "note": note}
    if sample == "uniform":
        return Bound(
            "Mohri and Yang 2015, Corollaries 6 and 7 with equal probabilities",
            "8nR√(T·l·b·Σ_j L_j²), l mini-batches of b = batch examples",
            ("n", "L2", "blocks"),
            lambda T, q: 8 * q["n"] * R * np.sqrt(T * q["blocks"] * batch * q["L2"]),
            **common,
        )
    name = "Mohri and Yang 2015, Corollaries 6 and 7"
    # With sample = adaptive, p is at least KEPT times that of lipschitz.
    more, factor = (f"/√{KEPT:g}", KEPT**-0.5) if sample == "adaptive" else ("", 1.0)
    return Bound(
        name, f"8nR√T·Σ_j L_j{more}", ("n", "L"), lambda T, q: 8 * factor * q["n"] * R * np.sqrt(T) * q["L"], **common
    )


def optimistic_averaging(configuration: Mapping[str, Any], penalty: str) -> Bound:
    """Σ_{t≤T} H(x̄_t) − H*, by the bounds on every H(x̄_t) − H* that `learners.optimistic_averaging` derives.

    The sum of 4CR Σ_i G_i/√(3t) is at most 8CR Σ_i G_i·√(T/3), and that of Σ_i (2CR|g_{1,i}| + 4C²R²M_i)/(t(t + 1)) is
    Σ_i (2CR|g_{1,i}| + 4C²R²M_i)·T/(T + 1).
    """
    CR = BOUND * float(configuration["R"])

    def value(T: Floats, q: Measured) -> Floats:
        smooth = np.where(q["M"] > 0, (2 * CR * q["G_1"] + 4 * CR**2 * q["M"]) * T / (T + 1), np.inf)
        return np.minimum(8 * CR * q["G_1"] * np.sqrt(T / 3), smooth)

    return Bound(
        "Joulani, Raj, György and Szepesvári 2020 by Mohri and Yang 2015, Theorem 4",
        f"at most 8CR Σ_i G_i·√(T/3) and, for smooth losses, Σ_i (2CR·G_i + 4C²R²M_i)·T/(T + 1), C = {BOUND}",
        ("G_1", "M"),
        value,
        radius=float(configuration["R"]),
        note="For the means x̄_t, at which the gradients are, with F = Σ_j f_j in every round. The constants are ours.",
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


# ----------------------------------------------------------------------------------------------------------------------
# The papers' bounds on regret: theorems, their assumptions, and the quantities to measure for them.
#
# A bound holds for every sequence of convex losses and every comparator x (in the box, where there is one):
#
#     Reg_T(x) = Σ_{t≤T} f_t(w_t) + ψ_t(w_t) − f_t(x) − ψ_t(x) ≤ value(T, quantities)
#
# with g_t the gradient of f_t at w_t and ψ_t the learner's own penalty: λψ, or α_tλψ with a `schedule`, or for sgft and
# stda Σ_i λ·h_{t,i}|w_i| with h_t after round t. One-vs-rest, each class is a separate problem and the bounds add up; a
# joint loss is one problem with features × classes weights.
#
# Bounds are as printed in the papers if they hold. The section of each family, above, lists what does not.


__all__ = ["QUANTITIES", "THEOREMS", "Bound", "NoBound", "Quantities", "regret_bound", "state_quantities"]


def regret_bound(algorithm: str, configuration: Mapping[str, Any], penalty: str = "l1") -> Bound | NoBound:
    """The bound on the regret of a learner.

    Parameters
    ----------
    algorithm : str
    configuration : dict
        All its parameters, as in `Learner.configurations`.
    penalty : str

    Returns
    -------
    Bound or NoBound
        `NoBound` if no theorem covers this learner with these parameters.

    Raises
    ------
    InputError
        The algorithm or penalty is unknown.
    """
    find_algorithm(algorithm), find_penalty(penalty)
    step = configuration.get("step", "sqrt")
    if step == "inverse" and algorithm in INVERSE_STEPS:
        return INVERSE_STEPS[algorithm](configuration, penalty)
    if step != "sqrt":
        return NoBound("The theorem is for steps eta0/√t, not for others.")
    if configuration.get("second", "same") != "same":
        return NoBound("The theorem is for second='same', a truncation with the round's own step.")
    if algorithm not in THEOREMS:
        return NoBound(f"There is no regret bound for {algorithm}.")
    return THEOREMS[algorithm](configuration, penalty)


def state_quantities(
    learner: Learner, configuration: int, x: ArrayLike, peaks: ArrayLike, intercepts: ArrayLike | None = None
) -> dict[str, NDArray[Any]]:
    """The quantities of a configuration that follow from its state after the last round, (outputs,) each.

    `x` is the comparator and `peaks` is max_t |w_{t,i}| so far, both (n_features, outputs). The `intercepts` of the
    comparator (outputs,), if the learner has them, are one more coordinate.
    """
    comparator, largest = np.asarray(x, np.float64), np.asarray(peaks, np.float64)
    if learner.intercept:
        own = np.zeros(learner.n_outputs) if intercepts is None else np.asarray(intercepts, np.float64)
        comparator = np.vstack([comparator, own])
    parameters = learner.configurations[configuration]
    found = {"x": np.sqrt((comparator**2).sum(axis=0)), "n": np.full(learner.n_outputs, float(len(comparator)))}
    h = learner.thresholds_of(configuration)
    if h is not None:
        h = parameters["lam"] * h.astype(np.float64)
        found |= {"U": np.sqrt((h**2).sum(axis=0)), "peak": (h * largest).sum(axis=0)}
    slots = learner.slots_of(configuration, intercept=learner.intercept)
    for name in {"Delta", "root"} & set(slots):
        norms = slots[name].astype(np.float64)
        if "g_last" in slots:  # not updated in the last round: one prediction of g_last, whose gradient was 0
            not_updated = learner.progress.rows - slots["last_update"] > 1
            norms = np.hypot(norms, np.where(not_updated, slots["g_last"].astype(np.float64), 0.0))
        norms = norms * slots["scale"] if "scale" in slots else norms
        found[name] = norms.sum(axis=0)
        if name == "Delta":
            own = norms[learner.n_features :].sum(axis=0)
            found |= {"Delta_b": own, "penalised": np.full(learner.n_outputs, float(learner.n_features))}
        if name == "root":
            found["x_root"] = ((parameters["delta"] + norms) * comparator**2).sum(axis=0)
    return found


def _none(why: str) -> Theorem:
    return lambda configuration, penalty: NoBound(why)


_FOBOS = "Duchi and Singer 2009, Theorem 6, as Togari and Yamashita 2016, (16), cite it"
_CUMULATIVE = "There is no regret bound for cumulative truncation: its truncation is not a proximal step."

THEOREMS: dict[str, Theorem] = {
    "subgradient": subgradient,
    "fobos": splitting(_FOBOS, 7.0),
    "sg-l1": splitting(_FOBOS, 7.0),
    "l-fobos": lambda configuration, penalty: (
        splitting(_FOBOS, 7.0)(configuration, penalty)
        if configuration["K"] == 1
        else NoBound("There is no regret bound for l-fobos except for K = 1, where it is fobos.")
    ),
    "cl-fobos": cl_fobos,
    "cumulative-l1": _none(_CUMULATIVE),
    "sgft": splitting("Oiwa, Matsushima and Nakagawa 2011, Theorem 1", 8.0),
    "sgft-cumulative": _none(_CUMULATIVE),
    "rda": dual_averaging("Xiao 2010, as Oiwa, Matsushima and Nakagawa 2012, §II and (23), cite it", peak=False),
    "stda": dual_averaging(
        "Oiwa, Matsushima and Nakagawa 2012, Theorem 1",
        peak=True,
        note="The last term is missing in the paper, whose Lemma 3 replaces Ψ_t(w_{t+1}) by Ψ_{t+1}(w_{t+1}).",
    ),
    "adagrad": adagrad,
    "optimistic-ftrl": _none("The bound eta·ℛ(x) + R²/(2·eta)·Σ_t ‖g_t − g̃_t‖² is infinite at an end of the box."),
    "ftrl-proximal": adaptive("Corollary 1.1 by Theorem 3"),
    "ao-ftrl": adaptive("Theorem 1 with the regularizer of Corollary 2", "Theorem 2 with the regularizer Δ_t x²/(2R)"),
    "ao-gd": adaptive("Corollary 2"),
    "cao-ftrl": adaptive("Theorem 3 with the regularizer of Corollary 2", "Theorem 4 with the regularizer Δ_t x²/(2R)"),
    "caos-ftrl": adaptive(
        "Theorem 5 with the regularizer of Corollary 2", "Theorem 6 with the regularizer Δ_t x²/(2R)", expected=True
    ),
    "caos-erm": caos_erm,
    "optimistic-averaging": optimistic_averaging,
    "cao-rcd": cao_rcd,
}

INVERSE_STEPS: dict[str, Theorem] = {
    "fobos": partial(inverse_steps, lazy=False),
    "cl-fobos": partial(inverse_steps, lazy=True),
}
"""With step='inverse'."""
