"""Models compared on the newest increment."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import numpy as np
from distributed import Client
from numpy.typing import NDArray
from typing_extensions import TypedDict

from sparseoco.core.errors import DamagedError, InputError, SparseocoError
from sparseoco.execution.clusters import TaskPool
from sparseoco.kernels.columns import RowBatch
from sparseoco.learners import OutsideSource, add_source, check_algorithm_name, learner_sources
from sparseoco.learners.losses import find_loss
from sparseoco.search.run import describe_block, model_is_complete
from sparseoco.search.worker import StateLostError, block_corpus, increment_store, learner_after, start_run
from sparseoco.storage.commit import Count, Sha256, read_validated, validated, with_other_keys
from sparseoco.storage.locations import Location
from sparseoco.storage.tables import Row
from sparseoco.store.corpus import check_worker_running, host_folder, open_corpus
from sparseoco.store.manifest import read_manifest
from sparseoco.store.shards import Store, StoreReference, open_store, store_reference
from sparseoco.store.terms import increment_weights
from sparseoco.store.weighting import Weighting
from sparseoco.training.block import Block, Origin, passes_of, take_weights
from sparseoco.training.decisions import ROWS, MarginRecorder, PredictingLearner
from sparseoco.training.learner import Learner, ProgressiveTotals
from sparseoco.training.metrics import PairedRows, Scores, mean_rows, paired_difference, store_label_kind
from sparseoco.training.models import DESCRIPTION, STATE, Csr, Model, write_model
from sparseoco.training.options import SearchOptions, ThresholdRule, resolve
from sparseoco.training.stream import CHUNK_ROWS, Order, Passes, StreamPosition, stream, train

# ----------------------------------------------------------------------------------------------------------------------
# Tasks of a nightly run: evaluating the deployed model on new documents, writing the model of a candidate.


@with_other_keys
class DeployedModel(TypedDict):
    """What model.json says of the model of an increment, in addition to what it says of every model."""

    learner_sha256: Sha256
    increment: Count
    loss: str
    penalty: str
    dtype: Literal["float32", "float64"]
    weighting: Weighting
    features: dict[str, Any]


class IncrementEvaluation(NamedTuple):
    """The words of an increment, and loss and error of the deployed model on its documents, before they are learned.

    `words` is the number of occurrences, or the sum of the values of features that have values, `unknown_words` of
    those that the deployed model has no feature for. Of numbers there are the root mean squared error, `deployed_rmse`,
    and its standard error, `rmse_spread`, of other labels the share of errors, and what it was expected to be by the
    calibrated probabilities alone, `expected_error`, with the standard error `expected_spread`. All but `words` are
    None if no model is deployed.
    """

    words: float
    unknown_words: float | None = None
    deployed_loss: float | None = None
    deployed_error: float | None = None
    deployed_rmse: float | None = None
    rmse_spread: float | None = None
    expected_error: float | None = None
    expected_spread: float | None = None


class Candidate(NamedTuple):
    """A block of one configuration after an increment, as tasks get it: the store at that version, and the folder of
    the states."""

    block: Block
    reference: StoreReference
    checkpoints: Location

    @classmethod
    def of(cls, block: Block, store: Location, checkpoints: Location) -> "Candidate":
        """That of a block in the folder of a store. Raises `StorageError`."""
        assert block.setting.increment is not None
        learned = Store(store, read_manifest(store, block.setting.increment.version))
        return cls(block, store_reference(learned), checkpoints.resolve())


def evaluate_increment(client: Client, store: Location, version: int, deployed: Location | None) -> IncrementEvaluation:
    """Evaluate the deployed model, given by its folder, on an increment. Raises `SparseocoError` if the task fails."""
    increment, pool = increment_store(store, version), TaskPool(client, "The new documents could not be evaluated")
    arguments = store_reference(increment), deployed and deployed.resolve(), learner_sources()
    return pool.call(_evaluate, *arguments)


def check_deployed(folder: Location) -> None:
    """Raises `SparseocoError`, saying how to deploy another, for a deployed model that cannot be used."""
    try:
        validated(folder / DESCRIPTION, Model(folder).description, DeployedModel)
    except (InputError, DamagedError) as error:
        raise SparseocoError(
            f"{error} Roll back to another model: sparseoco nightly RUN_FILE --rollback INCREMENT.", code=error.code
        ) from error


def write_candidate(
    client: Client, candidate: Candidate, model: Location, options: SearchOptions, curve: Sequence[Row]
) -> None:
    """Write the model of a candidate to the folder `model`.

    It is calibrated, and its threshold chosen, on the newest margins with which its documents were predicted before
    they were learned.

    Raises `SparseocoError` if the task fails.
    """
    if model_is_complete(model, candidate.block.digest, candidate.block.setting.epochs):
        return
    rule = resolve(options, open_store(candidate.reference), search=True).threshold_rule
    arguments = candidate, options.seed, rule, curve, model.resolve()
    TaskPool(client, "The model could not be written").call(_write_task, *arguments)


def _evaluate(
    reference: StoreReference, folder: Location | None, sources: Sequence[OutsideSource]
) -> IncrementEvaluation:
    for source in sources:  # that of the deployed model may be outside the package
        add_source(source)
    increment = open_store(reference)
    corpus = open_corpus(increment, host_folder())
    deployed = None if folder is None else DeployedLearner.of(folder, increment)
    numbers, moments = increment.n_classes is None, np.zeros(2)
    calibration = None if folder is None or numbers else Model(folder).calibration
    words, unknown, losses, errors = 0.0, 0.0, np.zeros(1), np.zeros(1, np.int64)
    for _, rows in stream(corpus, Passes(Order(), StreamPosition(1, corpus.n_rows))):
        check_worker_running()
        words += float(rows.values.sum(dtype=np.float64))
        if deployed is not None:
            unknown += float(rows.values[rows.indices >= deployed.n_features].sum(dtype=np.float64))
            learner = deployed.learner
            margins = np.empty((len(rows.indptr) - 1, 1, learner.n_outputs), learner.dtype)
            learner.evaluate(*deployed.known(rows), rows.labels, losses, errors, margins_out=margins)
            if numbers:
                squares = (margins[:, 0, 0].astype(np.float64) - rows.labels) ** 2
                moments += squares.sum(), (squares**2).sum()
            elif calibration is not None:
                chances = calibration.chances_of_error(margins[:, 0].astype(np.float64))
                moments += chances.sum(), (chances * (1 - chances)).sum()
    if deployed is None:
        return IncrementEvaluation(words)
    n = max(1, corpus.n_rows)
    (means,) = mean_rows(ProgressiveTotals(corpus.n_rows, losses, errors), "deployed", numbers=numbers)
    if numbers:
        square, fourth = moments / n
        spread = math.sqrt(max(0.0, fourth - square**2) / n) / (2 * math.sqrt(square)) if square else 0.0
        means |= {"deployed_rmse": math.sqrt(square), "rmse_spread": spread}
    elif calibration is not None:
        means |= {"expected_error": moments[0] / n, "expected_spread": math.sqrt(moments[1]) / n}
    return IncrementEvaluation(words, unknown, **means)


class DeployedLearner(NamedTuple):
    """The learner of the deployed model, and what it makes of an increment's rows: it ignores terms that came later,
    whose ids are `n_features` and larger."""

    learner: Learner
    known: Callable[[RowBatch], Csr]
    n_features: int

    @classmethod
    def of(cls, model: Location, increment: Store) -> "DeployedLearner":
        """That of the model in a folder."""
        described = read_validated(model / DESCRIPTION, DeployedModel)
        weighting, dtype = described["weighting"], described["dtype"]
        weights = increment_weights(increment.folder, described["increment"], weighting)
        n_features: int = described["features"]["count"]

        def known(rows: RowBatch) -> Csr:
            if weighting.is_identity:
                return rows.indptr, rows.indices, rows.values
            kept = rows.indices < n_features
            indptr, indices = np.concatenate([[0], np.cumsum(kept)])[rows.indptr - rows.indptr[0]], rows.indices[kept]
            return indptr, indices, weights.values(indptr, indices, rows.values[kept], dtype)

        return cls(_load_learner(model, increment), known, n_features)


def _load_learner(model: Location, increment: Store) -> Learner:
    """The learner of a model; with its weights only, if its state is corrupt or of another version."""
    try:
        return Learner.load(model / STATE, n_features=increment.n_features)
    except DamagedError:
        deployed = Model(model)
        described = deployed.description
        learner = Learner(
            check_algorithm_name(described["algorithm"]),
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


def _write_task(
    candidate: Candidate, seed: int, threshold: ThresholdRule | None, curve: Sequence[Row], model: Location
) -> None:
    block, increment, whole = candidate.block, candidate.block.setting.increment, open_store(candidate.reference)
    assert increment is not None
    learner = learner_after(candidate.checkpoints, block.setting.digest, increment.version, block.identities, whole)
    rules = _progressive_rules(candidate, whole.increment, threshold)
    described = describe_block(block) | {"seed": seed, "increment": increment.version} | rules
    values = increment_weights(whole.folder, increment.version, block.weighting)
    intercepts = learner.intercepts()[0] if learner.intercept else None
    write_model(model, learner.weights_of(0), whole, described, curve, learner, values, intercepts)


def _progressive_rules(candidate: Candidate, increment: Store, threshold: ThresholdRule | None) -> dict[str, Any]:
    """The `decision_rules` of the margins with which the last `ROWS` documents of an increment were predicted.

    Of a first increment, which starts from nothing, they are the last part. There are none if the state before the
    increment is lost.
    """
    block = candidate.block
    corpus = block_corpus(block, increment, host_folder())
    with suppress(StateLostError):
        learner, n_rows = start_run(candidate.checkpoints, block, increment).learner, corpus.n_rows
        recorder = MarginRecorder(learner, max(0, n_rows - ROWS), n_rows)
        if learner.rounds == 0:
            recorder = MarginRecorder.of_first_pass(learner, n_rows)
        for _ in train(recorder.learn_rows, corpus, passes_of(block.setting, corpus, StreamPosition(1, n_rows))):
            check_worker_running()
        return recorder.rules(threshold, block.setting.positive)
    return {}


# ----------------------------------------------------------------------------------------------------------------------
# The candidate of an increment against the deployed model, on the same documents, none of which either has learned.


MAX_VALUES = 1 << 20
"""Margins of a model in a comparison: of a larger increment, the last documents of its stream are compared."""


class Comparison(NamedTuple):
    """The metric of the candidate and of the deployed model on `rows` documents of an increment, and their difference,
    candidate − deployed, with its confidence interval; None where it is not defined.

    `classes` has, by class, recall and precision of the candidate and of the deployed model.
    """

    metric: str
    rows: int = 0
    value: float | None = None
    deployed_value: float | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    classes: Sequence[Row] = ()


def compare_increment(
    client: Client, candidate: Candidate, deployed: Location | None, metric: str, confidence: float
) -> Comparison:
    """Compare a candidate with the deployed model, given by its folder, on the documents of the increment.

    Every document is predicted before the candidate learns it. Raises `SparseocoError` if the task fails.
    """
    arguments = candidate, deployed and deployed.resolve(), metric, confidence, learner_sources()
    return TaskPool(client, "The candidate could not be compared").call(_compare, *arguments)


def _compare(
    candidate: Candidate, folder: Location | None, metric: str, confidence: float, sources: Sequence[OutsideSource]
) -> Comparison:
    for source in sources:
        add_source(source)
    block, increment = candidate.block, open_store(candidate.reference).increment
    try:
        learner = start_run(candidate.checkpoints, block, increment).learner
    except StateLostError:
        return Comparison(metric)
    deployed = None if folder is None else DeployedLearner.of(folder, increment)
    labels, margins = _margins(block, learner, deployed, increment)
    models = [learner] if deployed is None else [learner, deployed.learner]
    joint = [bool(find_loss(model.loss).joint) for model in models]
    kind, positive = store_label_kind(increment), block.setting.positive
    tables, values = [], []
    for own, joined in zip(margins, joint, strict=True):
        scores = Scores(kind, len(own), own.shape[1], 1, dtype=own.dtype, joint=joined, positive=positive)
        scores.add(np.ascontiguousarray(own)[:, None], labels)
        tables.append(scores)
        values.append(scores.rows()[0][metric])
    classes = [{"class": name} | _class_measures(tables, k) for k, name in enumerate(increment.classes)]
    comparison = Comparison(metric, len(labels), values[0], None, classes=classes)
    if len(margins) == 1:
        return comparison
    comparison = comparison._replace(deployed_value=values[1])
    pair = PairedRows(kind, labels, margins[0], margins[1], (joint[0], joint[1]), positive)
    found = paired_difference(pair, metric, confidence)
    if found is None:
        return comparison
    return comparison._replace(difference=found.value, low=found.low, high=found.high)


def _class_measures(tables: Sequence[Scores], k: int) -> Row:
    """Recall and precision of a class, of the candidate and of the deployed model."""
    return {
        f"{prefix}{measure}": float(correct / whole) if whole else None
        for prefix, scores in zip(("", "deployed_"), tables, strict=False)
        for measure, correct, whole in (
            ("recall", scores.counts[0, 2, k], scores.counts[0, 0, k]),
            ("precision", scores.counts[0, 2, k], scores.counts[0, 1, k]),
        )
    }


def _margins(
    block: Block, learner: Learner, deployed: DeployedLearner | None, increment: Store
) -> tuple[NDArray[Any], list[NDArray[Any]]]:
    """Labels and both models' margins of the last documents of the increment's stream."""
    scratch = host_folder()
    own = block_corpus(block, increment, scratch)
    counts = open_corpus(increment, scratch)
    keep = max(1, MAX_VALUES // (learner.n_outputs * CHUNK_ROWS))  # chunks
    labels: list[NDArray[Any]] = []
    margins: list[list[NDArray[Any]]] = [[], []]
    first = 0

    def record(z: NDArray[Any], truth: NDArray[Any]) -> None:
        labels.append(np.asarray(truth))
        margins[0].append(z[:, 0])

    passes = passes_of(block.setting, own, StreamPosition(1, own.n_rows))
    for position in train(PredictingLearner(learner, record).learn_rows, own, passes):
        check_worker_running()
        if deployed is not None:
            batch = counts.gather(block.setting.order.rows(1, own.n_rows, first, position.position))
            margins[1].append(deployed.learner.margins(*deployed.known(batch))[:, 0])
        first = position.position
        for parts in (labels, *margins):
            del parts[:-keep]
    return np.concatenate(labels), [np.concatenate(parts) for parts in margins if parts]
