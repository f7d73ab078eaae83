"""Epoch methods on a cluster."""

from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from distributed import Client, Future
from numpy.typing import NDArray

from sparseoco.core.errors import InputError, StorageError
from sparseoco.execution.clusters import placements, worker_shape
from sparseoco.execution.pool import TaskPool
from sparseoco.kernels.epoch import EpochColumns
from sparseoco.kernels.order import fold_rows
from sparseoco.offline.cluster.passes import ClusterPasses, PassFiles, RowsSource, open_rows, read_rows
from sparseoco.offline.coordinates import Coordinates, bytes_needed
from sparseoco.offline.epochs import Blocks, EpochProblem, Share, State, mean_state, play_rounds, row_sizes
from sparseoco.offline.passes import ColumnMajor, Floats, Span
from sparseoco.storage.checkpoints import is_complete, read_checkpoint, write_array, write_checkpoint
from sparseoco.storage.commit import commit_json, digest_file, make_folder, read_json, remove_file
from sparseoco.storage.locations import Location, location
from sparseoco.store.corpus import check_worker_running, host_folder, open_corpus
from sparseoco.store.shards import Store, StoreReference, open_store, store_reference
from sparseoco.store.transpose import transpose, transposed_labels
from sparseoco.training.block import Block
from sparseoco.training.stream import NO_FOLD

# ----------------------------------------------------------------------------------------------------------------------
# Base class of epoch methods on a cluster: each epoch commits a state, from which the next one starts.


class EpochMethod:
    """A block of configurations of an epoch method, resumed from the last undamaged state in its folder.

    The state after an epoch is a file of arrays, which tasks read and write, one of weights and a short description
    (see `commit_state`).
    """

    failure = "An epoch failed"

    def __init__(self, client: Client, block: Block, problem: EpochProblem, store: Store, folder: Location) -> None:
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


def epoch_problem(block: Block, store: Store) -> EpochProblem:
    """The problem of a block over a store. Raises `InputError` as `EpochProblem.of`."""
    setting = block.setting
    return EpochProblem.of(
        block.algorithm,
        setting.loss,
        setting.penalty,
        block.configurations,
        store.n_classes,
        store.n_features,
        intercept=block.intercept,
    )


# ----------------------------------------------------------------------------------------------------------------------
# caos-erm on the cluster: the full pass of `cluster.passes`, then the rounds, in one task or in parts.
#
# placement = serial is the paper's algorithm. One task plays all rounds: it reads the drawn examples from its worker's
# corpus, a few thousand at a time, and their slopes from the files of the pass. The rounds take the time of one thread
# whatever the cluster. A worker holds three numbers per feature and column (Z, Δ and, if corrected, the pass's
# gradient, or the next prediction if it is the previous mini-batch's) and three per example (its size, the cumulative
# sum, its position), and lays out the shards it draws from, eventually all of them.
#
# placement = dealt: part p of `parts` owns every `parts`-th mini-batch, a sample of all examples, and plays its share
# of the rounds on them only, from the state at the beginning of the epoch; then the parts' states are averaged (see
# `epochs.Blocks.shares`, `epochs.State`). The number of parts is a parameter and not the number of workers, so bits do
# not depend on the cluster. Every machine lays out all shards, as for streams in shuffled order, and `parts` states of
# features × columns are summed from worker to worker in a tree. The price is accuracy: parts do not exchange updates
# within an epoch, so an epoch makes about the progress of rounds/parts serial rounds with less noise, and the first
# epochs, far from the optimum, overshoot. On IMDB sorted by class (25,000 documents, logistic, α = 10, R = 1,
# corrected), the objective exceeds its optimum after 1, 2, 5, 10 epochs by
#
#     serial               190 %    28 %   1.6 %   1.0 %      (sampled, as in the paper: 21 %, 11 %, 11 %, 8.8 %)
#     dealt, 4 parts       287 %    81 %   4.4 %   0.7 %
#     dealt, 8 parts       413 %   146 %   9.6 %   1.2 %
#
# One part gives the bits of serial. The state of an epoch, committed before the next one starts, is Z and Δ (features,
# slots, columns), the number of rounds played and the weights.


