"""Primal-dual AdaGrad: dual averaging whose step is a coordinate's own, by the root of its squared gradients.

    w_{t+1} = argmin_w g_{1:t}·w + tψ(w) + w·H_t w/(2·eta) = −eta·soft(g_{1:t}, tλ)/(δ + √(Σ_{s≤t} g_s²)) for ψ = λ‖w‖₁

Source: Duchi, Hazan and Singer (2011), the primal-dual update, H_t = δ + diag(√Σ g²); Mohri and Yang (2015),
Corollary 1.2.

Symbols: `G` = g_{1:t}; `root` = √(Σ g²); `due` = tλ.

Why lazy is exact: a coordinate out of the support of g_t adds 0 to both sums, and the weight is a function of the sums
and of t alone, so nothing is ever due.

Two slots a coordinate, no stamp.
"""

import math
from collections.abc import Mapping
from typing import Any

from numba.extending import register_jitable

from sparseoco.learners.definition import LAM, Algorithm, Parameter, Rule, no_time, positive
from sparseoco.losses import Loss
from sparseoco.penalties import Penalty


@register_jitable
def tick(clock, hyper):
    eta, delta, lam = hyper
    return (eta, delta, clock.n * lam)


@register_jitable
def weight(slots, slept, now, prox, parts):
    G, root = slots
    eta, delta, due = now
    scale = eta / (delta + root)
    return prox(-G * scale, due * scale)


@register_jitable
def observe(slots, slept, now, g, x, prox, parts):
    G, root = slots
    return (G + g, math.sqrt(root * root + g * g))


def rule(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> Rule:
    hyper = ("eta", "delta", "lam")
    return Rule(no_time, tick, weight, observe, ("G", "root"), hyper, ticks=3, stamped=False)


ADAGRAD = Algorithm(
    name="adagrad",
    formula="w_{t+1} = −eta·soft(g_{1:t}, tλ)/(δ + √(Σ_{s≤t} g_s²))",
    source="Duchi, Hazan and Singer 2011; Mohri and Yang 2015, Corollary 1.2",
    parameters=(
        Parameter(
            "eta", 0.03, "step size; a coordinate steps eta/(delta + √Σg²)", positive, grid=(0.01, 0.03, 0.1, 0.3)
        ),
        Parameter("delta", 1e-6, "added to the root, so that first steps are bounded", positive),
        LAM._replace(grid=(1e-6, 1e-5, 1e-4, 1e-3)),
    ),
    penalties=("l1",),
    rule=rule,
    module=__name__,
)
