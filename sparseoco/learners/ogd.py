"""Online gradient descent in a convex set.

    y_{t+1} = Π[y_t − η_t g_t],    η_t = D/(G√t)

Source: Zinkevich (2003), with the step of Liu et al. (2019), §4; ‖g_t‖ ≤ G, D the diameter of the set.

Symbols: `numbers.rate` = D/G. There is no memory.
"""

import math
from collections.abc import Mapping
from typing import Any

from sparseoco.core.compile_cache import register_jitable
from sparseoco.learners.contract import DIAMETER, DOMAIN, EUCLIDEAN, WHY, Algorithm, DenseRule, G, diameter
from sparseoco.learners.domains import Numbers
from sparseoco.learners.losses import Loss
from sparseoco.learners.penalties import Penalty


@register_jitable
def move(y, memory, g, t, numbers, project):
    eta = numbers.rate / math.sqrt(t)
    for i in range(y.shape[0]):
        y[i] -= eta * g[i]
    project(y, memory, numbers)


def ogd_numbers(configuration: Mapping[str, Any], n: int) -> Numbers:
    """`DenseRule.numbers`."""
    return Numbers(configuration["D"] / 2, 0.0, 0.0, diameter(configuration) / configuration["G"], 0.0, 0.0)


def rule(loss: Loss, penalty: Penalty, configuration: Mapping[str, Any]) -> DenseRule:
    domain = configuration["domain"]
    return DenseRule(move, EUCLIDEAN[domain], ogd_numbers, flat=domain == "simplex")


OGD = Algorithm(
    name="ogd",
    formula="y_{t+1} = Π[y_t − η_t g_t], η_t = D/(G√t)",
    source="Zinkevich 2003; Liu et al. 2019, §4",
    parameters=(DOMAIN, DIAMETER, G),
    penalties=("l1",),
    rules=rule,
    why=WHY,
    driver="dense",
)
