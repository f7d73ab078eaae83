"""cao-rcd on the cluster: an epoch is one task over the store by columns.

All workers transpose the store once per run (`store.transpose`); the task memory-maps its worker's copy. A round needs
the margins after all earlier rounds, so one thread plays an epoch, and blocks of configurations run in parallel. A
worker holds, for every column, about 64 bytes per feature and 16 per document, with a ridge 208 and 160
(`coordinates.bytes_needed`).

The state of an epoch is Z and Δ (features, slots, columns) and the number of epochs; margins are recomputed.
"""

from typing import Any

import numpy as np
from distributed import Client
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.execution.clusters import worker_shape
from sparseoco.kernels.order import fold_rows
from sparseoco.offline.cluster.epoch_method import EpochMethod, commit_state, epoch_problem
from sparseoco.offline.column_major import ColumnMajor
from sparseoco.offline.coordinates import Coordinates, bytes_needed
from sparseoco.offline.epoch_problem import Problem
from sparseoco.storage.checkpoints import read_checkpoint
from sparseoco.storage.locations import Location, location
from sparseoco.store.corpus import open_corpus
from sparseoco.store.references import StoreReference, open_store, store_reference
from sparseoco.store.shards import Store
from sparseoco.store.transpose import transpose, transposed_labels
from sparseoco.store.worker import check_worker_running, host_folder
from sparseoco.training.block import Block
from sparseoco.training.stream import NO_FOLD


class CoordinatesOnCluster(EpochMethod):
    """A block of cao-rcd; the transposed store is in the parent of its folder.

    Raises `InputError` if it does not fit in a worker's memory.
    """

    failure = "An epoch of cao-rcd failed"

    def __init__(self, client: Client, block: Block, problem: Problem, store: Store, folder: Location) -> None:
        _check_memory(client, problem, store)
        super().__init__(client, block, problem, store, folder)
        self._columns = transpose(client, store, self._folder.parent, block.weighting, intercept=problem.intercept)

    def _play(self, before: Location | None, target: Location) -> None:
        state = None if before is None else str(before)
        self._pool.call(_play, *self._task_arguments(), store_reference(self._columns), state, str(target))


def _check_memory(client: Client, problem: Problem, store: Store) -> None:
    columns = len(problem.configurations) * problem.outputs
    rounds = problem.configurations[0]["rounds"]
    needed = bytes_needed(store.n_rows, problem.coordinates, columns, rounds, problem.penalty.name)
    memory = worker_shape(client)[1]
    if needed > memory:
        raise InputError(
            f"cao-rcd needs {needed / 1e9:.1f} GB for {columns} columns ({store.n_features:,} features, "
            f"{store.n_rows:,} documents) and a task has {memory / 1e9:.1f} GB: keep fewer features at ingest "
            "(--min-df, --max-features, --hash-bits) or give workers more memory.",
            code="out-of-memory",
        )


def _play(
    description: dict[str, Any], store: StoreReference, columns: StoreReference, before: str | None, target: str
) -> None:
    """Play one epoch on a worker, from the last state to the next."""
    method = open_coordinates(Block.model_validate(description), open_store(store), open_store(columns))
    if before is not None:
        with read_checkpoint(location(before)) as (described, read):
            for name, array in method.state().items():
                read(name, array)
            method.resume(int(described["epoch"]))
    method.play(lambda share: check_worker_running())
    weights = method.weights()
    diverged = np.zeros(weights.shape[1], np.int64)  # weights are bounded
    arguments = {"epoch": method.epoch}, method.state(), weights, diverged, np.array(method.examples)
    commit_state(location(target), *arguments)


def open_coordinates(block: Block, store: Store, columns: Store) -> Coordinates:
    """A block before its first epoch, on a worker; `columns` is the transposed store."""
    problem, (labels, weights) = epoch_problem(block, store), transposed_labels(columns)
    corpus = open_corpus(columns, host_folder())
    indptr, rows, counts, *_ = corpus.whole()
    return Coordinates(
        ColumnMajor(indptr, rows, counts, labels),
        problem.configurations,
        loss=problem.loss,
        penalty=problem.penalty,
        positive=problem.positive,
        seed=block.setting.seed,
        weights=_training_weights(block, labels, weights),
        release=corpus.rest,
        intercept=problem.intercept,
    )


def _training_weights(block: Block, labels: NDArray[Any], weights: NDArray[Any] | None) -> NDArray[Any]:
    """(rows,): the weights of documents, bool if all are 1; 0 for those that are held out."""
    setting, training = block.setting, np.ones(labels.size, np.bool_)
    if setting.fold != NO_FOLD:
        training[fold_rows(setting.seed, 0, labels.size, setting.fold, setting.folds)] = False
    out = training if weights is None else training * weights.astype(np.float64)
    if setting.class_weights is not None:
        out = out * np.array(setting.class_weights, np.float64)[labels]
    return out
