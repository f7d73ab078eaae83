"""Epoch methods on the cluster: blocks of configurations that go through the data again and again, epoch by epoch.

A method (`Method`) plays an epoch and commits its state; after each its weights are judged by one more pass over all
examples, whose figures are a cell as any block's (`cluster.block`), at the place where the epoch ends. A run that was
killed goes on from the last state and ends with the same bits; cells that are there are not made again.

These methods hold their data and predict no example before they learn it: what stands as progressive loss and error is
that of the training examples under the weights at the epoch's end. ``rows`` counts the examples gone through to learn,
those of the passes and those of the rounds. Weights are float64 and examples are drawn, not streamed: a setting's
`dtype` and `shuffle` have no part.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from distributed import Client
from numpy.typing import NDArray

from sparseoco.core.progress import RowsCallback
from sparseoco.execution.clusters import worker_shape
from sparseoco.execution.pool import await_result, send
from sparseoco.kernels.binding import TALLY
from sparseoco.kernels.epoch import evaluate_for
from sparseoco.kernels.full_pass import MARGINS
from sparseoco.kernels.order import fold_rows
from sparseoco.learners.losses import find_loss
from sparseoco.offline.coordinate_tasks import CoordinatesOnCluster
from sparseoco.offline.epochs import Problem
from sparseoco.offline.pass_tasks import read_rows
from sparseoco.offline.passes import CHUNK_ROWS, Floats, Shape, Span, leaf_bounds, tree_sum
from sparseoco.offline.sampled import SampledOnCluster, problem_of
from sparseoco.storage.checkpoints import write_array
from sparseoco.storage.commit import remove_folder
from sparseoco.storage.locations import Location, location
from sparseoco.store.cache import corpus_of
from sparseoco.store.frequencies import frequency_bins, kept_rows
from sparseoco.store.shards import Store
from sparseoco.training.block import NO_FOLD, Block, Setting, StreamPosition, Tables, cell_path, write_cell

TASKS_PER_SLOT = 4  # of those that judge: so that a slower worker can be helped by others


class Method(Protocol):
    """A block of configurations under way."""

    problem: Problem
    epoch: int
    """Epochs that lie behind, as the state that is committed has it."""

    def play(self) -> None:
        """One epoch more; its state is committed when it returns."""

    def weights(self) -> Floats:
        """(n_features, columns) at the end of the last epoch."""

    @property
    def rows(self) -> int | NDArray[np.int64]:
        """Examples gone through in an epoch, by all configurations or by each."""

    @property
    def diverged(self) -> NDArray[np.int64]:
        """A configuration's round (from 1) in which it diverged, or 0."""


METHODS: dict[str, Callable[[Client, Block, Problem, Store, Location], Method]] = {
    "epoch": SampledOnCluster,
    "coordinate": CoordinatesOnCluster,
}
"""By the driver of the algorithm; each begins where a state in the folder given, which is its own, left off."""


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

    Its state is kept in a folder of `work`, which all workers see, and removed in the end unless the block `resumable`.
    Gives False if `stopped` said so before the end. Raises `InputError` for what has no meaning or does not fit in a
    worker, `SparseocoError` for what cannot be run (`StorageError`: a shard that cannot be trusted, a full disk).
    """
    paths = {
        epoch: cell_path(cells, block, StreamPosition(epoch, store.n_rows))
        for epoch in range(1, block.setting.epochs + 1)
    }
    if all(path.exists() for path in paths.values()):
        return True
    folder = work / block.digest
    method = begin(client, block, store, folder)
    for epoch, path in paths.items():
        if stopped():
            return False
        started = time.monotonic()
        if method.epoch < epoch:
            method.play()
        if method.epoch == epoch and not path.exists():
            tables = _tables(client, method, block, store, folder)
            for own in tables:
                own["timings"] = [{"epoch": epoch, "seconds": (time.monotonic() - started) / len(tables)}]
            write_cell(path, block, StreamPosition(epoch, store.n_rows), tables)
        report(epoch * store.n_rows)
    if not resumable:
        remove_folder(folder)
    return True


def begin(client: Client, block: Block, store: Store, folder: Location) -> Method:
    """The method of a block, where its last state left it. Raises `InputError` as `Problem.of`."""
    problem = problem_of(block, store)
    return METHODS[problem.algorithm.driver](client, block, problem, store, folder)


class Judgement(NamedTuple):
    """Sums over examples, those learned from and those held out: of losses, and of errors, a configuration each."""

    rows: NDArray[np.int64]  # (2,)
    loss_sum: Floats  # (2, configurations)
    error_count: NDArray[np.int64]

    def __add__(self, other: Any) -> "Judgement":
        return Judgement(*(a + b for a, b in zip(self, other, strict=True)))


def _tables(client: Client, method: Method, block: Block, store: Store, folder: Location) -> list[Tables]:
    """Each configuration's rows of the epoch that has ended, but for the timings."""
    problem, weights = method.problem, method.weights()
    judged = _judge(client, weights, problem, block.setting, store, folder)
    bins, features = frequency_bins(store)
    kept = np.zeros((features.size, weights.shape[1]), np.int64)
    TALLY(weights, bins, kept)
    kept = kept.reshape(features.size, -1, problem.outputs).sum(axis=2)
    penalties, diverged = problem.penalties(weights), method.diverged
    learned, held_out = (max(int(rows), 1) for rows in judged.rows)
    rows = np.broadcast_to(method.rows, diverged.shape)
    tables: list[Tables] = []
    for i, configuration_diverged in enumerate(diverged):
        broken = bool(configuration_diverged) or not np.isfinite(judged.loss_sum[0, i])
        curve = {
            "rows": method.epoch * int(rows[i]),
            "progressive_loss": float(judged.loss_sum[0, i] / learned),
            "progressive_error": float(judged.error_count[0, i] / learned),
        }
        metrics = {
            "epoch": method.epoch,
            **curve,
            "objective": float(judged.loss_sum[0, i] + penalties[i]),
            "held_out_rows": int(judged.rows[1]),
            "held_out_loss": float(judged.loss_sum[1, i] / held_out) if judged.rows[1] else None,
            "held_out_error": float(judged.error_count[1, i] / held_out) if judged.rows[1] else None,
            "nonzeros": int(kept[:, i].sum()),
            "status": "diverged" if broken else "ok",
            "reason": f"diverged in round {configuration_diverged:,}" if broken else "",
        }
        tables.append({"metrics": [metrics], "curves": [curve], "kept": kept_rows(kept[:, i], features)})
    return tables


