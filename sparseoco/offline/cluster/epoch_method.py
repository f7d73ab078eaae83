"""Base class of epoch methods on a cluster: each epoch commits a state, from which the next one starts."""

from contextlib import suppress
from typing import Any

import numpy as np
from distributed import Client
from numpy.typing import NDArray

from sparseoco.core.errors import StorageError
from sparseoco.execution.pool import TaskPool
from sparseoco.offline.cluster.pass_tasks import RowsSource, read_rows
from sparseoco.offline.epoch_problem import Problem
from sparseoco.offline.partial_sums import Floats
from sparseoco.storage.checkpoints import is_complete, write_array, write_checkpoint
from sparseoco.storage.commit import commit_json, digest_file, make_folder, read_json, remove_file
from sparseoco.storage.locations import Location, location
from sparseoco.store.references import StoreReference, store_reference
from sparseoco.store.shards import Store
from sparseoco.training.block import Block


class EpochMethod:
    """A block of configurations of an epoch method, resumed from the last undamaged state in its folder.

    The state after an epoch is a file of arrays, which tasks read and write, one of weights and a short description
    (see `commit_state`).
    """

    failure = "An epoch failed"

    def __init__(self, client: Client, block: Block, problem: Problem, store: Store, folder: Location) -> None:
        self.problem = problem
        self.epoch = 0
        """Epochs played."""
        self.diverged = np.zeros(len(problem.configurations), np.int64)
        """(configurations,): the round (from 1) in which it diverged, or 0."""
        self.examples = np.zeros(len(problem.configurations), np.int64)
        """(configurations,): examples read per epoch."""
        self._block, self._store, self._folder = block, store, folder.resolve()
        self._pool = TaskPool(client, self.failure)
        make_folder(self._folder)
        states = sorted(self._folder.glob("state-*.json"), key=lambda path: int(path.stem.split("-")[1]), reverse=True)
        for state in states:
            if self._pool.call(_state_is_intact, str(state)):
                self._load(state.with_suffix(".npz"))
                break

    @property
    def weights_file(self) -> Location | None:
        """npy (coordinates, columns): the weights at the end of the last epoch; None before the first."""
        return self._state_path(self.epoch).with_suffix(".npy") if self.epoch else None

    @property
    def columns(self) -> int:
        """Columns of the weights."""
        return len(self.problem.configurations) * self.problem.outputs

    def weights(self) -> Floats:
        """(coordinates, columns) at the end of the last epoch."""
        if self.weights_file is None:
            return np.zeros((self.problem.coordinates, self.columns))
        return np.array(read_rows(self.weights_file, self.columns))

    def play(self) -> None:
        """Play one epoch, commit its state and remove that of the epoch before."""
        before, target = self._state_path(self.epoch), self._state_path(self.epoch + 1)
        self._play(before if self.epoch else None, target)
        self._load(target)
        for suffix in (".json", ".npy", ".npz"):
            remove_file(before.with_suffix(suffix))

    def _play(self, before: Location | None, target: Location) -> None:
        """Play one epoch from the state `before`, if any, and commit the state `target`."""
        raise NotImplementedError

    def _task_arguments(self) -> tuple[dict[str, Any], StoreReference]:
        """The description of the block and a reference to its store."""
        return self._block.model_dump(mode="json"), store_reference(self._store)

    def _state_path(self, epoch: int) -> Location:
        return self._folder / f"state-{epoch}.npz"

    def _load(self, path: Location) -> None:
        found = read_json(path.with_suffix(".json"))
        self.diverged = self.problem.diverged(np.array(found["diverged"], np.int64))
        self.examples = np.array(found["examples"], np.int64)
        self.epoch = int(found["epoch"])


def commit_state(
    target: Location,
    description: dict[str, Any],
    arrays: dict[str, NDArray[Any]],
    weights: Floats,
    diverged: NDArray[np.int64],
    examples: NDArray[np.int64],
) -> None:
    """Write the state of an epoch: a checkpoint `target`, an npy file of the weights, and last a JSON file.

    `description` has the number of the ``epoch``; `diverged` is (columns,), `examples` (configurations,).
    """
    write_checkpoint(target, description, arrays.items())
    write_array(target.with_suffix(".npy"), weights)
    short = {"epoch": description["epoch"], "diverged": diverged.tolist(), "examples": examples.tolist()}
    digest = digest_file(target.with_suffix(".npy"))
    commit_json(target.with_suffix(".json"), short | {"weights": digest})


def _state_is_intact(path: str) -> bool:
    """Whether all three files of a state are complete; `path` is the JSON file."""
    short = location(path)
    with suppress(StorageError):
        digest = read_json(short)["weights"]
        return is_complete(short.with_suffix(".npz")) and digest_file(short.with_suffix(".npy")) == digest
    return False


def block_rows(block: Block, store: Store) -> RowsSource:
    """The rows of a store as a block weights them."""
    return RowsSource(store_reference(store), block.weighting, block.setting.class_weights, block.intercept)


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
