"""Tables of nightly runs, promotion and retention of models; the page, and increments as lines of text."""

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sparseoco.core.errors import DamagedError, StorageError
from sparseoco.core.formatting import NONE, PERCENT, integer, metric_name, parameters, percent, plural
from sparseoco.learners import without_defaults
from sparseoco.pipeline.nightly.evaluation import Comparison
from sparseoco.report import charts
from sparseoco.report.page import plain
from sparseoco.search.selection import choose
from sparseoco.storage.commit import commit_bytes, commit_json, digest_value, read_json, remove_file, remove_folder
from sparseoco.storage.locations import Location
from sparseoco.storage.tables import Row, read_parquet_file, write_parquet, write_result_table
from sparseoco.store.weighting import Weighting
from sparseoco.text.options import TextOptions
from sparseoco.text.sources import Source
from sparseoco.training.models import PROMOTED
from sparseoco.training.options import METRICS, Configuration, Select
from sparseoco.training.search_tables import OF_CONFIGURATION
from sparseoco.training.stream import NO_FOLD

# ----------------------------------------------------------------------------------------------------------------------
# The history of nightly runs: tables in the run folder with one or more rows per increment.
#
# history.parquet                 for each increment: documents, words, candidate, deployed model, decision
# history-configurations.parquet  for each increment, the metrics of every configuration
# history-classes.parquet         documents of each class, by increment
# history-timings.parquet         seconds and end time: the only table in which equal runs differ
# history-rollbacks.parquet       rollbacks to the models of earlier increments
# history-quarantine.parquet      input files that could not be read, or were discarded, and are left out
# history-held.parquet            increments unlike those before, and what was decided about them
# promoted.json                   the deployed model, one of models/
#
# history.parquet is written last: the decision on an increment that is in it is final.


HISTORY = pa.schema(
    [
        ("increment", pa.int32()),  # version of the store's manifest after its files were ingested
        ("documents", pa.int64()),
        ("features", pa.int64()),  # in the vocabulary at the end
        ("new_terms", pa.int64()),  # features added; null where they are hashed
        ("dropped_terms", pa.int64()),  # occurrences of terms outside the vocabulary; null as above and for the first
        ("unknown_share", pa.float64()),  # dropped_terms as a fraction of all occurrences
        ("unknown_to_deployed", pa.float64()),  # the same of terms that the deployed model has no feature for
        *OF_CONFIGURATION,  # of the candidate; null, as the next columns, if there is none
        ("nonzeros", pa.int64()),
        ("window", pa.int32()),  # increments in the window it was chosen by
        ("window_error", pa.float64()),
        ("error", pa.float64()),  # progressive, on the increment's documents
        ("loss", pa.float64()),
        ("deployed", pa.int32()),  # increment of the model deployed before; null for the first
        ("deployed_error", pa.float64()),  # on the same documents, none of which it has learned
        ("expected_error", pa.float64()),  # deployed_error as its calibrated probabilities, without labels, estimate it
        ("expected_spread", pa.float64()),  # the standard error of that
        ("deployed_loss", pa.float64()),
        ("deployed_rmse", pa.float64()),  # of numbers
        ("metric", pa.string()),  # by which the two models are compared, on the documents of the increment
        ("value", pa.float64()),  # of the candidate
        ("deployed_value", pa.float64()),
        ("difference", pa.float64()),  # value − deployed_value
        ("low", pa.float64()),  # bounds of the confidence interval of the difference, of paired predictions
        ("high", pa.float64()),
        ("confidence", pa.float64()),
        ("margin", pa.float64()),
        ("promoted", pa.bool_()),
        ("reason", pa.string()),
        ("store", pa.string()),  # digest of the manifest
    ]
)
CONFIGURATIONS = pa.schema(
    [
        ("increment", pa.int32()),
        *OF_CONFIGURATION,
        ("documents", pa.int64()),
        ("progressive_loss", pa.float64()),  # of the increment's documents
        ("progressive_error", pa.float64()),
        ("nonzeros", pa.int64()),  # nonzero weights after the increment, over all classes
        ("status", pa.string()),  # ok, diverged, failed
        ("reason", pa.string()),
    ]
)
CLASSES = pa.schema(
    [
        ("increment", pa.int32()),
        ("class", pa.string()),
        ("documents", pa.int64()),
        ("recall", pa.float64()),  # of the candidate's progressive predictions; null if not defined
        ("precision", pa.float64()),
        ("deployed_recall", pa.float64()),
        ("deployed_precision", pa.float64()),
    ]
)
INCREMENT_TIMINGS = pa.schema(
    [("increment", pa.int32()), ("seconds", pa.float64()), ("ended", pa.timestamp("s", tz="UTC"))]
)
ROLLBACKS = pa.schema(
    [
        ("after", pa.int32()),  # the last increment in the history then
        ("increment", pa.int32()),  # whose model is deployed until the next promotion
        ("store", pa.string()),  # that of `after` in the history, which identifies the history
        ("time", pa.timestamp("s", tz="UTC")),
    ]
)
QUARANTINE = pa.schema(
    [
        ("increment", pa.int32()),  # the first that it was left out of
        ("until", pa.int32()),  # the last, before it changed or was gone; null while it is left out
        ("file", pa.string()),
        ("key", pa.string()),  # identifies this version of the file, and max_bad_rows
        ("code", pa.string()),  # of the error
        ("reason", pa.string()),
    ]
)
HELD = pa.schema(
    [
        ("increment", pa.int32()),
        ("store", pa.string()),  # digest of its manifest
        ("reason", pa.string()),
        ("decision", pa.string()),  # accepted or discarded; null while it is held
        ("time", pa.timestamp("s", tz="UTC")),  # when it was held or decided
    ]
)
Z: Final = 1.96
"""Standard errors that chance explains."""
ADDED = ("unknown_to_deployed", "expected_error", "expected_spread", "deployed_rmse")
"""Columns that tables of earlier versions lack."""
TABLES = {
    "history-configurations": CONFIGURATIONS,
    "history-classes": CLASSES,
    "history-timings": INCREMENT_TIMINGS,
    "history": HISTORY,
}


