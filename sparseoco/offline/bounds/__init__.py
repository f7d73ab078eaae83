"""The papers' bounds on regret: theorems, their assumptions, and the quantities to measure for them.

A bound holds for every sequence of convex losses and every comparator x (in the box, where there is one):

    Reg_T(x) = Σ_{t≤T} f_t(w_t) + ψ_t(w_t) − f_t(x) − ψ_t(x) ≤ value(T, quantities)

with g_t the gradient of f_t at w_t and ψ_t the learner's own penalty: λψ, or α_tλψ with a `schedule`, or for sgft and
stda Σ_i λ·h_{t,i}|w_i| with h_t after round t. One-vs-rest, each class is a separate problem and the bounds add up; a
joint loss is one problem with features × classes weights.

Bounds are as printed in the papers if they hold. The module of each family lists what does not: `fobos` (gradient
steps), `averaging` (dual averaging), `ftrl` (the CAO-FTRL family and adagrad), `epochs` (methods of several passes),
`dense` (learners of dense rows).
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparseoco.learners import find_algorithm
from sparseoco.learners.penalties import find_penalty
from sparseoco.offline.bounds import averaging, dense, epochs, fobos, ftrl
from sparseoco.offline.bounds.definition import QUANTITIES, Bound, NoBound, Quantities
from sparseoco.training.learner import Learner

__all__ = ["QUANTITIES", "THEOREMS", "Bound", "NoBound", "Quantities", "mean_bound", "regret_bound", "state_quantities"]


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


def mean_bound(algorithm: str, configuration: Mapping[str, Any], penalty: str = "l1") -> Bound | NoBound:
    """The bound on E F(x̄_T) − F(x) of the mean x̄_T of the iterates w_1 … w_T, F(x) = E f_t(x) + ψ(x).

    The expectation is over examples drawn independently of each other, such as from a fixed set; the quantities are of
    the iterates.

    Parameters
    ----------
    algorithm, configuration, penalty
        As in `regret_bound`; `average` may be either.

    Returns
    -------
    Bound or NoBound
        `NoBound` for learners without `average`, and where the regret of the iterates has none.

    Raises
    ------
    InputError
        The algorithm or penalty is unknown.
    """
    if not any(parameter.name == "average" for parameter in find_algorithm(algorithm).parameters):
        return NoBound(f"{algorithm} has no average='iterates'.")
    bound = regret_bound(algorithm, {**configuration, "average": "none"}, penalty)
    return bound if isinstance(bound, NoBound) else fobos.of_mean(bound)


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


def _none(why: str) -> Callable[[Mapping[str, Any], str], NoBound]:
    return lambda configuration, penalty: NoBound(why)


_FOBOS = "Duchi and Singer 2009, Theorem 6, as Togari and Yamashita 2016, (16), cite it"
_CUMULATIVE = "There is no regret bound for cumulative truncation: its truncation is not a proximal step."

THEOREMS: dict[str, Callable[[Mapping[str, Any], str], Bound | NoBound]] = {
    "subgradient": fobos.subgradient,
    "fobos": fobos.splitting(_FOBOS, 7.0),
    "sg-l1": fobos.splitting(_FOBOS, 7.0),
    "l-fobos": lambda configuration, penalty: (
        fobos.splitting(_FOBOS, 7.0)(configuration, penalty)
        if configuration["K"] == 1
        else NoBound("There is no regret bound for l-fobos except for K = 1, where it is fobos.")
    ),
    "cl-fobos": fobos.cl_fobos,
    "cumulative-l1": _none(_CUMULATIVE),
    "sgft": fobos.splitting("Oiwa, Matsushima and Nakagawa 2011, Theorem 1", 8.0),
    "sgft-cumulative": _none(_CUMULATIVE),
    "rda": averaging.dual_averaging(
        "Xiao 2010, as Oiwa, Matsushima and Nakagawa 2012, §II and (23), cite it", peak=False
    ),
    "stda": averaging.dual_averaging(
        "Oiwa, Matsushima and Nakagawa 2012, Theorem 1",
        peak=True,
        note="The last term is missing in the paper, whose Lemma 3 replaces Ψ_t(w_{t+1}) by Ψ_{t+1}(w_{t+1}).",
    ),
    "adagrad": ftrl.adagrad,
    "optimistic-ftrl": _none("The bound eta·ℛ(x) + R²/(2·eta)·Σ_t ‖g_t − g̃_t‖² is infinite at an end of the box."),
    "ftrl-proximal": ftrl.adaptive("Corollary 1.1 by Theorem 3"),
    "ao-ftrl": ftrl.adaptive(
        "Theorem 1 with the regularizer of Corollary 2", "Theorem 2 with the regularizer Δ_t x²/(2R)"
    ),
    "ao-gd": ftrl.adaptive("Corollary 2"),
    "cao-ftrl": ftrl.adaptive(
        "Theorem 3 with the regularizer of Corollary 2", "Theorem 4 with the regularizer Δ_t x²/(2R)"
    ),
    "caos-ftrl": ftrl.adaptive(
        "Theorem 5 with the regularizer of Corollary 2", "Theorem 6 with the regularizer Δ_t x²/(2R)", expected=True
    ),
    "caos-erm": epochs.caos_erm,
    "cao-rcd": epochs.cao_rcd,
    "ogd": dense.ogd,
    "ons": dense.ons,
    "ogdeg": dense.ogdeg,
    "onseg": dense.onseg,
    "ao-eg": dense.ao_eg,
}

INVERSE_STEPS: dict[str, Callable[[Mapping[str, Any], str], Bound | NoBound]] = {
    "fobos": partial(fobos.inverse_steps, lazy=False),
    "cl-fobos": partial(fobos.inverse_steps, lazy=True),
}
"""With step='inverse'."""
