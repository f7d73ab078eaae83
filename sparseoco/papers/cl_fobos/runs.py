"""Runs of the experiment of Togari and Yamashita 2016: grids, equal times, algorithms as printed."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from sparseoco import __version__
from sparseoco.core.compile_cache import compiled
from sparseoco.learners.losses import logistic_slope
from sparseoco.learners.penalties import soft
from sparseoco.offline.regret.bounds import FirstEpoch, measure_bounds, sampled_rounds
from sparseoco.papers.cl_fobos import claims as published
from sparseoco.papers.experiment import Cell, Run
from sparseoco.papers.rows import Records, Row, column, distinct, mean, mean_and_error, select
from sparseoco.training.learner import Learner
from sparseoco.training.stream import MatrixRows, Order

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

_Result = TypeVar("_Result")

Setting = tuple[published.FobosMethod, float, float]
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

    def learner(self, method: published.FobosMethod, grid: list[dict[str, Any]], **options: Any) -> Learner:
        """A new learner of these configurations."""
        return Learner(method.algorithm, grid=grid, n_features=self.features.shape[1], **options)


def search_cell(
    draw: Draw,
    method: published.FobosMethod,
    lams: Sequence[float] = tuple(published.PUBLISHED),
    steps: Sequence[float] = published.STEPS,
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

    def ends(method: published.FobosMethod, grid: list[dict[str, Any]]) -> list[dict[str, Any]]:
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
            draw.learner(published.CL_FOBOS, [entry | {"average": kind} for entry in grid])
            for kind in ("iterates", "none")
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


def nonzeros_cell(draw: Draw, tracked: published.TrackedRun) -> Cell:
    """Nonzero weights before and after every K-th round, a list of (rounds, nonzeros)."""
    marks = sorted({t for k in range(tracked.K, draw.rounds + 1, tracked.K) for t in (k - 1, k)})

    def run() -> Any:
        return [[t, int(learner.nonzeros()[0])] for t, learner in _at_marks(draw, tracked, marks)]

    return Cell(draw.cell_key("nonzeros", tracked=[tracked.method.name, *tracked[1:]]), run)


def snapshot_cell(draw: Draw, tracked: published.TrackedRun) -> Cell:
    """Right predictions of all examples by x_399 … x_100000, a list of (rounds, right, nonzeros)."""

    def run() -> Any:
        snapshots = []
        for t, learner in _at_marks(draw, tracked, [t for t in published.SNAPSHOT_ROUNDS if t <= draw.rounds]):
            z = learner.decision_function(draw.features)[:, 0, 0]
            snapshots.append([t, int(np.sum((2 * draw.labels - 1) * z > 0)), int(learner.nonzeros()[0])])
        return snapshots

    return Cell(draw.cell_key("snapshots", tracked=[tracked.method.name, *tracked[1:]]), run)


def _at_marks(draw: Draw, tracked: published.TrackedRun, marks: Sequence[int]) -> Iterator[tuple[int, Learner]]:
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


# ----------------------------------------------------------------------------------------------------------------------
# L-FOBOS with the K that takes as long as CL-FOBOS on this processor, by the algorithms as printed.


Steps = Mapping[tuple[published.FobosMethod, float], float]
"""α₀ chosen for a method and λ."""
LAMBDAS: Final = list(dict.fromkeys(tracked.lam for tracked in published.TRACKED))
"""Of Figure 2."""


def _setting_row(setting: Setting, draw: Draw, **columns: Any) -> Row:
    """A row of a setting and a data set."""
    method, lam, eta0 = setting
    return {"lam": lam, "method": method.name, "eta0": eta0, "repetition": draw.repetition, **columns}


def ladder_timings(draws: list[Draw], chosen: Steps, run: Run) -> list[Row]:
    """Rows of timings: CL-FOBOS and L-FOBOS with K = 100, 200, 400, … as printed, for each λ of Figure 2.

    All have the step of CL-FOBOS, on which the time does not depend.
    """
    rounds = draws[0].rounds
    methods = [published.CL_FOBOS, *(published.lazy(100 * 2**k) for k in range(int(np.log2(rounds / 100)) + 1))]
    settings = [(method, lam, chosen[published.CL_FOBOS, lam]) for lam in LAMBDAS for method in methods]
    cells = [timing_cell(draw, settings, published.FEATURES) for draw in draws]
    return [
        _setting_row(setting, draw, what="ladder", seconds=seconds, seconds_with_objective=None)
        for draw, results in zip(draws, run.cells("time of every K", cells, 1), strict=True)
        for setting, seconds in zip(settings, results, strict=True)
    ]


def mean_ladder(timings: list[Row], lam: float) -> dict[str, float]:
    """Mean seconds by method, CL-FOBOS first."""
    rows = select(timings, what="ladder", lam=lam)
    return {name: mean(row["seconds"] for row in select(rows, method=name)) for name in distinct(rows, "method")}


def equal_time_runs(draws: list[Draw], chosen: Steps, timings: list[Row], run: Run) -> list[Row]:
    """A row of each λ of Figure 2, data set and method; none of a λ where no K takes as long as CL-FOBOS.

    `timings` has the rows of `ladder_timings`.
    """
    rows: list[Row] = []
    for lam in LAMBDAS:
        own, *times = mean_ladder(timings, lam).values()
        K = matching_period({100 * 2**k: seconds for k, seconds in enumerate(times)}, own, draws[0].rounds)
        if K is not None:
            eta0 = _best_step(draws, K, lam, chosen, run)
            settings = [(published.lazy(K), lam, eta0), (published.CL_FOBOS, lam, chosen[published.CL_FOBOS, lam])]
            rows += _measured(draws, K, settings, run)
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
    by_K = {method.K: chosen[method, lam] for method in published.METHODS if method.K is not None}
    longest = max((k for k in by_K if k <= K), default=None)
    shortest = min((k for k in by_K if k >= K), default=None)
    ends = (
        published.STEPS[0] if shortest is None else by_K[shortest],
        published.STEPS[-1] if longest is None else by_K[longest],
    )
    steps = [step for step in published.STEPS if min(ends) <= step <= max(ends)]
    found = run.cells("search at equal time", [search_cell(draw, published.lazy(K), (lam,), steps) for draw in draws])
    means = mean_objectives([result["objective"][0] for result in found])
    return steps[int(np.argmin(means))]


def _measured(draws: list[Draw], K: int, settings: Sequence[Setting], run: Run) -> list[Row]:
    """Seconds as printed, R̄(T), rate and shares of nonzero weights around every K-th round."""
    tracked = [published.TrackedRun(*setting, K) for setting in settings]
    seconds = run.cells("time at equal time", [timing_cell(draw, settings, published.FEATURES) for draw in draws], 1)
    results = run.cells("results at equal time", [result_cell(draw, settings) for draw in draws])
    cells = [nonzeros_cell(draw, one) for draw in draws for one in tracked]
    counts = iter(run.cells("nonzeros at equal time", cells))
    rows = []
    for draw, times, ends in zip(draws, seconds, results, strict=True):
        for setting, own_seconds, end in zip(settings, times, ends, strict=True):
            marks, n = next(counts), draw.features.shape[1]
            measured = {
                "objective": end["objective"],
                "right": end["right"],
                "before": mean(count / n for t, count in marks if t % K),
                "after": mean(count / n for t, count in marks if t % K == 0),
            }
            rows.append(_setting_row(setting, draw, K=K, seconds=own_seconds, **measured))
    return rows


# ----------------------------------------------------------------------------------------------------------------------
# All runs of the experiments, and the rows of their tables.


ORDER = [(method, lam) for lam in published.PUBLISHED for method in published.METHODS]
"""The rows of Tables 1 to 6."""


def run_experiments(draws: list[Draw], others: dict[str, list[Draw]], run: Run) -> Records:
    """The rows of all tables but the claims.

    `draws` are the data sets; `others`, by a name of `published.OTHERS`, are run with the paper's steps only.
    """
    records, means = _search(draws[: published.SEARCHED], run)
    here = [(method, lam, published.STEPS[int(np.argmin(means[method, lam]))]) for method, lam in ORDER]
    paper = [(method, lam, published.PUBLISHED[lam][published.METHODS.index(method)].eta0) for method, lam in ORDER]
    records["runs"] = []
    for eta0_of, words, settings, data_sets in (
        ("here", published.OWN, here, draws),
        ("paper", published.OWN, paper, draws),
        *(("paper", words, paper, other) for words, other in others.items()),
    ):
        results = run.cells(words, [result_cell(draw, settings) for draw in data_sets])
        records["runs"] += [
            _setting_row(setting, draw, eta0_of=eta0_of, words=words, **rows[j])
            for j, setting in enumerate(settings)
            for draw, rows in zip(data_sets, results, strict=True)
        ]
    records["results"] = [_result(records["runs"], *key, float(min(means[key]))) for key in ORDER]
    records["nonzeros"] = _nonzeros(draws, run)
    records["snapshots"] = _snapshots(draws, run)
    records["means"] = _means(draws, here, run)
    records["timings"] += _timings(draws, here, run)
    chosen = {(method, lam): eta0 for method, lam, eta0 in here}
    records["timings"] += ladder_timings(draws, chosen, run)
    records["equal_time"] = equal_time_runs(draws, chosen, records["timings"], run)
    return records


def _search(
    draws: list[Draw], run: Run
) -> tuple[Records, dict[tuple[published.FobosMethod, float], NDArray[np.float64]]]:
    """R̄(T) of every step, mean of the data sets: as rows, and by method and λ."""
    pairs = [(method, draw) for method in published.METHODS for draw in draws]
    objectives: dict[tuple[published.FobosMethod, float], list[list[float | None]]] = {key: [] for key in ORDER}
    seconds = dict.fromkeys(published.METHODS, 0.0)
    results = run.cells("search", [search_cell(draw, method) for method, draw in pairs])
    for (method, _), result in zip(pairs, results, strict=True):
        seconds[method] += result["seconds"]
        for lam, values in zip(published.PUBLISHED, result["objective"], strict=True):
            objectives[method, lam].append(values)
    means = {key: mean_objectives(values) for key, values in objectives.items()}
    search: list[Row] = []
    for method, lam in ORDER:
        best = np.argmin(means[method, lam])
        for k, (step, value) in enumerate(zip(published.STEPS, means[method, lam], strict=True)):
            objective = float(value) if np.isfinite(value) else None
            row = {"lam": lam, "method": method.name, "eta0": step, "objective": objective}
            search.append(row | {"chosen": k == best})
    empty = dict.fromkeys(("lam", "eta0", "repetition", "seconds"))
    timings = [
        {"what": "search", "method": method.name, "seconds_with_objective": value, **empty}
        for method, value in seconds.items()
    ]
    return {"search": search, "timings": timings}, means


def _result(rows: list[Row], method: published.FobosMethod, lam: float, searched: float) -> Row:
    own = select(rows, method=method.name, lam=lam)
    here = select(own, eta0_of="here", words=published.OWN)

    def at_paper_eta0(name: str, words: str) -> float | None:
        values = column(select(own, eta0_of="paper", words=words), name)
        return float(np.mean(values)) if values else None

    names = ("objective", "loss", "right", "undecided", "nonzeros")
    both = ("objective", "right")
    return {
        "lam": lam,
        "method": method.name,
        "eta0": here[0]["eta0"],
        **{name: float(np.mean(column(here, name))) for name in names},
        **{f"{name}_error": mean_and_error(column(here, name))[1] for name in both},
        **{f"{name}_at_paper_eta0": at_paper_eta0(name, published.OWN) for name in both},
        **{f"{name}_{words}": at_paper_eta0(name, words) for words in published.OTHERS for name in both},
        **{
            f"paper_{name}": value
            for name, value in published.PUBLISHED[lam][published.METHODS.index(method)]._asdict().items()
        },
        "float32_difference": searched - float(np.mean(column(here, "objective")[: published.SEARCHED])),
    }


def _means(draws: list[Draw], settings: list[Setting], run: Run) -> list[Row]:
    """Theorem 2: CL-FOBOS' objectives, and the bound of one λ and data set."""
    own = [setting for setting in settings if setting[0] == published.CL_FOBOS]
    (bounded,) = (setting for setting in own if setting[1] == published.TRACKED[0].lam)
    (bound,) = run.cells("bound", [bound_cell(draws[0], bounded)])
    rows = []
    for draw, results in zip(draws, run.cells("means", [means_cell(draw, own) for draw in draws]), strict=True):
        for setting, (of_mean, of_last) in zip(own, results, strict=True):
            has_bound = setting == bounded and draw is draws[0]
            objectives = {"of_mean": of_mean, "of_last": of_last, "bound": bound if has_bound else None}
            rows.append(_setting_row(setting, draw, **objectives))
    return rows


