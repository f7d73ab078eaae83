"""Regret of the iterates that CAOS-ERM plays, Σ_{t≤T} H(x_t) − T·H*, which Corollary 6 bounds in the mean.

The iterate of a round includes its prediction: with predict_gradient = next, that of the example drawn for it. H takes
a pass, so an epoch's rounds are cut into `RUNS` runs of about equal length and H is evaluated in one round of each,
drawn uniformly: the sum of the values times the lengths of their runs is an unbiased estimate. With as many runs as
rounds it is the sum itself. H* is the least H of all points: regret against the best point of the box is at most this.
"""

import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sparseoco import __version__
from sparseoco.kernels.epoch import DRAW, EpochColumns
from sparseoco.offline.bounds import Bound, regret_bound
from sparseoco.offline.epoch_problem import Problem
from sparseoco.offline.epochs import Blocks, row_sizes
from sparseoco.offline.partial_sums import Floats
from sparseoco.offline.passes import LocalPasses
from sparseoco.offline.regret.epochs import Sums
from sparseoco.papers.caos.objectives import ALPHAS, CORRECTED, EQUAL, PRINTED, SAMPLED, Minimiser
from sparseoco.papers.cells import Cell
from sparseoco.papers.documents import Documents
from sparseoco.papers.tables import Records, Row

PRINTED_EQUAL: Final = Minimiser(
    f"{PRINTED.name}, equal probabilities", PRINTED.family, PRINTED.algorithm, PRINTED.parameters | EQUAL.parameters
)
PLAYED: Final = (SAMPLED, EQUAL, PRINTED, PRINTED_EQUAL, CORRECTED)
PLAYED_RADII: Final = (0.1, 0.3, 1.0)
MARKS: Final = (1, 2, 5, 10)
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
    key |= {"alpha": ALPHAS, "R": PLAYED_RADII, "marks": MARKS, "runs": runs, "seed": seed}
    return Cell(key, partial(_play, documents, method, seed, runs))


def _problem(documents: Documents, method: Minimiser) -> Problem:
    grid = [{"alpha": alpha, "R": R, **method.parameters} for alpha in ALPHAS for R in PLAYED_RADII]
    return Problem.of(method.algorithm, "logistic", "l1", grid, 2, documents.rows.shape[1])


def _play(documents: Documents, method: Minimiser, seed: int, runs: int) -> Any:
    before = time.thread_time()
    problem = _problem(documents, method)
    columns, passes = problem.sampled(), LocalPasses.of(documents.rows, documents.labels)
    size = documents.rows.shape[0]
    blocks = Blocks.of(row_sizes(passes.source, passes.span, 0, size), problem.configurations[0])
    cuts = np.arange(runs + 1) * size // runs
    choose = np.random.Generator(np.random.PCG64([seed, size]))
    total, sums = np.zeros(len(problem.configurations)), []
    for epoch in range(1, MARKS[-1] + 1):
        drawn = DRAW(np.cumsum(blocks.weights), seed, epoch, 0, 0, size)
        total += _epoch(problem, columns, passes, blocks, drawn, cuts, choose.integers(cuts[:-1], cuts[1:]))
        if epoch in MARKS:
            sums.append(total.reshape(len(ALPHAS), len(PLAYED_RADII)).tolist())
    return {"sums": sums, "seconds": time.thread_time() - before}


def _epoch(
    problem: Problem,
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
            for m, epochs in enumerate(MARKS):
                T = epochs * documents.rows.shape[0]
                value = float(bound.value(T, quantities)) if isinstance(bound, Bound) else None
                records["played"] += [
                    key
                    | {"seed": seed, "T": T, "loss": loss, "regret": loss - T * optimum["objective"], "bound": value}
                    for seed, loss in enumerate(table[:, m, a, r].tolist())
                ]
    spent = sum(part["seconds"] for part in parts)
    timing: Row = {"set": optima[0]["set"], "method": f"{method.name}, regret of the iterates"}
    timing |= {"columns": len(ALPHAS) * len(PLAYED_RADII), "passes": float((2 + RUNS) * MARKS[-1])}
    return records | {"timings": [timing | {"seconds": spent / len(parts), "spent": spent}]}


def _quantities(documents: Documents, problem: Problem, R: float) -> dict[str, float]:
    """What the bounds of Corollary 6 are functions of."""
    rows = LocalPasses.of(documents.rows, documents.labels).source.rows(0, documents.rows.shape[0])
    sums = Sums.of(rows, problem.loss, problem.positive, R)
    drawn = np.count_nonzero(np.diff(documents.rows.indptr))
    return {"n": float(problem.coordinates), "L": sums.L, "L2": sums.L2, "blocks": float(drawn)}
