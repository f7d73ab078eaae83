"""Epoch methods on the cluster: blocks of configurations, epoch by epoch.

After each epoch the weights are evaluated by one more pass over all examples; the metrics are a cell as for any block
(`training.block`), at the position of the epoch's end. A killed run resumes from the last state with the same bits;
existing cells are not computed again.

These methods do not predict examples before learning them: the progressive loss and error are those of the training
examples under the weights at the end of the epoch. ``rows`` counts the examples read in passes and rounds, without the
evaluation. Weights are float64 and examples are drawn, so the `dtype` and `range_rows` of a setting have no effect.
"""

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from distributed import Client, Future
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.core.logs import RowsCallback
from sparseoco.execution.clusters import TaskPool, placements, remove_damaged, worker_shape
from sparseoco.kernels.columns import EVALUATE, MARGINS, RowBatch, add_nonzeros, by_row, loss_kernels
from sparseoco.kernels.epoch import EpochColumns
from sparseoco.kernels.order import fold_rows
from sparseoco.kernels.responses import row_loss
from sparseoco.offline import epochs
from sparseoco.offline.cluster.passes import ClusterPasses, Pass, RowsSource, open_rows, read_rows
from sparseoco.offline.epochs import Blocks, Coordinates, EpochProblem, Share, State
from sparseoco.offline.passes import WHOLE, ColumnMajor, Floats, Leaves, Shape, Span, SpanRows, row_weights, tree_sum
from sparseoco.storage.commit import commit_json, make_folder, read_json, remove_file, remove_folder
from sparseoco.storage.locations import Location
from sparseoco.storage.tables import Row, read_checkpoint, write_array, write_checkpoint
from sparseoco.store.corpus import check_worker_running, host_folder, open_corpus
from sparseoco.store.shards import Session, Store, StoreReference, open_store, store_reference
from sparseoco.store.terms import frequency_bins, frequency_rows
from sparseoco.store.transpose import transpose, transposed_labels
from sparseoco.training.block import Block, Tables, cell_path, write_cell
from sparseoco.training.learner import ProgressiveTotals
from sparseoco.training.metrics import Scores, held_out_chunks, metric_rows, store_label_kind
from sparseoco.training.stream import NO_FOLD, StreamPosition


def run_epoch_block(
    session: Session,
    block: Block,
    cells: Location,
    work: Location,
    report: RowsCallback,
    *,
    resumable: bool = False,
    stopped: Callable[[], bool] = lambda: False,
) -> bool:
    """Run a block of an epoch method to its last epoch, committing a cell at the end of each (see `cell_path`).

    Its state is in a subfolder of `work`, which all workers can access, removed at the end unless `resumable`.

    Returns
    -------
    bool
        False if `stopped` returned True before the end.

    Raises
    ------
    InputError
        Options are invalid, or a pass does not fit in a worker's memory.
    SparseocoError
        The block cannot be run (`StorageError`: a corrupt shard, a full disk).
    """
    store, paths = session.store, _cell_paths(cells, block, session.store)
    if all(path.exists() for path in paths.values()):
        return True
    folder = work / block.digest
    method = begin(session, block, folder)
    for epoch, path in paths.items():
        if stopped():
            return False
        started = time.monotonic()
        if method.epoch < epoch:
            method.play()
        if method.epoch == epoch and not path.exists():
            tables = _tables(session.client, method)
            for own in tables:
                own["timings"] = [{"epoch": epoch, "seconds": (time.monotonic() - started) / len(tables)}]
            write_cell(path, block, StreamPosition(epoch, store.n_rows), tables)
        report(epoch * store.n_rows)
    if not resumable:
        remove_folder(folder)
    return True


def begin(session: Session, block: Block, folder: Location) -> "EpochMethod":
    """The method of a block, resumed from its last state. Raises `InputError` as `EpochProblem.of`."""
    remove_damaged(TaskPool(session.client), folder)
    task = EpochTask(block, store_reference(session.store))
    methods = {"epoch": SampledOnCluster, "pass": AveragedOnCluster, "coordinate": CoordinatesOnCluster}
    return methods[task.problem.algorithm.driver](session.client, task, folder)


def epoch_metrics(cells: Location, block: Block, store: Store) -> list[dict[str, Any]]:
    """The metrics of a block of one configuration at the end of each epoch, from its cells."""
    paths = _cell_paths(cells, block, store).values()
    return [read_json(path)["results"][0]["tables"]["metrics"][0] for path in paths]


