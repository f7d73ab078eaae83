"""The runs: a grid of columns on each drawn data set, then each method alone with the chosen step.

A data set is 100,000 examples drawn from those there are. One pass trains the 200 steps of a method and λ together, in
float32, which is precise enough to choose a step; the results of the chosen steps are in float64.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from sparseoco import __version__
from sparseoco.offline.regret.bound_quantities import measure_bounds
from sparseoco.offline.regret.curve import FirstEpoch
from sparseoco.offline.regret.rounds import sampled_rounds
from sparseoco.papers.cells import Cell
from sparseoco.papers.cl_fobos.as_printed import run_as_printed
from sparseoco.papers.cl_fobos.published import CL_FOBOS, PRINTED, SNAPSHOT_ROUNDS, STEPS, FobosMethod, TrackedRun
from sparseoco.training.learner import Learner
from sparseoco.training.stream import MatrixRows, Order

CHUNK_ROWS = 4096
BOUND_SAMPLES = 64
"""Rounds in which the iterate is read for the quantities of a bound."""

_Result = TypeVar("_Result")

Setting = tuple[FobosMethod, float, float]
"""Method, λ, α₀."""


class Draw(NamedTuple):
    """A data set of so many rounds, drawn from examples (n, features) with labels 0 and 1."""

    features: csr_matrix
    labels: NDArray[np.int64]
    digest: str
    repetition: int
    rounds: int

    def cell_key(self, what: str, **options: Any) -> dict[str, Any]:
        """The key of a cell of this data set."""
        own = {"examples": self.digest, "repetition": self.repetition, "rounds": self.rounds}
        return {"what": f"cl-fobos {what}", "sparseoco": __version__, **own, **options}

    def presence(self) -> "Draw":
        """The same with 1 for every count."""
        features = self.features.copy()
        features.data[:] = 1
        return self._replace(features=features, digest=f"{self.digest}, presence")

    def order(self) -> NDArray[np.int64]:
        """The example of every round, drawn with replacement."""
        generator = np.random.Generator(np.random.PCG64([self.repetition, self.rounds]))
        return generator.integers(0, len(self.labels), self.rounds)

    def learn(self, learners: Sequence[Learner], margins: NDArray[np.float64] | None = None) -> float:
        """Train new learners on it, recording margins (rounds, configurations, 1) if given; gives the processor's
        seconds."""
        order, seconds = self.order(), 0.0
        for start in range(0, self.rounds, CHUNK_ROWS):
            chosen = order[start : start + CHUNK_ROWS]
            rows, labels = self.features[chosen], self.labels[chosen]
            part = None if margins is None else margins[start : start + CHUNK_ROWS]
            before = time.thread_time()
            for learner in learners:
                learner.learn_rows(rows.indptr, rows.indices, rows.data, labels, margins_out=part)
            seconds += time.thread_time() - before
        return seconds

    def learner(self, method: FobosMethod, grid: list[dict[str, Any]], **options: Any) -> Learner:
        """A new learner of these configurations."""
        return Learner(method.algorithm, grid=grid, n_features=self.features.shape[1], **options)


def search_cell(
    draw: Draw, method: FobosMethod, lams: Sequence[float] = tuple(PRINTED), steps: Sequence[float] = STEPS
) -> Cell:
    """R̄(T) of every λ and step, None if it diverged, and seconds."""

    def run() -> Any:
        grids = [[method.parameters(lam, step) for step in steps] for lam in lams]
        learners = [draw.learner(method, grid, dtype="float32", objective=True) for grid in grids]
        seconds = draw.learn(learners)
        objectives = []
        for learner in learners:
            learner.mark()
            ends = zip(learner.history.objective[-1].tolist(), learner.diverged.tolist(), strict=True)
            objectives.append([None if diverged else value for value, diverged in ends])
        return {"objective": objectives, "seconds": seconds}

    return Cell(draw.cell_key("search", method=method.name, steps=steps, lam=list(lams)), run)


def result_cell(draw: Draw, settings: Sequence[Setting]) -> Cell:
    """Results of each setting, in float64."""

    def ends(method: FobosMethod, grid: list[dict[str, Any]]) -> list[dict[str, Any]]:
        learner = draw.learner(method, grid, objective=True)
        recorded = np.empty((draw.rounds, len(grid), 1))
        draw.learn([learner], recorded)
        learner.mark()
        margins = recorded[:, :, 0]
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
        results: dict[Setting, dict[str, Any]] = {}
        for method in dict.fromkeys(setting[0] for setting in settings):
            own = [setting for setting in settings if setting[0] == method]
            grid = [method.parameters(lam, eta0) for _, lam, eta0 in own]
            results |= dict(zip(own, ends(method, grid), strict=True))
        return [results[setting] for setting in settings]

    return Cell(draw.cell_key("results", settings=_json(settings)), run)


def means_cell(draw: Draw, settings: Sequence[Setting]) -> Cell:
    """F of the mean of the iterates, and of the last one, for each setting of CL-FOBOS.

    F is the mean loss of the examples that rounds are drawn from, plus the penalty: the expectation of a round's.
    """

    def run() -> Any:
        grid = [method.parameters(lam, eta0) for method, lam, eta0 in settings]
        learners = [
            draw.learner(CL_FOBOS, [entry | {"average": kind} for entry in grid]) for kind in ("iterates", "none")
        ]
        draw.learn(learners)
        return [[_objective(draw, learner, q) for learner in learners] for q in range(len(settings))]

    return Cell(draw.cell_key("means", settings=_json(settings)), run)


def _objective(draw: Draw, learner: Learner, configuration: int) -> float:
    margins = learner.decision_function(draw.features)[:, configuration, 0]
    losses = np.logaddexp(0.0, -(2.0 * draw.labels - 1.0) * margins)
    lam = learner.configurations[configuration]["lam"]
    return float(losses.mean() + lam * np.abs(learner.weights_of(configuration)).sum())


def bound_cell(draw: Draw, setting: Setting) -> Cell:
    """Theorem 1's bound over T, which bounds F of the mean less F(0)."""
    method, lam, eta0 = setting

    def run() -> Any:
        order = draw.order()
        rounds = FirstEpoch(MatrixRows(draw.features[order], draw.labels[order].astype(np.float64)), Order())
        origin = {draw.rounds: np.zeros((draw.features.shape[1], 1))}
        learner = draw.learner(method, [method.parameters(lam, eta0)])
        ((_, value),) = measure_bounds(learner, rounds, sampled_rounds([draw.rounds], BOUND_SAMPLES), origin)
        return value / draw.rounds

    return Cell(draw.cell_key("bound", settings=_json([setting])), run)


