"""What is run: a grid of columns over each drawn data set, then each method alone with the step that was chosen.

A data set is 100,000 examples drawn from those that there are. One pass over it trains the 200 steps of a method and
λ side by side, in float32: a choice among steps needs no more. What is told of the chosen ones is of float64.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from sparseoco import __version__
from sparseoco.papers.cells import Cell
from sparseoco.papers.cl_fobos.published import SNAPSHOT_ROUNDS, STEPS, TABLES, Method, Watched
from sparseoco.training.learner import Learner

CHUNK_ROWS = 4096

Choice = tuple[Method, float, float]
"""Method, λ, α₀."""


class Draw(NamedTuple):
    """A data set of so many rounds drawn from examples (n, features) with labels 0 and 1."""

    features: csr_matrix
    labels: NDArray[np.int64]
    digest: str
    repetition: int
    rounds: int

    @property
    def key(self) -> dict[str, Any]:
        """What names it."""
        return {
            "sparseoco": __version__,
            "examples": self.digest,
            "repetition": self.repetition,
            "rounds": self.rounds,
        }

    def presence(self) -> "Draw":
        """The same with 1 for every count."""
        features = self.features.copy()
        features.data[:] = 1
        return self._replace(features=features, digest=f"{self.digest}, presence")

    def order(self) -> NDArray[np.int64]:
        """Which example every round has, with replacement."""
        generator = np.random.Generator(np.random.PCG64([self.repetition, self.rounds]))
        return generator.integers(0, len(self.labels), self.rounds)

    def learn(self, learners: Sequence[Learner], told: NDArray[np.float64] | None = None) -> list[float]:
        """Run new learners over it; gives the processor's seconds of each."""
        order = self.order()
        seconds = [0.0] * len(learners)
        for start in range(0, self.rounds, CHUNK_ROWS):
            chosen = order[start : start + CHUNK_ROWS]
            rows, labels = self.features[chosen], self.labels[chosen]
            part = None if told is None else told[start : start + CHUNK_ROWS]
            for k, learner in enumerate(learners):
                before = time.thread_time()
                learner.learn_rows(rows.indptr, rows.indices, rows.data, labels, margins_out=part)
                seconds[k] += time.thread_time() - before
        return seconds

    def learner(self, method: Method, grid: list[dict[str, Any]], **options: Any) -> Learner:
        """A new one, for its features."""
        return Learner(method.algorithm, grid=grid, n_features=self.features.shape[1], **options)


def search_cell(draw: Draw, method: Method) -> Cell:
    """R̄(T) of every λ and step, None where it diverged, and seconds."""

    def run() -> Any:
        grids = [[method.parameters(lam, step) for step in STEPS] for lam in TABLES]
        learners = [draw.learner(method, grid, dtype="float32", objective=True) for grid in grids]
        seconds = draw.learn(learners)
        found = []
        for learner in learners:
            learner.mark()
            ends = zip(learner.history.objective[-1].tolist(), learner.diverged.tolist(), strict=True)
            found.append([None if diverged else value for value, diverged in ends])
        return {"objective": found, "seconds": sum(seconds)}

    return Cell({"what": "cl-fobos search", "method": method.name, "steps": STEPS, "lam": list(TABLES)} | draw.key, run)


def chosen_cell(draw: Draw, choices: Sequence[Choice]) -> Cell:
    """How each choice does, in float64."""

    def ends(method: Method, grid: list[dict[str, Any]]) -> list[dict[str, Any]]:
        learner = draw.learner(method, grid, objective=True)
        told = np.empty((draw.rounds, len(grid), 1))
        draw.learn([learner], told)
        learner.mark()
        margins = told[:, :, 0]
        signs = 2.0 * draw.labels[draw.order()] - 1.0
        columns = {
            "objective": learner.history.objective[-1],
            "loss": learner.history.progressive_loss[-1],
            "right": np.mean(signs[:, None] * margins > 0, axis=0),
            "undecided": np.mean(margins == 0, axis=0),
            "nonzeros": learner.nonzeros(),
        }
        lists = (values.tolist() for values in columns.values())
        return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]

    def run() -> Any:
        found: dict[Choice, dict[str, Any]] = {}
        for method in dict.fromkeys(choice[0] for choice in choices):
            own = [choice for choice in choices if choice[0] == method]
            grid = [method.parameters(lam, eta0) for _, lam, eta0 in own]
            found |= dict(zip(own, ends(method, grid), strict=True))
        return [found[choice] for choice in choices]

    return Cell({"what": "cl-fobos chosen", "choices": [_plain(choice) for choice in choices]} | draw.key, run)


def timed_cell(draw: Draw, choices: Sequence[Choice]) -> Cell:
    """Seconds of the processor for each choice alone: learning, and learning with R̄(T) added up."""

    def run() -> Any:
        def seconds(of: Draw) -> list[list[float]]:
            return [
                [of.learn([of.learner(m, [m.parameters(lam, eta0)], objective=o)])[0] for o in (False, True)]
                for m, lam, eta0 in choices
            ]

        seconds(draw._replace(rounds=1))  # its loops are compiled
        return seconds(draw)

    return Cell({"what": "cl-fobos seconds", "choices": [_plain(choice) for choice in choices]} | draw.key, run)


def watched_cell(draw: Draw, watched: Watched) -> Cell:
    """Nonzero weights before and after every round that K divides, a list of (rounds, nonzeros)."""
    marks = sorted({t for k in range(watched.K, draw.rounds + 1, watched.K) for t in (k - 1, k)})

    def run() -> Any:
        learner = _watch(draw, watched)
        return [[t, int(learner.nonzeros()[0])] for t in _stops(draw, learner, marks)]

    return Cell({"what": "cl-fobos nonzeros", "watched": _plain_watched(watched)} | draw.key, run)


def snapshot_cell(draw: Draw, watched: Watched) -> Cell:
    """Right estimations of all examples by x_399 … x_100000, a list of (rounds, right, nonzeros)."""
    marks = [t for t in SNAPSHOT_ROUNDS if t <= draw.rounds]

    def run() -> Any:
        learner = _watch(draw, watched)
        found = []
        for t in _stops(draw, learner, marks):
            z = learner.decision_function(draw.features)[:, 0, 0]
            found.append([t, int(np.sum((2 * draw.labels - 1) * z > 0)), int(learner.nonzeros()[0])])
        return found

    return Cell({"what": "cl-fobos snapshots", "watched": _plain_watched(watched)} | draw.key, run)


def _watch(draw: Draw, watched: Watched) -> Learner:
    return draw.learner(watched.method, [watched.method.parameters(watched.lam, watched.eta0)])


def _stops(draw: Draw, learner: Learner, marks: Sequence[int]) -> Iterator[int]:
    order = draw.order()
    for t in marks:
        chosen = order[learner.rounds : t]
        rows = draw.features[chosen]
        learner.learn_rows(rows.indptr, rows.indices, rows.data, draw.labels[chosen])
        yield t


def _plain(choice: Choice) -> list[Any]:
    method, lam, eta0 = choice
    return [method.name, lam, eta0]


def _plain_watched(watched: Watched) -> list[Any]:
    return [watched.method.name, watched.lam, watched.eta0, watched.K]


def mean_objectives(values: list[list[float | None]]) -> NDArray[np.float64]:
    """(steps,): mean of the repetitions; ∞ where one diverged."""
    table = np.array([[np.inf if value is None else value for value in row] for row in values])
    return np.asarray(table.mean(axis=0))
