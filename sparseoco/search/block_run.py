"""A block under way: its learner, where in the stream it stands, and the rows of the tables it has earned.

What it holds at a place depends on the block and the place alone, not on where it was stopped, saved or taken up again.
"""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseoco.kernels.order import epoch_rows, fold_rows
from sparseoco.store.corpus import Corpus
from sparseoco.store.frequencies import frequency_bins, kept_rows
from sparseoco.store.shards import Store
from sparseoco.training.block import NO_FOLD, Block, Setting, StreamPosition, Tables
from sparseoco.training.learner import Learner, ProgressiveTotals
from sparseoco.training.warm_start import take_weights

Rows = list[dict[str, Any]]

CHUNK_ROWS = 4096
MARKS = 20


class BlockRun:
    """A block at a `place`; `before` is what was suffered until its epoch began, `curves` what was read in it since.

    `seconds` is the time spent on the epoch so far.
    """

    def __init__(
        self,
        block: Block,
        learner: Learner,
        place: StreamPosition,
        before: ProgressiveTotals,
        curves: list[Rows],
        seconds: float,
    ) -> None:
        self.block, self.learner, self.place = block, learner, place
        self.before, self.curves, self.seconds = before, curves, seconds

    @classmethod
    def begin(cls, block: Block, store: Store) -> "BlockRun":
        """A block before its first row, with the weights of the model it begins from, if there is one."""
        learner = new_learner(block, store)
        if block.setting.origin is not None:
            take_weights(block.setting.origin, learner, store)
        return cls.of(block, learner)

    @classmethod
    def of(cls, block: Block, learner: Learner) -> "BlockRun":
        """A block whose learner is to learn its first row."""
        return cls(block, learner, StreamPosition(1, 0), learner.progress, [[] for _ in block.configurations], 0.0)

    def select(self, block: Block) -> "BlockRun":
        """The configurations of `block`, which are among those of this one, as if they had come alone."""
        if block.identities == self.block.identities:
            return self
        numbers = [self.block.identities.index(name) for name in block.identities]
        before = ProgressiveTotals(self.before.rows, self.before.loss_sum[numbers], self.before.error_count[numbers])
        curves = [self.curves[number] for number in numbers]
        return BlockRun(block, self.learner.select(numbers), self.place, before, curves, self.seconds)

    def advance(self, corpus: Corpus, goal: StreamPosition) -> Iterator[None]:
        """Learn up to `goal`, in steps small enough to be interrupted between them."""
        n_rows, setting = corpus.n_rows, self.block.setting
        marks = curve_marks(n_rows)
        while self.place < goal:
            started = time.monotonic()
            epoch, start = self.place
            if start == n_rows:
                epoch, start = epoch + 1, 0
                self.before, self.curves, self.seconds = self.learner.progress, [[] for _ in self.curves], 0.0
            last = goal.position if epoch == goal.epoch else n_rows
            mark = next(mark for mark in marks if mark > start)
            stop = min(last, mark, (start // CHUNK_ROWS + 1) * CHUNK_ROWS)
            rows = epoch_rows(setting.seed, epoch, setting.shuffle, n_rows, start, stop, setting.fold, setting.folds)
            self.learner.learn_rows(*corpus.gather(rows))
            if stop == mark:
                for own, row in zip(self.curves, _curve_rows(self.learner), strict=True):
                    own.append(row)
            self.place = StreamPosition(epoch, stop)
            self.seconds += time.monotonic() - started
            yield

    def tables(self, corpus: Corpus, store: Store) -> list[Tables]:
        """Each configuration's rows of this epoch, as things stand; at its end, with what was held out judged."""
        started = time.monotonic()
        bins, features = frequency_bins(store)
        kept = self.learner.nonzeros(bins=bins)
        metrics = self._metrics(corpus, kept.sum(axis=0))
        self.seconds += time.monotonic() - started
        timing = {"epoch": self.place.epoch, "seconds": self.seconds / len(metrics)}
        return [
            {"metrics": [row], "curves": list(curve), "kept": kept_rows(own, features), "timings": [timing]}
            for row, curve, own in zip(metrics, self.curves, kept.T, strict=True)
        ]

    def night_tables(self, corpus: Corpus) -> list[Tables]:
        """Each configuration's row of this night: all that is asked of it, for which no vocabulary need be read."""
        return [{"metrics": [row]} for row in self._metrics(corpus, self.learner.nonzeros())]

    def _metrics(self, corpus: Corpus, nonzeros: NDArray[np.int64]) -> Rows:
        ended = self.place.position == corpus.n_rows
        held_out = _evaluate(self.learner, corpus, self.block.setting, corpus.n_rows if ended else 0)
        return _metric_rows(self.learner, self.place.epoch, self.before, nonzeros, *held_out)


def new_learner(block: Block, store: Store) -> Learner:
    """The learner of a block, nothing learned yet."""
    setting = block.setting
    return Learner(
        block.algorithm,
        loss=setting.loss,
        penalty=setting.penalty,
        grid=block.configurations,
        n_features=store.n_features,
        n_classes=max(2, len(store.classes)),
        dtype=setting.dtype,
    )


def curve_marks(n_rows: int) -> list[int]:
    """Positions in an epoch where the curves are read: even in the logarithm, the last row among them."""
    if n_rows == 0:
        return []
    spread = np.geomspace(min(50, n_rows), n_rows, MARKS)
    return sorted({round(float(position)) for position in spread} | {n_rows})


def _evaluate(
    learner: Learner, corpus: Corpus, setting: Setting, last: int
) -> tuple[int, NDArray[np.float64], NDArray[np.int64]]:
    """(rows, loss sums, error counts) over the held-out fold of the first `last` rows, under these weights."""
    size = len(learner.configurations)
    losses, errors, n_rows = np.zeros(size), np.zeros(size, dtype=np.int64), 0
    if setting.fold != NO_FOLD:
        for start in range(0, last, CHUNK_ROWS):
            stop = min(start + CHUNK_ROWS, last)
            rows = fold_rows(setting.seed, start, stop, setting.fold, setting.folds)
            learner.evaluate(*corpus.gather(rows), losses, errors)
            n_rows += rows.size
    return n_rows, losses, errors


def _curve_rows(learner: Learner) -> Rows:
    rows, losses, errors = learner.progress
    return [
        {"rows": rows, "progressive_loss": float(loss) / max(rows, 1), "progressive_error": int(error) / max(rows, 1)}
        for loss, error in zip(losses, errors, strict=True)
    ]


def _metric_rows(
    learner: Learner,
    epoch: int,
    before: ProgressiveTotals,
    nonzeros: NDArray[np.int64],
    held_out_rows: int,
    held_out_loss: NDArray[np.float64],
    held_out_errors: NDArray[np.int64],
) -> Rows:
    now = learner.progress
    learned = max(now.rows - before.rows, 1)
    diverged = learner.diverged
    return [
        {
            "epoch": epoch,
            "rows": now.rows,
            "progressive_loss": float((now.loss_sum[i] - before.loss_sum[i]) / learned),
            "progressive_error": float((now.error_count[i] - before.error_count[i]) / learned),
            "held_out_rows": held_out_rows,
            "held_out_loss": float(held_out_loss[i] / held_out_rows) if held_out_rows else None,
            "held_out_error": float(held_out_errors[i] / held_out_rows) if held_out_rows else None,
            "nonzeros": int(nonzeros[i]),
            "status": "diverged" if diverged[i] else "ok",
            "reason": f"diverged at row {diverged[i]:,}" if diverged[i] else "",
        }
        for i in range(len(nonzeros))
    ]
