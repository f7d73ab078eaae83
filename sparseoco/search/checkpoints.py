"""Checkpoints of blocks, from which the block or any of its configurations can be resumed.

A checkpoint is two files: the saved learner, large and uncompressed, and a JSON file with its name, the block and the
position. A block has one checkpoint, its latest. Checkpoints are looked up by configuration, so configurations can be
resumed in other groups. A missing or corrupt one only costs time: the stream is learned again from an earlier position,
with the same results.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from typing_extensions import TypedDict

from sparseoco.core.errors import DamagedError, StorageError
from sparseoco.search.block_run import BlockRun
from sparseoco.storage.commit import commit_json, remove_file
from sparseoco.storage.locations import Location
from sparseoco.storage.metrics import CURVES
from sparseoco.storage.validated import Count, read_validated, row_shape, with_other_keys
from sparseoco.training.block import Block
from sparseoco.training.learner import Learner, ProgressiveTotals
from sparseoco.training.stream import START, StreamPosition


@with_other_keys
class State(TypedDict):
    """The content of the JSON file of a checkpoint: a block, its position, and its sums since the epoch's start."""

    block: Block
    position: StreamPosition
    rows: Count
    loss_sum: list[float]
    error_count: list[int]
    curves: list[list[row_shape(CURVES)]]  # type: ignore[valid-type]
    seconds: float


def read_state(path: Location) -> State:
    """The state of a block. Raises as `read_validated`."""
    return read_validated(path, State)


class Checkpoint(NamedTuple):
    """The files of a block's state at a position, and the contents of the JSON file in `state`."""

    block: Block
    position: StreamPosition
    path: Location
    learner: Location
    state: State

    def remove(self) -> None:
        """Remove it, the JSON file first."""
        remove_file(self.path)
        remove_file(self.learner)


def save_checkpoint(folder: Location, run: BlockRun) -> None:
    """Commit the state of a block and remove the earlier one; does nothing if there is a later one."""
    path = _path(folder, run.block)
    with suppress(StorageError):
        if read_state(path)["position"] >= run.position:
            return
    learner = _learner_path(path, run.position)
    run.learner.save(learner, named=True)
    commit_json(
        path,
        {
            "block": run.block.model_dump(mode="json"),
            "position": list(run.position),
            "rows": run.epoch_start.rows,
            "loss_sum": run.epoch_start.loss_sum.tolist(),
            "error_count": run.epoch_start.error_count.tolist(),
            "curves": run.curves,
            "seconds": run.seconds,
        },
    )
    for old in folder.glob(f"{path.stem}-*.learner"):
        if old.name != learner.name:
            remove_file(old)


def load_checkpoint(folder: Location, block: Block, last: StreamPosition) -> BlockRun | None:
    """A block at its furthest checkpoint up to `last`; None if no checkpoint has all of its configurations."""
    for found in fitting_checkpoints(folder, block, last):
        state = found.state
        with suppress(StorageError):
            learner = Learner.load(found.learner)
            epoch_start = ProgressiveTotals(
                state["rows"], np.array(state["loss_sum"], np.float64), np.array(state["error_count"], np.int64)
            )
            run = BlockRun(found.block, learner, found.position, epoch_start, state["curves"], state["seconds"])
            return run.select(block)
    return None


def fitting_checkpoints(folder: Location, block: Block, last: StreamPosition) -> list[Checkpoint]:
    """The checkpoints up to `last` that have all configurations of a block, the furthest first."""
    needed = set(block.identities)
    fitting = [
        found
        for found in find_checkpoints(folder, [block.setting.digest])
        if found.position <= last and needed <= set(found.block.identities)
    ]
    return sorted(fitting, key=lambda found: found.position, reverse=True)


def reached_position(folder: Location, block: Block) -> StreamPosition:
    """The position of the checkpoint of this block, `START` without one."""
    with suppress(DamagedError):
        return read_state(_path(folder, block))["position"]
    return START


def has_checkpoint(folder: Location, block: Block, position: StreamPosition) -> bool:
    """Whether this block has a checkpoint at a position. Raises `StorageError` if it cannot be read now."""
    path = _path(folder, block)
    with suppress(DamagedError):
        return read_state(path)["position"] == position and _learner_path(path, position).exists()
    return False


def find_checkpoints(
    folder: Location, settings: Iterable[str], ignore: type[StorageError] = StorageError
) -> Iterator[Checkpoint]:
    """The checkpoints of blocks under settings, given by digest; files that raise `ignore` are skipped.

    By default these are all that cannot be read; with `DamagedError`, a file that cannot be read now raises.
    """
    digests = set(settings)
    for path in sorted(folder.glob("*.json")):
        if path.name.partition("-")[0] in digests:
            try:
                state = read_state(path)
                block, position = state["block"], state["position"]
                found = Checkpoint(block, position, path, _learner_path(path, position), state)
            except (ignore, KeyError, TypeError, ValueError):
                continue
            if found.learner.exists():
                yield found


def furthest_checkpoints(
    folder: Location, settings: Iterable[str], ignore: type[StorageError] = StorageError
) -> dict[tuple[str, str], Checkpoint]:
    """By (digest of the setting, configuration), its furthest checkpoint; see `find_checkpoints`."""
    furthest: dict[tuple[str, str], Checkpoint] = {}
    for found in find_checkpoints(folder, settings, ignore):
        for name in found.block.identities:
            key = found.block.setting.digest, name
            if key not in furthest or _order(found) > _order(furthest[key]):
                furthest[key] = found
    return furthest


def remove_unneeded(folder: Location, settings: Sequence[str], alive: set[str]) -> None:
    """Remove checkpoints that are not the furthest of any configuration in `alive`."""
    furthest = furthest_checkpoints(folder, settings).items()
    needed = {found.block.digest for (_, name), found in furthest if name in alive}
    for found in list(find_checkpoints(folder, settings)):
        if found.block.digest not in needed:
            found.remove()


def _order(found: Checkpoint) -> tuple[StreamPosition, str]:
    return found.position, found.block.digest


def _path(folder: Location, block: Block) -> Location:
    return folder / f"{block.setting.digest}-{block.digest}.json"


def _learner_path(path: Location, position: StreamPosition) -> Location:
    return path.with_name(f"{path.stem}-{position.epoch}-{position.position}.learner")
