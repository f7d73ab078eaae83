"""What a worker does with a block: run it leg by leg, commit a cell at the end of each, keep its state where that pays.

The task is a pure function of its description. Its results are files named by what they are of, so running it again,
here or elsewhere, gives the same files or finds them there.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from sparseoco.core.errors import StorageError
from sparseoco.core.progress import RowsCallback
from sparseoco.search.block_run import BlockRun
from sparseoco.search.increments import begin
from sparseoco.search.packing import state_bytes
from sparseoco.search.states import is_held, load_checkpoint, save_checkpoint
from sparseoco.storage.locations import Location
from sparseoco.store.corpus import open_corpus
from sparseoco.store.shards import Store
from sparseoco.training.block import Block, StreamPosition, cell_path, write_cell

LOOK_SECONDS = 0.5  # between two looks at the clock and at whether to stop
STATE_BYTES_A_SECOND = 500e6  # at which a state is written and synced, roughly


class Folders(NamedTuple):
    """Where a search keeps its things, seen by all workers; `stop` is a file that asks them to stop."""

    cells: Location
    states: Location
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
    """Run a block to the last of `milestones`, committing its cell at each where it is not there already.

    `report` is told how many rows of the stream lie behind. `resumable` says that the block or a part of it will be
    asked
    for from there; a night always is, so its state is there before its cell. Gives False if `stopped` said so before
    the end; the state is kept then, where the disk has room for it. Raises `StorageError` for a shard that cannot be
    trusted or a disk without room for a cell.
    """
    night = block.setting.night is not None
    wanted = [milestone for milestone in milestones if not cell_path(folders.cells, block, milestone).exists()]
    if night and not is_held(folders.states, block, milestones[-1]):
        wanted = list(milestones)  # the night after begins from the state
    if not wanted:
        return True
    if stopped():
        return False
    corpus = open_corpus(store, scratch)
    course = load_checkpoint(folders.states, block, wanted[0]) or begin(folders.states, block, store)
    cost = state_bytes(block, store) / STATE_BYTES_A_SECOND
    looked = kept = time.monotonic()
    for milestone in wanted:
        for _ in course.advance(corpus, milestone):
            report(course.place.rows_before(corpus.n_rows))
            now = time.monotonic()
            if now - looked < LOOK_SECONDS:
                continue
            looked, stop = now, stopped()
            if _pays(now - kept, cost, asked_for=stop):
                _keep(folders, course)
                kept = time.monotonic()
            if stop:
                return False
        if night:
            save_checkpoint(folders.states, course)
        tables = course.night_tables(corpus) if night else course.tables(corpus, store)
        write_cell(cell_path(folders.cells, block, milestone), block, milestone, tables)
    if resumable and not night and _pays(time.monotonic() - kept, cost, asked_for=True):
        _keep(folders, course)
    return True


def _keep(folders: Folders, course: BlockRun) -> None:
    """Keep a state, where there is room: without it the stream is played again, to the same results.

    Cells are far smaller; a disk that has no room for one either stops the search.
    """
    with suppress(StorageError):
        save_checkpoint(folders.states, course)


def _pays(lost: float, cost: float, *, asked_for: bool) -> bool:
    """Whether to keep a state that took `lost` seconds to make since the last one and takes `cost` to write.

    One that will be asked for saves `lost`; one against the worker's death must be a small part of the work.
    """
    return lost > max(1.0, 2 * cost) if asked_for else lost > max(10.0, 20 * cost)
