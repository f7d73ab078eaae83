"""The guard of nightly runs: an increment unlike those before is held, until somebody accepts or discards it.

A held increment is in the store, and no learner has learned it. Accepted, it is learned as any other. Discarded, its
version of the store is removed and its files are left out like files that cannot be read: the folder is then as if they
had not come. The decision is committed last; a call that is killed is repeated.
"""

import math
from collections.abc import Sequence
from logging import WARNING
from typing import NamedTuple

import numpy as np

from sparseoco.core.errors import HeldError, InputError
from sparseoco.core.formatting import percent, plural
from sparseoco.core.logs import log_event
from sparseoco.pipeline.nightly import records
from sparseoco.pipeline.nightly.evaluation import IncrementEvaluation
from sparseoco.pipeline.nightly.records import Z
from sparseoco.pipeline.run_file import HeldDecision, NightlyOptions, RunFile
from sparseoco.storage.tables import Row
from sparseoco.store.manifest import Manifest, read_manifest, remove_version
from sparseoco.store.shards import Store
from sparseoco.text.sources import find_sources


class Arrival(NamedTuple):
    """An increment before it is learned: its manifest and the one before, and what the deployed model makes of it."""

    manifest: Manifest
    previous: Manifest | None
    measured: IncrementEvaluation

    @property
    def documents(self) -> int:
        """The number of its documents."""
        return self.manifest.rows - (self.previous.rows if self.previous else 0)

    @property
    def dropped(self) -> int:
        """Occurrences of terms outside the vocabulary."""
        return self.manifest.dropped_terms - (self.previous.dropped_terms if self.previous else 0)

    @property
    def unknown(self) -> float | None:
        """The share of its words that the deployed model has no feature for."""
        words = self.dropped + self.measured.words
        unknown = self.measured.unknown_words
        return None if unknown is None or not words else (self.dropped + unknown) / words


def check(run: RunFile, arrival: Arrival, history: Sequence[Row]) -> None:
    """Hold an increment unlike those of the history, unless it was accepted. Raises `HeldError`."""
    increment, digest = arrival.manifest.version, arrival.manifest.digest
    accepted = (row for row in records.read_history(run.out, "history-held") if row["decision"] == "accepted")
    if any((row["increment"], row["store"]) == (increment, digest) for row in accepted):
        return
    if reasons := unlike(run.nightly, arrival, history):
        row = {"increment": increment, "store": digest, "reason": "; ".join(reasons), "decision": None}
        records.add_held(run.out, row)
        log_event("nightly", "increment held", level=WARNING, increment=increment, reason=row["reason"])
        raise held_error(row)


def held_error(row: Row) -> HeldError:
    """The error for a row of history-held."""
    return HeldError(
        f"{records.held_line(row)}. No learner has learned it. Look at its files, then accept it (sparseoco "
        "nightly RUN_FILE --accept) or leave its files out (--discard).",
        code="held",
    )


def unlike(options: NightlyOptions, arrival: Arrival, history: Sequence[Row]) -> list[str]:
    """Why an increment is held: what differs from the increments of the window before it by more than chance and the
    options allow."""
    if not arrival.documents:
        return list(filter(None, [_bad_rows(options, arrival)]))
    window = history[-options.window :]
    found = (
        _bad_rows(options, arrival),
        _error(options, arrival, window),
        _labels(options, arrival),
        _unknown_words(options, arrival, window),
    )
    return [reason for reason in found if reason]


def _bad_rows(options: NightlyOptions, arrival: Arrival) -> str:
    previous = arrival.previous
    bad = arrival.manifest.quarantined_rows - (previous.quarantined_rows if previous else 0)
    rows = bad + arrival.documents
    if bad <= options.max_bad_share * rows:
        return ""
    return f"{bad:,} of its {plural(rows, 'row')} could not be read"


