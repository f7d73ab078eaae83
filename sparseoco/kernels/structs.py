"""Named arguments of the kernels. numba flattens these tuples at no cost."""

from typing import Any, NamedTuple

import numpy as np

from sparseoco.learners.contract import Clock


class Rows(NamedTuple):
    """Rows as kernels take them: CSR, values in the columns' dtype, all read-only; `indptr` may start anywhere."""

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


class RowLoss(NamedTuple):
    """The loss of a row, for `responses.respond_row`."""

    respond: Any
    """What `responses.response_of` returns."""
    bound: float
    """A configuration has diverged once a |margin| exceeds this."""
    columns: int
    """Adjacent columns that share one problem: all of a configuration for a joint loss or a group, else 1."""
