"""Bounds: a theorem's formula and the quantities in it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
    "RL": "Σ_i (R_i L_i)^{2/3} over coordinates; over blocks, R the sum and L the 2-norm of theirs",
    "RL1": "Σ_i R_i L_i, over coordinates or blocks",
    "blocks": "number of coordinates, blocks or mini-batches that can be drawn",
    "missed": "Σ_{t≤T} ‖g_t − g̃_t‖∞²",
    "miss": "largest ‖g_t − g̃_t‖∞², t ≤ T",
}

Quantities = Mapping[str, ArrayLike]
Measured = Mapping[str, NDArray[np.float64]]
Formula = Callable[[NDArray[np.float64], Measured], NDArray[np.float64]]


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


def box_radius(configuration: Mapping[str, Any], penalty: str) -> float | None:
    """R of the box if it is the penalty, else None."""
    return float(configuration["R"]) if penalty == "box" else None


def convexity(configuration: Mapping[str, Any], penalty: str) -> float:
    """λ(1 − ρ), by which the penalty is strongly convex."""
    share = {"l2": 1.0, "elastic_net": 1.0 - float(configuration.get("l1_ratio", 1.0))}.get(penalty, 0.0)
    return float(configuration.get("lam", 0.0)) * share
