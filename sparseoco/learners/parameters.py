"""Parameters of learners, and the loops that run them."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

# ----------------------------------------------------------------------------------------------------------------------
# What drives a learner (`Algorithm.driver`): the stream of rows, or passes over all of them.


ONLINE_DRIVERS = ("stream", "dense")


# ----------------------------------------------------------------------------------------------------------------------
# Parameters of the learners: value checks, and the parameters that several learners share.


class Parameter(NamedTuple):
    """A parameter of a learner: `check` returns the value in its canonical (JSON) form or raises `ValueError`."""

    name: str
    default: Any
    meaning: str
    check: Callable[[Any], Any]
    choices: tuple[str, ...] = ()
    """The allowed names of a categorical parameter; compiled code gets the index in this tuple."""
    static: bool = False
    """Selects functions: configurations with different values are compiled separately, in separate blocks."""
    grid: tuple[Any, ...] = ()
    """Values that a search tries by default; if empty, the default only."""


def choice(*choices: str) -> Callable[[Any], str]:
    """A check: one of these names."""

    def check(value: Any) -> str:
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"must be {' or '.join(choices)}")
        return value

    return check


def categorical(
    name: str, choices: tuple[str, ...], meaning: str, *, default: str | None = None, static: bool = True
) -> Parameter:
    """A parameter whose values are names; its default is the first unless given."""
    return Parameter(name, default or choices[0], meaning, choice(*choices), choices, static)


def finite_number(value: Any) -> float:
    """A finite float."""
    if isinstance(value, (bool, str, bytes)):
        raise ValueError("is not a number")
    try:
        result = float(value)
    except (TypeError, ValueError):
        raise ValueError("is not a number") from None
    if not math.isfinite(result):
        raise ValueError("is not finite")
    return result


def positive(value: Any) -> float:
    """A finite float > 0."""
    result = finite_number(value)
    if result <= 0.0:
        raise ValueError("must be greater than 0")
    return result


def nonnegative(value: Any) -> float:
    """A finite float ≥ 0."""
    result = finite_number(value)
    if result < 0.0:
        raise ValueError("must not be negative")
    return result + 0.0  # −0 is 0


def positive_int(value: Any) -> int:
    """An integer ≥ 1."""
    result = finite_number(value)
    if result < 1.0 or not result.is_integer():
        raise ValueError("must be a whole number of at least 1")
    return int(result)


def whole_number(value: Any) -> int:
    """An integer ≥ 0 that float64 represents exactly."""
    result = finite_number(value)
    if result < 0.0 or not result.is_integer() or result >= 2.0**53:
        raise ValueError("must be a whole number of at least 0 and below 2⁵³")
    return int(result)


def fraction(value: Any) -> float:
    """A number in [0, 1)."""
    result = nonnegative(value)
    if result >= 1.0:
        raise ValueError("must be less than 1 (at 1 it is penalty='l1')")
    return result


ETA0 = Parameter(
    "eta0", 0.5, "step size of the first round; round t steps eta0/√t", positive, grid=(0.03, 0.1, 0.3, 1.0)
)
GAMMA = Parameter(
    "gamma",
    1.0,
    "weight of the proximal term, β_t = gamma·√t; steps are 1/(gamma·√t)",
    positive,
    grid=(0.3, 1.0, 3.0, 10.0),
)
LAM = Parameter("lam", 1e-5, "weight λ of the penalty", nonnegative, grid=(1e-7, 1e-6, 1e-5, 1e-4))
LARGER_LAM = LAM._replace(grid=(1e-6, 1e-5, 1e-4, 1e-3))
STEP = categorical(
    "step",
    ("sqrt", "constant", "inverse"),
    "shape of the steps: eta0/√t, eta0 in every round, or eta0/t, for strongly convex objectives",
)
SECOND = categorical(
    "second", ("same", "next"), "step η_{t+1/2} of the truncation: the same as the round's, or the next round's"
)
L1_RATIO = Parameter("l1_ratio", 0.5, "ρ, the fraction of l1 in the elastic net", fraction, grid=(0.1, 0.5, 0.9))
RADIUS = Parameter("R", 1.0, "bound of every |weight|", positive, grid=(0.1, 1.0, 10.0))
