"""Primal-dual AdaGrad: dual averaging whose step is a coordinate's own, by the root of its squared gradients.

    w_{t+1} = argmin_w g_{1:t}·w + tψ(w) + w·H_t w/(2·eta),    H_t = δ + diag(√(Σ_{s≤t} g_s²))
            = −eta·soft(g_{1:t}, tλ)/H_t for ψ = λ‖w‖₁

Source: Duchi, Hazan and Singer (2011), the primal-dual update; Mohri and Yang (2015),
Corollary 1.2.

With ψ = λ(ρ|w| + (1 − ρ)w²/2) it is −eta·soft(g_{1:t}, tλρ)/(H_t + eta·tλ(1 − ρ)); in a box, −eta·g_{1:t}/H_t clipped.

Symbols: `G` = g_{1:t}; `root` = √(Σ g²); `stiff` = δ + eta·tλ(1 − ρ); `due` = tλρ, for a box its R.

Why lazy is exact: a coordinate out of the support of g_t adds 0 to both sums, and the weight is a function of the sums
and of t alone, so nothing is ever due.

Two slots a coordinate, no stamp.
"""

import math
from collections.abc import Mapping
from typing import Any

from numba.extending import register_jitable

from sparseoco.learners.contract import LAM, Algorithm, Parameter, Rule, no_time, nonzero, positive
from sparseoco.learners.losses import Loss
from sparseoco.learners.penalties import Penalty


@register_jitable
def tick(clock, hyper):
    eta, delta, lam = hyper
    return (eta, delta, clock.n * lam)


@register_jitable
def tick_decaying(clock, hyper):
    eta, delta, lam, ratio = hyper
    due = clock.n * lam
    return (eta, delta + eta * due * (1.0 - ratio), due * ratio)


@register_jitable
def tick_bounded(clock, hyper):
    return hyper


@register_jitable
def step(eta, stiff, root):
    return eta / (stiff + root)


@register_jitable
def weight(slots, slept, now, prox, parts):
    G, root = slots
    eta, stiff, due = now
    scale = step(eta, stiff, root)
    return prox(-G * scale, due * scale)


@register_jitable
def weight_bounded(slots, slept, now, prox, parts):
    G, root = slots
    eta, delta, R = now
    return prox(-G * step(eta, delta, root), R)


@register_jitable
def observe(slots, slept, now, g, x, prox, parts):
    G, root = slots
    return (G + g, math.sqrt(root * root + g * g))


@register_jitable
def root_of(w, eta):
    """√(Σ g²) as if gradients of size 1, all of one sign, had made w, which then is about eta·√t; at least one."""
    made = abs(w) / eta
    least = nonzero(w)
    return made if made > least else least


@register_jitable
def from_weight(w, now, preimage, parts):
    eta, stiff, due = now
    root = root_of(w, eta)
    scale = step(eta, stiff, root)
    return (-preimage(w, due * scale) / scale, root)


@register_jitable
def from_weight_bounded(w, now, preimage, parts):
    eta, delta, R = now
    root = root_of(preimage(w, R), eta)
    return (-preimage(w, R) / step(eta, delta, root), root)


FORMS = {
    "additive": (tick, weight, from_weight, ("eta", "delta", "lam")),
    "decaying": (tick_decaying, weight, from_weight, ("eta", "delta", "lam", "l1_ratio")),
    "bounded": (tick_bounded, weight_bounded, from_weight_bounded, ("eta", "delta", "R")),
}


def rule(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> Rule:
    form, read, start, hyper = FORMS[penalty.kind]
    return Rule(no_time, form, read, observe, ("G", "root"), hyper, ticks=3, stamped=False, from_weight=start)


ADAGRAD = Algorithm(
    name="adagrad",
    formula="w_{t+1} = argmin g_{1:t}·w + tψ(w) + (δ + √(Σ_{s≤t} g_s²))·w²/(2·eta)",
    source="Duchi, Hazan and Singer 2011; Mohri and Yang 2015, Corollary 1.2",
    parameters=(
        Parameter(
            "eta", 0.03, "step size; a coordinate steps eta/(delta + √Σg²)", positive, grid=(0.01, 0.03, 0.1, 0.3)
        ),
        Parameter("delta", 1e-6, "added to the root, so that first steps are bounded", positive),
        LAM._replace(grid=(1e-6, 1e-5, 1e-4, 1e-3)),
    ),
    penalties=("l1", "l2", "elastic_net", "box"),
    rule=rule,
    module=__name__,
)
