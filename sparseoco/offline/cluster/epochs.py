"""Blocks of epoch methods on the cluster.

After each epoch the weights are evaluated by one more pass over all examples; the metrics are a cell as for any block
(`training.block`), at the position of the epoch's end. A killed run resumes from the last state with the same bits;
existing cells are not computed again.

These methods do not predict examples before learning them: the progressive loss and error are those of the training
examples under the weights at the end of the epoch. ``rows`` counts the examples read in passes and rounds, without the
evaluation. Weights are float64 and examples are drawn, so the `dtype` and `range_rows` of a setting have no effect.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from distributed import Client
from numpy.typing import NDArray

from sparseoco.core.logs import RowsCallback
from sparseoco.execution.clusters import worker_shape
from sparseoco.execution.pool import TaskPool, remove_damaged
from sparseoco.kernels.columns import COUNT_NONZEROS, EVALUATE, by_row
from sparseoco.kernels.full_pass import MARGINS, loss_kernels
from sparseoco.kernels.order import fold_rows
from sparseoco.kernels.responses import response_of
from sparseoco.learners.losses import find_loss
from sparseoco.offline.cluster.methods import (
    CoordinatesOnCluster,
    EpochMethod,
    SampledOnCluster,
    block_rows,
    epoch_problem,
)
from sparseoco.offline.cluster.passes import RowsSource, open_rows, read_rows
from sparseoco.offline.passes import CHUNK_ROWS, Floats, Leaves, PassRequest, Shape, Span, row_weights, tree_sum
from sparseoco.storage.commit import read_json, remove_folder
from sparseoco.storage.locations import Location, location
from sparseoco.storage.tables import Row
from sparseoco.store.shards import Store, StoreReference, open_store, store_reference
from sparseoco.store.terms import frequency_bins, frequency_rows
from sparseoco.training.block import Block, Tables, cell_path, write_cell
from sparseoco.training.learner import ProgressiveTotals
from sparseoco.training.metrics import Scores, held_out_chunks, metric_rows, store_label_kind
from sparseoco.training.stream import NO_FOLD, Order, StreamPosition

TASKS_PER_SLOT = 4  # of an evaluation; more than one, to balance the load
EVALUATION = "Evaluating an epoch failed"

METHODS: dict[str, type[EpochMethod]] = {"epoch": SampledOnCluster, "coordinate": CoordinatesOnCluster}
"""By the driver of the algorithm."""


def run_epoch_block(
    client: Client,
    block: Block,
    store: Store,
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
        Options are invalid, or the block does not fit in a worker's memory.
    SparseocoError
        The block cannot be run (`StorageError`: a corrupt shard, a full disk).
    """
    paths = _cell_paths(cells, block, store)
    if all(path.exists() for path in paths.values()):
        return True
    folder = work / block.digest
    remove_damaged(TaskPool(client), folder)
    method = begin(client, block, store, folder)
    for epoch, path in paths.items():
        if stopped():
            return False
        started = time.monotonic()
        if method.epoch < epoch:
            method.play()
        if method.epoch == epoch and not path.exists():
            tables = _tables(client, method, block, store)
            for own in tables:
                own["timings"] = [{"epoch": epoch, "seconds": (time.monotonic() - started) / len(tables)}]
            write_cell(path, block, StreamPosition(epoch, store.n_rows), tables)
        report(epoch * store.n_rows)
    if not resumable:
        remove_folder(folder)
    return True


def begin(client: Client, block: Block, store: Store, folder: Location) -> EpochMethod:
    """The method of a block, resumed from its last state. Raises `InputError` as `EpochProblem.of`."""
    problem = epoch_problem(block, store)
    return METHODS[problem.algorithm.driver](client, block, problem, store, folder)


def epoch_metrics(cells: Location, block: Block, store: Store) -> list[dict[str, Any]]:
    """The metrics of a block of one configuration at the end of each epoch, from its cells."""
    paths = _cell_paths(cells, block, store).values()
    return [read_json(path)["results"][0]["tables"]["metrics"][0] for path in paths]


