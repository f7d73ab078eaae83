"""The page of the experiments."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sparseoco.core.formatting import NONE, duration, integer, percent
from sparseoco.papers.claims import verdicts_by_rule
from sparseoco.papers.page import render
from sparseoco.papers.tables import Records, Row, distinct, select
from sparseoco.papers.truncation.comparison import mean_path
from sparseoco.papers.truncation.features import HELD_OUT, PAIR
from sparseoco.papers.truncation.published import NOT_PRINTED, SAMPLES, UNPRINTED, PrintedTable
from sparseoco.papers.truncation.validation import RULES
from sparseoco.report.charts import (
    COLOURS,
    DASHES,
    MARKERS,
    ZERO,
    Chart,
    Series,
    dashes,
    linear_axis,
    log_axis,
    values_x,
    values_y,
)
from sparseoco.report.html import Plot, plot

_ADDED: Final = "Added: methods that the paper does not have"


class ResultCell(NamedTuple):
    """A method on a data set: ours, the paper's if it prints any, and our error at the paper's sparsity."""

    ours: str
    paper: str
    there: str


class ResultTable(NamedTuple):
    """A table on the page."""

    title: str
    methods: list[str]
    rows: list[tuple[str, list[ResultCell]]]


def truncation_page(
    name: str, rule: str, printed: Sequence[PrintedTable], records: Records, inputs: dict[str, Any]
) -> str:
    """The HTML of the page of a paper, stda or sgft; `rule` is the paper's own for λ."""
    methods = distinct(records["paths"], "method")
    columns = {row["columns"] for row in records["timings"] if row["method"] not in inputs["added"]}
    return render(
        name,
        inputs,
        records,
        _facts(records, inputs),
        rule=rule,
        rules=RULES,
        tables=_tables(printed, records, rule),
        others={own: _tables(printed, records, own) for own in RULES if own != rule},
        verdicts=verdicts_by_rule(records),
        functions=_functions(records["functions"]),
        sections=[_section(records, row, methods) for row in records["sets"]],
        samples=SAMPLES if name == "stda" else {},
        strengths=" or ".join(map(str, sorted(columns))),
    )


def _functions(rows: Sequence[Row]) -> list[Plot]:
    """What the learners' own functions do to one coordinate."""
    axes = {
        "norm": ("Figure 1: the norm of a coordinate's history", "occurrences", "norm"),
        "truncation": ("Figures 2 to 4: a weight truncated", "weight before the truncation", "weight after it"),
    }
    plots = []
    for figure in distinct(rows, "figure"):
        title, x, y = axes[figure]
        own = select(rows, figure=figure)
        series = [
            Series(curve, [row["x"] for row in part], [row["y"] for row in part], COLOURS[k], dash=DASHES[k])
            for k, curve in enumerate(distinct(own, "curve"))
            for part in [select(own, curve=curve)]
        ]
        chart = Chart(linear_axis(x, values_x(series)), linear_axis(y, values_y(series)), series, height=320)
        plots.append(plot(figure, title, chart))
    return plots


def _tables(printed: Sequence[PrintedTable], records: Records, rule: str) -> list[ResultTable]:
    own = select(records["results"], rule=rule)
    unprinted = distinct(select(own, table=""), "method")
    wanted = [(table.name, table.title, table.methods) for table in printed]
    wanted += [("", title, names) for title, names in NOT_PRINTED.items() if set(names) <= set(unprinted)]
    added = tuple(method for method in unprinted if method not in UNPRINTED)
    wanted += [("", _ADDED, added)] if added else []
    tables = []
    for name, title, methods in wanted:
        rows = []
        for data_set in records["sets"]:
            cells = {row["method"]: row for row in select(own, table=name, set=data_set["set"])}
            if set(methods) <= set(cells):
                rows.append((data_set["title"], [_cell(cells[method]) for method in methods]))
        tables.append(ResultTable(title, list(methods), rows))
    return tables


