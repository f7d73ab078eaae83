"""Runs of the experiment of Togari and Yamashita 2016: grids, equal times, algorithms as printed."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from sparseoco import __version__
from sparseoco.core.compile_cache import compiled
from sparseoco.learners.losses import logistic_slope
from sparseoco.learners.penalties import soft
from sparseoco.offline.regret.bounds import FirstEpoch, measure_bounds, sampled_rounds
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
SEARCHED: Final = 5
"""Data sets, the first, by whose R̄(T) α₀ is chosen, and on which other features are tried; results are of all."""
DOMAIN: Final = "books"
FEATURES: Final = 332_440

OWN: Final = "most_frequent"
"""The features of the examples that all experiments use."""
OTHERS: Final = {"all_counts": "all words", "all_presence": "all words, presence only"}
"""Other features, on which the paper's steps are tried to explain differences in R̄(T)."""


class FobosMethod(NamedTuple):
    """A row of Tables 1 to 6."""

    name: str
    algorithm: str
    K: int | None


def lazy(K: int) -> FobosMethod:
    """L-FOBOS, Algorithm 3."""
    return FobosMethod(f"L-FOBOS, K = {K}", "l-fobos", K)


CL_FOBOS: Final = FobosMethod("CL-FOBOS", "cl-fobos", None)
METHODS: Final = (lazy(100), lazy(500), lazy(1000), CL_FOBOS)


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
    K: int

    @property
    def lam(self) -> float:
        """λ of both."""
        return self.ours.lam


FIGURES: Final = (
    Figure(Setting(lazy(400), 5e-3, 0.04), Setting(CL_FOBOS, 5e-3, 0.055), 400),
    Figure(Setting(lazy(750), 1e-5, 0.595), Setting(CL_FOBOS, 1e-5, 0.595), 750),
)
_PRINTED = read_toml(Path(__file__).with_name("published.toml"))
PUBLISHED: Final = {
    table["lam"]: {method.name: Printed(*row) for method, row in zip(METHODS, table["rows"], strict=True)}
    for table in _PRINTED["tables"]
}
"""Tables 1 to 6 by λ, rows by method."""
LAMS: Final = tuple(PUBLISHED)
SNAPSHOT_ROUNDS: Final[list[int]] = _PRINTED["snapshots"].pop("rounds")
SNAPSHOTS: Final[dict[str, list[tuple[float, int]]]] = _PRINTED["snapshots"]
"""Table 7 by method: rate and number of right predictions after each of `SNAPSHOT_ROUNDS`."""


# ----------------------------------------------------------------------------------------------------------------------
# Algorithms 3 and 4 as printed, for run times: Step 2 of L-FOBOS visits all n variables every K rounds.
#
# The learners of the project apply the same maps when a feature occurs again, so that no K costs O(n) there.


def run_rounds(indptr, indices, values, signs, order, lam, alpha0, K, x, applied):  # type: ignore[no-untyped-def]
    """Update x in place over the rounds of `order`: Algorithm 3, or with K = 0 Algorithm 4.

    x        (n,) x_1, then x_{T+1}
    applied  (n,) zeros; for Algorithm 4, α_ξ of (9), the sum of the steps whose penalty a variable has received
    """
    steps = evaluated = 0.0  # sums of the steps: all so far, and those up to the last Step 2 of Algorithm 3
    for t in range(1, order.shape[0] + 1):
        row = order[t - 1]
        start, stop = indptr[row], indptr[row + 1]
        margin = 0.0
        for k in range(start, stop):
            margin += values[k] * x[indices[k]]
        alpha = alpha0 / math.sqrt(t)
        steps += alpha
        change = alpha * logistic_slope(margin, signs[row])
        if K == 0:
            for k in range(start, stop):
                i = indices[k]
                x[i] = soft(x[i] - change * values[k], lam * (steps - applied[i]))
                applied[i] = steps
            continue
        for k in range(start, stop):
            x[indices[k]] -= change * values[k]
        if t % K == 0:
            due = lam * (steps - evaluated)
            for i in range(x.shape[0]):
                x[i] = soft(x[i], due)
            evaluated = steps


_RUN = compiled(run_rounds)


