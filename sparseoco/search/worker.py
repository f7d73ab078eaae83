"""Tasks of a search, of one stream or of parts that are averaged."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from distributed import Future
from numpy.typing import NDArray

from sparseoco.core.errors import DamagedError, StorageError
from sparseoco.core.logs import RowsCallback
from sparseoco.execution.pool import TaskPool, task_reporter
from sparseoco.search.packing import Job, state_bytes
from sparseoco.search.results import (
    BlockRun,
    block_weights,
    fitting_checkpoints,
    has_checkpoint,
    load_checkpoint,
    reached_position,
    save_checkpoint,
    start_run,
)
from sparseoco.storage.checkpoints import read_checkpoint, write_checkpoint
from sparseoco.storage.commit import remove_file
from sparseoco.storage.locations import Location, location
from sparseoco.store.corpus import check_worker_running, host_folder, weighted_corpus
from sparseoco.store.shards import Store, StoreReference, open_store, store_reference
from sparseoco.store.terms import term_weights
from sparseoco.training.block import Block, cell_path, write_cell
from sparseoco.training.folds import CountedRows, Floats, PartWeights, WeightAverage, fold_order, part_span
from sparseoco.training.learner import Learner, ProgressiveTotals
from sparseoco.training.metrics import curve_rows
from sparseoco.training.stream import StreamPosition, class_weighted, stream
from sparseoco.training.validation import chunk_rows

# ----------------------------------------------------------------------------------------------------------------------
# Running a block on a worker: commit a cell at each milestone, save checkpoints where they are worth their cost.
#
# The task is a pure function of its description, and its results are files named by their contents: running it again,
# on any worker, finds the files or writes the same ones.


POLL_SECONDS = 0.5  # between two checks of the stop file
CHECKPOINT_BYTES_PER_SECOND = 500e6  # rough speed of writing and syncing


class Folders(NamedTuple):
    """The paths of a search, which all workers see; blocks stop when the file `stop` exists."""

    cells: Location
    checkpoints: Location
    stop: Location

    @classmethod
    def of(cls, search: Location) -> "Folders":
        """The paths in the folder of a search."""
        return cls(search / "cells", search / "checkpoints", search / "stop")


def run_block(
    block: Block,
    milestones: Sequence[StreamPosition],
    store: Store,
    folders: Folders,
    scratch: Path,
    report: RowsCallback,
    *,
    resumable: bool = False,
    stopped: Callable[[], bool] = lambda: False,
) -> bool:
    """Run a block to the last of `milestones`, committing the cells that are missing.

    Parameters
    ----------
    report : called with the number of rows learned.
    resumable : whether a later task continues the block, or part of it, from the last milestone. That holds for every
        increment, so its checkpoint is committed before its cell.
    stopped : whether to end before the last milestone, with a checkpoint if the disk has space for it.

    Returns
    -------
    False if `stopped` returned True before the end.

    Raises
    ------
    StorageError : for a corrupt shard or a disk without space for a cell.
    """
    chained = block.setting.increment is not None
    missing = [milestone for milestone in milestones if not cell_path(folders.cells, block, milestone).exists()]
    if chained and not has_checkpoint(folders.checkpoints, block, milestones[-1]):
        missing = list(milestones)  # the next increment starts from the checkpoint
    if not missing:
        return True
    if stopped():
        return False
    corpus = weighted_corpus(store, scratch, block_weights(block, store), block.setting.dtype)
    run = load_checkpoint(folders.checkpoints, block, missing[0]) or start_run(folders.checkpoints, block, store)
    cost = state_bytes(block, store) / CHECKPOINT_BYTES_PER_SECOND
    polled = saved = time.monotonic()
    for milestone in missing:
        for _ in run.advance(corpus, milestone):
            report(run.position.rows_before(corpus.n_rows))
            now = time.monotonic()
            if now - polled < POLL_SECONDS:
                continue
            polled, stop = now, stopped()
            # Scores of progressive predictions are not in a checkpoint: the increment is learned again.
            if not block.setting.progressive_metrics and _pays(now - saved, cost, requested=stop):
                _save_if_possible(folders, run)
                saved = time.monotonic()
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
    shared = (block.model_dump(mode="json"), store_reference(store), [str(path.resolve()) for path in folders])
    last: Future | None = None
    for epoch in range(done + 1, goal + 1):
        parts = [pool.submit(_part_task, *shared, epoch, part, last) for part in range(block.parts)]
        last = pool.submit(_average_task, *shared, epoch, parts)
    assert last is not None  # at least one epoch is left
    return last


def learn_part(
    block: Block,
    epoch: int,
    part: int,
    store: Store,
    folders: Folders,
    scratch: Path,
    report: RowsCallback,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Learn a part of an epoch and commit its weights, unless they exist, the epoch is averaged or `stopped()`.

    Raises `StorageError` for a corrupt shard or a full disk.
    """
    path, end = _part_path(folders.checkpoints, block, epoch, part), StreamPosition(epoch, store.n_rows)
    if path.exists() or reached_position(folders.checkpoints, block) >= end or stopped():
        return
    learner, started = _before(block, epoch, store, folders).learner, time.monotonic()
    corpus = weighted_corpus(store, scratch, term_weights(store, block.weighting), block.setting.dtype)
    counted = CountedRows(corpus, store.n_features)
    source = class_weighted(counted, block.setting.class_weights)
    start, stop = (StreamPosition(epoch, position) for position in part_span(store.n_rows, block.parts, part))
    size = chunk_rows(block.algorithm, learner.n_features, learner.n_columns)
    polled = time.monotonic()
    for position, rows in stream(source, fold_order(block.setting, corpus), start, stop, (), size):
        learner.learn_rows(*rows)
        report((epoch - 1) * store.n_rows + position.position - start.position)
        if time.monotonic() - polled > POLL_SECONDS:
            polled = time.monotonic()
            if stopped():
                return
    seen = np.flatnonzero(counted.counts)
    progress = learner.progress
    description = {
        "rows": progress.rows,
        "loss_sum": progress.loss_sum.tolist(),
        "error_count": progress.error_count.tolist(),
        "diverged": learner.diverged.tolist(),
        "rounds": learner.rounds,
        "seconds": time.monotonic() - started,
    }
    arrays = {"features": seen, "counts": counted.counts[seen], "weights": learner.weights()[seen]}
    write_checkpoint(path, description, [*arrays.items(), ("intercepts", learner.intercepts().reshape(1, -1))])


