"""Work files of runs that were killed: those that are damaged are removed, and computed again."""

import logging
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from sparseoco.core.logs import log_event
from sparseoco.execution.pool import TaskPool
from sparseoco.storage.commit import remove_file
from sparseoco.storage.locations import Location, location
from sparseoco.storage.outputs import is_intact
from sparseoco.storage.remote import RemotePath

BATCH = 64  # files that a task reads


def remove_damaged(pool: TaskPool, folder: Location) -> int:
    """Remove the damaged files of a folder that a run resumes from; returns their number.

    Every file is read once, by tasks; the folder of a run that was not killed has none. Raises `StorageError` for a
    file that cannot be read now.
    """
    files = (str(path.resolve()) for path in _files(folder))
    return sum(pool.map(_remove_damaged, [(paths,) for paths in _batches(files)]))


def _files(folder: Location) -> Iterator[Location]:
    if isinstance(folder, RemotePath):
        return (path for path, status in folder.list(recursive=True) if status is not None)
    return (path for path in Path(str(folder)).rglob("*") if path.is_file())


def _remove_damaged(paths: list[str]) -> int:
    damaged = [path for path in map(location, paths) if not is_intact(path)]
    for path in damaged:
        log_event("cluster", "damaged work file removed", level=logging.WARNING, file=str(path))
        remove_file(path)
    return len(damaged)


def _batches(files: Iterator[str]) -> Iterator[list[str]]:
    while batch := list(islice(files, BATCH)):
        yield batch
