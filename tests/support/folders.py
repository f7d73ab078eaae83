"""The files of folders, and the assertion that two folders have the same ones."""

from collections.abc import Collection, Mapping
from pathlib import Path

TIMED = frozenset({
    "timings.parquet", "history-timings.parquet", "report.html", "mixture.html", "nightly.html", "leaderboard.parquet",
})  # fmt: skip
"""Names of files that show seconds or dates."""
GROUPED = frozenset({"cells", "checkpoints"})
"""Folders whose files depend on how configurations were grouped, and hold seconds."""
LOCK = ".lock"


def folder_bytes(folder: Path, *, without: Collection[str] = TIMED | GROUPED) -> dict[str, bytes]:
    """The content of every file below a folder, by relative path, but for locks and for files and folders `without`."""
    paths = {path.relative_to(folder): path for path in sorted(Path(folder).rglob("*")) if path.is_file()}
    return {
        str(name): path.read_bytes() for name, path in paths.items() if not {LOCK, *without}.intersection(name.parts)
    }


def assert_same_folder(
    folder: Path,
    expected: Path | Mapping[str, bytes],
    *,
    without: Collection[str] = TIMED | GROUPED,
    more: bool = False,
    what: object = "",
) -> None:
    """Assert that a folder has the files of another one, or these; with `more`, it may have further ones.

    A failure names the files that differ and `what`.
    """
    wanted = folder_bytes(expected, without=without) if isinstance(expected, Path) else expected
    found = folder_bytes(folder, without=without)
    names = wanted.keys() if more else wanted.keys() | found.keys()
    different = sorted(name for name in names if found.get(name) != wanted.get(name))
    assert not different, f"{what} {folder}: {different}"


def assert_same_results(run: Path, expected: Path) -> None:
    """Assert that two runs have the same tables of a search, choice and model, whatever their clusters."""
    for name in ("search/metrics.parquet", "search/curves.parquet", "search/best.json", "model/weights.parquet"):
        assert (run / name).read_bytes() == (expected / name).read_bytes(), name