LEAVES_PER_TASK = 16


class SampledOnCluster(EpochMethod):
    """A block of caos-erm."""

    failure = "The rounds of an epoch failed"

    def __init__(self, client: Client, block: Block, problem: EpochProblem, store: Store, folder: Location) -> None:
        super().__init__(client, block, problem, store, folder)
        self._passes = ClusterPasses(
            client, store, self._folder / "passes", _span(block), *block_rows(block, store)[1:]
        )
        self._sizes_path = self._folder / "sizes.npy"
        sizes = self._row_sizes()
        blocks = Blocks.of(sizes, problem.configurations[0])
        self._shares = blocks.shares(problem.configurations[0])
        self.examples[:] = sizes.size + sum(share.rounds for share in self._shares) * blocks.batch

    def _play(self, before: Location | None, target: Location) -> None:
        files = self._passes.run(self.weights_file, f"epoch {self.epoch}", self.problem.pass_request)
        if self._shares:
            for outcome in self._pool.run([target], partial(self._start_rounds, before, files)):
                self._pool.check(outcome)
        else:  # no example has a feature: there is nothing to learn
            block, store = self._task_arguments()
            self._pool.call(_begin, block, store, str(target), self.epoch + 1, self.examples)
        for group in files:
            group.remove()

    def _start_rounds(self, before: Location | None, files: list[PassFiles], target: Location) -> Future:
        """Submit the shares of the rounds, their tree sum, and the task that commits the state."""
        epoch, state = self.epoch + 1, None if before is None else str(before)
        block, store = self._task_arguments()
        parts = [
            # On the workers that already have the part's shards: passes are placed in the same way.
            self._pool.submit(
                _play_samples, block, store, state, str(self._sizes_path), files, share, epoch, **placement
            )
            for placement, share in zip(placements(self._pool.client, len(self._shares)), self._shares, strict=True)
        ]
        total = self._pool.tree(parts)
        return self._pool.submit(_finish, block, store, str(target), total, len(parts), epoch, self.examples)

    def _row_sizes(self) -> Floats:
        """L_j of the examples of the span; computed once and stored."""
        if not self._sizes_path.exists():
            source = block_rows(self._block, self._store)
            bounds = self._passes.bounds
            runs = [bounds[i : i + LEAVES_PER_TASK] for i in range(0, len(bounds), LEAVES_PER_TASK)]
            sizes = self._pool.map(_sizes, [(source, self._passes.span, run) for run in runs])
            write_array(self._sizes_path, np.concatenate([np.zeros(0), *sizes]))
        return read_rows(self._sizes_path, 1)[:, 0]


class _SlopeFiles:
    """Slopes of a pass at given positions of its span, read from the files of its leaves."""

    def __init__(self, files: list[PassFiles]) -> None:
        self._leaves = [[read_rows(path, each.last - each.first) for path in each.slopes] for each in files]
        self._starts = np.cumsum([0, *(len(leaf) for leaf in self._leaves[0])])

    def __call__(self, positions: NDArray[np.int64], /) -> Floats:
        leaf = np.searchsorted(self._starts, positions, side="right") - 1
        order = np.argsort(leaf, kind="stable")
        runs = np.split(order, np.flatnonzero(np.diff(leaf[order])) + 1)
        out = np.empty((positions.size, sum(leaves[0].shape[1] for leaves in self._leaves)))
        for run in runs:
            number = leaf[run[0]]
            column = 0
            for leaves in self._leaves:
                part = leaves[number]
                out[run, column : column + part.shape[1]] = part[positions[run] - self._starts[number]]
                column += part.shape[1]
        return out


