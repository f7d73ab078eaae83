"""Runs of the experiment of Togari and Yamashita 2016: steps from coarse to fine, results, run times."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from sparseoco import __version__
from sparseoco.offline.regret.bounds import FirstEpoch, measure_bounds, sampled_rounds
from sparseoco.papers.cl_fobos import printed
from sparseoco.papers.experiment import Cell, Run
from sparseoco.papers.rows import Records, Row, as_rows, column, mean, mean_rows, select
from sparseoco.storage.locations import read_toml
from sparseoco.training.learner import Learner
from sparseoco.training.stream import MatrixRows, Order

# ----------------------------------------------------------------------------------------------------------------------
# The parameters and printed results of Togari and Yamashita (2016), §5.


STEPS: Final = tuple(round(0.005 * k, 3) for k in range(1, 201))
"""α₀ from 0.005 to 1.0; the one with the smallest R̄(T) is chosen."""
ROUNDS: Final = 100_000
REPETITIONS: Final = 10
FEWER: Final = 4
"""Data sets, the first, of what is not in the paper's tables: its steps, readings of Algorithm 4, and Theorem 2. α₀ is
chosen by R̄(T) of the first one."""
DOMAIN: Final = "books"
FEATURES: Final = 332_440
LADDER: Final = (25, 50, 75, 100, 200, 500, 1000)
"""K of L-FOBOS: the paper's, and more up to the run time of CL-FOBOS."""
SHORT: Final = 5_000
"""Rounds of the comparison with Algorithm 1, each of which visits all variables."""
STRONG: Final = 5e-3
"""The least λ that the paper calls strong."""

COUNTS: Final = "counts"
PRESENCE: Final = "presence"
"""The values of the features: how often a word is in a review, or whether; presence has the paper's steps only."""


class FobosMethod(NamedTuple):
    """A row of Tables 1 to 6, or a baseline."""

    name: str
    algorithm: str
    K: int
    """As of `printed.run_rounds`."""


def lazy(K: int) -> FobosMethod:
    """L-FOBOS, Algorithm 3."""
    return FobosMethod(f"L-FOBOS, K = {K}", "l-fobos", K)


CL_FOBOS: Final = FobosMethod("CL-FOBOS", "cl-fobos", printed.BY_COMPONENT)
FOBOS: Final = FobosMethod("FOBOS", "fobos", 1)
SUBGRADIENT: Final = FobosMethod("Algorithm 1", "subgradient", printed.SUBGRADIENT)
DENSE: Final = (FOBOS, SUBGRADIENT)
"""Baselines, which visit all variables in every round."""
PRINTED: Final = (lazy(100), lazy(500), lazy(1000), CL_FOBOS)
"""The rows of the paper's tables."""
METHODS: Final = (*map(lazy, LADDER), CL_FOBOS, FOBOS)
"""The rows of ours."""


class Setting(NamedTuple):
    """A method with λ and α₀."""

    method: FobosMethod
    lam: float
    eta0: float

    @property
    def row(self) -> Row:
        """Its columns in the tables."""
        return {"lam": self.lam, "method": self.method.name, "eta0": self.eta0}


class Printed(NamedTuple):
    """α₀, run time in seconds, R̄(T), rate of right predictions."""

    eta0: float
    seconds: float
    objective: float
    right: float


class Figure(NamedTuple):
    """A part of Figure 2: a run of each method, recorded before and after every K-th round, with K of the L-FOBOS."""

    theirs: Setting
    ours: Setting

    @property
    def lam(self) -> float:
        """λ of both."""
        return self.ours.lam

    @property
    def period(self) -> int:
        """K of the L-FOBOS."""
        return self.theirs.method.K


FIGURES: Final = (
    Figure(Setting(lazy(400), 5e-3, 0.04), Setting(CL_FOBOS, 5e-3, 0.055)),
    Figure(Setting(lazy(750), 1e-5, 0.595), Setting(CL_FOBOS, 1e-5, 0.595)),
)
_PRINTED = read_toml(Path(__file__).with_name("published.toml"))
PUBLISHED: Final = {
    table["lam"]: {method.name: Printed(*row) for method, row in zip(PRINTED, table["rows"], strict=True)}
    for table in _PRINTED["tables"]
}
"""Tables 1 to 6 by λ, rows by method."""
LAMS: Final = tuple(PUBLISHED)
LADDER_LAMS: Final = (0.1, 0.01, 0.005, 1e-5)
"""λ for which all K are run: the strong ones, and the other of Figure 2."""
SNAPSHOT_ROUNDS: Final[list[int]] = _PRINTED["snapshots"].pop("rounds")
SNAPSHOTS: Final[dict[str, list[tuple[float, int]]]] = _PRINTED["snapshots"]
"""Table 7 by method: rate and number of right predictions after each of `SNAPSHOT_ROUNDS`."""


