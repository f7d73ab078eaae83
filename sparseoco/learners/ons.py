"""Online gradient descent and online Newton steps in a convex set, from gradients or as bandits."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from sparseoco.core.compile_cache import register_jitable
from sparseoco.core.errors import InputError, unsupported
from sparseoco.learners.contract import WHY, Algorithm, DenseRule
from sparseoco.learners.domains import DOMAINS, Numbers, onto_set, onto_set_in_metric, product
from sparseoco.learners.losses import Loss
from sparseoco.learners.parameters import Parameter, categorical, nonnegative, positive, positive_int, whole_number
from sparseoco.learners.penalties import Penalty

AUTO = "auto"
ROUNDING = 1e-9
"""γ of two-point is not smaller: a difference of two losses then keeps half of its digits."""


def auto_or(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A check: the word auto, for a computed value, or what passes `check`."""

    def checked(value: Any) -> Any:
        return AUTO if value == AUTO else check(value)

    return checked


DOMAIN = categorical("domain", DOMAINS, "feasible set: ‖x‖ ≤ D/2, or x ≥ 0 with Σ x_i = 1, or ‖x‖₁ ≤ D/2")
DIAMETER = Parameter("D", 10.0, "diameter of a ball (that of the simplex is √2)", positive, grid=(2.0, 10.0, 50.0))
G = Parameter("G", 10.0, "bound of ‖g_t‖: the larger, the smaller the steps", positive, grid=(1.0, 3.0, 10.0, 30.0))


def diameter(configuration: Mapping[str, Any]) -> float:
    """Diameter of the set."""
    return 2.0**0.5 if configuration["domain"] == "simplex" else float(configuration["D"])


def numbers_in(
    configuration: Mapping[str, Any], rate: float, spread: float = 0.0, gamma: float = 0.0, delta: float = 0.0
) -> Numbers:
    """`DenseRule.numbers` in the set of a configuration."""
    domain = float(DOMAINS.index(configuration["domain"]))
    return Numbers(configuration["D"] / 2, gamma, delta, rate, spread, configuration.get("repetition", 0), domain)


# ----------------------------------------------------------------------------------------------------------------------
# Online gradient descent in a convex set.
#
#     y_{t+1} = Π[y_t − η_t g_t],    η_t = D/(G√t)
#
# Source: Zinkevich (2003), with the step of Liu et al. (2019), §4; ‖g_t‖ ≤ G, D the diameter of the set.
#
# Symbols: `numbers.rate` = D/G. There is no memory.


@register_jitable
def descend(y, memory, g, t, numbers):
    eta = numbers.rate / math.sqrt(t)
    for i in range(y.shape[0]):
        y[i] -= eta * g[i]


def ogd_numbers(configuration: Mapping[str, Any], n: int) -> Numbers:
    """`DenseRule.numbers`."""
    return numbers_in(configuration, diameter(configuration) / configuration["G"])


def ogd_rule(loss: Loss, penalty: Penalty, configuration: Mapping[str, Any]) -> DenseRule:
    return DenseRule(descend, onto_set, ogd_numbers, flat=configuration["domain"] == "simplex")


OGD = Algorithm(
    name="ogd",
    formula="y_{t+1} = Π[y_t − η_t g_t], η_t = D/(G√t)",
    source="Zinkevich 2003; Liu et al. 2019, §4",
    parameters=(DOMAIN, DIAMETER, G),
    rules=ogd_rule,
    why=WHY,
    driver="dense",
)


