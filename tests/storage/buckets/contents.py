"""The files of a run, local or remote."""

from pathlib import Path

from sparseoco.storage.locations import Location
from sparseoco.storage.remote import RemotePath

TIMED = {"timings.parquet", "report.html", "mixture.html", "leaderboard.parquet"}  # seconds, which the page shows too
LOCK = ".lock"


def names(folder: Location) -> list[str]:
    """All files below a folder except locks."""
    if isinstance(folder, RemotePath):
        found = [path.key.removeprefix(f"{folder.key}/") for path, _ in folder.list(recursive=True)]
    else:
        root = Path(str(folder))
        found = [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()]
    return sorted(name for name in found if name.split("/")[-1] != LOCK)


def contents(folder: Location, *, timed: bool = False) -> dict[str, bytes | None]:
    """The bytes of each file; None for those with times, unless `timed`."""
    found: dict[str, bytes | None] = {}
    for name in names(folder):
        seconds = name.split("/")[-1] in TIMED or "/cells/" in name
        found[name] = None if seconds and not timed else (folder / name).read_bytes()
    return found
