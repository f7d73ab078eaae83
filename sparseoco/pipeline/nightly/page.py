"""The page, the lines and the summary of nightly runs."""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from sparseoco.core.formatting import NONE, PERCENT, integer, metric_name, parameters, percent, plural
from sparseoco.learners import without_defaults
from sparseoco.pipeline.nightly.history import Deployed, find_deployed, left_out, read_history
from sparseoco.report.charts import (
    COLOURS,
    MARKERS,
    Chart,
    Level,
    Points,
    Series,
    dashes,
    draw_plots,
    integer_axis,
    line,
    linear_axis,
    render_page,
    styles,
    values_y,
)
from sparseoco.report.page import plain
from sparseoco.storage.commit import commit_bytes
from sparseoco.storage.locations import Location
from sparseoco.storage.tables import Row

# ----------------------------------------------------------------------------------------------------------------------
# The page of nightly runs: the deployed model, errors of candidates and deployed models, their difference, classes.


PAGE: Final = "nightly.html"
MAX_CLASSES: Final = 12
SHOWN: Final = 90
"""Increments on the page, the last ones: its size does not grow with their number."""
OUTLIER: Final = 5
LISTED: Final = 10
MAX_ROWS: Final = 100
QUARANTINE_FILE: Final = "history-quarantine.parquet"


def write_nightly_page(run: Location, name: str) -> Location:
    """Write RUN/nightly.html from the history's tables, unless it is up to date; returns its path.

    Raises `StorageError` if a file cannot be read or written.
    """
    page = run / PAGE
    history = read_history(run, "history")
    configurations = read_history(run, "history-configurations", first=len(history))
    classes = read_history(run, "history-classes", first=_first_shown(history))
    others = (read_history(run, table) for table in ("history-timings", "history-rollbacks", "history-quarantine"))
    text = render_nightly(name, history, configurations, classes, *others).encode()
    if not page.exists() or page.read_bytes() != text:
        commit_bytes(page, text)
    return page


def _first_shown(history: Sequence[Row]) -> int:
    return max(1, len(history) + 1 - SHOWN)


def render_nightly(
    name: str,
    history: Sequence[Row],
    configurations: Sequence[Row],
    classes: Sequence[Row],
    timings: Sequence[Row],
    rollbacks: Sequence[Row],
    quarantine: Sequence[Row],
) -> str:
    """The HTML of the page, with the last `SHOWN` increments and the totals of all.

    Rows of other tables beyond `history`, left by a killed run, are ignored.
    """
    deployed = find_deployed(history, rollbacks)
    total, first = len(history), _first_shown(history)
    shown, known = history[first - 1 :], [row for row in classes if first <= row["increment"] <= total]
    last = [row for row in configurations if row["increment"] == total]
    figures = {
        "errors": ("Error rate of every increment, in %", errors_figure(shown)),
        "difference": ("The candidate against the deployed model", difference_figure(shown)),
        "recall": ("Recall of each class by increment", recall_figure(known)),
    }
    context = {
        "name": name,
        "increments": shown[::-1],
        "last": shown[-1] if shown else None,
        "times": {row["increment"]: row for row in timings},
        "deployed": deployed,
        "since": _since(deployed, timings),
        "rollbacks": rollbacks[-SHOWN:][::-1],
        "left_out": left_out(quarantine),
        "quarantine": quarantine[-SHOWN:][::-1],
        "class_rows": [row for row in known if row["increment"] == total],
        "documents": sum(row["documents"] for row in history),
        "total": total,
        "configurations": sorted(last, key=_rank),
        "style": styles(row["algorithm"] for row in last),
        "plots": draw_plots(
            {key: None if chart is None else (title, chart) for key, (title, chart) in figures.items()}
        ),
        "label": parameters_label,
        "interval": difference_text,
        "signed_difference": _signed,
        "interval_range": _range,
    }
    return render_page("nightly", context, "sparseoco.pipeline.nightly")


def errors_figure(history: Sequence[Row]) -> Chart:
    """Progressive error of the candidate and error of the deployed model, on the same documents."""

    def points(name: str, *, promoted: bool = False) -> Points:
        rows = [row for row in history if row[name] is not None and (row["promoted"] or not promoted)]
        return [
            (row["increment"], 100 * row[name], f"increment {row['increment']}: {percent(row[name])}\n{row['reason']}")
            for row in rows
        ]

    series = [
        line("candidate (progressive)", points("error"), COLOURS[0], marker="circle", size=3.0),
        line("deployed model", points("deployed_error"), COLOURS[1], dash="dash", marker="square", size=3.0),
        line("promoted", points("error", promoted=True), COLOURS[0], dash="", marker="diamond", size=6.0),
    ]
    x_axis = integer_axis("increment", [row["increment"] for row in history])
    return Chart(x_axis, linear_axis("error rate, %", values_y(series)), series)


