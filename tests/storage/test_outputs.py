"""Folders that a command may write to: new, empty, of its own kind, or left by an interrupted one of its kind."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from sparseoco.storage.commit import commit_bytes, commit_json
from sparseoco.storage.locations import Location
from sparseoco.storage.locks import FolderKind, check_folder, exclusive_lock
from sparseoco.storage.tables import write_parquet
from tests.support.errors import raises_code
from tests.support.wrong_shapes import checksummed

KIND = FolderKind("a thing", ("thing.json",), ("table.parquet", "page.html", "parts", f"*-{'?' * 24}.parquet"))
OTHER = FolderKind("another", ("other.json",), ())
LOG = b'{"time": "", "level": "info", "logger": "sparseoco", "event": ""}\n'


def write(folder: Location, **files: bytes) -> None:
    for name, data in files.items():
        commit_bytes(folder / name.replace("_", "."), data)


def interrupted(folder: Path) -> None:
    """A command was stopped before it wrote the mark, or the mark was damaged since."""
    with exclusive_lock(folder, KIND):
        write(folder, table_parquet=b"", page_html=b"", thing_json=b"{")


ACCEPTED: dict[str, Callable[[Path], object]] = {
    "new": lambda folder: None,
    "empty": lambda folder: folder.mkdir(),
    "hidden": lambda folder: write(folder, **{"_gitkeep": b"", "_own.aaaaaaaa-bbbbbbbb.tmp": b""}),
    "run file and log": lambda folder: write(folder, run_toml=b"", log_jsonl=LOG),
    "marked": lambda folder: write(folder, thing_json=checksummed({}), notes_txt=b"kept"),
    "interrupted": interrupted,
    "without a lease": lambda folder: write_parquet(folder / "table.parquet", pa.table({"a": [1]})),
    "named by content": lambda folder: write(folder / "parts", **{f"x-{'0' * 24}_parquet": b"kept"}),
}
REFUSED: dict[str, Callable[[Path], object]] = {
    "notes": lambda folder: write(folder, notes_txt=b"", thing_json=b"{}"),
    "another mark": lambda folder: write(folder, thing_json=b'{"a": 1}'),
    "another table": lambda folder: write(folder, table_parquet=b"PAR1"),
    "a page": lambda folder: write(folder, page_html=b"<html>"),
    "another kind": lambda folder: commit_json(folder / "other.json", {}),
    "notes beside a lock": lambda folder: (interrupted(folder), write(folder, notes_txt=b"")),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_folders_that_are_written_to(tmp_path: Path, case: str) -> None:
    ACCEPTED[case](tmp_path / "out")
    with exclusive_lock(tmp_path / "out", KIND):
        pass
    check_folder(tmp_path / "out", KIND, OTHER)


@pytest.mark.parametrize("case", REFUSED)
def test_folders_that_are_left_alone(tmp_path: Path, case: str) -> None:
    REFUSED[case](tmp_path / "out")
    before = sorted(tmp_path.rglob("*"))
    with raises_code("folder-not-empty", tmp_path / "out", "a thing"), exclusive_lock(tmp_path / "out", KIND):
        pass
    assert sorted(tmp_path.rglob("*")) == before
    with exclusive_lock(tmp_path / "out"):  # whoever does not say what it writes only changes what is there
        pass


def test_a_file_has_one_name(tmp_path: Path) -> None:
    """A mark that was copied from another file of the same kind is none."""
    commit_json(tmp_path / "a" / "thing.json", {})
    write(tmp_path / "b", thing_json=(tmp_path / "a" / "thing.json").read_bytes(), notes_txt=b"")
    check_folder(tmp_path / "b", KIND)
    commit_json(tmp_path / "a" / "other.json", {})
    write(tmp_path / "c", thing_json=(tmp_path / "a" / "other.json").read_bytes())
    with raises_code("folder-not-empty"):
        check_folder(tmp_path / "c", KIND)
