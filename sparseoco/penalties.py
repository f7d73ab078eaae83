"""The penalties ψ of the objective: each proximal map once, as a scalar function for compiled loops.

`prox(v, a)` = argmin_w ½(w − v)² + a·ψ(w), where `a` is the weight of the penalty: a sum of steps times λ.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numba.extending import register_jitable

from sparseoco.errors import InputError


@register_jitable
def soft(v, a):
    """sign(v)·max(|v| − a, 0) for a ≥ 0: the prox of a|w|.

    Written as v minus v clipped to [−a, a], which is the same value, three vector instructions, and +0 where the
    weight is truncated.
    """
    low = v if v < a else a
    return v - (low if low > -a else -a)


@dataclass(frozen=True)
class Penalty:
    """A penalty: its formula and its proximal map."""

    name: str
    formula: str
    prox: Callable[[Any, Any], Any]


PENALTIES = {penalty.name: penalty for penalty in (Penalty("l1", "λ‖w‖₁", soft),)}


def find_penalty(name: str) -> Penalty:
    """The penalty of that name; `InputError` names the ones there are."""
    try:
        return PENALTIES[name]
    except (KeyError, TypeError):
        raise InputError(f"penalty={name!r} is not known; choose one of {', '.join(PENALTIES)}.") from None
