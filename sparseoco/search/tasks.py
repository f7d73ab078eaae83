"""Blocks as tasks on the cluster: stream blocks run concurrently, blocks of epoch methods one after the other."""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

from distributed import Client, Future

from sparseoco.core.logs import log_event
from sparseoco.core.progress import ProgressCallback, RowsCallback
from sparseoco.execution.pool import Outcome, TaskError, TaskPool, failure_reason
from sparseoco.execution.reports import task_reporter, task_reports
from sparseoco.offline.cluster.epochs import run_epoch_block
from sparseoco.search.checkpoints import reached_position
from sparseoco.search.packing import Job, halved
from sparseoco.search.parts import submit_epochs
from sparseoco.search.worker import Folders, run_block
from sparseoco.storage.commit import commit_bytes
from sparseoco.storage.locations import Location, location
from sparseoco.store.references import StoreReference, open_store, store_reference
from sparseoco.store.shards import Store
from sparseoco.store.worker import check_worker_running, host_folder
from sparseoco.training.block import Block, Key, cell_path
from sparseoco.training.stream import StreamPosition

BLOCK_TRIES = 2  # for a configuration whose worker was killed


class ProgressTracker:
    """Progress in rows × configurations: the position of each configuration in each fold, of `rows` each."""

    def __init__(self, step: str, keys: Sequence[Key], rows: int, progress: ProgressCallback) -> None:
        self._step, self._rows, self._progress = step, rows, progress
        self._reached = dict.fromkeys(keys, 0)
        self._total = len(self._reached) * rows
        self._done = 0
        self._lock = Lock()  # workers report in a thread of their own

    def reach(self, keys: Sequence[Key], rows: int | None = None) -> None:
        """Record that these configurations are at `rows`; None for the end, also of those that failed."""
        now = self._rows if rows is None else min(rows, self._rows)
        with self._lock:
            for key in keys:
                if now > self._reached[key]:
                    self._done += now - self._reached[key]
                    self._reached[key] = now
            self._progress(self._step, self._done, self._total)


def run_jobs(
    client: Client,
    jobs: Sequence[Job],
    store: Store,
    folders: Folders,
    tracker: ProgressTracker,
    deadline: float | None,
) -> dict[Key, str]:
    """Run stream blocks in the given order, until their cells are committed; returns the reasons of failures.

    A block that fails is split in halves until the failing configuration is alone; if its worker died, it is then tried
    once more with nothing else running. After `deadline` (`time.monotonic()`) no block is started, and running ones
    save a checkpoint and stop: configurations without a cell then are neither done nor failed. Raises `SparseocoError`
    for what would stop every block (a corrupt shard, a full disk).
    """
    pool, failures = TaskPool(client), dict[Key, str]()
    with reported_rows(client, tracker, {}) as blocks:

        def start(job: Job) -> Future:
            blocks[job.block.digest] = job.block
            if job.block.parts > 1:
                return submit_epochs(pool, job, store, folders)
            block, milestones = job.block.model_dump(mode="json"), [list(milestone) for milestone in job.milestones]
            # Only a reference, paths and a description are sent, so a lost task can run again on any worker.
            paths = store_reference(store), [str(path.resolve()) for path in folders]
            return pool.submit(_run_block_task, block, milestones, *paths, job.resumable)

        for outcome in pool.run(
            jobs,
            start,
            split=lambda job: [job._replace(block=half) for half in halved(job.block, store)],
            tries=BLOCK_TRIES,
            deadline=deadline,
            stop=lambda: commit_bytes(folders.stop, b""),
        ):
            _log_outcome(outcome)
            block, goal = outcome.task.block, outcome.task.milestones[-1]
            if outcome.failure is not None:
                failures |= dict.fromkeys(block.keys, outcome.failure)
                tracker.reach(block.keys)
            # A cell survives the worker that wrote it, the result of the task does not.
            elif outcome.error is None and cell_path(folders.cells, block, goal).exists():
                tracker.reach(block.keys, goal.rows_before(store.n_rows))
    return failures


def run_parts(
    client: Client, blocks: Sequence[Block], store: Store, work: Location, tracker: ProgressTracker, failure: str
) -> None:
    """Run blocks of one configuration with several parts to their last epoch, in the folder `work`.

    Raises `TaskError`, which begins with `failure`, if one cannot be run.
    """
    epochs = range(1, blocks[0].setting.epochs + 1)
    milestones = tuple(StreamPosition(epoch, store.n_rows) for epoch in epochs)
    folders = Folders.of(work)
    waiting = [block for block in blocks if reached_position(folders.checkpoints, block) < milestones[-1]]
    jobs = [Job(block, milestones, resumable=False) for block in waiting]
    for reason in run_jobs(client, jobs, store, folders, tracker, None).values():
        raise TaskError(failure, reason)


def run_epoch_jobs(
    client: Client,
    jobs: Sequence[Job],
    store: Store,
    folders: Folders,
    tracker: ProgressTracker,
    deadline: float | None,
) -> dict[Key, str]:
    """Run blocks of epoch methods to their last epoch; otherwise as `run_jobs`.

    One block runs at a time, since each is spread over the whole cluster.
    """
    failures: dict[Key, str] = {}
    waiting = [job.block for job in reversed(jobs)]

    def late() -> bool:
        return deadline is not None and time.monotonic() >= deadline

    while waiting and not late():
        block = waiting.pop()

        def report(rows: int, keys: list[Key] = block.keys) -> None:
            tracker.reach(keys, rows)

        try:
            run_epoch_block(client, block, store, folders.cells, folders.checkpoints, report, stopped=late)
        except Exception as error:  # any failure of a task; `failure_reason` raises what would stop every block
            reason = failure_reason(error)
            halves = halved(block, store)
            if len(halves) == 2:
                waiting += reversed(halves)
            else:
                failures |= dict.fromkeys(block.keys, reason)
                tracker.reach(block.keys)
    return failures


def _log_outcome(outcome: Outcome[Job]) -> None:
    block, goal, error = outcome.task.block, outcome.task.milestones[-1], outcome.error
    fields: dict[str, Any] = {
        "block": block.digest[:12],
        "algorithm": block.algorithm,
        "configurations": len(block.configurations),
        "fold": block.setting.fold,
        "epoch": goal.epoch,
        "row": goal.position,
        "seconds": round(outcome.seconds, 3),
    }
    if error is None:
        log_event("search", "block finished", **fields)
    else:
        log_event("search", "block failed", level=logging.WARNING, **fields, error=type(error).__name__)


def _run_block_task(
    description: dict[str, Any], positions: list[list[int]], store: StoreReference, paths: list[str], resumable: bool
) -> None:
    block = Block.model_validate(description)
    folders = Folders(*map(location, paths))
    run_block(
        block,
        [StreamPosition(*position) for position in positions],
        open_store(store),
        folders,
        host_folder(),
        reporter([block]),
        resumable=resumable,
        stopped=folders.stop.exists,
    )


def reporter(blocks: Sequence[Block]) -> RowsCallback:
    """For a task: reports to the client how many rows of the blocks' stream are learned; ends with its worker."""
    return task_reporter([block.digest for block in blocks], check_worker_running)


@contextmanager
def reported_rows(client: Client, tracker: ProgressTracker, blocks: dict[str, Block]) -> Iterator[dict[str, Block]]:
    """Track what workers report of `blocks`, by digest; more blocks may be added to the mapping that it yields."""

    def reported(name: str, rows: int) -> None:
        block = blocks.get(name)
        if block is not None:
            tracker.reach(block.keys, rows)

    tracker.reach([], 0)
    with task_reports(client, reported):
        yield blocks
