"""A block of columns: configurations of one learner that run through one compiled loop, and their arrays."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparseoco.kernels import columns as loops
from sparseoco.kernels.columns import MARGINS, ColumnBlock, Kernels, Rows, Scratch, State
from sparseoco.kernels.dense import DenseColumns
from sparseoco.kernels.responses import row_loss
from sparseoco.learners.contract import Clock, Rule, stored_weight
from sparseoco.learners.losses import Loss
from sparseoco.learners.penalties import Penalty

LANE_BYTES = 64
"""Columns are padded to a multiple of this many bytes per slot, one cache line, so that their loop vectorises."""
NARROW = (1, 4, 8)
"""Smaller numbers of columns, for each of which a loop is compiled."""
MANY_NONZEROS = 1 << 21
"""Nonzeros from which on a block learns with the loop of its width: faster (4 columns by two thirds, 1 and 8 by a
sixth), and a second to compile."""


def padded(columns: int, dtype: np.dtype) -> int:
    """The number of columns with padding."""
    lanes = LANE_BYTES // dtype.itemsize
    return next((width for width in NARROW if columns <= width), -(-columns // lanes) * lanes)


@dataclass(eq=False, repr=False)
class Columns(ColumnBlock):
    """State of configurations with `outputs` adjacent columns each; `numbers` has a list of parameters for each.

    Arrays: ``state`` (n_features, slots, width); ``last_update`` (n_features,) float64, empty for rules without time
    stamps; ``clock`` float64, the fields of `Clock`; ``params`` (numbers, width) float64 and its last rows,
    ``per_column_sums``; per configuration ``loss_sum`` and ``surplus`` float64, ``error_count`` and ``diverged`` int64.
    With an intercept, it is one more feature, and ``params`` has 2·width columns, the second half with λ = 0.
    """

    rule: Rule
    penalty: Penalty
    loss: Loss
    response: str
    numbers: list[list[float]]
    outputs: int
    n_features: int
    dtype: np.dtype
    track_l1_norm: bool = False
    intercept: bool = False

    def __post_init__(self) -> None:
        rule, dtype, n_features, intercept = self.rule, self.dtype, self.n_features, self.intercept
        self.columns = len(self.numbers) * self.outputs
        self.width = padded(self.columns, dtype)
        self.refresh_interval = rule.stored_weight_valid_for if self.track_l1_norm else 0.0
        tracked = self.refresh_interval > 0.0
        # Without values that compiled code does not depend on, so that configurations share kernels.
        left_out: dict[str, Any] = {"reported": None, "threshold": None, "initial_state": ()}
        self._compiled_rule = replace(rule, start=Clock(), stored_weight_valid_for=0.0, **left_out)
        self.kernels: Kernels = loops.kernels_for(self._compiled_rule, dtype.name, grouped=self.penalty.grouped)
        self._nonzeros = 0
        self._current_weights: np.ndarray | None = None
        self.slot_names = rule.slots
        values = [entry for entry in self.numbers for _ in range(self.outputs)]
        values += [values[-1]] * (self.width - self.columns)
        self.params = _with_unpenalised(np.array(values, np.float64).T.copy(), rule, intercept)
        self.per_column_sums = self.params[len(self.params) - len(rule.per_column_sums) :]
        stored = n_features + intercept
        self.state = np.zeros((stored, len(rule.slots), self.width), dtype)
        if rule.initial_state:
            self.state[...] = np.array(rule.initial_state)[:, None]
        self.last_update = np.zeros(stored if rule.clock_time else 0, np.float64)
        self.clock = np.array(rule.start, np.float64)
        self.start_sums(len(self.numbers), self.width if tracked else 0)

    @property
    def rounds(self) -> int:
        """Rounds on the clock."""
        return int(self.clock[0])

    def learn(self, rows: Rows, labels: np.ndarray, weights: np.ndarray | None, margins_out: np.ndarray | None) -> None:
        """Learn the rows in turn; `labels` and `weights` are read-only float64.

        `margins_out` (rows, width), if given, receives the margins with which each row was predicted, padding included.
        """
        if margins_out is None:
            margins_out = np.empty((0, self.width), self.dtype)
        labels = loops.by_row(labels)
        if weights is None:
            weights = np.ones(len(labels))
        if not 0.0 < self.refresh_interval < np.inf:
            self._learn(rows, labels, weights, margins_out)
            return
        start, interval = 0, int(self.refresh_interval)
        while start < len(labels):  # up to the next round that moves all coordinates
            stop = min(start + interval - self.rounds % interval, len(labels))
            entries = slice(*(rows.indptr[[start, stop]] - rows.indptr[0]))
            part = Rows(rows.indptr[start : stop + 1], rows.indices[entries], rows.values[entries])
            self._learn(part, labels[start:stop], weights[start:stop], margins_out[start:stop])
            if self.rounds % interval == 0:
                self._measure_l1_norm()
            start = stop

    def _learn(self, rows: Rows, labels: np.ndarray, weights: np.ndarray, margins_out: np.ndarray) -> None:
        loss_width = self.width if self.rule.needs_loss else 0
        scratch = Scratch(
            scalars=self._scalars(),
            margins=np.zeros(self.width, self.dtype),
            slopes=np.zeros(self.width, self.dtype),
            losses=np.zeros(loss_width, self.dtype),
            row_losses=np.zeros(len(self.loss_sum)),
            sq_slopes=np.zeros(loss_width, self.dtype),
            state_sums=np.zeros(self.width if self.rule.row_term else 0, self.dtype),
        )
        self._nonzeros += len(rows.values)
        fixed = self.width if self.width in NARROW and self._nonzeros >= MANY_NONZEROS else 0
        flags = {"grouped": self.penalty.grouped, "tracked": self.refresh_interval > 0.0}
        learn = loops.learn_kernel(self._compiled_rule, self.dtype.name, fixed=fixed, **flags)
        shared = self.loss.joint or self.penalty.grouped
        loss = row_loss(self.loss, self.response, self.dtype.name, self.outputs if shared else 1)
        self._current_weights = None
        self.clock[:] = learn(
            rows, labels, weights, loss, self.outputs, self._state(), self.progress, scratch, margins_out
        )

    def _measure_l1_norm(self) -> None:
        norm = np.zeros(self.columns)
        for _, _, weights in self.weight_runs():
            loops.MEASURE_ABSOLUTE(weights, norm)
        self.l1_norm[: self.columns] = norm

    def margins(self, rows: Rows) -> np.ndarray:
        """(rows, width), padding included. The weights of all features are kept until the state changes."""
        if self._current_weights is None:
            self._current_weights = self._materialized(self.rule.reported, 0, len(self.state))
        out = np.empty((len(rows.indptr) - 1, self.width), self.dtype)
        MARGINS(*rows, self._current_weights, out)
        return out

    def weights(self, first: int, stop: int) -> np.ndarray:
        """(stop − first, columns): the weights of a run of features."""
        if self._current_weights is not None:
            return self._current_weights[first:stop, : self.columns].astype(self.dtype, copy=False)
        weights = self._materialized(self.rule.reported, first, stop)
        return weights[:, : self.columns].astype(self.dtype, copy=False)

    def intercepts(self) -> np.ndarray:
        """(columns,): the weights of the intercept, 0 without one."""
        if not self.intercept:
            return super().intercepts()
        only: np.ndarray = self.weights(self.n_features, self.n_features + 1)[0]
        return only

    def thresholds(self) -> np.ndarray | None:
        """(n_features, columns): h of every coordinate (`Rule.threshold`); None where it is 1."""
        if self.rule.threshold is None:
            return None
        return self._materialized(self.rule.threshold, 0, self.n_features)[:, : self.columns]

    def _materialized(self, weight: Callable[..., Any] | None, first: int, stop: int) -> np.ndarray:
        """(stop − first, width): a function of the state of a run of features, by default `Rule.weight`.

        In float64 if `Rule.weight_is_float64`, else of the columns' dtype.
        """
        rule = self._compiled_rule
        rule = rule if weight is None else replace(rule, weight=weight)
        if rule.weight is stored_weight and not self.penalty.grouped:
            return self.state[first:stop, 0].copy()
        out = np.empty((stop - first, self.width), np.float64 if rule.weight_is_float64 else self.dtype)
        materialize = loops.kernels_for(rule, self.dtype.name, grouped=self.penalty.grouped).materialize
        materialize(first, self.outputs, self._state(), self._scalars(), out)
        return out

    def arrays(self) -> Iterator[tuple[str, np.ndarray]]:
        """The complete state by name: views, without padding."""
        n = self.n_features
        yield "state", self.state[:n, :, : self.columns]
        yield "last_update", self.last_update[:n]
        yield "intercept_state", self.state[n:, :, : self.columns]
        yield "intercept_update", self.last_update[n:]
        yield "clock", self.clock
        yield "running", self._sums_by_part[..., : self.columns]
        yield "l1_norm", self.l1_norm[: self.columns]
        yield "l1_norm_sum", self.l1_norm_sum[: self.columns]
        yield "loss_sum", self.loss_sum
        yield "surplus", self.surplus
        yield "error_count", self.error_count
        yield "diverged", self.diverged

    def start_from(self, weights: np.ndarray, columns: np.ndarray, rows: int, intercepts: np.ndarray | None) -> None:
        """Turn this new block into one after `rows` rounds whose weights are these columns of `weights`.

        `intercepts` (columns,), if given, are the intercepts.
        """
        self._current_weights = None
        self.clock[:] = self.kernels.pass_rounds(rows, Clock(*self.clock.tolist()), self.params)
        for first, stop in self.feature_runs():
            self._init_state(first, weights[first:stop, columns])
        if self.intercept:
            given = np.zeros(self.columns) if intercepts is None else intercepts
            self._init_state(self.n_features, given[None])
        if self.refresh_interval:
            self._measure_l1_norm()

    def _init_state(self, first: int, weights: np.ndarray) -> None:
        """Give the features from `first` on these weights (features, columns)."""
        part = np.zeros((len(weights), self.width), self.dtype)
        part[:, : self.columns] = weights
        if self.penalty.bounded:
            radius = self.params[self.rule.param_names.index("R")].astype(self.dtype)
            np.clip(part, -radius, radius, out=part)
        self.kernels.init_state(first, self.outputs, part, self._state(), self._scalars())

    def pad(self) -> None:
        """Complete a state that was written into `arrays`: the padding has the sums of the last column."""
        self._current_weights = None
        self._sums_by_part[..., self.columns :] = self._sums_by_part[..., self.columns - 1 : self.columns]

    def take(self, other: "Columns", configurations: np.ndarray) -> None:
        """Copy the state of these configurations of another block of the same rule into this new block."""
        columns = (configurations[:, None] * self.outputs + np.arange(self.outputs)).ravel()
        for (name, own), (_, value) in zip(self.arrays(), other.arrays(), strict=True):
            if name in ("last_update", "intercept_update", "clock"):
                own[...] = value
            elif name in ("loss_sum", "surplus", "error_count", "diverged"):
                own[...] = value[configurations]
            elif name == "state":
                for first, stop in self.feature_runs():
                    own[first:stop] = value[first:stop, :, columns]
            elif value.size:
                own[...] = value[..., columns]
        self.pad()

    @property
    def _sums_by_part(self) -> np.ndarray:
        """(numbers, 1 or 2, width): the per-column sums, those of the intercept last."""
        return self.per_column_sums.reshape(len(self.per_column_sums), 1 + self.intercept, self.width)

    def _state(self) -> State:
        return State(self.state, self.last_update, self.params, Clock(*self.clock.tolist()))

    def _scalars(self) -> np.ndarray:
        return np.zeros((1 + self.intercept, len(self.rule.scalars._fields), self.width), self.dtype)


AnyColumns = Columns | DenseColumns


def _with_unpenalised(params: np.ndarray, rule: Rule, intercept: bool) -> np.ndarray:
    """Params with those of the intercept after them: the same with λ = 0."""
    if not intercept:
        return params
    own = params.copy()
    if "lam" in rule.param_names:
        own[rule.param_names.index("lam")] = 0.0
    return np.hstack([params, own])
