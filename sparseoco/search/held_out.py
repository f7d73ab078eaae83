"""Held-out predictions of the chosen configuration: `held_out.parquet` in the folder of a search.

A search keeps the metrics of a configuration, not its predictions. For the chosen one, a task per fold trains it again
on the other folds, with the bits it had in the search, and writes its margins on the held-out documents (see
`sparseoco.training.decisions.predictions`), a row group per fold. Calibrations, thresholds and curves are made from
them. Of a large corpus they are a sample, drawn by a hash of the numbers of the documents.

Each task commits a file, so that a run that was killed makes only what is missing; the bytes do not depend on shards,
threads and workers.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from distributed import Client
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from sparseoco.core.errors import DamagedError
from sparseoco.core.progress import ProgressCallback, RowsCallback
from sparseoco.execution.pool import TaskPool
from sparseoco.execution.work_files import remove_damaged
from sparseoco.kernels.order import sample_rows
from sparseoco.learners import find_algorithm
from sparseoco.offline.cluster.epoch_method import epoch_problem
from sparseoco.offline.cluster.epochs import run_epoch_block
from sparseoco.offline.cluster.pass_tasks import read_rows
from sparseoco.search.block_run import BlockRun
from sparseoco.search.checkpoints import load_checkpoint
from sparseoco.search.tasks import ProgressTracker, reported_rows, reporter, run_parts
from sparseoco.search.worker import Folders
from sparseoco.storage.commit import digest_value, make_folder, remove_file, remove_folder
from sparseoco.storage.locations import Location, location
from sparseoco.storage.parquet import parquet_writer, read_parquet_file, write_parquet
from sparseoco.store.corpus import AnyCorpus
from sparseoco.store.feature_subset import read_feature_subset
from sparseoco.store.references import StoreReference, open_store, store_reference
from sparseoco.store.shards import Store
from sparseoco.store.worker import worker_corpus
from sparseoco.training.block import Block, search_setting
from sparseoco.training.decisions.predictions import Predictions, predictions_table, read_predictions
from sparseoco.training.decisions.rules import ROWS, decision_rules
from sparseoco.training.decisions.threshold_rule import ThresholdRule
from sparseoco.training.folds import fold_order
from sparseoco.training.metrics.progressive import held_out_chunks
from sparseoco.training.options.configuration import Configuration
from sparseoco.training.options.search import SearchOptions
from sparseoco.training.stream import StreamPosition

FILE = "held_out.parquet"
MARGINS = 10_000_000
"""Margins in the file at most, about; there are `ROWS` documents or, with more than 100 classes, fewer."""
IDENTITY = b"sparseoco"
"""The key in the file's metadata of what it was made from."""


def write_held_out(
    client: Client,
    configuration: Configuration,
    options: SearchOptions,
    epochs: int,
    store: Store,
    folder: Location,
    progress: ProgressCallback,
) -> None:
    """Write the held-out predictions of a configuration after `epochs`, unless they are there; none with one fold.

    Raises `SparseocoError` if a task fails.
    """
    blocks = held_out_blocks(configuration, options, epochs, store)
    if not blocks or has_held_out(folder, blocks):
        return
    work = (folder / "held_out").resolve()
    make_folder(work)
    keys = [key for block in blocks for key in block.keys]
    tracker = ProgressTracker("predictions", keys, epochs * store.n_rows, progress)
    parts = [work / f"{block.digest}-{epochs}.parquet" for block in blocks]
    pool = TaskPool(client, "The held-out documents could not be predicted")
    remove_damaged(pool, work)
    states: dict[str, str] = {}
    if configuration.parts > 1:
        missing = [block for block, part in zip(blocks, parts, strict=True) if not part.exists()]
        run_parts(client, missing, store, work, tracker, "The held-out documents could not be predicted")
        states = {block.digest: str(work) for block in missing}
    elif not find_algorithm(configuration.algorithm).online:
        for block, part in zip(blocks, parts, strict=True):  # one at a time, since each is spread over the cluster
            if not part.exists():
                states[block.digest] = str(_train_epochs(client, block, store, work, tracker))
    arguments = [
        (block.model_dump(mode="json"), store_reference(store), str(part), states.get(block.digest))
        for block, part in zip(blocks, parts, strict=True)
    ]
    with reported_rows(client, tracker, {block.digest: block for block in blocks}):
        pool.map(_fold_task, arguments)
    tracker.reach(keys)
    pool.call(_unite_task, [str(part) for part in parts], str((folder / FILE).resolve()), _identity(blocks))
    remove_folder(work)


def held_out_blocks(configuration: Configuration, options: SearchOptions, epochs: int, store: Store) -> list[Block]:
    """The configuration in each fold, trained for `epochs`; none with one fold."""
    settings = [search_setting(options, store, fold) for fold in range(options.folds if options.folds > 1 else 0)]
    return [Block.of(setting.model_copy(update={"epochs": epochs}), [configuration]) for setting in settings]


def has_held_out(folder: Location, blocks: list[Block]) -> bool:
    """Whether the held-out predictions in the folder of a search are those of these blocks; others are removed."""
    path = folder / FILE
    if not path.exists():
        return False
    with suppress(DamagedError):
        found = read_parquet_file(path).schema.metadata or {}
        if blocks and found.get(IDENTITY) == _identity(blocks).encode():
            return True
    remove_file(path)
    return False