def read_history(run: Location, name: str, first: int = 1) -> list[Row]:
    """The rows of one of `TABLES`, of history-rollbacks, history-quarantine or history-held, in order of increments;
    none if there is no file. With `first`, those of increments from this one on.

    Raises `StorageError` for a file that cannot be read.
    """
    table = _read_table(run, name)
    return list((table if first == 1 else table.filter(pc.field("increment") >= first)).to_pylist())


def _read_table(run: Location, name: str) -> pa.Table:
    path = run / f"{name}.parquet"
    others = {"history-rollbacks": ROLLBACKS, "history-quarantine": QUARANTINE, "history-held": HELD}
    schema = (TABLES | others)[name]
    try:
        table = read_parquet_file(path)
    except DamagedError as error:
        if error.code != "missing-file":  # any other error is raised: the file would be overwritten
            raise
        return schema.empty_table()
    for added in [field for field in schema if field.name in ADDED and field.name not in table.schema.names]:
        table = table.append_column(added, pa.nulls(len(table), added.type))
    if sorted(table.schema.names) != sorted(schema.names):
        raise DamagedError(
            f"{path} was written by another version of sparseoco: use a new run folder.", code="format-version"
        )
    return table.select(schema.names).cast(schema)  # Parquet has no seconds


def add_increment(run: Location, increment: int, rows: Mapping[str, Sequence[Row]]) -> None:
    """Commit the rows of an increment, each without its number, to the tables; rows of later ones are removed.

    Numbers have no classes.

    Raises `StorageError` if a table lacks an earlier increment.
    """
    earlier = {name: _read_table(run, name).filter(pc.field("increment") < increment) for name in TABLES}
    for name, found in earlier.items():
        missing = sorted(set(range(1, increment)) - set(found["increment"].to_pylist()))
        if missing and (rows[name] or name != "history-classes"):
            raise StorageError(
                f"{run / name}.parquet lacks {len(missing):,} of {increment - 1:,} increments, the first of them "
                f"{missing[0]}: restore it from a copy, or remove history.parquet to decide all increments again.",
                code="incomplete-history",
            )
    for name, schema in TABLES.items():
        added = [{"increment": increment} | row for row in rows[name]]
        table = pa.concat_tables([earlier[name], pa.Table.from_pylist(added, schema=schema)])
        write_parquet(run / f"{name}.parquet", table.combine_chunks())


def promoted(history: Sequence[Row]) -> list[int]:
    """The increments whose candidate was promoted."""
    return [row["increment"] for row in history if row["promoted"]]


def timing(seconds: float) -> Row:
    """The row of history-timings of an increment that ends now."""
    return {"seconds": seconds, "ended": _now()}


