"""One learner on rows that repeat: its mean loss at each mark, and its run time."""

from collections.abc import Mapping, Sequence
from time import thread_time
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from sparseoco.training.learner import Learner

BANDITS: Final = ("ogdeg", "onseg")
"""Learners that see losses alone; they draw directions, so their runs are repeated."""
CHUNK: Final = 1024
"""Rows that are learned together, at least: fewer are repeated."""


class OnlineMethod(NamedTuple):
    """A learner with its parameters; `name` is its label in figures and tables."""

    name: str
    algorithm: str
    parameters: Mapping[str, Any]

    @property
    def is_bandit(self) -> bool:
        """Whether it draws directions."""
        return self.algorithm in BANDITS


class Game(NamedTuple):
    """Rows (n, d) with their labels, the loss, and for how many rounds they repeat, in order."""

    features: NDArray[np.float64]
    labels: NDArray[np.float64]
    loss: str
    n_classes: int | None
    rounds: int


class PlayResult(NamedTuple):
    """Means over the rounds so far, each (marks, repetitions), and seconds of processor time."""

    loss: NDArray[np.float64]
    error: NDArray[np.float64]
    seconds: float


def play(game: Game, method: OnlineMethod, marks: Sequence[int], repetitions: Sequence[int] = (0,)) -> PlayResult:
    """Run all repetitions together; the last mark is the number of rounds. Without classes, errors are 0."""
    seeds = [{"repetition": r} for r in repetitions] if method.is_bandit else [{}]
    learner = Learner(
        method.algorithm,
        loss=game.loss,
        grid=[dict(method.parameters) | seed for seed in seeds],
        n_features=game.features.shape[1],
        n_classes=game.n_classes,
    )
    copies = -(-CHUNK // len(game.labels))
    rows, labels = csr_matrix(np.tile(game.features, (copies, 1))), np.tile(game.labels, copies)
    loss, error = np.empty((2, len(marks), len(repetitions)))
    played, begun = 0, thread_time()
    for k, mark in enumerate(marks):
        while played < mark:
            first = played % len(labels)
            stop = min(len(labels), first + mark - played)
            part = rows if stop - first == len(labels) else rows[first:stop]
            learner.learn_rows(part.indptr, part.indices, part.data, labels[first:stop])
            played += stop - first
        loss[k] = learner.progress.loss_sum / mark
        error[k] = learner.progress.error_count / mark
    return PlayResult(loss, error, thread_time() - begun)
