"""cao-rcd on the cluster: an epoch is one task that plays its rounds over the store by columns.

The store is turned round once a run (`cluster.transpose`), by all workers; the task maps what its worker lays out of
it. A coordinate's round needs the margins that all rounds before it left, so an epoch is played by one thread; blocks
of configurations are what runs side by side. A worker holds, for every column, about 64 bytes a feature and 16 a
document (`coordinates.bytes_needed`).

An epoch is a function of the state that the last one left, which is committed in one file (see `checkpoints`) with the
weights it gives: Z and Δ (features, slots, columns), and the epochs played. Margins are made afresh from them.
"""

from typing import Any

import numpy as np
from distributed import Client
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.execution.clusters import worker_shape
from sparseoco.execution.pool import await_result, send
from sparseoco.kernels.order import fold_rows
from sparseoco.offline.coordinates import ColumnMajor, Coordinates, bytes_needed
from sparseoco.offline.epoch_states import EpochStates
from sparseoco.offline.epochs import Problem
from sparseoco.offline.passes import Floats
from sparseoco.offline.sampled import problem_of
from sparseoco.storage.checkpoints import read_checkpoint, write_checkpoint
from sparseoco.storage.commit import make_folder, remove_file
from sparseoco.storage.locations import Location, location
from sparseoco.store.cache import corpus_of, end_with_worker
from sparseoco.store.shards import Store
from sparseoco.store.transpose import labels_of, transpose
from sparseoco.training.block import NO_FOLD, Block


class CoordinatesOnCluster:
    """A block of cao-rcd; see `cluster.epochs.Method`. Its state is in `folder`, the store by columns beside it.

    Raises `InputError`, with the figure, if it does not fit in a worker.
    """

    def __init__(self, client: Client, block: Block, problem: Problem, store: Store, folder: Location) -> None:
        self.problem, self.epoch = problem, 0
        size = len(problem.configurations)
        self.diverged = np.zeros(size, np.int64)
        """Weights are bounded: none can."""
        self.rows = np.zeros(size, np.int64)
        columns = size * problem.outputs
        rounds = problem.configurations[0]["rounds"]
        needed, memory = bytes_needed(store.n_rows, store.n_features, columns, rounds), worker_shape(client)[1]
        if needed > memory:
            raise InputError(
                f"cao-rcd needs {needed / 1e9:.1f} GB for {columns} columns ({store.n_features:,} features, "
                f"{store.n_rows:,} documents) and a task has {memory / 1e9:.1f} GB: keep fewer features at ingest "
                "(--min-df, --max-features, --hash-bits) or give workers more memory."
            )
        self._client, self._block, self._store, self._folder = client, block, store, folder.resolve()
        self._columns = transpose(client, store, self._folder.parent)
        self._weights = np.zeros((problem.n_features, columns))
        make_folder(self._folder)
        self._states = EpochStates(self._folder)
        latest = self._states.latest()
        if latest is not None:
            self._take_up(latest)

    def weights(self) -> Floats:
        """(n_features, columns) at the end of the last epoch."""
        return self._weights

    def play(self) -> None:
        """The rounds, a state committed; what the last epoch left is then removed."""
        before, target = self._states.path(self.epoch), self._states.path(self.epoch + 1)
        future = send(
            self._client,
            "coordinates",
            _play,
            self._block.model_dump(mode="json"),
            str(self._store.folder.resolve()),
            str(self._columns.folder),
            str(before) if self.epoch else None,
            str(target),
        )
        await_result(self._client, future, "An epoch of cao-rcd failed")
        self._take_up(target)
        remove_file(before)

    def _take_up(self, path: Location) -> None:
        """Go on from a state."""
        with read_checkpoint(path) as (description, read):
            self._weights = read("weights")
            self.rows = read("examples")
            self.epoch = int(description["epoch"])


def _play(description: dict[str, Any], store: str, columns: str, before: str | None, target: str) -> None:
    """An epoch, on a worker: from the state of the last one to its own."""
    method = coordinates_of(Block.model_validate(description), Store.open(store), Store.open(columns))
    if before is not None:
        with read_checkpoint(location(before)) as (described, read):
            for name, array in method.state().items():
                read(name, array)
            method.resume(int(described["epoch"]))

    method.play(lambda share: end_with_worker())
    arrays = method.state() | {"examples": np.array(method.examples), "weights": method.weights()}
    write_checkpoint(location(target), {"epoch": method.epoch}, arrays.items())


def coordinates_of(block: Block, store: Store, columns: Store) -> Coordinates:
    """A block before its first epoch, on a worker, over the store by columns."""
    problem, corpus, labels = problem_of(block, store), corpus_of(columns), labels_of(columns)
    indptr, rows, counts, _ = corpus.whole()
    return Coordinates(
        ColumnMajor(indptr, rows, counts, labels),
        problem.configurations,
        loss=problem.loss,
        positive=problem.positive,
        seed=block.setting.seed,
        included=_kept(block, labels.size),
        release=corpus.rest,
    )


def _kept(block: Block, n_rows: int) -> NDArray[np.bool_]:
    """Which documents are not held out."""
    setting = block.setting
    kept = np.ones(n_rows, np.bool_)
    if setting.fold != NO_FOLD:
        kept[fold_rows(setting.seed, 0, n_rows, setting.fold, setting.folds)] = False
    return kept