def _cell_paths(cells: Location, block: Block, store: Store) -> dict[int, Location]:
    epochs = range(1, block.setting.epochs + 1)
    return {epoch: cell_path(cells, block, StreamPosition(epoch, store.n_rows)) for epoch in epochs}


class EpochObjective(NamedTuple):
    """Losses and errors of each configuration, summed over training and held-out examples."""

    rows: NDArray[np.int64]  # (2,)
    loss_sum: Floats  # (2, configurations)
    error_count: NDArray[np.int64]
    weighted_loss_sum: Floats  # (configurations,), of the training examples

    def __add__(self, other: Any) -> "EpochObjective":
        return EpochObjective(*(a + b for a, b in zip(self, other, strict=True)))


class WeightCounts(NamedTuple):
    """Facts about the weights of each configuration."""

    kept: NDArray[np.int64]  # (bins of frequencies, configurations): nonzero weights
    features: NDArray[np.int64]  # (bins,) in each
    used: NDArray[np.int64]  # (configurations,): features with a nonzero weight
    penalties: Floats  # (configurations,)


def _count_weights(description: dict[str, Any], reference: StoreReference, weights_file: str) -> WeightCounts:
    store = open_store(reference)
    problem = epoch_problem(Block.model_validate(description), store)
    columns = len(problem.configurations) * problem.outputs
    weights, _ = problem.split(np.array(read_rows(location(weights_file), columns)))
    bins, features = frequency_bins(store)
    kept = np.zeros((features.size, columns), np.int64)
    COUNT_NONZEROS(weights, bins, kept)
    used = (weights != 0).reshape(len(weights), -1, problem.outputs).any(axis=2).sum(axis=0)
    by_configuration = kept.reshape(features.size, -1, problem.outputs).sum(axis=2)
    return WeightCounts(by_configuration, features, used, problem.penalties(weights))


def _tables(client: Client, method: EpochMethod, block: Block, store: Store) -> list[Tables]:
    """Each configuration's table rows for the last epoch, without the timings."""
    found = _evaluate(client, method, block, store)
    described = block.model_dump(mode="json"), store_reference(store), str(method.weights_file)
    counts: WeightCounts = TaskPool(client, EVALUATION).call(_count_weights, *described)
    kept, features = counts.kept, counts.features
    objectives = found.weighted_loss_sum + counts.penalties
    training, held_out = (ProgressiveTotals(int(n), *sums) for n, *sums in zip(*found[:3], strict=True))
    diverged = (method.diverged > 0) | ~np.isfinite(found.loss_sum[0])
    reasons = [f"diverged in round {t:,}" if out else "" for t, out in zip(method.diverged, diverged, strict=True)]
    rows = method.epoch * method.examples
    scores = _score_held_out(client, method, block, store, int(held_out.rows))
    nonzeros, numbers = (kept.sum(axis=0), counts.used), store.n_classes is None
    metrics = metric_rows(method.epoch, rows, training, held_out, scores, *nonzeros, reasons, numbers=numbers)
    tables: list[Tables] = []
    for i, row in enumerate(metrics):
        curve = {name: row[name] for name in ("rows", "progressive_loss", "progressive_error")}
        row["objective"] = float(objectives[i])
        tables.append({"metrics": [row], "curves": [curve], "feature_survival": frequency_rows(kept[:, i], features)})
    return tables


