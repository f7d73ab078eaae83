"""The papers' bounds on regret: theorems, their assumptions, and the quantities to measure for them.

A bound holds for every sequence of convex losses and every comparator x (in the box, where there is one):

    Reg_T(x) = Σ_{t≤T} f_t(w_t) + ψ_t(w_t) − f_t(x) − ψ_t(x) ≤ value(T, quantities)

with g_t the gradient of f_t at w_t and ψ_t the learner's own penalty: λψ, or for sgft and stda Σ_i λ·h_{t,i}|w_i|
with h_t after round t. One-vs-rest, each class is a separate problem and the bounds add up; a joint loss is one
problem with features × classes weights.

Bounds are as printed in the papers if they hold. Those found not to hold:

- Oiwa et al. 2012 (stda), Theorem 1. Lemma 3 there needs Ψ_t ≥ Ψ_{t+1} and Ψ grows: (34) replaces Ψ_t(w_{t+1}) by
  Ψ_{t+1}(w_{t+1}). The proof gives a bound on Σ ℓ_t(w_t) + Ψ_{t−1}(w_t), and streams of features that occur twice
  exceed (γD² + G²/γ)√T (tests/bounds). The missing term Σ_t Ψ_t(w_t) − Ψ_{t−1}(w_t) ≤ Σ_i λ·h_{T,i}·max_t|w_{t,i}|
  is added; it is about the penalty of one round.
- Oiwa et al. 2011 (sgft), Theorem 1 holds as printed, though (29) takes one w for the largest |w_{t,i}| of every
  coordinate: r_t(w_t) − r_t(w_{t+1}) ≤ U‖w_t − w_{t+1}‖ ≤ 2U²η_t and ½η_t U² per step sum to (D²/(2c) + 5U²c)√T.
- Togari and Yamashita 2016, Theorem 1. (16) uses FOBOS' bound for the penalties c_t·r, so G must bound their
  subgradients, not only those of r as in Assumption 2 (iii): with c_{t,i} = (Σ η since i's last update)/η_t, U below is
  the largest λ‖c_t‖₂ over the coordinates updated. By the argument above, (16) then holds although c_t varies. Property
  1 does not hold for ½w², so the theorem is for l1 and the box.
- Mohri and Yang 2015, Corollary 1.2 puts AdaGrad's regularizer, centred at 0, into Theorem 3, which needs r_t to be
  least at x_t; Theorem 4 applies instead, with the norm of t−1 (its second bound has (t), unlike its proof and Theorem
  6). The sum of g²/(δ + ‖g_{1:t−1}‖₂) is at most 2·max(1, G∞/δ)·‖g_{1:T}‖₂, so the bound is meaningful only if δ is of
  the size of the gradients.
- Mohri and Yang 2015, Theorem 7 and Corollaries 4 to 7 (cao-rcd, caos-erm): the prediction of a round depends on its
  draw, hence so does x_t, and E[ĝ_t | x_t] = g_t, which Theorem 5 needs, fails; regret exceeds Corollary 6, even in its
  worst case, if gradients are noisy and well predicted (tests/bounds). Line 9 of Algorithm 4 as printed (caos-erm with
  predict_gradient = previous) predicts by the draw before: estimates are unbiased and the worst case of Corollaries 6
  and 7 holds; their first bound is not proved, since its terms g_t^j − ḡ_s^j are of one example and ĝ_t − g̃_t is of
  two. With a prediction g̃_t of the whole gradient (ḡ_s = Σ_j ḡ_s^j for caos-erm) and ĝ_t = g̃_t + (drawn gradient − its
  prediction)/p, ĝ_t − g̃_t is that of the corollaries and the bounds are proved. Corollary 4 uses |g − L/2| ≤ L/2, which
  holds for 0 ≤ g ≤ L; for |g| ≤ L it is 3L/2, three times the bound; the prediction 0 is better, with twice.

Bounds of dense learners are in `sparseoco.offline.bounds.dense`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparseoco.learners import find_algorithm
from sparseoco.learners.penalties import find_penalty
from sparseoco.offline.bounds import dense
from sparseoco.offline.bounds.definition import QUANTITIES, Bound, Measured, NoBound, Quantities
from sparseoco.training.learner import Learner

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
    if configuration.get("step", "sqrt") != "sqrt":
        return NoBound("The theorem is for steps eta0/√t, not for others.")
    if configuration.get("second", "same") != "same":
        return NoBound("The theorem is for second='same', a truncation with the round's own step.")
    if configuration.get("schedule", "constant") != "constant":
        return NoBound("Regret is measured with the same penalty in every round, which is schedule='constant'.")
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
        found[name] = norms.sum(axis=0)
        if name == "root":
            found["x_root"] = ((parameters["delta"] + norms) * comparator**2).sum(axis=0)
    return found


def _splitting(name: str, gradients: float, extra: str = "") -> Callable[[Mapping[str, Any], str], Bound]:
    """2GD + (D²/(2c) + kG²c)√T for η_t = c/√t, all of ‖g_t‖₂ and the penalty's subgradients at most G."""

    def theorem(configuration: Mapping[str, Any], penalty: str) -> Bound:
        c = configuration["eta0"]

        def compute(T: NDArray[np.float64], q: Measured) -> NDArray[np.float64]:
            return _fobos(T, c, q["D"], np.maximum(q["G"], q["U"]), gradients)

        formula = f"2GD + (D²/(2c) + {gradients:g}G²c)√T, c = eta0"
        return Bound(name, formula, ("D", "G", "U"), compute, radius=_radius(configuration, penalty), note=extra)

    return theorem