def run_as_printed(
    features: csr_matrix, labels: NDArray[np.int64], order: NDArray[np.int64], lam: float, alpha0: float, K: int | None
) -> tuple[NDArray[np.float64], float]:
    """x after the rounds of `order`, and the processor's seconds.

    Parameters
    ----------
    features : csr_matrix, (examples, n) float64
    labels : (examples,)
        0 or 1.
    order : (T,)
        The example of every round.
    lam, alpha0 : float
        λ and α₀; steps are α₀/√t.
    K : int or None
        Rounds between two Steps 2 of Algorithm 3; None for Algorithm 4.
    """
    x, applied = np.zeros((2, features.shape[1]))
    signs = 2.0 * labels - 1.0
    before = time.thread_time()
    _RUN(features.indptr, features.indices, features.data, signs, order, lam, alpha0, K or 0, x, applied)
    return x, time.thread_time() - before


# ----------------------------------------------------------------------------------------------------------------------
# The runs: a grid of columns on each drawn data set, then each method alone with the chosen step.
#
# A data set is 100,000 examples drawn from those there are. One pass trains the 200 steps of a method and λ together,
# in float32, which is precise enough to choose a step; the results of the chosen steps are in float64.


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

    def learner(self, settings: Sequence[Setting], *, average: str = "none", **options: Any) -> Learner:
        """A new learner of the configurations of a method."""
        method = settings[0].method
        shared = ({"K": method.K} if method.K is not None else {}) | ({"average": average} if average != "none" else {})
        grid = [{"lam": setting.lam, "eta0": setting.eta0, **shared} for setting in settings]
        return Learner(method.algorithm, grid=grid, n_features=self.features.shape[1], **options)


def search_cell(draw: Draw, method: FobosMethod, lams: Sequence[float] = LAMS, steps: Sequence[float] = STEPS) -> Cell:
    """R̄(T) of every λ and step, None if it diverged, and seconds."""

    def run() -> Any:
        grids = [[Setting(method, lam, step) for step in steps] for lam in lams]
        learners = [draw.learner(grid, dtype="float32", objective=True) for grid in grids]
        seconds = draw.learn(learners)
        objectives = []
        for learner in learners:
            ends = zip(learner.measure().objective.tolist(), learner.diverged.tolist(), strict=True)
            objectives.append([None if diverged else value for value, diverged in ends])
        return {"objective": objectives, "seconds": seconds}

    return draw.cell("search", run, method=method.name, steps=steps, lam=list(lams))


def result_cell(draw: Draw, settings: Sequence[Setting]) -> Cell:
    """A row of results of each setting, in float64."""

    def ends(own: Sequence[Setting]) -> list[Row]:
        learner = draw.learner(own, objective=True)
        margins = np.empty((draw.rounds, len(own), 1))
        draw.learn([learner], margins)
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


def means_cell(draw: Draw, settings: Sequence[Setting]) -> Cell:
    """F of the mean of the iterates, and of the last one, for each setting of CL-FOBOS.

    F is the mean loss of the examples that rounds are drawn from, plus the penalty: the expectation of a round's.
    """

    def objectives(kind: str) -> list[float]:
        learner = draw.learner(settings, average=kind)
        draw.learn([learner])
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


def lazy_timing_cell(draw: Draw, settings: Sequence[Setting]) -> Cell:
    """Processor seconds of each setting alone by the learners: learning, and learning with R̄(T)."""

    kinds = {"seconds": False, "seconds_with_objective": True}

    def alone(timed: Draw) -> list[Row]:
        def seconds(setting: Setting) -> Row:
            return {name: timed.learn([timed.learner([setting], objective=kind)]) for name, kind in kinds.items()}

        return _in_random_order(draw, settings, seconds)

    def run() -> Any:
        alone(draw._replace(rounds=1))  # compiles
        return alone(draw)

    return draw.cell("lazy seconds", run, settings=_names(settings))


def timing_cell(draw: Draw, settings: Sequence[Setting]) -> Cell:
    """Processor seconds of each setting alone by the algorithms as printed, with the paper's number of variables or
    those there are."""

    def run() -> Any:
        order, own = draw.order(), draw.features
        shape = (own.shape[0], max(FEATURES, own.shape[1]))
        features = csr_matrix((own.data, own.indices, own.indptr), shape=shape)

        def seconds(setting: Setting, rounds: int = draw.rounds) -> Row:
            method, lam, eta0 = setting
            return {"seconds": run_as_printed(features, draw.labels, order[:rounds], lam, eta0, method.K)[1]}

        seconds(settings[0], 1)  # compiles
        return _in_random_order(draw, settings, seconds)

    return draw.cell("seconds as printed", run, settings=_names(settings), n=FEATURES)