def _cell_paths(cells: Location, block: Block, store: Store) -> dict[int, Location]:
    ends = [StreamPosition(epoch, store.n_rows) for epoch in range(1, block.setting.epochs + 1)]
    return {end.epoch: cell_path(cells, block, end) for end in ends}


# ----------------------------------------------------------------------------------------------------------------------
# Base class of epoch methods on a cluster: each epoch commits a state, from which the next one starts.


class EpochTask(NamedTuple):
    """A block of an epoch method over a store, as its tasks get it."""

    block: Block
    reference: StoreReference

    @property
    def store(self) -> Store:
        """The store, opened."""
        return open_store(self.reference)

    @property
    def problem(self) -> EpochProblem:
        """The problem of the block over the store. Raises `InputError` as `EpochProblem.of`."""
        block, setting, store = self.block, self.block.setting, self.store
        named = block.algorithm, setting.loss, setting.penalty, block.configurations
        return EpochProblem.of(*named, store.n_classes, store.n_features)._replace(intercept=block.intercept)

    @property
    def rows(self) -> RowsSource:
        """The rows as the block weights them."""
        block = self.block
        return RowsSource(self.reference, block.weighting, block.setting.class_weights, block.intercept)

    @property
    def span(self) -> Span:
        """The examples that the block learns, in document order."""
        setting = self.block.setting
        return Span(seed=setting.seed, fold=setting.fold, folds=setting.folds)


class EpochMethod:
    """A block of configurations of an epoch method, resumed from the last state in its folder.

    The state after an epoch is a file of arrays, which tasks read and write, one of weights and a short description
    (see `commit_state`).
    """

    def __init__(self, client: Client, task: EpochTask, folder: Location) -> None:
        self.task, self.problem = task, task.problem
        self.epoch = 0
        """Epochs played."""
        self.diverged = np.zeros(len(self.problem.configurations), np.int64)
        """(configurations,): the round (from 1) in which it diverged, or 0."""
        self.examples = 0
        """Examples read so far."""
        self.data_bounds = np.zeros(len(self.problem.configurations))
        """(configurations,): 4 Σ_i R_iΔ_i, of all outputs."""
        self._folder = folder.resolve()
        self._pool = TaskPool(client, "An epoch failed")
        make_folder(self._folder)
        states = self._folder.glob("epoch-*.json")
        for state in sorted(states, key=lambda path: int(path.stem.split("-")[1]), reverse=True):
            if all(state.with_suffix(suffix).exists() for suffix in (".npz", ".npy")):
                self._load(state.with_suffix(".npz"))
                break

    @property
    def weights_file(self) -> Location | None:
        """npy (coordinates, columns): the weights at the end of the last epoch; None before the first."""
        return self._state_path(self.epoch).with_suffix(".npy") if self.epoch else None

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

    def _state_path(self, epoch: int) -> Location:
        return self._folder / f"epoch-{epoch}.npz"

    def _load(self, path: Location) -> None:
        found = read_json(path.with_suffix(".json"))
        self.diverged = self.problem.diverged(np.array(found["diverged"], np.int64))
        self.examples, self.epoch = int(found["examples"]), int(found["epoch"])
        self.data_bounds = self.problem.by_configuration(np.array(found["data_bounds"], np.float64))


