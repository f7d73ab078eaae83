"""Running a block on a worker: commit a cell at each milestone, save checkpoints where they are worth their cost.

The task is a pure function of its description, and its results are files named by their contents: running it again, on
any worker, finds the files or writes the same ones.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from sparseoco.core.errors import StorageError
from sparseoco.core.progress import RowsCallback
from sparseoco.search.block_run import BlockRun
from sparseoco.search.checkpoints import has_checkpoint, load_checkpoint, save_checkpoint
from sparseoco.search.increments import block_weights, start_run
from sparseoco.search.packing import state_bytes
from sparseoco.storage.locations import Location
from sparseoco.store.corpus import weighted_corpus
from sparseoco.store.shards import Store
from sparseoco.training.block import Block, cell_path, write_cell
from sparseoco.training.stream import StreamPosition

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