def _in_random_order(draw: Draw, settings: Sequence[Setting], measure: Callable[[Setting], Row]) -> list[Row]:
    """A measurement of each setting, in the order given; they are taken in another, drawn for each data set."""
    taken = {int(j): measure(settings[j]) for j in np.random.default_rng(draw.repetition).permutation(len(settings))}
    return [taken[j] for j in range(len(settings))]


def tracked_cell(draw: Draw, setting: Setting, K: int, marks: Sequence[int]) -> Cell:
    """A row of each of these rounds: nonzero weights, and right predictions of all examples."""

    def run() -> Any:
        learner, order, rows = draw.learner([setting]), draw.order(), []
        for t in marks:
            chosen = order[learner.rounds : t]
            part = draw.features[chosen]
            learner.learn_rows(part.indptr, part.indices, part.data, draw.labels[chosen])
            right = np.sum((2 * draw.labels - 1) * learner.decision_function(draw.features)[:, 0, 0] > 0)
            rows.append({"rounds": t, "nonzeros": int(learner.nonzeros()[0]), "right": int(right)})
        return rows

    return draw.cell("tracked", run, tracked=[*_names([setting])[0], K], marks=list(marks))


def _names(settings: Sequence[Setting]) -> list[Any]:
    return [[method.name, lam, eta0] for method, lam, eta0 in settings]


def mean_objectives(values: list[list[float | None]]) -> NDArray[np.float64]:
    """(steps,) mean of the repetitions; ∞ if one diverged."""
    table = np.array([[np.inf if value is None else value for value in row] for row in values])
    return np.asarray(table.mean(axis=0))


class _Runs(NamedTuple):
    """Runs on several data sets."""

    run: Run
    draws: Sequence[Draw]

    def rows(
        self, step: str, cell: Callable[[Draw, list[Setting]], Cell], settings: list[Setting], **columns: Any
    ) -> list[Row]:
        """A row per data set and setting, from cells that have a row for each of the settings; timed ones in turn."""
        threads = 1 if cell in (timing_cell, lazy_timing_cell) else None
        results = self.run.cells(step, [cell(draw, settings) for draw in self.draws], threads)
        return [
            {**setting.row, "repetition": draw.repetition, **columns, **row}
            for draw, rows in zip(self.draws, results, strict=True)
            for setting, row in zip(settings, rows, strict=True)
        ]

    def tracked(self, step: str, figure: Figure, marks: Sequence[int] = ()) -> list[Row]:
        """A row per method of the figure, data set and round; by default around every K-th round."""
        K, rounds = figure.K, self.draws[0].rounds
        marks = marks or sorted({t for k in range(K, rounds + 1, K) for t in (k - 1, k)})
        pairs = [(setting, draw) for setting in figure[:2] for draw in self.draws]
        results = self.run.cells(step, [tracked_cell(draw, setting, K, marks) for setting, draw in pairs])
        return [
            {**setting.row, "repetition": draw.repetition, "K": K}
            | {"share": row["nonzeros"] / draw.features.shape[1], "rate": row["right"] / len(draw.labels), **row}
            for (setting, draw), rows in zip(pairs, results, strict=True)
            for row in rows
        ]


# ----------------------------------------------------------------------------------------------------------------------
# L-FOBOS with the K that takes as long as CL-FOBOS on this processor, by the algorithms as printed.


Steps = Mapping[tuple[FobosMethod, float], float]
"""α₀ chosen for a method and λ."""


def ladder_timings(draws: list[Draw], chosen: Steps, run: Run) -> list[Row]:
    """Rows of timings: CL-FOBOS and L-FOBOS with K = 100, 200, 400, … as printed, for each λ of Figure 2.

    All have the step of CL-FOBOS, on which the time does not depend.
    """
    periods = [100 * 2**k for k in range(int(np.log2(draws[0].rounds / 100)) + 1)]
    methods = [CL_FOBOS, *map(lazy, periods)]
    settings = [Setting(method, own.lam, chosen[CL_FOBOS, own.lam]) for own in FIGURES for method in methods]
    return _Runs(run, draws).rows("time of every K", timing_cell, settings, what="ladder")


