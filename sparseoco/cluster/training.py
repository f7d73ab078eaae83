"""Training on the cluster: one configuration on all the data, as one Dask task that leaves a model."""

from pathlib import Path
from typing import Any

from distributed import Client, get_worker

from sparseoco.cluster.block import NO_FOLD, Block, Place
from sparseoco.cluster.corpus import open_corpus
from sparseoco.cluster.course import Course, Report, new_learner
from sparseoco.cluster.epochs import train_epoch_block
from sparseoco.cluster.packing import configurations_at_once, room_for
from sparseoco.cluster.search import setting_of
from sparseoco.cluster.tasks import Meter, Progress, reason_of, reporter, told_rows
from sparseoco.commit import read_json
from sparseoco.config import Configuration, SearchOptions
from sparseoco.errors import SparseocoError
from sparseoco.learners import find_algorithm
from sparseoco.model import write_model
from sparseoco.shards import Store
from sparseoco.warm import go_on


def train_model(
    client: Client,
    configuration: Configuration,
    options: SearchOptions,
    epochs: int,
    store: Store,
    model: Path,
    progress: Progress,
) -> None:
    """Learn one configuration on all the data, on the cluster; its model goes to the folder `model`.

    Raises `InputError` if it does not fit in memory, `SparseocoError` if it cannot be trained, with the reason.
    """
    options = options.model_copy(update={"halving": None, "patience": None})
    configurations_at_once(configuration, options, store, room_for(client, options, store))
    setting = setting_of(options, store, NO_FOLD).model_copy(update={"epochs": epochs})
    block = Block(setting=setting, algorithm=configuration.algorithm, configurations=(configuration.parameters,))
    meter = Meter("train", block.keys, epochs * store.n_rows, progress)
    if find_algorithm(configuration.algorithm).driver != "stream":

        def report(rows: int) -> None:
            meter.reach(block.keys, rows)

        train_epoch_block(client, block, store, model.resolve(), model.resolve() / ".work", report)
        return
    with told_rows(client, meter, {block.digest: block}):
        future = client.submit(
            _train_on_worker,
            block.model_dump(mode="json"),
            str(store.folder.resolve()),
            str(model.resolve()),
            key=f"train-{block.digest}-{epochs}",
        )
        error = future.exception()
        if error is not None:
            raise SparseocoError(f"Training failed: {reason_of(error)}.")
        meter.reach(block.keys)


def train_block(block: Block, store: Store, model: Path, scratch: Path, report: Report) -> None:
    """Run a block of one configuration and commit its model to the folder `model`, unless it is there already.

    Raises `StorageError` for a shard that cannot be trusted or a disk that is full, `SparseocoError` if the
    configuration diverges.
    """
    setting = block.setting
    if (model / "model.json").exists():
        there = read_json(model / "model.json")
        if (there.get("block"), there.get("epochs")) == (block.digest, setting.epochs):
            return
    corpus = open_corpus(store, scratch)
    learner = new_learner(block, store)
    begun: dict[str, Any] = {}
    if setting.origin is not None:
        learner, begun["warm_start"] = go_on(setting.origin, learner, store)
    course = Course.of(block, learner)
    curve: list[dict[str, Any]] = []
    for epoch in range(1, setting.epochs + 1):
        for _ in course.advance(corpus, Place(epoch, corpus.n_rows)):
            report(course.place.rows_behind(corpus.n_rows))
        ended = int(course.learner.nonzeros()[0])
        marks = [{**mark, "epoch": epoch, "nonzeros": None} for mark in course.curves[0]]
        curve += [*marks[:-1], {**marks[-1], "nonzeros": ended}]
    (parameters,) = block.configurations
    diverged = int(course.learner.diverged[0])
    if diverged:
        raise SparseocoError(
            f"{block.algorithm} diverged at row {diverged:,} with {parameters}: choose a smaller step."
        )
    settings = setting.model_dump(mode="json", include={"loss", "penalty", "dtype", "epochs", "seed", "shuffle"})
    description = {"algorithm": block.algorithm, "parameters": parameters, "block": block.digest, **settings, **begun}
    write_model(model, course.learner.weights_of(0), store, description, curve, course.learner)


def _train_on_worker(description: dict[str, Any], store: str, model: str) -> None:
    block, worker = Block.model_validate(description), get_worker()
    train_block(block, Store.open(store), Path(model), Path(worker.local_directory), reporter(block))
