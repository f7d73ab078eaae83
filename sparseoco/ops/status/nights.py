"""What the nights of a run have come to."""

from typing import NamedTuple

from sparseoco.pipeline.nightly.history import read_deployed, read_history
from sparseoco.pipeline.nightly.page import deployed_line
from sparseoco.report.wording import percent, plural
from sparseoco.storage.locations import Location
from sparseoco.storage.metrics import Row


class Nights(NamedTuple):
    """How many nights there were, the last, the one whose model serves, when a person chose it; and a sentence."""

    nights: int
    last: Row
    serving: Row | None
    chosen: str | None
    sentence: str


def look_at_nights(folder: Location) -> Nights | None:
    """The nights of a run; None where there were none. Raises `StorageError` for a file that cannot be read."""
    history = read_history(folder, "history")
    if not history:
        return None
    last, served = history[-1], read_deployed(folder, history)
    choice = None if served is None else served.rollback
    told = f"{plural(len(history), 'night')}; the last took in {plural(last['documents'], 'document')}"
    if last["error"] is not None:
        told += f", error of the candidate {percent(last['error'])}"
    if last["deployed_error"] is not None:
        told += f", of the model that served {percent(last['deployed_error'])}"
    told += f": {'promoted' if last['promoted'] else 'not promoted'}"
    told += f"; {deployed_line(served)}"
    chosen = None if choice is None else choice["time"].isoformat()
    return Nights(len(history), last, None if served is None else served.row, chosen, told)