class Deployed(NamedTuple):
    """The deployed model: the row of its increment, the last row that promoted a model, the rollback in effect.

    `error` is its error on the increment `measured`, the last that came while it was deployed; if there is none, its
    progressive error on its own increment.
    """

    row: Row
    promoted: Row
    rollback: Row | None
    error: float | None
    measured: int

    @property
    def increment(self) -> int:
        """The increment of the deployed model."""
        return int(self.row["increment"])


def find_deployed(history: Sequence[Row], rollbacks: Sequence[Row]) -> Deployed | None:
    """The deployed model: the last that was promoted, or the one rolled back to since; None before the first.

    A rollback is in effect until the next promotion, also after history.parquet was lost and decided again.
    """
    chosen = promoted(history)
    if not chosen:
        return None
    last = history[chosen[-1] - 1]
    for rollback in reversed(rollbacks):
        after, increment = rollback["after"], rollback["increment"]
        made_here = chosen[-1] <= after <= len(history) and history[after - 1]["store"] == rollback["store"]
        if made_here and increment in chosen:
            return _measured(history, history[increment - 1], last, rollback)
    return _measured(history, last, last, None)


def _measured(history: Sequence[Row], row: Row, last: Row, rollback: Row | None) -> Deployed:
    for later in reversed(history):
        if later["deployed"] == row["increment"] and later["deployed_error"] is not None:
            return Deployed(row, last, rollback, later["deployed_error"], later["increment"])
    return Deployed(row, last, rollback, row["error"], row["increment"])


def read_deployed(run: Location, history: Sequence[Row]) -> Deployed | None:
    """As `find_deployed`, with the rollbacks of a run."""
    return find_deployed(history, read_history(run, "history-rollbacks"))


def add_rollback(run: Location, increment: int, history: Sequence[Row]) -> None:
    """Commit a rollback to the model of an increment, after the increments of `history`."""
    last = history[-1]
    row = {"after": last["increment"], "increment": increment, "store": last["store"], "time": _now()}
    rows = [*read_history(run, "history-rollbacks"), row]
    write_result_table(run / "history-rollbacks.parquet", rows, ROLLBACKS)


def write_quarantine(run: Location, rows: Sequence[Row]) -> None:
    """Commit the rows of history-quarantine, unless the table has them already."""
    if read_history(run, "history-quarantine") != rows:
        write_result_table(run / "history-quarantine.parquet", rows, QUARANTINE)


def left_out(quarantine: Sequence[Row]) -> list[Row]:
    """The rows of the files that are left out now."""
    return [row for row in quarantine if row["until"] is None]


def left_out_row(source: Source, options: TextOptions, increment: int, code: str, reason: str) -> Row:
    """The row of history-quarantine of a file that is left out from an increment on."""
    described = {"increment": increment, "until": None, "file": source.absolute, "key": source_key(source, options)}
    return described | {"code": code, "reason": reason}


def source_key(source: Source, options: TextOptions) -> str:
    """What a file that is left out must change for to be tried again."""
    return digest_value([source.key, options.max_bad_rows])


def held(run: Location) -> Row | None:
    """The row of the increment that is held, if there is one."""
    rows = read_history(run, "history-held")
    return rows[-1] if rows and rows[-1]["decision"] is None else None


def add_held(run: Location, row: Row) -> None:
    """Commit a row of history-held without its time, instead of that of the increment while it was held."""
    earlier = [other for other in read_history(run, "history-held") if other["decision"] is not None]
    write_result_table(run / "history-held.parquet", [*earlier, row | {"time": _now()}], HELD)


def held_line(row: Row) -> str:
    """The increment that is held in a line of plain text, without the full stop."""
    return f"Increment {row['increment']} is held: {row['reason']}"


def increment_model(run: Location, increment: int) -> Location:
    """The folder of the model of an increment."""
    return run / "models" / f"{increment:08d}"


def write_promoted(run: Location, deployed: Deployed | None) -> None:
    """Write promoted.json, unless it names the deployed model already."""
    if deployed is None:
        return
    columns = ("increment", "configuration", "algorithm", "parameters", "error")
    described = {"model": f"models/{deployed.increment:08d}"} | {name: deployed.row[name] for name in columns}
    path = run / PROMOTED
    with suppress(DamagedError):  # missing or corrupt: it is written again
        if read_json(path) == described:
            return
    commit_json(path, described)


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


# ----------------------------------------------------------------------------------------------------------------------
# The choice of a candidate and the decision on its promotion: pure functions of metrics.


