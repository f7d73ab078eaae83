"""The context that the steps over one text share."""

from collections.abc import Sequence
from typing import NamedTuple

from sparseoco.core.progress import ProgressCallback
from sparseoco.storage.locations import Location
from sparseoco.text.options import TextOptions
from sparseoco.text.tasks import Result, Tasks

TASKS = 16  # of each worker at least, before a task takes several splits
TASK_BYTES = 128 << 20  # of the splits of one task


class TextJob(NamedTuple):
    """Folders, options and tasks of an ingest, or of scoring.

    Parameters
    ----------
    out, staging : Location
        The folder of the results, and the folder for staging files.
    shard_bytes : int
        Raw text per shard.
    progress : callable
        Called with (step, done, total).
    tasks : Tasks
        Runs the steps.
    """

    out: Location
    staging: Location
    options: TextOptions
    shard_bytes: int
    progress: ProgressCallback
    tasks: Tasks

    def splits_per_task(self, splits: int) -> int:
        """How many of so many splits a task takes, one after the other: the client sends fewer tasks."""
        return max(1, min(TASK_BYTES // self.shard_bytes, splits // (self.tasks.width * TASKS)))

    def wait(self, step: str, results: Sequence[Result]) -> list[object]:
        """The results of submitted tasks, with progress."""
        values = []
        for number, result in enumerate(results, 1):
            values.append(result.result())
            self.progress(step, number, len(results))
        return values
