"""Regret in a box: AO-GD and its variants, AdaGrad and online gradient descent on the same documents.

Every method stays in |x_i| ≤ R and is compared with the best point of the box for the documents so far. Documents come
in random order, each once, or each `RUN` times in a row, so that gradients vary slowly.
"""

import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from sparseoco import __version__
from sparseoco.kernels.epoch import DRAW, EpochColumns
from sparseoco.offline.bounds import Bound, regret_bound, state_quantities
from sparseoco.offline.epochs import Blocks, EpochProblem, row_sizes
from sparseoco.offline.optimum import offline_optimum
from sparseoco.offline.passes import Floats, LocalPasses
from sparseoco.offline.regret.run import Sums
from sparseoco.papers.caos.objectives import ALPHAS, CORRECTED, EQUAL, PRINTED, SAMPLED, Minimiser
from sparseoco.papers.experiment import Cell, Run
from sparseoco.papers.rows import Records, Row, extend
from sparseoco.papers.sources import Documents
from sparseoco.training.learner import Learner

# ----------------------------------------------------------------------------------------------------------------------
# Regret of the iterates that CAOS-ERM plays, Σ_{t≤T} H(x_t) − T·H*, which Corollary 6 bounds in the mean.
#
# The iterate of a round includes its prediction: with predict_gradient = next, that of the example drawn for it. H
# takes a pass, so an epoch's rounds are cut into `RUNS` runs of about equal length and H is evaluated in one round of
# each, drawn uniformly: the sum of the values times the lengths of their runs is an unbiased estimate. With as many
# runs as rounds it is the sum itself. H* is the least H of all points: regret against the best point of the box is at
# most this.


PRINTED_EQUAL: Final = PRINTED._replace(
    name=f"{PRINTED.name}, equal probabilities", parameters={**PRINTED.parameters, **EQUAL.parameters}
)
PLAYED: Final = (SAMPLED, EQUAL, PRINTED, PRINTED_EQUAL, CORRECTED)
PLAYED_RADII: Final = (0.1, 0.3, 1.0)
EPOCH_MARKS: Final = (1, 2, 5, 10)
"""Epochs after which the regret is recorded."""
RUNS: Final = 10
"""Rounds per epoch in which H is evaluated."""


def played_cell(documents: Documents, method: Minimiser, seed: int, runs: int = RUNS) -> Cell:
    """`sums` [mark][α][R] of H(x_t) over the rounds so far, from `runs` of them per epoch, and `seconds`."""
    key: dict[str, Any] = {
        "what": "caos played",
        "sparseoco": __version__,
        "documents": documents.digest,
        "method": method.name,
    }
    key |= {"alpha": ALPHAS, "R": PLAYED_RADII, "marks": EPOCH_MARKS, "runs": runs, "seed": seed}
    return Cell(key, partial(_play, documents, method, seed, runs))


def _problem(documents: Documents, method: Minimiser) -> EpochProblem:
    grid = [{"alpha": alpha, "R": R, **method.parameters} for alpha in ALPHAS for R in PLAYED_RADII]
    return EpochProblem.of(method.algorithm, "logistic", "l1", grid, 2, documents.rows.shape[1])


def _play(documents: Documents, method: Minimiser, seed: int, runs: int) -> Any:
    before = time.thread_time()
    problem = _problem(documents, method)
    columns, passes = problem.sampled(), LocalPasses.of(documents.rows, documents.labels)
    size = documents.rows.shape[0]
    blocks = Blocks.of(row_sizes(passes.source, passes.span, 0, size), problem.configurations[0])
    cuts = np.arange(runs + 1) * size // runs
    choose = np.random.Generator(np.random.PCG64([seed, size]))
    total, sums = np.zeros(len(problem.configurations)), []
    for epoch in range(1, EPOCH_MARKS[-1] + 1):
        drawn = DRAW(np.cumsum(blocks.weights), seed, epoch, 0, 0, size)
        total += _epoch(problem, columns, passes, blocks, drawn, cuts, choose.integers(cuts[:-1], cuts[1:]))
        if epoch in EPOCH_MARKS:
            sums.append(total.reshape(len(ALPHAS), len(PLAYED_RADII)).tolist())
    return {"sums": sums, "seconds": time.thread_time() - before}


