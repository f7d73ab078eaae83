"""Named arguments of kernels, loops over rows for given weights, the kernels of a rule, and blocks of columns."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.compile_cache import compiled_restrict
from sparseoco.kernels import stream
from sparseoco.kernels.responses import row_loss
from sparseoco.kernels.stream import rule_key
from sparseoco.learners.contract import Clock, Rule
from sparseoco.learners.losses import Loss, hinge_value, smoothed_hinge_slope, smoothed_hinge_value
from sparseoco.learners.numerics import cube_roots, response
from sparseoco.learners.penalties import Penalty, penalty_values

Array = NDArray[Any]

# ----------------------------------------------------------------------------------------------------------------------
# Named arguments of the kernels. numba flattens these tuples at no cost.


class Rows(NamedTuple):
    """Rows as kernels take them: CSR, values in the columns' dtype; `indptr` may start anywhere."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray


class RowBatch(NamedTuple):
    """Some rows in CSR format, in order."""

    indptr: np.ndarray
    """(rows + 1,) int32 or int64; its first entry need not be 0."""
    indices: np.ndarray
    """Only those of these rows, as are the values; unique within a row."""
    values: np.ndarray
    labels: np.ndarray
    """(rows,); (rows, classes) of bool if rows have any number of classes."""
    weights: np.ndarray | None = None
    """(rows,) sample weights, float32 or float64; None if all are 1."""


class State(NamedTuple):
    """The state of a block of columns, without its sums."""

    slots: np.ndarray
    """(n_features, slots, columns): the state of every coordinate, in the order of `Rule.slots`; the intercept, if any,
    is the last feature."""
    last_update: np.ndarray
    """(n_features,) float64: `Rule.clock_time` at a feature's last update; empty for rules without a clock time."""
    params: np.ndarray
    """(params, columns) float64, in the order of `Rule.param_names`; with an intercept, (params, 2·columns)."""
    clock: Clock


class Progress(NamedTuple):
    """Sums over the rounds, updated in place."""

    diverged: np.ndarray
    """(configurations,) int64: the round (from 1) in which it diverged, or 0."""
    loss_sum: np.ndarray
    """(configurations,) float64."""
    surplus: np.ndarray
    """(configurations,) float64: Σ (weight − 1)·loss, the difference from the sum of the weighted losses."""
    error_count: np.ndarray
    """(configurations,) int64."""
    l1_norm: np.ndarray
    """(columns,) float64: the current Σ_j |w_j| if it is tracked; else empty."""
    l1_norm_sum: np.ndarray
    """(columns,) float64: its sum over the rounds, at the time of each prediction."""


class Scratch(NamedTuple):
    """Work arrays of a kernel, in the columns' dtype; their contents are not used after the call."""

    scalars: np.ndarray
    """(1, scalars, columns), or (2, scalars, columns) with an intercept."""
    margins: np.ndarray
    """(columns,), as are the others."""
    slopes: np.ndarray
    losses: np.ndarray
    """Empty for rules that do not need the loss."""
    row_losses: np.ndarray
    """(configurations,) float64: the losses of a row."""
    sq_slopes: np.ndarray
    """Σ_k (dℓ/dz_k)² of the column's problem; empty for rules that do not need the loss."""
    state_sums: np.ndarray
    """Empty for rules without a `row_term`."""


# ----------------------------------------------------------------------------------------------------------------------
# Norms of weights.


def measure_absolute(weights, absolute):
    """`measure` for `absolute` only, with the same bits, for learners that sum ‖w‖₁ every K rounds."""
    for feature in range(weights.shape[0]):
        row = weights[feature]
        for column in range(absolute.shape[0]):
            absolute[column] += abs(float(row[column]))


