"""FOBOS and CL-FOBOS with groups of features: the loop over rows, and a block of their columns.

    ψ(w) = Σ_G ‖w_G‖₂,  w_G the weights of the features of group G for all classes

Source: Togari and Yamashita (2016), §1, (2) and Algorithms 2–4 for blocks of variables. Without groups a block is the
classes of one feature (`sparseoco.learners.fobos`).

The prox of a‖w_G‖₂ multiplies the weights of a group by max(0, 1 − a/‖w_G‖). A weight is stored as v with w = s·v,
where s is the scale of its group, so that a round costs the nonzeros of its row, whatever the size of the groups. With

- fobos and l-fobos, the groups of a row get the prox that is due before the row is predicted. The maps of rounds
  without the group add up to one (Property 1 there), and that of the round itself is due later;
- cl-fobos, the groups of a row get the prox after the gradient step, with the sum of the steps since their last one,
  and no other group does. It is postponed if every slope of a configuration is exactly 0 (hinge).

Symbols, per group and column: `scale` s; `square` Σ v²; `peak`, its largest value since it was last summed; `due`, the
time on the clock up to which the prox was applied. The features with a nonzero v are a list, from `first` on by `next`:
a group that becomes 0 is emptied along it, and a feature is in it once for every time that a row put it there. A sum
that has lost most of its value to subtraction is summed again, and a scale that has become small is moved into v, both
along the list.

With average = iterates, x̄_T = x_{T+1} − m_T/T for m_T = Σ_{t ≤ T} t(x_{t+1} − x_t). While its v stays, a coordinate
adds v·Σ t(s_{t+1} − s_t), whose sum `drift` its group has; `mark` is the drift that `moment` m has already.

State is float64 whatever the dtype of rows and returned weights. Columns of different configurations are independent,
and those of one are summed in order, so bits depend neither on other configurations nor on how a stream is split.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sparseoco.core.compile_cache import compiled_restrict, register_jitable
from sparseoco.kernels.columns import MARGINS, PASS_ROUNDS, SUMS, ColumnBlock, Rows, by_row, in_float64
from sparseoco.kernels.responses import respond_row, row_loss
from sparseoco.kernels.stream import weigh
from sparseoco.learners.contract import Clock, GroupRule, advance_clock
from sparseoco.learners.losses import Loss
from sparseoco.learners.penalties import Penalty, group_factor

END, UNLISTED = -2, -1
"""In `next`: the last feature of a list, and one in no list."""
SMALLEST, SMALLEST_AVERAGED = 2.0**-300, 2.0**-20
"""Scales that are moved into v: far from underflow and, with the mean of iterates, before drift loses digits."""
CANCELLED = 1e-6
"""Share of its peak at which a sum of squares is summed again."""


class GroupState(NamedTuple):
    """The state of a block; `v` to `mark` (features, columns), the last two empty unless iterates are averaged, and the
    others (groups, columns)."""

    v: Any
    next: Any
    """int64."""
    moment: Any
    mark: Any
    scale: Any
    square: Any
    peak: Any
    due: Any
    drift: Any
    first: Any
    """int64."""


@register_jitable
def rescale(state, g, c):
    """Move the scale of a group into its v, and sum the squares again."""
    s, total, drift = state.scale[g, c], 0.0, state.drift[g, c]
    averaged = state.moment.shape[0] > 0
    j = state.first[g, c]
    while j != END:
        v = state.v[j, c]
        if averaged:
            state.moment[j, c] += v * (drift - state.mark[j, c])
            state.mark[j, c] = 0.0
        state.v[j, c] = s * v
        total += (s * v) * (s * v)
        j = state.next[j, c]
    state.scale[g, c], state.drift[g, c] = 1.0, 0.0
    state.square[g, c] = state.peak[g, c] = total


@register_jitable
def empty(state, g, c, t):
    """Set the weights of a group to 0, in round t."""
    s, drift = state.scale[g, c], state.drift[g, c]
    averaged = state.moment.shape[0] > 0
    j = state.first[g, c]
    while j != END:
        if averaged:
            state.moment[j, c] += state.v[j, c] * (drift - state.mark[j, c] - t * s)
        following = state.next[j, c]
        state.v[j, c] = 0.0
        state.next[j, c] = UNLISTED
        j = following
    state.first[g, c] = END
    state.scale[g, c], state.drift[g, c] = 1.0, 0.0
    state.square[g, c] = state.peak[g, c] = 0.0


@register_jitable
def shrink(state, g, first, outputs, amount, t):
    """The prox of amount·‖w_G‖₂ for the columns of a configuration, `first` and the next, in round t."""
    total = 0.0
    for c in range(first, first + outputs):
        total += (state.scale[g, c] * state.scale[g, c]) * state.square[g, c]
    factor = group_factor(total, amount)
    averaged = state.moment.shape[0] > 0
    for c in range(first, first + outputs):
        if factor == 0.0:
            empty(state, g, c, t)
            continue
        s = state.scale[g, c] * factor
        if averaged:
            state.drift[g, c] += t * (s - state.scale[g, c])
        state.scale[g, c] = s
        if s < (SMALLEST_AVERAGED if averaged else SMALLEST):
            rescale(state, g, c)


@register_jitable
def add_to_weight(state, g, j, c, change, t):
    """Add `change` to a weight, in round t."""
    averaged = state.moment.shape[0] > 0
    old, step = state.v[j, c], change / state.scale[g, c]
    if averaged:
        state.moment[j, c] += old * (state.drift[g, c] - state.mark[j, c]) + t * change
        state.mark[j, c] = state.drift[g, c]
    state.v[j, c] = old + step
    if state.next[j, c] == UNLISTED:
        state.next[j, c] = state.first[g, c]
        state.first[g, c] = j
    square = state.square[g, c] + step * (old + state.v[j, c])
    state.square[g, c] = square
    state.peak[g, c] = max(state.peak[g, c], square)
    if square < CANCELLED * state.peak[g, c]:
        rescale(state, g, c)


def learn(rows, labels, weights, loss, outputs, groups, lazy, postpones, params, clock, state, progress, margins_out):
    """Learn the rows in turn; updates state and progress in place and returns the clock.

    `groups` (features,) is the group of each feature; the last group has no penalty, for the intercept. `lazy` and
    `postpones` are of the `GroupRule`. `params` (2, columns): eta0 and λ. The rest is as in `stream.build_learn`.
    """
    indptr, indices, values = rows
    columns, unpenalised = state.v.shape[1], state.scale.shape[0] - 1
    z, u, unused = np.zeros(columns), np.zeros(columns), np.zeros(0)
    row_losses = np.zeros(progress.loss_sum.shape[0])
    base = indptr[0]
    for i in range(labels.shape[0]):
        start, stop = indptr[i] - base, indptr[i + 1] - base
        t = clock.rounds + 1.0
        for k in range(start, stop if not lazy else start):
            g = groups[indices[k]]
            for first in range(0, columns if g < unpenalised else 0, outputs):
                amount = params[0, first] * params[1, first] * (clock.truncated_sum - state.due[g, first])
                state.due[g, first] = clock.truncated_sum
                if amount > 0.0:
                    shrink(state, g, first, outputs, amount, t)
        for c in range(columns):
            z[c] = 0.0
        for k in range(start, stop):
            j, x = indices[k], values[k]
            g = groups[j]
            for c in range(columns):
                z[c] += x * (state.scale[g, c] * state.v[j, c])
        if margins_out.shape[0] > 0:
            for c in range(columns):
                margins_out[i, c] = z[c]
        for q in range(row_losses.shape[0]):
            row_losses[q] = 0.0
        respond_row(loss, z, u, unused, outputs, labels[i], int(t), progress.diverged, row_losses, progress.error_count)
        weigh(weights[i], True, row_losses, u, progress.loss_sum, progress.surplus)
        learned = stop if weights[i] > 0.0 else start
        for k in range(start, learned):
            j, x = indices[k], values[k]
            for c in range(columns):
                if u[c] != 0.0:
                    add_to_weight(state, groups[j], j, c, -params[0, c] * clock.step * (u[c] * x), t)
        now = clock.step_sum + clock.step
        for k in range(start, learned if lazy else start):
            g = groups[indices[k]]
            for first in range(0, columns if g < unpenalised else 0, outputs):
                active = not postpones
                for c in range(first, first + outputs):
                    active = active or u[c] != 0.0
                amount = params[0, first] * params[1, first] * (now - state.due[g, first])
                if active:
                    state.due[g, first] = now
                    if amount > 0.0:
                        shrink(state, g, first, outputs, amount, t)
        clock = advance_clock(clock)
    return clock


def link(groups, state):
    """Make the lists and sums of given v, whose scales are 1."""
    for j in range(state.v.shape[0]):
        g = groups[j]
        for c in range(state.v.shape[1]):
            if state.v[j, c] != 0.0:
                state.next[j, c] = state.first[g, c]
                state.first[g, c] = j
                state.square[g, c] += state.v[j, c] * state.v[j, c]
                state.peak[g, c] = state.square[g, c]


LEARN = compiled_restrict(learn)
LINK = compiled_restrict(link)


@dataclass(eq=False, repr=False)
class GroupColumns(ColumnBlock):
    """State of configurations with a penalty of groups of features, `outputs` adjacent columns each.

    Arrays: those of `GroupState`; ``clock`` float64, the fields of `Clock`; per configuration ``loss_sum`` and
    ``surplus`` float64, ``error_count`` and ``diverged`` int64. It has the interface of `Columns` for `Learner`,
    without padding. An intercept is one more feature, in a group without a penalty.
    """

    refresh_interval = 0.0
    slot_names = ("v",)

    rule: GroupRule
    loss: Loss
    response: str
    params: np.ndarray
    """(2, columns): eta0 and λ."""
    outputs: int
    groups: np.ndarray
    """(n_features,) int64: 0 to the number of groups − 1."""
    dtype: np.dtype
    intercept: bool

    def __post_init__(self) -> None:
        self.n_features, self.columns = len(self.groups), self.params.shape[1]
        self.width = self.columns
        count = int(self.groups.max(initial=-1)) + 2  # the last one is without a penalty
        stored = self.n_features + self.intercept
        self._groups = np.append(self.groups, [count - 1] * self.intercept).astype(np.int64)
        averaged = stored if self.rule.averaged else 0
        sizes = [stored, stored, averaged, averaged, *[count] * 6]
        kinds = [np.int64 if name in ("next", "first") else np.float64 for name in GroupState._fields]
        arrays = [np.zeros((size, self.columns), kind) for size, kind in zip(sizes, kinds, strict=True)]
        self._state = GroupState(*arrays)
        self._state.next[:], self._state.first[:], self._state.scale[:] = UNLISTED, END, 1.0
        self.clock = np.array(self.rule.start, np.float64)
        self.last_update = np.zeros(0)
        self._current: np.ndarray | None = None
        self.start_sums(self.columns // self.outputs, 0)

    @property
    def state(self) -> np.ndarray:
        """(features, 1, columns): a view of v, as `Columns` lays out what it stores."""
        return self._state.v[:, None]

    def learn(self, rows: Rows, labels: np.ndarray, weights: np.ndarray | None, margins_out: np.ndarray | None) -> None:
        """Learn the rows in turn; `labels` and `weights` are read-only float64.

        `margins_out` (rows, columns), if given, receives the margins with which each row was predicted.
        """
        margins = np.empty((0 if margins_out is None else len(labels), self.columns))
        self._current = None
        self.clock[:] = LEARN(
            in_float64(rows),
            by_row(labels),
            np.ones(len(labels)) if weights is None else weights,
            row_loss(self.loss, self.response, "float64"),
            self.outputs,
            self._groups,
            self.rule.lazy,
            self.rule.postpones,
            self.params,
            Clock(*self.clock.tolist()),
            self._state,
            self.progress,
            margins,
        )
        if margins_out is not None:
            margins_out[...] = margins

    def margins(self, rows: Rows) -> np.ndarray:
        """(rows, columns)."""
        out = np.empty((len(rows.indptr) - 1, self.columns))
        MARGINS(*in_float64(rows), self._weights(), out)
        return out.astype(self.dtype)

    def weights(self, first: int, stop: int) -> np.ndarray:
        """(stop − first, columns): the weights of a run of features."""
        return self._weights()[first:stop].astype(self.dtype)

    def intercepts(self) -> np.ndarray:
        """(columns,): the weights of the intercept, 0 without one."""
        if not self.intercept:
            return super().intercepts()
        return np.asarray(self._weights()[self.n_features].astype(self.dtype))

    def _weights(self) -> np.ndarray:
        """(features, columns) float64, the intercept last; kept until the state changes."""
        if self._current is None:
            own, groups, rounds = self._state, self._groups, self.rounds
            self._current = self._scales()[groups] * own.v
            if self.rule.averaged and rounds > 0:
                self._current -= (own.moment + own.v * (own.drift[groups] - own.mark)) / rounds
        return self._current

    def _scales(self) -> np.ndarray:
        """(groups, columns): the scales, with the prox that is due (see `shrink`)."""
        own = self._state
        if self.rule.lazy:
            return own.scale
        squares = ((own.scale * own.scale) * own.square).reshape(len(own.scale), -1, self.outputs)
        total = np.zeros(squares.shape[:2])
        for output in range(self.outputs):  # in the order of the loop
            total += squares[:, :, output]
        eta0, lam = self.params[:, :: self.outputs]
        amounts = eta0 * lam * (Clock(*self.clock.tolist()).truncated_sum - own.due[:, :: self.outputs])
        amounts[-1] = 0.0
        norms = np.sqrt(total)
        factors = 1.0 - np.divide(amounts, norms, out=np.ones_like(norms), where=norms > amounts)
        return own.scale * np.repeat(factors, self.outputs, axis=1)

    def measure(self, penalty: Penalty, ratio: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(ψ without λ, number of nonzero weights), each (columns,), ψ of a configuration in its first column."""
        count = self.nonzeros(np.zeros(self.n_features, np.int64), 1)[0]
        squares = np.zeros((len(self._state.scale), self.columns))
        np.add.at(squares, self.groups, self._weights()[: self.n_features] ** 2)
        values = np.zeros(self.columns)
        values[:: self.outputs] = np.sqrt(squares.reshape(len(squares), -1, self.outputs).sum(axis=2)).sum(axis=0)
        return values, count

    def arrays(self) -> Iterator[tuple[str, np.ndarray]]:
        """The complete state by name."""
        yield from self._state._asdict().items()
        for name in ("clock", *SUMS):
            yield name, getattr(self, name)

    def start_from(self, weights: np.ndarray, columns: np.ndarray, rows: int, intercepts: np.ndarray | None) -> None:
        """Turn this new block into one after `rows` rounds whose weights are these columns of `weights`."""
        clock = PASS_ROUNDS(rows, Clock(*self.clock.tolist()), self.params)
        self.clock[:] = clock
        self._current = None
        self._state.v[: self.n_features] = weights[:, columns]
        if self.intercept and intercepts is not None:
            self._state.v[self.n_features] = intercepts
        self._state.due[:] = clock.step_sum if self.rule.lazy else clock.truncated_sum
        LINK(self._groups, self._state)

    def pad(self) -> None:
        """Check the lists of a state that was written into `arrays`. Raises `ValueError` if one is broken."""
        self._current = None
        links = np.sort(np.vstack([self._state.next, self._state.first]), axis=0)
        twice = (links[1:] == links[:-1]) & (links[1:] >= 0)
        if twice.any() or links.max(initial=END) >= len(self._state.v) or links.min(initial=END) < END:
            raise ValueError("the lists of groups are broken")

    def take(self, other: "GroupColumns", configurations: np.ndarray) -> None:
        """Copy these configurations of a block of the same rule into this new block."""
        columns = (configurations[:, None] * self.outputs + np.arange(self.outputs)).ravel()
        for own, value in zip(self._state, other._state, strict=True):
            own[...] = value[:, columns]
        self.clock[...] = other.clock
        self.take_sums(other, configurations)
        self._current = None