def _epoch(
    problem: EpochProblem,
    columns: EpochColumns,
    passes: LocalPasses,
    blocks: Blocks,
    drawn: NDArray[np.int64],
    cuts: NDArray[np.int64],
    chosen: NDArray[np.int64],
) -> Floats:
    """Play an epoch of the examples `drawn`; returns, per configuration, the sum of H at the `chosen` rounds times the
    lengths of their runs between `cuts`."""
    anchor = passes.totals(columns.weights(), problem.pass_request)
    slopes = passes.slopes(anchor)
    corrected = problem.configurations[0]["estimate"] == "corrected"
    predicted = problem.configurations[0]["predict_gradient"] == "previous"
    importance = np.cumsum(blocks.weights)[-1] / blocks.weights[drawn]
    columns.start_run(anchor.gradient if corrected else None)

    def play(first: int, stop: int) -> None:
        own = drawn[first:stop]
        columns.play(passes.source.gather(own), np.arange(own.size + 1), slopes[own], importance[first:stop])
        columns.flush()

    total, done = np.zeros(len(problem.configurations)), 0
    for t, length in zip(chosen.tolist(), np.diff(cuts).tolist(), strict=True):
        play(done, t)
        done = t
        if corrected:
            x = _iterate(columns, anchor.gradient)
        elif predicted:
            x = columns.weights()
        else:
            rows = passes.source.gather(drawn[t : t + 1])
            prediction = np.zeros((problem.n_features, slopes.shape[1]))
            prediction[rows.indices] = importance[t] * np.outer(rows.values, slopes[drawn[t]])
            x = _iterate(columns, prediction)
        total += length * (passes.totals(x, problem.pass_request).loss_sum + problem.penalties(x))
    play(done, drawn.size)
    return total


def _iterate(columns: EpochColumns, prediction: Floats) -> Floats:
    """The iterate of the next round, (n_features, columns), with this prediction: that of Z plus it."""
    state = columns.state
    columns.state = state.copy()
    columns.state[:, 0] += prediction
    x = columns.weights()
    columns.state = state
    return x


def played_rows(method: Minimiser, documents: Documents, optima: Sequence[Row], parts: Sequence[Any]) -> Records:
    """Rows of a method, from the results of its cells and the `optima` of every α of `ALPHAS`; `chosen` is the R of the
    least Σ H(x_t) at the last mark, in the mean of the seeds."""
    table = np.array([part["sums"] for part in parts])  # [seed][mark][α][R]
    problem, records = _problem(documents, method), Records(played=[])
    for a, optimum in enumerate(optima):
        best = int(np.argmin(table[:, -1, a].mean(axis=0)))
        for r, R in enumerate(PLAYED_RADII):
            key = {"set": optimum["set"], "alpha": optimum["alpha"], "method": method.name}
            key |= {"R": R, "chosen": r == best}
            bound = regret_bound("caos-erm", problem.configurations[a * len(PLAYED_RADII) + r])
            quantities = _quantities(documents, problem, R)
            for m, epochs in enumerate(EPOCH_MARKS):
                T = epochs * documents.rows.shape[0]
                value = float(bound.value(T, quantities)) if isinstance(bound, Bound) else None
                records["played"] += [
                    key
                    | {"seed": seed, "T": T, "loss": loss, "regret": loss - T * optimum["objective"], "bound": value}
                    for seed, loss in enumerate(table[:, m, a, r].tolist())
                ]
    spent = sum(part["seconds"] for part in parts)
    timing: Row = {"set": optima[0]["set"], "method": f"{method.name}, regret of the iterates"}
    timing |= {"columns": len(ALPHAS) * len(PLAYED_RADII), "passes": float((2 + RUNS) * EPOCH_MARKS[-1])}
    return records | {"timings": [timing | {"seconds": spent / len(parts), "spent": spent}]}


def _quantities(documents: Documents, problem: EpochProblem, R: float) -> dict[str, float]:
    """What the bounds of Corollary 6 are functions of."""
    rows = LocalPasses.of(documents.rows, documents.labels).source.rows(0, documents.rows.shape[0])
    sums = Sums.of(rows, problem.loss, problem.positive, R)
    drawn = np.count_nonzero(np.diff(documents.rows.indptr))
    return {"n": float(problem.coordinates), "L": sums.L, "L2": sums.L2, "blocks": float(drawn)}


def run_played(run: Run, documents: Documents, optima: Sequence[Row], repetitions: int) -> Records:
    """The rows of all methods; `optima` has a row per α."""
    cells = [played_cell(documents, method, seed) for method in PLAYED for seed in range(repetitions)]
    results = run.cells("regret of the iterates", cells)
    records: Records = {}
    for k, method in enumerate(PLAYED):
        own = results[k * repetitions : (k + 1) * repetitions]
        extend(records, played_rows(method, documents, optima, own))
    return records


# ----------------------------------------------------------------------------------------------------------------------
# Regret in a box.


ONLINE_RADII: Final = (0.03, 0.1, 0.3)
RUN: Final = 10
ARRANGEMENTS: Final = {"shuffled": 1, f"{RUN} times in a row": RUN}
"""How often each document is repeated, consecutively."""
FACTORS: Final = tuple(4.0**k for k in range(-3, 8))
"""Steps that are tried, as factors of the theorem's."""
MARKS: Final = (250, 1000)
"""Documents after which the regret is recorded, besides the last."""
TOLERANCE: Final = 1e-5


