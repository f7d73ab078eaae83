"""Regret of epoch methods on Dask: their epochs over all examples, and what those and their bounds take of the data."""

from collections.abc import Callable
from typing import Any

from distributed import Client

from sparseoco.execution.pool import await_result, send
from sparseoco.offline.coordinate_tasks import coordinates_of
from sparseoco.offline.epoch_tasks import run_epoch_block
from sparseoco.offline.epochs import Blocks, row_sizes
from sparseoco.offline.passes import Span, chunks
from sparseoco.offline.regret.epochs import EpochMark, Sums, block_quantities, epoch_marks
from sparseoco.offline.sampled import problem_of
from sparseoco.storage.commit import read_checksummed
from sparseoco.storage.locations import Location
from sparseoco.store.cache import corpus_of
from sparseoco.store.shards import Store
from sparseoco.store.transpose import transpose
from sparseoco.training.block import Block, StreamPosition, cell_path


def measure_epochs(
    client: Client, block: Block, store: Store, cells: Location, work: Location, report: Callable[[int], None]
) -> dict[str, Any]:
    """How a block of one configuration goes, held-out rows none: its marks, status and what its bound takes.

    Runs its epochs, whose cells are kept in `cells`, `work` being theirs meanwhile. Raises as `run_epoch_block`.
    """
    run_epoch_block(client, block, store, cells, work, report)
    ends = [
        read_checksummed(cell_path(cells, block, StreamPosition(epoch, store.n_rows)))["results"][0]["tables"][
            "metrics"
        ][0]
        for epoch in range(1, block.setting.epochs + 1)
    ]
    fine = [end for end in ends if end["status"] == "ok"]
    facts = _facts(client, block, store, work)
    objectives, passes = [end["objective"] for end in fine], [end["rows"] / store.n_rows for end in fine]
    marks: list[EpochMark] = list(epoch_marks(facts["rounds"], facts["at_zero"], objectives, passes))
    return {
        "marks": [mark._asdict() for mark in marks],
        "status": ends[-1]["status"],
        "reason": ends[-1]["reason"],
        "quantities": facts["quantities"],
    }


def _facts(client: Client, block: Block, store: Store, work: Location) -> dict[str, Any]:
    """Rounds an epoch, H(0), and the quantities that bounds take, found by a task."""
    columns = transpose(client, store, work) if block.algorithm == "cao-rcd" else None
    future = send(
        client,
        "epoch-facts",
        _facts_on_worker,
        block.model_dump(mode="json"),
        str(store.folder.resolve()),
        None if columns is None else str(columns.folder.resolve()),
    )
    facts: dict[str, Any] = await_result(client, future, "What a bound takes was not found")
    return facts


def _facts_on_worker(description: dict[str, Any], folder: str, columns: str | None) -> dict[str, Any]:
    block, store = Block.model_validate(description), Store.open(folder)
    problem, corpus, (parameters,) = problem_of(block, store), corpus_of(store), block.configurations
    every = Span().within(store.n_rows)
    sums = Sums(0.0, 0.0)
    for rows in chunks(corpus, every, every.start, every.stop):
        sums += Sums.of(rows, problem.loss, problem.positive, parameters["R"])
    quantities = {"n": float(store.n_features), "L": sums.L}
    if columns is None:
        blocks = Blocks.of(row_sizes(corpus, every, every.start, every.stop), parameters["batch"])
        rounds = sum(share.rounds for share in blocks.shares(parameters))
    else:
        method = coordinates_of(block, store, Store.open(columns))
        (rounds,) = method.rounds
        quantities |= block_quantities(method.bounds(0), parameters["batch"], parameters["R"])
    return {"rounds": rounds, "at_zero": sums.at_zero, "quantities": quantities}
