"""Blocks of epoch methods in a search: one after the other, each spread over the whole cluster by itself."""

import time
from collections.abc import Sequence

from distributed import Client

from sparseoco.execution.pool import failure_reason
from sparseoco.offline.epoch_tasks import run_epoch_block
from sparseoco.search.packing import Job, halved
from sparseoco.search.tasks import ProgressTracker
from sparseoco.search.worker import Folders
from sparseoco.store.shards import Store
from sparseoco.training.block import Key


def run_epoch_jobs(
    client: Client, jobs: Sequence[Job], store: Store, folders: Folders, meter: ProgressTracker, deadline: float | None
) -> dict[Key, str]:
    """Run blocks to their last epoch, as `run_jobs` does those of streams; nothing is begun after `deadline`.

    A block that fails is run again in two halves, until what fails is alone. Gives the reason of each configuration
    that could not be run.
    """
    failures: dict[Key, str] = {}
    waiting = [job.block for job in reversed(jobs)]

    def late() -> bool:
        return deadline is not None and time.monotonic() >= deadline

    while waiting and not late():
        block = waiting.pop()

        def report(rows: int, keys: list[Key] = block.keys) -> None:
            meter.reach(keys, rows)

        try:
            run_epoch_block(client, block, store, folders.cells, folders.checkpoints, report, stopped=late)
        except Exception as error:  # whatever a worker met; what would stop every block is raised again
            reason = failure_reason(error)
            halves = halved(block, store)
            if len(halves) == 2:
                waiting += reversed(halves)
            else:
                failures |= dict.fromkeys(block.keys, reason)
                meter.reach(block.keys)
    return failures