def _evaluate(client: Client, method: EpochMethod, block: Block, store: Store) -> EpochObjective:
    """Losses and errors of all examples, summed by leaves, so that bits do not depend on the number of tasks."""
    problem, setting, path = method.problem, block.setting, str(method.weights_file)
    bounds = Leaves(Span(), Shape(store.n_rows, store.n_features, store.manifest.nonzeros)).bounds()
    count = min(len(bounds), TASKS_PER_SLOT * worker_shape(client)[0])
    runs = [bounds[len(bounds) * i // count : len(bounds) * (i + 1) // count] for i in range(count)]
    shape, fold = (method.columns, problem.outputs), (setting.seed, setting.fold, setting.folds)
    arguments = [
        (block_rows(block, store), run, path, shape, problem.response, problem.pass_request, fold) for run in runs
    ]
    leaves = [leaf for part in TaskPool(client, EVALUATION).map(_evaluate_leaves, arguments) for leaf in part]
    total: EpochObjective = tree_sum(leaves.__getitem__, 0, len(leaves))
    return total


def _score_held_out(client: Client, method: EpochMethod, block: Block, store: Store, n_rows: int) -> list[Row]:
    """The metrics of the held-out fold, by one task: it is a small part of the rows."""
    problem, setting = method.problem, block.setting
    shape = n_rows, problem.outputs, len(problem.configurations)
    options = {"joint": bool(problem.loss.joint), "positive": setting.positive}
    source = block_rows(block, store)
    arguments = source, str(method.weights_file), setting.order, shape, options
    rows: list[Row] = TaskPool(client, EVALUATION).call(_held_out_metrics, *arguments)
    return rows


def _held_out_metrics(
    source: RowsSource, weights_path: str, order: Order, shape: tuple[int, int, int], options: dict[str, Any]
) -> list[Row]:
    opened, (n_rows, outputs, configurations) = open_store(source.store), shape
    scores = Scores(store_label_kind(opened), n_rows, outputs, configurations, **options)
    if n_rows:
        corpus, columns = open_rows(source), outputs * configurations
        weights = read_rows(location(weights_path), columns)
        for rows in held_out_chunks(order, corpus.n_rows):
            indptr, indices, counts, labels, _ = corpus.gather(rows)
            z = np.empty((labels.size, columns))
            MARGINS(indptr, indices, counts, weights, z)
            scores.add(z.reshape(-1, configurations, outputs), labels)
    return scores.rows()


def _evaluate_leaves(
    source: RowsSource,
    bounds: list[tuple[int, int]],
    weights_path: str,
    shape: tuple[int, int],
    response: str,
    request: PassRequest,
    fold: tuple[int, int, int],
) -> list[EpochObjective]:
    corpus = open_rows(source)
    columns, outputs = shape
    weights = read_rows(location(weights_path), columns)
    loss, positive = find_loss(request.loss), np.array(request.positive, np.int64)
    respond = response_of(loss, response, "float64")
    seed, held_fold, folds = fold
    size = columns // outputs
    evaluations = []
    for first, last in bounds:
        sums = EpochObjective(np.zeros(2, np.int64), np.zeros((2, size)), np.zeros((2, size), np.int64), np.zeros(size))
        failed, weighted, own = np.zeros(size, np.int64), np.zeros(columns), None
        for start in range(first, last, CHUNK_ROWS):
            stop = min(start + CHUNK_ROWS, last)
            rows = corpus.rows(start, stop)
            indptr, indices, counts, labels, _ = rows
            z = np.empty((labels.size, columns))
            MARGINS(indptr, indices, counts, weights, z)
            held_out = np.zeros(labels.size, np.bool_)
            if held_fold != NO_FOLD:
                held_out[fold_rows(seed, start, stop, held_fold, folds) - start] = True
            for part, chosen in enumerate((~held_out, held_out)):
                truth = labels[chosen].astype(np.float64)
                totals = sums.loss_sum[part], sums.error_count[part]
                EVALUATE(z[chosen], by_row(truth), respond, outputs, failed, *totals, np.zeros(columns))
                sums.rows[part] += truth.size
            if rows.weights is not None:
                own, learned = row_weights(rows), ~held_out
                truth = labels[learned].astype(np.float64)
                slopes = np.empty((truth.size, columns))
                loss_kernels(loss).respond(z[learned], truth, own[learned], positive, slopes, weighted)
        sums.weighted_loss_sum[:] = sums.loss_sum[0] if own is None else weighted.reshape(size, outputs).sum(axis=1)
        sums.loss_sum[:, failed > 0] = sums.weighted_loss_sum[failed > 0] = np.nan
        evaluations.append(sums)
    return evaluations
