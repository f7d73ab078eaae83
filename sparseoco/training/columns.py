"""A block of columns: configurations of one learner that run through one compiled loop, and their arrays."""

from collections.abc import Callable, Iterator

import numpy as np

from sparseoco.kernels.binding import MEASURE_ABSOLUTE, Kernels, kernels_for
from sparseoco.kernels.sweeping import ColumnBlock, Rows
from sparseoco.learners.contract import START, Rule
from sparseoco.learners.losses import Loss
from sparseoco.learners.penalties import Penalty

LANE_BYTES = 64
"""Columns are padded to a multiple of this many bytes a slot, one cache line, so that the loop over them vectorises."""


def padded(columns: int, dtype: np.dtype) -> int:
    """Columns with padding; one column alone has none, for its loop is scalar."""
    lanes = LANE_BYTES // dtype.itemsize
    return columns if columns == 1 else -(-columns // lanes) * lanes


class Columns(ColumnBlock):
    """State of configurations with `outputs` adjacent columns each; `hyper` has a list of numbers a configuration.

    Arrays: ``state`` (n_features, slots, width); ``stamp`` (n_features,) float64, empty for learners that keep none;
    ``clock`` and ``running`` (numbers, width) float64; a configuration: ``loss_sum`` float64, ``error_count``
    and ``diverged`` int64.
    """

    def __init__(
        self,
        rule: Rule,
        penalty: Penalty,
        loss: Loss,
        response: str,
        hyper: list[list[float]],
        outputs: int,
        n_features: int,
        dtype: np.dtype,
        tracked: bool = False,
    ) -> None:
        self.outputs = outputs
        self.every = rule.kept_for if tracked else 0.0
        tracked = self.every > 0.0
        self.dtype = dtype
        self.n_features = n_features
        self.columns = len(hyper) * outputs
        self.width = padded(self.columns, dtype)
        bound = (penalty, loss, response, dtype.name, self.width == 1, tracked)
        rule_only = rule._replace(start=START, kept_for=0.0, threshold=None)
        self.kernels: Kernels = kernels_for(rule_only, *bound)
        self.sweep_thresholds = None
        if rule.threshold is not None:
            self.sweep_thresholds = kernels_for(rule_only._replace(weight=rule.threshold), *bound).sweep
        values = [entry for entry in hyper for _ in range(outputs)]
        values += [values[-1]] * (self.width - self.columns)
        numbers = np.array(values, dtype=np.float64).T
        self.hyper = np.concatenate([numbers, np.zeros((len(rule.running), self.width))])
        self.running = self.hyper[len(numbers) :]
        self.ticks = rule.ticks
        self.slots = rule.slots
        self.state = np.zeros((n_features, len(rule.slots), self.width), dtype)
        self.stamp = np.zeros(n_features if rule.stamped else 0, np.float64)
        self.clock = np.array(rule.start, np.float64)
        self.level = np.zeros(self.width if tracked else 0, np.float64)
        self.level_sum = np.zeros(self.width if tracked else 0, np.float64)
        self.loss_sum = np.zeros(len(hyper), np.float64)
        self.error_count = np.zeros(len(hyper), np.int64)
        self.diverged = np.zeros(len(hyper), np.int64)

    def learn(self, rows: Rows, labels: np.ndarray, told: np.ndarray | None = None) -> None:
        """Play the rows in turn; `labels` is read-only float64.

        `told` (rows, width), if given, receives the margins with which each row was predicted, padding included.
        """
        if not 0.0 < self.every < np.inf:
            self._learn(rows, labels, told)
            return
        start, every = 0, int(self.every)
        while start < len(labels):  # up to the next round that moves all coordinates
            stop = min(start + every - int(self.clock[0]) % every, len(labels))
            entries = rows.indptr[[start, stop]] - rows.indptr[0]
            part = Rows(rows.indptr[start : stop + 1], rows.indices[slice(*entries)], rows.counts[slice(*entries)])
            self._learn(part, labels[start:stop], None if told is None else told[start:stop])
            if self.clock[0] % every == 0:
                self._measure_level()
            start = stop

    def _measure_level(self) -> None:
        level = np.zeros(self.columns)
        for _, _, weights in self.sweep():
            MEASURE_ABSOLUTE(weights, level)
        self.level[: self.columns] = level

    def _learn(self, rows: Rows, labels: np.ndarray, told: np.ndarray | None) -> None:
        learn = self.kernels.learn if told is None else self.kernels.learn_telling
        learn(
            *rows,
            labels,
            self.outputs,
            self.state,
            self.stamp,
            self.hyper,
            self.clock,
            self.diverged,
            self.loss_sum,
            self.error_count,
            self.level,
            self.level_sum,
            np.empty((0, self.width), self.dtype) if told is None else told,
            self._now(),
            np.zeros(self.width, self.dtype),
            np.zeros(self.width, self.dtype),
        )

    def margins(self, rows: Rows) -> np.ndarray:
        """(rows, width), padding included."""
        out = np.empty((len(rows.indptr) - 1, self.width), self.dtype)
        self.kernels.margins(*rows, self.outputs, self.state, self.stamp, self.hyper, self.clock, self._now(), out)
        return out

    def weights(self, first: int, stop: int) -> np.ndarray:
        """(stop − first, columns): the weights of a run of features."""
        return self._swept(self.kernels.sweep, first, stop)

    def thresholds(self) -> np.ndarray | None:
        """(n_features, columns): h of every coordinate (`Rule.threshold`); None where it is 1."""
        return None if self.sweep_thresholds is None else self._swept(self.sweep_thresholds, 0, len(self.state))

    def _swept(self, kernel: Callable[..., None], first: int, stop: int) -> np.ndarray:
        out = np.empty((stop - first, self.width), self.dtype)
        kernel(first, self.outputs, self.state, self.stamp, self.hyper, self.clock, self._now(), out)
        return out[:, : self.columns]

    def arrays(self) -> Iterator[tuple[str, np.ndarray]]:
        """All that there is to keep, with names: views, without padding."""
        yield "state", self.state[:, :, : self.columns]
        yield "stamp", self.stamp
        yield "clock", self.clock
        yield "running", self.running[:, : self.columns]
        yield "level", self.level[: self.columns]
        yield "level_sum", self.level_sum[: self.columns]
        yield "loss_sum", self.loss_sum
        yield "error_count", self.error_count
        yield "diverged", self.diverged

    def start_from(self, weights: np.ndarray, columns: np.ndarray, rows: int) -> None:
        """Become, being new, a block that `rows` rounds ago saw its last row and has weights (n_features, any number)
        of which these are its columns."""
        self.kernels.rest(rows, self.hyper, self.clock)
        for first, stop in self.runs():
            part = np.zeros((stop - first, self.width), self.dtype)
            part[:, : self.columns] = weights[first:stop, columns]
            self.kernels.settle(first, self.outputs, part, self.state, self.stamp, self.hyper, self.clock, self._now())
        if self.every:
            self._measure_level()

    def pad(self) -> None:
        """Put the running numbers of the last column, whose parameters the padding has, into the padding."""
        self.running[:, self.columns :] = self.running[:, self.columns - 1 : self.columns]

    def take(self, other: "Columns", configurations: np.ndarray) -> None:
        """Become these configurations of a block of the same rule, this block being new and made for them."""
        columns = (configurations[:, None] * self.outputs + np.arange(self.outputs)).ravel()
        by_configuration = ("loss_sum", "error_count", "diverged")
        for (name, own), (_, value) in zip(self.arrays(), other.arrays(), strict=True):
            if name in ("stamp", "clock"):
                own[...] = value
            elif name in by_configuration:
                own[...] = value[configurations]
            elif name == "state":
                for first, stop in self.runs():
                    own[first:stop] = value[first:stop, :, columns]
            elif value.size:
                own[...] = value[..., columns]
        self.pad()

    def _now(self) -> np.ndarray:
        return np.zeros((self.ticks, self.width), self.dtype)