def _play_samples(
    description: dict[str, Any],
    store: StoreReference,
    before: str | None,
    sizes: str,
    files: list[PassFiles],
    share: Share,
    epoch: int,
) -> State:
    """Play one share of the rounds of an epoch, on a worker."""
    block, opened = Block.model_validate(description), open_store(store)
    problem = epoch_problem(block, opened)
    method, setting, first = problem.sampled(), block.setting, problem.configurations[0]
    if before is not None:
        with read_checkpoint(location(before)) as (described, read):
            read("state", method.state)
            read("diverged", method.diverged)
            method.rounds = int(described["rounds"])
    corpus = open_rows(block_rows(block, opened))
    gradient = None
    if first["estimate"] == "corrected":
        gradient = np.empty((problem.coordinates, files[-1].last))
        for each in files:
            each.gradient(gradient[:, each.first : each.last])
    rounds = play_rounds(
        method,
        corpus,
        _span(block).rows(corpus.n_rows, 0, corpus.n_rows),
        _SlopeFiles(files),
        gradient,
        Blocks.of(read_rows(location(sizes), 1)[:, 0], first),
        share,
        setting.seed,
        epoch,
    )
    for _ in rounds:
        check_worker_running()
    return State(method.state, method.rounds, method.diverged)


def _begin(
    description: dict[str, Any], store: StoreReference, target: str, epoch: int, examples: NDArray[np.int64]
) -> None:
    """Commit the state before the first round."""
    method = epoch_problem(Block.model_validate(description), open_store(store)).sampled()
    _commit(method, epoch, location(target), examples)


def _finish(
    description: dict[str, Any],
    store: StoreReference,
    target: str,
    total: State,
    count: int,
    epoch: int,
    examples: NDArray[np.int64],
) -> None:
    """Commit the state of the epoch, from the sum over its parts."""
    method = epoch_problem(Block.model_validate(description), open_store(store)).sampled()
    method.state, method.rounds, method.diverged = mean_state(total, count)
    _commit(method, epoch, location(target), examples)


def _commit(method: EpochColumns, epoch: int, target: Location, examples: NDArray[np.int64]) -> None:
    description = {"epoch": epoch, "rounds": method.rounds}
    arrays = {"state": method.state, "diverged": method.diverged}
    commit_state(target, description, arrays, method.weights(), method.diverged, examples)


def _sizes(source: RowsSource, span: Span, bounds: list[tuple[int, int]]) -> Floats:
    corpus = open_rows(source)
    return np.concatenate([row_sizes(corpus, span, start, stop) for start, stop in bounds])


def _span(block: Block) -> Span:
    """The examples that a block learns, in document order."""
    return Span(seed=block.setting.seed, fold=block.setting.fold, folds=block.setting.folds)


# ----------------------------------------------------------------------------------------------------------------------
# cao-rcd on the cluster: an epoch is one task over the store by columns.
#
# All workers transpose the store once per run (`store.transpose`); the task memory-maps its worker's copy. A round
# needs the margins after all earlier rounds, so one thread plays an epoch, and blocks of configurations run in
# parallel. A worker holds, for every column, about 64 bytes per feature and 16 per document, with a ridge 208 and 160
# (`coordinates.bytes_needed`).
#
# The state of an epoch is Z and Δ (features, slots, columns) and the number of epochs; margins are recomputed.


class CoordinatesOnCluster(EpochMethod):
    """A block of cao-rcd; the transposed store is in the parent of its folder.

    Raises `InputError` if it does not fit in a worker's memory.
    """

    failure = "An epoch of cao-rcd failed"

    def __init__(self, client: Client, block: Block, problem: EpochProblem, store: Store, folder: Location) -> None:
        _check_memory(client, problem, store)
        super().__init__(client, block, problem, store, folder)
        self._columns = transpose(client, store, self._folder.parent, block.weighting, intercept=problem.intercept)

    def _play(self, before: Location | None, target: Location) -> None:
        state = None if before is None else str(before)
        self._pool.call(_play_coordinates, *self._task_arguments(), store_reference(self._columns), state, str(target))


def _check_memory(client: Client, problem: EpochProblem, store: Store) -> None:
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


def _play_coordinates(
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
    """(rows,) float64: the weights of documents; 0 for those that are held out."""
    setting, out = block.setting, np.ones(labels.size) if weights is None else weights.astype(np.float64)
    if setting.fold != NO_FOLD:
        out[fold_rows(setting.seed, 0, labels.size, setting.fold, setting.folds)] = 0.0
    if setting.class_weights is not None:
        out *= np.array(setting.class_weights, np.float64)[labels]
    return out
