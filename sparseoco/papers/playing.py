"""One learner on rows that come again and again: what it has suffered at each mark, and how long it took."""

from collections.abc import Mapping, Sequence
from time import thread_time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from sparseoco.training.learner import Learner


class Method(NamedTuple):
    """A learner with its parameters; `name` is what a figure calls it. Bandits are `repeated`: they draw."""

    name: str
    algorithm: str
    parameters: Mapping[str, Any]
    repeated: bool


class Game(NamedTuple):
    """Rows (n, d) with their labels, the loss, and for how many rounds they come, in their order."""

    features: NDArray[np.float64]
    labels: NDArray[np.float64]
    loss: str
    n_classes: int | None
    rounds: int


class Played(NamedTuple):
    """Means over the rounds so far, (marks, repetitions), each round as it was played; the processor's seconds."""

    loss: NDArray[np.float64]
    error: NDArray[np.float64]
    seconds: float


def play(game: Game, method: Method, marks: Sequence[int], repetitions: Sequence[int] = (0,)) -> Played:
    """Play all repetitions side by side; the last mark is the number of rounds. Without classes, errors are 0."""
    learner = _learner(game, method, repetitions)
    rows = csr_matrix(game.features)
    loss, error = np.empty((2, len(marks), len(repetitions)))
    played, begun = 0, thread_time()
    for k, mark in enumerate(marks):
        while played < mark:
            first = played % len(game.labels)
            stop = min(len(game.labels), first + mark - played)
            part = rows if stop - first == len(game.labels) else rows[first:stop]
            learner.learn_rows(part.indptr, part.indices, part.data, game.labels[first:stop])
            played += stop - first
        loss[k] = learner.progress.loss_sum / mark
        error[k] = learner.progress.error_count / mark
    return Played(loss, error, thread_time() - begun)


def seconds_alone(game: Game, method: Method) -> float:
    """The processor's seconds for one run of the method, its loop compiled before: the least of three."""
    return min(play(game, method, [game.rounds]).seconds for _ in range(3))


def _learner(game: Game, method: Method, repetitions: Sequence[int]) -> Learner:
    seeds = [{"repetition": r} for r in repetitions] if method.repeated else [{}]
    grid = [dict(method.parameters) | seed for seed in seeds]
    return Learner(
        method.algorithm, loss=game.loss, grid=grid, n_features=game.features.shape[1], n_classes=game.n_classes
    )
