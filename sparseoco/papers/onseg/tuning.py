"""Methods whose step or β is chosen in hindsight, OGDEG and ONSEG at the same δ and γ."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from sparseoco.learners import find_algorithm
from sparseoco.learners.bandit import bandit_terms
from sparseoco.papers.onseg.play import OnlineMethod

BETAS: Final = tuple(10.0**k for k in range(-7, 1))
"""β of ONSEG that are tried."""
STEP_FACTORS: Final = tuple(10.0**k for k in range(-2, 4))
"""Factors of OGDEG's step that are tried."""
FINER: Final = 10.0**0.5
"""Values this factor below and above the best are tried next."""
TRIALS: Final = 5
"""Runs of each value tried, other than those that are reported."""
LARGEST: Final = ", δ = r/2"
"""In names: with γ = ½ and the largest δ that it allows; otherwise with those of Theorem 3.1."""
PAIRS: Final = {"δ and γ of Theorem 3.1": "", "δ = r/2, γ = ½": LARGEST}
"""Where OGDEG and ONSEG are compared, and what that adds to their names."""
LOSS: Final = "loss"
ERROR: Final = "error"
"""Of which the best value has the least mean: the attributes of `play.PlayResult`."""


class Candidates(NamedTuple):
    """Methods that differ in one value, of which the best is reported."""

    name: str
    method: Callable[[float], OnlineMethod]
    values: tuple[float, ...]
    measure: str = LOSS


class Choice(NamedTuple):
    """The method chosen, and whether its value is at an end of those tried."""

    method: OnlineMethod
    at_edge: bool | None
    """None if there was nothing to choose."""


def only(name: str, algorithm: str, parameters: Mapping[str, Any]) -> Candidates:
    """A method without a choice."""
    return Candidates(name, lambda value: OnlineMethod(name, algorithm, parameters), (1.0,))


def choose(candidates: Candidates, loss: Callable[[OnlineMethod], float]) -> Choice:
    """The candidate with the least loss among the values and, next, two finer ones about the best."""
    values = candidates.values
    if len(values) == 1:
        return Choice(candidates.method(values[0]), None)
    losses = {value: loss(candidates.method(value)) for value in values}
    best = min(losses, key=losses.__getitem__)
    losses |= {value: loss(candidates.method(value)) for value in (best / FINER, best * FINER)}
    best = min(losses, key=losses.__getitem__)
    return Choice(candidates.method(best), not values[0] < best < values[-1])


def tuned_names(measure: str, suffix: str) -> tuple[str, str]:
    """The names of OGDEG and ONSEG, tuned by this measure, with what `PAIRS` adds.

    >>> tuned_names(LOSS, ""), tuned_names(ERROR, LARGEST)
    (('OGDEG, best step', 'ONSEG, best β'), ('OGDEG, best step by errors, δ = r/2', 'ONSEG, best β by errors, δ = r/2'))
    """
    added = (" by errors" if measure == ERROR else "") + suffix
    return f"OGDEG, best step{added}", f"ONSEG, best β{added}"


def tuned_pairs(parameters: Mapping[str, Any], n: int, measure: str = LOSS) -> Iterator[Candidates]:
    """OGDEG and ONSEG at every δ and γ of `PAIRS`, for the parameters that both have and n features.

    Where Theorem 3.1 has no γ below 1, its place is taken by ½: if δ is r/2 too, there is one pair.
    """
    terms = bandit_terms(find_algorithm("onseg").configuration(parameters), n)
    places = {(terms.delta, terms.gamma): "", (terms.r / 2, 0.5): LARGEST}
    for (delta, gamma), suffix in places.items():
        same = {**parameters, "delta": delta, "gamma": gamma}
        ogdeg, onseg = tuned_names(measure, suffix)
        yield _steps(ogdeg, same, measure)
        yield _betas(onseg, same, measure)


def _steps(name: str, parameters: Mapping[str, Any], measure: str) -> Candidates:
    """The step D/(F√t) times a factor, through F, of which OGDEG's δ and γ are given."""

    def method(factor: float) -> OnlineMethod:
        return OnlineMethod(name, "ogdeg", {**parameters, "F": parameters["F"] / factor})

    return Candidates(name, method, STEP_FACTORS, measure)


def _betas(name: str, parameters: Mapping[str, Any], measure: str) -> Candidates:
    return Candidates(name, lambda beta: OnlineMethod(name, "onseg", {**parameters, "beta": beta}), BETAS, measure)