def measure(weights, absolute, squares, norms):
    """Add to float64 `absolute` Σ_j |w_j| and to `squares` Σ_j w_j², (columns,), and to `norms` Σ_j ‖w_j‖₂, (groups,).

    A group has columns // groups adjacent columns. Each column's sum runs over the features of `weights` (features,
    columns) in order, independently of other columns.
    """
    columns, groups = absolute.shape[0], norms.shape[0]
    outputs = columns // groups
    for feature in range(weights.shape[0]):
        row = weights[feature]
        for column in range(columns):
            w = float(row[column])
            absolute[column] += abs(w)
            squares[column] += w * w
        for group in range(groups):
            square = 0.0
            for column in range(group * outputs, (group + 1) * outputs):
                w = float(row[column])
                square += w * w
            norms[group] += math.sqrt(square)


# ----------------------------------------------------------------------------------------------------------------------
# The loops of a full-gradient pass: margins of rows under dense weights, losses and slopes, gradients.
#
# Weights and gradients are stored ``[feature, column]`` in float64, so one access to a feature serves every column. A
# linear model's gradient is Σ_j s_j·a_j with slopes s_j = ℓ'(z_j): a pass stores one number per example and column.
# Sums over a row run in the order of its nonzeros and sums over rows in row order; columns are independent. So bits
# depend neither on how rows are split into calls nor on which columns are computed together.
#
# Rows are CSR: ``indptr`` (rows + 1,), whose first entry need not be 0, and the ``indices`` and ``counts`` of these
# rows only.


def margins(indptr, indices, counts, weights, out):
    """z_{i,c} = Σ_j x_{i,j}·w_{j,c} into ``out`` (rows, columns), for ``weights`` (features, columns) of its dtype."""
    base = indptr[0]
    width = out.shape[1]
    for i in range(out.shape[0]):
        z = out[i]
        for c in range(width):
            z[c] = 0.0
        for k in range(indptr[i] - base, indptr[i + 1] - base):
            w = weights[indices[k]]
            x = out.dtype.type(counts[k])
            for c in range(width):
                z[c] += x * w[c]


def accumulate(indptr, indices, counts, slopes, gradient):
    """Add Σ_i s_{i,c}·x_{i,j} to ``gradient`` (features, columns), row by row, for ``slopes`` (rows, columns)."""
    base = indptr[0]
    width = slopes.shape[1]
    for i in range(slopes.shape[0]):
        s = slopes[i]
        for k in range(indptr[i] - base, indptr[i + 1] - base):
            g = gradient[indices[k]]
            x = float(counts[k])
            for c in range(width):
                g[c] += x * s[c]


def build_respond(value, slope):
    """``respond``: losses and slopes, times the `weights` of the rows, from margins; column c has ``positive[c]``."""

    def respond(z, labels, weights, positive, slopes, loss_sum):
        for i in range(labels.shape[0]):
            for c in range(positive.shape[0]):
                y = response(labels[i], positive[c])
                loss_sum[c] += weights[i] * value(z[i, c], y)
                slopes[i, c] = weights[i] * slope(z[i, c], y)

    return respond


def respond_smoothed(z, labels, weights, positive, width, slopes, loss_sum, exact_sum):
    """As ``respond`` for the hinge smoothed over ``width`` (columns,); `exact_sum` sums the hinge itself."""
    for i in range(labels.shape[0]):
        for c in range(positive.shape[0]):
            y = response(labels[i], positive[c])
            loss_sum[c] += weights[i] * smoothed_hinge_value(z[i, c], y, width[c])
            exact_sum[c] += weights[i] * hinge_value(z[i, c], y)
            slopes[i, c] = weights[i] * smoothed_hinge_slope(z[i, c], y, width[c])


def build_conjugate(conjugate):
    """``conjugate_sums``: add Σ_i ω_i·f*(κ_c·s_{i,c}/ω_i) to ``out`` (columns,); rows of weight 0 add nothing."""

    def conjugate_sums(slopes, weights, scale, out):
        for i in range(slopes.shape[0]):
            if weights[i] > 0.0:
                for c in range(slopes.shape[1]):
                    out[c] += weights[i] * conjugate(scale[c] * (slopes[i, c] / weights[i]))

    return conjugate_sums


