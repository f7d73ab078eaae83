"""The tables of the experiments → one HTML file that needs nothing else."""

from collections.abc import Sequence
from html import escape
from typing import Any, Final, NamedTuple

import plotly.graph_objects as go

from sparseoco.papers.page import context_of
from sparseoco.papers.records import Records, Row
from sparseoco.papers.truncation.features import PAIR
from sparseoco.papers.truncation.published import NOT_PRINTED, SAMPLES, Sheet
from sparseoco.papers.truncation.validation import RULES
from sparseoco.report.figures import COLOURS, axes, decades
from sparseoco.report.html import Plot, environment, plot, plotly_script
from sparseoco.report.wording import NONE, duration, integer, percent

PRINCIPAL: Final = {"stda": RULES[1], "sgft": RULES[0]}
"""The rule by which λ is chosen in the tables that claims are weighed by; the other's are shown beside them."""
_DERIVED: Final = "Not printed: the cumulative forms of §4"
_ADDED: Final = "Added: methods that the paper does not have"
_DASHES: Final = ("solid", "dash", "dot")


class Cell(NamedTuple):
    """A method on a set: ours, and the paper's where it prints any."""

    ours: str
    paper: str
    there: str
    """Our error at the paper's sparseness."""


class Shown(NamedTuple):
    """A table on the page."""

    title: str
    methods: list[str]
    rows: list[tuple[str, list[Cell]]]


class SetSection(NamedTuple):
    """A set on the page: error against sparseness; of STDA, the features kept by one alone and Figure 2."""

    row: Row
    path: Plot
    frequencies: Plot | None
    samples: list[tuple[str, list[Row]]]


def render(name: str, sheets: Sequence[Sheet], records: Records, inputs: dict[str, Any]) -> str:
    """The page of a paper as text."""
    methods = list(dict.fromkeys(row["method"] for row in records["paths"]))
    sections = [_section(records, row, methods) for row in records["sets"]]
    rule = PRINCIPAL[name]
    (other,) = (own for own in RULES if own != rule)
    context = {
        "inputs": inputs,
        **context_of(records["claims"]),
        "facts": _facts(records, inputs),
        "rule": rule,
        "other": other,
        "tables": _tables(sheets, records, rule),
        "others": _tables(sheets, records, other),
        "sections": sections,
        "samples": SAMPLES if name == "stda" else {},
        "plots": [p for s in sections for p in (s.path, s.frequencies) if p is not None],
        "strengths": _strengths(records, inputs),
        "plotly": plotly_script(),
    }
    return environment("sparseoco.papers").get_template(f"{name}.html.j2").render(context)


def _tables(sheets: Sequence[Sheet], records: Records, rule: str) -> list[Shown]:
    own = [row for row in records["results"] if row["rule"] == rule]
    found = []
    wanted = [(sheet.name, sheet.title, sheet.methods) for sheet in sheets]
    unprinted = tuple(dict.fromkeys(row["method"] for row in own if not row["table"]))
    derived = tuple(name for name in unprinted if name in NOT_PRINTED)
    added = tuple(name for name in unprinted if name not in NOT_PRINTED)
    wanted += [("", title, names) for title, names in ((_DERIVED, derived), (_ADDED, added)) if names]
    for table, title, methods in wanted:
        rows = []
        for of in records["sets"]:
            cells = {row["method"]: row for row in own if (row["table"], row["set"]) == (table, of["set"])}
            rows.append((of["title"], [_cell(cells[method]) for method in methods]))
        found.append(Shown(title, list(methods), rows))
    return found


def _cell(row: Row) -> Cell:
    ours = _rates(row["error"], row["deviation"], row["sparseness"])
    if row["paper_error"] is None:
        return Cell(ours, "", "")
    paper = _rates(row["paper_error"], row["paper_deviation"], row["paper_sparseness"])
    there = NONE if row["error_there"] is None else f"{100 * row['error_there']:.2f}"
    return Cell(ours, paper, there)