def _nonzeros(draws: list[Draw], run: Run) -> list[Row]:
    """Figure 2."""
    pairs = [(tracked, draw) for tracked in published.TRACKED for draw in draws]
    results = run.cells("nonzeros", [nonzeros_cell(draw, tracked) for tracked, draw in pairs])
    rows = []
    for (tracked, draw), marks in zip(pairs, results, strict=True):
        key = _setting_row((tracked.method, tracked.lam, tracked.eta0), draw, K=tracked.K)
        size = draw.features.shape[1]
        rows += [key | {"rounds": t, "nonzeros": count, "share": count / size} for t, count in marks]
    return rows


def _snapshots(draws: list[Draw], run: Run) -> list[Row]:
    """Table 7."""
    pairs = [(tracked, draw) for tracked in published.TRACKED[:2] for draw in draws]
    results = run.cells("snapshots", [snapshot_cell(draw, tracked) for tracked, draw in pairs])
    rows = []
    for (tracked, draw), marks in zip(pairs, results, strict=True):
        name = tracked.method.name
        for rounds, right, nonzeros in marks:
            rate, number = published.SNAPSHOTS[name][published.SNAPSHOT_ROUNDS.index(rounds)]
            row = {"method": name, "repetition": draw.repetition, "rounds": rounds, "nonzeros": nonzeros}
            row |= {"right": right, "rate": right / len(draw.labels)}
            rows.append(row | {"paper_rate": rate, "paper_right": number})
    return rows


