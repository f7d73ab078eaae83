"""The page of the experiments."""

from typing import Any

from sparseoco.core.formatting import amount, duration, integer
from sparseoco.papers.cl_fobos.claims import cl_fobos_timing_claims, lambda_label
from sparseoco.papers.cl_fobos.equal_time import LAMBDAS, mean_ladder
from sparseoco.papers.cl_fobos.figures import (
    method_colour,
    nonzeros_figure,
    snapshots_figure,
    steps_figure,
    tradeoff_figure,
)
from sparseoco.papers.cl_fobos.published import (
    CL_FOBOS,
    EXAMPLES,
    OTHERS,
    PRINTED,
    SEARCHED,
    SNAPSHOTS,
    STEPS,
    TRACKED,
)
from sparseoco.papers.page import render
from sparseoco.papers.statistics import mean, mean_and_error
from sparseoco.papers.tables import Records, Row, distinct, select
from sparseoco.report.html import plot


def cl_fobos_page(records: Records, inputs: dict[str, Any]) -> str:
    """The HTML of the page."""
    nonzeros = [
        plot(
            f"nonzeros-{lazy.K}",
            f"Share of nonzero weights, {lambda_label(lazy.lam)}, K = {lazy.K}",
            nonzeros_figure(select(records["nonzeros"], lam=lazy.lam, repetition=0)),
        )
        for lazy in (TRACKED[0], TRACKED[2])
    ]
    figure = snapshots_figure(records["snapshots"], inputs["examples"])
    return render(
        "cl_fobos",
        inputs,
        records,
        _facts(records, inputs),
        timing_claims=cl_fobos_timing_claims(records),
        sections=[_section(records, number, lam) for number, lam in enumerate(PRINTED, start=1)],
        nonzeros=nonzeros,
        ladders=[(lam, mean_ladder(records["timings"], lam)) for lam in LAMBDAS],
        equal_time=_equal_time_rows(records),
        means=_mean_rows(records),
        snapshots=plot("snapshots", "Right predictions of all examples by intermediate solutions", figure),
        snapshot_rows=_snapshot_rows(records, inputs["examples"]),
        misprints=_misprints(),
        largest_difference=max(abs(row["float32_difference"]) for row in records["results"]),
        method_colour=method_colour,
        tracked=TRACKED,
        searched=min(inputs["repetitions"], SEARCHED),
        lambda_label=lambda_label,
        differences=_differences(records) if inputs["all_words"] else [],
        others=OTHERS if inputs["all_words"] else {},
    )


def _section(records: Records, number: int, lam: float) -> dict[str, Any]:
    """A λ: its table, R̄(T) against run time and over the steps."""
    title = lambda_label(lam)
    rows = [row | _seconds(records, lam, row["method"]) for row in select(records["results"], lam=lam)]
    steps = steps_figure(select(records["search"], lam=lam))
    return {
        "number": number,
        "title": title,
        "rows": rows,
        "tradeoff": plot(f"tradeoff-{number}", f"R̄(T) against run time, {title}", tradeoff_figure(rows)),
        "steps": plot(f"steps-{number}", f"R̄(T) of every step tried, {title}", steps),
    }


def _seconds(records: Records, lam: float, method: str) -> dict[str, float]:
    """Run times as printed and of the learner, means of the data sets; of the learner with R̄(T), of the first."""
    printed, lazy = (select(records["timings"], what=what, lam=lam, method=method) for what in ("as printed", "lazy"))
    return {
        "seconds": mean(row["seconds"] for row in printed),
        "lazy_seconds": mean(row["seconds"] for row in lazy),
        "seconds_with_objective": lazy[0]["seconds_with_objective"],
    }


def _equal_time_rows(records: Records) -> list[Row]:
    """A row per λ and method: means of the data sets."""
    rows = []
    for lam in distinct(records["equal_time"], "lam"):
        for name in distinct(select(records["equal_time"], lam=lam), "method"):
            own = select(records["equal_time"], lam=lam, method=name)
            columns = ("seconds", "objective", "right", "before", "after")
            means = {column: mean(row[column] for row in own) for column in columns}
            rows.append(own[0] | means | {"error": mean_and_error([row["seconds"] for row in own])[1]})
    return rows


def _mean_rows(records: Records) -> list[Row]:
    """A row per λ: CL-FOBOS' objectives, means of the data sets, and the bound where it is computed."""
    rows = []
    for lam in distinct(records["means"], "lam"):
        own = select(records["means"], lam=lam)
        (result,) = select(records["results"], lam=lam, method=CL_FOBOS.name)
        means = {column: mean(row[column] for row in own) for column in ("of_mean", "of_last")}
        rows.append(own[0] | means | {"incurred": result["objective"]})
    return rows


def _snapshot_rows(records: Records, examples: int) -> list[Row]:
    """A row per method and solution: mean of the repetitions, and the paper's."""
    means = []
    for method in SNAPSHOTS:
        for rounds in sorted({row["rounds"] for row in records["snapshots"]}):
            rows = select(records["snapshots"], method=method, rounds=rounds)
            right, nonzeros = (mean(row[column] for row in rows) for column in ("right", "nonzeros"))
            own = {"right": right, "rate": right / examples, "nonzeros": nonzeros, "first": rows[0]["right"]}
            means.append(rows[0] | own)
    return means


def _misprints() -> list[str]:
    """Rates and numbers of Table 7 that contradict each other."""
    return [
        f"{100 * rate:.1f} % and {integer(number)} of {integer(EXAMPLES)}, which is {100 * number / EXAMPLES:.1f} %"
        for numbers in SNAPSHOTS.values()
        for rate, number in numbers
        if abs(rate - number / EXAMPLES) > 0.001
    ]


def _differences(records: Records) -> list[tuple[str, float, float]]:
    """The largest difference of R̄(T) from the printed one with the paper's steps: features, for λ ≥ 0.0005, below."""
    differences = []
    columns = {"objective_at_paper_eta0": "the counts"}
    for column, words in (columns | {f"objective_{name}": words for name, words in OTHERS.items()}).items():
        gaps = [(row["lam"], abs(row[column] - row["paper_objective"])) for row in records["results"]]
        differences.append((words, max(g for lam, g in gaps if lam >= 5e-4), max(g for lam, g in gaps if lam < 5e-4)))
    return differences


def _facts(records: Records, inputs: dict[str, Any]) -> dict[str, str]:
    search = {row["method"]: row["seconds_with_objective"] for row in select(records["timings"], what="search")}
    runs = len(search) * len(PRINTED) * len(STEPS) * min(inputs["repetitions"], SEARCHED)
    total = sum(search.values())
    each = total / (runs * inputs["rounds"] * inputs["nonzeros_an_example"])
    return {
        "data sets drawn": f"{integer(inputs['repetitions'])}, of {integer(inputs['rounds'])} examples each",
        "runs of the search": integer(runs),
        "processor time of the search": f"{duration(total)}, {amount(1e9 * each)} ns per nonzero and run",
        **{f"processor time of {name}": duration(seconds) for name, seconds in search.items()},
    }