# ----------------------------------------------------------------------------------------------------------------------
# The runs: columns on each drawn data set to choose the step of each method, then results with the chosen steps.
#
# A data set is 100,000 examples drawn from those there are. One pass trains many steps of a method together, in
# float32, which is precise enough to choose one; the results of the chosen steps are in float64.


CHUNK_ROWS = 4096
BOUND_SAMPLES = 64
"""Rounds in which the iterate is read for the quantities of a bound."""


class Draw(NamedTuple):
    """A data set of so many rounds, drawn from examples (n, features) with labels 0 and 1."""

    features: csr_matrix
    labels: NDArray[np.int64]
    digest: str
    repetition: int
    rounds: int

    def cell(self, what: str, run: Callable[[], Any], **options: Any) -> Cell:
        """A cell of this data set."""
        own = {"examples": self.digest, "repetition": self.repetition, "rounds": self.rounds}
        return Cell({"what": f"cl-fobos {what}", "sparseoco": __version__, **own, **options}, run)

    def order(self) -> NDArray[np.int64]:
        """The example of every round, drawn with replacement."""
        generator = np.random.Generator(np.random.PCG64([self.repetition, self.rounds]))
        return generator.integers(0, len(self.labels), self.rounds)

    def learn(self, learner: Learner, margins: NDArray[np.float64] | None = None) -> float:
        """Train a new learner on it, recording margins (rounds, configurations, 1) if given; gives the processor's
        seconds."""
        order, seconds = self.order(), 0.0
        for start in range(0, self.rounds, CHUNK_ROWS):
            chosen = order[start : start + CHUNK_ROWS]
            rows, labels = self.features[chosen], self.labels[chosen]
            part = None if margins is None else margins[start : start + CHUNK_ROWS]
            before = time.thread_time()
            learner.learn_rows(rows.indptr, rows.indices, rows.data, labels, margins_out=part)
            seconds += time.thread_time() - before
        return seconds

    def examples(self) -> printed.Examples:
        """For the algorithms as printed."""
        return self.features, self.labels, self.order()

    def measured(self, settings: Sequence[Setting]) -> list[Row]:
        """A row of results of each setting of a method other than CL-FOBOS."""
        own = self.examples()
        if settings[0].method == FOBOS:
            return printed.measure_fobos(own, [each.lam for each in settings], [each.eta0 for each in settings])
        return [printed.measure_rounds(own, lam, eta0, method.K) for method, lam, eta0 in settings]

    def learner(self, settings: Sequence[Setting], *, average: str = "none", **options: Any) -> Learner:
        """A new learner of the configurations of a method."""
        method = settings[0].method
        shared = ({"K": method.K} if method.K > 0 else {}) | ({"average": average} if average != "none" else {})
        grid = [{"lam": setting.lam, "eta0": setting.eta0, **shared} for setting in settings]
        return Learner(method.algorithm, grid=grid, n_features=self.features.shape[1], **options)


def search_cell(draw: Draw, settings: Sequence[Setting]) -> Cell:
    """R̄(T) of every setting of a method, None if it diverged."""

    def run() -> Any:
        if settings[0].method != CL_FOBOS:
            return column(draw.measured(settings), "objective")
        learner = draw.learner(settings, dtype="float32", objective=True)
        draw.learn(learner)
        ends = zip(learner.measure().objective.tolist(), learner.diverged.tolist(), strict=True)
        return [None if diverged else value for value, diverged in ends]

    return draw.cell("search", run, settings=_names(settings))


