"""The p-norm of a coordinate's history, kept as one running number u: r_t = ‖(a_1, …, a_t)‖_p = norm(u_t).

A pair of functions a kind of p, so that the usual ones cost no power: `grow(u, a, p)` gives u_t from u_{t−1} and a_t,
`norm(u, inverse_p)` gives r from u.
"""

import math
from collections.abc import Callable
from typing import Any

from numba.extending import register_jitable

from sparseoco.learners.definition import number


@register_jitable
def grow_1(u, a, p):
    """u + |a|."""
    return u + abs(a)


@register_jitable
def grow_2(u, a, p):
    """u + a²."""
    return u + a * a


@register_jitable
def grow_3(u, a, p):
    """u + |a|³."""
    b = abs(a)
    return u + b * b * b


@register_jitable
def grow_p(u, a, p):
    """u + |a|^p."""
    return u + abs(a) ** p


@register_jitable
def grow_inf(u, a, p):
    """max(u, |a|)."""
    b = abs(a)
    return b if b > u else u


@register_jitable
def norm_1(u, inverse_p):
    """u, for p = 1 and p = inf."""
    return u


@register_jitable
def norm_2(u, inverse_p):
    """√u."""
    return math.sqrt(u)


@register_jitable
def norm_p(u, inverse_p):
    """u^(1/p)."""
    return u**inverse_p


NORMS: dict[int | float | str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    1: (grow_1, norm_1),
    2: (grow_2, norm_2),
    3: (grow_3, norm_p),
    "inf": (grow_inf, norm_1),
}


def norm_of_order(p: int | float | str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """(grow, norm) for a canonical p."""
    return NORMS.get(p, (grow_p, norm_p))


def order(value: Any) -> int | float | str:
    """A norm's p in canonical form: a number ≥ 1, or "inf"."""
    if value in ("inf", math.inf):
        return "inf"
    p = number(value)
    if p < 1.0:
        raise ValueError("must be at least 1, or inf")
    return int(p) if p.is_integer() else p