MARGINS = compiled_restrict(margins)
ACCUMULATE = compiled_restrict(accumulate)
RESPOND_SMOOTHED = compiled_restrict(respond_smoothed)


class LossKernels(NamedTuple):
    """The kernels of a loss of one margin."""

    respond: Callable[..., None]
    conjugate_sums: Callable[..., None]


@lru_cache(maxsize=16)
def loss_kernels(loss: Loss) -> LossKernels:
    """The compiled kernels of a loss."""
    return LossKernels(
        compiled_restrict(build_respond(loss.value, loss.slope), loss.name),
        compiled_restrict(build_conjugate(loss.conjugate), loss.name),
    )


# ----------------------------------------------------------------------------------------------------------------------
# Loops over data stored by columns (`offline.passes.ColumnMajor`): what cao-rcd draws by.


def _entries(first: int, stop: int, data: Any) -> tuple[Array, Array, Array]:
    """The features, examples and absolute counts of the nonzeros of features first..stop, in order."""
    places = slice(data.indptr[first], data.indptr[stop])
    features = np.repeat(np.arange(first, stop), np.diff(data.indptr[first : stop + 1]))
    return features, data.rows[places], np.abs(data.counts[places].astype(np.float64))


def max_abs_scales(first: int, stop: int, data: Any, weights: Array, scale: Array) -> None:
    """1/max_j |a_{j,i}| of features first..stop over the examples of weight > 0 into `scale` (features,); 1 if all are
    0."""
    features, examples, sizes = _entries(first, stop, data)
    largest = np.zeros(stop - first)
    np.maximum.at(largest, features - first, np.where(weights[examples] > 0.0, sizes, 0.0))
    scale[first:stop] = 1.0 / np.where(largest > 0.0, largest, 1.0)


def row_norms(first: int, stop: int, data: Any, scale: Array, norms: Array) -> None:
    """Add the terms of features first..stop in Σ_i scale_i·|a_{j,i}| to `norms` (examples,)."""
    features, examples, sizes = _entries(first, stop, data)
    np.add.at(norms, examples, scale[features] * sizes)


def coordinate_bounds(first: int, stop: int, data: Any, bounds: Array, L: Array) -> None:
    """L_i = Σ_j |a_{j,i}|·ℓ_j of features first..stop into `L` (features,), from `bounds` ℓ (examples,)."""
    features, examples, sizes = _entries(first, stop, data)
    L[first:stop] = 0.0
    np.add.at(L, features, sizes * bounds[examples])


def block_weights(L: Array, scale: Array, batch: int) -> Array:
    """(S_Π L_Π)^{2/3} of blocks up to a factor: S_Π = Σ_{i∈Π} scale_i, L_Π = √(Σ_{i∈Π} L_i²).

    `L` and `scale` (n,) are in the order of the blocks, `batch` features each.
    """
    blocks = np.arange(L.size) // batch
    sides, squares = np.bincount(blocks, scale), np.bincount(blocks, L * L)
    return np.asarray(cube_roots(sides * np.sqrt(squares)) ** 2)


# ----------------------------------------------------------------------------------------------------------------------
# Compiled kernels: the loops for a learner and a dtype.


class Kernels(NamedTuple):
    """The kernels of a block of columns that are not compiled for their number."""

    materialize: Callable[..., None]
    pass_rounds: Callable[..., Any]
    init_state: Callable[..., None]


PASS_ROUNDS = compiled_restrict(stream.pass_rounds)


