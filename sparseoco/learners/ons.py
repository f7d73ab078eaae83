"""The online Newton step: gradient descent in the metric of the gradients' second moments.

    A_t = A_{t−1} + g_t g_tᵀ,    A_0 = εI,  ε = 1/(β²D²)
    y_{t+1} = Π^{A_t}[y_t − A_t⁻¹g_t/β],    β = ½·min{1/(4GD), α}

Source: Hazan, Agarwal and Kale (2007), Figure 2 and Theorem 2, as used by Liu et al. (2019), §4; the losses are
α-exp-concave, ‖g_t‖ ≤ G, D is the diameter of the set.

B = A⁻¹ is stored and updated by the Sherman–Morrison formula (Liu et al. 2019, §4) in time d²; with p = B_{t−1}g, which
needs only the columns of B where g is not 0, and q = gᵀp,

    B_t = B_{t−1} − ppᵀ/(1 + q),    B_t g = p/(1 + q).

Symbols: `numbers.rate` = 1/β, `numbers.spread` = 1/ε. `memory` is B, d² numbers, symmetric bit for bit.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from sparseoco.core.compile_cache import register_jitable
from sparseoco.learners.contract import (
    AUTO,
    DIAMETER,
    DOMAIN,
    IN_METRIC,
    WHY,
    Algorithm,
    DenseRule,
    G,
    auto_or,
    diameter,
)
from sparseoco.learners.domains import Numbers, product
from sparseoco.learners.losses import Loss
from sparseoco.learners.parameters import Parameter, positive
from sparseoco.learners.penalties import Penalty


@register_jitable
def move(y, memory, g, t, numbers, project):
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
    project(y, memory, numbers)


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
    return Numbers(configuration["D"] / 2, 0.0, 0.0, 1.0 / beta, (beta * D) ** 2, 0.0)


def rule(loss: Loss, penalty: Penalty, configuration: Mapping[str, Any]) -> DenseRule:
    domain = configuration["domain"]
    return DenseRule(move, IN_METRIC[domain], ons_numbers, square, begin, flat=domain == "simplex")


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
    penalties=("l1",),
    rules=rule,
    why=WHY,
    driver="dense",
)
