"""Base class of epoch methods on a cluster: each epoch commits a state, from which the next one starts."""

from typing import Any

import numpy as np
from distributed import Client

from sparseoco.execution.pool import TaskPool
from sparseoco.offline.cluster.passes import RowsSource
from sparseoco.offline.epoch_problem import Problem
from sparseoco.offline.passes import Floats
from sparseoco.storage.checkpoints import is_complete, read_checkpoint
from sparseoco.storage.commit import make_folder, remove_file
from sparseoco.storage.locations import Location
from sparseoco.store.shards import Store
from sparseoco.training.block import Block


class EpochMethod:
    """A block of configurations of an epoch method, resumed from the last undamaged state in its folder.

    A state is one file (see `storage.checkpoints`) with at least ``weights`` (coordinates, columns), ``diverged``
    (columns,) and ``examples`` (configurations,), and the number of the epoch.
    """

    failure = "An epoch failed"

    def __init__(self, client: Client, block: Block, problem: Problem, store: Store, folder: Location) -> None:
        columns = len(problem.configurations) * problem.outputs
        self.problem = problem
        self.epoch = 0
        """Epochs played."""
        self.diverged = np.zeros(len(problem.configurations), np.int64)
        """(configurations,): the round (from 1) in which it diverged, or 0."""
        self.examples = np.zeros(len(problem.configurations), np.int64)
        """(configurations,): examples read per epoch."""
        self._weights = np.zeros((problem.coordinates, columns))
        self._block, self._store, self._folder = block, store, folder.resolve()
        self._pool = TaskPool(client, self.failure)
        make_folder(self._folder)
        states = sorted(self._folder.glob("state-*.npz"), key=lambda path: int(path.stem.split("-")[1]), reverse=True)
        latest = next(filter(is_complete, states), None)
        if latest is not None:
            self._load(latest)

    def weights(self) -> Floats:
        """(coordinates, columns) at the end of the last epoch."""
        return self._weights

    def play(self) -> None:
        """Play one epoch, commit its state and remove that of the epoch before."""
        before, target = self._state_path(self.epoch), self._state_path(self.epoch + 1)
        self._play(before if self.epoch else None, target)
        self._load(target)
        remove_file(before)

    def _play(self, before: Location | None, target: Location) -> None:
        """Play one epoch from the state `before`, if any, and commit the state `target`."""
        raise NotImplementedError

    def _task_arguments(self) -> tuple[dict[str, Any], str]:
        """The description of the block and the path of its store."""
        return self._block.model_dump(mode="json"), str(self._store.folder.resolve())

    def _state_path(self, epoch: int) -> Location:
        return self._folder / f"state-{epoch}.npz"

    def _load(self, path: Location) -> None:
        with read_checkpoint(path) as (description, read):
            self._weights = read("weights")
            self.diverged = self.problem.diverged(read("diverged"))
            self.examples = read("examples")
            self.epoch = int(description["epoch"])


def block_rows(block: Block, store: Store) -> RowsSource:
    """The rows of a store as a block weights them."""
    return RowsSource(str(store.folder.resolve()), block.weighting, block.setting.class_weights, block.intercept)


def epoch_problem(block: Block, store: Store) -> Problem:
    """The problem of a block over a store. Raises `InputError` as `Problem.of`."""
    setting = block.setting
    return Problem.of(
        block.algorithm,
        setting.loss,
        setting.penalty,
        block.configurations,
        store.n_classes,
        store.n_features,
        intercept=block.intercept,
    )
