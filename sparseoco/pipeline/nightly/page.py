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
    line,
    linear_axis,
    styles,
    values_y,
)
from sparseoco.report.page import plain
from sparseoco.report.svg import draw_plots, render_page
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
MAX_ROWS: Final = 100
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
    shown, known = history[first - 1 :], classes.between(first, total)[:]
    mix = ClassMix.from_rows(known, _class_totals(classes.between(1, first - 1)))
    last = configurations.between(total, total)[:]
    figures = {
        "errors": ("Error rate of every increment, in %", errors_figure(shown)),
        "mix": ("Classes, in % of an increment's documents", mix_figure(mix) if mix.names else None),
        "difference": ("The candidate against the deployed model", difference_figure(shown)),
        "recall": ("Recall of each class by increment", class_figure(known, "recall")),
        "precision": ("Precision of each class by increment", class_figure(known, "precision")),
        "unknown": ("Unknown words, in % of all", unknown_figure(shown)),
    }
    context = {
        "name": name,
        "increments": shown[::-1],
        "last": shown[-1] if shown else None,
        "times": {row["increment"]: row for row in timings.between(first, total)[:]},
        "shifts": dict(zip(mix.increments, map(mix.shift, range(len(mix.increments))), strict=True)),
        "deployed": deployed,
        "since": _since(deployed, timings),
        "rollbacks": rollbacks[-SHOWN:][::-1],
        "left_out": left_out(quarantine),
        "quarantine": quarantine[-SHOWN:][::-1],
        "class_rows": [row for row in known if row["increment"] == total],
        "documents": sum(history.table["documents"].to_pylist()),
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


def _by_increment(
    rows: Sequence[Row], key: str, name: str, colour: str, text: Callable[[Row], str] | None = None, **look: Any
) -> Series:
    """A column in per cent by increment, where it has values; with `text` labels of the points."""
    known = [row for row in rows if row[key] is not None]
    x, y = [row["increment"] for row in known], [100 * row[key] for row in known]
    return Series(name, x, y, colour, labels=[] if text is None else [text(row) for row in known], **look)


def _increments_chart(rows: Sequence[Row], label: str, series: list[Series], *, zero: bool = False) -> Chart:
    y = linear_axis(label, values_y(series), zero=zero)
    return Chart(integer_axis("increment", [row["increment"] for row in rows]), y, series)


def errors_figure(history: list[Row]) -> Chart:
    """Progressive error of the candidate and error of the deployed model, on the same documents."""

    def candidate(row: Row) -> str:
        label = f"{row['algorithm']} {parameters_label(row)}\n{row['reason']}"
        return f"increment {row['increment']}, candidate (progressive): {percent(row['error'])}\n{label}"

    def deployed(row: Row) -> str:
        model = "" if row["deployed"] is None else f"\nthe model of increment {row['deployed']}"
        return f"increment {row['increment']}, deployed model: {percent(row['deployed_error'])}{model}\n{row['reason']}"

    promoted = [row for row in history if row["promoted"]]
    first, second, look = COLOURS[0], COLOURS[1], {"size": 3.0}
    series = [
        _by_increment(history, "error", "candidate (progressive)", first, candidate, marker="circle", **look),
        _by_increment(
            history, "deployed_error", "deployed model", second, deployed, dash="dash", marker="square", **look
        ),
        _by_increment(promoted, "error", "promoted", first, dash="", marker="star", size=6.0),
    ]
    return _increments_chart(history, "error rate, %", series)


def difference_figure(history: list[Row]) -> Chart | None:
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
    series = []
    for name, colour, marker, promoted in (
        ("not promoted", COLOURS[1], "square", False),
        ("promoted", COLOURS[0], "star", True),
    ):
        own = [row for row in rows if row["promoted"] == promoted]
        if own:
            x = [row["increment"] for row in own]
            y, low, high = (
                [min(max(scale * row[key], -limit), limit) for row in own] for key in ("difference", "low", "high")
            )
            labels = [f"increment {row['increment']}: {difference_text(row)}\n{row['reason']}" for row in own]
            look: dict[str, Any] = {"dash": "", "marker": marker, "size": 5.0}
            series.append(Series(name, x, y, colour, low=low, high=high, labels=labels, **look))
    label = f"{metric_name(rows[-1]['metric'])}: candidate − deployed" + (", %" if scale == 100 else "")
    values = values_y(series, bands=True)
    levels = [Level(edge, "larger differences are drawn here") for edge in (-limit, limit) if edge in values]
    x_axis = integer_axis("increment", [row["increment"] for row in history])
    return Chart(x_axis, linear_axis(label, [*values, 0.0]), series, [Level(0.0, "equal"), *levels])


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


def class_figure(rows: Sequence[Row], measure: str) -> Chart | None:
    """Recall or precision of each of the largest classes by increment: of the candidate, each document predicted before
    it is learned. None if there are none."""
    values = {(row["class"], row["increment"]): row[measure] for row in rows}
    if not any(value is not None for value in values.values()):
        return None
    mix = ClassMix.from_rows(rows)
    sizes = dict(zip(mix.names, mix.documents.sum(axis=1).tolist(), strict=True))
    largest = sorted(sizes, key=lambda name: (-sizes[name], name))[:MAX_CLASSES]
    shares = {name: [values.get((name, increment)) for increment in mix.increments] for name in largest}
    return _class_lines(mix.increments, shares, f"{measure}, %", mix.increments, half=True)


def mix_figure(mix: ClassMix) -> Chart:
    """The share of each class in increments with documents; of many classes the largest, the others together."""
    indices = np.flatnonzero(mix.documents.any(axis=0))
    documents = mix.documents[:, indices]
    parts = documents / documents.sum(axis=0)
    largest = np.argsort(-documents.sum(axis=1), kind="stable")
    shares = {mix.names[k]: parts[k].tolist() for k in largest[:MAX_CLASSES]}
    if len(mix.names) > MAX_CLASSES:
        shares[OTHERS] = parts[np.sort(largest[MAX_CLASSES:])].sum(axis=0).tolist()
    return _class_lines([mix.increments[k] for k in indices], shares, "% of the increment's documents", mix.increments)


def _class_lines(
    increments: list[int],
    shares: Mapping[str, list[float | None]],
    label: str,
    numbers: list[int],
    *,
    half: bool = False,
) -> Chart:
    """A line for the shares of each class by increment, in half the width of a page if it is one of two."""
    series = [
        line(
            name,
            [
                (n, None if value is None else 100 * value, f"increment {n}: {percent(value)}")
                for n, value in zip(increments, values, strict=True)
            ],
            COLOURS[k % len(COLOURS)],
            dash=dash,
            marker=MARKERS[k % len(MARKERS)],
            size=3.5,
        )
        for k, ((name, values), dash) in enumerate(zip(shares.items(), dashes(len(shares)), strict=True))
    ]
    y = linear_axis(label, values_y(series), zero=not half)
    return Chart(integer_axis("increment", numbers), y, series, width=HALF if half else WIDTH)


def unknown_figure(history: list[Row]) -> Chart | None:
    """The share of words outside the vocabulary, and the features that were added; None if no share is known."""

    def text(row: Row) -> str:
        words = f"{percent(row['unknown_share'])} of its words are outside the vocabulary"
        return f"increment {row['increment']}: {words}\n{integer(row['new_terms'])} features were added"

    rows = [row for row in history if row["unknown_share"] is not None]
    if not rows:
        return None
    look: dict[str, Any] = {"marker": "circle", "size": 3.5}
    series = [_by_increment(rows, "unknown_share", "words outside the vocabulary", COLOURS[2], text, **look)]
    return _increments_chart(rows, "% of the increment's words", series, zero=True)


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
