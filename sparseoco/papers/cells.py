"""Parts of an experiment, each run once: results stay on disk, so that an interrupted experiment resumes."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from sparseoco.core.errors import DamagedError
from sparseoco.core.progress import ProgressCallback
from sparseoco.storage.commit import commit_json, digest_value, read_json


class Cell(NamedTuple):
    """A part: `key` is everything its result depends on, and `run` computes the result, a JSON value."""

    key: Mapping[str, Any]
    run: Callable[[], Any]


def run_cells(
    folder: Path, step: str, cells: Sequence[Cell], progress: ProgressCallback, threads: int | None = None
) -> list[Any]:
    """The cells' results in order, computed in threads (by default one per processor), or read from `folder` if a cell
    of the same key has run before.

    Floats are exact: JSON has the shortest decimals that parse to the same number.
    """
    results = []
    pool = ThreadPoolExecutor(threads or len(os.sched_getaffinity(0)), thread_name_prefix="reproduce")
    try:
        futures = [pool.submit(_result, folder / f"{digest_value(dict(cell.key))}.json", cell) for cell in cells]
        for done, future in enumerate(futures, start=1):
            results.append(future.result())
            progress(step, done, len(cells))
    finally:
        pool.shutdown(cancel_futures=True)
    return results


def _result(path: Path, cell: Cell) -> Any:
    with suppress(DamagedError):  # it has not run, or its file is corrupt
        return read_json(path)["result"]
    result = cell.run()
    commit_json(path, {"result": result})
    return result
