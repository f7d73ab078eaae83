"""The metrics of a run, defined once: progressive and held-out loss and error, nonzero weights, divergence.

Progressive metrics are of rows that were each predicted before they were learned, held-out metrics of rows that are not
learned.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sparseoco.learners.losses import find_loss
from sparseoco.storage.metrics import Row
from sparseoco.training import stream
from sparseoco.training.learner import Learner, ProgressiveTotals
from sparseoco.training.metrics.scores import Scores, label_kind
from sparseoco.training.stream import Order, RowSource


def difference(now: ProgressiveTotals, before: ProgressiveTotals) -> ProgressiveTotals:
    """The totals of the rows between two readings."""
    return now._replace(
        rows=now.rows - before.rows,
        loss_sum=now.loss_sum - before.loss_sum,
        error_count=now.error_count - before.error_count,
    )


def mean_rows(totals: ProgressiveTotals, prefix: str = "progressive", *, numbers: bool = False) -> list[Row]:
    """`PREFIX_loss` and `PREFIX_error` of each configuration: means over the rows of the totals.

    `numbers` have no error.
    """
    rows = max(int(totals.rows), 1)
    return [
        {f"{prefix}_loss": float(loss / rows), f"{prefix}_error": None if numbers else float(errors / rows)}
        for loss, errors in zip(totals.loss_sum, totals.error_count, strict=True)
    ]


def curve_rows(totals: ProgressiveTotals, *, numbers: bool = False) -> list[Row]:
    """A point of each configuration's curve: rows learned, and means since the first of them."""
    return [{"rows": totals.rows} | row for row in mean_rows(totals, numbers=numbers)]


def metric_rows(
    epoch: int,
    rows: Iterable[int],
    progressive: ProgressiveTotals,
    held_out: ProgressiveTotals,
    scores: Sequence[Row],
    nonzeros: Iterable[int],
    features: Iterable[int],
    reasons: Sequence[str],
    prefix: str = "held_out",
    *,
    numbers: bool = False,
) -> list[Row]:
    """The metrics of each configuration after (part of) an epoch; see `sparseoco.storage.metrics.METRICS`.

    Parameters
    ----------
    rows : rows learned so far by each configuration, in all epochs.
    progressive, held_out : totals of the epoch; without held-out rows, their means are None.
    scores : the metrics of `Scores.rows` of the held-out rows.
    nonzeros : nonzero weights of each configuration, over all classes.
    features : features with a nonzero weight for any class.
    prefix : of the columns of `scores`.
    reasons : why a configuration diverged; empty for one that did not.
    numbers : whether labels are numbers, which have no error.
    """
    tested = mean_rows(held_out, "held_out", numbers=numbers)
    if not held_out.rows:
        tested = [dict.fromkeys(row) for row in tested]
    tested = [_columns(own, prefix) | test for own, test in zip(scores, tested, strict=True)]
    figures = zip(rows, mean_rows(progressive, numbers=numbers), tested, nonzeros, features, reasons, strict=True)
    return [
        {"epoch": epoch, "rows": int(learned), **progress, "held_out_rows": int(held_out.rows), **test}
        | {"nonzeros": int(count), "features": int(used), "status": "diverged" if reason else "ok", "reason": reason}
        for learned, progress, test, count, used, reason in figures
    ]


def _columns(metrics: Row, prefix: str) -> Row:
    return {f"{prefix}_{name}": value for name, value in metrics.items() if name != "error"}


def evaluate(
    learner: Learner, source: RowSource, chunks: Iterable[NDArray[np.int64]], scores: Scores
) -> ProgressiveTotals:
    """The totals of rows, given by number, under the current weights; nothing is learned. Adds them to `scores`."""
    size = len(learner.configurations)
    losses, errors, n_rows = np.zeros(size), np.zeros(size, np.int64), 0
    for rows in chunks:
        indptr, indices, values, labels, _ = source.gather(rows)
        margins = np.empty((rows.size, size, learner.n_outputs), learner.dtype)
        learner.evaluate(indptr, indices, values, labels, losses, errors, margins_out=margins)
        scores.add(margins, labels)
        n_rows += rows.size
    return ProgressiveTotals(n_rows, losses, errors)


def new_scores(learner: Learner, n_rows: int, positive: int) -> Scores:
    """Scores of a learner's configurations, for at most `n_rows` rows."""
    return Scores(
        label_kind(learner.n_classes, label_sets=learner.multilabel),
        n_rows,
        learner.n_outputs,
        len(learner.configurations),
        dtype=learner.dtype,
        joint=bool(find_loss(learner.loss).joint),
        positive=positive,
    )


def evaluate_held_out(
    learner: Learner, source: RowSource, order: Order, *, positive: int = 1
) -> tuple[ProgressiveTotals, list[Row]]:
    """The totals and metrics of the held-out fold; without one, zeros and None."""
    scores = new_scores(learner, sum(rows.size for rows in held_out_chunks(order, source.n_rows)), positive)
    totals = evaluate(learner, source, held_out_chunks(order, source.n_rows), scores)
    return totals, scores.rows()


def held_out_chunks(order: Order, n_rows: int) -> Iterator[NDArray[np.int64]]:
    """The numbers of the held-out rows, a bounded number at a time; none without a fold."""
    for start in range(0, n_rows if order.fold != stream.NO_FOLD else 0, stream.CHUNK_ROWS):
        yield order.held_out(start, min(start + stream.CHUNK_ROWS, n_rows))
