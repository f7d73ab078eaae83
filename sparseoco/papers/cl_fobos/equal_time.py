"""L-FOBOS with the K that takes as long as CL-FOBOS on this processor, by the algorithms as printed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from sparseoco.papers.cells import Cell
from sparseoco.papers.cl_fobos import runs
from sparseoco.papers.cl_fobos.published import (
    CL_FOBOS,
    FEATURES,
    METHODS,
    STEPS,
    TRACKED,
    FobosMethod,
    TrackedRun,
    lazy,
)
from sparseoco.papers.cl_fobos.runs import Draw, Setting
from sparseoco.papers.statistics import mean
from sparseoco.papers.tables import Row, distinct, select

Steps = Mapping[tuple[FobosMethod, float], float]
"""α₀ chosen for a method and λ."""
Run = Callable[..., list[Any]]
LAMBDAS: Final = list(dict.fromkeys(tracked.lam for tracked in TRACKED))
"""Of Figure 2."""


def ladder_timings(draws: list[Draw], chosen: Steps, run: Run) -> list[Row]:
    """Rows of timings: CL-FOBOS and L-FOBOS with K = 100, 200, 400, … as printed, for each λ of Figure 2.

    All have the step of CL-FOBOS, on which the time does not depend.
    """
    rounds = draws[0].rounds
    methods = [CL_FOBOS, *(lazy(100 * 2**k) for k in range(int(np.log2(rounds / 100)) + 1))]
    settings = [(method, lam, chosen[CL_FOBOS, lam]) for lam in LAMBDAS for method in methods]
    cells = [runs.timing_cell(draw, settings, FEATURES) for draw in draws]
    return [
        {
            "lam": lam,
            "method": method.name,
            "eta0": eta0,
            "what": "ladder",
            "repetition": draw.repetition,
            "seconds": seconds,
            "seconds_with_objective": None,
        }
        for draw, results in zip(draws, run("time of every K", cells, 1), strict=True)
        for (method, lam, eta0), seconds in zip(settings, results, strict=True)
    ]


def mean_ladder(timings: list[Row], lam: float) -> dict[str, float]:
    """Mean seconds by method, CL-FOBOS first."""
    rows = select(timings, what="ladder", lam=lam)
    return {name: mean(row["seconds"] for row in select(rows, method=name)) for name in distinct(rows, "method")}


def equal_time_runs(draws: list[Draw], chosen: Steps, timings: list[Row], run: Run) -> list[Row]:
    """A row of each λ of Figure 2, data set and method; none of a λ where no K takes as long as CL-FOBOS.

    `timings` has the rows of `ladder_timings`; ``run(step, cells, threads)`` gives the results of cells.
    """
    rows: list[Row] = []
    for lam in LAMBDAS:
        own, *times = mean_ladder(timings, lam).values()
        K = matching_period({100 * 2**k: seconds for k, seconds in enumerate(times)}, own, draws[0].rounds)
        if K is not None:
            eta0 = _best_step(draws, K, lam, chosen, run)
            settings = [(lazy(K), lam, eta0), (CL_FOBOS, lam, chosen[CL_FOBOS, lam])]
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
    by_K = {method.K: chosen[method, lam] for method in METHODS if method.K is not None}
    longest = max((k for k in by_K if k <= K), default=None)
    shortest = min((k for k in by_K if k >= K), default=None)
    ends = (STEPS[0] if shortest is None else by_K[shortest], STEPS[-1] if longest is None else by_K[longest])
    steps = [step for step in STEPS if min(ends) <= step <= max(ends)]
    found = run("search at equal time", [runs.search_cell(draw, lazy(K), (lam,), steps) for draw in draws])
    means = runs.mean_objectives([result["objective"][0] for result in found])
    return steps[int(np.argmin(means))]


def _measured(draws: list[Draw], K: int, settings: Sequence[Setting], run: Run) -> list[Row]:
    """Seconds as printed, R̄(T), rate and shares of nonzero weights around every K-th round."""
    tracked = [TrackedRun(*setting, K) for setting in settings]
    seconds = run("time at equal time", [runs.timing_cell(draw, settings, FEATURES) for draw in draws], 1)
    results = run("results at equal time", [runs.result_cell(draw, settings) for draw in draws])
    cells: list[Cell] = [runs.nonzeros_cell(draw, one) for draw in draws for one in tracked]
    counts = iter(run("nonzeros at equal time", cells))
    rows = []
    for draw, times, ends in zip(draws, seconds, results, strict=True):
        for (method, lam, eta0), time, end in zip(settings, times, ends, strict=True):
            marks, n = next(counts), draw.features.shape[1]
            rows.append(
                {
                    "lam": lam,
                    "K": K,
                    "method": method.name,
                    "eta0": eta0,
                    "repetition": draw.repetition,
                    "seconds": time,
                    "objective": end["objective"],
                    "right": end["right"],
                    "before": mean(count / n for t, count in marks if t % K),
                    "after": mean(count / n for t, count in marks if t % K == 0),
                }
            )
    return rows
