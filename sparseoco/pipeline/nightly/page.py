"""The page of nights: who serves and since when, error of candidate and champion, class mix, unknown words."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any, Final, NamedTuple

import plotly.graph_objects as go

from sparseoco.pipeline.nightly.history import Deployed, find_deployed, read_rows
from sparseoco.report.figures import COLOURS, NEUTRAL, SYMBOLS, axes, styles
from sparseoco.report.html import environment, plot, plotly_script
from sparseoco.report.wording import integer, parameters, percent, plural
from sparseoco.storage.commit import commit_bytes
from sparseoco.storage.locations import Location

Row = dict[str, Any]

PAGE: Final = "nightly.html"
CLASSES_DRAWN: Final = 12
CANDIDATE, CHAMPION = COLOURS[0], COLOURS[1]


class Mix(NamedTuple):
    """Documents of each class, night by night, classes in the order of the store."""

    nights: list[int]
    documents: dict[str, list[int]]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "Mix":
        """From the rows of history-classes.parquet."""
        nights = sorted({row["increment"] for row in rows})
        documents: dict[str, list[int]] = {row["class"]: [0] * len(nights) for row in rows}
        for row in rows:
            documents[row["class"]][nights.index(row["increment"])] = row["documents"]
        return cls(nights, documents)

    def shares(self, place: int) -> list[float]:
        """The share of each class in the night at a place."""
        total = sum(of[place] for of in self.documents.values())
        return [of[place] / total if total else 0.0 for of in self.documents.values()]

    def moved(self, place: int) -> float | None:
        """How far the mix of a night is from that of all nights before it: half of Σ |share − share before|."""
        before = [sum(of[:place]) for of in self.documents.values()]
        now = [of[place] for of in self.documents.values()]
        if not sum(before) or not sum(now):
            return None
        return sum(abs(n / sum(now) - b / sum(before)) for n, b in zip(now, before, strict=True)) / 2


def write_nights_page(run: Location, name: str) -> Location:
    """Write RUN/nightly.html, unless the same is there; gives its path. Reads nothing but the tables of the nights.

    Raises `StorageError` where a file cannot be read or written.
    """
    page = run / PAGE
    tables = ("history", "history-configurations", "history-classes", "history-timings", "history-rollbacks")
    text = render(name, *(read_rows(run, table) for table in tables)).encode()
    if not page.exists() or page.read_bytes() != text:
        commit_bytes(page, text)
    return page


def render(
    name: str,
    history: list[Row],
    configurations: list[Row],
    classes: list[Row],
    timings: list[Row],
    choices: list[Row],
) -> str:
    """The page as text: of the nights of `history` alone, though a killed run may have left more in other tables."""
    served = find_deployed(history, choices)
    mix = Mix.of([row for row in classes if row["increment"] <= len(history)])
    ended = {row["increment"]: row for row in timings}
    moved = dict(zip(mix.nights, map(mix.moved, range(len(mix.nights))), strict=True))
    last = [row | {"label": labelled(row)} for row in configurations if row["increment"] == history[-1]["increment"]]
    nights = [
        row | {"time": ended.get(row["increment"]), "moved": moved.get(row["increment"]), "label": labelled(row)}
        for row in reversed(history)
    ]
    plots = {"errors": plot("errors", "Error on every night, in % of documents", errors_figure(history))}
    if mix.documents:
        plots["mix"] = plot("mix", "Classes, in % of a night's documents", mix_figure(mix))
    if any(row["unknown_share"] is not None for row in history):
        plots["unknown"] = plot("unknown", "Unknown words, in % of all", unknown_figure(history))
    context = {
        "name": name,
        "nights": nights,
        "last": nights[0] if nights else None,
        "served": served,
        "served_label": labelled(served.row) if served else "",
        "since": _since(served, ended),
        "choices": list(reversed(choices)),
        "documents": sum(row["documents"] for row in history),
        "configurations": sorted(last, key=_standing),
        "style": styles(row["algorithm"] for row in last),
        "plots": plots,
        "plotly": plotly_script(),
    }
    return environment("sparseoco.pipeline.nightly").get_template("nights.html.j2").render(context)


def night_line(row: Row) -> str:
    """A night in a line of plain text."""
    told = f"night {row['increment']}: {plural(row['documents'], 'document')}"
    if row["new_terms"] is not None:
        told += f", {plural(row['new_terms'], 'new term')}"
    if row["algorithm"] is not None:
        told += f"; candidate {row['algorithm']} ({labelled(row)})"
    return f"{told}; {'promoted' if row['promoted'] else 'not promoted'}: {row['reason']}"


def serving_line(served: Deployed | None) -> str:
    """Which model serves, in a line of plain text."""
    if served is None:
        return "no model serves yet"
    if served.rollback is None:
        return f"the model of night {served.increment} serves"
    chosen = served.rollback
    return (
        f"the model of night {served.increment} serves, chosen by hand after night {chosen['after']} "
        f"({chosen['time']:%Y-%m-%d %H:%M} UTC)"
    )


def labelled(row: Row) -> str:
    """The parameters of a row on one line; none where it has none."""
    return parameters(json.loads(row["parameters"])) if row["parameters"] is not None else ""


def errors_figure(history: list[Row]) -> go.Figure:
    """Error of the candidate (before learning) and of the model that served, on the same documents."""
    figure = go.Figure()
    for name, key, colour, dash in (
        ("candidate, before it learned them", "error", CANDIDATE, "solid"),
        ("the model that served", "deployed_error", CHAMPION, "dash"),
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
        marker={"symbol": "star", "size": 13, "color": CANDIDATE, "line": {"color": NEUTRAL, "width": 1}},
        hoverinfo="skip",
    )
    axes(figure, "night", "mistakes, % of the night's documents")
    _whole_nights(figure, history)
    return figure


def mix_figure(mix: Mix) -> go.Figure:
    """The share of each class, on nights that brought documents; of many classes the largest, the others together."""
    figure = go.Figure()
    places = [place for place in range(len(mix.nights)) if any(of[place] for of in mix.documents.values())]
    nights = [mix.nights[place] for place in places]
    largest = sorted(mix.documents, key=lambda name: -sum(mix.documents[name]))[:CLASSES_DRAWN]
    shares: dict[str, list[float]] = {name: [] for name in largest}
    if len(mix.documents) > len(largest):
        shares["all others"] = []
    for place in places:
        of = dict(zip(mix.documents, mix.shares(place), strict=True))
        for name in largest:
            shares[name].append(of.pop(name))
        if "all others" in shares:
            shares["all others"].append(sum(of.values()))
    for k, (name, values) in enumerate(shares.items()):
        figure.add_scatter(
            x=nights,
            y=[100 * value for value in values],
            name=escape(name),
            mode="lines+markers",
            marker={"color": COLOURS[k % len(COLOURS)], "symbol": SYMBOLS[k % len(SYMBOLS)], "size": 7},
            line={"color": COLOURS[k % len(COLOURS)], "width": 2, "dash": "solid" if k < len(COLOURS) else "dot"},
            hovertext=[
                f"<b>{escape(name)}</b><br>night {night}: {percent(value)}"
                for night, value in zip(nights, values, strict=True)
            ],
            hoverinfo="text",
        )
    axes(figure, "night", "% of the night's documents")
    figure.update_yaxes(rangemode="tozero")
    _whole_nights(figure, [{"increment": night} for night in mix.nights])
    return figure


def unknown_figure(history: list[Row]) -> go.Figure:
    """The share of words that are no feature, and the features that were added."""
    figure = go.Figure()
    rows = [row for row in history if row["unknown_share"] is not None]
    figure.add_scatter(
        x=[row["increment"] for row in rows],
        y=[100 * row["unknown_share"] for row in rows],
        name="words that are no feature",
        mode="lines+markers",
        marker={"color": COLOURS[2], "size": 7},
        line={"color": COLOURS[2], "width": 2},
        hovertext=[
            f"night {row['increment']}: {percent(row['unknown_share'])} of its words are no feature,"
            f"<br>{integer(row['new_terms'])} features were added"
            for row in rows
        ],
        hoverinfo="text",
    )
    axes(figure, "night", "% of the night's words")
    figure.update_yaxes(rangemode="tozero")
    _whole_nights(figure, rows)
    return figure


def _whole_nights(figure: go.Figure, rows: Sequence[Row]) -> None:
    if rows:
        first, last = rows[0]["increment"], rows[-1]["increment"]
        step = max(1, -(-(last - first) // 20))
        figure.update_xaxes(tick0=first, dtick=step, range=[first - 0.4, last + 0.4])


def _hover(row: Row, name: str, key: str) -> str:
    told = f"night {row['increment']}, {name}: {percent(row[key])}"
    if key == "error":
        told += f"<br><b>{escape(row['algorithm'])}</b> {escape(labelled(row))}"
    return f"{told}<br>{escape(row['reason'])}"


def _since(served: Deployed | None, ended: Mapping[int, Row]) -> datetime | None:
    """When the model that serves began to."""
    if served is None:
        return None
    since: datetime | None = (ended.get(served.increment) or {}).get("ended")
    return since if served.rollback is None else served.rollback["time"]


def _standing(row: Row) -> tuple[bool, float, int]:
    error = row["progressive_error"]
    return row["status"] != "ok" or error is None, error if error is not None else 1.0, row["configuration"]