def commit_state(path: Location, described: dict[str, int], method: EpochColumns | Coordinates) -> None:
    """Write the state of an epoch: a checkpoint `path`, an npy file of the weights, and last a JSON file.

    `described` has the number of the ``epoch`` and of the ``examples`` read so far.
    """
    arrays: dict[str, NDArray[Any]] = {"state": method.state}
    if isinstance(method, EpochColumns):  # no column of the other method can diverge
        arrays["diverged"] = method.diverged
    write_checkpoint(path, described, arrays.items())
    write_array(path.with_suffix(".npy"), method.weights())
    if isinstance(method, EpochColumns):
        configurations, scale = method.configurations, np.ones((1, 1))
    else:
        configurations, scale = method.problem.configurations, method.draws.scale[:, None]
    R = np.repeat([c["R"] for c in configurations], method.state.shape[2] // len(configurations))
    terms = 4.0 * scale * R * method.state[:, 1]
    short: dict[str, Any] = {name: described[name] for name in ("epoch", "examples")}
    short["diverged"] = method.diverged.tolist()
    # The exact sum, so that bits do not depend on the other columns; no number is infinite where JSON has none.
    short["data_bounds"] = [math.fsum(own) if np.isfinite(own).all() else None for own in terms.T]
    commit_json(path.with_suffix(".json"), short)


# ----------------------------------------------------------------------------------------------------------------------
# caos-erm on the cluster: the full pass of `cluster.passes`, then the rounds, in one task or in parts.
#
# placement = serial is the paper's algorithm. One task plays all rounds: it reads the drawn examples from its worker's
# corpus, a few thousand at a time, and their slopes from the files of the pass. The rounds take the time of one thread
# whatever the cluster. A worker holds three numbers per feature and column (Z, Δ and, if corrected, the pass's
# gradient, or the next prediction if it is the previous mini-batch's) and five per example (its size and largest value,
# the cumulative sum, its place in the order of the mini-batches and its row; with predict_gradient = last or
# sample = adaptive a slope per column as well), and lays out the shards it draws from, eventually all of them.
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

    def __init__(self, client: Client, task: EpochTask, folder: Location) -> None:
        super().__init__(client, task, folder)
        self._passes = ClusterPasses(client, task.rows, self._folder / "passes", task.span)
        self._sizes_path = self._folder / "sizes.npy"
        sizes = self._row_sizes()
        blocks = Blocks.of(sizes, self.problem.configurations[0], task.block.setting.seed)
        self._shares = blocks.shares(self.problem.configurations[0])
        self._each = len(sizes) + sum(share.rounds for share in self._shares) * blocks.batch

    def _play(self, before: Location | None, target: Location) -> None:
        done = self._passes.run(self.weights_file, self.problem.pass_request)
        for outcome in self._pool.run([target], partial(self._start_rounds, before, done)):
            self._pool.check(outcome)
        done.remove()

    def _start_rounds(self, before: Location | None, done: Pass, target: Location) -> Future:
        """Submit the shares of the rounds, their tree sum, and the task that commits the state."""
        epoch, shares = self.epoch + 1, self._shares
        # On the workers that already have the part's shards: passes are placed in the same way.
        places = placements(self._pool.client, len(shares)) if shares else []
        arguments = self.task, before, self._sizes_path, done, epoch
        parts = [
            self._pool.submit(_play_samples, *arguments, share, **place)
            for place, share in zip(places, shares, strict=True)
        ]
        total = self._pool.tree(parts) if parts else None  # no example has a feature: there is nothing to learn
        return self._pool.submit(_finish, self.task, target, total, len(parts), epoch, epoch * self._each)

    def _row_sizes(self) -> Floats:
        """`epochs.row_sizes` of the span; computed once and stored."""
        if not self._sizes_path.exists():
            bounds = self._passes.bounds
            runs = [bounds[i : i + LEAVES_PER_TASK] for i in range(0, len(bounds), LEAVES_PER_TASK)]
            sizes = self._pool.map(_sizes, [(self.task, run) for run in runs])
            write_array(self._sizes_path, np.concatenate([np.zeros((0, 2)), *sizes]))
        return read_rows(self._sizes_path)


def read_state(path: Location | None, method: EpochColumns) -> None:
    """Restore the state of an epoch, if there is one."""
    if path is not None:
        with read_checkpoint(path) as (described, read):
            read("state", method.state)
            read("diverged", method.diverged)
            method.rounds = int(described["rounds"])


class SlopeFiles:
    """Slopes of a pass at given positions of its span, read from the files of its leaves."""

    def __init__(self, done: Pass) -> None:
        self._leaves = [read_rows(path) for path in done.slopes]
        self._starts = np.cumsum([0, *map(len, self._leaves)])

    def __call__(self, positions: NDArray[np.int64], /) -> Floats:
        leaf = np.searchsorted(self._starts, positions, side="right") - 1
        order = np.argsort(leaf, kind="stable")
        runs = np.split(order, np.flatnonzero(np.diff(leaf[order])) + 1)
        out = np.empty((positions.size, self._leaves[0].shape[1]))
        for run in runs:
            number = leaf[run[0]]
            out[run] = self._leaves[number][positions[run] - self._starts[number]]
        return out


def _play_samples(
    task: EpochTask, before: Location | None, sizes: Location, done: Pass, epoch: int, share: Share
) -> State:
    """Play one share of the rounds of an epoch, on a worker."""
    method, first = task.problem.sampled(), task.problem.configurations[0]
    read_state(before, method)
    corpus = open_rows(task.rows)
    gradient = done.sums().gradient if first["estimate"] == "corrected" else None
    rows = task.span.rows(corpus.n_rows, 0, corpus.n_rows)
    seed = task.block.setting.seed
    blocks = Blocks.of(read_rows(sizes), first, seed)
    rounds = epochs.Rounds(corpus, rows, SlopeFiles(done), gradient, blocks, seed, epoch)
    return epochs.play_rounds(method, rounds, share, check_worker_running)


def _finish(task: EpochTask, target: Location, total: State | None, count: int, epoch: int, examples: int) -> None:
    """Commit the state of an epoch, from the sum over its parts; the state before the first round without any."""
    method = task.problem.sampled()
    if total is not None:
        method.state, method.rounds, method.diverged = total.mean(count)
    commit_state(target, {"epoch": epoch, "rounds": method.rounds, "examples": examples}, method)


def _sizes(task: EpochTask, bounds: list[tuple[int, int]]) -> Floats:
    rows = SpanRows(open_rows(task.rows), task.span)
    return np.concatenate([epochs.row_sizes(rows, start, stop) for start, stop in bounds])


# ----------------------------------------------------------------------------------------------------------------------
# optimistic-averaging on the cluster: a pass, and one task that updates all features. It holds about eight numbers per
# feature and column, fewer than the pass.


class AveragedOnCluster(EpochMethod):
    """A block of optimistic-averaging."""

    def __init__(self, client: Client, task: EpochTask, folder: Location) -> None:
        super().__init__(client, task, folder)
        self._passes = ClusterPasses(client, task.rows, self._folder / "passes", task.span)
        n_rows = self._passes.shape.n_rows
        self._each = sum(task.span.rows(n_rows, *own).size for own in self._passes.bounds)

    def _play(self, before: Location | None, target: Location) -> None:
        done = self._passes.run(self.weights_file, self.problem.pass_request)
        self._pool.call(_learn, self.task, before, done, target, (self.epoch + 1) * self._each)
        done.remove()


def _learn(task: EpochTask, before: Location | None, done: Pass, target: Location, examples: int) -> None:
    """Play the round of a pass on a worker, and commit the state after it."""
    method = task.problem.averaged()
    read_state(before, method)
    method.learn(done.sums().gradient)
    commit_state(target, {"epoch": method.rounds, "rounds": method.rounds, "examples": examples}, method)


# ----------------------------------------------------------------------------------------------------------------------
# cao-rcd on the cluster: an epoch is one task over the store by columns.
#
# All workers transpose the store once per run (`store.transpose`); the task memory-maps its worker's copy. A round
# needs the margins after all earlier rounds, so one thread plays an epoch, and blocks of configurations run in
# parallel. A worker holds, for every column, about 64 bytes per feature and 16 per document, with a ridge 208 and 160
# (`epochs.bytes_needed`).
#
# The state of an epoch is Z and Δ (features, slots, columns) and the number of epochs; margins are recomputed.


class CoordinatesOnCluster(EpochMethod):
    """A block of cao-rcd; the transposed store is in the parent of its folder.

    Raises `InputError` if it does not fit in a worker's memory.
    """

    def __init__(self, client: Client, task: EpochTask, folder: Location) -> None:
        problem, store, memory = task.problem, task.store, worker_shape(client).memory
        rounds = problem.configurations[0]["rounds"]
        needed = epochs.bytes_needed(store.n_rows, problem.coordinates, problem.columns, rounds, problem.penalty.name)
        if needed > memory:
            raise InputError(
                f"cao-rcd needs {needed / 1e9:.1f} GB for {problem.columns} columns ({store.n_features:,} features, "
                f"{store.n_rows:,} documents) and a task has {memory / 1e9:.1f} GB: keep fewer features at ingest "
                "(--min-df, --max-features, --hash-bits) or give workers more memory.",
                code="out-of-memory",
            )
        super().__init__(client, task, folder)
        self._columns = transpose(
            client, store, self._folder.parent, task.block.weighting, intercept=task.block.intercept
        )

    def _play(self, before: Location | None, target: Location) -> None:
        self._pool.call(_play_coordinates, self.task, store_reference(self._columns), before, target)


def _play_coordinates(task: EpochTask, columns: StoreReference, before: Location | None, target: Location) -> None:
    """Play one epoch on a worker, from the last state to the next."""
    method, examples = open_coordinates(task, columns), 0
    if before is not None:
        with read_checkpoint(before) as (described, read):
            read("state", method.state)
            method.epoch, examples = int(described["epoch"]), int(described["examples"])
    method.play(check_worker_running)
    commit_state(target, {"epoch": method.epoch, "examples": examples + method.examples}, method)


def open_coordinates(task: EpochTask, columns: StoreReference) -> Coordinates:
    """A block before its first epoch, on a worker; `columns` is the transposed store."""
    transposed, setting = open_store(columns), task.block.setting
    labels, sample_weights = transposed_labels(transposed)
    corpus = open_corpus(transposed, host_folder())
    indptr, rows, counts, *_ = corpus.whole()
    weights = np.ones(labels.size) if sample_weights is None else sample_weights.astype(np.float64)
    if setting.fold != NO_FOLD:
        weights[fold_rows(setting.seed, 0, labels.size, setting.fold, setting.folds)] = 0.0
    if setting.class_weights is not None:
        weights *= np.array(setting.class_weights, np.float64)[labels]
    data = ColumnMajor(indptr, rows, counts, labels)
    return Coordinates(task.problem, data, setting.seed, weights, corpus.rest)


# ----------------------------------------------------------------------------------------------------------------------
# The evaluation at the end of an epoch: one more pass over all examples, learned and held out.


TASKS_PER_SLOT = 4  # of an evaluation; more than one, to balance the load
EVALUATION = "Evaluating an epoch failed"


class EpochObjective(NamedTuple):
    """Losses and errors of each configuration, summed over training and held-out examples."""

    rows: NDArray[np.int64]  # (2,)
    loss_sum: Floats  # (2, configurations)
    error_count: NDArray[np.int64]
    weighted_loss_sum: Floats  # (configurations,), of the training examples

    def __add__(self, other: Any) -> "EpochObjective":
        return EpochObjective(*(a + b for a, b in zip(self, other, strict=True)))


class WeightSummary(NamedTuple):
    """Facts about the weights of each configuration."""

    kept: NDArray[np.int64]  # (bins of frequencies, configurations): nonzero weights
    features: NDArray[np.int64]  # (bins,) in each
    used: NDArray[np.int64]  # (configurations,): features with a nonzero weight
    penalties: Floats  # (configurations,)
    scores: list[Row]  # the metrics of the held-out fold


def _tables(client: Client, method: EpochMethod) -> list[Tables]:
    """Each configuration's table rows for the last epoch, without the timings."""
    found = _evaluate(client, method)
    training, held_out = (ProgressiveTotals(int(n), *sums) for n, *sums in zip(*found[:3], strict=True))
    arguments = method.task, method.weights_file, int(held_out.rows)
    summary: WeightSummary = TaskPool(client, EVALUATION).call(_summarise, *arguments)
    objectives = found.weighted_loss_sum + summary.penalties
    diverged = (method.diverged > 0) | ~np.isfinite(found.loss_sum[0])
    reasons = [f"diverged in round {t:,}" if out else "" for t, out in zip(method.diverged, diverged, strict=True)]
    rows = np.full(len(method.diverged), method.examples)
    nonzeros, numbers = (summary.kept.sum(axis=0), summary.used), method.task.store.n_classes is None
    metrics = metric_rows(method.epoch, rows, training, held_out, summary.scores, *nonzeros, reasons, numbers=numbers)
    tables: list[Tables] = []
    for i, row in enumerate(metrics):
        curve = {name: row[name] for name in ("rows", "progressive_loss", "progressive_error")}
        row |= {"objective": float(objectives[i]), "data_bound": float(method.data_bounds[i])}
        survival = frequency_rows(summary.kept[:, i], summary.features)
        tables.append({"metrics": [row], "curves": [curve], "feature_survival": survival})
    return tables


def _evaluate(client: Client, method: EpochMethod) -> EpochObjective:
    """Losses and errors of all examples, summed by leaves, so that bits do not depend on the number of tasks."""
    store = method.task.store
    bounds = Leaves(WHOLE, Shape(store.n_rows, store.n_features, store.manifest.nonzeros)).bounds()
    count = min(len(bounds), TASKS_PER_SLOT * worker_shape(client).tasks)
    runs = [bounds[len(bounds) * i // count : len(bounds) * (i + 1) // count] for i in range(count)]
    arguments = [(method.task, method.weights_file, run) for run in runs]
    leaves = [leaf for part in TaskPool(client, EVALUATION).map(_evaluate_leaves, arguments) for leaf in part]
    total: EpochObjective = tree_sum(leaves.__getitem__, 0, len(leaves))
    return total


def _summarise(task: EpochTask, weights_file: Location, held_out_rows: int) -> WeightSummary:
    """By one task: held-out rows are a small part of all."""
    problem, setting = task.problem, task.block.setting
    outputs, configurations = problem.outputs, len(problem.configurations)
    extended = np.array(read_rows(weights_file, problem.columns))
    weights, _ = problem.split(extended)
    bins, features = frequency_bins(task.store)
    kept = np.zeros((features.size, problem.columns), np.int64)
    add_nonzeros(weights, bins, kept)
    used = (weights != 0).reshape(len(weights), -1, outputs).any(axis=2).sum(axis=0)
    kind, joint = store_label_kind(task.store), bool(problem.loss.joint)
    scores = Scores(kind, held_out_rows, outputs, configurations, joint=joint, positive=setting.positive)
    if held_out_rows:
        corpus = open_rows(task.rows)
        for rows in held_out_chunks(setting.order, corpus.n_rows):
            batch = corpus.gather(rows)
            scores.add(_margins(batch, extended).reshape(-1, configurations, outputs), batch.labels)
    by_configuration = kept.reshape(features.size, -1, outputs).sum(axis=2)
    return WeightSummary(by_configuration, features, used, problem.penalties(weights), scores.rows())


def _margins(rows: RowBatch, weights: Floats) -> Floats:
    """(rows, columns)."""
    z = np.empty((len(rows.labels), weights.shape[1]))
    MARGINS(rows.indptr, rows.indices, rows.values, weights, z)
    return z


def _evaluate_leaves(task: EpochTask, weights_file: Location, bounds: list[tuple[int, int]]) -> list[EpochObjective]:
    problem, setting, corpus = task.problem, task.block.setting, open_rows(task.rows)
    weights = read_rows(weights_file, problem.columns)
    loss, positive = problem.loss, np.array(problem.pass_request.positive, np.int64)
    kind = "one_vs_rest" if problem.outputs > 1 else "binary" if problem.positive[0] == 1 else "regression"
    of_rows = row_loss(loss, kind, "float64")
    size = len(problem.configurations)
    evaluations = []
    for first, last in bounds:
        sums = EpochObjective(np.zeros(2, np.int64), np.zeros((2, size)), np.zeros((2, size), np.int64), np.zeros(size))
        failed, weighted, own = np.zeros(size, np.int64), np.zeros(problem.columns), None
        held_out_rows = np.zeros(last - first, np.bool_)
        if setting.fold != NO_FOLD:
            held_out_rows[fold_rows(setting.seed, first, last, setting.fold, setting.folds) - first] = True
        for rows in SpanRows(corpus).chunks(first, last):
            z, labels = _margins(rows, weights), np.asarray(rows.labels, np.float64)
            held_out, held_out_rows = held_out_rows[: labels.size], held_out_rows[labels.size :]
            for part, chosen in enumerate((~held_out, held_out)):
                totals = sums.loss_sum[part], sums.error_count[part]
                EVALUATE(z[chosen], by_row(labels[chosen]), of_rows, problem.outputs, failed, *totals)
                sums.rows[part] += np.count_nonzero(chosen)
            if rows.weights is not None:
                own, learned = row_weights(rows), ~held_out
                slopes = np.empty((np.count_nonzero(learned), problem.columns))
                loss_kernels(loss).respond(z[learned], labels[learned], own[learned], positive, slopes, weighted)
        sums.weighted_loss_sum[:] = sums.loss_sum[0] if own is None else problem.by_configuration(weighted)
        sums.loss_sum[:, failed > 0] = sums.weighted_loss_sum[failed > 0] = np.nan
        evaluations.append(sums)
    return evaluations
