"""The file of a `Learner`: its description, and the arrays of its blocks and its history, in a checkpoint."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from sparseoco.core.errors import DamagedError, InputError
from sparseoco.learners import find_algorithm
from sparseoco.storage.checkpoints import read_checkpoint, write_checkpoint
from sparseoco.storage.locations import Location
from sparseoco.training.columns import AnyColumns
from sparseoco.training.history import History

FORMAT = 7
BY_FEATURE = ("state", "last_update")
"""The arrays of a sparse block with one entry per feature."""

ReadArray = Callable[..., np.ndarray]
"""``read(name)`` returns an array of a checkpoint, ``read(name, into)`` fills one."""


class Head(NamedTuple):
    """The arguments that construct a learner, and the rounds on its clock before it learned a row."""

    description: dict[str, Any]
    initial_rounds: int

    @property
    def n_features(self) -> int:
        """The features of the saved learner."""
        return int(self.description["n_features"])


def write(path: Location, head: Head, blocks: Sequence[AnyColumns], history: History, *, named: bool) -> None:
    """Commit a learner; `named` as in `write_checkpoint`. Raises `StorageError`."""
    described = {"format": FORMAT, "learner": head.description, "initial_rounds": head.initial_rounds}
    write_checkpoint(path, described, state_arrays(blocks, history), named=named)


def state_arrays(blocks: Sequence[AnyColumns], history: History) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of the file, by name."""
    for i, block in enumerate(blocks):
        for name, array in block.arrays():
            yield f"{i}.{name}", array
    for name, array in zip(History._fields, history, strict=True):
        yield f"history.{name}", array


@contextmanager
def opened(path: Location, n_features: int | None) -> Iterator[tuple[Head, ReadArray]]:
    """Open the file of a learner that is to continue with `n_features`, within the `with` block.

    What is invalid in the block is damage of the file, as in `read_checkpoint`. Raises as `Learner.load`.
    """
    with read_checkpoint(path) as (described, _):
        if described["format"] != FORMAT:
            message = f"{path} was saved by another version of sparseoco; train it again."
            raise DamagedError(message, code="format-version")
        head = Head(described["learner"], int(described["initial_rounds"]))
        saved, algorithm = head.n_features, str(head.description["algorithm"])
    if n_features is not None and n_features < saved:
        message = f"{path} has {saved:,} features: it cannot continue with {n_features:,}."
        raise InputError(message, code="fewer-features")
    if n_features not in (None, saved) and find_algorithm(algorithm).touches_all_features:
        raise InputError(
            f"{algorithm} updates all features in every round: a saved one cannot continue with more features.",
            code="more-features",
        )
    with read_checkpoint(path) as (_, read):
        yield head, read


def read_arrays(read: ReadArray, blocks: Sequence[AnyColumns], history: History, n_features: int) -> History:
    """Fill the blocks of a new learner from a file of `n_features`; returns its history."""
    for i, block in enumerate(blocks):
        for name, own in block.arrays():
            read(f"{i}.{name}", own[:n_features] if name in BY_FEATURE else own)
        block.pad()
    return history.restored([read(f"history.{name}") for name in History._fields])