def _timings(draws: list[Draw], settings: list[Setting], run: Run) -> list[Row]:
    """Each setting alone, one after the other: the learners, and the algorithms as printed with the paper's n.

    Those of Figure 2 are timed as printed as well, and the learners with R̄(T) on the first data set.
    """
    figure = [(tracked.method, tracked.lam, tracked.eta0) for tracked in published.TRACKED]
    lazy_cells = [lazy_timing_cell(draw, settings, objective=draw is draws[0]) for draw in draws]
    by_learners = run.cells("time", lazy_cells, 1)
    printed = run.cells(
        "time as printed", [timing_cell(draw, settings + figure, published.FEATURES) for draw in draws], 1
    )
    as_printed = [[(seconds, None) for seconds in results] for results in printed]
    rows = []
    for what, timed, repetitions in (
        ("lazy", settings, [[(times[0], times[1] if times[1:] else None) for times in own] for own in by_learners]),
        ("as printed", settings, [results[: len(settings)] for results in as_printed]),
        ("figure 2", figure, [results[len(settings) :] for results in as_printed]),
    ):
        for draw, results in zip(draws, repetitions, strict=True):
            for setting, (alone, with_objective) in zip(timed, results, strict=True):
                rows.append(
                    _setting_row(setting, draw, what=what, seconds=alone, seconds_with_objective=with_objective)
                )
    return rows
