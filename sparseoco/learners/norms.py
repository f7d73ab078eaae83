"""The p-norm of a coordinate's history, round by round: r_t = ‖(a_1, …, a_t)‖_p from r_{t−1} and a_t.

A function `grow(r, a, p, inverse_p)` for each kind of p. What is stored is the norm itself: a root is taken where a
gradient is seen, and none where a weight is read, which is far oftener.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.extending import register_jitable

from sparseoco.learners.parameters import finite_number

ONE = np.float32(1)  # of a type that does not widen float32 columns


@register_jitable
def grow_1(r, a, p, inverse_p):
    """r + |a|."""
    return r + abs(a)


@register_jitable
def grow_2(r, a, p, inverse_p):
    """√(r² + a²)."""
    return math.sqrt(r * r + a * a)


@register_jitable
def sides(r, a):
    """The greater of r and |a|, and the smaller as a share of it: powers of shares do not leave the range of floats."""
    b = abs(a)
    return (r, b / r) if r > b else (b, r / b)


@register_jitable
def grow_3(r, a, p, inverse_p):
    """(r³ + |a|³)^(1/3)."""
    if a == 0.0:
        return r
    great, share = sides(r, a)
    return great * np.cbrt(ONE + share * share * share)


@register_jitable
def grow_p(r, a, p, inverse_p):
    """(r^p + |a|^p)^(1/p)."""
    if a == 0.0:
        return r
    great, share = sides(r, a)
    return great * (ONE + share**p) ** inverse_p


@register_jitable
def grow_inf(r, a, p, inverse_p):
    """max(r, |a|)."""
    b = abs(a)
    return b if b > r else r


GROWTH: dict[int | float | str, Callable[..., Any]] = {1: grow_1, 2: grow_2, 3: grow_3, "inf": grow_inf}


def growth(p: int | float | str) -> Callable[..., Any]:
    """`grow` for a canonical p."""
    return GROWTH.get(p, grow_p)


def order(value: Any) -> int | float | str:
    """A norm's p in canonical form: a number ≥ 1, or "inf"."""
    if value in ("inf", math.inf):
        return "inf"
    p = finite_number(value)
    if p < 1.0:
        raise ValueError("must be at least 1, or inf")
    return int(p) if p.is_integer() else p
