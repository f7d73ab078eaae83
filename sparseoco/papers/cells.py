"""Parts of an experiment, each run once: what it found stays on disk, so that a run that was killed goes on."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from sparseoco.core.progress import ProgressCallback
from sparseoco.storage.commit import commit_json, digest_value, read_json


class Cell(NamedTuple):
    """A part: `key` says all that what it finds depends on, and `run` finds it, a JSON value."""

    key: Mapping[str, Any]
    run: Callable[[], Any]


def run_cells(
    folder: Path, step: str, cells: Sequence[Cell], progress: ProgressCallback, threads: int | None = None
) -> Iterator[Any]:
    """What the cells find, in their order: side by side, by default a thread a processor, and read from `folder` where
    a cell of the same key has run before.

    Floats come back as they were: JSON has the shortest decimals that are read as the same number.
    """
    pool = ThreadPoolExecutor(threads or len(os.sched_getaffinity(0)), thread_name_prefix="reproduce")
    try:
        futures = [pool.submit(_found, folder / f"{digest_value(dict(cell.key))}.json", cell) for cell in cells]
        for done, future in enumerate(futures, start=1):
            yield future.result()
            progress(step, done, len(cells))
    finally:
        pool.shutdown(cancel_futures=True)


def _found(path: Path, cell: Cell) -> Any:
    if not path.exists():
        commit_json(path, cell.run())
    return read_json(path)
