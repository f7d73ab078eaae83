"""Tasks of a search, of one stream or of parts that are averaged."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from distributed import Future

from sparseoco.core.errors import DamagedError, StorageError
from sparseoco.core.logs import RowsCallback
from sparseoco.execution.pool import TaskPool, task_reporter
from sparseoco.search.block_runs import (
    BlockRun,
    block_corpus,
    fitting_checkpoints,
    has_checkpoint,
    load_checkpoint,
    reached_position,
    save_checkpoint,
    start_run,
)
from sparseoco.search.packing import Job, state_bytes
from sparseoco.storage.checkpoints import read_checkpoint, write_checkpoint
from sparseoco.storage.commit import remove_file
from sparseoco.storage.locations import Location
from sparseoco.store.corpus import check_worker_running, host_folder
from sparseoco.store.shards import Store, StoreReference, open_store, store_reference
from sparseoco.training.block import Block, cell_path, write_cell
from sparseoco.training.folds import CountedRows, Floats, WeightAverage, part_span, passes_of
from sparseoco.training.learner import Learner, ProgressiveTotals
from sparseoco.training.metrics import curve_rows
from sparseoco.training.stream import StreamPosition, train

# ----------------------------------------------------------------------------------------------------------------------
# Running a block on a worker: commit a cell at each milestone, save checkpoints where they are worth their cost.
#
# The task is a pure function of its description, and its results are files named by their contents: running it again,
# on any worker, finds the files or writes the same ones.


POLL_SECONDS = 0.5  # between two checks of the stop file
CHECKPOINT_BYTES_PER_SECOND = 500e6  # rough speed of writing and syncing
PART_FORMAT = 2  # of the file of a part: with a row of the intercept


class Folders(NamedTuple):
    """The absolute paths of a search, which all workers see; blocks stop when the file `stop` exists."""

    cells: Location
    checkpoints: Location
    stop: Location

    @classmethod
    def of(cls, search: Location) -> "Folders":
        """The paths in the folder of a search."""
        folder = search.resolve()
        return cls(folder / "cells", folder / "checkpoints", folder / "stop")


class Place(NamedTuple):
    """What a task works with: the store, the folder of its host's files, how to report rows, and when to stop."""

    store: Store
    scratch: Path
    report: RowsCallback
    stopped: Callable[[], bool] = lambda: False


class Site(NamedTuple):
    """A store, and the file whose existence stops tasks. It is sent to workers, each of which opens it."""

    store: StoreReference
    stop: Location | None = None

    @classmethod
    def of(cls, store: Store, stop: Location | None = None) -> "Site":
        """The site of a store."""
        return cls(store_reference(store), stop)

    def open(self, blocks: Sequence[Block]) -> Place:
        """The place on this worker; its reports are of these blocks, and raise if the worker is closing."""
        report = task_reporter([block.digest for block in blocks], check_worker_running)
        place = Place(open_store(self.store), host_folder(), report)
        return place if self.stop is None else place._replace(stopped=self.stop.exists)


def run_block(
    site: Site, block: Block, milestones: Sequence[StreamPosition], folders: Folders, resumable: bool = False
) -> bool:
    """Run a block to the last of `milestones`, committing the cells that are missing: a task.

    Parameters
    ----------
    resumable : whether a later task continues the block, or part of it, from the last milestone. That holds for every
        increment, so its checkpoint is committed before its cell.

    Returns
    -------
    False if the site was stopped before the end; then there is a checkpoint if the disk has space for it.

    Raises
    ------
    StorageError : for a corrupt shard or a disk without space for a cell.
    """
    store, scratch, report, stopped = site.open([block])
    chained = block.setting.increment is not None
    missing = [milestone for milestone in milestones if not cell_path(folders.cells, block, milestone).exists()]
    if chained and not has_checkpoint(folders.checkpoints, block, milestones[-1]):
        missing = list(milestones)  # the next increment starts from the checkpoint
    if not missing:
        return True
    if stopped():
        return False
    corpus = block_corpus(block, store, scratch)
    run = load_checkpoint(folders.checkpoints, block, missing[0]) or start_run(folders.checkpoints, block, store)
    cost = state_bytes(block, store) / CHECKPOINT_BYTES_PER_SECOND
    polled = saved = time.monotonic()
    for milestone in missing:
        for position in run.learn(corpus, milestone):
            report(position.rows_before(corpus.n_rows))
            now = time.monotonic()
            if now - polled < POLL_SECONDS:
                continue
            polled, stop = now, stopped()
            # Scores of progressive predictions are not in a checkpoint: the increment is learned again.
            if not block.setting.progressive_metrics and _pays(now - saved, cost, requested=stop):
                _save_if_possible(folders, run)
                saved = run.clock = time.monotonic()
            if stop:
                return False
        if chained:
            save_checkpoint(folders.checkpoints, run)
        write_cell(cell_path(folders.cells, block, milestone), block, milestone, run.tables(corpus, store))
    if resumable and not chained and _pays(time.monotonic() - saved, cost, requested=True):
        _save_if_possible(folders, run)
    return True


