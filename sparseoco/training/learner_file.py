"""The file of a `Learner`: its description, and the arrays of its blocks and its history, in a checkpoint."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from sparseoco.core.errors import DamagedError, InputError
from sparseoco.learners import find_algorithm
from sparseoco.storage.checkpoints import read_checkpoint, write_checkpoint
from sparseoco.storage.locations import Location
from sparseoco.training.history import History

if TYPE_CHECKING:
    from sparseoco.training.learner import Learner

FORMAT = 7
BY_FEATURE = ("state", "last_update")
"""The arrays of a sparse block with one entry per feature."""


def save(learner: "Learner", path: Location) -> None:
    """As `Learner.save`."""
    head = {"format": FORMAT, "learner": learner.description, "initial_rounds": learner._initial_rounds}
    write_checkpoint(path, head, _arrays(learner))


def load(cls: "type[Learner]", path: Location, n_features: int | None) -> "Learner":
    """As `Learner.load`."""
    saved = _saved_features(path, n_features)
    with read_checkpoint(path) as (head, read):
        learner = cls(**head["learner"] | {"n_features": n_features or saved})
        rounds = int(head["initial_rounds"])
        if rounds and learner.n_features > saved:
            learner.start_from(np.zeros((learner.n_features, learner.n_outputs)), rounds)
        learner._initial_rounds = rounds
        for i, (_, block) in enumerate(learner._blocks):
            for name, own in block.arrays():
                read(f"{i}.{name}", own[:saved] if name in BY_FEATURE else own)
            block.pad()
        learner.history = learner.history.restored([read(f"history.{name}") for name in History._fields])
    return learner


def _arrays(learner: "Learner") -> Iterator[tuple[str, np.ndarray]]:
    for i, (_, block) in enumerate(learner._blocks):
        for name, array in block.arrays():
            yield f"{i}.{name}", array
    for name, array in zip(History._fields, learner.history, strict=True):
        yield f"history.{name}", array


def _saved_features(path: Location, n_features: int | None) -> int:
    """The number of features of a saved learner. Raises as `Learner.load`."""
    with read_checkpoint(path) as (head, _):
        if head["format"] != FORMAT:
            message = f"{path} was saved by another version of sparseoco; train it again."
            raise DamagedError(message, code="format-version")
        saved, algorithm = int(head["learner"]["n_features"]), str(head["learner"]["algorithm"])
    if n_features is not None and n_features < saved:
        message = f"{path} has {saved:,} features: it cannot continue with {n_features:,}."
        raise InputError(message, code="fewer-features")
    if n_features not in (None, saved) and find_algorithm(algorithm).touches_all_features:
        raise InputError(
            f"{algorithm} updates all features in every round: a saved one cannot continue with more features.",
            code="more-features",
        )
    return saved