def result_cell(draw: Draw, settings: Sequence[Setting]) -> Cell:
    """A row of results of each setting, in float64."""

    def ends(own: Sequence[Setting]) -> list[Row]:
        if own[0].method != CL_FOBOS:
            return draw.measured(own)
        learner = draw.learner(own, objective=True)
        margins = np.empty((draw.rounds, len(own), 1))
        draw.learn(learner, margins)
        measured = learner.measure()
        gains = (2.0 * draw.labels[draw.order()] - 1.0)[:, None] * margins[:, :, 0]
        columns = {
            "objective": measured.objective,
            "loss": measured.progressive_loss,
            "right": np.mean(gains > 0, axis=0),
            "undecided": np.mean(gains == 0, axis=0),
            "nonzeros": learner.nonzeros(),
        }
        return as_rows(columns)

    def run() -> Any:
        results: dict[Setting, Row] = {}
        for method in dict.fromkeys(setting.method for setting in settings):
            own = [setting for setting in settings if setting.method == method]
            results |= dict(zip(own, ends(own), strict=True))
        return [results[setting] for setting in settings]

    return draw.cell("results", run, settings=_names(settings))


READINGS: Final[dict[str, dict[str, Any]]] = {
    "(9) as printed": {"late": True},
    "L2, (10) as printed": {"penalty": printed.SUMMED},
    "L2, one map after the other": {"penalty": printed.PRODUCT},
}
"""Readings of Algorithm 4 other than (10) with L1, which `CL_FOBOS` is."""


def reading_cell(draw: Draw, settings: Sequence[Setting]) -> Cell:
    """Rows of results of each setting's λ and α₀, by `READINGS`."""

    def run() -> Any:
        return [
            {"reading": name} | printed.measure_reading(draw.examples(), lam, eta0, **reading)
            for name, reading in READINGS.items()
            for _, lam, eta0 in settings
        ]

    return draw.cell("readings", run, settings=_names(settings))


def means_cell(draw: Draw, settings: Sequence[Setting]) -> Cell:
    """F of the mean of the iterates, and of the last one, for each setting of CL-FOBOS.

    F is the mean loss of the examples that rounds are drawn from, plus the penalty: the expectation of a round's.
    """

    def objectives(kind: str) -> list[float]:
        learner = draw.learner(settings, average=kind)
        draw.learn(learner)
        margins = learner.decision_function(draw.features)[:, :, 0]
        losses = np.logaddexp(0.0, -(2.0 * draw.labels - 1.0)[:, None] * margins).mean(axis=0)
        sizes = [np.abs(learner.weights_of(q)).sum() for q in range(len(settings))]
        return [float(loss + own.lam * size) for loss, own, size in zip(losses, settings, sizes, strict=True)]

    def run() -> Any:
        return as_rows({"of_mean": objectives("iterates"), "of_last": objectives("none")})

    return draw.cell("means", run, settings=_names(settings))


def bound_cell(draw: Draw, setting: Setting) -> Cell:
    """Theorem 1's bound over T, which bounds F of the mean less F(0)."""

    def run() -> Any:
        order = draw.order()
        rounds = FirstEpoch(MatrixRows(draw.features[order], draw.labels[order].astype(np.float64)), Order())
        origin = {draw.rounds: np.zeros((draw.features.shape[1], 1))}
        ((_, value),) = measure_bounds(
            draw.learner([setting]), rounds, sampled_rounds([draw.rounds], BOUND_SAMPLES), origin
        )
        return value / draw.rounds

    return draw.cell("bound", run, settings=_names([setting]))


TIMED: Final = 10_000
"""Rounds that are timed, the first; seconds are of all rounds in proportion."""
TIMED_DENSE: Final = 200
"""The same of methods whose rounds visit all variables."""
TURNS: Final = 3
"""Times that each is timed; the least counts, since other processes only add to it."""


def timing_cell(draw: Draw, settings: Sequence[Setting], *, learners: bool = False) -> Cell:
    """Processor seconds of each setting alone: by the algorithms as printed, with at least as many variables as the
    paper, or by the learners. Taken in an order drawn for each data set."""

    def as_printed(setting: Setting, rounds: int) -> float:
        method, lam, eta0 = setting
        return printed.AsPrinted((features, *draw.examples()[1:]), lam, eta0, method.K).run(rounds)

    def by_learner(setting: Setting, rounds: int) -> float:
        timed = draw._replace(rounds=rounds)
        return timed.learn(timed.learner([setting]))

    own = draw.features
    features = csr_matrix((own.data, own.indices, own.indptr), shape=(own.shape[0], max(FEATURES, own.shape[1])))
    seconds = by_learner if learners else as_printed

    def run() -> Any:
        for setting in settings:
            seconds(setting, 1)  # compiles
        taken = {}
        for j in np.random.default_rng(draw.repetition).permutation(len(settings)).tolist():
            rounds = min(draw.rounds, TIMED_DENSE if settings[j].method in DENSE else TIMED)
            least = min(seconds(settings[j], rounds) for _ in range(TURNS))
            taken[j] = {"seconds": least * (draw.rounds / rounds)}
        return [taken[j] for j in range(len(settings))]

    return draw.cell("seconds", run, settings=_names(settings), n=FEATURES, learners=learners, turns=TURNS)


