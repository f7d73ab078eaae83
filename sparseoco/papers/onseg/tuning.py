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
TUNED_OGDEG: Final = "OGDEG, best step"
TUNED_ONSEG: Final = "ONSEG, best β"
PAIRS: Final = {"δ and γ of Theorem 3.1": "", "δ = r/2, γ = ½": LARGEST}
"""Where OGDEG and ONSEG are compared, and what that adds to their names."""


class Candidates(NamedTuple):
    """Methods that differ in one value, of which the best is reported."""

    name: str
    method: Callable[[float], OnlineMethod]
    values: tuple[float, ...]


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


def tuned_pairs(parameters: Mapping[str, Any], n: int) -> Iterator[Candidates]:
    """OGDEG and ONSEG at every δ and γ of `PAIRS`, for the parameters that both have and n features."""
    terms = bandit_terms(find_algorithm("onseg").configuration(parameters), n)
    for suffix, delta, gamma in (("", terms.delta, terms.gamma), (LARGEST, terms.r / 2, 0.5)):
        same = {**parameters, "delta": delta, "gamma": gamma}
        yield _steps(TUNED_OGDEG + suffix, same)
        yield _betas(TUNED_ONSEG + suffix, same)


def _steps(name: str, parameters: Mapping[str, Any]) -> Candidates:
    """The step D/(F√t) times a factor, through F, of which OGDEG's δ and γ are given."""

    def method(factor: float) -> OnlineMethod:
        return OnlineMethod(name, "ogdeg", {**parameters, "F": parameters["F"] / factor})

    return Candidates(name, method, STEP_FACTORS)


def _betas(name: str, parameters: Mapping[str, Any]) -> Candidates:
    return Candidates(name, lambda beta: OnlineMethod(name, "onseg", {**parameters, "beta": beta}), BETAS)
