"""The time of an epoch of an epoch method, estimated from epochs over a few of the rows.

An epoch reads the rows a known number of times (a pass, its rounds, and a pass that evaluates it), and all
features × columns: seconds = a·rows + b. Epochs in this process over some rows and over an eighth of them, with all the
features, give a and b.
"""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from sparseoco.kernels.structs import RowBatch
from sparseoco.offline.cluster.epoch_method import epoch_problem
from sparseoco.offline.column_major import column_major
from sparseoco.offline.epoch_problem import Problem
from sparseoco.offline.epochs import CoordinateEpochs, SampledEpochs
from sparseoco.offline.passes import LocalPasses
from sparseoco.search.packing import state_bytes
from sparseoco.storage.temporary import temporary_folder
from sparseoco.store.segments import shard_totals
from sparseoco.store.shards import Store
from sparseoco.store.transpose import cut_shard, merge_range
from sparseoco.training.block import Block

TRIAL_BYTES = 1 << 29  # of a block's state in a trial; of a larger one fewer columns are tried
TRIAL_PRODUCTS = 1 << 25  # nonzeros × columns of the rows in a trial
MIN_ROWS = 256
ROWS_RATIO = 8
WARM_ROWS = 16
TRIALS = 2


def epoch_seconds(block: Block, whole: Store, rows: RowBatch, denser: float) -> float | None:
    """Seconds of an epoch of a block over a whole store of similar rows, with `denser` times as many nonzeros.

    None if not even one configuration's state is small enough for a trial, or if the rounds are split over workers,
    whose communication is not measured.
    """
    single = state_bytes(block.select(block.configurations[:1]), whole)
    tried = block.select(block.configurations[: max(1, min(len(block.configurations), TRIAL_BYTES // max(single, 1)))])
    if single > TRIAL_BYTES or block.configurations[0].get("placement", "serial") != "serial":
        return None
    problem = epoch_problem(tried, whole)
    n_rows = len(rows.labels)
    products = rows.indices.size / max(n_rows, 1) * len(problem.configurations) * problem.outputs
    more = min(n_rows, max(MIN_ROWS, int(TRIAL_PRODUCTS / max(products, 1e-9))))
    less = max(1, more // ROWS_RATIO)
    _seconds(problem, whole, rows, min(WARM_ROWS, less))  # compiles
    slow, fast = (min(_seconds(problem, whole, rows, count) for _ in range(TRIALS)) for count in (more, less))
    a = max(slow - fast, 0.0) / max(more - less, 1)
    b = max(fast - a * less, 0.0)
    return (a * denser * whole.n_rows + b) * len(block.configurations) / len(tried.configurations)


def transpose_seconds(whole: Store, sample: Store) -> float:
    """Seconds to transpose a store, which coordinate methods do first, estimated from one shard."""
    largest = int(np.argmax(sample.shards.column("nonzeros")))
    shards = sample.shards[largest : largest + 1]
    totals = shard_totals(shards)
    part = Store(sample.folder, sample.manifest.model_copy(update=dict(totals)), shards)
    edges = [0, part.n_features]
    with temporary_folder() as folder:
        started = time.thread_time()
        cut_shard(part, 0, edges, folder)
        merge_range(part, edges, 0, folder, folder)
        return (time.thread_time() - started) * whole.manifest.nonzeros / max(totals.nonzeros, 1)


def _seconds(problem: Problem, whole: Store, rows: RowBatch, count: int) -> float:
    """Processor seconds of an epoch over the first `count` rows."""
    indptr, indices, counts, labels, _ = rows
    last = indptr[count]
    shape = (count, problem.n_features)
    matrix = csr_matrix((counts[:last].astype(np.float64), indices[:last], indptr[: count + 1]), shape=shape)
    fewer = tuple(_fewer_rounds(each, count / max(whole.n_rows, 1)) for each in problem.configurations)
    problem = problem._replace(configurations=fewer)
    method: SampledEpochs | CoordinateEpochs
    started = time.thread_time()
    if problem.algorithm.samples_features:
        method = CoordinateEpochs(problem, column_major(matrix, labels[:count]), 0)
    else:
        method = SampledEpochs(problem, LocalPasses.of(matrix, labels[:count]), 0)
    method.play()
    method.objectives()
    return time.thread_time() - started


def _fewer_rounds(configuration: Mapping[str, Any], share: float) -> dict[str, Any]:
    """As many rounds per epoch as correspond to this share of the rows."""
    rounds = configuration["rounds"]
    return {**configuration, "rounds": rounds if rounds == "pass" else max(1, round(rounds * share))}