def _save_if_possible(folders: Folders, run: BlockRun) -> None:
    """Save a checkpoint if the disk has space for it: without one the stream is learned again, with the same results.

    A cell is far smaller; if there is no space even for that, the search stops.
    """
    with suppress(StorageError):
        save_checkpoint(folders.checkpoints, run)


def _pays(lost: float, cost: float, *, requested: bool) -> bool:
    """Whether to save a checkpoint that takes `cost` seconds to write and would save `lost` seconds of work.

    With `requested` it will be used; otherwise only if the worker dies, and it must be a small part of the work.
    """
    return lost > max(1.0, 2 * cost) if requested else lost > max(10.0, 20 * cost)


# ----------------------------------------------------------------------------------------------------------------------
# Blocks of configurations with K parts: in every epoch K tasks learn a part each, and one averages their weights.
#
# The tasks of an epoch wait for the average of the epoch before. A part commits a file with its weights; the average
# commits the cell of the epoch, then a checkpoint of the block, whose learner starts the next epoch, and removes the
# files of the parts. A task whose file exists, or whose epoch is averaged, does nothing: so a run that was killed
# continues from the parts that it has, and any task may run twice.


def submit_epochs(pool: TaskPool, job: Job, store: Store, folders: Folders) -> Future:
    """Submit the tasks of a block with parts, from its last checkpoint on; returns the future of the last average.

    Checkpoints after the first missing cell are removed: they would end the tasks that write it.
    """
    block, goal = job.block, job.milestones[-1].epoch
    missing = [epoch for epoch in job.milestones if not cell_path(folders.cells, block, epoch).exists()]
    first = missing[0].epoch if missing else goal
    found = fitting_checkpoints(folders.checkpoints, block, job.milestones[-1])
    for checkpoint in found:
        if checkpoint.position.epoch >= first:
            checkpoint.remove()
    done = max((c.position.epoch for c in found if c.position.epoch < first), default=0)
    site = Site.of(store, folders.stop)
    last: Future | None = None
    for epoch in range(done + 1, goal + 1):
        parts = [pool.submit(learn_part, site, block, epoch, part, folders, last) for part in range(block.parts)]
        last = pool.submit(average_epoch, site, block, epoch, folders, parts)
    assert last is not None  # at least one epoch is left
    return last


def learn_part(site: Site, block: Block, epoch: int, part: int, folders: Folders, _: None = None) -> None:
    """Learn a part of an epoch and commit its weights, unless they exist or the epoch is averaged: a task.

    It waits for the average of the epoch before, the last argument. Raises `StorageError` for a corrupt shard or a full
    disk.
    """
    store, scratch, report, stopped = site.open([block])
    path, end = _part_path(folders.checkpoints, block, epoch, part), StreamPosition(epoch, store.n_rows)
    if path.exists() or reached_position(folders.checkpoints, block) >= end or stopped():
        return
    learner, started = _before(block, epoch, store, folders).learner, time.monotonic()
    corpus = block_corpus(block, store, scratch)
    counted = CountedRows(corpus, store.n_features)
    start, stop = (StreamPosition(epoch, position) for position in part_span(store.n_rows, block.parts, part))
    polled = time.monotonic()
    for position in train(learner, counted, passes_of(block.setting, corpus, stop, start, learner=learner)):
        report((epoch - 1) * store.n_rows + position.position - start.position)
        if time.monotonic() - polled > POLL_SECONDS:
            polled = time.monotonic()
            if stopped():
                return
    seen, progress = np.flatnonzero(counted.counts), learner.progress
    description = {
        "rows": progress.rows,
        "loss_sum": progress.loss_sum.tolist(),
        "error_count": progress.error_count.tolist(),
        "diverged": learner.diverged.tolist(),
        "rounds": learner.rounds,
        "seconds": time.monotonic() - started,
    }
    arrays = {
        "features": np.append(seen, store.n_features),
        "counts": np.append(counted.counts[seen], progress.rows),
        "weights": _with_intercepts(learner.weights()[seen], learner),
    }
    write_checkpoint(path, description, arrays.items())


