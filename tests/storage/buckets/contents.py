"""What a run left, by name, wherever it is."""

from pathlib import Path
from typing import Any

from sparseoco.storage.locations import Location

TIMED = {"timings.parquet", "report.html", "mixture.html", "leaderboard.parquet"}  # seconds, which the page shows too
HOLD = ".lock"


def names(folder: Location) -> list[str]:
    """All files below a folder but its lock."""
    if isinstance(folder, Path):
        found = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    else:
        at: Any = folder
        found = [path.removeprefix(f"{at.path}/") for path in at.fs.find(at.path)]
    return sorted(name for name in found if name.split("/")[-1] != HOLD)


def contents(folder: Location, *, timed: bool = False) -> dict[str, bytes | None]:
    """The bytes of each file; of those that hold seconds only if they are `timed`."""
    found: dict[str, bytes | None] = {}
    for name in names(folder):
        seconds = name.split("/")[-1] in TIMED or "/cells/" in name
        found[name] = None if seconds and not timed else _read(folder, name)
    return found


def _read(folder: Location, name: str) -> bytes:
    place = folder
    for part in name.split("/"):
        place = place / part
    return place.read_bytes()