def _fobos(T: Any, c: float, D: Any, G: Any, gradients: float) -> NDArray[np.float64]:
    return np.asarray(2 * G * D + (D**2 / (2 * c) + gradients * G**2 * c) * np.sqrt(T))


def _radius(configuration: Mapping[str, Any], penalty: str) -> float | None:
    return float(configuration["R"]) if penalty == "box" else None


def _subgradient(configuration: Mapping[str, Any], penalty: str) -> Bound:
    """Σ η_t‖g_t + λ·sign(w_t)‖²/2 ≤ c(G + U)²√T and D²/(2η_T)."""
    c = configuration["eta0"]
    return Bound(
        "Zinkevich 2003, Theorem 1, as Togari and Yamashita 2016, §2.1, cite it",
        "(D²/(2c) + (G + U)²c)√T, c = eta0",
        ("D", "G", "U"),
        lambda T, q: (q["D"] ** 2 / (2 * c) + (q["G"] + q["U"]) ** 2 * c) * np.sqrt(T),
        note="The paper states only O(√T); the constant is that of Zinkevich's proof with the penalty in the loss.",
    )


def _cl_fobos(configuration: Mapping[str, Any], penalty: str) -> Bound | NoBound:
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
        radius=_radius(configuration, penalty),
        note="G also bounds the penalties c_t·r in the proof. K is that of the rarest feature: "
        "if a feature occurs once, K is about T and the bound is trivial.",
    )


def _dual_averaging(name: str, peak: bool, note: str = "") -> Callable[[Mapping[str, Any], str], Bound]:
    """β_T h(x) + Σ_t ‖g_t‖²/(2β_{t−1}) with β_t = γ√t, h = ½‖w‖²; D² = h(x)."""

    def theorem(configuration: Mapping[str, Any], penalty: str) -> Bound:
        gamma = configuration["gamma"]

        def compute(T: NDArray[np.float64], q: Measured) -> NDArray[np.float64]:
            value = (gamma * q["x"] ** 2 / 2 + q["G"] ** 2 / gamma) * np.sqrt(T)
            return np.asarray(value + q["peak"] if peak else value)

        formula = "(γD² + G²/γ)√T" + (" + Σ_i λh_{T,i}·max_t|w_{t,i}|" if peak else "") + ", D² = ½‖x‖²"
        needs = ("x", "G", "peak") if peak else ("x", "G")
        return Bound(name, formula, needs, compute, radius=_radius(configuration, penalty), note=note)

    return theorem


def _missed(configuration: Mapping[str, Any]) -> float:
    """Largest |g_{t,i} − g̃_{t,i}| over G∞: predictions are past gradients, or means of some."""
    return 1.0 if configuration.get("predict_gradient", "none") == "none" else 2.0


def _adagrad(configuration: Mapping[str, Any], penalty: str) -> Bound:
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
        radius=_radius(configuration, penalty),
        note="With delta far below the largest gradient the bound is trivial.",
    )


def _adaptive(
    proximal: str, centred: str = "", expected: bool = False
) -> Callable[[Mapping[str, Any], str], Bound | NoBound]:
    """Per coordinate r_{0:T}(x) ≤ 2RΔ_T and Σ_t (g_t − g̃_t)²·R/Δ_t ≤ 2RΔ_T, for a regularizer around the iterates.

    Around 0: r_{0:T}(x) ≤ RΔ_T/2, and a step is at most 2R as well, so that round t costs at most
    R·min(u²/Δ_{t−1}, 2u) ≤ (1 + √5)R(Δ_t − Δ_{t−1}), u = |g_t − g̃_t|. In all less than 4RΔ_T.
    """

    def theorem(configuration: Mapping[str, Any], penalty: str) -> Bound | NoBound:
        R, regularizer = float(configuration["R"]), configuration.get("regularizer", "proximal")
        convexity = _convexity(configuration, penalty)
        if regularizer == "none" and convexity > 0:
            return _strongly_convex(configuration, convexity, expected)
        formula = "4R Σ_i √(Σ_t (g_{t,i} − g̃_{t,i})²)"
        name = f"Mohri and Yang 2015, {centred if regularizer == 'centred' else proximal}"
        return Bound(name, formula, ("Delta",), lambda T, q: 4 * R * q["Delta"] + 0 * T, radius=R, expected=expected)

    return theorem


