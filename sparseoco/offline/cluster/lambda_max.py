"""λ_max: the least penalty per row at which all weights are 0, as in glmnet and skglm.

λ_max = max_{j,k} |Σ_i s_i·ℓ'_k(b_k, y_i)·x_{ij}|/n at w = 0, over features j and outputs k, with sample weights s_i;
for groups the maximum of the norms over k. With an intercept, b minimises the loss at w = 0 (for losses with a kink
b = 0, and for numbers b is their mean, which is a minimum of the squared loss alone); else b = 0.

One task reads the rows twice: first their labels, for b, then their values.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from distributed import Client
from numpy.typing import NDArray

from sparseoco.execution.pool import TaskPool
from sparseoco.kernels.full_pass import ACCUMULATE, loss_kernels
from sparseoco.kernels.structs import RowBatch
from sparseoco.learners.losses import Loss, find_loss
from sparseoco.offline.partial_sums import Floats
from sparseoco.offline.passes import CHUNK_ROWS
from sparseoco.store.references import StoreReference, open_store, store_reference
from sparseoco.store.shards import Store
from sparseoco.store.weighting import Weighting
from sparseoco.store.worker import check_worker_running, worker_corpus
from sparseoco.training.class_weights import class_weighted
from sparseoco.training.stream import RowSource

LARGEST_INTERCEPT = 50.0


def lambda_max(
    client: Client,
    store: Store,
    weighting: Weighting,
    loss: str,
    class_weights: Sequence[float] | None = None,
    *,
    grouped: bool = False,
    intercept: bool = False,
) -> float:
    """λ_max of a store, computed on a worker. Raises `SparseocoError` if the task fails."""
    arguments = store_reference(store), weighting.model_dump(mode="json"), loss, class_weights, grouped, intercept
    found: float = TaskPool(client, "λ_max could not be computed").call(_lambda_max_task, *arguments)
    return found


def _lambda_max_task(
    store: StoreReference,
    weighting: dict[str, Any],
    loss: str,
    class_weights: Sequence[float] | None,
    grouped: bool,
    intercept: bool,
) -> float:
    opened = open_store(store)
    corpus = class_weighted(worker_corpus(opened, Weighting.model_validate(weighting)), class_weights)
    kind = opened.manifest.labels.kind
    outputs = len(opened.classes) if kind == "multi" or len(opened.classes) > 2 else 1
    flags = {"grouped": grouped, "intercept": intercept}
    return lambda_max_of(corpus, opened.n_features, find_loss(loss), outputs, check=check_worker_running, **flags)


def lambda_max_of(
    source: RowSource,
    n_features: int,
    loss: Loss,
    outputs: int,
    *,
    grouped: bool = False,
    intercept: bool = False,
    check: Callable[[], None] = lambda: None,
) -> float:
    """λ_max of rows with `outputs` columns of weights: 1 for two classes or numbers, else one per class.

    `check` is called every few thousand rows.
    """
    if loss.joint and outputs == 1:
        loss = find_loss(loss.joint)
    slopes = _Slopes(loss, outputs, _label_means(source, loss, outputs) if intercept else None)
    gradient = np.zeros((n_features, outputs))
    for rows in _chunks(source):
        check()
        ACCUMULATE(rows.indptr, rows.indices, rows.values, _weighted(slopes(rows), rows), gradient)
    largest = np.sqrt((gradient**2).sum(axis=1)) if grouped else np.abs(gradient)
    return float(largest.max(initial=0.0)) / max(source.n_rows, 1)


class _Slopes:
    """Slopes (rows, outputs) of rows at w = 0 and, given the means of the labels, the best intercepts."""

    def __init__(self, loss: Loss, outputs: int, means: Floats | None) -> None:
        self._loss, self._outputs = loss, outputs
        self._intercepts = np.zeros(outputs)
        smooth = loss.curvature is not None or loss.name == "softmax"
        if means is not None and smooth:
            if loss.regression:
                self._intercepts = means
            elif loss.joint:
                self._intercepts = np.log(np.maximum(means, 1e-300))
            else:
                self._intercepts = np.array([_best_intercept(loss, mean) for mean in means])

    def __call__(self, rows: RowBatch) -> Floats:
        """The slopes of some rows."""
        loss, z = self._loss, self._intercepts
        if loss.regression:
            out: Floats = np.empty((len(rows.labels), 1))
            margins, none = np.full_like(out, z[0]), np.array([-1], np.int64)
            loss_kernels(loss).respond(margins, np.asarray(rows.labels, np.float64), None, none, out, np.zeros(1))
            return out
        if loss.joint:
            table = np.zeros((self._outputs, self._outputs))
            for label, slopes in enumerate(table):
                loss.value(z, slopes, 0, self._outputs, label)
            return np.asarray(table[np.asarray(rows.labels, np.int64)])
        assert loss.slope is not None
        up, down = (np.array([loss.slope(float(b), y) for b in z]) for y in (1.0, -1.0))
        return np.where(_positive(rows.labels, self._outputs), up, down)


def _positive(labels: NDArray[Any], outputs: int) -> NDArray[np.bool_]:
    """(rows, outputs): whether y = +1."""
    if labels.ndim == 2:
        return np.asarray(labels > 0)
    return np.asarray(labels[:, None] == (np.ones(1) if outputs == 1 else np.arange(outputs)))


def _label_means(source: RowSource, loss: Loss, outputs: int) -> Floats:
    """(outputs,): the weighted share of rows with y = +1, or the mean of numbers."""
    total, sums = 0.0, np.zeros(outputs)
    for rows in _chunks(source):
        values = rows.labels[:, None] if loss.regression else _positive(rows.labels, outputs)
        sums += _weighted(values.astype(np.float64), rows).sum(axis=0)
        total += len(rows.labels) if rows.weights is None else float(rows.weights.sum(dtype=np.float64))
    return sums / max(total, 1e-300)


def _best_intercept(loss: Loss, share: float) -> float:
    """argmin_b share·ℓ(b, 1) + (1 − share)·ℓ(b, −1), by bisection of the slope."""
    assert loss.slope is not None
    low, high = -LARGEST_INTERCEPT, LARGEST_INTERCEPT
    while high - low > 4 * math.ulp(max(abs(low), abs(high))):
        b = (low + high) / 2
        if share * loss.slope(b, 1.0) + (1.0 - share) * loss.slope(b, -1.0) > 0:
            high = b
        else:
            low = b
    return (low + high) / 2


def _chunks(source: RowSource) -> Iterator[RowBatch]:
    for first in range(0, source.n_rows, CHUNK_ROWS):
        yield source.gather(np.arange(first, min(first + CHUNK_ROWS, source.n_rows)))


def _weighted(values: Floats, rows: RowBatch) -> Floats:
    return values if rows.weights is None else values * rows.weights[:, None]
