"""A weight under the steps λ·sign(w) alone, in closed form: it falls to zero, then oscillates around it.

In units of eta0·λ, with b = |w| and a_τ = 1/√τ or 1/τ, a round is b ← |b − a_τ|; the sign changes if b < a_τ. Once
b ≤ ½a, two successive rounds are b ← |b − (a_τ − a_{τ+1})|: a round of the same kind for the sequence of every second
difference, which also decreases. So the number of rounds halves from level to level. A level is a run of subtractions
without a sign change, found by bisection on a closed-form sum, then at most one single round, then the next level; a
round left over at the end of a level is applied on the way back. On level L a step is

    f_L(t) = Σ_{r < 2^L} ±a_{t+r},    with the signs of the Thue–Morse sequence,

and its sums are Hurwitz' ζ(½, t), or −ψ(t) for 1/τ, on level 0 and Boole's alternating sums on the others, all as
asymptotic series, accurate to 1e-15 from t = 64·2^(L−1) on; before that, rounds are applied one by one. On level 7 a
step is less than 1e-15 of the first round's, below the rounding error of the recursion itself, so levels end there.
"""

import math

import numpy as np

from sparseoco.core.compile_cache import register_jitable
from sparseoco.learners.contract import step_size

LEVELS = 7
SERIES_FROM = 64.0
SHORT = 12  # up to this many rounds, applying them is faster than summing


@register_jitable
def odd(r):
    """Whether r has an odd number of bits set: the Thue–Morse sequence is −1 there."""
    parity = False
    while r > 0:
        parity ^= (r & 1) == 1
        r >>= 1
    return parity


@register_jitable
def step_of(t, level, shape):
    """f_L(t)."""
    total = 0.0
    for r in range(1 << level):
        a = step_size(shape, t + r)
        total += -a if odd(r) else a
    return total


@register_jitable
def tail(t, level, shape):
    """Σ_{i ≥ 0} f_L(t + i·2^L), up to a constant on level 0."""
    if level == 0:
        i = 1.0 / t
        if shape == 2.0:
            return -math.log(t) + i * (0.5 + i * (1 / 12 + i * i * (-1 / 120 + i * i * (1 / 252 - i * i / 240))))
        return -2.0 * math.sqrt(t) + math.sqrt(i) * (
            0.5 + i * (1 / 24 + i * i * (-1 / 384 + i * i * (1 / 1024 - i * i * 0.000873)))
        )
    half = 1 << (level - 1)
    total = 0.0
    for r in range(half):
        q = half / (t + r)
        c = q * q
        if shape == 2.0:
            a = (0.5 + q * (0.25 + c * (-0.125 + c * (0.25 - c * 1.0625)))) / (t + r)
        else:
            a = (0.5 + q * (0.125 + c * (-0.0390625 + c * (0.0615234375 - c * 0.222565)))) / math.sqrt(t + r)
        total += -a if odd(r) else a
    return total


@register_jitable
def swing(b, t, rounds, shape):
    """(b, turns) after `rounds` rounds from t on; `turns` is −1 if the sign has changed."""
    turns = 1.0
    if rounds <= SHORT:
        for i in range(rounds):
            a = step_size(shape, t + i)
            turns = -turns if b < a else turns
            b = abs(b - a)
        return b, turns
    if t >= SERIES_FROM:
        fall = tail(t, 0, shape) - tail(t + rounds, 0, shape)
        if fall <= b:
            return b - fall, turns
    return swing_across(b, t, rounds, shape)


@register_jitable
def swing_across(b, t, rounds, shape):
    """`swing` if zero may be crossed."""
    turns = 1.0
    ends = np.empty(LEVELS)  # the round left over on each level, or 0
    deepest = -1
    for level in range(LEVELS):
        stride = float(1 << level)
        while rounds > 0 and t < SERIES_FROM * stride / 2.0 + SERIES_FROM / 2.0 * (level == 0):
            f = step_of(t, level, shape)
            turns = -turns if b < f else turns
            b = abs(b - f)
            t += stride
            rounds -= 1
        if rounds > 0:
            start = tail(t, level, shape)
            low, high = 0, rounds + 1  # the most rounds that leave b ≥ 0
            if start - tail(t + stride * rounds, level, shape) <= b:
                low = rounds
            while low < rounds and high - low > 1:
                middle = (low + high) // 2
                if start - tail(t + stride * middle, level, shape) <= b:
                    low = middle
                else:
                    high = middle
            if low > 0:
                b = max(0.0, b - (start - tail(t + stride * low, level, shape)))
                t += stride * low
                rounds -= low
        if rounds > 0:
            f = step_of(t, level, shape)
            if b > 0.5 * f:
                turns = -turns if b < f else turns
                b = abs(b - f)
                t += stride
                rounds -= 1
        ends[level] = t + stride * (rounds - 1) if rounds % 2 == 1 else 0.0
        deepest = level
        rounds //= 2
        if rounds == 0:
            break
    for level in range(deepest, -1, -1):
        if ends[level] > 0.0:
            f = step_of(ends[level], level, shape)
            turns = -turns if b < f else turns
            b = abs(b - f)
    return b, turns


@register_jitable
def swing_evenly(b, rounds):
    """`swing` for constant steps of 1."""
    down = min(math.floor(b), float(rounds))
    b -= down
    if b == 0.0 or (rounds - int(down)) % 2 == 0:
        return b, 1.0
    return 1.0 - b, -1.0
