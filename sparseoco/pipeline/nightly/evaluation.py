"""Tasks of a nightly run: evaluating the deployed model on new documents, writing the model of a candidate.

Their results are files named by what they depend on.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import numpy as np
from distributed import Client
from numpy.typing import NDArray
from typing_extensions import TypedDict

from sparseoco.core.errors import DamagedError, InputError, SparseocoError
from sparseoco.execution.pool import TaskPool
from sparseoco.kernels.structs import RowBatch
from sparseoco.search.increments import (
    StateLostError,
    block_weights,
    increment_store,
    learner_after,
    start_run,
)
from sparseoco.search.model_task import describe_block, model_is_complete
from sparseoco.storage.commit import commit_json, digest_value
from sparseoco.storage.locations import Location, location
from sparseoco.storage.validated import Count, Sha256, read_validated, validated, with_other_keys
from sparseoco.store.corpus import open_corpus, weighted_corpus
from sparseoco.store.manifest import read_manifest
from sparseoco.store.references import StoreReference, open_store, store_reference
from sparseoco.store.shards import Store
from sparseoco.store.term_weights import increment_weights
from sparseoco.store.weighting import Weighting
from sparseoco.store.worker import check_worker_running, host_folder
from sparseoco.training.block import Block
from sparseoco.training.class_weights import class_weighted
from sparseoco.training.decisions.rules import ROWS, MarginRecorder
from sparseoco.training.decisions.threshold_rule import ThresholdRule
from sparseoco.training.learner import Learner, ProgressiveTotals
from sparseoco.training.metrics.progressive import mean_rows
from sparseoco.training.models.description import DESCRIPTION, FeaturesDescription
from sparseoco.training.models.files import STATE, write_model
from sparseoco.training.models.model import Model
from sparseoco.training.options.search import SearchOptions
from sparseoco.training.stream import START, Order, StreamPosition, stream, train_stream
from sparseoco.training.warm_start import Origin, take_weights

Csr = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]


@with_other_keys
class DeployedModel(TypedDict):
    """What model.json says of the model of an increment, in addition to what it says of every model."""

    learner_sha256: Sha256
    increment: Count
    loss: str
    penalty: str
    dtype: Literal["float32", "float64"]
    weighting: Weighting
    features: FeaturesDescription


class IncrementEvaluation(NamedTuple):
    """The words of an increment, and loss and error of the deployed model on its documents, before they are learned.

    `words` is the number of occurrences, or the sum of the values of features that have values; loss and error are None
    if no model is deployed.
    """

    words: float
    deployed_loss: float | None = None
    deployed_error: float | None = None


def evaluate_increment(
    client: Client, store: Location, version: int, deployed: Location | None, folder: Location
) -> IncrementEvaluation:
    """Evaluate the deployed model, given by its folder, on an increment; the result is a file in `folder`.

    Raises `SparseocoError` if the task fails.
    """
    learner = None if deployed is None else open_deployed(deployed).description["learner_sha256"]
    increment = increment_store(store, version)
    name = digest_value([increment.manifest.digest, learner])[:32]
    target = folder / f"{name}.json"
    with suppress(DamagedError):  # missing or corrupt: it is evaluated again
        return read_validated(target, IncrementEvaluation)
    model = None if deployed is None else str(deployed.resolve())
    arguments = store_reference(increment), model, str(target.resolve())
    TaskPool(client, "The new documents could not be evaluated").call(_evaluate_task, *arguments)
    return read_validated(target, IncrementEvaluation)


def open_deployed(folder: Location) -> Model:
    """The deployed model. Raises `SparseocoError`, saying how to deploy another."""
    try:
        model = Model(folder)
        validated(model.folder / DESCRIPTION, model.description, DeployedModel)
        return model
    except (InputError, DamagedError) as error:
        raise SparseocoError(
            f"{error} Roll back to another model: sparseoco nightly RUN_FILE --rollback INCREMENT.", code=error.code
        ) from error


def write_candidate(
    client: Client,
    block: Block,
    store: Location,
    checkpoints: Location,
    model: Location,
    options: SearchOptions,
    curve: Sequence[dict[str, Any]],
) -> None:
    """Write the model of a block of one configuration at the end of its increment to the folder `model`.

    It is calibrated, and its threshold chosen, on the newest margins with which its documents were predicted before
    they were learned.

    Raises `SparseocoError` if the task fails.
    """
    if model_is_complete(model, block.digest, block.setting.epochs):
        return
    assert block.setting.increment is not None
    learned = Store(store, read_manifest(store, block.setting.increment.version))
    paths = str(checkpoints.resolve()), str(model.resolve())
    rule = options.for_rare_class(learned).threshold_rule
    threshold = rule and rule.model_dump(mode="json")
    arguments = block.model_dump(mode="json"), options.seed, threshold, list(curve), store_reference(learned), *paths
    TaskPool(client, "The model could not be written").call(_write_task, *arguments)


def _evaluate_task(reference: StoreReference, deployed: str | None, target: str) -> None:
    increment = open_store(reference)
    corpus = open_corpus(increment, host_folder())
    learner = None if deployed is None else deployed_learner(location(deployed), increment)
    known = None if deployed is None else known_values(location(deployed), increment)
    words, losses, errors = 0.0, np.zeros(1), np.zeros(1, np.int64)
    for _, rows in stream(corpus, Order(), START, StreamPosition(1, corpus.n_rows)):
        check_worker_running()
        words += float(rows.values.sum(dtype=np.float64))
        if learner is not None and known is not None:
            learner.evaluate(*known(rows), rows.labels, losses, errors)
    totals = ProgressiveTotals(corpus.n_rows, losses, errors)
    (means,) = mean_rows(totals, "deployed", numbers=increment.n_classes is None)
    evaluation = IncrementEvaluation(words) if learner is None else IncrementEvaluation(words, **means)
    commit_json(location(target), evaluation._asdict())


def deployed_learner(model: Location, increment: Store) -> Learner:
    """The learner of a model; with its weights only, if its state is corrupt or of another version."""
    try:
        return Learner.load(model / STATE, n_features=increment.n_features)
    except DamagedError:
        deployed = Model(model)
        described = deployed.description
        learner = Learner(
            described["algorithm"],
            loss=described["loss"],
            penalty=described["penalty"],
            grid=[described["parameters"]],
            n_features=increment.n_features,
            n_classes=increment.n_classes,
            multilabel=increment.is_multilabel,
            dtype=described["dtype"],
            intercept=deployed.has_intercept,
        )
        take_weights(Origin.of(model), learner, increment)
        return learner


def known_values(model: Location, increment: Store) -> Callable[[RowBatch], Csr]:
    """The function from rows of an increment to what the model makes of them: it ignores terms that came after it."""
    described = read_validated(model / DESCRIPTION, DeployedModel)
    weighting = described["weighting"]
    weights = increment_weights(increment.folder, described["increment"], weighting)
    n_features, dtype = described["features"]["count"], described["dtype"]

    def known(rows: RowBatch) -> Csr:
        if weighting.is_identity:
            return rows.indptr, rows.indices, rows.values
        kept = rows.indices < n_features
        indptr, indices = np.concatenate([[0], np.cumsum(kept)])[rows.indptr - rows.indptr[0]], rows.indices[kept]
        return indptr, indices, weights.values(indptr, indices, rows.values[kept], dtype)

    return known


def _write_task(
    description: dict[str, Any],
    seed: int,
    threshold: dict[str, Any] | None,
    curve: list[dict[str, Any]],
    reference: StoreReference,
    checkpoints: str,
    model: str,
) -> None:
    block = Block.model_validate(description)
    increment = block.setting.increment
    assert increment is not None
    whole = open_store(reference)
    learner = learner_after(location(checkpoints), block.setting.digest, increment.version, block.identities, whole)
    rule = None if threshold is None else ThresholdRule.model_validate(threshold)
    rules = _progressive_rules(block, whole.increment, checkpoints, rule)
    described = describe_block(block) | {"seed": seed, "increment": increment.version} | rules
    values = increment_weights(whole.folder, increment.version, block.weighting)
    intercepts = learner.intercepts()[0] if learner.intercept else None
    write_model(location(model), learner.weights_of(0), whole, described, curve, learner, values, intercepts)


def _progressive_rules(
    block: Block, increment: Store, checkpoints: str, threshold: ThresholdRule | None
) -> dict[str, Any]:
    """The `decision_rules` of the margins with which the last `ROWS` documents of an increment were predicted.

    Of a first increment, which starts from nothing, they are the last part. There are none if the state before the
    increment is lost.
    """
    corpus = weighted_corpus(increment, host_folder(), block_weights(block, increment), block.setting.dtype)
    with suppress(StateLostError):
        learner, n_rows = start_run(location(checkpoints), block, increment).learner, corpus.n_rows
        recorder = MarginRecorder(learner, max(0, n_rows - ROWS), n_rows)
        if learner.rounds == 0:
            recorder = MarginRecorder.of_first_pass(learner, n_rows)
        source = class_weighted(corpus, block.setting.class_weights)
        for _ in train_stream(recorder, source, block.setting.order, START, StreamPosition(1, n_rows)):
            check_worker_running()
        return recorder.rules(threshold, block.setting.positive)
    return {}