# ----------------------------------------------------------------------------------------------------------------------
# The online Newton step: gradient descent in the metric of the gradients' second moments.
#
#     A_t = A_{t−1} + g_t g_tᵀ,    A_0 = εI,  ε = 1/(β²D²)
#     y_{t+1} = Π^{A_t}[y_t − A_t⁻¹g_t/β],    β = ½·min{1/(4GD), α}
#
# Source: Hazan, Agarwal and Kale (2007), Figure 2 and Theorem 2, as used by Liu et al. (2019), §4; the losses are
# α-exp-concave, ‖g_t‖ ≤ G, D is the diameter of the set.
#
# B = A⁻¹ is stored and updated by the Sherman–Morrison formula (Liu et al. 2019, §4) in time d²; with p = B_{t−1}g,
# which needs only the columns of B where g is not 0, and q = gᵀp,
#
#     B_t = B_{t−1} − ppᵀ/(1 + q),    B_t g = p/(1 + q).
#
# Symbols: `numbers.rate` = 1/β, `numbers.spread` = 1/ε. `memory` is B, d² numbers, symmetric bit for bit.


@register_jitable
def newton_step(y, memory, g, t, numbers):
    p = np.empty_like(y)
    product(memory, g, p)
    q = 0.0
    for i in range(y.shape[0]):
        q += g[i] * p[i]
    q = max(q, 0.0)  # negative by rounding only
    step = numbers.rate / (1.0 + q)
    root = math.sqrt(1.0 + q)
    for i in range(y.shape[0]):
        y[i] -= step * p[i]
        p[i] /= root
    for i in range(y.shape[0]):
        if p[i] != 0.0:
            for j in range(y.shape[0]):
                memory[i, j] -= p[i] * p[j]


def square(n: int) -> int:
    """`DenseRule.memory`: B."""
    return n


def begin(memory: Any, numbers: Numbers) -> None:
    """B_0 = I/ε."""
    np.fill_diagonal(memory, numbers.spread)


def ons_numbers(configuration: Mapping[str, Any], n: int) -> Numbers:
    """`DenseRule.numbers`."""
    D, beta = diameter(configuration), configuration["beta"]
    if beta == AUTO:
        beta = 0.5 * min(1.0 / (4.0 * configuration["G"] * D), configuration["alpha"])
    return numbers_in(configuration, 1.0 / beta, (beta * D) ** 2)


def ons_rule(loss: Loss, penalty: Penalty, configuration: Mapping[str, Any]) -> DenseRule:
    flat = configuration["domain"] == "simplex"
    return DenseRule(newton_step, onto_set_in_metric, ons_numbers, square, begin, flat=flat)


ALPHA = Parameter("alpha", 1.0, "α, exp-concavity of the losses: exp(−αf_t) is concave", positive)
BETA = Parameter(
    "beta",
    AUTO,
    "β: steps are A⁻¹g/β and A starts at I/(β²D²); auto is ½·min{1/(4GD), α}",
    auto_or(positive),
    grid=(1e-4, 1e-3, 1e-2, 1e-1),
)
ONS = Algorithm(
    name="ons",
    formula="A_t = A_{t−1} + g_t g_tᵀ, A_0 = I/(β²D²), y_{t+1} = Π^{A_t}[y_t − A_t⁻¹g_t/β]",
    source="Hazan, Agarwal and Kale 2007, Figure 2; Liu et al. 2019, §4",
    parameters=(DOMAIN, DIAMETER, G._replace(grid=()), ALPHA, BETA),  # if β is given, G is unused
    rules=ons_rule,
    why=WHY,
    driver="dense",
)


