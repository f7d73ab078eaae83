"""The loop over rows for learners that update all features in every round, and a block of their columns.

The rows are processed configuration by configuration, so that the memory of a column (up to d² numbers) stays in the
CPU cache. Columns are independent, in float64 whatever the dtype of rows and returned weights, so bits depend neither
on other columns nor on how a stream is split into calls.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import types

from sparseoco.core.compile_cache import address_call, compiled_address, compiled_restrict, register_jitable
from sparseoco.core.errors import InputError
from sparseoco.kernels.columns import MARGINS, SUMS, ColumnBlock, Rows, by_row, in_float64
from sparseoco.kernels.responses import respond_row, row_loss
from sparseoco.learners.contract import DenseRule
from sparseoco.learners.domains import Numbers, norm_of, numbers_of
from sparseoco.learners.losses import Loss
from sparseoco.learners.numerics import log, mix, uniform_of

# ----------------------------------------------------------------------------------------------------------------------
# Directions of bandits: unit vectors drawn uniformly, each a pure function of repetition, round and output.


DIRECTIONS = np.uint64(4)  # distinct from the hash streams of row order, folds and sampling
OTHER = np.uint64(0x9E3779B97F4A7C15)


@register_jitable
def direction(repetition, t, output, flat, v):
    """Write the direction of round t into `v`: uniform on the unit sphere or, if `flat`, on its points with Σ v_i = 0.

    Normalised Gaussian numbers, in pairs by Marsaglia's polar method (1964) from the hashes of a counter.
    """
    stream = mix(mix(mix(mix(np.uint64(repetition)) ^ DIRECTIONS) ^ np.uint64(t)) ^ np.uint64(output))
    n = v.shape[0]
    i = 0
    while i < n:
        a = 2.0 * uniform_of(mix(stream)) - 1.0
        b = 2.0 * uniform_of(mix(stream ^ OTHER)) - 1.0
        stream = mix(stream)
        square = a * a + b * b
        if 0.0 < square < 1.0:
            scale = math.sqrt(-2.0 * log(square) / square)
            v[i] = a * scale
            if i + 1 < n:
                v[i + 1] = b * scale
            i += 2
    if flat:
        mean = 0.0
        for i in range(n):
            mean += v[i] / n
        for i in range(n):
            v[i] -= mean
    norm = norm_of(v)
    for i in range(n):
        v[i] /= norm


# ----------------------------------------------------------------------------------------------------------------------
# Projections are called by their address: they are longer than the loop over rows, and shared by several of them.


POINT, MEMORY = types.float64[::1], types.float64[:, ::1]


@address_call
def project_point(typing_context, project, y, memory, numbers):
    """Call what `projection_of` returns."""
    return types.void(types.int64, POINT, MEMORY, POINT) if (y, memory, numbers) == (POINT, MEMORY, POINT) else None


@lru_cache(maxsize=64)
def projection_of(rule: DenseRule) -> Any:
    """The address of ``project(y, memory, numbers)``, with a row of numbers; without compilation the function."""
    own = rule.project

    def project(y, memory, numbers):
        own(y, memory, numbers_of(numbers))

    return compiled_address(project, [f"{own.__module__}.{own.__qualname__}"], (POINT, MEMORY, POINT))


@compiled_restrict
def project_all(project, points, memories, numbers):
    """Project the points of all columns."""
    for c in range(points.shape[0]):
        project_point(project, points[c], memories[c], numbers[c])


class DenseState(NamedTuple):
    """State without the sums: `points` (columns, n) and `memories` (columns, m, n), float64."""

    points: Any
    memories: Any
    numbers: Any
    """(columns, fields of `Numbers`); constant."""


def build_learn(rule):
    """``learn``: learn the rows in turn, after `rounds` rounds; updates state and progress in place.

    `labels` and `loss` are those of `stream.build_learn`, as are `weights`, which multiply the rows' losses and so
    their gradients. `played` and `flat` are those of the rule. Losses and errors of a bandit are those of the first
    point that it plays. `project` is that of `projection_of`, if points leave the set. `margins_out` (rows, columns),
    unless empty, receives the margins of the predictions.
    """
    move, stays = rule.move, rule.stays

    def learn(rows, labels, weights, loss, outputs, rounds, state, progress, project, played, flat, margins_out):
        indptr, indices, values = rows
        points, memories, numbers = state
        diverged, loss_sum, surplus, error_count, _, _ = progress
        n = points.shape[1]
        base = indptr[0]
        g = np.zeros(n)
        z, u, incurred = np.zeros(outputs), np.zeros(outputs), np.zeros(1)
        losses = np.zeros(outputs if played > 0 else 0)
        opposite, losses_there = np.zeros(outputs), np.zeros(outputs)
        unused, unused_error = np.zeros(1), np.zeros(1, np.int64)
        v = np.zeros((outputs, n))
        for q in range(diverged.shape[0]):
            first = q * outputs
            for i in range(labels.shape[0]):
                start, stop = indptr[i] - base, indptr[i + 1] - base
                t = rounds + i + 1
                weight = weights[i]
                incurred[0] = 0.0
                for c in range(outputs):
                    y = points[first + c]
                    z[c] = 0.0
                    if played > 0:
                        own = numbers_of(numbers[first + c])
                        direction(np.int64(own.repetition), t, c, flat, v[c])
                        for k in range(start, stop):
                            z[c] += values[k] * (y[indices[k]] + own.delta * v[c, indices[k]])
                    else:
                        for k in range(start, stop):
                            z[c] += values[k] * y[indices[k]]
                if margins_out.shape[0] > 0:
                    for c in range(outputs):
                        margins_out[i, first + c] = z[c]
                own_diverged, own_errors = diverged[q : q + 1], error_count[q : q + 1]
                respond_row(loss, z, u, losses, outputs, labels[i], t, own_diverged, incurred, own_errors)
                loss_sum[q] += incurred[0]
                surplus[q] += (weight - 1.0) * incurred[0]
                if played == 2:
                    for c in range(outputs):
                        y, own = points[first + c], numbers_of(numbers[first + c])
                        opposite[c] = 0.0
                        for k in range(start, stop):
                            opposite[c] += values[k] * (y[indices[k]] - own.delta * v[c, indices[k]])
                    respond_row(
                        loss, opposite, u, losses_there, outputs, labels[i], t, own_diverged, unused, unused_error
                    )
                if diverged[q] > 0:
                    continue
                for c in range(outputs):
                    own = numbers_of(numbers[first + c])
                    if played > 0:
                        m = n - 1.0 if flat else float(n)
                        estimate = weight * (m / own.delta * losses[c])
                        if played == 2:
                            estimate = weight * (m / (2.0 * own.delta) * (losses[c] - losses_there[c]))
                        for j in range(n):
                            g[j] = estimate * v[c, j]
                    else:
                        g[:] = 0.0
                        for k in range(start, stop):
                            g[indices[k]] = weight * u[c] * values[k]
                    move(points[first + c], memories[first + c], g, t, own)
                    if not stays:
                        project_point(project, points[first + c], memories[first + c], numbers[first + c])

    return learn


@lru_cache(maxsize=64)
def learn_of(rule: DenseRule) -> Callable[..., None]:
    """The compiled loop of a rule; rules that move alike share it."""
    return compiled_restrict(build_learn(rule), f"{rule.move.__module__}.{rule.move.__qualname__}", str(rule.stays))


@dataclass(eq=False, repr=False)
class DenseColumns(ColumnBlock):
    """State of configurations of a dense learner, with `outputs` adjacent columns each.

    Arrays: ``points`` (columns, n_features) and ``memories`` (columns, m, n_features), float64; ``clock`` (1,) the
    rounds done; per configuration ``loss_sum`` and ``surplus`` float64, ``error_count`` and ``diverged`` int64. It has
    the interface of `Columns` for `Learner`, without padding and lazy updates.

    Raises `InputError` for parameters that cannot be combined.
    """

    refresh_interval = 0.0
    slot_names = ("y",)

    rule: DenseRule
    loss: Loss
    response: str
    configurations: Sequence[Mapping[str, Any]]
    outputs: int
    n_features: int
    dtype: np.dtype

    def __post_init__(self) -> None:
        rule, configurations, outputs, n_features = self.rule, self.configurations, self.outputs, self.n_features
        self.columns = self.width = len(configurations) * outputs
        self._learn, self._project = learn_of(rule), 0 if rule.stays else projection_of(rule)
        numbers = [_numbers(rule, entry, n_features) for entry in configurations for _ in range(outputs)]
        self.numbers = np.array(numbers, np.float64)
        self.points = np.full((self.columns, n_features), 1.0 / n_features if rule.flat else 0.0)
        self.memories = np.zeros((self.columns, rule.memory(n_features), n_features))
        for memory, own in zip(self.memories, numbers, strict=True):
            rule.begin(memory, own)
        self.clock = np.zeros(1)
        self.last_update = np.zeros(0)
        self.start_sums(len(configurations), 0)

    @property
    def state(self) -> np.ndarray:
        """(n_features, 1, columns): a view of the points, as `Columns` lays out what it stores."""
        return self.points.T[:, None, :]

    def learn(self, rows: Rows, labels: np.ndarray, weights: np.ndarray | None, margins_out: np.ndarray | None) -> None:
        """Learn the rows in turn; `labels` and `weights` are read-only float64.

        `margins_out` (rows, width), if given, receives the margins of the predictions: for a bandit those of the points
        it played.
        """
        margins = np.empty((0 if margins_out is None else len(labels), self.columns))
        self._learn(
            in_float64(rows),
            by_row(labels),
            np.ones(len(labels)) if weights is None else weights,
            row_loss(self.loss, self.response, "float64"),
            self.outputs,
            int(self.clock[0]),
            DenseState(self.points, self.memories, self.numbers),
            self.progress,
            self._project,
            self.rule.played,
            self.rule.flat,
            margins,
        )
        self.clock += len(labels)
        if margins_out is not None:
            margins_out[...] = margins

    def margins(self, rows: Rows) -> np.ndarray:
        """(rows, columns)."""
        out = np.empty((len(rows.indptr) - 1, self.columns))
        MARGINS(*in_float64(rows), np.ascontiguousarray(self.points.T), out)
        return out.astype(self.dtype)

    def weights(self, first: int, stop: int) -> np.ndarray:
        """(stop − first, columns): the points of a run of features."""
        return np.ascontiguousarray(self.points[:, first:stop].T, self.dtype)

    def arrays(self) -> Iterator[tuple[str, np.ndarray]]:
        """The arrays of a checkpoint, with names."""
        for name in ("points", "memories", "clock", *SUMS):
            yield name, getattr(self, name)

    def start_from(self, weights: np.ndarray, columns: np.ndarray, rows: int, intercepts: np.ndarray | None) -> None:
        """Initialise a new block as if `rows` rounds had led to these `columns` of the weights (n_features, …).

        Points are projected onto their sets; memories are those of round 1."""
        self.points[...] = weights[:, columns].T
        project_all(projection_of(self.rule), self.points, self.memories, self.numbers)
        self.clock[0] = rows

    def pad(self) -> None:
        """There is no padding."""

    def take(self, other: "DenseColumns", configurations: np.ndarray) -> None:
        """Copy these configurations of a block of the same rule into this new block."""
        columns = (configurations[:, None] * self.outputs + np.arange(self.outputs)).ravel()
        self.points[...], self.memories[...] = other.points[columns], other.memories[columns]
        self.clock[...] = other.clock
        self.take_sums(other, configurations)


def _numbers(rule: DenseRule, configuration: Mapping[str, Any], n: int) -> Numbers:
    """`DenseRule.numbers`. Raises `InputError` if they overflow."""
    with suppress(OverflowError, ZeroDivisionError):
        numbers = rule.numbers(configuration, n)
        if np.isfinite(numbers).all():
            return numbers
    given = ", ".join(f"{name}={value}" for name, value in configuration.items())
    raise InputError(f"Step sizes overflow or underflow for {given}.", code="invalid-parameter")