def lazy_timing_cell(draw: Draw, settings: Sequence[Setting], *, objective: bool) -> Cell:
    """Processor seconds of each setting alone by the learners: learning, and if asked learning with R̄(T)."""
    kinds = (False, True) if objective else (False,)

    def seconds(timed: Draw) -> list[list[float]]:
        def each(setting: Setting) -> list[float]:
            method, lam, eta0 = setting
            grid = [method.parameters(lam, eta0)]
            return [timed.learn([timed.learner(method, grid, objective=kind)]) for kind in kinds]

        return _in_random_order(draw, settings, each)

    def run() -> Any:
        seconds(draw._replace(rounds=1))  # compiles
        return seconds(draw)

    return Cell(draw.cell_key("lazy seconds", settings=_json(settings), objective=objective), run)


def timing_cell(draw: Draw, settings: Sequence[Setting], n: int) -> Cell:
    """Processor seconds of each setting alone by the algorithms as printed, with n variables or those there are."""

    def run() -> Any:
        features, order = _widened(draw.features, n), draw.order()

        def seconds(setting: Setting, rounds: int = draw.rounds) -> float:
            method, lam, eta0 = setting
            return run_as_printed(features, draw.labels, order[:rounds], lam, eta0, method.K)[1]

        seconds(settings[0], 1)  # compiles
        return _in_random_order(draw, settings, seconds)

    return Cell(draw.cell_key("seconds as printed", settings=_json(settings), n=n), run)


def _in_random_order(draw: Draw, settings: Sequence[Setting], measure: Callable[[Setting], _Result]) -> list[_Result]:
    """A measurement of each setting, in the order given; they are taken in another, drawn for each data set."""
    taken = {int(j): measure(settings[j]) for j in np.random.default_rng(draw.repetition).permutation(len(settings))}
    return [taken[j] for j in range(len(settings))]


def _widened(features: csr_matrix, n: int) -> csr_matrix:
    """The same examples with variables that never occur, up to n."""
    shape = (features.shape[0], max(n, features.shape[1]))
    return csr_matrix((features.data, features.indices, features.indptr), shape=shape)


def nonzeros_cell(draw: Draw, tracked: TrackedRun) -> Cell:
    """Nonzero weights before and after every K-th round, a list of (rounds, nonzeros)."""
    marks = sorted({t for k in range(tracked.K, draw.rounds + 1, tracked.K) for t in (k - 1, k)})

    def run() -> Any:
        return [[t, int(learner.nonzeros()[0])] for t, learner in _at_marks(draw, tracked, marks)]

    return Cell(draw.cell_key("nonzeros", tracked=[tracked.method.name, *tracked[1:]]), run)


def snapshot_cell(draw: Draw, tracked: TrackedRun) -> Cell:
    """Right predictions of all examples by x_399 … x_100000, a list of (rounds, right, nonzeros)."""

    def run() -> Any:
        snapshots = []
        for t, learner in _at_marks(draw, tracked, [t for t in SNAPSHOT_ROUNDS if t <= draw.rounds]):
            z = learner.decision_function(draw.features)[:, 0, 0]
            snapshots.append([t, int(np.sum((2 * draw.labels - 1) * z > 0)), int(learner.nonzeros()[0])])
        return snapshots

    return Cell(draw.cell_key("snapshots", tracked=[tracked.method.name, *tracked[1:]]), run)


def _at_marks(draw: Draw, tracked: TrackedRun, marks: Sequence[int]) -> Iterator[tuple[int, Learner]]:
    learner = draw.learner(tracked.method, [tracked.method.parameters(tracked.lam, tracked.eta0)])
    order = draw.order()
    for t in marks:
        chosen = order[learner.rounds : t]
        rows = draw.features[chosen]
        learner.learn_rows(rows.indptr, rows.indices, rows.data, draw.labels[chosen])
        yield t, learner


def _json(settings: Sequence[Setting]) -> list[Any]:
    return [[method.name, lam, eta0] for method, lam, eta0 in settings]


def mean_objectives(values: list[list[float | None]]) -> NDArray[np.float64]:
    """(steps,) mean of the repetitions; ∞ if one diverged."""
    table = np.array([[np.inf if value is None else value for value in row] for row in values])
    return np.asarray(table.mean(axis=0))
