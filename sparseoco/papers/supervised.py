"""Regression and classification of §4: OGD and ONS, which see gradients, beside OGDEG and ONSEG, which see losses."""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sparseoco import __version__
from sparseoco.learners import find_algorithm
from sparseoco.learners.bandit import terms_of
from sparseoco.learners.ons import numbers_of_ons
from sparseoco.papers.cells import Cell
from sparseoco.papers.means import mean_and_error, spread
from sparseoco.papers.playing import Game, Method, play, seconds_alone
from sparseoco.papers.problems import D, Problem, best_fixed, even_marks, theorem_as_printed
from sparseoco.papers.records import Records, Row

BETAS: Final = tuple(10.0**k for k in range(-7, 1))
"""β among which the best for ONSEG is looked for in hindsight."""
SIZES: Final = tuple(10.0**k for k in range(-2, 4))
"""Factors of OGDEG's step among which the best is looked for."""
TRIALS: Final = 10
"""Runs of every value that is tried, other than those that are counted after."""
TIMED: Final = 100_000
"""Rounds that are timed, at most."""


def cells_of(problem: Problem, standardised: bool, repetitions: int) -> list[Cell]:
    """What there is to run on one data set, a method a cell."""
    keys = {"experiment": problem.source.name, "standardised": standardised}
    rows = hashlib.sha256(problem.features.tobytes() + problem.labels.tobytes()).hexdigest()
    own = {"sparseoco": __version__, "what": "onseg", "rows": rows, "repetitions": repetitions, "trials": TRIALS} | keys
    return [
        Cell(own | {"method": choose.__name__}, partial(_run, problem, keys, choose, repetitions))
        for choose in _METHODS
    ]


def _run(problem: Problem, keys: Row, choose: "_Choose", repetitions: int) -> Records:
    game = _game(problem)
    marks = even_marks(problem.rounds)
    method = choose(problem, game, repetitions)
    played = play(game, method, marks, range(repetitions if method.repeated else 1))
    named = keys | {"method": method.name}
    curve = _curve(marks, played.loss, played.error if game.n_classes else None)
    return {
        "methods": [named | _summary(problem, method, played.loss[-1], played.error[-1], game.n_classes)],
        "curves": [named | row for row in curve],
    }


def describe(problem: Problem, standardised: bool) -> Row:
    """The row of `records.EXPERIMENTS`."""
    n, d = problem.features.shape
    T, constants = problem.rounds, problem.constants
    x, loss = best_fixed(problem)
    wrong = None
    if problem.loss == "logistic":
        wrong = float(np.mean((problem.features @ x > 0) != (problem.labels > 0)))
    gamma, regret = theorem_as_printed(d, T, constants.F, D, D / 2)
    return {
        "experiment": problem.source.name,
        "standardised": standardised,
        "loss": problem.loss,
        "n": n,
        "d": d,
        "T": T,
        "D": D,
        "F": constants.F,
        "G": constants.G,
        "alpha": constants.alpha,
        "zero_loss": math.log(2) if problem.loss == "logistic" else float(np.mean(0.5 * problem.labels**2)),
        "best_loss": loss,
        "best_error": wrong,
        "theorem_gamma": gamma,
        "theorem_regret": regret / T,
    }


def time_methods(problem: Problem, methods: Sequence[Row]) -> list[Row]:
    """Rows of `records.TIMINGS` for the problem's rows of `records.METHODS`: one run each, one after the other."""
    game = _game(problem)._replace(rounds=min(problem.rounds, TIMED))
    found = []
    for row in methods:
        method = Method(row["method"], row["algorithm"], json.loads(row["parameters"]), row["repetitions"] > 1)
        keys = {name: row[name] for name in ("experiment", "standardised", "method")}
        found.append(keys | {"rounds": game.rounds, "seconds": seconds_alone(game, method)})
    return found


def _game(problem: Problem) -> Game:
    n_classes = None if problem.loss == "squared" else 2
    return Game(problem.features, problem.labels, problem.loss, n_classes, problem.rounds)


def _gradients(problem: Problem) -> dict[str, Any]:
    return {"D": D, "G": problem.constants.G}


