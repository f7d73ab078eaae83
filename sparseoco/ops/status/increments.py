"""The nightly increments of a run."""

from typing import NamedTuple

from sparseoco.core.formatting import percent, plural
from sparseoco.pipeline.nightly.history import left_out, read_deployed, read_history
from sparseoco.pipeline.nightly.page import deployed_line, measured_error
from sparseoco.storage.locations import Location
from sparseoco.storage.metrics import Row


class Increments(NamedTuple):
    """The number of increments, the last, that of the deployed model, when it was rolled back to; a summary; and the
    files that are left out, rows of history-quarantine."""

    total: int
    last: Row
    deployed: Row | None
    rolled_back: str | None
    summary: str
    left_out: list[Row]


def read_increments(folder: Location) -> Increments | None:
    """The increments of a run; None if there are none. Raises `StorageError` for a file that cannot be read."""
    history = read_history(folder, "history")
    if not history:
        return None
    last, deployed = history[-1], read_deployed(folder, history)
    rollback = None if deployed is None else deployed.rollback
    summary = f"{plural(len(history), 'increment')}; the last has {plural(last['documents'], 'document')}"
    if last["error"] is not None:
        summary += f", error of the candidate {percent(last['error'])}"
    if last["deployed_error"] is not None:
        summary += f", of the model of increment {last['deployed']} {percent(last['deployed_error'])}"
    summary += f": {'promoted' if last['promoted'] else 'not promoted'}; {deployed_line(deployed)}"
    summary += f", {measured}" if (measured := measured_error(deployed)) else ""
    rolled_back = None if rollback is None else rollback["time"].isoformat()
    skipped = left_out(read_history(folder, "history-quarantine"))
    summary += f"; {plural(len(skipped), 'unreadable file')} left out" if skipped else ""
    return Increments(len(history), last, None if deployed is None else deployed.row, rolled_back, summary, skipped)