def tracked_cell(draw: Draw, setting: Setting, marks: Sequence[int], right: Sequence[int]) -> Cell:
    """A row of each of the rounds in `marks`: nonzero weights and, in those of `right`, right predictions of all
    examples."""

    def run() -> Any:
        method, lam, eta0 = setting
        own, rows, signs = printed.AsPrinted(draw.examples(), lam, eta0, method.K), [], 2 * draw.labels - 1
        for t in marks:
            own.run(t)
            found = int(np.sum(signs * (draw.features @ own.x) > 0)) if t in right else None
            rows.append({"rounds": t, "nonzeros": int(np.count_nonzero(own.x)), "right": found})
        return rows

    return draw.cell("tracked", run, tracked=_names([setting]), marks=list(marks), right=list(right))


def _names(settings: Sequence[Setting]) -> list[Any]:
    return [[method.name, lam, eta0] for method, lam, eta0 in settings]


class _Runs(NamedTuple):
    """Runs on several data sets."""

    run: Run
    draws: Sequence[Draw]

    def rows(
        self,
        step: str,
        cell: Callable[[Draw, list[Setting]], Cell],
        settings: list[Setting],
        threads: int | None = None,
        **columns: Any,
    ) -> list[Row]:
        """A row per data set and setting, from cells that have a row for each of the settings, or several in turn."""
        results = self.run.cells(step, [cell(draw, settings) for draw in self.draws], threads)
        return [
            {**settings[k % len(settings)].row, "repetition": draw.repetition, **columns, **row}
            for draw, rows in zip(self.draws, results, strict=True)
            for k, row in enumerate(rows)
        ]

    def tracked(self, step: str, figures: Sequence[Figure], right: Sequence[int] = ()) -> list[Row]:
        """A row per method of the figures, data set and round: around evaluations of L-FOBOS, and those of `right` in
        the first figure."""
        cells, about = [], []
        for figure in figures:
            extra = right if figure is figures[0] else ()
            marks = sorted({*_around_evaluations(figure.period, self.draws[0].rounds), *extra})
            for setting in figure:
                for draw in self.draws:
                    cells.append(tracked_cell(draw, setting, marks, extra))
                    about.append((draw, setting.row | {"repetition": draw.repetition, "K": figure.period}))
        return [
            own | {"share": row["nonzeros"] / draw.features.shape[1]} | row
            for (draw, own), rows in zip(about, self.run.cells(step, cells), strict=True)
            for row in rows
        ]


EVALUATIONS: Final = 50
"""Lazy evaluations at which nonzero weights are counted, at most; the last is one of them."""


def _around_evaluations(K: int, rounds: int) -> list[int]:
    count = rounds // K
    numbers = np.unique(np.linspace(1, count, min(count, EVALUATIONS)).astype(int)).tolist() if count else []
    return [K * k - before for k in numbers for before in (1, 0)]


# ----------------------------------------------------------------------------------------------------------------------
# α₀: the least R̄(T) of the 200 steps, by a search from coarse to fine.
#
# R̄(T) first falls and then grows with α₀. Nine of the 200 steps are tried of the first method, and of each other
# method the best of the one before and two around it. Then follow steps between the neighbours of the best of all
# tried, or beyond it, until both of its neighbours in the 200 have been tried.


COARSE: Final = tuple(STEPS[k - 1] for k in (1, 2, 4, 8, 16, 32, 64, 128, 200))
FINER: Final = 4
"""Steps that are tried between the best and each of its neighbours."""


