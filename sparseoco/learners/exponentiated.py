"""AO-EG: adaptive and optimistic exponentiated gradient on the simplex Δ_n, for compiled loops.

    x_{t+1} = argmin_{x ∈ Δ_n} (g_{1:t} + g̃_{t+1})·x + s_t·(Σ_i x_i log x_i + log n)
            ∝ exp(−(g_{1:t} + g̃_{t+1})_i / s_t),    s_t = √(2(C + Σ_{a≤t} ‖g_a − g̃_a‖∞²) / log n)

Source: Mohri and Yang (2015), Corollary 3. A number added to all coordinates of a gradient or a prediction changes no
weight, so ‖·‖∞ may be taken of g − g̃ less any number: half its range is the least that it can be.

What a round adds to the regret. With Φ_s(G) = −s·log (1/n)Σ_i exp(−G_i/s), which is concave, grows with s and is at
most min_i G_i + s·log n, the sum of g_t·x_t − (Φ_{s_{t−1}}(g_{1:t}) − Φ_{s_{t−1}}(g_{1:t−1})) telescopes, and each
term is at most, x_t being the gradient of Φ at g_{1:t−1} + g̃_t,

    m_t = d·x_t + s_{t−1}·log Σ_i x_{t,i} exp(−d_i/s_{t−1}),    d = g_t − g̃_t,

so that Reg_T ≤ s_{T−1}·log n + Σ_{t≤T} m_t for any s that never shrinks. That is Theorem 2 before m_t is bounded by
‖d‖²_{(t−1),*}, and m_t knows what that norm does not: coordinates of little weight matter little. Two choices of s are
made here: Corollary 3's, where ‖g‖∞ is known to be small, and s_t = Σ_{a≤t} m_a / log n, which makes both terms of the
bound equal, Reg_T ≤ 2·Σ_{t≤T} m_t, and needs to know nothing.
"""

import math

from numba.extending import register_jitable

from sparseoco.learners.numerics import exp_of_negative

LEAST_EXPONENT = 700.0  # exp of less is 0: a weight that small is none


@register_jitable
def ao_eg_scale(C, deviation, n):
    """s_t for `deviation` = Σ_{a≤t} ‖g_a − g̃_a‖∞² and n > 1 coordinates; 0 for one, which has the weight 1 anyway."""
    return math.sqrt(2.0 * (C + deviation) / math.log(float(n))) if n > 1 else 0.0


@register_jitable
def balanced_scale(gaps, n):
    """s_t for `gaps` = Σ_{a≤t} m_a and n > 1 coordinates, else 0."""
    return gaps / math.log(float(n)) if n > 1 else 0.0


@register_jitable
def ao_eg_weights(total, guess, scale, x):
    """Write x_i ∝ exp(−(total_i + guess_i)/scale) into `x`, all float64 (n,); the weights sum to 1 up to rounding.

    Where `scale` is 0 — nothing foretold wrongly yet, and C = 0 — the limit: equal weights on the least coordinates. A
    coordinate whose total is infinite has the weight 0; so have all, where none is left.
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
    """−scale·log Σ_i exp(−(total_i + more_i)/scale) over finite totals, one at least; the minimum at scale 0."""
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
    """(m_t, half the range of d = g − g̃) of a round played with `x` at `scale`, over the coordinates with finite
    totals g_{1:t−1}: m_t = d·x − (soft minimum of g_{1:t−1} + g, less that of g_{1:t−1} + g̃)."""
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