def difference_figure(history: Sequence[Row]) -> Chart | None:
    """The metric of the candidate less that of the deployed model on the same documents, with confidence intervals.

    What is `OUTLIER` times as far from 0 as in half of the increments is drawn at that distance: one bad increment
    would flatten all others. None if there are no intervals.
    """
    rows = [row for row in history if row["low"] is not None and row["difference"] is not None]
    if not rows:
        return None
    scale = 100 if rows[-1]["metric"] == "error" else 1
    extents = sorted(scale * max(abs(row["low"]), abs(row["high"])) for row in rows)
    limit = OUTLIER * extents[len(extents) // 2] or 1.0

    def values(name: str, own: list[Row]) -> list[float]:
        return [min(max(scale * row[name], -limit), limit) for row in own]

    series = []
    for title, colour, marker, promoted in (
        ("not promoted", COLOURS[1], "square", False),
        ("promoted", COLOURS[0], "diamond", True),
    ):
        if own := [row for row in rows if row["promoted"] == promoted]:
            labels = [f"increment {row['increment']}: {difference_text(row)}\n{row['reason']}" for row in own]
            look: dict[str, Any] = {"dash": "", "marker": marker, "size": 5.0, "labels": labels}
            look |= {name: values(name, own) for name in ("low", "high")}
            x = [row["increment"] for row in own]
            series.append(Series(title, x, values("difference", own), colour, **look))
    label = f"{metric_name(rows[-1]['metric'])}: candidate − deployed" + (", %" if scale == 100 else "")
    drawn = values_y(series, bands=True)
    levels = [Level(edge, "larger differences are drawn here") for edge in (-limit, limit) if edge in drawn]
    x_axis = integer_axis("increment", [row["increment"] for row in history])
    return Chart(x_axis, linear_axis(label, [*drawn, 0.0]), series, [Level(0.0, "equal"), *levels])


def recall_figure(rows: Sequence[Row]) -> Chart | None:
    """Recall of each of the largest classes by increment: of the candidate, each document predicted before it is
    learned. None if there are none."""
    if all(row["recall"] is None for row in rows):
        return None
    sizes, recalls = Counter[str](), defaultdict[str, list[tuple[float, float | None, str]]](list)
    for row in rows:
        recall, label = row["recall"], f"increment {row['increment']}: {percent(row['recall'])}"
        sizes[row["class"]] += row["documents"]
        recalls[row["class"]].append((row["increment"], None if recall is None else 100 * recall, label))
    largest = [name for name, _ in sizes.most_common(MAX_CLASSES)]
    series = [
        line(name, recalls[name], COLOURS[k % len(COLOURS)], dash=dash, marker=MARKERS[k % len(MARKERS)], size=3.5)
        for k, (name, dash) in enumerate(zip(largest, dashes(len(largest)), strict=True))
    ]
    x_axis = integer_axis("increment", [row["increment"] for row in rows])
    return Chart(x_axis, linear_axis("recall, %", values_y(series)), series)


def _since(deployed: Deployed | None, timings: Sequence[Row]) -> datetime | None:
    """When the deployed model was deployed."""
    if deployed is None:
        return None
    ended = (row["ended"] for row in timings if row["increment"] == deployed.increment)
    since: datetime | None = next(ended, None) if deployed.rollback is None else deployed.rollback["time"]
    return since


def _rank(row: Row) -> tuple[bool, float, int]:
    error = row["progressive_error"]
    return row["status"] != "ok" or error is None, error if error is not None else 1.0, row["configuration"]


# ----------------------------------------------------------------------------------------------------------------------
# The nightly runs as lines of text and Markdown, and a table, where an HTML page cannot be shown.


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


def difference_text(row: Row) -> str:
    """The difference of an increment with its confidence interval."""
    text = _signed(row, row["difference"])
    if row["difference"] is None or row["low"] is None:
        return text
    confidence = f"{100 * row['confidence']:g}{PERCENT} interval " if row["confidence"] else ""
    return f"{text} ({confidence}{_range(row)})"


def _range(row: Row) -> str:
    return f"{_signed(row, row['low'])} to {_signed(row, row['high'])}"


def _signed(row: Row, value: float | None) -> str:
    if value is None:
        return NONE
    text = f"{100 * value:+.2f}{PERCENT}" if row["metric"] in (None, "error") else f"{value:+.4f}"
    return text.replace("-", "−")


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