class WindowCandidate(NamedTuple):
    """The candidate of an increment: its error over the window, and its row of the last increment."""

    window: int
    window_error: float
    row: Row

    @property
    def configuration(self) -> Configuration:
        """Its configuration."""
        return Configuration(
            number=self.row["configuration"],
            algorithm=self.row["algorithm"],
            parameters=json.loads(self.row["parameters"]),
            weighting=Weighting.of(self.row),
        )


def choose_candidate(increments: Sequence[Sequence[Row]], select: Select, metric: str = "error") -> WindowCandidate:
    """The configuration that the rule of the search selects by a progressive metric over a window of increments.

    `increments` has the rows of `IncrementChain.rows` for each increment, in order. The error is the mean over all
    documents in the window. A configuration that diverged or failed in the window is not chosen. Raises
    `SparseocoError` with the first reason if none is left.
    """
    window = [rows for rows in increments if rows[0]["documents"]]
    by_number: dict[int, list[Row]] = defaultdict(list)
    for rows in window:
        for row in rows:
            by_number[row["configuration"]].append(row)
    best = choose([_pooled(rows, metric) for rows in by_number.values()], select, metric)
    own = next(row for row in increments[-1] if row["configuration"] == best.configuration)
    return WindowCandidate(len(window), best.value(metric), own)


class Decision(NamedTuple):
    """Whether the candidate is promoted, and the reason."""

    promoted: bool
    reason: str


def decide(comparison: Comparison, *, deployed: bool, margin: float, confidence: float) -> Decision:
    """Promote the candidate if it is better than the deployed model, which `deployed` says there is.

    The interval of the difference must exclude that the candidate is worse by `margin` or more: with a margin of 0 it
    is better at this confidence. With a confidence of 0, the difference itself must be at most the margin.
    """
    if not deployed:
        return Decision(True, "no model was deployed before")
    metric, difference = comparison.metric, comparison.difference
    if difference is None or comparison.low is None or comparison.high is None:
        return Decision(False, f"{metric} of the two models cannot be compared on the new documents")
    # Worse by this much, and at most by this much at the confidence.
    worse, most = difference, comparison.high
    if METRICS[metric].greater_is_better:
        worse, most = -difference, -comparison.low
    promoted = most < margin if confidence else worse <= margin
    reason = f"{metric} {comparison.value:.4g} against {comparison.deployed_value:.4g}, difference {difference:+.4g}"
    if confidence:
        reason += f" ({confidence:.0%} interval {comparison.low:+.4g} to {comparison.high:+.4g})"
    bound = f" than a margin of {margin:g}" if margin else ""
    return Decision(promoted, f"{reason}: {'not worse' if margin else 'better'}{bound}" if promoted else reason)


def _pooled(rows: Sequence[Row], metric: str) -> Row:
    """The rows of one configuration, the metric averaged over increments weighted by their documents, or the first row
    whose status is not ok."""
    key = {"fold": NO_FOLD, "epoch": 1, "held_out_rows": 0}
    for row in rows:
        if row["status"] != "ok":
            return row | key
    column = f"progressive_{metric}"
    known = [row for row in rows if row.get(column) is not None]
    documents = sum(row["documents"] for row in known)
    mean = math.fsum(row[column] * row["documents"] for row in known) / documents if documents else None
    return rows[-1] | key | {"rows": documents, column: mean}


# ----------------------------------------------------------------------------------------------------------------------
# Which models of nightly runs are kept: the deployed one, and those of the last promotions.


_MODEL = re.compile(r"\d{8}")


def unneeded_models(run: Location, history: Sequence[Row], keep: int | None) -> list[Location]:
    """The folders of models of decided increments that are not kept, in order of increments.

    Kept are the deployed model and those of the last `keep` promotions, of all of them if it is None. What an increment
    that was not promoted has left is not kept.
    """
    chosen = promoted(history)
    kept = set(chosen if keep is None else chosen[-keep:])
    deployed = read_deployed(run, history)
    if deployed is not None:
        kept.add(deployed.increment)
    models = run / "models"
    if not models.exists():
        return []
    numbers = sorted(int(path.name) for path in models.iterdir() if _MODEL.fullmatch(path.name))
    return [increment_model(run, number) for number in numbers if number <= len(history) and number not in kept]


def remove_model(folder: Location) -> None:
    """Remove a model; one that is removed in part is none, since model.json goes first. Raises `StorageError`."""
    remove_file(folder / "model.json")
    remove_folder(folder)


# ----------------------------------------------------------------------------------------------------------------------
# The page of nightly runs: the deployed model, errors of candidates and deployed models, their difference, classes.


