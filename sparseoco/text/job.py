"""The context that the steps of one ingest share."""

from collections.abc import Sequence
from typing import NamedTuple

from sparseoco.core.progress import ProgressCallback
from sparseoco.storage.locations import Location
from sparseoco.text.options import TextOptions
from sparseoco.text.tasks import Result, Tasks


class IngestJob(NamedTuple):
    """Folders, options and tasks of one ingest.

    Parameters
    ----------
    out, staging : Location
        The store, and the folder for staging files.
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

    def wait(self, step: str, results: Sequence[Result]) -> list[object]:
        """The results of submitted tasks, with progress."""
        values = []
        for number, result in enumerate(results, 1):
            values.append(result.result())
            self.progress(step, number, len(results))
        return values