# ----------------------------------------------------------------------------------------------------------------------
# Bandits: learners that observe only the loss of the point they played and estimate gradients from it.
#
#     x_t = y_t + δv_t,    g_t = (m/δ)·f_t(x_t)·v_t,    v_t uniform among the unit vectors
#
# is played instead of y_t, and E[g_t | y_t] is the gradient of f_t averaged over a ball of radius δ about y_t (Flaxman,
# Kalai and McMahan 2005, Lemma 2.1). m = n for a ball; on the simplex v_t lies in the plane Σv_i = 0 of dimension
# m = n − 1. y_t stays in the set shrunk by γ, so that x_t is in the set if δ ≤ γr, r the radius of a ball inside it.
#
#     ogdeg:  y_{t+1} = Π_{(1−γ)P}[y_t − ν_t f_t(x_t)v_t],    ν_t = D/(F√t),    |f_t| ≤ F
#     onseg:  A_t = A_{t−1} + g_t g_tᵀ,  y_{t+1} = Π^{A_t}_{(1−γ)P}[y_t − A_t⁻¹g_t/β],  A_0 = I/(β²D²)
#
# Sources: Flaxman et al. (2005), with the step of Liu et al. (2019), §4: this is `ogd` with G = mF/δ, the
# largest possible ‖g_t‖. Liu et al. (2019), Algorithm 1, is `ons`.
#
# Whoever may ask for the loss in two points of a round gets a gradient whose size does not grow as δ shrinks:
#
#     two-point:  g_t = m/(2δ)·(f_t(y_t + δv_t) − f_t(y_t − δv_t))·v_t,   y_{t+1} = Π_{(1−γ)P}[y_t − η_t g_t]
#
# Sources: Agarwal, Dekel and Xiao (2010); the regret O(L√(mT)) is due to Shamir (2017). This is `ogd`, with G the root
# of the bound E‖g_t‖² ≤ (m/(2δ))²·(2Lδ)²/(m − 1) = L²m²/(m − 1) for L-Lipschitz losses (L² for m = 1): the difference
# has mean 0, and Poincaré's inequality on the sphere bounds its variance.
#
# Values of auto parameters, for T rounds, diameter D, and L-Lipschitz losses (or L = 0 if no constant is known):
#
#     onseg:  δ = ∛(25m⁴D²r·log²T/(3T²)), γ = ∛(15m²D·log T/(rT))                             Theorem 3.1
#             δ = √(10m²FDr·log T/(3(Lr + F)T)), γ = δ/r                                      Theorem 3.2
#             β = ½·min{δ/(4mFD), α}, α = σδ²/(m²F²)
#     ogdeg:  δ = ∛(3m²D²r/(16T)), γ = ∛(9mD/(4r√T));  or  δ = √(3mDFr/(2(3Lr + 2F)√T)), γ = δ/r
#     two-point:  γ = log T/T, δ = γr                                              as in Agarwal et al.
#
# The line of ogdeg minimises the bound in tests/bounds/dense.py for this step, as in Flaxman et al., Theorem 1: the
# sum a/δ + bδ/γ + cγ is least for δ = ∛(a²/(bc)) and γ = ∛(ab/c²). If T is so small that γ ≥ 1, the theorems are void;
# then γ = ½ and δ ≤ γr.
#
# Symbols: `numbers.rate` = D/G = Dδ/(mF) for ogdeg, 1/β for onseg, D/G for two-point; `numbers.spread` = β²D².


class Terms(NamedTuple):
    """The constants of a bandit's configuration for n features."""

    m: int
    """Dimension of the set."""
    D: float
    r: float
    delta: float
    gamma: float
    beta: float
    """β of onseg; 0 for others."""