@lru_cache(maxsize=256)
def kernels_for(rule: Rule, dtype: str, *, grouped: bool) -> Kernels:
    """The kernels of a rule for columns of `dtype`; equal arguments share them."""
    reading = stream.without_learning(rule)
    key = (*rule_key(reading), dtype, str(grouped))
    return Kernels(
        compiled_restrict(stream.build_materialize(reading, grouped=grouped), *key),
        compiled_restrict(stream.build_pass_rounds(rule), *rule_key(rule)) if rule.per_column_sums else PASS_ROUNDS,
        compiled_restrict(stream.build_init_state(reading, grouped=grouped), *key),
    )


@lru_cache(maxsize=256)
def learn_kernel(rule: Rule, dtype: str, *, grouped: bool, fixed: int, tracked: bool) -> Callable[..., Any]:
    """The loop over rows for a rule and columns of `dtype`; `fixed` is their number, or 0 for any."""
    learn = stream.build_learn(rule, tracked=tracked, grouped=grouped, fixed=fixed)
    return compiled_restrict(learn, *rule_key(rule), dtype, str((grouped, fixed, tracked)))


EVALUATE = compiled_restrict(stream.evaluate)
MEASURE = compiled_restrict(measure)
MEASURE_ABSOLUTE = compiled_restrict(measure_absolute)


# ----------------------------------------------------------------------------------------------------------------------
# What all blocks of columns share: evaluation of rows, and weights by runs of features in bounded memory.


def by_row(labels: np.ndarray) -> np.ndarray:
    """Labels as kernels take them: (rows, 1), or (rows, classes) for sets of classes."""
    return labels if labels.ndim == 2 else labels[:, None]


def in_float64(rows: Rows) -> Rows:
    """Rows with float64 values."""
    return rows._replace(values=rows.values.astype(np.float64, copy=False))


def add_nonzeros(weights: np.ndarray, bins: np.ndarray, out: np.ndarray) -> None:
    """Add to int64 ``out[bin, column]`` the nonzero entries of ``weights[feature, column]``; NaN counts as nonzero."""
    for number in range(len(out)):
        out[number] += np.count_nonzero(weights[bins == number], axis=0)


SUMS = ("loss_sum", "surplus", "error_count", "diverged")
"""The sums of a block over rounds, with a number for each configuration."""
RUN_BYTES = 1 << 20
"""Weights materialised at a time, small enough for the CPU cache."""


