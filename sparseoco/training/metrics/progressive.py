"""The metrics of a run, defined once: progressive and held-out loss and error, nonzero weights, divergence.

Progressive metrics are of rows that were each predicted before they were learned, held-out metrics of rows that are not
learned.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from sparseoco.storage.metrics import Row
from sparseoco.training import stream
from sparseoco.training.learner import Learner, ProgressiveTotals
from sparseoco.training.stream import Order, RowSource


def difference(now: ProgressiveTotals, before: ProgressiveTotals) -> ProgressiveTotals:
    """The totals of the rows between two readings."""
    return ProgressiveTotals(
        now.rows - before.rows, now.loss_sum - before.loss_sum, now.error_count - before.error_count
    )


def mean_rows(totals: ProgressiveTotals, prefix: str = "progressive") -> list[Row]:
    """`PREFIX_loss` and `PREFIX_error` of each configuration: means over the rows of the totals."""
    rows = max(int(totals.rows), 1)
    return [
        {f"{prefix}_loss": float(loss / rows), f"{prefix}_error": float(errors / rows)}
        for loss, errors in zip(totals.loss_sum, totals.error_count, strict=True)
    ]


def curve_rows(totals: ProgressiveTotals) -> list[Row]:
    """A point of each configuration's curve: rows learned, and means since the first of them."""
    return [{"rows": totals.rows} | row for row in mean_rows(totals)]


def metric_rows(
    epoch: int,
    rows: Iterable[int],
    progressive: ProgressiveTotals,
    held_out: ProgressiveTotals,
    nonzeros: Iterable[int],
    reasons: Sequence[str],
) -> list[Row]:
    """The metrics of each configuration after (part of) an epoch; see `sparseoco.storage.metrics.METRICS`.

    Parameters
    ----------
    rows : rows learned so far by each configuration, in all epochs.
    progressive, held_out : totals of the epoch; without held-out rows, their means are None.
    nonzeros : nonzero weights of each configuration, over all classes.
    reasons : why a configuration diverged; empty for one that did not.
    """
    tested = mean_rows(held_out, "held_out")
    if not held_out.rows:
        tested = [dict.fromkeys(row) for row in tested]
    figures = zip(rows, mean_rows(progressive), tested, nonzeros, reasons, strict=True)
    return [
        {"epoch": epoch, "rows": int(learned), **progress, "held_out_rows": int(held_out.rows), **test}
        | {"nonzeros": int(count), "status": "diverged" if reason else "ok", "reason": reason}
        for learned, progress, test, count, reason in figures
    ]


def evaluate(learner: Learner, source: RowSource, chunks: Iterable[NDArray[np.int64]]) -> ProgressiveTotals:
    """The totals of rows, given by number, under the current weights; nothing is learned."""
    size = len(learner.configurations)
    losses, errors, n_rows = np.zeros(size), np.zeros(size, np.int64), 0
    for rows in chunks:
        indptr, indices, values, labels, _ = source.gather(rows)
        learner.evaluate(indptr, indices, values, labels, losses, errors)
        n_rows += rows.size
    return ProgressiveTotals(n_rows, losses, errors)


def evaluate_held_out(learner: Learner, source: RowSource, order: Order) -> ProgressiveTotals:
    """The totals of the held-out fold; zeros without one."""
    n_rows, size = source.n_rows, stream.CHUNK_ROWS
    starts = range(0, n_rows if order.fold != stream.NO_FOLD else 0, size)
    return evaluate(learner, source, (order.held_out(start, min(start + size, n_rows)) for start in starts))
