"""All cells of the experiments, and the rows of their tables."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.progress import ProgressCallback
from sparseoco.papers.cells import Cell, run_cells
from sparseoco.papers.cl_fobos import published, runs
from sparseoco.papers.cl_fobos.published import METHODS, OTHERS, OWN, STEPS, TABLES, WATCHED, Method
from sparseoco.papers.cl_fobos.records import TABLES as SCHEMAS
from sparseoco.papers.cl_fobos.runs import Choice, Draw
from sparseoco.papers.means import mean_and_error
from sparseoco.papers.records import Records, Row

Run = Callable[..., list[Any]]
"""``run(step, cells, threads=…)``: what the cells find."""
ORDER = [(method, lam) for lam in TABLES for method in METHODS]
"""Rows of Tables 1 to 6."""


def gather(draws: list[Draw], others: dict[str, list[Draw]], cells: Path, progress: ProgressCallback) -> Records:
    """Run what has not run before, and give the rows of all tables but the claims.

    `draws` are the data sets; `others`, by a name of `published.OTHERS`, are run with the paper's steps alone.
    """

    def run(step: str, of: Sequence[Cell], threads: int | None = None) -> list[Any]:
        return list(run_cells(cells, step, of, progress, threads))

    records: Records = {name: [] for name in SCHEMAS}
    means = _search(draws, run, records)
    here = [(method, lam, STEPS[int(np.argmin(means[method, lam]))]) for method, lam in ORDER]
    paper = [(method, lam, TABLES[lam][METHODS.index(method)].eta0) for method, lam in ORDER]
    for eta0_of, words, choices, of in (
        ("here", OWN, here, draws),
        ("paper", OWN, paper, draws),
        *(("paper", words, paper, more) for words, more in others.items()),
    ):
        found = run(words, [runs.chosen_cell(draw, choices) for draw in of])
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
            for j, (method, lam, eta0) in enumerate(choices)
            for k, row in enumerate(rows[j] for rows in found)
        ]
    records["results"] = [_result(records["runs"], of, float(min(means[of]))) for of in ORDER]
    _watch(draws, run, records)
    _time(draws, here, run, records)
    return records


def _search(draws: list[Draw], run: Run, records: Records) -> dict[tuple[Method, float], NDArray[np.float64]]:
    """R̄(T) of every step, mean of the data sets, by method and λ."""
    pairs = [(method, draw) for method in METHODS for draw in draws]
    objectives: dict[tuple[Method, float], list[list[float | None]]] = {of: [] for of in ORDER}
    seconds = dict.fromkeys(METHODS, 0.0)
    for (method, _), found in zip(pairs, run("search", [runs.search_cell(d, m) for m, d in pairs]), strict=True):
        seconds[method] += found["seconds"]
        for lam, values in zip(TABLES, found["objective"], strict=True):
            objectives[method, lam].append(values)
    means = {of: runs.mean_objectives(values) for of, values in objectives.items()}
    records["search"] = [
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
    records["timings"] = [
        {"lam": None, "method": method.name, "what": "search", "seconds": None, "seconds_with_objective": value}
        for method, value in seconds.items()
    ]
    return means


def _result(rows: list[Row], of: tuple[Method, float], searched: float) -> Row:
    method, lam = of

    def column(name: str, eta0_of: str = "here", words: str = OWN) -> list[float]:
        keys = {"method": method.name, "lam": lam, "eta0_of": eta0_of, "words": words}
        return [row[name] for row in rows if all(row[key] == value for key, value in keys.items())]

    def at_paper_eta0(name: str, words: str) -> float | None:
        values = column(name, "paper", words)
        return float(np.mean(values)) if values else None

    printed = TABLES[lam][METHODS.index(method)]
    means = {name: float(np.mean(column(name))) for name in ("objective", "loss", "right", "undecided", "nonzeros")}
    return {
        "lam": lam,
        "method": method.name,
        "eta0": column("eta0")[0],
        **means,
        "objective_error": mean_and_error(column("objective"))[1],
        "right_error": mean_and_error(column("right"))[1],
        "objective_at_paper_eta0": at_paper_eta0("objective", OWN),
        "right_at_paper_eta0": at_paper_eta0("right", OWN),
        **{f"{name}_{suffix}": at_paper_eta0(name, suffix) for suffix in OTHERS for name in ("objective", "right")},
        "paper_eta0": printed.eta0,
        "paper_seconds": printed.seconds,
        "paper_objective": printed.objective,
        "paper_right": printed.right,
        "float32_difference": searched - means["objective"],
    }


def _watch(draws: list[Draw], run: Run, records: Records) -> None:
    """Figure 2, on the first data set; Table 7, on all."""
    n, d = draws[0].features.shape
    for of, marks in zip(WATCHED, run("nonzeros", [runs.watched_cell(draws[0], of) for of in WATCHED]), strict=True):
        keys = {"lam": of.lam, "method": of.method.name, "K": of.K, "eta0": of.eta0}
        records["nonzeros"] += [{**keys, "rounds": t, "nonzeros": count, "share": count / d} for t, count in marks]
    pairs = [(of.method.name, draw.repetition) for of in WATCHED[:2] for draw in draws]
    found = run("snapshots", [runs.snapshot_cell(draw, of) for of in WATCHED[:2] for draw in draws])
    for (method, repetition), marks in zip(pairs, found, strict=True):
        for rounds, right, nonzeros in marks:
            rate, number = published.SNAPSHOTS[method][published.SNAPSHOT_ROUNDS.index(rounds)]
            records["snapshots"].append(
                {
                    "method": method,
                    "repetition": repetition,
                    "rounds": rounds,
                    "right": right,
                    "rate": right / n,
                    "nonzeros": nonzeros,
                    "paper_rate": rate,
                    "paper_right": number,
                }
            )


def _time(draws: list[Draw], choices: list[Choice], run: Run, records: Records) -> None:
    """Each choice alone, one after the other."""
    timed = run("time", [runs.timed_cell(draw, choices) for draw in draws], threads=1)
    for j, (method, lam, _) in enumerate(choices):
        alone, more = np.mean([of[j] for of in timed], axis=0).tolist()
        times = {"seconds": alone, "seconds_with_objective": more}
        records["timings"].append({"lam": lam, "method": method.name, "what": "alone", **times})