def _error(options: NightlyOptions, arrival: Arrival, window: Sequence[Row]) -> str:
    """Of numbers the root mean squared error, as a share of what it was."""
    measured, n = arrival.measured, arrival.documents
    if measured.deployed_error is not None:
        known = _known(window, "deployed_error") or _known(window, "error")  # of the first increment, while it learned
        error, before, size = measured.deployed_error, _mean(known), sum(weight for _, weight in known)
        spread = math.sqrt(error * (1 - error) / n + before * (1 - before) / size) if known else 0.0
        if known and error - before > options.max_drop + Z * spread:
            return f"the error of the deployed model is {percent(error)} on it, and was {percent(before)} before"
    elif measured.deployed_rmse is not None:
        known = [(value**2, weight) for value, weight in _known(window, "deployed_rmse")]
        rmse, before = measured.deployed_rmse, math.sqrt(_mean(known))
        spread = (measured.rmse_spread or 0.0) * math.sqrt(1 + n / sum(weight for _, weight in known)) if known else 0.0
        if known and rmse - before > options.max_drop * before + Z * spread:
            return f"the RMSE of the deployed model is {rmse:.4g} on it, and was {before:.4g} before"
    return ""


def _labels(options: NightlyOptions, arrival: Arrival) -> str:
    """The total variation distance of the shares of the classes to those of all increments before."""
    if arrival.previous is None:
        return ""
    earlier = np.array([entry.rows for entry in arrival.previous.labels.classes], np.float64)
    added = np.array([entry.rows for entry in arrival.manifest.labels.classes], np.float64) - earlier
    if not (earlier.sum() and added.sum()):
        return ""
    before, now = earlier / earlier.sum(), added / added.sum()
    chance = Z * np.sqrt(before * (1 - before) * (1 / earlier.sum() + 1 / added.sum())).sum() / 2
    if np.abs(now - before).sum() / 2 <= options.max_shift + chance:
        return ""
    most = int(np.abs(now - before).argmax())
    name = arrival.manifest.labels.classes[most].name
    return f"{percent(now[most])} of its labels are {name}, and {percent(before[most])} were before"


def _unknown_words(options: NightlyOptions, arrival: Arrival, window: Sequence[Row]) -> str:
    known, unknown = _known(window, "unknown_to_deployed"), arrival.unknown
    if not known or unknown is None or unknown - _mean(known) <= options.max_shift:
        return ""
    return f"the deployed model does not know {percent(unknown)} of its words, and {percent(_mean(known))} before"


def _known(window: Sequence[Row], name: str) -> list[tuple[float, int]]:
    """A column of increments where it is known, each value with its number of documents."""
    return [(row[name], row["documents"]) for row in window if row[name] is not None and row["documents"]]


def _mean(values: Sequence[tuple[float, int]]) -> float:
    return sum(value * weight for value, weight in values) / max(1, sum(weight for _, weight in values))


def settle(run: RunFile, decision: HeldDecision) -> str:
    """Accept the increment that is held, or discard it; gives a sentence. Raises `InputError` if none is held."""
    row = records.held(run.out)
    if row is None:
        raise InputError(f"No increment in {run.out} is held.", code="not-held")
    files = _leave_out(run, row) if decision == "discarded" else 0
    records.add_held(run.out, row | {"decision": decision})
    log_event("nightly", f"increment {decision}", increment=row["increment"])
    left = f": {plural(files, 'file')} left out until changed" if files else ""
    return f"Increment {row['increment']} was {decision}{left}."


def _leave_out(run: RunFile, row: Row) -> int:
    """Leave out the files of an increment and remove it from the store, unless a call that was killed has done so."""
    increment, reason = row["increment"], f"increment {row['increment']} was discarded: {row['reason']}"
    store, options = Store.find(run.store), run.ingest.text
    quarantine = records.read_history(run.out, "history-quarantine")
    files = len([own for own in quarantine if own["reason"] == reason])
    if store is not None and (store.manifest.version, store.manifest.digest) == (increment, row["store"]):
        first = 0 if increment == 1 else read_manifest(run.store, increment - 1).n_sources
        added = {entry.path for entry in list(store.sources)[first:]}
        sources = find_sources(list(run.ingest.inputs), options, may_be_empty=True)
        rows = [
            records.left_out_row(source, options, increment, "held", reason)
            for source in sources
            if source.absolute in added
        ]
        files = len(rows)
        records.write_quarantine(run.out, [*(own for own in quarantine if own["reason"] != reason), *rows])
        remove_version(run.store, increment)
    return files