def bandit_terms(configuration: Mapping[str, Any], n: int) -> Terms:
    """The constants of a configuration for n features, with auto parameters computed.

    Raises `InputError` if δ > γr or no ball of radius r fits into the set, so that points played could leave it.
    """
    m = n - 1 if configuration["domain"] == "simplex" else n
    if m < 1:
        raise InputError(
            "A simplex with one feature is a single point: there is nothing to learn.", code="invalid-parameter"
        )
    D, r = diameter(configuration), configuration["r"]
    largest = 1.0 / math.sqrt(n * m) if m < n else D / 2
    if configuration["domain"] == "l1":
        largest /= math.sqrt(n)
    if r == AUTO:
        r = largest
    if r > largest * (1.0 + 1e-12):
        raise InputError(
            f"r={r:g} is too large: the largest ball in the set has radius {largest:g}.",
            code="invalid-parameter",
        )
    delta, gamma = configuration["delta"], configuration["gamma"]
    best = _least_sum(configuration, m, D, r) if "F" in configuration else _smallest(configuration["T"], r)
    if gamma == AUTO:
        gamma = best[1] if delta == AUTO else max(best[1], delta / r)
    if delta == AUTO:
        delta = min(best[0], gamma * r)
    if delta > gamma * r * (1.0 + 1e-12) or gamma >= 1.0:
        raise InputError(
            f"delta={delta:g} must be at most gamma·r={gamma:g}·{r:g} and gamma less than 1: otherwise the points "
            "played, y + delta·v, can leave the set.",
            code="invalid-parameter",
        )
    beta = 0.0
    if "sigma" in configuration:
        beta = configuration["beta"]
        if beta == AUTO:
            F = configuration["F"]
            alpha = configuration["sigma"] * delta**2 / (m * F) ** 2
            beta = 0.5 * min(delta / (4.0 * m * F * D), alpha)
    return Terms(m, D, r, delta, gamma, beta)


def _least_sum(configuration: Mapping[str, Any], m: int, D: float, r: float) -> tuple[float, float]:
    """The δ and γ that minimise a/δ + bδ/γ + cγ, b = 6FT/r and c = 2FT, or a/δ + (3L + 2F/r)Tδ with γ = δ/r.

    a/δ is the regret of the gradient steps.
    """
    T, F, L = configuration["T"], configuration["F"], configuration["L"]
    newton = "sigma" in configuration
    a = 10.0 * m * m * F * D * math.log(max(T, 2)) if newton else 1.5 * D * m * F * math.sqrt(T)
    if L > 0.0:
        own = 3.0 * F / r if newton else 2.0 * F / r  # Theorem 3.2 has 3 for 2
        delta = math.sqrt(a / ((3.0 * L + own) * T))
        gamma = delta / r
    else:
        b, c = 6.0 * F * T / r, 2.0 * F * T
        delta, gamma = (a * a / (b * c)) ** (1 / 3), (a * b / (c * c)) ** (1 / 3)
    return (delta, gamma) if gamma < 1.0 else (min(delta, r / 2), 0.5)


def _smallest(T: int, r: float) -> tuple[float, float]:
    """δ and γ of two-point, whose gradients do not grow as δ shrinks: only rounding limits it."""
    gamma = max(math.log(max(T, 2)) / max(T, 2), ROUNDING)
    return gamma * r, gamma


def ogdeg_numbers(configuration: Mapping[str, Any], n: int) -> Numbers:
    """`DenseRule.numbers`."""
    it = bandit_terms(configuration, n)
    return numbers_in(configuration, it.D * it.delta / (it.m * configuration["F"]), 0.0, it.gamma, it.delta)


def onseg_numbers(configuration: Mapping[str, Any], n: int) -> Numbers:
    """`DenseRule.numbers`."""
    it = bandit_terms(configuration, n)
    return numbers_in(configuration, 1.0 / it.beta, (it.beta * it.D) ** 2, it.gamma, it.delta)


def two_point_numbers(configuration: Mapping[str, Any], n: int) -> Numbers:
    """`DenseRule.numbers`."""
    it = bandit_terms(configuration, n)
    G = configuration["L"] * it.m / math.sqrt(max(it.m - 1, 1))
    return numbers_in(configuration, it.D / G, 0.0, it.gamma, it.delta)


def _check(loss: Loss, name: str) -> None:
    if loss.joint:
        raise unsupported(
            f"{name} trains one bandit per class, each on its own loss; loss={loss.name!r} is joint over the classes. "
            f"Use loss={loss.joint!r}."
        )


def ogdeg_rule(loss: Loss, penalty: Penalty, configuration: Mapping[str, Any]) -> DenseRule:
    _check(loss, "ogdeg")
    return ogd_rule(loss, penalty, configuration)._replace(numbers=ogdeg_numbers, played=1)