def _cell(row: Row) -> ResultCell:
    ours = _rates(row["error"], row["deviation"], row["sparsity"])
    if row["paper_error"] is None:
        return ResultCell(ours, "", "")
    paper = _rates(row["paper_error"], row["paper_deviation"], row["paper_sparsity"])
    there = NONE if row["error_there"] is None else f"{100 * row['error_there']:.2f}"
    return ResultCell(ours, paper, there)


def _rates(error: float, deviation: float | None, sparsity: float) -> str:
    """Error, its deviation in brackets, sparsity in parentheses, per cent, as in the papers."""
    spread = "" if deviation is None else f" [{100 * deviation:.2f}]"
    return f"{100 * error:.2f}{spread} ({100 * sparsity:.2f})"


def _section(records: Records, data_set: Row, methods: Sequence[str]) -> dict[str, Any]:
    """A data set: error against sparsity; for STDA, Figure 2 and the features that only one method selects."""
    name, title = data_set["set"], data_set["title"]
    chart = path_figure(select(records["paths"], set=name), methods)
    path = plot(f"path-{name}", f"Error against sparsity, {title}", chart)
    frequencies, rows = None, select(records.get("frequencies", []), set=name, fold=HELD_OUT)
    if rows:
        frequencies = plot(
            f"frequencies-{name}", f"Occurrences of the selected features, {title}", frequencies_figure(rows)
        )
    features = select(records.get("features", []), set=name)
    samples = [(method, select(features, method=method)) for method in PAIR] if features else []
    return {"row": data_set, "path": path, "frequencies": frequencies, "samples": samples}


def path_figure(rows: Sequence[Row], methods: Sequence[str]) -> Chart:
    """A line per method through its λ."""
    series = []
    colours = [COLOURS[k % len(COLOURS)] for k in range(len(methods))]
    for k, (method, dash) in enumerate(zip(methods, dashes(len(methods)), strict=True)):
        own = mean_path(select(rows, method=method))
        if not own:
            continue
        series.append(
            Series(
                method,
                [100 * row["sparsity"] for row in own],
                [100 * row["error"] for row in own],
                colours[k],
                dash=dash,
                marker=MARKERS[k % len(MARKERS)],
                size=2.5,
                heading=method,
                labels=[
                    f"λ = {row['lam']:g}\nerror {percent(row['error'])}, zero weights {percent(row['sparsity'])}"
                    for row in own
                ],
            )
        )
    least = min(values_y(series)) / 100
    return Chart(
        linear_axis("zero weights, %", [], low=0.0, high=101.0),
        linear_axis("error, %", [], low=0.0, high=100 * min(4 * least + 0.1, 0.6)),
        series,
    )


def frequencies_figure(rows: Sequence[Row]) -> Chart:
    """Figure 2: occurrences of the selected features, from the rarest."""
    series = []
    for k, method in enumerate(PAIR):
        own = select(rows, method=method)
        series.append(
            Series(
                method + (f", {integer(own[0]['selected'])} features" if own else ""),
                [100 * row["share"] for row in own],
                [max(row["count"], ZERO) for row in own],
                COLOURS[k],
                dash=DASHES[k],
                steps=True,
                heading=method,
                labels=[f"{100 * row['share']:.0f} % of those selected: {row['count']:,} times" for row in own],
            )
        )
    x = linear_axis("selected features, from the rarest, %", values_x(series))
    return Chart(x, log_axis("occurrences (log scale)", values_y(series), counts=True), series)


def _facts(records: Records, inputs: dict[str, Any]) -> dict[str, str]:
    timings = records["timings"]
    runs = sum(row["trainings"] * row["columns"] for row in timings)
    seconds = {row["title"]: sum(own["seconds"] for own in select(timings, set=row["set"])) for row in records["sets"]}
    return {
        "passes": integer(inputs["search"]["epochs"]),
        **({"methods added": ", ".join(inputs["added"])} if inputs["added"] else {}),
        "trainings": f"{integer(sum(row['trainings'] for row in timings))}, of {integer(runs)} configurations",
        "processor time": duration(sum(seconds.values())),
        **{f"processor time of {title}": duration(own) for title, own in seconds.items()},
    }