class BoxLearner(NamedTuple):
    """A learner: its label, its parameters, and the name of its step parameter if it has one."""

    name: str
    algorithm: str
    parameters: dict[str, Any]
    step: str = ""


AO_GD: Final = BoxLearner("AO-GD", "ao-gd", {})
MEAN: Final = BoxLearner("AO-FTRL, prediction the feature's mean", "ao-ftrl", {"predict_gradient": "mean"})
NO_PREDICTION: Final = BoxLearner("AO-FTRL, no prediction", "ao-ftrl", {"predict_gradient": "none"})
ADAGRAD: Final = BoxLearner("AdaGrad", "adagrad", {}, "eta")
OGD: Final = BoxLearner("OGD", "fobos", {}, "eta0")
LEARNERS: Final = (AO_GD, MEAN, NO_PREDICTION, ADAGRAD, OGD)
BEST: Final = ", best step"


def theorem_step(learner: BoxLearner, R: float, rows: csr_matrix) -> float:
    """AdaGrad's η = R, the largest ‖x‖_∞ (Duchi et al. 2011, Corollary 6); of OGD D/G (Zinkevich 2003), D = 2R√n the
    diameter of the box and G the largest ‖a_t‖₂, which bounds the gradients of the logistic loss."""
    if learner is ADAGRAD:
        return R
    longest = float(np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).max()))
    diameter: float = 2.0 * R * rows.shape[1] ** 0.5
    return diameter / longest


def grid(learner: BoxLearner, rows: csr_matrix) -> list[dict[str, Any]]:
    """Configurations: one per R, or one per R and step."""
    if not learner.step:
        return [{"R": R, **learner.parameters} for R in ONLINE_RADII]
    return [{"R": R, learner.step: factor * theorem_step(learner, R, rows)} for R in ONLINE_RADII for factor in FACTORS]


def marks(documents: int) -> list[int]:
    """Documents after which the regret is recorded."""
    return [*(mark for mark in MARKS if mark < documents), documents]


def shuffle(documents: int, order: int) -> NDArray[np.int64]:
    """The documents in the order of a repetition."""
    return np.random.Generator(np.random.PCG64([order, documents])).permutation(documents)


def optima_cell(documents: Documents, order: int) -> Cell:
    """[objective, gap] of every mark and R, each document counted once."""
    size = documents.rows.shape[0]

    def run() -> Any:
        results = []
        for mark in marks(size):
            chosen = shuffle(size, order)[:mark]
            rows = documents.rows[chosen]
            rows = rows[:, np.unique(rows.indices)]
            optima = [
                offline_optimum(rows, documents.labels[chosen], loss="logistic", alpha=0.0, box=R, tol=TOLERANCE)
                for R in ONLINE_RADII
            ]
            results.append([[float(optimum.objective), float(optimum.gap)] for optimum in optima])
        return results

    return Cell(
        _key("caos optima", documents, order) | {"R": ONLINE_RADII, "marks": marks(size), "tol": TOLERANCE}, run
    )


def playing_cell(documents: Documents, order: int, arrangement: str) -> Cell:
    """For every learner: the losses of its configurations and its bounds at every mark, and its seconds."""
    rows, size = documents.rows, documents.rows.shape[0]

    def play(box_learner: BoxLearner) -> dict[str, Any]:
        learner = Learner(
            box_learner.algorithm,
            loss="logistic",
            penalty="box" if box_learner.step else "l1",
            grid=grid(box_learner, rows),
            n_features=rows.shape[1],
        )
        chosen, seconds, done = shuffle(size, order), 0.0, 0
        losses, bounds = [], []
        for mark in marks(size):
            coming = np.repeat(chosen[done:mark], ARRANGEMENTS[arrangement])
            part, labels, done = rows[coming], documents.labels[coming], mark
            before = time.thread_time()
            learner.learn_rows(part.indptr, part.indices, part.data, labels)
            seconds += time.thread_time() - before
            losses.append(learner.progress.loss_sum.tolist())
            bounds.append([] if box_learner.step else [_bound(learner, c) for c in range(len(ONLINE_RADII))])
        return {"losses": losses, "bounds": bounds, "seconds": seconds}

    key = {
        "marks": marks(size),
        "arrangement": arrangement,
        "grid": [grid(box_learner, rows) for box_learner in LEARNERS],
    }
    return Cell(
        _key("caos regret", documents, order) | key,
        lambda: {box_learner.name: play(box_learner) for box_learner in LEARNERS},
    )


