"""The contract of dense learners: a point of a convex set, moved every round, and a memory for moving it.

With n features, a column has a point y (n,) and a memory (m, n), both float64, and its `Numbers`. The kernel plays y,
or for a bandit x = y + δv with a random direction v, and calls

- ``move(y, memory, g, t, numbers, project)`` — round t showed the gradient g, or a bandit's estimate of it: y and
  memory become those of round t + 1, in place;
- ``begin(memory, numbers)`` — plain NumPy: the memory of round 1, from zeros. The point begins at the set's centre.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sparseoco.learners.domains import Numbers, onto_ball, onto_ball_in_metric, onto_simplex, onto_simplex_in_metric
from sparseoco.learners.parameters import Parameter, choice, positive


class DenseRule(NamedTuple):
    """The functions a dense driver runs, and the shapes of what they work on."""

    move: Callable[..., None]
    begin: Callable[..., None]
    project: Callable[..., None]
    """``project(y, memory, numbers)``: y becomes the nearest point of the set, see `sparseoco.learners.domains`. Also
    applied to initial weights."""
    memory: Callable[[int], int]
    """``memory(n)``: rows of n numbers stored with the point."""
    numbers: Callable[[Mapping[str, Any], int], Numbers]
    """A configuration's numbers for n features. Raises `InputError` if they cannot be combined."""
    bandit: bool = False
    """Whether a round reveals nothing but the loss of the point played."""
    flat: bool = False
    """Whether the set is of dimension n − 1, Σ x_i being the same everywhere in it."""


AUTO = "auto"


def auto_or(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A check: the word auto, for a value that is computed, or what passes `check`."""

    def checked(value: Any) -> Any:
        return AUTO if value == AUTO else check(value)

    return checked


DOMAINS = ("ball", "simplex")
DOMAIN = Parameter(
    "domain",
    "ball",
    "the set that is played in: ‖x‖ ≤ D/2, or x ≥ 0 with Σ x_i = 1",
    choice(*DOMAINS),
    choices=DOMAINS,
    static=True,
)
DIAMETER = Parameter("D", 10.0, "diameter of the ball (that of the simplex is √2)", positive, grid=(2.0, 10.0, 50.0))
G = Parameter("G", 10.0, "bound of ‖g_t‖: the larger, the smaller the steps", positive, grid=(1.0, 3.0, 10.0, 30.0))

EUCLIDEAN = {"ball": onto_ball, "simplex": onto_simplex}
IN_METRIC = {"ball": onto_ball_in_metric, "simplex": onto_simplex_in_metric}


def diameter(configuration: Mapping[str, Any]) -> float:
    """The largest distance of two points of the set."""
    return float(configuration["D"]) if configuration["domain"] == "ball" else 2.0**0.5


WHY = "it has no penalty but its convex set, and l1 stands for none"


def no_memory(n: int) -> int:
    """`DenseRule.memory` of learners without a memory."""
    return 0


def begin_with_zeros(memory: Any, numbers: Numbers) -> None:
    """`DenseRule.begin` of learners whose memory begins at 0."""
