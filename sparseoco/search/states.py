"""States of blocks on disk: where a block that stops can be taken up again, by itself or by any part of it.

A state is two files: the learner as it saves itself (large, not compressed), and a JSON file that says what it is of,
at which place, and names the first. A block has one state, its latest; a state is found by what is in it, so that
configurations can go on in other company than they came in. A state that is missing or damaged costs time only: the
stream is played again from an earlier place, and the results are the same.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from sparseoco.core.errors import DamagedError, StorageError
from sparseoco.search.block_run import BlockRun
from sparseoco.storage.commit import commit_checksummed, read_checksummed, remove_file
from sparseoco.storage.locations import Location
from sparseoco.training.block import Block, Key, Setting, StreamPosition
from sparseoco.training.learner import Learner, ProgressiveTotals


def save_checkpoint(folder: Location, course: BlockRun) -> None:
    """Commit the state of a block and remove its earlier one; nothing is done where a later one is there."""
    block = course.block
    stem = f"{block.setting.digest}-{block.digest}"
    name = _learner_name(stem, course.place)
    with suppress(StorageError):
        if StreamPosition(*read_checksummed(folder / f"{stem}.json")["place"]) >= course.place:
            return
    course.learner.save(folder / name)
    commit_checksummed(
        folder / f"{stem}.json",
        {
            "block": block.model_dump(mode="json"),
            "place": list(course.place),
            "learner": name,
            "rows": course.before.rows,
            "loss_sum": course.before.loss_sum.tolist(),
            "error_count": course.before.error_count.tolist(),
            "curves": course.curves,
            "seconds": course.seconds,
        },
    )
    for old in folder.glob(f"{stem}-*.learner"):
        if old.name != name:
            remove_file(old)


def load_checkpoint(folder: Location, block: Block, place: StreamPosition) -> BlockRun | None:
    """A block where the furthest state that holds all of it left it, but not beyond `place`; None if there is none."""
    wanted = set(block.identities)
    fitting = [
        (at, state)
        for at, state, whole in _states(folder, [block.setting])
        if at <= place and wanted <= set(whole.identities)
    ]
    for at, state in sorted(fitting, key=lambda entry: entry[0], reverse=True):
        try:
            learner = Learner.load(folder / state["learner"])
        except StorageError:
            continue
        before = ProgressiveTotals(
            state["rows"], np.array(state["loss_sum"], np.float64), np.array(state["error_count"], np.int64)
        )
        whole = Block.model_validate(state["block"])
        return BlockRun(whole, learner, at, before, state["curves"], state["seconds"]).select(block)
    return None


def is_held(folder: Location, block: Block, place: StreamPosition) -> bool:
    """Whether a state of this very block is at a place. Raises `StorageError` where that cannot be read now."""
    stem = f"{block.setting.digest}-{block.digest}"
    with suppress(DamagedError):
        return StreamPosition(*read_checksummed(folder / f"{stem}.json")["place"]) == place and (
            (folder / _learner_name(stem, place)).exists()
        )
    return False


def held_together(folder: Location, settings: Sequence[Setting]) -> dict[Key, str]:
    """By (fold, configuration), the block whose state is the furthest that holds it."""
    furthest: dict[Key, tuple[StreamPosition, str]] = {}
    for at, _, block in _states(folder, settings):
        for name in block.identities:
            key = block.setting.fold, name
            furthest[key] = max(furthest.get(key, (at, block.digest)), (at, block.digest))
    return {key: digest for key, (_, digest) in furthest.items()}


def remove_states(folder: Location, settings: Sequence[Setting], alive: set[str]) -> None:
    """Remove the states that are the furthest of none of the configurations named."""
    needed = {digest for (_, name), digest in held_together(folder, settings).items() if name in alive}
    for _, state, block in _states(folder, settings):
        if block.digest not in needed:
            remove_file(folder / f"{block.setting.digest}-{block.digest}.json")
            remove_file(folder / state["learner"])


def _states(folder: Location, settings: Sequence[Setting]) -> Iterator[tuple[StreamPosition, dict[str, Any], Block]]:
    for setting in settings:
        for path in sorted(folder.glob(f"{setting.digest}-*.json")):
            try:
                state = read_checksummed(path)
                yield StreamPosition(*state["place"]), state, Block.model_validate(state["block"])
            except (StorageError, KeyError, TypeError, ValueError):
                continue  # removed a moment ago, or damaged: the stream is played again


def _learner_name(stem: str, place: StreamPosition) -> str:
    return f"{stem}-{place.epoch}-{place.position}.learner"