def _bound(learner: Learner, configuration: int) -> float:
    """Of Theorem 1 or Corollary 2, 4R Σ_i √(Σ_t (g_{t,i} − g̃_{t,i})²), for any comparator in the box."""
    bound = regret_bound(learner.algorithm, learner.configurations[configuration], learner.penalty)
    assert isinstance(bound, Bound)
    zeros = np.zeros((learner.n_features, 1))
    quantities = state_quantities(learner, configuration, zeros, zeros)
    return float(np.sum(bound.value(learner.progress.rows, quantities)))


def _key(what: str, documents: Documents, order: int) -> dict[str, Any]:
    return {"what": what, "sparseoco": __version__, "documents": documents.digest, "order": order}


def regret_rows(
    name: str, arrangement: str, documents: Documents, optima: Sequence[Any], plays: Sequence[Any]
) -> Records:
    """Rows of a data set and arrangement, from the results of the cells of its orders; the best steps are those of the
    mean of the orders."""
    key: Row = {"set": name, "arrangement": arrangement}
    records: Records = {"regret": [], "steps": [], "timings": []}
    for learner in LEARNERS:
        played = [play[learner.name] for play in plays]
        configurations = grid(learner, documents.rows)
        for r, R in enumerate(ONLINE_RADII):
            steps = _steps(learner, configurations, R, played)
            records["steps"] += [key | step for step in steps]
            for method, k in _reported(learner, configurations, R, steps).items():
                named = key | {"R": R, "method": method, "step": configurations[k].get(learner.step)}
                for order, (minima, play) in enumerate(zip(optima, played, strict=True)):
                    losses = [losses[k] for losses in play["losses"]]
                    bounds = [None if learner.step else bounds[r] for bounds in play["bounds"]]
                    rows = _mark_rows([minimum[r] for minimum in minima], losses, bounds, documents, arrangement)
                    records["regret"] += [named | {"order": order} | row for row in rows]
        spent = sum(play["seconds"] for play in played)
        timing = {"columns": len(configurations), "passes": float(ARRANGEMENTS[arrangement])}
        timing |= {"seconds": spent / len(played), "spent": spent}
        records["timings"].append({"set": name, "method": learner.name} | timing)
    return records


def _steps(learner: BoxLearner, configurations: Sequence[dict[str, Any]], R: float, plays: Sequence[Any]) -> list[Row]:
    """The rows of the steps that a learner tries at this R, if it has steps."""
    if not learner.step:
        return []
    last = np.mean([play["losses"][-1] for play in plays], axis=0)
    tried = [
        (configuration[learner.step], float(loss))
        for configuration, loss in zip(configurations, last, strict=True)
        if configuration["R"] == R
    ]
    best = int(np.argmin([loss for _, loss in tried]))
    return [
        {"R": R, "algorithm": learner.name, "factor": FACTORS[k], "step": step, "loss": loss, "chosen": k == best}
        for k, (step, loss) in enumerate(tried)
    ]


def _reported(
    learner: BoxLearner, configurations: Sequence[dict[str, Any]], R: float, steps: Sequence[Row]
) -> dict[str, int]:
    """The configurations of a learner to report at this R, by name: its own, or its theorem's step and the best."""
    first = next(k for k, configuration in enumerate(configurations) if configuration["R"] == R)
    if not learner.step:
        return {learner.name: first}
    best = next(k for k, step in enumerate(steps) if step["chosen"])
    return {learner.name: first + FACTORS.index(1.0), learner.name + BEST: first + best}


def _mark_rows(
    minima: Sequence[Any],
    losses: Sequence[float],
    bounds: Sequence[float | None],
    documents: Documents,
    arrangement: str,
) -> list[Row]:
    """The loss at each mark and its regret against the minimum [objective, gap] of documents counted once."""
    repeats = ARRANGEMENTS[arrangement]
    return [
        {
            "T": mark * repeats,
            "loss": loss,
            "optimum": repeats * optimum,
            "gap": repeats * gap,
            "regret": loss - repeats * optimum,
            "bound": bound,
        }
        for mark, loss, bound, (optimum, gap) in zip(
            marks(documents.rows.shape[0]), losses, bounds, minima, strict=True
        )
    ]


def run_regret(run: Run, name: str, documents: Documents, repetitions: int) -> Records:
    """The rows of a data set in every arrangement."""
    orders = range(repetitions)
    optima = [optima_cell(documents, order) for order in orders]
    plays = [playing_cell(documents, order, arrangement) for arrangement in ARRANGEMENTS for order in orders]
    results = run.cells("regret", [*optima, *plays])
    records: Records = {}
    for k, arrangement in enumerate(ARRANGEMENTS, start=1):
        played = results[k * repetitions : (k + 1) * repetitions]
        extend(records, regret_rows(name, arrangement, documents, results[:repetitions], played))
    return records
