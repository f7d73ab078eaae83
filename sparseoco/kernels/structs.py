"""The arguments of the kernels, by name. numba flattens these tuples: they cost nothing in compiled code."""

from typing import Any, NamedTuple

import numpy as np

from sparseoco.learners.contract import Clock


class Rows(NamedTuple):
    """Rows as kernels take them: CSR, values in the columns' dtype, all read-only; `indptr` may start anywhere."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray


class State(NamedTuple):
    """What a block of columns has learned, but for its sums."""

    slots: np.ndarray
    """(n_features, slots, columns): the numbers of every coordinate, in the order of `Rule.slots`."""
    last_update: np.ndarray
    """(n_features,) float64: `Rule.clock_time` at a feature's last update; empty for rules without."""
    params: np.ndarray
    """(params, columns) float64, in the order of `Rule.param_names`."""
    clock: Clock


class Progress(NamedTuple):
    """Sums over the rounds, updated in place."""

    diverged: np.ndarray
    """(configurations,) int64: the round (from 1) in which one diverged, or 0."""
    loss_sum: np.ndarray
    """(configurations,) float64."""
    error_count: np.ndarray
    """(configurations,) int64."""
    l1_norm: np.ndarray
    """(columns,) float64: Σ_j |w_j| now, where it is tracked; else empty."""
    l1_norm_sum: np.ndarray
    """(columns,) float64: its sum over the rounds, each as it was when the round was predicted."""


class Scratch(NamedTuple):
    """Memory that a kernel works in; nothing in it outlives the call. The columns' dtype."""

    scalars: np.ndarray
    """(scalars, columns)."""
    margins: np.ndarray
    """(columns,), as are the others."""
    slopes: np.ndarray
    losses: Any
    """None for rules that do not ask for the loss."""
    sq_slopes: np.ndarray
    """Σ_k (dℓ/dz_k)² of the column's problem; empty for rules that do not ask for the loss."""
    state_sums: np.ndarray
    """Empty for rules without a `row_term`."""
