"""All runs of the experiments, and the rows of their tables."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.progress import ProgressCallback
from sparseoco.papers.cells import Cell, run_cells
from sparseoco.papers.cl_fobos import published, runs
from sparseoco.papers.cl_fobos.equal_time import equal_time_runs, ladder_timings
from sparseoco.papers.cl_fobos.published import (
    CL_FOBOS,
    FEATURES,
    METHODS,
    OTHERS,
    OWN,
    PRINTED,
    SEARCHED,
    STEPS,
    TRACKED,
    FobosMethod,
)
from sparseoco.papers.cl_fobos.runs import Draw, Setting
from sparseoco.papers.statistics import mean_and_error
from sparseoco.papers.tables import Records, Row, select

ORDER = [(method, lam) for lam in PRINTED for method in METHODS]
"""The rows of Tables 1 to 6."""

_Run = Callable[..., list[Any]]
"""``run(step, cells)``: the results of the cells."""


def run_experiments(
    draws: list[Draw], others: dict[str, list[Draw]], folder: Path, progress: ProgressCallback
) -> Records:
    """The rows of all tables but the claims.

    `draws` are the data sets; `others`, by a name of `published.OTHERS`, are run with the paper's steps only.
    """

    def run(step: str, cells: list[Cell], threads: int | None = None) -> list[Any]:
        return run_cells(folder, step, cells, progress, threads)

    records, means = _search(draws[:SEARCHED], run)
    here = [(method, lam, STEPS[int(np.argmin(means[method, lam]))]) for method, lam in ORDER]
    paper = [(method, lam, PRINTED[lam][METHODS.index(method)].eta0) for method, lam in ORDER]
    records["runs"] = []
    for eta0_of, words, settings, data_sets in (
        ("here", OWN, here, draws),
        ("paper", OWN, paper, draws),
        *(("paper", words, paper, other) for words, other in others.items()),
    ):
        results = run(words, [runs.result_cell(draw, settings) for draw in data_sets])
        records["runs"] += [
            {
                "lam": lam,
                "method": method.name,
                "eta0": eta0,
                "eta0_of": eta0_of,
                "words": words,
                "repetition": k,
                **row,
            }
            for j, (method, lam, eta0) in enumerate(settings)
            for k, row in enumerate(rows[j] for rows in results)
        ]
    records["results"] = [_result(records["runs"], *key, float(min(means[key]))) for key in ORDER]
    records["nonzeros"] = _nonzeros(draws, run)
    records["snapshots"] = _snapshots(draws, run)
    records["means"] = _means(draws, here, run)
    records["timings"] += _timings(draws, here, partial(run, threads=1))
    chosen = {(method, lam): eta0 for method, lam, eta0 in here}
    records["timings"] += ladder_timings(draws, chosen, run)
    records["equal_time"] = equal_time_runs(draws, chosen, records["timings"], run)
    return records


def _search(draws: list[Draw], run: _Run) -> tuple[Records, dict[tuple[FobosMethod, float], NDArray[np.float64]]]:
    """R̄(T) of every step, mean of the data sets: as rows, and by method and λ."""
    pairs = [(method, draw) for method in METHODS for draw in draws]
    objectives: dict[tuple[FobosMethod, float], list[list[float | None]]] = {key: [] for key in ORDER}
    seconds = dict.fromkeys(METHODS, 0.0)
    results = run("search", [runs.search_cell(draw, method) for method, draw in pairs])
    for (method, _), result in zip(pairs, results, strict=True):
        seconds[method] += result["seconds"]
        for lam, values in zip(PRINTED, result["objective"], strict=True):
            objectives[method, lam].append(values)
    means = {key: runs.mean_objectives(values) for key, values in objectives.items()}
    search = [
        {
            "lam": lam,
            "method": method.name,
            "eta0": step,
            "objective": float(value) if np.isfinite(value) else None,
            "chosen": k == np.argmin(means[method, lam]),
        }
        for method, lam in ORDER
        for k, (step, value) in enumerate(zip(STEPS, means[method, lam], strict=True))
    ]
    timings = [
        {
            "lam": None,
            "method": method.name,
            "eta0": None,
            "what": "search",
            "repetition": None,
            "seconds": None,
            "seconds_with_objective": value,
        }
        for method, value in seconds.items()
    ]
    return {"search": search, "timings": timings}, means


def _result(rows: list[Row], method: FobosMethod, lam: float, searched: float) -> Row:
    own = select(rows, method=method.name, lam=lam)
    here = select(own, eta0_of="here", words=OWN)

    def column(name: str) -> list[float]:
        return [row[name] for row in here]

    def at_paper_eta0(name: str, words: str) -> float | None:
        values = [row[name] for row in select(own, eta0_of="paper", words=words)]
        return float(np.mean(values)) if values else None

    means = {name: float(np.mean(column(name))) for name in ("objective", "loss", "right", "undecided", "nonzeros")}
    return {
        "lam": lam,
        "method": method.name,
        "eta0": here[0]["eta0"],
        **means,
        **{f"{name}_error": mean_and_error(column(name))[1] for name in ("objective", "right")},
        **{f"{name}_at_paper_eta0": at_paper_eta0(name, OWN) for name in ("objective", "right")},
        **{f"{name}_{words}": at_paper_eta0(name, words) for words in OTHERS for name in ("objective", "right")},
        **{f"paper_{name}": value for name, value in PRINTED[lam][METHODS.index(method)]._asdict().items()},
        "float32_difference": searched - float(np.mean(column("objective")[:SEARCHED])),
    }


def _means(draws: list[Draw], settings: list[Setting], run: _Run) -> list[Row]:
    """Theorem 2: CL-FOBOS' objectives, and the bound of one λ and data set."""
    own = [setting for setting in settings if setting[0] == CL_FOBOS]
    (bounded,) = (setting for setting in own if setting[1] == TRACKED[0].lam)
    (bound,) = run("bound", [runs.bound_cell(draws[0], bounded)])
    return [
        {
            "lam": setting[1],
            "eta0": setting[2],
            "repetition": draw.repetition,
            "of_mean": of_mean,
            "of_last": of_last,
            "bound": bound if setting == bounded and draw.repetition == draws[0].repetition else None,
        }
        for draw, results in zip(draws, run("means", [runs.means_cell(draw, own) for draw in draws]), strict=True)
        for setting, (of_mean, of_last) in zip(own, results, strict=True)
    ]


