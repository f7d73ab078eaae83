"""A block in progress: its learner, its position in the stream, and the metrics recorded so far.

Its state at a position depends only on the block and the position, not on where it was stopped, saved or resumed.
"""

import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sparseoco.kernels.structs import RowBatch
from sparseoco.storage.metrics import Row
from sparseoco.store.corpus import AnyCorpus
from sparseoco.store.frequencies import frequency_bins, frequency_rows
from sparseoco.store.shards import Store
from sparseoco.training.block import Block, Tables
from sparseoco.training.class_weights import class_weighted
from sparseoco.training.decisions.rules import MarginRecorder
from sparseoco.training.folds import fold_order
from sparseoco.training.learner import Learner, ProgressiveTotals
from sparseoco.training.metrics.progressive import (
    curve_rows,
    difference,
    evaluate_held_out,
    metric_rows,
    new_scores,
)
from sparseoco.training.metrics.scores import Scores
from sparseoco.training.options.configuration import learner_parameters
from sparseoco.training.sizes import chunk_rows
from sparseoco.training.stream import START, Order, StreamPosition, curve_marks, stream
from sparseoco.training.warm_start import take_weights


class BlockRun:
    """A block at a position in its stream.

    Parameters
    ----------
    epoch_start : totals of the learner when the current epoch began.
    curves : the points recorded in the current epoch, for each configuration.
    seconds : time spent on the current epoch so far.
    totals : of all epochs so far, where they are not those of the learner: those of the parts that it averages.

    Attributes
    ----------
    recorder : learns in place of the learner, to record margins, if it is set.
    """

    def __init__(
        self,
        block: Block,
        learner: Learner,
        position: StreamPosition = START,
        epoch_start: ProgressiveTotals | None = None,
        curves: list[list[Row]] | None = None,
        seconds: float = 0.0,
        totals: ProgressiveTotals | None = None,
    ) -> None:
        self.block, self.learner, self.position = block, learner, position
        self.epoch_start = learner.progress if epoch_start is None else epoch_start
        self.curves = [[] for _ in block.configurations] if curves is None else curves
        self.seconds = seconds
        self._totals = totals
        self.recorder: MarginRecorder | None = None
        self._scores: Scores | None = None

    @classmethod
    def new(cls, block: Block, store: Store) -> "BlockRun":
        """A block before its first row, starting from the weights of its setting's model if there is one."""
        learner = new_learner(block, store)
        if block.setting.origin is not None:
            take_weights(block.setting.origin, learner, store)
        return cls(block, learner)

    @property
    def _numbers(self) -> bool:
        return self.learner.n_classes is None

    def select(self, block: Block) -> "BlockRun":
        """The run of `block`, whose configurations are some of this one's, as if they had been run alone."""
        if block.identities == self.block.identities:
            return self
        numbers = [self.block.identities.index(name) for name in block.identities]
        start = self.epoch_start
        start = start._replace(loss_sum=start.loss_sum[numbers], error_count=start.error_count[numbers])
        curves = [self.curves[number] for number in numbers]
        return BlockRun(block, self.learner.select(numbers), self.position, start, curves, self.seconds)

    def advance(self, corpus: AnyCorpus, goal: StreamPosition) -> Iterator[None]:
        """Learn up to `goal`, in small steps between which the caller may stop."""
        marks = curve_marks(corpus.n_rows)
        if self.block.setting.progressive_metrics and self.position == START:
            self._scores = new_scores(self.learner, corpus.n_rows, self.block.setting.positive)
        source = class_weighted(corpus, self.block.setting.class_weights)
        started = time.monotonic()
        size = chunk_rows(self.block.algorithm, self.learner.n_features, self.learner.n_columns)
        order = fold_order(self.block.setting, corpus)
        for position, rows in stream(source, order, self.position, goal, marks, size):
            if position.epoch > self.position.epoch:
                self.epoch_start, self.curves, self.seconds = self.learner.progress, [[] for _ in self.curves], 0.0
            self._learn(rows)
            if position.position in marks:
                for curve, point in zip(
                    self.curves, curve_rows(self.learner.progress, numbers=self._numbers), strict=True
                ):
                    curve.append(point)
            self.position = position
            self.seconds += time.monotonic() - started
            yield
            started = time.monotonic()

    def _learn(self, rows: RowBatch) -> None:
        if self._scores is None or self.recorder is not None:
            (self.recorder or self.learner).learn_rows(*rows)
            return
        shape = len(rows.labels), len(self.block.configurations), self.learner.n_outputs
        margins = np.empty(shape, self.learner.dtype)
        self.learner.learn_rows(*rows, margins_out=margins)
        self._scores.add(margins, rows.labels)

    def tables(self, corpus: AnyCorpus, store: Store) -> list[Tables]:
        """Each configuration's rows of the tables; at the end of an epoch, the held-out fold is evaluated.

        An increment of a nightly run has metrics only: the others would require reading the whole vocabulary.
        """
        if self.block.setting.increment is not None:
            return [{"metrics": [row]} for row in self._metrics(corpus, self.learner.nonzeros())]
        started = time.monotonic()
        bins, features = frequency_bins(store)
        counts = self.learner.nonzeros(bins=bins)
        metrics = self._metrics(corpus, counts.sum(axis=0))
        self.seconds += time.monotonic() - started
        timing = {"epoch": self.position.epoch, "seconds": self.seconds / len(metrics)}
        return [
            {
                "metrics": [row],
                "curves": list(curve),
                "feature_survival": frequency_rows(own, features),
                "timings": [timing],
            }
            for row, curve, own in zip(metrics, self.curves, counts.T, strict=True)
        ]

    def _metrics(self, corpus: AnyCorpus, nonzeros: NDArray[np.int64]) -> list[Row]:
        now = self._totals or self.learner.progress
        at_end = self.position.position == corpus.n_rows
        setting = self.block.setting
        order = fold_order(setting, corpus) if at_end or setting.evaluate_rungs else Order()
        held_out, scores = evaluate_held_out(self.learner, corpus, order, positive=setting.positive)
        prefix = "held_out"
        if self._scores is not None:
            prefix, scores = "progressive", self._scores.rows()
        return metric_rows(
            self.position.epoch,
            [now.rows] * len(nonzeros),
            difference(now, self.epoch_start),
            held_out,
            scores,
            nonzeros,
            self.learner.features_used(),
            [f"diverged at row {row:,}" if row else "" for row in self.learner.diverged.tolist()],
            prefix,
            numbers=self._numbers,
        )


def new_learner(block: Block, store: Store) -> Learner:
    """A new learner for a block."""
    setting = block.setting
    return Learner(
        block.algorithm,
        loss=setting.loss,
        penalty=setting.penalty,
        grid=[learner_parameters(configuration) for configuration in block.configurations],
        n_features=store.n_features,
        n_classes=store.n_classes,
        multilabel=store.is_multilabel,
        dtype=setting.dtype,
        intercept=block.intercept,
    )
