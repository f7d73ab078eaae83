"""Training one configuration on all data: a stream learner in one task, an epoch method spread over the cluster."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client
from numpy.typing import NDArray

from sparseoco.core.errors import DamagedError, SparseocoError
from sparseoco.core.progress import ProgressCallback, RowsCallback
from sparseoco.execution.pool import TaskPool
from sparseoco.learners import find_algorithm
from sparseoco.offline.cluster.epochs import begin, epoch_metrics, run_epoch_block
from sparseoco.search.block_run import BlockRun, new_learner
from sparseoco.search.checkpoints import load_checkpoint
from sparseoco.search.packing import cluster_capacity, configurations_at_once
from sparseoco.search.tasks import ProgressTracker, reported_rows, reporter, run_parts
from sparseoco.search.worker import Folders
from sparseoco.storage.commit import digest_file, read_json, remove_folder
from sparseoco.storage.locations import Location, location
from sparseoco.storage.metrics import Row
from sparseoco.store.corpus import weighted_corpus
from sparseoco.store.references import StoreReference, open_store, store_reference
from sparseoco.store.shards import Store
from sparseoco.store.term_weights import term_weights
from sparseoco.store.worker import host_folder
from sparseoco.training.block import Block, search_setting
from sparseoco.training.decisions.rules import MarginRecorder
from sparseoco.training.models.features import VOCABULARY
from sparseoco.training.models.files import STATE, amend_model, write_model
from sparseoco.training.options.configuration import Configuration
from sparseoco.training.options.search import SearchOptions
from sparseoco.training.orders import order_name
from sparseoco.training.pruning import strongest_features
from sparseoco.training.stream import NO_FOLD, StreamPosition
from sparseoco.training.warm_start import resume_learner


def train_model(
    client: Client,
    configuration: Configuration,
    options: SearchOptions,
    epochs: int,
    store: Store,
    model: Location,
    progress: ProgressCallback,
    rules: dict[str, Any] | None = None,
) -> None:
    """Train one configuration on all the data; its model is written to the folder `model`.

    `rules` are entries of its description that say how predictions are made of margins.

    Raises `InputError` if it does not fit in memory, `SparseocoError` if it cannot be trained, with the reason.
    """
    options = options.model_copy(update={"halving": None, "patience": None})
    configurations_at_once(configuration, options, store, cluster_capacity(client, options, store))
    setting = search_setting(options, store, NO_FOLD).model_copy(update={"epochs": epochs})
    block = Block.of(setting, [configuration])
    if block.parts > 1:
        train_parts(client, block, store, model, progress, rules or {})
        return
    if find_algorithm(configuration.algorithm).online:
        train_in_task(client, _train_task, [block], store, model, progress, rules or {})
        return
    tracker = ProgressTracker("train", block.keys, epochs * store.n_rows, progress)
    work = model.resolve() / ".work"
    train_epoch_block(client, block, store, model.resolve(), work, lambda rows: tracker.reach(block.keys, rows), rules)


def train_parts(
    client: Client, block: Block, store: Store, model: Location, progress: ProgressCallback, rules: dict[str, Any]
) -> None:
    """As `train_block`, for a configuration with several parts, on the workers of a client.

    Probabilities are those of `rules` or of the loss: no part predicts enough rows for a calibration. Raises
    `SparseocoError` if a task fails or the configuration diverges.
    """
    if model_is_complete(model, block.digest, block.setting.epochs, at_most=rules.get("at_most")):
        amend_model(model, rules)
        return
    work, tracker = (
        model.resolve() / ".work",
        ProgressTracker("train", block.keys, block.setting.epochs * store.n_rows, progress),
    )
    run_parts(client, [block], store, work, tracker, "Training failed")
    paths = store_reference(store), str(model.resolve()), str(work)
    TaskPool(client, "Training failed").call(_model_of_parts, block.model_dump(mode="json"), *paths, rules)
    remove_folder(work)


def train_in_task(
    client: Client,
    task: Callable[..., None],
    blocks: Sequence[Block],
    store: Store,
    model: Location,
    progress: ProgressCallback,
    *arguments: Any,
) -> None:
    """Call `task`, on a worker, with descriptions of blocks, a reference to the store, a path and `arguments`.

    The blocks share a setting, and report their progress. Raises `SparseocoError` if the task fails.
    """
    keys = [key for block in blocks for key in block.keys]
    tracker = ProgressTracker("train", keys, blocks[0].setting.epochs * store.n_rows, progress)
    described = [block.model_dump(mode="json") for block in blocks]
    with reported_rows(client, tracker, {block.digest: block for block in blocks}):
        TaskPool(client, "Training failed").call(
            task, described, store_reference(store), str(model.resolve()), *arguments
        )
        tracker.reach(keys)


def train_block(
    block: Block, store: Store, model: Location, scratch: Path, report: RowsCallback, rules: dict[str, Any]
) -> None:
    """Run a block of one configuration and commit its model to the folder `model`, unless it is already there.

    Raises `StorageError` for a corrupt shard or a full disk, `SparseocoError` if the configuration diverges.
    """
    setting = block.setting
    if model_is_complete(model, block.digest, setting.epochs, at_most=rules.get("at_most")):
        amend_model(model, rules)
        return
    corpus = weighted_corpus(store, scratch, term_weights(store, block.weighting), setting.dtype)
    learner = new_learner(block, store)
    start: dict[str, Any] = {}
    if setting.origin is not None:
        learner, start["warm_start"] = resume_learner(setting.origin, learner, store)
    run = BlockRun(block, learner)
    if "calibration" not in rules:
        run.recorder = MarginRecorder.of_first_pass(learner, corpus.n_rows)
    curve: list[Row] = []
    for epoch in range(1, setting.epochs + 1):
        for _ in run.advance(corpus, StreamPosition(epoch, corpus.n_rows)):
            report(run.position.rows_before(corpus.n_rows))
        curve += [{**point, "epoch": epoch, "nonzeros": None} for point in run.curves[0]]
        curve[-1]["nonzeros"] = int(learner.nonzeros()[0])
    diverged = int(learner.diverged[0])
    if diverged:
        raise _diverged(block, f"diverged at row {diverged:,}", "step")
    description, intercepts = (
        describe_block(block) | start | ({} if run.recorder is None else run.recorder.rules()) | rules,
        learner.intercepts()[0] if learner.intercept else None,
    )
    weights = learner.weights_of(0)
    kept = at_most_features(weights, block, store, rules.get("at_most"))
    curve[-1]["nonzeros"] = int(np.count_nonzero(kept))
    state = learner if kept is weights else None  # a state has the weights that were left out
    write_model(model, kept, store, description, curve, state, intercepts=intercepts)


def at_most_features(weights: NDArray[Any], block: Block, store: Store, at_most: int | None) -> NDArray[Any]:
    """The weights of the strongest features, at most so many; the same array if there are no more.

    A model of all the data may use more features than those of the folds that it was chosen by. The sum of the squares
    of a feature's values, of which its strength is a multiple, is estimated by its documents and its idf.
    """
    if at_most is None or np.count_nonzero(weights.any(axis=1)) <= at_most:
        return weights
    idf = term_weights(store, block.weighting).idf if block.weighting.idf else 1.0
    squares = store.document_frequencies().astype(np.float64) * np.square(idf)
    kept = strongest_features(weights.astype(np.float64), squares, at_most)
    fewer = np.zeros_like(weights)
    fewer[kept] = weights[kept]
    return fewer


def train_epoch_block(
    client: Client,
    block: Block,
    store: Store,
    model: Location,
    work: Location,
    report: RowsCallback,
    rules: dict[str, Any] | None = None,
) -> None:
    """As `train_block`, for an epoch method, which is spread over the cluster.

    The folder `work` is used by this block only, and removed at the end. Raises as `run_epoch_block`, and
    `SparseocoError` if the configuration diverges.
    """
    rules = rules or {}
    if model_is_complete(model, block.digest, block.setting.epochs, at_most=rules.get("at_most")):
        amend_model(model, rules)
        return
    folder = work / block.digest
    run_epoch_block(client, block, store, folder / "cells", work, report, resumable=True)
    rows = epoch_metrics(folder / "cells", block, store)
    if rows[-1]["status"] != "ok":
        remove_folder(work)  # it would diverge again
        raise _diverged(block, rows[-1]["reason"], "R")
    curve = _curve(rows)
    method = begin(client, block, store, folder)
    every, intercepts = method.problem.split(method.weights())
    weights = at_most_features(every, block, store, rules.get("at_most"))
    curve[-1]["nonzeros"] = int(np.count_nonzero(weights))
    own = intercepts[0] if block.intercept else None
    write_model(model, weights, store, describe_block(block) | rules, curve, intercepts=own)
    remove_folder(work)


def _model_of_parts(
    description: dict[str, Any], reference: StoreReference, model: str, work: str, rules: dict[str, Any]
) -> None:
    """Commit the model of a block whose parts are learned."""
    block, store, folders = Block.model_validate(description), open_store(reference), Folders.of(location(work))
    rows = epoch_metrics(folders.cells, block, store)
    if rows[-1]["status"] == "diverged":
        remove_folder(location(work))  # it would diverge again
        raise _diverged(block, rows[-1]["reason"], "step")
    run = load_checkpoint(folders.checkpoints, block, StreamPosition(block.setting.epochs, store.n_rows))
    assert run is not None
    weights = at_most_features(run.learner.weights_of(0), block, store, rules.get("at_most"))
    curve = _curve(rows)
    curve[-1]["nonzeros"] = int(np.count_nonzero(weights))
    described = describe_block(block) | {"rounds": run.learner.rounds} | rules
    own = run.learner.intercepts()[0] if block.intercept else None
    write_model(location(model), weights, store, described, curve, intercepts=own)


def _curve(rows: list[dict[str, Any]]) -> list[Row]:
    """The curve of a model from the metrics of its epochs."""
    columns = ("epoch", "rows", "progressive_loss", "progressive_error", "nonzeros")
    return [{name: row[name] for name in columns} for row in rows]


def _diverged(block: Block, reason: str, smaller: str) -> SparseocoError:
    message = f"{block.algorithm} {reason} with {block.configurations[0]}: choose a smaller {smaller}."
    return SparseocoError(message, code="diverged")


def model_is_complete(model: Location, block: str, epochs: int, *, at_most: int | None = None) -> bool:
    """Whether the folder `model` has the complete model of a block, given by its digest, after this many epochs.

    `at_most` is the number of features that it was restricted to.
    """
    with suppress(DamagedError):  # missing or corrupt: it is written again
        described = read_json(model / "model.json")
        if tuple(described.get(name) for name in ("block", "epochs", "at_most")) != (block, epochs, at_most):
            return False
        # A run of another block may have been killed while replacing these files.
        parts = ("weights.parquet", "weights_sha256"), (VOCABULARY, "vocabulary_sha256"), (STATE, "learner_sha256")
        return all(digest_file(model / name) == described[key] for name, key in parts if key in described)
    return False


def describe_block(block: Block) -> dict[str, Any]:
    """The block of one configuration in the description of the model trained by it."""
    (parameters,) = block.configurations
    return {"algorithm": block.algorithm, "parameters": parameters, "block": block.digest} | describe_setting(block)


def describe_setting(block: Block) -> dict[str, Any]:
    """The setting and the weighting of a block in the description of a model trained by it."""
    names = {"loss", "penalty", "class_weights", "positive", "dtype", "epochs", "seed", "range_rows"}
    described = block.setting.model_dump(mode="json", include=names)
    shuffle = order_name(block.setting.range_rows)
    return described | {"shuffle": shuffle, "weighting": block.weighting.model_dump(mode="json")}


def _train_task(descriptions: list[dict[str, Any]], store: StoreReference, model: str, rules: dict[str, Any]) -> None:
    (block,) = map(Block.model_validate, descriptions)
    scratch = host_folder()
    train_block(block, open_store(store), location(model), scratch, reporter([block]), rules)