def _rates(error: float, deviation: float | None, sparseness: float) -> str:
    """Error, its deviation in brackets, sparseness in parentheses, per cent, as the papers have them."""
    spread = "" if deviation is None else f" [{100 * deviation:.2f}]"
    return f"{100 * error:.2f}{spread} ({100 * sparseness:.2f})"


def _section(records: Records, of: Row, methods: Sequence[str]) -> SetSection:
    name, title = of["set"], of["title"]
    paths = [row for row in records["paths"] if row["set"] == name]
    path = plot(f"path-{name}", f"Error against sparseness, {title}", path_figure(paths, methods))
    frequencies = None
    rows = [row for row in records.get("frequencies", []) if row["set"] == name]
    if rows:
        frequencies = plot(f"kept-{name}", f"Occurrences of the features kept, {title}", kept_figure(rows))
    features = [row for row in records.get("features", []) if row["set"] == name]
    samples = [(method, [row for row in features if row["method"] == method]) for method in PAIR] if features else []
    return SetSection(of, path, frequencies, samples)


def path_figure(rows: Sequence[Row], methods: Sequence[str]) -> go.Figure:
    """A line a method through its λ."""
    figure = go.Figure()
    for k, method in enumerate(methods):
        own = [row for row in rows if row["method"] == method]
        figure.add_scatter(
            x=[100 * row["sparseness"] for row in own],
            y=[100 * row["error"] for row in own],
            name=escape(method),
            mode="lines+markers",
            marker={"size": 5},
            line={"color": COLOURS[k % len(COLOURS)], "width": 2, "dash": _DASHES[k // len(COLOURS) % len(_DASHES)]},
            hovertext=[
                f"<b>{escape(method)}</b>, λ = {row['lam']:g}<br>"
                f"wrong {percent(row['error'])}, 0 {percent(row['sparseness'])}"
                for row in own
            ],
            hoverinfo="text",
        )
    axes(figure, "weights that are 0, %", "wrong, %")
    least = min(row["error"] for row in rows)
    figure.update_yaxes(range=[0, 100 * min(4 * least + 0.1, 0.6)])
    figure.update_xaxes(range=[0, 101])
    return figure


def kept_figure(rows: Sequence[Row]) -> go.Figure:
    """Figure 2: the features kept by how often they occur, from the rarest on."""
    figure = go.Figure()
    for k, method in enumerate(PAIR):
        own = [row for row in rows if row["method"] == method]
        figure.add_scatter(
            x=[100 * row["share"] for row in own],
            y=[max(row["count"], 0.5) for row in own],
            name=escape(method) + (f", {integer(own[0]['kept'])} features" if own else ""),
            mode="lines",
            line={"color": COLOURS[k], "width": 2, "shape": "hv"},
            hovertemplate="%{x:.0f} % of those kept: %{y:,} times<extra></extra>",
        )
    axes(figure, "features kept, from the rarest on, %", "occurrences (log scale)")
    figure.update_yaxes(type="log", **decades([row["count"] for row in rows]))
    return figure


def _strengths(records: Records, inputs: dict[str, Any]) -> str:
    """How many λ the paper's own methods have."""
    counts = {row["columns"] for row in records["timings"] if row["method"] not in inputs["added"]}
    return " or ".join(map(str, sorted(counts)))


def _facts(records: Records, inputs: dict[str, Any]) -> dict[str, str]:
    trainings = sum(row["trainings"] for row in records["timings"])
    runs = sum(row["trainings"] * row["columns"] for row in records["timings"])
    total = sum(row["seconds"] for row in records["timings"])
    by_set = {
        row["title"]: sum(own["seconds"] for own in records["timings"] if own["set"] == row["set"])
        for row in records["sets"]
    }
    return {
        "passes": integer(inputs["search"]["epochs"]),
        **({"methods added": ", ".join(inputs["added"])} if inputs["added"] else {}),
        "trainings": f"{integer(trainings)}, of {integer(runs)} configurations",
        "processor's time they took": duration(total),
        **{f"of it {title}": duration(seconds) for title, seconds in by_set.items()},
    }
