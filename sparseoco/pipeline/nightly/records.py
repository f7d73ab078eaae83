"""What nights leave in a run's folder: a row a night, and tables that say more of it.

history.parquet                 a row a night: documents, words, candidate, champion, what was decided and why
history-configurations.parquet  what every configuration came to on every night
history-classes.parquet         documents of each class, by night
history-timings.parquet         seconds, and when it ended: all that two equal runs may differ in
history-choices.parquet         models that a person chose to serve again, a row a choice
promoted.json                   which of models/ serves

history.parquet is written last: a night that is in it is decided, and nothing of it is decided again.
"""

import datetime
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import pyarrow as pa

from sparseoco.core.errors import DamagedError, StorageError
from sparseoco.storage.commit import commit_json, read_json, storage_error
from sparseoco.storage.locations import Location
from sparseoco.storage.metrics import read_result_table, write_result_table
from sparseoco.training.model import PROMOTED

Row = dict[str, Any]

HISTORY = pa.schema(
    [
        ("night", pa.int32()),  # the version of the manifest that the night's files made
        ("documents", pa.int64()),
        ("features", pa.int64()),  # there were by then
        ("new_terms", pa.int64()),  # features added; null where they are hashed
        (
            "dropped_terms",
            pa.int64(),
        ),  # occurrences of terms that are no feature; null as above, and on the first night
        ("unknown_share", pa.float64()),  # of all occurrences
        ("configuration", pa.int32()),  # of the candidate; null, as what follows, where nobody could be chosen
        ("algorithm", pa.string()),
        ("parameters", pa.string()),  # canonical JSON
        ("nonzeros", pa.int64()),
        ("window", pa.int32()),  # nights it was chosen by
        ("window_error", pa.float64()),
        ("error", pa.float64()),  # of the night's documents, each before it was learned
        ("loss", pa.float64()),
        ("champion", pa.int32()),  # the night of the model that served until then; null on the first
        ("champion_error", pa.float64()),  # of the same documents, none of them learned
        ("champion_loss", pa.float64()),
        ("difference", pa.float64()),  # error − champion_error
        ("margin", pa.float64()),
        ("promoted", pa.bool_()),
        ("why", pa.string()),
        ("store", pa.string()),  # digest of the manifest that the night's files made
    ]
)
CONFIGURATIONS = pa.schema(
    [
        ("night", pa.int32()),
        ("configuration", pa.int32()),
        ("algorithm", pa.string()),
        ("parameters", pa.string()),
        ("documents", pa.int64()),
        ("progressive_loss", pa.float64()),  # of the night's documents, each before it was learned
        ("progressive_error", pa.float64()),
        ("nonzeros", pa.int64()),  # nonzero weights after the night, all classes
        ("status", pa.string()),  # ok, diverged, failed
        ("reason", pa.string()),
    ]
)
CLASSES = pa.schema([("night", pa.int32()), ("class", pa.string()), ("documents", pa.int64())])
TIMINGS = pa.schema([("night", pa.int32()), ("seconds", pa.float64()), ("ended", pa.timestamp("s", tz="UTC"))])
CHOICES = pa.schema(
    [
        ("after", pa.int32()),  # the last night that was decided by then
        ("night", pa.int32()),  # whose model serves, until a night that comes later promotes its own
        ("store", pa.string()),  # as in the history, of the night `after`: a choice is of this history and no other
        ("chosen", pa.timestamp("s", tz="UTC")),
    ]
)
TABLES = {
    "history-configurations": CONFIGURATIONS,
    "history-classes": CLASSES,
    "history-timings": TIMINGS,
    "history": HISTORY,
}


def read_rows(run: Location, name: str) -> list[Row]:
    """The rows of one of `TABLES`, or of history-choices, in order of nights; none where there is no such file.

    Raises `StorageError` for a file that cannot be read.
    """
    path = run / f"{name}.parquet"
    try:
        rows: list[Row] = read_result_table(path).to_pylist()
    except FileNotFoundError:  # the one answer by which there are none: what cannot be read would be written anew
        return []
    except OSError as error:
        raise storage_error(error, path) from error
    except pa.ArrowException as error:
        raise StorageError(f"{path} is damaged: it is not Parquet.") from error
    return rows


def add_night(run: Location, night: int, rows: Mapping[str, Iterable[Row]]) -> None:
    """Commit the rows of a night to the tables, each row without its night; those of later nights are not kept.

    Raises `StorageError` where a table lacks a night before.
    """
    before = {name: [row for row in read_rows(run, name) if row["night"] < night] for name in TABLES}
    for name, there in before.items():
        lacking = set(range(1, night)) - {row["night"] for row in there}
        if lacking:
            raise StorageError(
                f"{run / name}.parquet lacks {len(lacking):,} of {night - 1:,} nights, the first of them night "
                f"{min(lacking)}: put it back from a copy; or remove history.parquet, and all nights are decided anew."
            )
    for name, schema in TABLES.items():
        added = ({"night": night} | row for row in rows[name])
        write_result_table(run / f"{name}.parquet", [*before[name], *added], schema)


def timing(seconds: float) -> Row:
    """The row of a night that ends now."""
    return {"seconds": seconds, "ended": _now()}


class Serving(NamedTuple):
    """The row of the night whose model serves, that of the last night that promoted, the choice that set it aside."""

    row: Row
    promoted: Row
    choice: Row | None

    @property
    def night(self) -> int:
        """The night whose model serves."""
        night: int = self.row["night"]
        return night


def serving(history: Sequence[Row], choices: Sequence[Row]) -> Serving | None:
    """Which model serves: that of the last night that promoted one, or that a person has chosen since; None before.

    A choice holds from the night after which it was made to the next that promotes. Nights that are decided anew, since
    history.parquet was lost, meet it where it was made.
    """
    promoted = next((row for row in reversed(history) if row["promoted"]), None)
    if promoted is None:
        return None
    for choice in reversed(choices):
        after = choice["after"]
        if promoted["night"] <= after <= len(history) and history[after - 1]["store"] == choice["store"]:
            row = history[choice["night"] - 1]
            if row["promoted"]:
                return Serving(row, promoted, choice)
    return Serving(promoted, promoted, None)


def add_choice(run: Location, night: int, history: Sequence[Row]) -> None:
    """Commit that the model of a night was chosen to serve, the nights of `history` being decided."""
    last = history[-1]
    row = {"after": last["night"], "night": night, "store": last["store"], "chosen": _now()}
    write_result_table(run / "history-choices.parquet", [*read_rows(run, "history-choices"), row], CHOICES)


def model_of(run: Location, night: int) -> Location:
    """The folder of the model that a night left."""
    return run / "models" / f"{night:08d}"


def promote(run: Location, served: Serving | None) -> None:
    """Let promoted.json name the model that serves."""
    if served is None:
        return
    named = {"model": f"models/{served.night:08d}"}
    told = named | {key: served.row[key] for key in ("night", "configuration", "algorithm", "parameters", "error")}
    path = run / PROMOTED
    with suppress(DamagedError):  # not there, or damaged: written anew
        if read_json(path) == told:
            return
    commit_json(path, told)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0)
