"""L-FOBOS with the K that takes as long as CL-FOBOS on this processor, by the algorithms as printed."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

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
from sparseoco.papers.tables import Row, select

Steps = Mapping[tuple[FobosMethod, float], float]
"""α₀ chosen for a method and λ."""


def equal_time_runs(draws: list[Draw], chosen: Steps, timings: list[Row], run: Callable[..., list[Any]]) -> list[Row]:
    """A row of each λ of Figure 2, data set and method; none of a λ where no K takes as long.

    `timings` are the rows of the runs as printed; ``run(step, cells, threads)`` gives the results of cells.
    """
    rows: list[Row] = []
    for lam in dict.fromkeys(tracked.lam for tracked in TRACKED):
        times = {method.K: mean(_seconds(timings, lam, method)) for method in METHODS}
        K = matching_period({K: seconds for K, seconds in times.items() if K is not None}, times[None], draws[0].rounds)
        if K is not None:
            eta0 = _best_step(draws, K, lam, chosen, run)
            settings = [(lazy(K), lam, eta0), (CL_FOBOS, lam, chosen[CL_FOBOS, lam])]
            rows += _measured(draws, K, settings, run)
    return rows


def matching_period(times: Mapping[int, float], seconds: float, rounds: int) -> int | None:
    """K of an L-FOBOS that takes so many seconds, by a line through times over the number of its Steps 2, rounds/K.

    None if that number is below 1 or above `rounds`, or if times do not grow with it.

    >>> matching_period({100: 3.0, 500: 1.4, 1000: 1.2}, 1.5, 100_000)
    400
    >>> matching_period({100: 3.0, 500: 1.4, 1000: 1.2}, 0.9, 100_000) is None
    True
    """
    slope, least = np.polyfit([rounds // K for K in times], list(times.values()), 1)
    number = (seconds - least) / slope if slope > 0 else 0.0
    return round(rounds / number) if 1 <= number <= rounds else None


def _seconds(timings: list[Row], lam: float, method: FobosMethod) -> list[float]:
    return [row["seconds"] for row in select(timings, what="as printed", lam=lam, method=method.name)]


def _best_step(draws: list[Draw], K: int, lam: float, chosen: Steps, run: Callable[..., list[Any]]) -> float:
    """The step with the least R̄(T), from the one chosen for the next larger K to that for the next smaller."""
    by_K = {method.K: chosen[method, lam] for method in METHODS if method.K is not None}
    longest = max((k for k in by_K if k <= K), default=None)
    shortest = min((k for k in by_K if k >= K), default=None)
    ends = (STEPS[0] if shortest is None else by_K[shortest], STEPS[-1] if longest is None else by_K[longest])
    steps = [step for step in STEPS if min(ends) <= step <= max(ends)]
    found = run("search at equal time", [runs.search_cell(draw, lazy(K), (lam,), steps) for draw in draws])
    means = runs.mean_objectives([result["objective"][0] for result in found])
    return steps[int(np.argmin(means))]


def _measured(draws: list[Draw], K: int, settings: Sequence[Setting], run: Callable[..., list[Any]]) -> list[Row]:
    """Seconds as printed, R̄(T), rate and shares of nonzero weights around every K-th round."""
    tracked = [TrackedRun(*setting, K) for setting in settings]
    seconds = partial(run, threads=1)("time at equal time", [runs.timing_cell(d, settings, FEATURES) for d in draws])
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
