"""The p-norm of a coordinate's history, kept as one running number: `r_t = ‖(a_1 … a_t)‖_p`.

p is a constant of the compiled loop (1, 2, another number ≥ 1, or inf), so its branches cost nothing there.
"""

import math
from typing import Any

from numba.extending import register_jitable

from sparseoco.learners.definition import number


@register_jitable
def grow(u, a, p):
    """u_t from u_{t−1} and |a_t|: Σ|a|^p, or the largest |a| for p = inf."""
    a = abs(a)
    if p == 1.0:
        return u + a
    if p == 2.0:
        return u + a * a
    if p == math.inf:
        return a if a > u else u
    return u + a**p


@register_jitable
def norm(u, p, inverse_p):
    """r = u^(1/p)."""
    if p == 1.0 or p == math.inf:
        return u
    if p == 2.0:
        return math.sqrt(u)
    return u**inverse_p


def order(value: Any) -> int | float | str:
    """A norm's p: a number ≥ 1, or "inf"."""
    if value in ("inf", math.inf):
        return "inf"
    p = number(value)
    if p < 1.0:
        raise ValueError("must be at least 1, or inf")
    return int(p) if p.is_integer() else p