class ColumnBlock(ABC):
    """A block of `columns` columns of weights, `outputs` adjacent ones per configuration, padded to `width`."""

    n_features: int
    columns: int
    outputs: int
    width: int
    dtype: np.dtype
    loss: Loss
    response: str
    clock: np.ndarray
    """Its first number is that of the rounds done."""

    @property
    def rounds(self) -> int:
        """Rounds on the clock."""
        return int(self.clock[0])

    def start_sums(self, configurations: int, tracked: int) -> None:
        """Set the sums over rounds to 0, with the L1 norms of `tracked` columns."""
        self.diverged, self.error_count = np.zeros((2, configurations), np.int64)
        self.loss_sum, self.surplus = np.zeros((2, configurations))
        self.l1_norm, self.l1_norm_sum = np.zeros((2, tracked))

    def take_sums(self, other: "ColumnBlock", configurations: np.ndarray) -> None:
        """Copy the sums of these configurations of another block."""
        for name in SUMS:
            getattr(self, name)[...] = getattr(other, name)[configurations]

    @property
    def progress(self) -> Progress:
        """The sums over rounds, as kernels take them."""
        sums = self.loss_sum, self.surplus, self.error_count
        return Progress(self.diverged, *sums, self.l1_norm, self.l1_norm_sum)

    def intercepts(self) -> np.ndarray:
        """(columns,): the weights of the intercept, 0 without one."""
        return np.zeros(self.columns, self.dtype)

    def thresholds(self) -> np.ndarray | None:
        """(n_features, columns): h of every coordinate (`Rule.threshold`); None where it is 1."""
        return None

    @abstractmethod
    def margins(self, rows: Rows) -> np.ndarray:
        """(rows, width), including padding."""

    @abstractmethod
    def weights(self, first: int, stop: int) -> np.ndarray:
        """(stop − first, columns): the weights of a run of features."""

    def evaluate(self, rows: Rows, labels: np.ndarray, loss_sum: np.ndarray, error_count: np.ndarray) -> np.ndarray:
        """Add each row's loss and error to the sums, in row order; the loss becomes NaN if a margin is not finite.

        Returns the margins (rows, width), padding included.
        """
        failed = np.zeros(len(loss_sum), np.int64)
        z, loss = self.margins(rows), row_loss(self.loss, self.response, self.dtype.name)
        EVALUATE(z, by_row(labels), loss, self.outputs, failed, loss_sum, error_count)
        loss_sum[failed > 0] = np.nan
        return z

    def weight_runs(self) -> Iterator[tuple[int, int, np.ndarray]]:
        """Runs of features in order, with their weights (stop − first, columns), in bounded memory."""
        for first, stop in self.feature_runs():
            yield first, stop, np.ascontiguousarray(self.weights(first, stop))

    def nonzeros(self, bins: np.ndarray, n_bins: int) -> np.ndarray:
        """(n_bins, columns) int64: the number of nonzero weights by the bin of their feature."""
        out = np.zeros((n_bins, self.columns), np.int64)
        for first, stop, weights in self.weight_runs():
            add_nonzeros(weights, bins[first:stop], out)
        return out

    def features_used(self) -> np.ndarray:
        """(configurations,) int64: the number of features with a nonzero weight for any output."""
        out = np.zeros(self.columns // self.outputs, np.int64)
        for first, stop, weights in self.weight_runs():
            out += (weights != 0).reshape(stop - first, -1, self.outputs).any(axis=2).sum(axis=0)
        return out

    def measure(self, penalty: Penalty, ratio: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(ψ without λ, number of nonzero weights), each (columns,); `ratio` is the l1_ratio of each column."""
        count = self.nonzeros(np.zeros(self.n_features, np.int64), 1)[0]
        # Σ_j |w_j| and Σ_j w_j² per column, Σ_j ‖w_j‖₂ per configuration.
        sizes = np.zeros(self.columns), np.zeros(self.columns), np.zeros(self.columns // self.outputs)
        for _, _, weights in self.weight_runs():
            MEASURE(weights, *sizes)
        return penalty_values(penalty, *sizes, ratio), count

    def feature_runs(self) -> Iterator[tuple[int, int]]:
        """Runs of features, in order, whose weights take at most `RUN_BYTES`."""
        length = max(1, RUN_BYTES // (self.width * self.dtype.itemsize))
        for first in range(0, self.n_features, length):
            yield first, min(first + length, self.n_features)


# ----------------------------------------------------------------------------------------------------------------------
# Rows with an intercept: one more feature, with value 1 in every row, after the row's own.


def append_feature(indptr, indices, values, feature):
    """CSR arrays of these rows with `feature` as the last of each, value 1; `indptr` may start anywhere."""
    rows = indptr.size - 1
    out_indptr = np.empty(rows + 1, np.int64)
    out_indices = np.empty(indices.size + rows, indices.dtype)
    out_values = np.empty(values.size + rows, values.dtype)
    out_indptr[0] = to = 0
    for i in range(rows):
        for k in range(indptr[i] - indptr[0], indptr[i + 1] - indptr[0]):
            out_indices[to] = indices[k]
            out_values[to] = values[k]
            to += 1
        out_indices[to] = feature
        out_values[to] = 1
        to += 1
        out_indptr[i + 1] = to
    return out_indptr, out_indices, out_values


_APPEND = compiled_restrict(append_feature)


def with_intercept(indptr: Array, indices: Array, values: Array, feature: int) -> Rows:
    """Rows with the intercept, the feature of this number."""
    if feature > np.iinfo(indices.dtype).max:
        indices = indices.astype(np.int64)
    return Rows(*_APPEND(indptr, indices, values, feature))
