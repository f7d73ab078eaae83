"""The p-norm of a coordinate's history, round by round: r_t = ‖(a_1, …, a_t)‖_p from r_{t−1} and a_t.

One function `grow(r, a, p, inverse_p)` for each kind of p. The norm itself is stored: updates take a root, reading
a weight, which is much more frequent, takes none.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from sparseoco.core.compile_cache import register_jitable
from sparseoco.learners.numerics import cbrt1p_of_fraction
from sparseoco.learners.parameters import finite_number

ONE = np.float32(1)  # float32, so that arithmetic with float32 columns stays float32


@register_jitable
def grow_1(r, a, p, inverse_p):
    """r + |a|."""
    return r + abs(a)


@register_jitable
def grow_2(r, a, p, inverse_p):
    """√(r² + a²)."""
    return math.sqrt(r * r + a * a)


@register_jitable
def scaled_pair(r, a):
    """max(r, |a|), and the smaller divided by it, 0 if both are 0: powers of the quotient do not overflow."""
    b = abs(a)
    larger, smaller = (r, b) if r > b else (b, r)
    return larger, smaller / (larger if larger > 0.0 else ONE)


@register_jitable
def grow_3(r, a, p, inverse_p):
    """(r³ + |a|³)^(1/3)."""
    larger, quotient = scaled_pair(r, a)
    return larger * cbrt1p_of_fraction(quotient * quotient * quotient)


@register_jitable
def grow_p(r, a, p, inverse_p):
    """(r^p + |a|^p)^(1/p)."""
    if a == 0.0:
        return r
    larger, quotient = scaled_pair(r, a)
    return larger * (ONE + quotient**p) ** inverse_p


@register_jitable
def grow_inf(r, a, p, inverse_p):
    """max(r, |a|)."""
    b = abs(a)
    return b if b > r else r


GROWTH: dict[int | float | str, Callable[..., Any]] = {1: grow_1, 2: grow_2, 3: grow_3, "inf": grow_inf}


def growth(p: int | float | str) -> Callable[..., Any]:
    """The function `grow` for a canonical p."""
    return GROWTH.get(p, grow_p)


def order(value: Any) -> int | float | str:
    """A norm's p in canonical form: a number ≥ 1, or "inf"."""
    if value in ("inf", math.inf):
        return "inf"
    p = finite_number(value)
    if p < 1.0:
        raise ValueError("must be at least 1, or inf")
    return int(p) if p.is_integer() else p