PAGE: Final = "nightly.html"
MAX_CLASSES: Final = 12
SHOWN: Final = 90
"""Increments on the page, the last ones: its size does not grow with their number."""
OUTLIER: Final = 5
LISTED: Final = 10
MAX_ROWS: Final = 100
DRAWN: Final = (
    *("history", "history-configurations", "history-classes"),
    *("history-timings", "history-rollbacks", "history-quarantine", "history-held"),
)
"""The tables on the page."""
QUARANTINE_FILE: Final = "history-quarantine.parquet"


def write_nightly_page(run: Location, name: str) -> Location:
    """Write RUN/nightly.html from the history's tables, unless it is up to date; returns its path.

    Raises `StorageError` if a file cannot be read or written.
    """
    page = run / PAGE
    history = read_history(run, "history")
    first = {"history-configurations": len(history), "history-classes": _first_shown(history)}
    tables = {"history": history} | {table: read_history(run, table, first.get(table, 1)) for table in DRAWN[1:]}
    text = render_nightly(name, tables).encode()
    if not page.exists() or page.read_bytes() != text:
        commit_bytes(page, text)
    return page


def _first_shown(history: Sequence[Row]) -> int:
    return max(1, len(history) + 1 - SHOWN)


def render_nightly(name: str, tables: Mapping[str, Sequence[Row]]) -> str:
    """The HTML of the page, with the last `SHOWN` increments and the totals of all.

    Rows of other tables beyond `history`, left by a killed run, are ignored.
    """
    history, configurations, classes, timings, rollbacks, quarantine, guarded = (tables[table] for table in DRAWN)
    deployed = find_deployed(history, rollbacks)
    total, first = len(history), _first_shown(history)
    shown, known = history[first - 1 :], [row for row in classes if first <= row["increment"] <= total]
    last = [row for row in configurations if row["increment"] == total]
    figures = {
        "errors": ("Error rate of every increment, in %", errors_figure(shown)),
        "difference": ("The candidate against the deployed model", difference_figure(shown)),
        "drift": ("Labels and words unlike those before", drift_figure(shown, classes)),
        "shares": ("Share of each class by increment", shares_figure(shown, known)),
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
        "held": guarded[-SHOWN:][::-1],
        "quarantine": quarantine[-SHOWN:][::-1],
        "class_rows": [row for row in known if row["increment"] == total],
        "documents": sum(row["documents"] for row in history),
        "total": total,
        "configurations": sorted(last, key=_rank),
        "style": charts.styles(row["algorithm"] for row in last),
        "plots": charts.draw_plots(
            {key: None if chart is None else (title, chart) for key, (title, chart) in figures.items()}
        ),
        "label": parameters_label,
        "interval": difference_text,
        "signed_difference": _signed,
        "interval_range": _range,
    }
    return charts.render_page("nightly", context, "sparseoco.pipeline.nightly")


def errors_figure(history: Sequence[Row]) -> charts.Chart:
    """Progressive error of the candidate and error of the deployed model, on the same documents."""

    def points(name: str, *, promoted: bool = False) -> charts.Points:
        rows = [row for row in history if row[name] is not None and (row["promoted"] or not promoted)]
        return [
            (row["increment"], 100 * row[name], f"increment {row['increment']}: {percent(row[name])}\n{row['reason']}")
            for row in rows
        ]

    expected = []
    for row in history:
        if row["expected_error"] is not None:
            figure, within = percent(row["expected_error"]), percent(Z * row["expected_spread"])
            label = f"increment {row['increment']}: {figure} ± {within} expected"
            expected.append((row["increment"], 100 * row["expected_error"], label))
    series = [
        charts.line("candidate (progressive)", points("error"), charts.COLOURS[0], marker="circle", size=3.0),
        charts.line(
            "deployed model", points("deployed_error"), charts.COLOURS[1], dash="dash", marker="square", size=3.0
        ),
        charts.line("deployed model, expected", expected, charts.COLOURS[2], dash="dot", marker="triangle", size=3.0),
        charts.line("promoted", points("error", promoted=True), charts.COLOURS[0], dash="", marker="diamond", size=6.0),
    ]
    x_axis = charts.integer_axis("increment", [row["increment"] for row in history])
    return charts.Chart(x_axis, charts.linear_axis("error rate, %", charts.values_y(series)), series)