def finer(means: Mapping[float, float]) -> list[float]:
    """The steps to try after those of `means`, R̄(T) by step; none if the best has been found.

    >>> finer({0.01: 0.5, 0.02: 0.4, 0.04: 0.6})
    [0.015, 0.025, 0.03, 0.035]
    >>> finer({0.5: 0.4, 0.6: 0.3})
    [0.52, 0.54, 0.56, 0.58, 0.8]
    >>> finer({0.015: 0.5, 0.02: 0.4, 0.025: 0.6, 1.0: 0.7})
    []
    """
    tried = sorted(STEPS.index(step) for step in means)
    best = tried.index(STEPS.index(min(means, key=lambda step: means[step])))
    near = tried[max(best - 1, 0) : best + 2]
    between = {low + (high - low) * j // (FINER + 1) for low, high in pairwise(near) for j in range(1, FINER + 1)}
    gap = 2 * (near[-1] - near[0]) or 1
    if best == 0:
        between.add(max(tried[0] - gap, 0))
    if best == len(tried) - 1:
        between.add(min(tried[-1] + gap, len(STEPS) - 1))
    return [STEPS[k] for k in sorted(between - set(tried))]


def around(step: float) -> list[float]:
    """The step and one on each side.

    >>> around(0.005), around(0.6)
    ([0.005, 0.01], [0.525, 0.6, 0.675])
    """
    k = STEPS.index(step)
    gap = max((k + 1) // 8, 1)
    return sorted({STEPS[max(k - gap, 0)], step, STEPS[min(k + gap, len(STEPS) - 1)]})


def search_steps(
    draw: Draw, methods: Sequence[FobosMethod], run: Run, lams: Sequence[float] = LAMS
) -> dict[Setting, float]:
    """R̄(T) of the settings tried, ∞ if it diverged; each method begins with the best steps of the one before."""
    found: dict[Setting, float] = {}
    start = {lam: list(COARSE) for lam in lams}
    for method in methods:
        searched = [lam for lam in lams if lam in LADDER_LAMS or method in (*PRINTED, FOBOS)]
        pending = [Setting(method, lam, step) for lam in searched for step in start[lam]]
        while pending:
            halves = [part for part in (pending[::2], pending[1::2]) if part]  # two tasks
            for part, values in zip(
                halves, run.cells(f"search, {method.name}", [search_cell(draw, part) for part in halves]), strict=True
            ):
                found |= {own: math.inf if value is None else value for own, value in zip(part, values, strict=True)}
            pending = [Setting(method, lam, step) for lam in searched for step in finer(_steps(found, method, lam))]
        start |= {own.lam: around(own.eta0) for own in best_settings(found) if own.method == method}
    return found


def _steps(means: Mapping[Setting, float], method: FobosMethod, lam: float) -> dict[float, float]:
    """R̄(T) of a method and λ by step."""
    return {own.eta0: value for own, value in means.items() if (own.method, own.lam) == (method, lam)}


def best_settings(means: Mapping[Setting, float]) -> list[Setting]:
    """The setting with the least R̄(T) of each method and λ that was searched."""
    searched = dict.fromkeys((own.method, own.lam) for own in means)
    found = [(method, lam, _steps(means, method, lam)) for method, lam in searched]
    return [Setting(method, lam, min(steps, key=lambda step: steps[step])) for method, lam, steps in found]


# ----------------------------------------------------------------------------------------------------------------------
# All runs of the experiments, and the rows of their tables.


def run_experiments(draws: list[Draw], presence: list[Draw], run: Run) -> Records:
    """The rows of all tables but the claims.

    `draws` are the data sets; `presence`, the same with 1 for every count, are run with the paper's steps only.
    """
    searched = search_steps(draws[0], (CL_FOBOS, FOBOS, *map(lazy, LADDER)), run)
    here = sorted(best_settings(searched), key=lambda own: (-own.lam, METHODS.index(own.method)))
    records: Records = {
        "search": [
            own.row | {"objective": value if math.isfinite(value) else None, "chosen": own in here}
            for own, value in searched.items()
        ]
    }
    paper = [Setting(method, lam, PUBLISHED[lam][method.name].eta0) for lam in LAMS for method in PRINTED]
    records["runs"] = []
    for words, eta0_of, settings, own in (
        (COUNTS, "here", here, draws),
        (COUNTS, "paper", paper, draws[:FEWER]),
        (PRESENCE, "paper", paper, presence[:FEWER]),
    ):
        step = f"{words}, α₀ of {eta0_of}"
        records["runs"] += _Runs(run, own).rows(step, result_cell, settings, words=words, eta0_of=eta0_of)
    records["results"] = [_result(records["runs"], own, searched[own]) for own in here]
    records["timings"] = _timings(draws, here, run)
    periods, best = equal_periods(records["timings"]), {(each.method, each.lam): each for each in here}
    equal = [Figure(best[lazy(periods[lam]), lam], best[CL_FOBOS, lam]) for lam in (each.lam for each in FIGURES)]
    right = [t for t in SNAPSHOT_ROUNDS if t <= draws[0].rounds]
    records["nonzeros"] = _Runs(run, draws).tracked("nonzeros", FIGURES, right)
    records["equal_time"] = _Runs(run, draws).tracked("nonzeros at equal time", equal)
    records["snapshots"] = _snapshots(records["nonzeros"], len(draws[0].labels))
    ours = [each for each in here if each.method == CL_FOBOS and each.lam in LADDER_LAMS]
    records["means"] = _means(draws[:FEWER], ours, run)
    records["readings"] = _Runs(run, draws[:FEWER]).rows("readings", reading_cell, ours)
    records["short"] = _short(draws, run)
    return records


def _result(rows: list[Row], own: Setting, searched: float) -> Row:
    """A row of Tables 1 to 6, from the runs and R̄(T) in the search."""
    mine, both = select(rows, method=own.method.name, lam=own.lam), ("objective", "right")
    here = select(mine, eta0_of="here", words=COUNTS)
    (result,) = mean_rows(here, ("lam",), (*both, "loss", "undecided", "nonzeros"), both)
    for words in (COUNTS, PRESENCE):
        at_paper = select(mine, eta0_of="paper", words=words)
        result |= {f"{name}_{words}": mean(column(at_paper, name)) if at_paper else None for name in both}
    printed_row = PUBLISHED[own.lam].get(own.method.name)
    result |= {f"paper_{name}": getattr(printed_row, name, None) for name in Printed._fields}
    return result | {"float32_difference": searched - here[0]["objective"]}


def _means(draws: list[Draw], settings: list[Setting], run: Run) -> list[Row]:
    """Theorem 2: CL-FOBOS' objectives, and the bound of one λ and data set."""
    (bounded,) = (setting for setting in settings if setting.lam == FIGURES[0].lam)
    rows = _Runs(run, draws).rows("means", means_cell, settings, bound=None)
    (bound,) = run.cells("bound", [bound_cell(draws[0], bounded)])
    select(rows, lam=bounded.lam)[0]["bound"] = bound
    return rows


def _snapshots(tracked: list[Row], examples: int) -> list[Row]:
    """Table 7."""
    rows = [row | {"rate": row["right"] / examples} for row in tracked if row["right"] is not None]
    for row in rows:
        row["paper_rate"], row["paper_right"] = SNAPSHOTS[row["method"]][SNAPSHOT_ROUNDS.index(row["rounds"])]
    return rows


def _timings(draws: list[Draw], settings: list[Setting], run: Run) -> list[Row]:
    """Each setting alone, one after the other: as printed and, with the λ and K that need it, by the learners."""
    runs = _Runs(run, draws)
    dense = [own._replace(method=SUBGRADIENT) for own in settings if own.method == FOBOS]
    of_figures = [setting for figure in FIGURES for setting in figure]
    learned = [own for own in settings if own.method in PRINTED and own.lam in {figure.lam for figure in FIGURES}]
    return [
        *runs.rows("time as printed", timing_cell, settings + dense, threads=1, what="as printed"),
        *runs.rows("time of Figure 2", timing_cell, of_figures, threads=1, what="figure 2"),
        *runs.rows("time", partial(timing_cell, learners=True), learned, threads=1, what="lazy"),
    ]


def equal_periods(timings: list[Row]) -> dict[float, int]:
    """By λ, the K of the L-FOBOS whose run time as printed is nearest that of CL-FOBOS."""
    periods = {}
    for lam in LADDER_LAMS:
        rows = mean_rows(select(timings, what="as printed", lam=lam), ("method",), ("seconds",))
        seconds = {row["method"]: row["seconds"] for row in rows}
        lazy_seconds = {K: seconds[lazy(K).name] for K in LADDER if lazy(K).name in seconds}
        periods[lam] = min(lazy_seconds, key=lambda K: abs(math.log(lazy_seconds[K] / seconds[CL_FOBOS.name])))
    return periods


def _short(draws: list[Draw], run: Run) -> list[Row]:
    """Algorithm 1, FOBOS and CL-FOBOS after fewer rounds, with the steps that are best then, for the strong λ."""
    fewer = [draw._replace(rounds=min(draw.rounds, SHORT)) for draw in draws[:FEWER]]
    lams = [lam for lam in LADDER_LAMS if lam >= STRONG]
    best = best_settings(search_steps(fewer[0], (CL_FOBOS, FOBOS, SUBGRADIENT), run, lams))
    return _Runs(run, fewer).rows("fewer rounds", result_cell, best)
