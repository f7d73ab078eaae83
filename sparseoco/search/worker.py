"""What a worker does with a block: run it to each milestone, commit a cell there, save checkpoints where that pays.

The task is a pure function of its description. Its results are files named by what they hold, so running it again, here
or elsewhere, writes the same files or finds them.
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
from sparseoco.search.increments import start_run
from sparseoco.search.packing import state_bytes
from sparseoco.storage.locations import Location
from sparseoco.store.corpus import open_corpus
from sparseoco.store.shards import Store
from sparseoco.training.block import Block, cell_path, write_cell
from sparseoco.training.stream import StreamPosition

POLL_SECONDS = 0.5  # between two checks of the clock and the stop file
CHECKPOINT_BYTES_PER_SECOND = 500e6  # at which a checkpoint is written and synced, roughly


class Folders(NamedTuple):
    """Where a search keeps its files, seen by all workers; `stop` is a file that asks them to stop."""

    cells: Location
    checkpoints: Location
    stop: Location

    @classmethod
    def of(cls, search: Location) -> "Folders":
        """Those in the folder of a search."""
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
    """Run a block to the last of `milestones`, committing its cell at each where there is none yet.

    Parameters
    ----------
    report : called with the number of rows of the stream that are learned.
    resumable : whether the block, or a part of it, will be continued from the last milestone. An increment always is,
        so its checkpoint is committed before its cell.
    stopped : whether to end before the last milestone, with a checkpoint if the disk has space for it.

    Returns
    -------
    False if `stopped` said so before the end.

    Raises
    ------
    StorageError : for a corrupt shard or a disk without space for a cell.
    """
    chained = block.setting.increment is not None
    wanted = [milestone for milestone in milestones if not cell_path(folders.cells, block, milestone).exists()]
    if chained and not has_checkpoint(folders.checkpoints, block, milestones[-1]):
        wanted = list(milestones)  # the next increment starts from the checkpoint
    if not wanted:
        return True
    if stopped():
        return False
    corpus = open_corpus(store, scratch)
    run = load_checkpoint(folders.checkpoints, block, wanted[0]) or start_run(folders.checkpoints, block, store)
    cost = state_bytes(block, store) / CHECKPOINT_BYTES_PER_SECOND
    polled = saved = time.monotonic()
    for milestone in wanted:
        for _ in run.advance(corpus, milestone):
            report(run.position.rows_before(corpus.n_rows))
            now = time.monotonic()
            if now - polled < POLL_SECONDS:
                continue
            polled, stop = now, stopped()
            if _pays(now - saved, cost, requested=stop):
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

    Cells are far smaller; a disk without space for one stops the search.
    """
    with suppress(StorageError):
        save_checkpoint(folders.checkpoints, run)


def _pays(lost: float, cost: float, *, requested: bool) -> bool:
    """Whether to save a state that took `lost` seconds since the last checkpoint and takes `cost` seconds to write.

    One that will be needed saves `lost`; one against the worker's death must be a small part of the work.
    """
    return lost > max(1.0, 2 * cost) if requested else lost > max(10.0, 20 * cost)