def mean_ladder(timings: list[Row], lam: float) -> dict[str, float]:
    """Mean seconds by method, CL-FOBOS first."""
    rows = mean_rows(select(timings, what="ladder", lam=lam), ("method",), ("seconds",))
    return {row["method"]: row["seconds"] for row in rows}


def equal_time_runs(draws: list[Draw], chosen: Steps, timings: list[Row], run: Run) -> list[Row]:
    """A row of each λ of Figure 2, data set and method; none of a λ where no K takes as long as CL-FOBOS.

    `timings` has the rows of `ladder_timings`.
    """
    rows: list[Row] = []
    for lam in (figure.lam for figure in FIGURES):
        own, *times = mean_ladder(timings, lam).values()
        K = matching_period({100 * 2**k: seconds for k, seconds in enumerate(times)}, own, draws[0].rounds)
        if K is None:
            continue
        theirs = Setting(lazy(K), lam, _best_step(draws, K, lam, chosen, run))
        ours = Setting(CL_FOBOS, lam, chosen[CL_FOBOS, lam])
        settings = [theirs, ours]
        runs = _Runs(run, draws)
        timed = runs.rows("time at equal time", timing_cell, settings, K=K)
        ends = runs.rows("results at equal time", result_cell, settings)
        counts = runs.tracked("nonzeros at equal time", Figure(theirs, ours, K))
        for time_row, end in zip(timed, ends, strict=True):
            shares = select(counts, method=end["method"], repetition=end["repetition"])
            before, after = (mean(row["share"] for row in shares if (row["rounds"] % K == 0) == at) for at in (0, 1))
            rows.append(end | time_row | {"before": before, "after": after})
    return rows


