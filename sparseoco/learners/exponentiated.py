"""AO-EG: adaptive and optimistic exponentiated gradient on the simplex Δ_n, for compiled loops.

    x_{t+1} = argmin_{x ∈ Δ_n} (g_{1:t} + g̃_{t+1})·x + s_t·(Σ_i x_i log x_i + log n)
            ∝ exp(−(g_{1:t} + g̃_{t+1})_i / s_t),    s_t = √(2(C + Σ_{a≤t} ‖g_a − g̃_a‖∞²) / log n)

Source: Mohri and Yang (2015), Corollary 3. Adding a constant to all coordinates of a gradient or a prediction changes
no weight, so ‖·‖∞ may be taken of g − g̃ minus a constant: at best, half the range of g − g̃.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from sparseoco.core.compile_cache import register_jitable
from sparseoco.learners.contract import WHY, Algorithm, DenseRule
from sparseoco.learners.domains import Numbers
from sparseoco.learners.losses import Loss
from sparseoco.learners.numerics import exp_of_negative
from sparseoco.learners.parameters import Parameter, categorical, positive
from sparseoco.learners.penalties import Penalty

LEAST_EXPONENT = 700.0  # weights smaller than exp(−700) are 0


@register_jitable
def ao_eg_scale(C, deviation, n):
    """s_t for `deviation` = Σ_{a≤t} ‖g_a − g̃_a‖∞² and n > 1 coordinates; 0 for n = 1."""
    return math.sqrt(2.0 * (C + deviation) / math.log(float(n))) if n > 1 else 0.0


@register_jitable
def ao_eg_weights(total, guess, scale, x):
    """Write x_i ∝ exp(−(total_i + guess_i)/scale) into `x`, all float64 (n,); the weights sum to 1 up to rounding.

    If `scale` is 0 (C = 0 and no prediction error yet), the limit: equal weights on the smallest coordinates.
    Coordinates with an infinite total have weight 0, possibly all of them.
    """
    n = x.shape[0]
    least = total[0] + guess[0]
    for i in range(1, n):
        least = min(least, total[i] + guess[i])
    norm = 0.0
    for i in range(n):
        above = total[i] + guess[i] - least if total[i] < math.inf else math.inf
        if scale > 0.0:
            x[i] = exp_of_negative(-above / scale) if above < LEAST_EXPONENT * scale else 0.0
        else:
            x[i] = 1.0 if above == 0.0 else 0.0
        norm += x[i]
    for i in range(n):
        x[i] = x[i] / norm if norm > 0.0 else 0.0


# ----------------------------------------------------------------------------------------------------------------------
# AO-EG: adaptive and optimistic exponentiated gradient, on the simplex or, as EG±, in a 1-norm ball.
#
#     simplex:  x_{t+1} ∝ exp(−(g_{1:t} + g̃_{t+1})/s_t),    s_t = √(2(C + Σ_{a≤t} ‖g_a − g̃_a‖∞²)/log n)
#     l1:       y_{t+1} = R(p − q), (p, q) on the simplex of 2n coordinates with gradients R(g_t, −g_t)
#
# Source: Mohri and Yang (2015), Corollary 3, whose bound needs C ≥ ‖g_t − g̃_t‖∞² (see tests/bounds/dense.py);
#     EG±
# is due to Kivinen and Warmuth (1997). The formula is in `sparseoco.learners.exponentiated`.
#
# The prediction g̃_{t+1} is g_t (last) or 0 (none).
#
# Symbols: `memory` has three rows: g_{1:t}, g̃_{t+1}, and in its first entry Σ‖g_a − g̃_a‖∞² (of R(g, −g) for l1);
# `numbers.radius` = R, `numbers.spread` = C, `numbers.rate` = 1 for last and 0 for none.
#
# Started from given weights, the state is as if gradients had led there from the centre. The weights are first moved a
# thousandth of the way to the centre, because exponentials cannot leave the boundary.


INWARD = 1e-3  # fraction of the way to the centre by which start weights are moved


@register_jitable
def remember(memory, g, numbers, width):
    """Add a gradient to the memory; `width` is R of a 1-norm ball, or 1 for the simplex."""
    missed = 0.0
    for i in range(g.shape[0]):
        missed = max(missed, width * abs(g[i] - memory[1, i]))
        memory[0, i] += g[i]
        memory[1, i] = numbers.rate * g[i]
    memory[2, 0] += missed * missed


@register_jitable
def move_on_simplex(y, memory, g, t, numbers):
    remember(memory, g, numbers, 1.0)
    ao_eg_weights(memory[0], memory[1], ao_eg_scale(numbers.spread, memory[2, 0], y.shape[0]), y)


@register_jitable
def move_in_l1(y, memory, g, t, numbers):
    R, n = numbers.radius, y.shape[0]
    remember(memory, g, numbers, R)
    total, guess, x = np.empty(2 * n), np.empty(2 * n), np.empty(2 * n)
    for i in range(n):
        total[i], total[n + i] = R * memory[0, i], -R * memory[0, i]
        guess[i], guess[n + i] = R * memory[1, i], -R * memory[1, i]
    ao_eg_weights(total, guess, ao_eg_scale(numbers.spread, memory[2, 0], 2 * n), x)
    for i in range(n):
        y[i] = R * (x[i] - x[n + i])


@register_jitable
def start_on_simplex(y, memory, numbers):
    """g_{1:t} = −s log y."""
    n = y.shape[0]
    total = 0.0
    for i in range(n):
        y[i] = max(y[i], 0.0)
        total += y[i]
    scale = ao_eg_scale(numbers.spread, 0.0, n)
    for i in range(n):
        y[i] = (1.0 - INWARD) * (y[i] / total if total > 0.0 else 1.0 / n) + INWARD / n
        memory[0, i] = -scale * math.log(y[i])


@register_jitable
def start_in_l1(y, memory, numbers):
    """p_i − q_i = y_i/R with p_i q_i = k for all i, as for exponentials: Σ_i √((y_i/R)² + 4k) = 1 determines k."""
    R, n = numbers.radius, y.shape[0]
    total = 0.0
    for i in range(n):
        total += abs(y[i])
    share = (1.0 - INWARD) * min(1.0, R / total) if total > 0.0 else 0.0
    low, high = 0.0, 1.0
    for _ in range(200):
        k = (low + high) / 2
        parts = 0.0
        for i in range(n):
            parts += math.sqrt((share * y[i] / R) ** 2 + 4.0 * k)
        low, high = (low, k) if parts > 1.0 else (k, high)
    scale = ao_eg_scale(numbers.spread, 0.0, 2 * n)
    for i in range(n):
        y[i] *= share
        memory[0, i] = -scale / R * math.asinh(y[i] / R / (2.0 * math.sqrt(high)))


def memory_rows(n: int) -> int:
    """`DenseRule.memory`."""
    return 3


def ao_eg_numbers(configuration: Mapping[str, Any], n: int) -> Numbers:
    """`DenseRule.numbers`."""
    return Numbers(
        configuration["R"], 0.0, 0.0, float(configuration["predict_gradient"] == "last"), configuration["C"], 0.0
    )


def rule(loss: Loss, penalty: Penalty, configuration: Mapping[str, Any]) -> DenseRule:
    if configuration["domain"] == "simplex":
        return DenseRule(move_on_simplex, start_on_simplex, ao_eg_numbers, memory_rows, stays=True, flat=True)
    return DenseRule(move_in_l1, start_in_l1, ao_eg_numbers, memory_rows, stays=True)


DOMAIN = categorical("domain", ("l1", "simplex"), "feasible set: Σ|x_i| ≤ R, or x ≥ 0 with Σ x_i = 1")
RADIUS = Parameter("R", 10.0, "bound of Σ|x_i| (unused on the simplex)", positive, grid=(3.0, 10.0, 30.0, 100.0))
C = Parameter("C", 1.0, "C of the steps; the regret bound needs C ≥ max ‖g_t − g̃_t‖∞²", positive)
PREDICT_GRADIENT = categorical(
    "predict_gradient",
    ("none", "last"),
    "prediction of the next gradient: 0, or the last one",
    default="last",
    static=False,
)
AO_EG = Algorithm(
    name="ao-eg",
    formula="x_{t+1} ∝ exp(−(g_{1:t} + g̃_{t+1})/s_t), s_t = √(2(C + Σ ‖g_a − g̃_a‖∞²)/log n)",
    source="Mohri and Yang 2015, Corollary 3; Kivinen and Warmuth 1997 for EG±",
    parameters=(DOMAIN, RADIUS, C, PREDICT_GRADIENT),
    rules=rule,
    why=WHY,
    driver="dense",
)
