"""Training on the cluster: one configuration on all the data, as one Dask task, or by epochs, that leaves a model."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from distributed import Client, get_worker

from sparseoco.core.errors import DamagedError, SparseocoError
from sparseoco.core.progress import ProgressCallback, RowsCallback
from sparseoco.execution.pool import TaskPool
from sparseoco.learners import find_algorithm
from sparseoco.offline.cluster.epochs import begin, run_epoch_block
from sparseoco.search.block_run import BlockRun, new_learner
from sparseoco.search.packing import cluster_capacity, configurations_at_once
from sparseoco.search.runner import search_setting
from sparseoco.search.tasks import ProgressTracker, reported_rows, reporter
from sparseoco.storage.commit import digest_file, read_checksummed, read_json, remove_folder
from sparseoco.storage.locations import Location, location
from sparseoco.store.corpus import open_corpus
from sparseoco.store.shards import Store
from sparseoco.training.block import NO_FOLD, Block, StreamPosition, cell_path
from sparseoco.training.model import STATE, write_model
from sparseoco.training.options import Configuration, SearchOptions
from sparseoco.training.warm_start import go_on


def train_model(
    client: Client,
    configuration: Configuration,
    options: SearchOptions,
    epochs: int,
    store: Store,
    model: Location,
    progress: ProgressCallback,
) -> None:
    """Learn one configuration on all the data, on the cluster; its model goes to the folder `model`.

    Raises `InputError` if it does not fit in memory, `SparseocoError` if it cannot be trained, with the reason.
    """
    options = options.model_copy(update={"halving": None, "patience": None})
    configurations_at_once(configuration, options, store, cluster_capacity(client, options, store))
    setting = search_setting(options, store, NO_FOLD).model_copy(update={"epochs": epochs})
    block = Block(setting=setting, algorithm=configuration.algorithm, configurations=(configuration.parameters,))
    meter = ProgressTracker("train", block.keys, epochs * store.n_rows, progress)
    if not find_algorithm(configuration.algorithm).online:
        work = model.resolve() / ".work"
        train_epoch_block(client, block, store, model.resolve(), work, lambda rows: meter.reach(block.keys, rows))
        return
    with reported_rows(client, meter, {block.digest: block}):
        paths = str(store.folder.resolve()), str(model.resolve())
        TaskPool(client, "Training failed").call(_train_on_worker, block.model_dump(mode="json"), *paths)
        meter.reach(block.keys)


def train_block(block: Block, store: Store, model: Location, scratch: Path, report: RowsCallback) -> None:
    """Run a block of one configuration and commit its model to the folder `model`, unless it is there already.

    Raises `StorageError` for a shard that cannot be trusted or a disk that is full, `SparseocoError` if the
    configuration diverges.
    """
    if is_there(model, block.digest, block.setting.epochs):
        return
    setting = block.setting
    corpus = open_corpus(store, scratch)
    learner = new_learner(block, store)
    begun: dict[str, Any] = {}
    if setting.origin is not None:
        learner, begun["warm_start"] = go_on(setting.origin, learner, store)
    course = BlockRun.of(block, learner)
    curve: list[dict[str, Any]] = []
    for epoch in range(1, setting.epochs + 1):
        for _ in course.advance(corpus, StreamPosition(epoch, corpus.n_rows)):
            report(course.place.rows_before(corpus.n_rows))
        ended = int(course.learner.nonzeros()[0])
        marks = [{**mark, "epoch": epoch, "nonzeros": None} for mark in course.curves[0]]
        curve += [*marks[:-1], {**marks[-1], "nonzeros": ended}]
    diverged = int(course.learner.diverged[0])
    if diverged:
        raise SparseocoError(
            f"{block.algorithm} diverged at row {diverged:,} with {block.configurations[0]}: choose a smaller step."
        )
    write_model(model, course.learner.weights_of(0), store, describe_block(block) | begun, curve, course.learner)


def train_epoch_block(
    client: Client, block: Block, store: Store, model: Location, work: Location, report: RowsCallback
) -> None:
    """As `train_block`, for an epoch method: its epochs are spread over the cluster (`cluster.epochs`).

    The folder `work` is this block's alone, and removed in the end. Raises as `run_epoch_block`, and `SparseocoError`
    if the configuration diverges.
    """
    if is_there(model, block.digest, block.setting.epochs):
        return
    folder = work / block.digest
    cells = folder / "cells"
    run_epoch_block(client, block, store, cells, work, report, resumable=True)
    ends = [
        read_checksummed(cell_path(cells, block, StreamPosition(epoch, store.n_rows)))["results"][0]["tables"][
            "metrics"
        ][0]
        for epoch in range(1, block.setting.epochs + 1)
    ]
    if ends[-1]["status"] != "ok":
        remove_folder(work)  # it would diverge again
        raise SparseocoError(
            f"{block.algorithm} {ends[-1]['reason']} with {block.configurations[0]}: choose a smaller R.",
            code="diverged",
        )
    columns = ("epoch", "rows", "progressive_loss", "progressive_error", "nonzeros")
    curve = [{name: end[name] for name in columns} for end in ends]
    write_model(model, begin(client, block, store, folder).weights(), store, describe_block(block), curve)
    remove_folder(work)


def is_there(model: Location, block: str, epochs: int) -> bool:
    """Whether the folder `model` has what a block, by its digest, would leave there after so many epochs."""
    with suppress(DamagedError):  # not there, or to be written anew
        there = read_json(model / "model.json")
        if (there.get("block"), there.get("epochs")) != (block, epochs):
            return False
        # Another block may have been killed while it wrote its own over it.
        parts = ("weights.parquet", "weights_sha256"), (STATE, "learner_sha256")
        return all(digest_file(model / name) == there[key] for name, key in parts if key in there)
    return False


def describe_block(block: Block) -> dict[str, Any]:
    """What a model says of the block of one configuration that it was learned by."""
    (parameters,) = block.configurations
    settings = block.setting.model_dump(mode="json", include={"loss", "penalty", "dtype", "epochs", "seed", "shuffle"})
    return {"algorithm": block.algorithm, "parameters": parameters, "block": block.digest, **settings}


def _train_on_worker(description: dict[str, Any], store: str, model: str) -> None:
    block = Block.model_validate(description)
    train_block(block, Store.open(store), location(model), Path(get_worker().local_directory), reporter(block))