def _convexity(configuration: Mapping[str, Any], penalty: str) -> float:
    """λ(1 − ρ), by which the penalty is strongly convex."""
    share = {"l2": 1.0, "elastic_net": 1.0 - float(configuration.get("l1_ratio", 1.0))}.get(penalty, 0.0)
    return float(configuration.get("lam", 0.0)) * share


def _strongly_convex(configuration: Mapping[str, Any], convexity: float, expected: bool) -> Bound | NoBound:
    """Σ_t ‖g_t − g̃_t‖²/(tλ(1 − ρ)): h_{0:t−1} has the penalties ψ_{1:t}."""
    if expected:
        return NoBound("With regularizer='none' the bound is of sampled gradients, which have no bound of their own.")
    missed = _missed(configuration)
    return Bound(
        "Mohri and Yang 2015, Theorem 4 with r ≡ 0",
        f"n·{'' if missed == 1.0 else '4'}G∞²(1 + log T)/(λ(1 − ρ)), ρ = 0 for l2",
        ("n", "G_inf"),
        lambda T, q: q["n"] * (missed * q["G_inf"]) ** 2 * (1 + np.log(T)) / convexity,
        radius=float(configuration["R"]),
        note="For a learner without an intercept, which has no penalty.",
    )


def _caos_erm(configuration: Mapping[str, Any], penalty: str) -> Bound | NoBound:
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


def _cao_rcd(configuration: Mapping[str, Any], penalty: str) -> Bound | NoBound:
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


def _none(why: str) -> Callable[[Mapping[str, Any], str], NoBound]:
    return lambda configuration, penalty: NoBound(why)


_FOBOS = "Duchi and Singer 2009, Theorem 6, as Togari and Yamashita 2016, (16), cite it"
_CUMULATIVE = "There is no regret bound for cumulative truncation: its truncation is not a proximal step."

THEOREMS: dict[str, Callable[[Mapping[str, Any], str], Bound | NoBound]] = {
    "subgradient": _subgradient,
    "fobos": _splitting(_FOBOS, 7.0),
    "sg-l1": _splitting(_FOBOS, 7.0),
    "l-fobos": lambda configuration, penalty: (
        _splitting(_FOBOS, 7.0)(configuration, penalty)
        if configuration["K"] == 1
        else NoBound("There is no regret bound for l-fobos except for K = 1, where it is fobos.")
    ),
    "cl-fobos": _cl_fobos,
    "cumulative-l1": _none(_CUMULATIVE),
    "sgft": _splitting("Oiwa, Matsushima and Nakagawa 2011, Theorem 1", 8.0),
    "sgft-cumulative": _none(_CUMULATIVE),
    "rda": _dual_averaging("Xiao 2010, as Oiwa, Matsushima and Nakagawa 2012, §II and (23), cite it", peak=False),
    "stda": _dual_averaging(
        "Oiwa, Matsushima and Nakagawa 2012, Theorem 1",
        peak=True,
        note="The last term is missing in the paper, whose Lemma 3 replaces Ψ_t(w_{t+1}) by Ψ_{t+1}(w_{t+1}).",
    ),
    "adagrad": _adagrad,
    "optimistic-ftrl": _none("The bound eta·ℛ(x) + R²/(2·eta)·Σ_t ‖g_t − g̃_t‖² is infinite at an end of the box."),
    "ftrl-proximal": _adaptive("Corollary 1.1 by Theorem 3"),
    "ao-ftrl": _adaptive("Theorem 1 with the regularizer of Corollary 2", "Theorem 2 with the regularizer Δ_t x²/(2R)"),
    "ao-gd": _adaptive("Corollary 2"),
    "cao-ftrl": _adaptive(
        "Theorem 3 with the regularizer of Corollary 2", "Theorem 4 with the regularizer Δ_t x²/(2R)"
    ),
    "caos-ftrl": _adaptive(
        "Theorem 5 with the regularizer of Corollary 2", "Theorem 6 with the regularizer Δ_t x²/(2R)", expected=True
    ),
    "caos-erm": _caos_erm,
    "cao-rcd": _cao_rcd,
    "ogd": dense.ogd,
    "ons": dense.ons,
    "ogdeg": dense.ogdeg,
    "onseg": dense.onseg,
    "ao-eg": dense.ao_eg,
}