def matching_period(times: Mapping[int, float], seconds: float, rounds: int) -> int | None:
    """K of an L-FOBOS that takes so many seconds: between those of known times, linear in the number of Steps 2.

    None if L-FOBOS takes longer with the largest K, or less with the smallest.

    >>> matching_period({100: 3.0, 200: 2.0, 400: 1.5}, 1.75, 1000)
    286
    >>> matching_period({100: 3.0, 200: 2.0, 400: 1.5}, 1.4, 1000) is None
    True
    """
    periods = sorted(times, reverse=True)
    least = np.maximum.accumulate([times[K] for K in periods])  # noise apart, times grow with the number
    if not least[0] <= seconds <= least[-1]:
        return None
    return round(rounds / float(np.interp(seconds, least, [rounds // K for K in periods])))


def _best_step(draws: list[Draw], K: int, lam: float, chosen: Steps, run: Run) -> float:
    """The step with the least R̄(T), from the one chosen for the next larger K to that for the next smaller."""
    by_K = {method.K: chosen[method, lam] for method in METHODS if method.K is not None}
    smaller = [step for k, step in by_K.items() if k <= K]
    larger = [step for k, step in by_K.items() if k >= K]
    ends = (larger or STEPS)[0], (smaller or STEPS)[-1]
    steps = [step for step in STEPS if min(ends) <= step <= max(ends)]
    found = run.cells("search at equal time", [search_cell(draw, lazy(K), (lam,), steps) for draw in draws])
    means = mean_objectives([result["objective"][0] for result in found])
    return steps[int(np.argmin(means))]


# ----------------------------------------------------------------------------------------------------------------------
# All runs of the experiments, and the rows of their tables.


ORDER = [(method, lam) for lam in PUBLISHED for method in METHODS]
"""The rows of Tables 1 to 6."""


def run_experiments(draws: list[Draw], others: dict[str, list[Draw]], run: Run) -> Records:
    """The rows of all tables but the claims.

    `draws` are the data sets; `others`, by a name of `OTHERS`, are run with the paper's steps only.
    """
    records = _search(draws[:SEARCHED], run)
    steps = {(row["method"], row["lam"]): row for row in select(records["search"], chosen=True)}
    here = [Setting(method, lam, steps[method.name, lam]["eta0"]) for method, lam in ORDER]
    paper = [Setting(method, lam, PUBLISHED[lam][method.name].eta0) for method, lam in ORDER]
    records["runs"] = []
    for eta0_of, words, settings, data_sets in (
        ("here", OWN, here, draws),
        ("paper", OWN, paper, draws),
        *(("paper", words, paper, other) for words, other in others.items()),
    ):
        records["runs"] += _Runs(run, data_sets).rows(words, result_cell, settings, eta0_of=eta0_of, words=words)
    records["results"] = [_result(records["runs"], steps[method.name, lam]) for method, lam in ORDER]
    records["nonzeros"] = [row for own in FIGURES for row in _Runs(run, draws).tracked("nonzeros", own)]
    records["snapshots"] = _snapshots(draws, run)
    records["means"] = _means(draws, here, run)
    chosen = {(method, lam): eta0 for method, lam, eta0 in here}
    records["timings"] += _timings(draws, here, run) + ladder_timings(draws, chosen, run)
    records["equal_time"] = equal_time_runs(draws, chosen, records["timings"], run)
    return records


def _search(draws: list[Draw], run: Run) -> Records:
    """R̄(T) of every step, mean of the data sets, and the seconds of each method."""
    records: Records = {"search": [], "timings": []}
    results = run.cells_by("search", {method: [search_cell(draw, method) for draw in draws] for method in METHODS})
    empty = dict.fromkeys(("lam", "eta0", "repetition", "seconds"))
    for method, parts in results.items():
        seconds = sum(column(parts, "seconds"))
        records["timings"].append(empty | {"what": "search", "method": method.name, "seconds_with_objective": seconds})
        for lam, objectives in zip(PUBLISHED, zip(*column(parts, "objective"), strict=True), strict=True):
            means = mean_objectives(list(objectives))
            best = STEPS[int(np.argmin(means))]
            for step, value in zip(STEPS, means.tolist(), strict=True):
                row = {"objective": value if math.isfinite(value) else None, "chosen": step == best}
                records["search"].append(Setting(method, lam, step).row | row)
    return records


def _result(rows: list[Row], searched: Row) -> Row:
    """A row of Tables 1 to 6, from the runs and the chosen row of the search."""
    own = select(rows, method=searched["method"], lam=searched["lam"])
    here, both = select(own, eta0_of="here", words=OWN), ("objective", "right")
    (result,) = mean_rows(here, ("lam",), (*both, "loss", "undecided", "nonzeros"), both)
    for words, suffix in {OWN: "at_paper_eta0", **{words: words for words in OTHERS}}.items():
        at_paper = select(own, eta0_of="paper", words=words)
        result |= {f"{name}_{suffix}": mean(column(at_paper, name)) if at_paper else None for name in both}
    printed = PUBLISHED[result["lam"]][result["method"]]
    result |= {f"paper_{name}": value for name, value in printed._asdict().items()}
    in_search = mean(column(here[:SEARCHED], "objective"))
    return result | {"float32_difference": searched["objective"] - in_search}


def _means(draws: list[Draw], settings: list[Setting], run: Run) -> list[Row]:
    """Theorem 2: CL-FOBOS' objectives, and the bound of one λ and data set."""
    own = [setting for setting in settings if setting.method == CL_FOBOS]
    (bounded,) = (setting for setting in own if setting.lam == FIGURES[0].lam)
    rows = _Runs(run, draws).rows("means", means_cell, own, bound=None)
    (bound,) = run.cells("bound", [bound_cell(draws[0], bounded)])
    select(rows, lam=bounded.lam)[0]["bound"] = bound
    return rows


def _snapshots(draws: list[Draw], run: Run) -> list[Row]:
    """Table 7."""
    marks = [t for t in SNAPSHOT_ROUNDS if t <= draws[0].rounds]
    rows = _Runs(run, draws).tracked("snapshots", FIGURES[0], marks)
    for row in rows:
        row["paper_rate"], row["paper_right"] = SNAPSHOTS[row["method"]][SNAPSHOT_ROUNDS.index(row["rounds"])]
    return rows


def _timings(draws: list[Draw], settings: list[Setting], run: Run) -> list[Row]:
    """Each setting alone, one after the other: the learners, and the algorithms as printed with the paper's n.

    Those of Figure 2 are timed as printed as well.
    """
    of_figures = [setting for figure in FIGURES for setting in figure[:2]]
    runs = _Runs(run, draws)
    return [
        *runs.rows("time", lazy_timing_cell, settings, what="lazy"),
        *runs.rows("time as printed", timing_cell, settings, what="as printed"),
        *runs.rows("time as printed", timing_cell, of_figures, what="figure 2"),
    ]
