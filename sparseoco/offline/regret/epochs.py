"""The loss of an epoch method, Σ_{t≤T} H(x_t) with H = Σ_j f_j + αψ, estimated from the ends of its epochs.

Evaluating H takes a pass over all examples: it is computed at the iterate x̄_s at the start of epoch s + 1 and
interpolated linearly (`curve.LinearSum`). Mohri and Yang (2015), Corollaries 6 and 7 and Theorem 7, bound the
expectation of the sum over the draws, minus T·H(x*).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from distributed import Client

from sparseoco.execution.pool import TaskPool
from sparseoco.kernels.full_pass import loss_kernels
from sparseoco.kernels.structs import RowBatch
from sparseoco.learners.cao_rcd import slope_bounds
from sparseoco.learners.losses import Loss
from sparseoco.offline.cluster.cao_rcd import open_coordinates
from sparseoco.offline.cluster.epoch_method import block_rows, epoch_problem
from sparseoco.offline.cluster.epochs import epoch_metrics, run_epoch_block
from sparseoco.offline.cluster.pass_tasks import open_rows
from sparseoco.offline.epochs import Blocks, row_sizes
from sparseoco.offline.partial_sums import Floats
from sparseoco.offline.passes import Span, chunks, row_weights
from sparseoco.offline.regret.curve import LinearSum
from sparseoco.storage.locations import Location
from sparseoco.store.references import StoreReference, open_store, store_reference
from sparseoco.store.shards import Store
from sparseoco.store.transpose import transpose
from sparseoco.training.block import Block


class EpochMark(NamedTuple):
    """The loss of an epoch method at the end of an epoch."""

    epoch: int
    T: int
    """Rounds played."""
    passes: float
    """Examples read, in passes over the data, rounds included."""
    epoch_objective: float
    """H at the end of the epoch."""
    loss: float
    """Σ_{t≤T} H(x_t)."""
    penalty_error: float
    """The difference from the sum over every second epoch."""
    penalty: float = 0.0
    """Included in H."""
    exact: bool = False


def epoch_marks(
    rounds: int, at_zero: float, objectives: Sequence[float], passes: Sequence[float]
) -> Iterator[EpochMark]:
    """The marks of epochs with `rounds` rounds each, from H(0) and H at the end of each epoch."""
    values = [at_zero, *objectives]
    ends = [1, *(rounds * epoch for epoch in range(1, len(values)))]
    for epoch in range(1, len(values)):
        indices = range(epoch + 1)
        totals = []
        for chosen in (indices, [k for k in indices if k % 2 == 0 or k == epoch]):
            total = LinearSum()
            for k in chosen:
                total.add(ends[k], values[k])
            totals.append(float(total.total))
        yield EpochMark(epoch, ends[epoch], passes[epoch - 1], values[epoch], totals[0], abs(totals[0] - totals[1]))


class Sums(NamedTuple):
    """Sums over examples, which can be added over parts of the data."""

    at_zero: float
    """Σ_j f_j(0), all outputs together."""
    L: float
    """Σ_j L_j, L_j ≥ max_i |∂f_j/∂x_i| in the box."""
    L2: float
    """Σ_j L_j²."""

    @classmethod
    def of(cls, rows: RowBatch, loss: Loss, positive: Sequence[int], R: float) -> "Sums":
        """The sums over some rows, for a box |x_i| ≤ R."""
        indptr, _, counts, labels, _ = rows
        weights = row_weights(rows)
        z = np.zeros((labels.size, len(positive)))
        loss_sum: Floats = np.zeros(len(positive))
        loss_kernels(loss).respond(z, labels, weights, np.array(positive, np.int64), np.empty_like(z), loss_sum)
        owner = np.repeat(np.arange(labels.size), np.diff(indptr))
        sizes = np.abs(np.asarray(counts, np.float64))
        norms, largest = np.bincount(owner, sizes, labels.size), np.zeros(labels.size)
        np.maximum.at(largest, owner, sizes)
        targets = np.abs(labels) if -1 in positive else np.ones(labels.size)
        bounds = slope_bounds(loss, norms, targets, R)
        if weights is not None:
            bounds = weights * bounds
        L = bounds * largest
        return cls(float(loss_sum.sum()), float(bounds @ largest), float(L @ L))

    def __add__(self, other: object) -> "Sums":
        assert isinstance(other, Sums)
        return Sums(self.at_zero + other.at_zero, self.L + other.L, self.L2 + other.L2)


def block_quantities(L: Floats, R: Floats, batch: int) -> dict[str, float]:
    """`bounds.QUANTITIES` of runs of `batch` coordinates, from the bounds L of their gradients and their ranges R
    (features,)."""
    starts = np.arange(0, L.size, batch)
    sides = np.add.reduceat(R, starts) * np.sqrt(np.add.reduceat(L**2, starts))
    return {
        "RL": float((sides ** (2 / 3)).sum()),
        "RL1": float(sides.sum()),
        "blocks": float(np.count_nonzero(sides)),
    }


def measure_epochs(
    client: Client, block: Block, store: Store, cells: Location, work: Location, report: Callable[[int], None]
) -> dict[str, Any]:
    """Run a block of one configuration; returns its marks, status and the inputs of its bound. No rows are held out.

    The cells of its epochs go to `cells`, its state to `work`. Raises as `run_epoch_block`.
    """
    run_epoch_block(client, block, store, cells, work, report)
    ends = epoch_metrics(cells, block, store)
    fine = [end for end in ends if end["status"] == "ok"]
    columns = None
    if block.algorithm == "cao-rcd":
        columns = transpose(client, store, work, block.weighting, intercept=block.intercept)
    references = store_reference(store), None if columns is None else store_reference(columns)
    pool = TaskPool(client, "The quantities of a bound could not be computed")
    facts = pool.call(_facts, block.model_dump(mode="json"), *references)
    objectives, passes = [end["objective"] for end in fine], [end["rows"] / store.n_rows for end in fine]
    marks: list[EpochMark] = list(epoch_marks(facts["rounds"], facts["at_zero"], objectives, passes))
    return {
        "marks": [mark._asdict() for mark in marks],
        "status": ends[-1]["status"],
        "reason": ends[-1]["reason"],
        "quantities": facts["quantities"],
    }


def _facts(description: dict[str, Any], reference: StoreReference, columns: StoreReference | None) -> dict[str, Any]:
    """Rounds per epoch, H(0), and the inputs of bounds."""
    block, store = Block.model_validate(description), open_store(reference)
    problem, corpus, (parameters,) = (
        epoch_problem(block, store),
        open_rows(block_rows(block, store)),
        block.configurations,
    )
    span = Span().within(store.n_rows)
    sums = Sums(0.0, 0.0, 0.0)
    for rows in chunks(corpus, span, span.start, span.stop):
        sums += Sums.of(rows, problem.loss, problem.positive, parameters["R"])
    quantities = {"n": float(problem.coordinates), "L": sums.L, "L2": sums.L2}
    if columns is None:
        blocks = Blocks.of(row_sizes(corpus, span, span.start, span.stop), parameters)
        rounds = sum(share.rounds for share in blocks.shares(parameters))
        quantities["blocks"] = float(np.count_nonzero(blocks.weights))
    else:
        method = open_coordinates(block, store, open_store(columns))
        (rounds,) = method.rounds
        order = method.order(0)
        quantities |= block_quantities(method.bounds(0)[order], method.ranges(0)[order], parameters["batch"])
    return {"rounds": rounds, "at_zero": sums.at_zero, "quantities": quantities}