def _nonzeros(draws: list[Draw], run: _Run) -> list[Row]:
    """Figure 2."""
    pairs = [(tracked, draw) for tracked in TRACKED for draw in draws]
    results = run("nonzeros", [runs.nonzeros_cell(draw, tracked) for tracked, draw in pairs])
    return [
        {
            "lam": tracked.lam,
            "method": tracked.method.name,
            "K": tracked.K,
            "eta0": tracked.eta0,
            "repetition": draw.repetition,
            "rounds": t,
            "nonzeros": count,
            "share": count / draw.features.shape[1],
        }
        for (tracked, draw), marks in zip(pairs, results, strict=True)
        for t, count in marks
    ]


def _snapshots(draws: list[Draw], run: _Run) -> list[Row]:
    """Table 7."""
    pairs = [(tracked, draw) for tracked in TRACKED[:2] for draw in draws]
    results = run("snapshots", [runs.snapshot_cell(draw, tracked) for tracked, draw in pairs])
    rows = []
    for (tracked, draw), marks in zip(pairs, results, strict=True):
        for rounds, right, nonzeros in marks:
            rate, number = published.SNAPSHOTS[tracked.method.name][published.SNAPSHOT_ROUNDS.index(rounds)]
            rows.append(
                {
                    "method": tracked.method.name,
                    "repetition": draw.repetition,
                    "rounds": rounds,
                    "right": right,
                    "rate": right / len(draw.labels),
                    "nonzeros": nonzeros,
                    "paper_rate": rate,
                    "paper_right": number,
                }
            )
    return rows


def _timings(draws: list[Draw], settings: list[Setting], run: _Run) -> list[Row]:
    """Each setting alone, one after the other: the learners, and the algorithms as printed with the paper's n.

    Those of Figure 2 are timed as printed as well, and the learners with R̄(T) on the first data set.
    """
    figure = [(tracked.method, tracked.lam, tracked.eta0) for tracked in TRACKED]
    lazy = run("time", [runs.lazy_timing_cell(draw, settings, objective=draw is draws[0]) for draw in draws])
    printed = run("time as printed", [runs.timing_cell(draw, settings + figure, FEATURES) for draw in draws])
    rows = []
    for what, timed, repetitions in (
        ("lazy", settings, lazy),
        ("as printed", settings, printed),
        ("figure 2", figure, [seconds[len(settings) :] for seconds in printed]),
    ):
        for draw, results in zip(draws, repetitions, strict=True):
            for (method, lam, eta0), result in zip(timed, results[: len(timed)], strict=True):
                alone, *with_objective = result if what == "lazy" else (result,)
                times = {"seconds": alone, "seconds_with_objective": next(iter(with_objective), None)}
                setting = {"lam": lam, "method": method.name, "eta0": eta0}
                rows.append(setting | {"what": what, "repetition": draw.repetition} | times)
    return rows
