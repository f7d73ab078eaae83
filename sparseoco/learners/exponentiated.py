"""AO-EG: adaptive and optimistic exponentiated gradient on the simplex Δ_n, for compiled loops.

    x_{t+1} = argmin_{x ∈ Δ_n} (g_{1:t} + g̃_{t+1})·x + s_t·(Σ_i x_i log x_i + log n)
            ∝ exp(−(g_{1:t} + g̃_{t+1})_i / s_t),    s_t = √(2(C + Σ_{a≤t} ‖g_a − g̃_a‖∞²) / log n)

Source: Mohri and Yang (2015), Corollary 3. Adding a constant to all coordinates of a gradient or a prediction changes
no weight, so ‖·‖∞ may be taken of g − g̃ minus a constant: at best, half the range of g − g̃.

The regret of a round. With Φ_s(G) = −s·log (1/n)Σ_i exp(−G_i/s), which is concave in G, increasing in s and at
most min_i G_i + s·log n, the sum of g_t·x_t − (Φ_{s_{t−1}}(g_{1:t}) − Φ_{s_{t−1}}(g_{1:t−1})) telescopes, and each
term is at most, x_t being the gradient of Φ at g_{1:t−1} + g̃_t,

    m_t = d·x_t + s_{t−1}·log Σ_i x_{t,i} exp(−d_i/s_{t−1}),    d = g_t − g̃_t,

so that Reg_T ≤ s_{T−1}·log n + Σ_{t≤T} m_t for any nondecreasing s. That is Theorem 2 before m_t is bounded by
‖d‖²_{(t−1),*}; unlike that norm, m_t gives coordinates with little weight little influence. There are two choices of s:
Corollary 3's, if a bound on ‖g‖∞ is known, and s_t = Σ_{a≤t} m_a / log n, which makes both terms of the bound equal,
Reg_T ≤ 2·Σ_{t≤T} m_t, without prior knowledge.
"""

import math

from sparseoco.core.compile_cache import register_jitable
from sparseoco.learners.numerics import exp_of_negative

LEAST_EXPONENT = 700.0  # weights smaller than exp(−700) are 0


@register_jitable
def ao_eg_scale(C, deviation, n):
    """s_t for `deviation` = Σ_{a≤t} ‖g_a − g̃_a‖∞² and n > 1 coordinates; 0 for n = 1."""
    return math.sqrt(2.0 * (C + deviation) / math.log(float(n))) if n > 1 else 0.0


@register_jitable
def balanced_scale(gaps, n):
    """s_t for `gaps` = Σ_{a≤t} m_a and n > 1 coordinates; 0 for n = 1."""
    return gaps / math.log(float(n)) if n > 1 else 0.0


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


@register_jitable
def soft_minimum(total, more, scale):
    """−scale·log Σ_i exp(−(total_i + more_i)/scale) over the finite totals, at least one; the minimum if scale = 0."""
    least = math.inf
    for i in range(total.shape[0]):
        least = min(least, total[i] + more[i])
    if not scale > 0.0:
        return least
    left = 0.0
    for i in range(total.shape[0]):
        above = total[i] + more[i] - least
        left += exp_of_negative(-above / scale) if above < LEAST_EXPONENT * scale else 0.0
    return least - scale * math.log(left)


@register_jitable
def mixability_gap(total, guess, g, scale, x):
    """(m_t, half the range of d = g − g̃) of a round with weights `x` and `scale`, over coordinates with finite totals.

    m_t = d·x − (soft minimum of g_{1:t−1} + g − soft minimum of g_{1:t−1} + g̃), with g_{1:t−1} in `total`.
    """
    low, high = math.inf, -math.inf
    mean = 0.0
    for i in range(x.shape[0]):
        if total[i] < math.inf:
            d = g[i] - guess[i]
            low, high = min(low, d), max(high, d)
            mean += x[i] * d
    if not low < high:
        return 0.0, 0.0
    gap = mean - (soft_minimum(total, g, scale) - soft_minimum(total, guess, scale))
    return max(gap, 0.0), 0.5 * (high - low)  # below 0 by rounding only
