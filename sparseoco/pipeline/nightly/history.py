"""Tables of nightly runs, promotion and retention of models."""

import datetime
import json
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sparseoco.core.errors import DamagedError, StorageError
from sparseoco.pipeline.nightly.evaluation import Comparison
from sparseoco.search.selection import choose
from sparseoco.storage.commit import commit_json, read_json, remove_file, remove_folder
from sparseoco.storage.locations import Location
from sparseoco.storage.tables import Row, read_parquet_file, write_parquet, write_result_table
from sparseoco.store.weighting import Weighting
from sparseoco.training.metric_names import METRICS
from sparseoco.training.models import PROMOTED
from sparseoco.training.options import Configuration, Select
from sparseoco.training.stream import NO_FOLD

# ----------------------------------------------------------------------------------------------------------------------
# The history of nightly runs: tables in the run folder with one or more rows per increment.
#
# history.parquet                 for each increment: documents, words, candidate, deployed model, decision
# history-configurations.parquet  for each increment, the metrics of every configuration
# history-classes.parquet         documents of each class, by increment
# history-timings.parquet         seconds and end time: the only table in which equal runs differ
# history-rollbacks.parquet       rollbacks to the models of earlier increments
# history-quarantine.parquet      input files that could not be read and were left out
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
        ("configuration", pa.int32()),  # of the candidate; null, as the next columns, if there is none
        ("algorithm", pa.string()),
        ("parameters", pa.string()),  # canonical JSON
        ("tf", pa.string()),  # how counts are weighted
        ("idf", pa.bool_()),
        ("norm", pa.string()),
        ("nonzeros", pa.int64()),
        ("window", pa.int32()),  # increments in the window it was chosen by
        ("window_error", pa.float64()),
        ("error", pa.float64()),  # progressive, on the increment's documents
        ("loss", pa.float64()),
        ("deployed", pa.int32()),  # increment of the model deployed before; null for the first
        ("deployed_error", pa.float64()),  # on the same documents, none of which it has learned
        ("deployed_loss", pa.float64()),
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
        ("configuration", pa.int32()),
        ("algorithm", pa.string()),
        ("parameters", pa.string()),
        ("tf", pa.string()),
        ("idf", pa.bool_()),
        ("norm", pa.string()),
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
TABLES = {
    "history-configurations": CONFIGURATIONS,
    "history-classes": CLASSES,
    "history-timings": INCREMENT_TIMINGS,
    "history": HISTORY,
}


def read_history(run: Location, name: str, first: int = 1) -> list[Row]:
    """The rows of one of `TABLES`, of history-rollbacks or history-quarantine, in order of increments; none if there
    is no file. With `first`, those of increments from this one on.

    Raises `StorageError` for a file that cannot be read.
    """
    table = _read_table(run, name)
    rows: list[Row] = (table if first == 1 else table.filter(pc.field("increment") >= first)).to_pylist()
    return rows


def _read_table(run: Location, name: str) -> pa.Table:
    path = run / f"{name}.parquet"
    schema = (TABLES | {"history-rollbacks": ROLLBACKS, "history-quarantine": QUARANTINE})[name]
    try:
        table = read_parquet_file(path)
    except DamagedError as error:
        if error.code != "missing-file":  # any other error is raised: the file would be overwritten
            raise
        return schema.empty_table()
    if table.schema.names != schema.names:
        raise DamagedError(
            f"{path} was written by another version of sparseoco: use a new run folder.", code="format-version"
        )
    return table.cast(schema)  # Parquet has no seconds


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
        increment: int = self.row["increment"]
        return increment


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


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0)


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
