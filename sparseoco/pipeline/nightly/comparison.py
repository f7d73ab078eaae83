"""The candidate of an increment against the deployed model, on the same documents, none of which either has learned."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from distributed import Client
from numpy.typing import NDArray

from sparseoco.core.errors import DamagedError
from sparseoco.execution.pool import TaskPool
from sparseoco.kernels.structs import RowBatch
from sparseoco.learners.losses import find_loss
from sparseoco.pipeline.nightly.evaluation import Csr, deployed_learner, known_values, open_deployed
from sparseoco.search.increments import StateLostError, block_weights, increment_store, start_run
from sparseoco.storage.commit import commit_json, digest_value
from sparseoco.storage.locations import Location, location
from sparseoco.storage.metrics import Row
from sparseoco.storage.validated import read_validated
from sparseoco.store.corpus import open_corpus, weighted_corpus
from sparseoco.store.references import StoreReference, open_store, store_reference
from sparseoco.store.shards import Store
from sparseoco.store.worker import check_worker_running, host_folder
from sparseoco.training.block import Block
from sparseoco.training.class_weights import class_weighted
from sparseoco.training.learner import Learner
from sparseoco.training.metrics.paired import PairedRows, paired_difference
from sparseoco.training.metrics.scores import Scores, store_label_kind
from sparseoco.training.stream import CHUNK_ROWS, START, StreamPosition, stream

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
    client: Client,
    block: Block,
    store: Location,
    deployed: Location | None,
    folders: tuple[Location, Location],
    metric: str,
    confidence: float,
) -> Comparison:
    """Compare the candidate, a block of one configuration, with the deployed model, given by its folder.

    Every document is predicted before the candidate learns it. `folders` are those of the checkpoints and of the
    results. Raises `SparseocoError` if the task fails.
    """
    checkpoints, folder = folders
    learner = None if deployed is None else open_deployed(deployed).description["learner_sha256"]
    target = folder / f"{digest_value([block.digest, learner, metric, confidence])[:32]}.json"
    with suppress(DamagedError):  # missing or corrupt: it is compared again
        return read_validated(target, Comparison)
    model = None if deployed is None else str(deployed.resolve())
    assert block.setting.increment is not None
    reference = store_reference(increment_store(store, block.setting.increment.version))
    paths = str(checkpoints.resolve()), str(target.resolve())
    TaskPool(client, "The candidate could not be compared").call(
        _compare_task, block.model_dump(mode="json"), model, metric, confidence, reference, *paths
    )
    return read_validated(target, Comparison)


def _compare_task(
    description: dict[str, Any],
    deployed: str | None,
    metric: str,
    confidence: float,
    reference: StoreReference,
    checkpoints: str,
    target: str,
) -> None:
    block = Block.model_validate(description)
    increment = open_store(reference)
    try:
        candidate = start_run(location(checkpoints), block, increment).learner
    except StateLostError:
        comparison = Comparison(metric)
    else:
        other = None if deployed is None else deployed_learner(location(deployed), increment)
        known = None if deployed is None else known_values(location(deployed), increment)
        labels, margins = _margins(block, candidate, other, known, increment)
        comparison = _compared(block, (candidate, other), labels, margins, increment, metric, confidence)
    commit_json(location(target), comparison._asdict())


def _margins(
    block: Block, candidate: Learner, other: Learner | None, known: Callable[[RowBatch], Csr] | None, increment: Store
) -> tuple[NDArray[Any], list[NDArray[Any]]]:
    """Labels and both models' margins of the last documents of the increment's stream."""
    scratch = host_folder()
    own = weighted_corpus(increment, scratch, block_weights(block, increment), block.setting.dtype)
    counts = open_corpus(increment, scratch)
    keep = max(1, MAX_VALUES // (candidate.n_outputs * CHUNK_ROWS))  # chunks
    labels: list[NDArray[Any]] = []
    margins: list[list[NDArray[Any]]] = [[], []]
    first = 0
    source = class_weighted(own, block.setting.class_weights)
    for position, rows in stream(source, block.setting.order, START, StreamPosition(1, own.n_rows)):
        check_worker_running()
        z = np.empty((len(rows.labels), 1, candidate.n_outputs), candidate.dtype)
        candidate.learn_rows(*rows, margins_out=z)
        labels.append(np.asarray(rows.labels))
        margins[0].append(z[:, 0])
        if other is not None and known is not None:
            batch = counts.gather(block.setting.order.rows(1, own.n_rows, first, position.position))
            margins[1].append(other.margins(*known(batch))[:, 0])
        first = position.position
        for parts in (labels, *margins):
            del parts[:-keep]
    return np.concatenate(labels), [np.concatenate(parts) for parts in margins if parts]


def _compared(
    block: Block,
    models: tuple[Learner, Learner | None],
    labels: NDArray[Any],
    margins: list[NDArray[Any]],
    increment: Store,
    metric: str,
    confidence: float,
) -> Comparison:
    kind, positive = store_label_kind(increment), block.setting.positive
    joint = [bool(find_loss(model.loss).joint) for model in models if model is not None]
    tables, values = [], []
    for own, joined in zip(margins, joint, strict=True):
        scores = Scores(kind, len(own), own.shape[1], 1, dtype=own.dtype, joint=joined, positive=positive)
        scores.add(np.ascontiguousarray(own)[:, None], labels)
        tables.append(scores)
        values.append(scores.rows()[0][metric])
    classes = [
        {"class": name}
        | {
            f"{prefix}{measure}": float(correct / whole) if whole else None
            for prefix, scores in zip(("", "deployed_"), tables, strict=False)
            for measure, correct, whole in (
                ("recall", scores.counts[0, 2, k], scores.counts[0, 0, k]),
                ("precision", scores.counts[0, 2, k], scores.counts[0, 1, k]),
            )
        }
        for k, name in enumerate(increment.classes)
    ]
    comparison = Comparison(metric, len(labels), values[0], None, classes=classes)
    if len(margins) == 1:
        return comparison
    comparison = comparison._replace(deployed_value=values[1])
    pair = PairedRows(kind, labels, margins[0], margins[1], (joint[0], joint[1]), positive)
    found = paired_difference(pair, metric, confidence)
    if found is None:
        return comparison
    return comparison._replace(difference=found.value, low=found.low, high=found.high)