def difference_figure(history: Sequence[Row]) -> charts.Chart | None:
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
        ("not promoted", charts.COLOURS[1], "square", False),
        ("promoted", charts.COLOURS[0], "diamond", True),
    ):
        if own := [row for row in rows if row["promoted"] == promoted]:
            labels = [f"increment {row['increment']}: {difference_text(row)}\n{row['reason']}" for row in own]
            look: dict[str, Any] = {"dash": "", "marker": marker, "size": 5.0, "labels": labels}
            look |= {name: values(name, own) for name in ("low", "high")}
            x = [row["increment"] for row in own]
            series.append(charts.Series(title, x, values("difference", own), colour, **look))
    label = f"{metric_name(rows[-1]['metric'])}: candidate − deployed" + (", %" if scale == 100 else "")
    drawn = charts.values_y(series, bands=True)
    levels = [charts.Level(edge, "larger differences are drawn here") for edge in (-limit, limit) if edge in drawn]
    x_axis = charts.integer_axis("increment", [row["increment"] for row in history])
    return charts.Chart(x_axis, charts.linear_axis(label, [*drawn, 0.0]), series, [charts.Level(0.0, "equal"), *levels])


def drift_figure(history: Sequence[Row], classes: Sequence[Row]) -> charts.Chart | None:
    """How far the labels of an increment are from those before, and its words from those of the deployed model.

    Labels by the share that would have to change for the shares of the increments in `classes` before.
    """
    counts = defaultdict[int, Counter[str]](Counter)
    for row in classes:
        counts[row["increment"]][row["class"]] += row["documents"]
    before, moved = Counter[str](), {}
    for increment in sorted(counts):
        own = counts[increment]
        if before.total() and own.total():
            names = before.keys() | own.keys()
            moved[increment] = sum(abs(own[k] / own.total() - before[k] / before.total()) for k in names) / 2
        before += own
    drawn = {
        "labels that moved": moved,
        "words unknown to the deployed model": {row["increment"]: row["unknown_to_deployed"] for row in history},
    }
    series = []
    for k, (name, values) in enumerate(drawn.items()):
        known = [(row["increment"], values.get(row["increment"])) for row in history]
        points = [(x, 100 * y, f"increment {x}: {percent(y)}") for x, y in known if y is not None]
        look: dict[str, Any] = {"dash": charts.DASHES[k], "marker": charts.MARKERS[k], "size": 3.0}
        series += [charts.line(name, points, charts.COLOURS[k], **look)] if points else []
    if not series:
        return None
    x_axis = charts.integer_axis("increment", [row["increment"] for row in history])
    return charts.Chart(x_axis, charts.linear_axis("share, %", [0.0, *charts.values_y(series)]), series)


def shares_figure(history: Sequence[Row], rows: Sequence[Row]) -> charts.Chart | None:
    """The share of the documents of each of the largest classes by increment; None without classes."""
    totals = {row["increment"]: row["documents"] for row in history}
    return _class_figure(
        rows, "share of the documents, %", lambda row: row["documents"] / max(1, totals[row["increment"]])
    )


def recall_figure(rows: Sequence[Row]) -> charts.Chart | None:
    """Recall of each of the largest classes by increment: of the candidate, each document predicted before it is
    learned. None if there are none."""
    if all(row["recall"] is None for row in rows):
        return None
    return _class_figure(rows, "recall, %", lambda row: row["recall"])


def _class_figure(rows: Sequence[Row], title: str, value: Callable[[Row], float | None]) -> charts.Chart | None:
    sizes, points = Counter[str](), defaultdict[str, list[tuple[float, float | None, str]]](list)
    for row in rows:
        measured = value(row)
        sizes[row["class"]] += row["documents"]
        label = f"increment {row['increment']}: {percent(measured)}"
        points[row["class"]].append((row["increment"], None if measured is None else 100 * measured, label))
    largest = [name for name, _ in sizes.most_common(MAX_CLASSES)]
    if not largest:
        return None
    series = [
        charts.line(
            name,
            points[name],
            charts.COLOURS[k % len(charts.COLOURS)],
            dash=dash,
            marker=charts.MARKERS[k % len(charts.MARKERS)],
            size=3.5,
        )
        for k, (name, dash) in enumerate(zip(largest, charts.dashes(len(largest)), strict=True))
    ]
    x_axis = charts.integer_axis("increment", [row["increment"] for row in rows])
    return charts.Chart(x_axis, charts.linear_axis(title, charts.values_y(series)), series)


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
    waiting = [] if (found := held(run)) is None else [f"**{plain(held_line(found))}.**"]
    return "\n\n".join([f"# {plain(name)}", *waiting, *skipped, plain(sentence), *last]) + "\n"
