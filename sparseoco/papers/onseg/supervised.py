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
from sparseoco.papers.onseg.datasets import IMPLIED, Dataset, best_fixed, even_marks, theorem_as_printed
from sparseoco.papers.onseg.play import Game, OnlineMethod, play
from sparseoco.papers.onseg.tuning import ERROR, LOSS, TRIALS, Candidates, choose, only, tuned_pairs
from sparseoco.papers.statistics import spread
from sparseoco.papers.tables import Records, Row, select

TIMED: Final = 50_000
"""Rounds that are timed, at most."""
TIMED_METHODS: Final = ("OGD", "ONS", "OGDEG", "ONSEG")
TURNS: Final = 7
"""Runs of each method that are timed, in turn."""


def dataset_cells(dataset: Dataset, repetitions: int) -> list[Cell]:
    """A cell per method."""
    rows = hashlib.sha256(dataset.features.tobytes() + dataset.labels.tobytes()).hexdigest()
    key = {"sparseoco": __version__, "what": "onseg", "rows": rows, "repetitions": repetitions, "trials": TRIALS}
    return [
        Cell(key | dataset.key | {"method": candidates.name}, partial(_run, dataset, candidates, repetitions))
        for candidates in _methods(dataset)
    ]


def _methods(dataset: Dataset) -> list[Candidates]:
    """The methods compared; those of classifications are tuned by the loss and by errors. At the diameter that the
    printed β implies, that β is the theorem's."""
    D, constants, source = dataset.D, dataset.constants, dataset.source
    gradients = {"D": D, "G": constants.G}
    losses = {"D": D, "F": constants.F, "T": dataset.rounds}
    methods = [
        only("OGD", "ogd", gradients),
        only("ONS", "ons", gradients | {"beta": source.beta_ons}),
        only("OGDEG", "ogdeg", losses),
        only("ONSEG", "onseg", losses | {"beta": source.beta_onseg}),
        *(
            candidates
            for measure in ((LOSS,) if dataset.loss == "squared" else (LOSS, ERROR))
            for candidates in tuned_pairs(losses, dataset.features.shape[1], measure)
        ),
    ]
    if dataset.setting == IMPLIED:
        return methods
    return [
        *methods,
        only("ONS, β by its theorem", "ons", gradients | {"alpha": constants.alpha}),
        only("ONSEG, β by its theorem", "onseg", losses),
    ]


def _run(dataset: Dataset, candidates: Candidates, repetitions: int) -> Records:
    game = _game(dataset)
    marks = even_marks(dataset.rounds)
    trials = range(repetitions, repetitions + TRIALS)

    def cost(tried: OnlineMethod) -> float:
        return float(getattr(play(game, tried, [game.rounds], trials), candidates.measure).mean())

    method, at_edge = choose(candidates, cost)
    result = play(game, method, marks, range(repetitions if method.is_bandit else 1))
    error = result.error if game.n_classes else None
    key = dataset.key | {"method": method.name}
    last = result.loss[-1].tolist(), [None] * result.loss.shape[1] if error is None else error[-1].tolist()
    runs = [
        key | {"repetition": k, "mean_loss": loss, "error_rate": rate}
        for k, (loss, rate) in enumerate(zip(*last, strict=True))
    ]
    return {
        "methods": [key | _parameters(dataset, method) | {"at_edge": at_edge}],
        "runs": runs,
        "curves": [key | row for row in _curve(marks, result.loss, error)],
    }


def describe(dataset: Dataset) -> Row:
    """The row of the data set in the table of experiments."""
    n, d = dataset.features.shape
    T, constants = dataset.rounds, dataset.constants
    classes = dataset.loss == "logistic"
    x, loss = best_fixed(dataset)
    gamma, regret = theorem_as_printed(d, T, constants.F, dataset.D, dataset.D / 2)
    return dataset.key | {
        "loss": dataset.loss,
        "n": n,
        "d": d,
        "T": T,
        "D": dataset.D,
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
    """The rows of timings of `TIMED_METHODS`, from a data set's rows of methods: one run of each in every turn."""
    game = _game(dataset)._replace(rounds=min(dataset.rounds, TIMED))
    chosen = [
        OnlineMethod(row["method"], row["algorithm"], json.loads(row["parameters"]))
        for name in TIMED_METHODS
        for row in select(methods, method=name)
    ]
    return [
        {"experiment": dataset.source.name, "method": method.name, "turn": turn, "rounds": game.rounds}
        | {"seconds": play(game, method, [game.rounds]).seconds}
        for turn in range(TURNS)
        for method in chosen
    ]


def _game(dataset: Dataset) -> Game:
    n_classes = None if dataset.loss == "squared" else 2
    return Game(dataset.features, dataset.labels, dataset.loss, n_classes, dataset.rounds)


def _parameters(dataset: Dataset, method: OnlineMethod) -> Row:
    configuration = find_algorithm(method.algorithm).configuration(method.parameters)
    terms = bandit_terms(configuration, dataset.features.shape[1]) if method.is_bandit else None
    beta = None
    if terms:
        beta = terms.beta or None
    elif method.algorithm == "ons":
        beta = 1 / ons_numbers(configuration, 1).rate
    return {
        "algorithm": method.algorithm,
        "parameters": json.dumps(dict(method.parameters), sort_keys=True),
        "delta": terms.delta if terms else None,
        "gamma": terms.gamma if terms else None,
        "beta": beta,
    }


def _curve(marks: list[int], loss: NDArray[np.float64], error: NDArray[np.float64] | None) -> list[Row]:
    names = ("t", "mean_loss", "loss_low", "loss_high", "error_rate", "error_low", "error_high")
    empty: tuple[list[None], ...] = ([None] * len(marks),) * 3
    columns = (marks, *spread(loss), *(spread(error) if error is not None else empty))
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
