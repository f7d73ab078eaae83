"""The contract of dense learners: a point of a convex set that moves in every round, and a memory.

With n features, a column has a point y (n,) and a memory (m, n), both float64, and its `Numbers`. The kernel plays y,
or for a bandit x = y + δv with a random direction v, and calls

- ``move(y, memory, g, t, numbers, project)`` — update y and memory in place, given the gradient g of round t or a
  bandit's estimate of it;
- ``begin(memory, numbers)`` — in plain NumPy: initialise the memory, given as zeros. The point starts at the centre.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sparseoco.learners.domains import Numbers, onto_ball, onto_ball_in_metric, onto_simplex, onto_simplex_in_metric
from sparseoco.learners.parameters import Parameter, categorical, positive


def no_memory(n: int) -> int:
    """`DenseRule.memory` of learners without a memory."""
    return 0


def begin_with_zeros(memory: Any, numbers: Numbers) -> None:
    """`DenseRule.begin` of learners whose memory starts at 0."""


class DenseRule(NamedTuple):
    """The functions that the dense kernel calls, and the shape of a column's memory."""

    move: Callable[..., None]
    project: Callable[..., None]
    """``project(y, memory, numbers)``: project y onto the set in place, see `sparseoco.learners.domains`. Also applied
    to initial weights."""
    numbers: Callable[[Mapping[str, Any], int], Numbers]
    """``numbers(configuration, n)`` for n features. Raises `InputError` for parameters that cannot be combined."""
    memory: Callable[[int], int] = no_memory
    """``memory(n)``: rows of n numbers stored with the point."""
    begin: Callable[..., None] = begin_with_zeros
    bandit: bool = False
    """Whether a round reveals only the loss of the point played."""
    flat: bool = False
    """Whether the set lies in a hyperplane Σ x_i = constant and so has dimension n − 1."""


AUTO = "auto"


def auto_or(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A check: the word auto, for a computed value, or what passes `check`."""

    def checked(value: Any) -> Any:
        return AUTO if value == AUTO else check(value)

    return checked


DOMAIN = categorical("domain", ("ball", "simplex"), "feasible set: ‖x‖ ≤ D/2, or x ≥ 0 with Σ x_i = 1")
DIAMETER = Parameter("D", 10.0, "diameter of the ball (that of the simplex is √2)", positive, grid=(2.0, 10.0, 50.0))
G = Parameter("G", 10.0, "bound of ‖g_t‖: the larger, the smaller the steps", positive, grid=(1.0, 3.0, 10.0, 30.0))

EUCLIDEAN = {"ball": onto_ball, "simplex": onto_simplex}
IN_METRIC = {"ball": onto_ball_in_metric, "simplex": onto_simplex_in_metric}


def diameter(configuration: Mapping[str, Any]) -> float:
    """Diameter of the set."""
    return float(configuration["D"]) if configuration["domain"] == "ball" else 2.0**0.5


WHY = "it has no penalty, only its convex set; penalty='l1' means no penalty"
