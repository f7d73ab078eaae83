"""The page, the lines and the summary of nightly runs."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.formatting import NONE, PERCENT, integer, metric_name, parameters, percent, plural
from sparseoco.learners import without_defaults
from sparseoco.pipeline.nightly.history import TABLES, Deployed, HistoryRows, find_deployed, left_out, read_history
from sparseoco.report.charts import (
    COLOURS,
    HALF,
    MARKERS,
    WIDTH,
    Chart,
    Level,
    Series,
    dashes,
    integer_axis,
    linear_axis,
    styles,
    values_y,
)
from sparseoco.report.page import MAX_ROWS, plain
from sparseoco.report.svg import plot, render_page
from sparseoco.storage.commit import commit_bytes
from sparseoco.storage.locations import Location
from sparseoco.storage.tables import Row

# ----------------------------------------------------------------------------------------------------------------------
# The page of nightly runs: the deployed model, errors of candidates and deployed models, class mix, unknown words.


PAGE: Final = "nightly.html"
MAX_CLASSES: Final = 12
SHOWN: Final = 90
"""Increments on the page, the last ones: its size does not grow with their number."""
OUTLIER: Final = 5
OTHERS: Final = "all others"
LISTED: Final = 10
QUARANTINE_FILE: Final = "history-quarantine.parquet"


class ClassMix(NamedTuple):
    """Documents of each class by increment, classes in the order of the store; and in all increments `before` these."""

    increments: list[int]
    names: list[str]
    documents: NDArray[np.int64]
    """(classes, increments)."""
    before: NDArray[np.int64]
    """(classes,)."""

    @classmethod
    def from_rows(cls, rows: Sequence[Row], before: Mapping[str, int] = MappingProxyType({})) -> "ClassMix":
        """From the rows of history-classes.parquet."""
        increments = sorted({row["increment"] for row in rows})
        names = {name: k for k, name in enumerate(dict.fromkeys(row["class"] for row in rows))}
        documents = np.zeros((len(names), len(increments)), np.int64)
        for row in rows:
            documents[names[row["class"]], np.searchsorted(increments, row["increment"])] = row["documents"]
        return cls(increments, list(names), documents, np.array([before.get(name, 0) for name in names], np.int64))

    def shift(self, index: int) -> float | None:
        """The total variation distance between the class mix of an increment and of all before, ½ Σ |p − q|."""
        before, now = self.before + self.documents[:, :index].sum(axis=1), self.documents[:, index]
        if not before.sum() or not now.sum():
            return None
        return float(sum(np.abs(now / now.sum() - before / before.sum()).tolist()) / 2)


def write_nightly_page(run: Location, name: str) -> Location:
    """Write RUN/nightly.html from the history's tables, unless it is up to date; returns its path.

    Raises `StorageError` if a file cannot be read or written.
    """
    page = run / PAGE
    names = [name for name in TABLES if name != "history"]
    tables = ["history", *names, "history-rollbacks", "history-quarantine"]
    text = render_nightly(name, *(read_history(run, table) for table in tables)).encode()
    if not page.exists() or page.read_bytes() != text:
        commit_bytes(page, text)
    return page


def render_nightly(
    name: str,
    history: HistoryRows,
    configurations: HistoryRows,
    classes: HistoryRows,
    timings: HistoryRows,
    rollbacks: HistoryRows,
    quarantine: HistoryRows,
) -> str:
    """The HTML of the page, with the last `SHOWN` increments and the totals of all.

    Rows of other tables beyond `history`, left by a killed run, are ignored.
    """
    deployed = find_deployed(history, rollbacks)
    total, first = len(history), max(1, len(history) + 1 - SHOWN)
    documents = sum(history.table["documents"].to_pylist())
    known = classes.between(first, total)[:]
    mix = ClassMix.from_rows(known, _class_totals(classes.between(1, first - 1)))
    times = {row["increment"]: row for row in timings.between(first, total)[:]}
    since = _since(deployed, timings)
    shown = history[first - 1 :]
    shifts = dict(zip(mix.increments, map(mix.shift, range(len(mix.increments))), strict=True))
    last = [row | {"label": parameters_label(row)} for row in configurations.between(total, total)[:]]
    increments = [
        row
        | {
            "time": times.get(row["increment"]),
            "shift": shifts.get(row["increment"]),
            "label": parameters_label(row),
            "interval": difference_text(row),
            "difference_value": NONE if row["difference"] is None else _signed(row, row["difference"]),
            "interval_range": _range(row),
        }
        for row in reversed(shown)
    ]
    plots = {"errors": plot("errors", "Error rate of every increment, in %", errors_figure(shown))}
    if mix.names:
        plots["mix"] = plot("mix", "Classes, in % of an increment's documents", mix_figure(mix))
    if any(row["low"] is not None for row in shown):
        plots["difference"] = plot("difference", "The candidate against the deployed model", difference_figure(shown))
    for measure in ("recall", "precision"):
        if any(row[measure] is not None for row in known):
            chart = class_figure(known, measure)
            plots[measure] = plot(measure, f"{measure.capitalize()} of each class by increment", chart)
    if any(row["unknown_share"] is not None for row in shown):
        plots["unknown"] = plot("unknown", "Unknown words, in % of all", unknown_figure(shown))
    context = {
        "name": name,
        "increments": increments,
        "last": increments[0] if increments else None,
        "deployed": deployed,
        "deployed_label": parameters_label(deployed.row) if deployed else "",
        "since": since,
        "rollbacks": rollbacks[-SHOWN:][::-1],
        "left_out": left_out(quarantine),
        "quarantine": quarantine[-SHOWN:][::-1],
        "class_rows": [row for row in known if row["increment"] == total],
        "documents": documents,
        "total": total,
        "configurations": sorted(last, key=_rank),
        "style": styles(row["algorithm"] for row in last),
        "plots": plots,
    }
    return render_page("nightly", context, "sparseoco.pipeline.nightly")


def increment_line(row: Row) -> str:
    """An increment in a line of plain text."""
    line = f"increment {row['increment']}: {plural(row['documents'], 'document')}"
    if row["new_terms"] is not None:
        line += f", {plural(row['new_terms'], 'new term')}"
    if row["algorithm"] is not None:
        line += f"; candidate {row['algorithm']} ({parameters_label(row)})"
    line += f"; {'promoted' if row['promoted'] else 'not promoted'}"
    if row["deployed_value"] is not None:
        line += f" over the model of increment {row['deployed']}"
    return f"{line}: {row['reason']}"


def left_out_lines(quarantine: Sequence[Row]) -> list[str]:
    """The files that are left out, each in a line of plain text: the first ones, and the number of the others."""
    rows = left_out(quarantine)
    lines = [f"left out until it changes: {row['reason']} [{row['code']}]" for row in rows[:LISTED]]
    if len(rows) > LISTED:
        lines.append(f"left out until they change: {plural(len(rows) - LISTED, 'other file')}, in {QUARANTINE_FILE}")
    return lines


def deployed_line(deployed: Deployed | None) -> str:
    """The deployed model in a line of plain text."""
    if deployed is None:
        return "no model is deployed yet"
    line = f"the model of increment {deployed.increment} is deployed"
    if deployed.rollback is None:
        return line
    rollback = deployed.rollback
    return f"{line}, by a rollback after increment {rollback['after']} ({rollback['time']:%Y-%m-%d %H:%M} UTC)"


def measured_error(deployed: Deployed | None) -> str:
    """The error of the deployed model where it was measured last, in a few words; empty if it has none."""
    if deployed is None or deployed.error is None:
        return ""
    name = "progressive error" if deployed.measured == deployed.increment else "error"
    return f"{name} {percent(deployed.error)} on increment {deployed.measured}"


def parameters_label(row: Row) -> str:
    """The parameters of a row on one line, if it has any; without those at their default that are not searched."""
    if row["parameters"] is None:
        return ""
    return parameters(without_defaults(row["algorithm"], json.loads(row["parameters"])))


def by_increment(rows: Sequence[Row], name: str, colour: str, values: Callable[[Row], float], **look: Any) -> Series:
    """A value of each row by its increment."""
    return Series(name, [row["increment"] for row in rows], [values(row) for row in rows], colour, **look)


def increments_chart(rows: Sequence[Row], label: str, series: list[Series], *, zero: bool = False) -> Chart:
    """Series on an axis of the increments of these rows."""
    y = linear_axis(label, values_y(series), zero=zero)
    return Chart(integer_axis("increment", [row["increment"] for row in rows]), y, series)


def errors_figure(history: list[Row]) -> Chart:
    """Progressive error of the candidate and error of the deployed model, on the same documents."""
    series = []
    for name, key, colour, marker, dash in (
        ("candidate (progressive)", "error", COLOURS[0], "circle", "solid"),
        ("deployed model", "deployed_error", COLOURS[1], "square", "dash"),
    ):
        rows = [row for row in history if row[key] is not None]
        look: dict[str, Any] = {"dash": dash, "marker": marker, "size": 3.0}
        look["labels"] = [_label(row, name, key) for row in rows]
        series.append(by_increment(rows, name, colour, lambda row, key=key: 100 * row[key], **look))  # type: ignore[misc]
    promoted = [row for row in history if row["promoted"] and row["error"] is not None]
    look = {"dash": "", "marker": "star", "size": 6.0}
    series.append(by_increment(promoted, "promoted", COLOURS[0], lambda row: 100 * row["error"], **look))
    return increments_chart(history, "error rate, %", series)


def difference_figure(history: list[Row]) -> Chart:
    """The metric of the candidate less that of the deployed model on the same documents, with confidence intervals.

    What is `OUTLIER` times as far from 0 as in half of the increments is drawn at that distance: one bad increment
    would flatten all others.
    """
    rows = [row for row in history if row["low"] is not None and row["difference"] is not None]
    scale = 100 if rows[-1]["metric"] == "error" else 1
    extents = sorted(scale * max(abs(row["low"]), abs(row["high"])) for row in rows)
    limit = OUTLIER * extents[len(extents) // 2] or 1.0

    def drawn(row: Row, key: str = "difference") -> float:
        value: float = scale * row[key]
        return min(max(value, -limit), limit)

    series = []
    for name, colour, marker, promoted in (
        ("not promoted", COLOURS[1], "square", False),
        ("promoted", COLOURS[0], "star", True),
    ):
        own = [row for row in rows if row["promoted"] == promoted]
        look: dict[str, Any] = {
            "dash": "",
            "marker": marker,
            "size": 5.0,
            "low": [drawn(row, "low") for row in own],
            "high": [drawn(row, "high") for row in own],
            "labels": [f"increment {row['increment']}: {difference_text(row)}\n{row['reason']}" for row in own],
        }
        series += [by_increment(own, name, colour, drawn, **look)] if own else []
    label = f"{metric_name(rows[-1]['metric'])}: candidate − deployed" + (", %" if scale == 100 else "")
    values = values_y(series, bands=True)
    levels = [Level(edge, "larger differences are drawn here") for edge in (-limit, limit) if edge in values]
    x = integer_axis("increment", [row["increment"] for row in history])
    return Chart(x, linear_axis(label, [*values, 0.0]), series, [Level(0.0, "equal"), *levels])


def difference_text(row: Row) -> str:
    """The difference of an increment with its confidence interval."""
    if row["difference"] is None:
        return NONE
    text = _signed(row, row["difference"])
    if row["low"] is None:
        return text
    confidence = f"{100 * row['confidence']:g}{PERCENT} interval " if row["confidence"] else ""
    return f"{text} ({confidence}{_range(row)})"


def _range(row: Row) -> str:
    if row["low"] is None:
        return ""
    return f"{_signed(row, row['low'])} to {_signed(row, row['high'])}"


def _signed(row: Row, value: float) -> str:
    text = f"{100 * value:+.2f}{PERCENT}" if row["metric"] in (None, "error") else f"{value:+.4f}"
    return text.replace("-", "−")


def class_figure(rows: Sequence[Row], measure: str) -> Chart:
    """Recall or precision of each of the largest classes by increment: of the candidate, each document predicted before
    it is learned."""
    mix = ClassMix.from_rows(rows)
    sizes = dict(zip(mix.names, mix.documents.sum(axis=1).tolist(), strict=True))
    largest = sorted(sizes, key=lambda name: (-sizes[name], name))[:MAX_CLASSES]
    values = {(row["class"], row["increment"]): row[measure] for row in rows}
    shares = {name: [values.get((name, increment)) for increment in mix.increments] for name in largest}
    return class_lines(mix.increments, shares, f"{measure}, %", mix.increments, half=True)


def mix_figure(mix: ClassMix) -> Chart:
    """The share of each class in increments with documents; of many classes the largest, the others together."""
    indices = np.flatnonzero(mix.documents.any(axis=0))
    documents = mix.documents[:, indices]
    parts = documents / documents.sum(axis=0)
    largest = np.argsort(-documents.sum(axis=1), kind="stable")
    shares = {mix.names[k]: parts[k].tolist() for k in largest[:MAX_CLASSES]}
    if len(mix.names) > MAX_CLASSES:
        shares[OTHERS] = parts[np.sort(largest[MAX_CLASSES:])].sum(axis=0).tolist()
    increments = [mix.increments[k] for k in indices]
    return class_lines(increments, shares, "% of the increment's documents", mix.increments)


def class_lines(
    increments: Sequence[int],
    shares: Mapping[str, Sequence[float | None]],
    label: str,
    numbers: Sequence[int],
    *,
    half: bool = False,
) -> Chart:
    """A line for the shares of each class by increment, in half the width of a page if it is one of two."""
    series = [
        Series(
            name,
            increments,
            [None if value is None else 100 * value for value in values],
            COLOURS[k % len(COLOURS)],
            dash=dash,
            marker=MARKERS[k % len(MARKERS)],
            size=3.5,
            heading=name,
            labels=[f"increment {n}: {percent(value)}" for n, value in zip(increments, values, strict=True)],
        )
        for k, ((name, values), dash) in enumerate(zip(shares.items(), dashes(len(shares)), strict=True))
    ]
    y = linear_axis(label, values_y(series), zero=not half)
    return Chart(integer_axis("increment", numbers), y, series, width=HALF if half else WIDTH)


def unknown_figure(history: list[Row]) -> Chart:
    """The share of words outside the vocabulary, and the features that were added."""
    rows = [row for row in history if row["unknown_share"] is not None]
    name = "words outside the vocabulary"
    labels = [
        f"increment {row['increment']}: {percent(row['unknown_share'])} of its words are outside the vocabulary\n"
        f"{integer(row['new_terms'])} features were added"
        for row in rows
    ]
    look: dict[str, Any] = {"marker": "circle", "size": 3.5, "labels": labels}
    series = [by_increment(rows, name, COLOURS[2], lambda row: 100 * row["unknown_share"], **look)]
    return increments_chart(rows, "% of the increment's words", series, zero=True)


def _label(row: Row, name: str, key: str) -> str:
    text = f"increment {row['increment']}, {name}: {percent(row[key])}"
    if key == "deployed_error" and row["deployed"] is not None:
        text += f"\nthe model of increment {row['deployed']}"
    if key == "error":
        text += f"\n{row['algorithm']} {parameters_label(row)}"
    return f"{text}\n{row['reason']}"


def _since(deployed: Deployed | None, timings: HistoryRows) -> datetime | None:
    """When the deployed model was deployed."""
    if deployed is None:
        return None
    rows = timings.between(deployed.increment, deployed.increment)
    since: datetime | None = rows[0]["ended"] if len(rows) else None
    return since if deployed.rollback is None else deployed.rollback["time"]


def _class_totals(rows: HistoryRows) -> dict[str, int]:
    """The documents of each class, in all rows of history-classes."""
    totals = rows.table.group_by("class").aggregate([("documents", "sum")])
    return dict(zip(totals["class"].to_pylist(), totals["documents_sum"].to_pylist(), strict=True))


def _rank(row: Row) -> tuple[bool, float, int]:
    error = row["progressive_error"]
    return row["status"] != "ok" or error is None, error if error is not None else 1.0, row["configuration"]


# ----------------------------------------------------------------------------------------------------------------------
# The nightly runs as a few lines of Markdown and a table, where an HTML page cannot be shown.


def increments_table(run: Location) -> list[dict[str, Any]]:
    """The last `MAX_ROWS` increments, the latest first, as rows of text for a Prefect table artifact."""
    return [
        {
            "increment": row["increment"],
            "documents": integer(row["documents"]),
            "new features": integer(row["new_terms"]),
            "unknown words": percent(row["unknown_share"]),
            "candidate": row["algorithm"] or "–",
            "parameters": parameters_label(row),
            "error": percent(row["error"]),
            "deployed before": "–" if row["deployed"] is None else f"increment {row['deployed']}",
            "its error": percent(row["deployed_error"]),
            "decision": "promoted" if row["promoted"] else "not promoted",
            "reason": row["reason"],
        }
        for row in reversed(read_history(run, "history")[-MAX_ROWS:])
    ]


def nightly_markdown(run: Location, name: str) -> str:
    """The deployed model, and the last increment in a line."""
    history = read_history(run, "history")
    deployed = find_deployed(history, read_history(run, "history-rollbacks"))
    line = deployed_line(deployed)
    sentence = line[0].upper() + line[1:]
    if deployed is not None:
        row = deployed.row
        sentence += f": {row['algorithm']} ({parameters_label(row)}), {plural(row['nonzeros'], 'nonzero weight')}"
        sentence += f", {measured}" if (measured := measured_error(deployed)) else ""
    sentence += "."
    last = [plain(increment_line(history[-1]))] if history else []
    skipped = map(plain, left_out_lines(read_history(run, "history-quarantine")))
    return "\n\n".join([f"# {plain(name)}", *skipped, plain(sentence), *last]) + "\n"