def _judge(
    client: Client, weights: Floats, problem: Problem, setting: Setting, store: Store, folder: Location
) -> Judgement:
    """Losses and errors of all examples, in tasks over runs of leaves; leaf by leaf, so that no bit depends on them."""
    path = folder / "judged.npy"
    write_array(path, weights)
    bounds = leaf_bounds(Span(), Shape(store.n_rows, store.n_features, store.manifest.nonzeros))
    count = min(len(bounds), TASKS_PER_SLOT * worker_shape(client)[0])
    runs = [bounds[len(bounds) * i // count : len(bounds) * (i + 1) // count] for i in range(count)]
    futures = [
        send(
            client,
            "judge",
            _judge_leaves,
            str(store.folder.resolve()),
            run,
            str(path),
            weights.shape[1],
            (problem.loss.name, problem.response),
            problem.outputs,
            (setting.seed, setting.fold, setting.folds),
        )
        for run in runs
    ]
    leaves = [leaf for future in futures for leaf in await_result(client, future, "Judging an epoch failed")]
    whole: Judgement = tree_sum(leaves.__getitem__, 0, len(leaves))
    return whole


def _judge_leaves(
    store: str,
    bounds: list[tuple[int, int]],
    weights_path: str,
    columns: int,
    response: tuple[str, str],
    outputs: int,
    fold: tuple[int, int, int],
) -> list[Judgement]:
    corpus = corpus_of(Store.open(store))
    weights = read_rows(location(weights_path), columns)
    evaluate = evaluate_for(find_loss(response[0]), response[1])
    seed, held_fold, folds = fold
    configurations = weights.shape[1] // outputs
    found = []
    for first, last in bounds:
        judged = Judgement(
            np.zeros(2, np.int64), np.zeros((2, configurations)), np.zeros((2, configurations), np.int64)
        )
        failed = np.zeros(configurations, np.int64)
        for start in range(first, last, CHUNK_ROWS):
            stop = min(start + CHUNK_ROWS, last)
            indptr, indices, counts, labels = corpus.rows(start, stop)
            z = np.empty((labels.size, weights.shape[1]))
            MARGINS(indptr, indices, counts, weights, z)
            held_out = np.zeros(labels.size, np.bool_)
            if held_fold != NO_FOLD:
                held_out[fold_rows(seed, start, stop, held_fold, folds) - start] = True
            for side, chosen in enumerate((~held_out, held_out)):
                truth = labels[chosen].astype(np.float64)
                sums = judged.loss_sum[side], judged.error_count[side]
                evaluate(z[chosen], truth, outputs, failed, *sums, np.zeros(weights.shape[1]))
                judged.rows[side] += truth.size
        judged.loss_sum[:, failed > 0] = np.nan
        found.append(judged)
    return found
