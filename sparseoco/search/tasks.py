"""Blocks as Dask tasks: sent, watched, run again in halves where they fail, stopped at a time."""

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any

from distributed import Client, Future, KilledWorker, get_worker

from sparseoco.core.errors import SparseocoError
from sparseoco.core.logs import log_event
from sparseoco.core.progress import ProgressCallback
from sparseoco.execution.pool import WATCH_SECONDS, Workers, failure_reason, send
from sparseoco.search.increments import increment_store
from sparseoco.search.packing import Job, halved
from sparseoco.search.worker import Folders, run_block
from sparseoco.storage.commit import commit_bytes
from sparseoco.storage.locations import location
from sparseoco.store.cache import end_with_worker
from sparseoco.store.shards import Store
from sparseoco.training.block import Block, Key, StreamPosition, cell_path

TOPIC = "sparseoco-rows"
PROGRESS_SECONDS = 0.5


class ProgressTracker:
    """ProgressCallback in rows × configurations: how far each configuration has come in each fold, of `rows` each."""

    def __init__(self, step: str, keys: Sequence[Key], rows: int, progress: ProgressCallback) -> None:
        self._step, self._rows, self._progress = step, rows, progress
        self._reached = dict.fromkeys(keys, 0)
        self._total = len(self._reached) * rows
        self._done = 0
        self._lock = Lock()  # workers are heard in a thread of their own

    def reach(self, keys: Sequence[Key], rows: int | None = None) -> None:
        """These have come so far; None for those that go no further."""
        now = self._rows if rows is None else min(rows, self._rows)
        with self._lock:
            for key in keys:
                if now > self._reached[key]:
                    self._done += now - self._reached[key]
                    self._reached[key] = now
            self._progress(self._step, self._done, self._total)


def run_jobs(
    client: Client, jobs: Sequence[Job], store: Store, folders: Folders, meter: ProgressTracker, deadline: float | None
) -> dict[Key, str]:
    """Run blocks to their cells, in the order given; gives the reason of each configuration that could not be run.

    A block that fails is run again in two halves, until what fails is alone; a configuration whose worker died is then
    tried once more with nothing beside it. At `deadline` (a monotonic time) no block is begun any more and those under
    way keep their state and stop: what is not in its cell then is neither done nor failed. Raises `SparseocoError` for
    what would stop every block (a damaged shard, a full disk).
    """
    failures: dict[Key, str] = {}
    suspects: list[Job] = []
    running: dict[str, tuple[Future, Job, bool]] = {}
    sent: dict[str, float] = {}
    ended: SimpleQueue[str] = SimpleQueue()
    stopped, workers = False, Workers(client)

    def start(job: Job, *, alone: bool = False) -> None:
        block, milestones = job.block.model_dump(mode="json"), [list(milestone) for milestone in job.milestones]
        # Paths and a description travel, nothing larger: a lost task can be run again anywhere.
        paths = str(store.folder.resolve()), [str(path.resolve()) for path in folders]
        future = send(client, f"block-{job.block.digest}", _run_on_worker, block, milestones, *paths, job.resumable)
        running[future.key] = future, job, alone
        sent[future.key] = time.monotonic()
        future.add_done_callback(lambda future: ended.put(future.key))

    def stop() -> None:
        nonlocal stopped
        stopped = True
        commit_bytes(folders.stop, b"")

    with reported_rows(client, meter, {job.block.digest: job.block for job in jobs}) as blocks, _let_go(running):
        if deadline is not None and time.monotonic() >= deadline:
            stop()  # before a block could be quicker than the first look at the clock
        for job in jobs:
            start(job)
        while running:
            left = math.inf if deadline is None or stopped else max(0.0, deadline - time.monotonic())
            try:
                future, job, alone = running.pop(ended.get(timeout=min(left, WATCH_SECONDS)))
            except Empty:
                if left <= WATCH_SECONDS:
                    stop()
                workers.look()
                continue
            error = future.exception() if future.status == "error" else None
            _log_outcome(job, future.status, time.monotonic() - sent[future.key], error)
            if future.status == "finished":
                # What a task gives is lost with its worker, its cell is not.
                if cell_path(folders.cells, job.block, job.milestones[-1]).exists():
                    meter.reach(job.block.keys, job.milestones[-1].rows_before(store.n_rows))
            elif error is None:
                raise SparseocoError("The Dask cluster was lost while it worked; run again to go on.")
            elif not stopped:
                reason = failure_reason(error)
                halves = halved(job.block, store)
                if len(halves) == 2:
                    blocks |= {half.digest: half for half in halves}
                    for half in halves:
                        start(job._replace(block=half))
                elif isinstance(error, KilledWorker) and not alone:
                    suspects.append(job)
                else:
                    failures |= dict.fromkeys(job.block.keys, reason)
                    meter.reach(job.block.keys)
            if not running and suspects and not stopped:
                start(suspects.pop(), alone=True)
    return failures


@contextmanager
def _let_go(running: dict[str, tuple[Future, Job, bool]]) -> Iterator[None]:
    """On an error, what has not begun is not begun any more, though the error may keep all that it came through."""
    try:
        yield
    finally:
        for future, _, _ in running.values():
            future.release()


def _log_outcome(job: Job, status: str, seconds: float, error: BaseException | None) -> None:
    """Tell the log how a block ended, `seconds` after it was sent."""
    block, goal = job.block, job.milestones[-1]
    fields: dict[str, Any] = {
        "block": block.digest[:12],
        "algorithm": block.algorithm,
        "configurations": len(block.configurations),
        "fold": block.setting.fold,
        "epoch": goal.epoch,
        "row": goal.position,
        "seconds": round(seconds, 3),
    }
    if error is None:
        log_event("search", f"block {status}", **fields)
    else:
        log_event("search", "block failed", level=logging.WARNING, **fields, error=type(error).__name__)


def _run_on_worker(
    description: dict[str, Any], places: list[list[int]], store: str, paths: list[str], resumable: bool
) -> None:
    block = Block.model_validate(description)
    folders = Folders(*map(location, paths))
    increment = block.setting.increment
    run_block(
        block,
        [StreamPosition(*place) for place in places],
        Store.open(store) if increment is None else increment_store(location(store), increment.version),
        folders,
        Path(get_worker().local_directory),
        reporter(block),
        resumable=resumable,
        stopped=folders.stop.exists,
    )


def reporter(block: Block) -> Callable[[int], None]:
    """For a task: what tells the client how many rows of a block's stream lie behind, and ends with its worker."""
    worker, told = get_worker(), time.monotonic()

    def report(rows: int) -> None:
        nonlocal told
        end_with_worker()
        if time.monotonic() - told > PROGRESS_SECONDS:
            worker.log_event(TOPIC, {"block": block.digest, "rows": rows})
            told = time.monotonic()

    return report


@contextmanager
def reported_rows(client: Client, meter: ProgressTracker, blocks: dict[str, Block]) -> Iterator[dict[str, Block]]:
    """Turn what workers report of `blocks`, by digest, into progress; more may be added to what it gives."""

    def reported(event: tuple[float, dict[str, Any]]) -> None:
        block = blocks.get(event[1]["block"])
        if block is not None:
            meter.reach(block.keys, event[1]["rows"])

    meter.reach([], 0)
    client.subscribe_topic(TOPIC, reported)
    try:
        yield blocks
    finally:
        client.unsubscribe_topic(TOPIC)
