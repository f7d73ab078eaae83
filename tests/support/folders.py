"""The files of folders, and the assertion that two folders have the same ones."""

from collections.abc import Collection, Mapping
from pathlib import Path

from sparseoco.storage.locations import Location, RemotePath

TIMED = frozenset({
    "timings.parquet", "history-timings.parquet", "report.html", "nightly.html", "leaderboard.parquet",
})  # fmt: skip
"""Names of files that show seconds or dates."""
GROUPED = frozenset({"cells", "checkpoints"})
"""Folders whose files depend on how configurations were grouped, and hold seconds."""
LOCK = ".lock"


def files(folder: Location) -> dict[str, Location]:
    """The files below a folder, local or remote, by relative path; without locks."""
    if isinstance(folder, RemotePath):
        found = {path.key.removeprefix(f"{folder.key}/"): path for path, _ in folder.list(recursive=True)}
    else:
        root = Path(str(folder))
        found = {str(path.relative_to(root)): path for path in sorted(root.rglob("*")) if path.is_file()}
    return {name: path for name, path in sorted(found.items()) if path.name != LOCK}


def folder_bytes(folder: Location, *, without: Collection[str] = TIMED | GROUPED) -> dict[str, bytes]:
    """The content of every file below a folder, by relative path, but for locks and for files and folders `without`."""
    found = files(folder).items()
    return {name: path.read_bytes() for name, path in found if not {*without}.intersection(name.split("/"))}


def assert_same_folder(
    folder: Location,
    expected: Location | Mapping[str, bytes],
    *,
    without: Collection[str] = TIMED | GROUPED,
    more: bool = False,
    what: object = "",
) -> None:
    """Assert that a folder has the files of another one, or these; with `more`, it may have further ones.

    A failure names the files that differ and `what`.
    """
    wanted = expected if isinstance(expected, Mapping) else folder_bytes(expected, without=without)
    found = folder_bytes(folder, without=without)
    names = wanted.keys() if more else wanted.keys() | found.keys()
    different = sorted(name for name in names if found.get(name) != wanted.get(name))
    assert not different, f"{what} {folder}: {different}"


def assert_same_results(run: Path, expected: Path) -> None:
    """Assert that two runs have the same tables of a search, choice and model, whatever their clusters."""
    for name in ("search/metrics.parquet", "search/curves.parquet", "search/best.json", "model/weights.parquet"):
        assert (run / name).read_bytes() == (expected / name).read_bytes(), name