def held_out_rules(
    folder: Location, classes: Sequence[str], threshold: ThresholdRule | None, positive: int
) -> dict[str, Any]:
    """The `decision_rules` of the held-out predictions in the folder of a search, if it has any."""
    if not classes or not (folder / FILE).exists():
        return {}
    found = read_predictions(folder / FILE, classes)
    return decision_rules(found.margins, found.labels, threshold, positive)


def _identity(blocks: list[Block]) -> str:
    return digest_value([[block.digest for block in blocks], blocks[0].setting.epochs, ROWS, MARGINS])


class Predictor(Protocol):
    """The margins of one configuration: `Learner`, `LinearModel`."""

    def margins(self, indptr: Any, indices: Any, counts: Any) -> NDArray[Any]:
        """(rows, 1, outputs)."""


class LinearModel:
    """Margins under given weights (features, outputs) and intercepts (1, outputs)."""

    def __init__(self, weights: NDArray[Any], intercepts: NDArray[Any]) -> None:
        self._weights, self._intercepts = weights, intercepts

    def margins(self, indptr: Any, indices: Any, counts: Any) -> NDArray[Any]:
        """(rows, 1, outputs)."""
        shape = len(indptr) - 1, len(self._weights)
        matrix = csr_matrix((np.asarray(counts, np.float64), indices, indptr), shape=shape)
        return np.asarray(matrix @ self._weights + self._intercepts)[:, None]


def train_fold(block: Block, store: Store, corpus: AnyCorpus, report: RowsCallback) -> Predictor:
    """The learner of a block of one configuration at the end of its epochs."""
    run = BlockRun.new(block, store)
    for _ in run.advance(corpus, StreamPosition(block.setting.epochs, corpus.n_rows)):
        report(run.position.rows_before(corpus.n_rows))
    return run.learner


def predict_fold(predictor: Predictor, block: Block, store: Store, corpus: AnyCorpus) -> Predictions:
    """The predictions of the documents of the held-out fold that are in the sample."""
    setting = block.setting
    share = min(1.0, min(ROWS, MARGINS / max(len(store.classes), 1)) / max(store.n_rows, 1))
    rows, labels, margins = [], [], []
    for held_out in held_out_chunks(fold_order(setting, corpus), store.n_rows):
        chosen = sample_rows(setting.seed, held_out, share)
        batch = corpus.gather(chosen)
        rows.append(chosen)
        labels.append(batch.labels)
        margins.append(predictor.margins(batch.indptr, batch.indices, batch.values)[:, 0])
    numbers = np.concatenate(rows)
    folds = np.full(numbers.size, setting.fold, np.int32)
    return Predictions(_ids(store, numbers), folds, np.concatenate(labels), np.concatenate(margins))


def _ids(store: Store, rows: NDArray[np.int64]) -> pa.StringArray:
    """The ids of documents by number, increasing; those of a feature subset are in its source."""
    subset = read_feature_subset(store.folder)
    source = store if subset is None else subset.source
    offsets = source.shards.row_offsets
    cuts = np.searchsorted(rows, offsets)
    parts: list[pa.Array] = [pa.array([], pa.string())]
    for shard in np.flatnonzero(np.diff(cuts)).tolist():
        own = rows[cuts[shard] : cuts[shard + 1]] - offsets[shard]
        parts.append(source.ids(shard).take(pa.array(own)).cast(pa.string()))
    return pa.concat_arrays(parts)


def _train_epochs(client: Client, block: Block, store: Store, work: Location, tracker: ProgressTracker) -> Location:
    """Train a block of an epoch method, which is spread over the cluster; returns the path of its weights."""
    folder = work / block.digest
    run_epoch_block(
        client, block, store, folder / "cells", work, lambda rows: tracker.reach(block.keys, rows), resumable=True
    )
    return folder / f"state-{block.setting.epochs}.npy"


def _fold_task(description: dict[str, Any], reference: StoreReference, path: str, state: str | None) -> None:
    """Commit the predictions of the held-out fold, of a learner that is trained here or of a state."""
    if location(path).exists():
        return
    block, store = Block.model_validate(description), open_store(reference)
    dtype = block.setting.dtype if find_algorithm(block.algorithm).online else "float64"  # that of the weights
    corpus = worker_corpus(store, block.weighting, dtype)
    predictor: Predictor
    if state is None:
        predictor = train_fold(block, store, corpus, reporter([block]))
    elif block.parts > 1:
        end = StreamPosition(block.setting.epochs, store.n_rows)
        run = load_checkpoint(Folders.of(location(state)).checkpoints, block, end)
        assert run is not None
        predictor = run.learner
    else:
        problem = epoch_problem(block, store)
        predictor = LinearModel(*problem.split(read_rows(location(state), problem.outputs)))
    table = predictions_table(predict_fold(predictor, block, store, corpus), store.classes)
    write_parquet(location(path), table)


def _unite_task(parts: list[str], path: str, identity: str) -> None:
    """Commit one file with a row group for each part."""
    first, *others = (location(part) for part in parts)
    table = read_parquet_file(first).replace_schema_metadata({IDENTITY: identity})
    with parquet_writer(location(path), table.schema) as writer:
        writer.write_table(table)
        for part in others:
            writer.write_table(read_parquet_file(part).cast(table.schema))