def _bandits(problem: Problem) -> dict[str, Any]:
    return {"D": D, "F": problem.constants.F, "T": problem.rounds}


def _ogd(problem: Problem, game: Game, repetitions: int) -> Method:
    return Method("OGD", "ogd", _gradients(problem), False)


def _ons(problem: Problem, game: Game, repetitions: int) -> Method:
    return Method("ONS", "ons", _gradients(problem) | {"beta": problem.source.beta_ons}, False)


def _ons_of_theorem(problem: Problem, game: Game, repetitions: int) -> Method:
    return Method("ONS, β by its theorem", "ons", _gradients(problem) | {"alpha": problem.constants.alpha}, False)


def _ogdeg(problem: Problem, game: Game, repetitions: int) -> Method:
    return Method("OGDEG", "ogdeg", _bandits(problem), True)


def _onseg(problem: Problem, game: Game, repetitions: int) -> Method:
    return Method("ONSEG", "onseg", _bandits(problem) | {"beta": problem.source.beta_onseg}, True)


def _onseg_of_theorem(problem: Problem, game: Game, repetitions: int) -> Method:
    return Method("ONSEG, β by its theorem", "onseg", _bandits(problem), True)


def _best_ogdeg(problem: Problem, game: Game, repetitions: int) -> Method:
    """OGDEG with ONSEG's δ and γ, and so many times the step D/(F√t) as is best in hindsight."""
    own = _bandits(problem)
    terms = terms_of(find_algorithm("onseg").configuration(own), problem.features.shape[1])
    fixed = own | {"delta": terms.delta, "gamma": terms.gamma}
    tried = [Method("OGDEG, best step", "ogdeg", fixed | {"F": own["F"] / size}, True) for size in SIZES]
    return _best(game, tried, repetitions)


def _best_onseg(problem: Problem, game: Game, repetitions: int) -> Method:
    tried = [Method("ONSEG, best β", "onseg", _bandits(problem) | {"beta": beta}, True) for beta in BETAS]
    return _best(game, tried, repetitions)


_METHODS: Final = (_ogd, _ons, _ons_of_theorem, _ogdeg, _best_ogdeg, _onseg, _onseg_of_theorem, _best_onseg)
_Choose = Callable[[Problem, Game, int], Method]


def _best(game: Game, tried: list[Method], repetitions: int) -> Method:
    """The one with the least mean loss over `TRIALS` runs, by numbers that are not used again."""
    runs = range(repetitions, repetitions + TRIALS)
    losses = [float(play(game, method, [game.rounds], runs).loss.mean()) for method in tried]
    return tried[int(np.argmin(losses))]


def _summary(
    problem: Problem, method: Method, losses: NDArray[np.float64], errors: NDArray[np.float64], n_classes: int | None
) -> Row:
    configuration = find_algorithm(method.algorithm).configuration(method.parameters)
    terms = terms_of(configuration, problem.features.shape[1]) if method.repeated else None
    beta = None
    if terms:
        beta = terms.beta or None
    elif method.algorithm == "ons":
        beta = 1 / numbers_of_ons(configuration, 1).rate
    loss, loss_error = _mean_of(losses)
    error, error_error = _mean_of(errors) if n_classes else (None, None)
    return {
        "algorithm": method.algorithm,
        "parameters": json.dumps(dict(method.parameters), sort_keys=True),
        "delta": terms.delta if terms else None,
        "gamma": terms.gamma if terms else None,
        "beta": beta,
        "repetitions": len(losses),
        "mean_loss": loss,
        "mean_loss_error": loss_error,
        "error_rate": error,
        "error_rate_error": error_error,
    }


def _mean_of(values: NDArray[np.float64]) -> tuple[float, float | None]:
    """Mean and standard error, which one alone has not."""
    return mean_and_error(values.tolist()) if len(values) > 1 else (float(values[0]), None)


def _curve(marks: list[int], loss: NDArray[np.float64], error: NDArray[np.float64] | None) -> list[Row]:
    names = ("t", "mean_loss", "loss_low", "loss_high", "error_rate", "error_low", "error_high")
    nothing: tuple[list[None], ...] = ([None] * len(marks),) * 3
    columns = (marks, *spread(loss), *(spread(error) if error is not None else nothing))
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
