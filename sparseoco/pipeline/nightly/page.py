"""The page of nightly runs: the deployed model, errors of candidates and deployed models, class mix, unknown words."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Final, NamedTuple

import plotly.graph_objects as go

from sparseoco.pipeline.nightly.history import Deployed, find_deployed, read_history
from sparseoco.report.figures import COLOURS, NEUTRAL, SYMBOLS, axes, styles
from sparseoco.report.html import environment, plot, plotly_script
from sparseoco.report.wording import integer, parameters, percent, plural
from sparseoco.storage.commit import commit_bytes
from sparseoco.storage.locations import Location
from sparseoco.storage.metrics import Row

PAGE: Final = "nightly.html"
MAX_CLASSES: Final = 12


class ClassMix(NamedTuple):
    """Documents of each class by increment, classes in the order of the store."""

    increments: list[int]
    documents: dict[str, list[int]]

    @classmethod
    def from_rows(cls, rows: Sequence[Row]) -> "ClassMix":
        """From the rows of history-classes.parquet."""
        increments = sorted({row["increment"] for row in rows})
        documents: dict[str, list[int]] = {row["class"]: [0] * len(increments) for row in rows}
        for row in rows:
            documents[row["class"]][increments.index(row["increment"])] = row["documents"]
        return cls(increments, documents)

    def shares(self, index: int) -> list[float]:
        """The share of each class in the increment at an index."""
        total = sum(counts[index] for counts in self.documents.values())
        return [counts[index] / total if total else 0.0 for counts in self.documents.values()]

    def shift(self, index: int) -> float | None:
        """The total variation distance between the class mix of an increment and of all before, ½ Σ |p − q|."""
        before = [sum(counts[:index]) for counts in self.documents.values()]
        now = [counts[index] for counts in self.documents.values()]
        if not sum(before) or not sum(now):
            return None
        return sum(abs(n / sum(now) - b / sum(before)) for n, b in zip(now, before, strict=True)) / 2


def write_nightly_page(run: Location, name: str) -> Location:
    """Write RUN/nightly.html from the history's tables, unless it is up to date; returns its path.

    Raises `StorageError` if a file cannot be read or written.
    """
    page = run / PAGE
    tables = ("history", "history-configurations", "history-classes", "history-timings", "history-rollbacks")
    text = render_nightly(name, *(read_history(run, table) for table in tables)).encode()
    if not page.exists() or page.read_bytes() != text:
        commit_bytes(page, text)
    return page


def render_nightly(
    name: str,
    history: list[Row],
    configurations: list[Row],
    classes: list[Row],
    timings: list[Row],
    rollbacks: list[Row],
) -> str:
    """The HTML of the page; rows of other tables beyond `history`, left by a killed run, are ignored."""
    deployed = find_deployed(history, rollbacks)
    mix = ClassMix.from_rows([row for row in classes if row["increment"] <= len(history)])
    times = {row["increment"]: row for row in timings}
    shifts = dict(zip(mix.increments, map(mix.shift, range(len(mix.increments))), strict=True))
    last = [
        row | {"label": parameters_label(row)} for row in configurations if row["increment"] == history[-1]["increment"]
    ]
    increments = [
        row
        | {"time": times.get(row["increment"]), "shift": shifts.get(row["increment"]), "label": parameters_label(row)}
        for row in reversed(history)
    ]
    plots = {"errors": plot("errors", "Error rate of every increment, in %", errors_figure(history))}
    if mix.documents:
        plots["mix"] = plot("mix", "Classes, in % of an increment's documents", mix_figure(mix))
    if any(row["unknown_share"] is not None for row in history):
        plots["unknown"] = plot("unknown", "Unknown words, in % of all", unknown_figure(history))
    context = {
        "name": name,
        "increments": increments,
        "last": increments[0] if increments else None,
        "deployed": deployed,
        "deployed_label": parameters_label(deployed.row) if deployed else "",
        "since": _since(deployed, times),
        "rollbacks": list(reversed(rollbacks)),
        "documents": sum(row["documents"] for row in history),
        "configurations": sorted(last, key=_rank),
        "style": styles(row["algorithm"] for row in last),
        "plots": plots,
        "plotly": plotly_script(),
    }
    return environment("sparseoco.pipeline.nightly").get_template("nightly.html.j2").render(context)


def increment_line(row: Row) -> str:
    """An increment in a line of plain text."""
    line = f"increment {row['increment']}: {plural(row['documents'], 'document')}"
    if row["new_terms"] is not None:
        line += f", {plural(row['new_terms'], 'new term')}"
    if row["algorithm"] is not None:
        line += f"; candidate {row['algorithm']} ({parameters_label(row)})"
    return f"{line}; {'promoted' if row['promoted'] else 'not promoted'}: {row['reason']}"


def deployed_line(deployed: Deployed | None) -> str:
    """The deployed model in a line of plain text."""
    if deployed is None:
        return "no model is deployed yet"
    line = f"the model of increment {deployed.increment} is deployed"
    if deployed.rollback is None:
        return line
    rollback = deployed.rollback
    return f"{line}, by a rollback after increment {rollback['after']} ({rollback['time']:%Y-%m-%d %H:%M} UTC)"


def parameters_label(row: Row) -> str:
    """The parameters of a row on one line, if it has any."""
    return parameters(json.loads(row["parameters"])) if row["parameters"] is not None else ""


def errors_figure(history: list[Row]) -> go.Figure:
    """Progressive error of the candidate and error of the deployed model, on the same documents."""
    figure = go.Figure()
    for name, key, colour, dash in (
        ("candidate (progressive)", "error", COLOURS[0], "solid"),
        ("deployed model", "deployed_error", COLOURS[1], "dash"),
    ):
        rows = [row for row in history if row[key] is not None]
        figure.add_scatter(
            x=[row["increment"] for row in rows],
            y=[100 * row[key] for row in rows],
            name=name,
            mode="lines+markers",
            marker={"color": colour, "size": 6},
            line={"color": colour, "width": 2, "dash": dash},
            hovertext=[_hover(row, name, key) for row in rows],
            hoverinfo="text",
        )
    promoted = [row for row in history if row["promoted"]]
    figure.add_scatter(
        x=[row["increment"] for row in promoted],
        y=[100 * row["error"] for row in promoted],
        name="promoted",
        mode="markers",
        marker={"symbol": "star", "size": 13, "color": COLOURS[0], "line": {"color": NEUTRAL, "width": 1}},
        hoverinfo="skip",
    )
    axes(figure, "increment", "error rate, %")
    _integer_ticks(figure, history)
    return figure


def mix_figure(mix: ClassMix) -> go.Figure:
    """The share of each class in increments with documents; of many classes the largest, the others together."""
    figure = go.Figure()
    indices = [k for k in range(len(mix.increments)) if any(counts[k] for counts in mix.documents.values())]
    increments = [mix.increments[k] for k in indices]
    largest = sorted(mix.documents, key=lambda name: -sum(mix.documents[name]))[:MAX_CLASSES]
    shares: dict[str, list[float]] = {name: [] for name in largest}
    if len(mix.documents) > len(largest):
        shares["all others"] = []
    for index in indices:
        by_class = dict(zip(mix.documents, mix.shares(index), strict=True))
        for name in largest:
            shares[name].append(by_class.pop(name))
        if "all others" in shares:
            shares["all others"].append(sum(by_class.values()))
    for k, (name, values) in enumerate(shares.items()):
        figure.add_scatter(
            x=increments,
            y=[100 * value for value in values],
            name=escape(name),
            mode="lines+markers",
            marker={"color": COLOURS[k % len(COLOURS)], "symbol": SYMBOLS[k % len(SYMBOLS)], "size": 7},
            line={"color": COLOURS[k % len(COLOURS)], "width": 2, "dash": "solid" if k < len(COLOURS) else "dot"},
            hovertext=[
                f"<b>{escape(name)}</b><br>increment {increment}: {percent(value)}"
                for increment, value in zip(increments, values, strict=True)
            ],
            hoverinfo="text",
        )
    axes(figure, "increment", "% of the increment's documents")
    figure.update_yaxes(rangemode="tozero")
    _integer_ticks(figure, [{"increment": increment} for increment in mix.increments])
    return figure


def unknown_figure(history: list[Row]) -> go.Figure:
    """The share of words outside the vocabulary, and the features that were added."""
    figure = go.Figure()
    rows = [row for row in history if row["unknown_share"] is not None]
    figure.add_scatter(
        x=[row["increment"] for row in rows],
        y=[100 * row["unknown_share"] for row in rows],
        name="words outside the vocabulary",
        mode="lines+markers",
        marker={"color": COLOURS[2], "size": 7},
        line={"color": COLOURS[2], "width": 2},
        hovertext=[
            f"increment {row['increment']}: {percent(row['unknown_share'])} of its words are outside the vocabulary,"
            f"<br>{integer(row['new_terms'])} features were added"
            for row in rows
        ],
        hoverinfo="text",
    )
    axes(figure, "increment", "% of the increment's words")
    figure.update_yaxes(rangemode="tozero")
    _integer_ticks(figure, rows)
    return figure


def _integer_ticks(figure: go.Figure, rows: Sequence[Row]) -> None:
    if rows:
        first, last = rows[0]["increment"], rows[-1]["increment"]
        step = max(1, -(-(last - first) // 20))
        figure.update_xaxes(tick0=first, dtick=step, range=[first - 0.4, last + 0.4])


def _hover(row: Row, name: str, key: str) -> str:
    text = f"increment {row['increment']}, {name}: {percent(row[key])}"
    if key == "error":
        text += f"<br><b>{escape(row['algorithm'])}</b> {escape(parameters_label(row))}"
    return f"{text}<br>{escape(row['reason'])}"


def _since(deployed: Deployed | None, times: Mapping[int, Row]) -> datetime | None:
    """When the deployed model was deployed."""
    if deployed is None:
        return None
    since: datetime | None = (times.get(deployed.increment) or {}).get("ended")
    return since if deployed.rollback is None else deployed.rollback["time"]


def _rank(row: Row) -> tuple[bool, float, int]:
    error = row["progressive_error"]
    return row["status"] != "ok" or error is None, error if error is not None else 1.0, row["configuration"]
