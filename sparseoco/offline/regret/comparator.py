"""The best fixed weights that a learner is compared with: the minimum of its theorem's objective.

    min_w Σ_{t≤T} f_t(w) + T·λ·(ρ‖w‖₁ + (1 − ρ)‖w‖²/2),  |w_i| ≤ R

For epoch methods, whose loss in every round is the sum over all examples, it is T times

    min_w Σ_j f_j(w) + α·(ρ‖w‖₁ + (1 − ρ)‖w‖²/2),  |w_i| ≤ R

With a `schedule` of penalties α_tψ, Tλ is λ·Σ_{t≤T} α_t.

For learners that weight the penalty by each coordinate's history (sgft, stda) ‖w‖₁ is Σ_i (Σ_{t≤T} h_{t,i}/T)·|w_i|,
with the h of the learner itself: Oiwa et al. (2011), Theorem 1; (2012), (19). f_t has the sample weight of its row. A
learner with an intercept is compared with the minimum over b, too, of the losses of ⟨w, x⟩ + b.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from sparseoco.core.errors import InputError
from sparseoco.learners import find_algorithm
from sparseoco.learners.losses import find_loss
from sparseoco.learners.penalties import TOTALS, find_penalty


class Comparator(NamedTuple):
    """The terms of the objective besides the losses."""

    lam: float
    l1_ratio: float
    """ρ: 1 for l1, 0 for l2."""
    R: float | None
    """Bound of every weight, or None."""
    own_history: bool
    """Whether the penalty has the learner's weights h."""
    intercept: bool = False
    """Whether it has an intercept, which neither the penalty nor R bounds."""
    epochs: bool = False
    """Whether every round has all examples; then λ is the α of their sum."""
    schedule: str = "constant"
    """Of the penalties α_tψ."""

    def alpha(self, T: int) -> float:
        """The weight of the penalty relative to a sum of T losses."""
        return self.lam if self.epochs else self.lam * float(TOTALS[self.schedule](T))

    @property
    def formula(self) -> str:
        """The objective."""
        weight = "α" if self.epochs else {"constant": "Tλ", "sqrt": "√T·λ", "first": "λ"}[self.schedule]
        if self.own_history:
            penalty = " + λ·Σ_t‖h_t∘w‖₁"
        elif self.lam == 0:
            penalty = ""
        elif self.l1_ratio == 1:
            penalty = f" + {weight}‖w‖₁"
        elif self.l1_ratio == 0:
            penalty = f" + {weight}‖w‖²/2"
        else:
            penalty = f" + {weight}(ρ‖w‖₁ + (1 − ρ)‖w‖²/2), ρ = {self.l1_ratio:g}"
        losses = ("Σ_j f_j(" if self.epochs else "Σ_t f_t(") + ("w, b)" if self.intercept else "w)")
        return losses + penalty + (f", |w_i| ≤ {self.R:g}" if self.R is not None else "")


def find_comparator(
    algorithm: str, parameters: Mapping[str, Any], loss: str, penalty: str, *, intercept: bool = False
) -> Comparator:
    """The comparator of a configuration, which may have an intercept. Raises `InputError` if there is none."""
    if find_loss(loss).joint:
        raise InputError(
            f"loss={loss!r} is joint over the classes and its optimum is not supported: "
            f"search with loss={find_loss(loss).joint!r}, one loss per class, to measure regret.",
            code="unsupported-combination",
        )
    kind = find_penalty(penalty)
    if kind.grouped:
        raise InputError(
            f"penalty={penalty!r} couples the classes and its optimum is not supported.", code="unsupported-combination"
        )
    definition = find_algorithm(algorithm)
    if definition.touches_all_features:
        raise InputError(
            f"{algorithm} has a convex set instead of a penalty; regret needs a learner with a penalty or a box.",
            code="unsupported-combination",
        )
    ratio = {"l2": 0.0, "elastic_net": parameters.get("l1_ratio", 1.0)}.get(penalty, 1.0)
    R, lam = parameters.get("R"), parameters.get("lam", 0.0)
    if parameters.get("scale", "none") != "none":
        raise InputError(
            f"{algorithm} with scale={parameters['scale']!r} has a range for every weight, and the optimum that "
            "regret needs is supported for one range of all.",
            code="unsupported-combination",
        )
    if not definition.online:
        alpha = parameters.get("alpha", 0.0)
        return Comparator(alpha, ratio, R, own_history=False, intercept=intercept, epochs=True)
    if R is None and lam == 0:
        raise InputError(
            f"{algorithm} with lam=0 has no comparator: without a penalty or a box the best fixed weights may be "
            "infinite.",
            code="no-comparator",
        )
    rule = definition.under(kind).rule(find_loss(loss), kind, parameters)
    schedule = parameters.get("schedule", "constant")
    return Comparator(lam, ratio, R, rule.threshold is not None, intercept, schedule=schedule)


def penalty_factor(schedule: str, t: int) -> float:
    """α_t of the penalty α_tψ of round t."""
    total = TOTALS[schedule]
    return float(total(t)) - float(total(t - 1))
