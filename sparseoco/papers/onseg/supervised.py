"""Regression and classification of §4: OGD and ONS, which see gradients, and OGDEG and ONSEG, which see losses."""

import hashlib
import json
import math
from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sparseoco import __version__
from sparseoco.learners import find_algorithm
from sparseoco.learners.bandit import bandit_terms
from sparseoco.learners.ons import ons_numbers
from sparseoco.papers.cells import Cell
from sparseoco.papers.onseg.datasets import D, Dataset, best_fixed, even_marks, theorem_as_printed
from sparseoco.papers.onseg.play import Game, OnlineMethod, play, single_run_seconds
from sparseoco.papers.statistics import mean_and_error, spread
from sparseoco.papers.tables import Records, Row

BETAS: Final = tuple(10.0**k for k in range(-7, 1))
"""β tried for ONSEG in hindsight."""
STEP_FACTORS: Final = tuple(10.0**k for k in range(-2, 4))
"""Factors of OGDEG's step tried in hindsight."""
TRIALS: Final = 10
"""Runs of each value tried, other than those that are reported."""
TIMED: Final = 100_000
"""Rounds that are timed, at most."""


def dataset_cells(dataset: Dataset, repetitions: int) -> list[Cell]:
    """A cell per method."""
    rows = hashlib.sha256(dataset.features.tobytes() + dataset.labels.tobytes()).hexdigest()
    key = {"sparseoco": __version__, "what": "onseg", "rows": rows, "repetitions": repetitions, "trials": TRIALS}
    return [
        Cell(key | dataset.key | {"method": candidates[0].name}, partial(_run, dataset, candidates, repetitions))
        for candidates in _methods(dataset)
    ]


def _methods(dataset: Dataset) -> list[list[OnlineMethod]]:
    """The methods compared; of several candidates the best in hindsight is reported."""
    constants, source = dataset.constants, dataset.source
    gradients = {"D": D, "G": constants.G}
    losses = {"D": D, "F": constants.F, "T": dataset.rounds}
    terms = bandit_terms(find_algorithm("onseg").configuration(losses), dataset.features.shape[1])
    same_terms = losses | {"delta": terms.delta, "gamma": terms.gamma}
    return [
        [OnlineMethod("OGD", "ogd", gradients)],
        [OnlineMethod("ONS", "ons", gradients | {"beta": source.beta_ons})],
        [OnlineMethod("ONS, β by its theorem", "ons", gradients | {"alpha": constants.alpha})],
        [OnlineMethod("OGDEG", "ogdeg", losses)],
        [
            OnlineMethod("OGDEG, best step", "ogdeg", same_terms | {"F": constants.F / factor})
            for factor in STEP_FACTORS
        ],
        [OnlineMethod("ONSEG", "onseg", losses | {"beta": source.beta_onseg})],
        [OnlineMethod("ONSEG, β by its theorem", "onseg", losses)],
        [OnlineMethod("ONSEG, best β", "onseg", losses | {"beta": beta}) for beta in BETAS],
    ]


def _run(dataset: Dataset, candidates: list[OnlineMethod], repetitions: int) -> Records:
    game = _game(dataset)
    marks = even_marks(dataset.rounds)
    method = candidates[0]
    if len(candidates) > 1:
        trials = range(repetitions, repetitions + TRIALS)
        losses = [float(play(game, candidate, [game.rounds], trials).loss.mean()) for candidate in candidates]
        method = candidates[int(np.argmin(losses))]
    result = play(game, method, marks, range(repetitions if method.is_bandit else 1))
    error = result.error if game.n_classes else None
    key = dataset.key | {"method": method.name}
    return {
        "methods": [key | _summary(dataset, method, result.loss[-1], None if error is None else error[-1])],
        "curves": [key | row for row in _curve(marks, result.loss, error)],
    }


def describe(dataset: Dataset) -> Row:
    """The row of the data set in the table of experiments."""
    n, d = dataset.features.shape
    T, constants = dataset.rounds, dataset.constants
    classes = dataset.loss == "logistic"
    x, loss = best_fixed(dataset)
    gamma, regret = theorem_as_printed(d, T, constants.F, D, D / 2)
    return dataset.key | {
        "loss": dataset.loss,
        "n": n,
        "d": d,
        "T": T,
        "D": D,
        "F": constants.F,
        "G": constants.G,
        "alpha": constants.alpha,
        "zero_loss": math.log(2) if classes else float(np.mean(0.5 * dataset.labels**2)),
        "best_loss": loss,
        "best_error": float(np.mean((dataset.features @ x > 0) != (dataset.labels > 0))) if classes else None,
        "theorem_gamma": gamma,
        "theorem_regret": regret / T,
    }


def time_methods(dataset: Dataset, methods: Sequence[Row]) -> list[Row]:
    """The rows of timings for a data set's rows of methods: one run each, one after the other."""
    game = _game(dataset)._replace(rounds=min(dataset.rounds, TIMED))
    timings = []
    for row in methods:
        method = OnlineMethod(row["method"], row["algorithm"], json.loads(row["parameters"]))
        seconds = single_run_seconds(game, method)
        timings.append(dataset.key | {"method": method.name, "rounds": game.rounds, "seconds": seconds})
    return timings


def _game(dataset: Dataset) -> Game:
    n_classes = None if dataset.loss == "squared" else 2
    return Game(dataset.features, dataset.labels, dataset.loss, n_classes, dataset.rounds)


def _summary(
    dataset: Dataset, method: OnlineMethod, losses: NDArray[np.float64], errors: NDArray[np.float64] | None
) -> Row:
    configuration = find_algorithm(method.algorithm).configuration(method.parameters)
    terms = bandit_terms(configuration, dataset.features.shape[1]) if method.is_bandit else None
    beta = None
    if terms:
        beta = terms.beta or None
    elif method.algorithm == "ons":
        beta = 1 / ons_numbers(configuration, 1).rate
    loss, loss_error = _mean_and_error(losses)
    rate, rate_error = (None, None) if errors is None else _mean_and_error(errors)
    return {
        "algorithm": method.algorithm,
        "parameters": json.dumps(dict(method.parameters), sort_keys=True),
        "delta": terms.delta if terms else None,
        "gamma": terms.gamma if terms else None,
        "beta": beta,
        "repetitions": len(losses),
        "mean_loss": loss,
        "mean_loss_error": loss_error,
        "error_rate": rate,
        "error_rate_error": rate_error,
    }


def _mean_and_error(values: NDArray[np.float64]) -> tuple[float, float | None]:
    """Mean and standard error; None for a single value."""
    return mean_and_error(values.tolist()) if len(values) > 1 else (float(values[0]), None)


def _curve(marks: list[int], loss: NDArray[np.float64], error: NDArray[np.float64] | None) -> list[Row]:
    names = ("t", "mean_loss", "loss_low", "loss_high", "error_rate", "error_low", "error_high")
    empty: tuple[list[None], ...] = ([None] * len(marks),) * 3
    columns = (marks, *spread(loss), *(spread(error) if error is not None else empty))
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
