"""AO-EG: adaptive and optimistic exponentiated gradient on the simplex Δ_n, for compiled loops.

    x_{t+1} = argmin_{x ∈ Δ_n} (g_{1:t} + g̃_{t+1})·x + s_t·(Σ_i x_i log x_i + log n)
            ∝ exp(−(g_{1:t} + g̃_{t+1})_i / s_t),    s_t = √(2(C + Σ_{a≤t} ‖g_a − g̃_a‖∞²) / log n)

Source: Mohri and Yang (2015), Corollary 3. A number added to all coordinates of a gradient or a prediction changes no
weight, so ‖·‖∞ may be taken of g − g̃ less any number: half its range is the least that it can be.
"""

import math

from numba.extending import register_jitable

from sparseoco.functions import exp_of_negative


@register_jitable
def ao_eg_scale(C, deviation, n):
    """s_t for `deviation` = Σ_{a≤t} ‖g_a − g̃_a‖∞² and n > 1 coordinates; 0 for one, which has the weight 1 anyway."""
    return math.sqrt(2.0 * (C + deviation) / math.log(float(n))) if n > 1 else 0.0


@register_jitable
def ao_eg_weights(total, guess, scale, x):
    """Write x_i ∝ exp(−(total_i + guess_i)/scale) into `x`, all float64 (n,); the weights sum to 1 up to rounding.

    Where `scale` is 0 — nothing foretold wrongly yet, and C = 0 — the limit: equal weights on the least coordinates.
    """
    n = x.shape[0]
    least = total[0] + guess[0]
    for i in range(1, n):
        least = min(least, total[i] + guess[i])
    norm = 0.0
    for i in range(n):
        above = total[i] + guess[i] - least
        if scale > 0.0:
            x[i] = exp_of_negative(-above / scale) if above / scale < 700.0 else 0.0
        else:
            x[i] = 1.0 if above == 0.0 else 0.0
        norm += x[i]
    for i in range(n):
        x[i] /= norm