def average_epoch(
    block: Block,
    epoch: int,
    store: Store,
    folders: Folders,
    scratch: Path,
    report: RowsCallback,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Average the parts of an epoch and commit its cell and the checkpoint, unless they exist or `stopped()`.

    Raises `StorageError` for a corrupt shard or a full disk.
    """
    end = StreamPosition(epoch, store.n_rows)
    if reached_position(folders.checkpoints, block) >= end or stopped():
        return
    before = _before(block, epoch, store, folders)
    weights = WeightAverage(before.learner.weights())
    intercepts = WeightAverage(before.learner.intercepts().reshape(1, -1))
    described = []
    paths = [_part_path(folders.checkpoints, block, epoch, part) for part in range(block.parts)]
    for path in paths:
        try:
            with read_checkpoint(path) as (description, read):
                weights.add(PartWeights(*map(read, PartWeights._fields)))
                rows = np.array([description["rows"]])
                if rows[0]:
                    intercepts.add(PartWeights(np.zeros(1, np.int64), rows, read("intercepts")))
                described.append(description)
        except DamagedError:
            if reached_position(folders.checkpoints, block) >= end:  # this task runs twice, and the other was first
                return
            remove_file(path)  # a corrupt part is learned again
            raise
    diverged = _diverged(before, described)
    learner = _averaged_learner(before, weights.weights(), intercepts.weights(), diverged, described)
    start = before.epoch_start
    totals = ProgressiveTotals(
        start.rows + sum(description["rows"] for description in described),
        sum((np.array(d["loss_sum"]) for d in described), start.loss_sum),
        sum((np.array(d["error_count"]) for d in described), start.error_count),
    )
    curves = [[point] for point in curve_rows(totals, numbers=learner.n_classes is None)]
    seconds = sum(description["seconds"] for description in described)
    run = BlockRun(block, learner, end, start, curves, seconds, totals)
    corpus = weighted_corpus(store, scratch, term_weights(store, block.weighting), block.setting.dtype)
    write_cell(cell_path(folders.cells, block, end), block, end, run.tables(corpus, store))
    save_checkpoint(folders.checkpoints, BlockRun(block, learner, end, totals))
    for path in paths:
        remove_file(path)
    report(end.rows_before(store.n_rows))


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


def _averaged_learner(
    before: BlockRun, weights: Floats, intercepts: Floats, diverged: NDArray[np.int64], described: list[dict[str, Any]]
) -> Learner:
    """A learner that starts from averaged weights; those of configurations that diverged are 0."""
    ended = np.repeat(diverged > 0, before.learner.n_outputs)
    weights[:, ended] = 0
    intercepts[:, ended] = 0
    learner = Learner(**before.learner.description)
    rounds = max(1, sum(description["rounds"] for description in described) // len(described))
    learner.start_from(weights, rounds, intercepts if learner.intercept else None)
    learner.stop_diverged(diverged)
    return learner


def _diverged(before: BlockRun, described: list[dict[str, Any]]) -> NDArray[np.int64]:
    """(configurations,): the row of the stream at which each diverged, the parts one after the other, or 0."""
    found, first = before.learner.diverged.copy(), before.epoch_start.rows
    for description in described:
        own = np.array(description["diverged"])
        found = np.where((found == 0) & (own > 0), first + own, found)
        first += description["rows"]
    return found


def _part_path(checkpoints: Location, block: Block, epoch: int, part: int) -> Location:
    return checkpoints / f"{block.setting.digest}-{block.digest}-{epoch}-part-{part}.npz"


def _part_task(
    description: dict[str, Any], store: StoreReference, paths: list[str], epoch: int, part: int, _: None
) -> None:
    learn_part(Block.model_validate(description), epoch, part, *_places(description, store, paths))


def _average_task(
    description: dict[str, Any], store: StoreReference, paths: list[str], epoch: int, _: list[None]
) -> None:
    average_epoch(Block.model_validate(description), epoch, *_places(description, store, paths))


def _places(
    description: dict[str, Any], store: StoreReference, paths: list[str]
) -> tuple[Store, Folders, Path, RowsCallback, Callable[[], bool]]:
    """What both tasks need: store, folders, the scratch folder, how to report rows, and whether to stop."""
    folders = Folders(*map(location, paths))
    report = task_reporter([Block.model_validate(description).digest], check_worker_running)
    return open_store(store), folders, host_folder(), report, folders.stop.exists