def average_epoch(site: Site, block: Block, epoch: int, folders: Folders, _: Sequence[None] = ()) -> None:
    """Average the parts of an epoch and commit its cell and the checkpoint, unless they exist: a task.

    It waits for the parts, the last argument. Raises `StorageError` for a corrupt shard or a full disk.
    """
    store, scratch, report, stopped = site.open([block])
    end = StreamPosition(epoch, store.n_rows)
    if reached_position(folders.checkpoints, block) >= end or stopped():
        return
    before = _before(block, epoch, store, folders)
    average = WeightAverage(_with_intercepts(before.learner.weights(), before.learner))
    totals, diverged, rounds, seconds = before.epoch_start, before.learner.diverged, 0, 0.0
    paths = [_part_path(folders.checkpoints, block, epoch, part) for part in range(block.parts)]
    for path in paths:
        try:
            with read_checkpoint(path) as (description, read):
                average.add(read("features"), read("counts"), read("weights"))
                own = np.array(description["diverged"])  # rows of the part; those before it are in `totals`
                diverged = np.where((diverged == 0) & (own > 0), totals.rows + own, diverged)
                totals = ProgressiveTotals(
                    totals.rows + description["rows"],
                    totals.loss_sum + np.array(description["loss_sum"]),
                    totals.error_count + np.array(description["error_count"]),
                )
                rounds, seconds = rounds + description["rounds"], seconds + description["seconds"]
        except DamagedError:
            if reached_position(folders.checkpoints, block) >= end:  # this task runs twice, and the other was first
                return
            remove_file(path)  # a corrupt part is learned again
            raise
    weights = average.weights()
    weights[:, np.repeat(diverged > 0, store.n_outputs)] = 0
    learner = Learner(**before.learner.description)
    learner.start_from(weights[:-1], max(1, rounds // block.parts), weights[-1] if learner.intercept else None)
    learner.stop_diverged(diverged)
    curves = [[point] for point in curve_rows(totals, numbers=learner.n_classes is None)]
    run = BlockRun(block, learner, end, before.epoch_start, curves, seconds, totals)
    corpus = block_corpus(block, store, scratch)
    write_cell(cell_path(folders.cells, block, end), block, end, run.tables(corpus, store))
    save_checkpoint(folders.checkpoints, BlockRun(block, learner, end, totals))
    for path in paths:
        remove_file(path)
    report(end.rows_before(store.n_rows))


def _with_intercepts(weights: Floats, learner: Learner) -> Floats:
    """Weights (features, columns), with the intercepts as those of one more feature."""
    return np.vstack([weights, learner.intercepts().reshape(1, -1)])


def _before(block: Block, epoch: int, store: Store, folders: Folders) -> BlockRun:
    """The block at the start of an epoch; its `epoch_start` has the totals of the earlier ones."""
    if epoch == 1:
        return BlockRun.new(block, store)
    position = StreamPosition(epoch - 1, store.n_rows)
    run = load_checkpoint(folders.checkpoints, block, position)
    if run is None or run.position != position:
        raise StorageError(
            f"The averaged weights of epoch {epoch - 1} in {folders.checkpoints} are missing: run again.",
            code="state-lost",
        )
    return run


def _part_path(checkpoints: Location, block: Block, epoch: int, part: int) -> Location:
    return checkpoints / f"{block.setting.digest}-{block.digest}-{epoch}-part-{part}-{PART_FORMAT}.npz"
