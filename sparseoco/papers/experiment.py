"""What all experiments begin and end with: their input files, and the tables and page they write."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from sparseoco import __version__
from sparseoco.core.errors import InputError
from sparseoco.papers.tables import Records
from sparseoco.storage.commit import commit_bytes, commit_json, digest_file
from sparseoco.storage.metrics import write_result_table
from sparseoco.storage.outputs import FolderKind

EXPERIMENT_FOLDER = FolderKind("an experiment", ("inputs.json",), ("cells", "stores", "*.parquet", "*.html"))


def find_file(folder: Path, name: str) -> Path | None:
    """A file in the folder or in one of its subfolders; the first by path."""
    return next(iter(sorted(folder.glob(name)) or sorted(folder.glob(f"*/{name}"))), None)


def find_files(folder: Path, names: Iterable[str], *, required: bool = True) -> dict[str, Path]:
    """The files there are, by name. Raises `InputError` if there are none and one is `required`."""
    paths = {name: find_file(folder, name) for name in dict.fromkeys(names)}
    found = {name: path for name, path in paths.items() if path is not None}
    if required and not found:
        raise InputError(f"{folder} has none of the input files: {', '.join(paths)}.", code="missing-file")
    return found


def check_repetitions(**counts: int) -> None:
    """Raise `InputError` for fewer than two repetitions, which have no standard error."""
    for name, count in counts.items():
        if count < 2:
            raise InputError(f"{name}={count} must be at least 2, for a standard error.", code="invalid-option")


def publish(
    out: Path,
    name: str,
    records: Records,
    schemas: Mapping[str, pa.Schema],
    inputs: Mapping[str, Any],
    files: Mapping[str, Path],
    page: Callable[[Records, dict[str, Any]], str],
) -> Path:
    """Write a table per schema, inputs.json and NAME.html; returns the path of the page."""
    for table, schema in schemas.items():
        write_result_table(out / f"{table}.parquet", records[table], schema)
    digests = {file: digest_file(path) for file, path in files.items()}
    described = {"sparseoco": __version__, **inputs, "files": digests}
    commit_json(out / "inputs.json", described)
    path = out / f"{name}.html"
    commit_bytes(path, page(records, described).encode())
    return path
