"""exp, logarithms, cube roots and a hash in plain arithmetic, for compiled loops.

The C library's exp, log1p and cbrt give different bits on different machines and keep a loop over columns from being
vectorised; these give the same bits everywhere and take a few nanoseconds per block of columns. All are accurate to 2
units in the last place.
"""

import numpy as np
from numba import config

from sparseoco.core.compile_cache import register_jitable

_LOG2_E = 1.4426950408889634
_LN2 = 0.6931471805599453
_LN2_HIGH = 0.6931471803691238  # its product with any exponent is exact
_LN2_LOW = 1.9082149292705877e-10
_SMALLEST = -708.0  # below this exp would be subnormal; use 3e-308 instead
_FRACTION = np.int64((1 << 52) - 1)
_EXPONENT_0 = np.int64(1023 << 52)
_ONE, _THREE = np.float32(1), np.float32(3)  # float32, so that arithmetic with float32 numbers stays float32
_CUBIC = tuple(np.array([0.333271, -0.10893, 0.0490255, -0.0134926], np.float32))


@register_jitable
def exp_of_negative(x):
    """e^x for x ≤ 0: x = k·ln 2 + r, |r| ≤ ½ ln 2; 2^k from its bits, e^r from its Taylor series."""
    x = x if x > _SMALLEST else _SMALLEST
    k = np.floor(x * _LOG2_E + 0.5)
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    p = 1.0 / 6227020800.0
    p = p * r + 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r * r + r + 1.0
    return p * np.int64((np.int64(k) + 1023) << 52).view(np.float64)


@register_jitable
def mix(x):
    """SplitMix64's finaliser (Steele, Lea & Flood 2014): a bijection of uint64 that mixes all bits."""
    x = (x + np.uint64(0x9E3779B97F4A7C15)) & np.uint64(0xFFFFFFFFFFFFFFFF)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


if config.DISABLE_JIT:  # NumPy warns when an integer overflows
    mix = np.errstate(over="ignore")(mix)


@register_jitable
def log1p_of_fraction(x):
    """log(1 + x) for 0 ≤ x ≤ 1: 2·artanh(s), s = x/(2 + x) ≤ 1/3, from its series."""
    s = x / (2.0 + x)
    q = s * s
    p = 1.0 / 35.0
    p = p * q + 1.0 / 33.0
    p = p * q + 1.0 / 31.0
    p = p * q + 1.0 / 29.0
    p = p * q + 1.0 / 27.0
    p = p * q + 1.0 / 25.0
    p = p * q + 1.0 / 23.0
    p = p * q + 1.0 / 21.0
    p = p * q + 1.0 / 19.0
    p = p * q + 1.0 / 17.0
    p = p * q + 1.0 / 15.0
    p = p * q + 1.0 / 13.0
    p = p * q + 1.0 / 11.0
    p = p * q + 1.0 / 9.0
    p = p * q + 1.0 / 7.0
    p = p * q + 1.0 / 5.0
    p = p * q + 1.0 / 3.0
    return 2.0 * (s + s * q * p)


@register_jitable
def log(x):
    """log x for x > 0: x = 2^k·(1 + f), k·ln 2 + log(1 + f)."""
    bits = np.float64(x).view(np.int64)
    f = np.int64((bits & _FRACTION) | _EXPONENT_0).view(np.float64) - 1.0
    return np.float64((bits >> np.int64(52)) - np.int64(1023)) * _LN2 + log1p_of_fraction(f)


@register_jitable
def uniform_of(bits):
    """A number in (0, 1) from 64 random bits."""
    return (np.float64(np.int64(bits >> np.uint64(11))) + 0.5) * 2.0**-53


@register_jitable
def cbrt1p_of_fraction(x):
    """∛(1 + x) for 0 ≤ x ≤ 1: 1 + s with s³ + 3s² + 3s = x, exactly 1 for 0.

    Newton's iteration squares the error of a polynomial, 5·10⁻⁵, twice.
    """
    a, b, c, d = _CUBIC
    s = x * (a + x * (b + x * (c + x * d)))
    for _ in range(2):
        s = s - (s * (_THREE + s * (_THREE + s)) - x) / (_THREE * (_ONE + s) * (_ONE + s))
    return _ONE + s


def cube_roots(x):
    """∛x of an array ≥ 0: x = m·8^q, ½ ≤ m < 4; ∛m by Newton's iteration: an error of 0.1 squared five times."""
    m, e = np.frexp(x)
    q = e // 3
    m = np.ldexp(m, e - 3 * q)
    y = 0.7 + 0.26 * m
    for _ in range(5):
        y = (2.0 * y + m / (y * y)) / 3.0
    return np.where(x > 0.0, np.ldexp(y, q), 0.0)


@register_jitable
def response(label, positive):
    """y of a column: +1 for the class `positive` and −1 for all others; the label itself if `positive` is −1."""
    if positive < 0:
        return float(label)
    return 1.0 if label == positive else -1.0


@register_jitable
def any_nonzero(values):
    """Whether one of some numbers is not 0: numba's `any` takes longer to compile."""
    found = False
    for value in values:
        found |= value != 0.0
    return found
