"""The tables of the experiments → one HTML file that needs nothing else."""

from typing import Any, NamedTuple

from sparseoco.papers.cl_fobos.claims import weigh_time, word_of
from sparseoco.papers.cl_fobos.figures import colour_of, nonzeros_figure, snapshots_figure, steps_figure, trade_figure
from sparseoco.papers.cl_fobos.published import EXAMPLES, OTHERS, SNAPSHOTS, STEPS, TABLES, WATCHED
from sparseoco.papers.page import context_of
from sparseoco.papers.records import Records, Row
from sparseoco.report.html import Plot, environment, plot, plotly_script
from sparseoco.report.wording import amount, duration, integer


class Section(NamedTuple):
    """A λ on the page: its table, R̄(T) against time and over the steps."""

    number: int
    title: str
    rows: list[Row]
    trade: Plot
    steps: Plot


def render(records: Records, inputs: dict[str, Any]) -> str:
    """The page as text."""
    sections = [_section(records, number, lam) for number, lam in enumerate(TABLES, start=1)]
    nonzeros = []
    for lazy, _ in (WATCHED[:2], WATCHED[2:]):
        title = f"Share of weights that are not 0, {word_of(lazy.lam)}, K = {lazy.K}"
        rows = [row for row in records["nonzeros"] if row["lam"] == lazy.lam]
        nonzeros.append(plot(f"nonzeros-{lazy.K}", title, nonzeros_figure(rows)))
    title = "Right estimations of all examples by solutions on the way"
    snapshots = plot("snapshots", title, snapshots_figure(records["snapshots"], inputs["examples"]))
    context = {
        "inputs": inputs,
        **context_of([*records["claims"], *weigh_time(records)]),
        "facts": _facts(records, inputs),
        "sections": sections,
        "nonzeros": nonzeros,
        "snapshots": snapshots,
        "snapshot_rows": _snapshot_rows(records, inputs["examples"]),
        "misprints": _misprints(),
        "largest_difference": max(abs(row["float32_difference"]) for row in records["results"]),
        "plots": [p for s in sections for p in (s.trade, s.steps)] + [*nonzeros, snapshots],
        "colour_of": colour_of,
        "watched": WATCHED,
        "word_of": word_of,
        "differences": _differences(records) if inputs["all_words"] else [],
        "others": OTHERS if inputs["all_words"] else {},
        "plotly": plotly_script(),
    }
    return environment("sparseoco.papers").get_template("cl_fobos.html.j2").render(context)


def _section(records: Records, number: int, lam: float) -> Section:
    alone = {row["method"]: row for row in records["timings"] if row["what"] == "alone" and row["lam"] == lam}
    rows = [
        row | {key: alone[row["method"]][key] for key in ("seconds", "seconds_with_objective")}
        for row in records["results"]
        if row["lam"] == lam
    ]
    search = [row for row in records["search"] if row["lam"] == lam]
    seconds = {row["method"]: row["seconds"] for row in rows}
    return Section(
        number,
        word_of(lam),
        rows,
        plot(f"trade-{number}", f"R̄(T) against run time, {word_of(lam)}", trade_figure(rows, seconds)),
        plot(f"steps-{number}", f"R̄(T) of every step tried, {word_of(lam)}", steps_figure(search)),
    )


def _snapshot_rows(records: Records, examples: int) -> list[Row]:
    """A row a method and solution: mean of the repetitions beside the paper's."""
    found = []
    for method in SNAPSHOTS:
        for rounds in sorted({row["rounds"] for row in records["snapshots"]}):
            rows = [row for row in records["snapshots"] if (row["method"], row["rounds"]) == (method, rounds)]
            right = sum(row["right"] for row in rows) / len(rows)
            means = {"right": right, "rate": right / examples, "nonzeros": sum(r["nonzeros"] for r in rows) / len(rows)}
            found.append(rows[0] | means | {"first": rows[0]["right"]})
    return found


def _misprints() -> list[str]:
    """Rates and numbers of Table 7 that are not of each other."""
    return [
        f"{100 * rate:.1f} % and {integer(number)} of {integer(EXAMPLES)}, which is {100 * number / EXAMPLES:.1f} %"
        for numbers in SNAPSHOTS.values()
        for rate, number in numbers
        if abs(rate - number / EXAMPLES) > 0.001
    ]


def _differences(records: Records) -> list[tuple[str, float, float]]:
    """The largest difference of R̄(T) from the printed with the paper's steps: words, where λ ≥ 0.0005, and below."""
    found = []
    columns = {"objective_at_paper_eta0": "the most frequent words"}
    for key, words in (columns | {f"objective_{name}": words for name, words in OTHERS.items()}).items():
        gaps = [(row["lam"], abs(row[key] - row["paper_objective"])) for row in records["results"]]
        found.append((words, max(g for lam, g in gaps if lam >= 5e-4), max(g for lam, g in gaps if lam < 5e-4)))
    return found


def _facts(records: Records, inputs: dict[str, Any]) -> dict[str, str]:
    search = {row["method"]: row["seconds_with_objective"] for row in records["timings"] if row["what"] == "search"}
    runs = len(search) * len(TABLES) * len(STEPS) * inputs["repetitions"]
    total = sum(search.values())
    each = total / (runs * inputs["rounds"] * inputs["nonzeros_an_example"])
    return {
        "data sets drawn": f"{integer(inputs['repetitions'])}, of {integer(inputs['rounds'])} examples each",
        "runs of the search": integer(runs),
        "processor's time they took": ", ".join([duration(total), f"{amount(1e9 * each)} ns a nonzero and run"]),
        **{f"of it {name}": duration(seconds) for name, seconds in search.items()},
    }