def onseg_rule(loss: Loss, penalty: Penalty, configuration: Mapping[str, Any]) -> DenseRule:
    _check(loss, "onseg")
    return ons_rule(loss, penalty, configuration)._replace(numbers=onseg_numbers, played=1)


def two_point_rule(loss: Loss, penalty: Penalty, configuration: Mapping[str, Any]) -> DenseRule:
    _check(loss, "two-point")
    return ogd_rule(loss, penalty, configuration)._replace(numbers=two_point_numbers, played=2)


F = Parameter("F", 10.0, "bound of |f_t| in the set", positive, grid=(1.0, 3.0, 10.0, 30.0))
T = Parameter(
    "T", 100_000, "expected number of rounds, from which auto delta, gamma and beta are computed", positive_int
)
INNER = Parameter(
    "r", AUTO, "radius of a ball inside the set; auto is the largest around its centre", auto_or(positive)
)
LIPSCHITZ = Parameter("L", 0.0, "Lipschitz constant of the losses; 0 if unknown", nonnegative)
DELTA = Parameter("delta", AUTO, "δ, length of the perturbations; auto is the theorem's value", auto_or(positive))
SHRINKING = Parameter("gamma", AUTO, "γ, by which the set is shrunk; auto is the theorem's value", auto_or(positive))
RUN = Parameter("repetition", 0, "number of the run; runs draw independent directions", whole_number)
SIGMA = Parameter("sigma", 1.0, "σ of the σ-nice losses: strong convexity of their averages", positive)
BANDIT_BETA = BETA._replace(
    meaning="β: steps are A⁻¹g/β and A starts at I/(β²D²); auto is ½·min{δ/(4mFD), σδ²/(m²F²)}",
    grid=(1e-6, 1e-5, 1e-4, 1e-3),
)

OGDEG = Algorithm(
    name="ogdeg",
    formula="x_t = y_t + δv_t, y_{t+1} = Π_{(1−γ)P}[y_t − ν_t f_t(x_t)v_t], ν_t = D/(F√t)",
    source="Flaxman, Kalai and McMahan 2005; Liu et al. 2019, §4",
    parameters=(DOMAIN, DIAMETER, F, T, INNER, LIPSCHITZ, DELTA, SHRINKING, RUN),
    rules=ogdeg_rule,
    why=WHY,
    driver="dense",
)
ONSEG = Algorithm(
    name="onseg",
    formula="x_t = y_t + δv_t, g_t = (m/δ)f_t(x_t)v_t, A_t = A_{t−1} + g_t g_tᵀ, A_0 = I/(β²D²), "
    "y_{t+1} = Π^{A_t}_{(1−γ)P}[y_t − A_t⁻¹g_t/β]",
    source="Liu et al. 2019, Algorithm 1",
    parameters=(
        DOMAIN,
        DIAMETER,
        F._replace(grid=()),
        T,
        SIGMA,
        INNER,
        LIPSCHITZ,
        DELTA,
        SHRINKING,
        BANDIT_BETA,
        RUN,
    ),
    rules=onseg_rule,
    why=WHY,
    driver="dense",
)
TWO_POINT = Algorithm(
    name="two-point",
    formula="g_t = m/(2δ)·(f_t(y_t + δv_t) − f_t(y_t − δv_t))v_t, y_{t+1} = Π_{(1−γ)P}[y_t − η_t g_t], "
    "η_t = D√(m − 1)/(Lm√t)",
    source="Agarwal, Dekel and Xiao 2010; Shamir 2017",
    parameters=(
        DOMAIN,
        DIAMETER,
        LIPSCHITZ._replace(
            default=10.0,
            meaning="Lipschitz constant of the losses: the larger, the smaller the steps",
            check=positive,
            grid=(1.0, 3.0, 10.0, 30.0),
        ),
        T,
        INNER,
        DELTA,
        SHRINKING,
        RUN,
    ),
    rules=two_point_rule,
    why=WHY,
    driver="dense",
)
