"""The loop of an epoch method over sampled examples: draw, predict, incur the loss, learn.

A round plays one mini-batch Π of examples, drawn with probability p. With s̄_j the slope of example j at the epoch's
full pass (its anchor) and s_j the slope at the iterate x, both times the example's weight, coordinate i of the round
sees

    g̃_i = Σ_{j∈Π} s̄_j a_{j,i}/p,    x_i = weight(g̃_i),    ĝ_i = Σ_{j∈Π} s_j a_{j,i}/p

for the features i of Π only; or the same ĝ with the g̃ of the round before, for the features of both rounds' Π, where
the sum for the next round is a third slot of the state; or, with the pass's gradient ∇ as control variate,

    g̃_i = ∇_i,    ĝ_i = ∇_i + Σ_{j∈Π} (s_j − s̄_j) a_{j,i}/p

for all i: features in no example of a round are updated lazily, when they are next read or at the end of the run. If
slopes are refreshed, s̄_j becomes s_j after the round, and ∇ grows by what Σ_j s̄_j a_j does.

State is stored ``[feature, slot, column]`` in float64. Draws are a function of (seed, epoch, part, round), sums run in
the order of the examples and their nonzeros, and columns are independent: bits depend neither on how rounds are split
into calls nor on which columns are trained together.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.compile_cache import compiled_restrict, register_jitable
from sparseoco.kernels.columns import RowBatch
from sparseoco.kernels.order import key
from sparseoco.kernels.stream import part_of
from sparseoco.learners.cao_ftrl import Scalars
from sparseoco.learners.caos_erm import after_control_variate, update, weight
from sparseoco.learners.losses import Loss
from sparseoco.learners.numerics import any_nonzero, mix, response
from sparseoco.learners.penalties import Penalty

ROUND_STREAM = np.uint64(4)  # distinct from the hash streams of `order` and `learners.cao_ftrl`

Floats = NDArray[np.float64]


def draw(cumulative: Floats, seed: int, epoch: int, part: int, first: int, count: int) -> NDArray[np.int64]:
    """Draw the mini-batches of rounds first … first + count − 1 of an epoch's part, int64, by inverse transform.

    ``cumulative`` (n,) are cumulative sums of weights ≥ 0, the last one positive; a weight of 0 is never drawn.
    """
    with np.errstate(over="ignore"):
        stream = mix(key(seed, ROUND_STREAM, epoch) ^ np.uint64(part))
        bits = mix(stream ^ np.arange(first, first + count, dtype=np.uint64))
    targets = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53 * cumulative[-1]
    last = np.searchsorted(cumulative, cumulative[-1])  # for a target that rounding makes the sum of all
    return np.minimum(np.searchsorted(cumulative, targets, side="right"), last)


class MiniBatches(NamedTuple):
    """Rounds to play: rows as CSR with indptr[0] = 0; mini-batch d has rows ``edges[d]`` … ``edges[d + 1] − 1``."""

    indptr: Any
    indices: Any
    counts: Any
    labels: Any
    edges: Any
    anchor_slopes: Any
    """(examples, columns): the slopes s̄."""
    places: Any
    """(rows,): where those of each row are."""
    importance: Any
    """(rounds,): 1/p."""


class EpochParams(NamedTuple):
    """(columns,) arrays: the class with y = +1 (−1: y is the label), R and 1/R of every column; and (1 or 2, columns)
    arrays of αρ and α(1 − ρ)R, whose second row is that of the intercept, 0, if it is the last feature."""

    positive: Any
    R: Any
    R_inverse: Any
    l1: Any
    ridge: Any


class EpochState(NamedTuple):
    """State that rounds update.

    slots            (features, 2 or 3, columns) float64: Z, Δ and, if rounds use the prediction of the round before,
                     the g̃ of the next round
    control_variate  (features, columns): the pass's gradient if it corrects estimates, else without rows
    last_update      (features,): with a control variate, the number of rounds included in the slots
    position         (features,): scratch, −1 before and after
    diverged         (columns,): the round (from 1) in which a column diverged and stopped learning, or 0
    pending          (any,) int64: the features whose g̃ of the next round is not 0, in any order
    refresh          0, or, if rounds refresh slopes, the factor of the change of Σ_j s̄_j a_j in ∇: the number of parts
    """

    slots: Any
    control_variate: Any
    last_update: Any
    position: Any
    diverged: Any
    pending: Any
    refresh: Any


@register_jitable(forceinline=True)
def column_scalars(params, part, c, t):
    """The scalars of round t in column c; `part` is 1 for the intercept."""
    return Scalars(params.R[c], params.R_inverse[c], params.l1[part, c], params.ridge[part, c], t, 1.0)


@register_jitable
def list_features(batches, d, position, features, active):
    """Add the features of mini-batch d to the first `active` of `features`; returns how many there are now."""
    for k in range(batches.indptr[batches.edges[d]], batches.indptr[batches.edges[d + 1]]):
        f = batches.indices[k]
        if position[f] < 0:
            position[f], features[active] = active, f
            active += 1
    return active


@register_jitable
def add_gradient(batches, j, slopes, position, sums):
    """Add s_c·a_{j,i} to the sums of the features i of example j, which are listed."""
    for k in range(batches.indptr[j], batches.indptr[j + 1]):
        i = position[batches.indices[k]]
        a = float(batches.counts[k])
        for c in range(slopes.shape[0]):
            sums[i, c] += slopes[c] * a


@register_jitable
def catch_up(f, t, state):
    """Apply the control variate to feature f, up to round `t`."""
    Z, gradient = state.slots[f, 0], state.control_variate[f]
    late = float(t - state.last_update[f])
    for c in range(gradient.shape[0]):
        Z[c] = after_control_variate(Z[c], late, gradient[c])
    state.last_update[f] = t


def build_play(slope, bound):
    """``play``: rounds in turn, after `t` rounds. A column diverges if a margin is not finite or exceeds `bound`.

    `weights` (rows,) multiply the slopes s_j. ``play`` returns `EpochState.pending` after its rounds.
    """

    def play(batches, weights, params, state, t):
        indptr, indices, counts, labels, edges, anchor_slopes, places, importance = batches
        slots, position, diverged, refresh = state.slots, state.position, state.diverged, state.refresh
        columns, parts = params.positive.shape[0], params.l1.shape[0]
        corrected, previous = state.control_variate.shape[0] > 0, slots.shape[1] > 2
        largest, count = 0, state.pending.shape[0]
        for d in range(importance.shape[0]):
            largest = max(largest, indptr[edges[d + 1]] - indptr[edges[d]])
        features = np.empty(largest + max(largest, count), np.int64)  # those that a round plays or has a g̃ of
        for i in range(count):
            features[i] = state.pending[i]
        x, g_tilde, deviation = np.zeros((3, features.shape[0], columns))  # zeros between rounds, but x
        z = np.empty(columns)
        for d in range(importance.shape[0]):
            done, one_over_p = t + d, importance[d]
            for i in range(count):
                position[features[i]] = i
            active = list_features(batches, d, position, features, count)
            for j in range(edges[d], edges[d + 1]):
                add_gradient(batches, j, anchor_slopes[places[j]], position, g_tilde)
            for i in range(active):
                f = features[i]
                if corrected:
                    catch_up(f, done, state)
                    state.last_update[f] = done + 1
                for c in range(columns):
                    g_tilde[i, c] = state.control_variate[f, c] if corrected else g_tilde[i, c] * one_over_p
                    if previous:
                        g_tilde[i, c], slots[f, 2, c] = slots[f, 2, c], g_tilde[i, c]
                    scalars = column_scalars(params, part_of(f, slots.shape[0], parts), c, done + 1.0)
                    x[i, c] = weight(slots[f, 0, c], slots[f, 1, c], g_tilde[i, c], scalars)
            for j in range(edges[d], edges[d + 1]):
                z[:] = 0.0
                for k in range(indptr[j], indptr[j + 1]):
                    i = position[indices[k]]
                    a = float(counts[k])
                    for c in range(columns):
                        z[c] += a * x[i, c]
                for c in range(columns):
                    y = response(labels[j], params.positive[c])
                    if diverged[c] == 0 and not abs(z[c]) <= bound:
                        diverged[c] = done + 1
                    own, last = weights[j] * slope(z[c], y), anchor_slopes[places[j], c]
                    z[c] = own if previous else own - last
                    if refresh > 0.0:
                        anchor_slopes[places[j], c] = own
                add_gradient(batches, j, z, position, deviation)
            count = 0
            for i in range(active):
                f = features[i]
                position[f] = -1
                for c in range(columns):
                    error = one_over_p * deviation[i, c]
                    idle = previous and error == 0.0 and g_tilde[i, c] == 0.0  # listed for other columns, perhaps
                    if previous:
                        error -= g_tilde[i, c]
                    if diverged[c] == 0 and not idle:
                        scalars = column_scalars(params, part_of(f, slots.shape[0], parts), c, done + 1.0)
                        Z, Delta = slots[f, 0, c], slots[f, 1, c]
                        slots[f, 0, c], slots[f, 1, c] = update(Z, Delta, x[i, c], g_tilde[i, c], error, scalars)
                    if corrected and refresh > 0.0:
                        state.control_variate[f, c] += refresh * deviation[i, c]
                    g_tilde[i, c] = deviation[i, c] = 0.0
                if previous and any_nonzero(slots[f, 2]):
                    features[count] = f
                    count += 1
        return features[:count]

    return play


def flush(t, state):
    """Apply the control variate to every feature, up to round `t`."""
    for f in range(state.last_update.shape[0]):
        catch_up(f, t, state)


def column_weights(t, params, slots, out):
    """The weights after `t` rounds, with the prediction that the state has, or none: (features, columns)."""
    penalised = out.shape[0] - params.l1.shape[0] + 1
    for j in range(out.shape[0]):
        part = 0 if j < penalised else 1
        for c in range(out.shape[1]):
            g_tilde = slots[j, 2, c] if slots.shape[1] > 2 else 0.0
            scalars = column_scalars(params, part, c, t + 1.0)
            out[j, c] = weight(slots[j, 0, c], slots[j, 1, c], g_tilde, scalars)


FLUSH = compiled_restrict(flush)
WEIGHTS = compiled_restrict(column_weights)


@lru_cache(maxsize=16)
def play_kernel(loss: Loss) -> Callable[..., Any]:
    """The compiled loop of a loss."""
    return compiled_restrict(build_play(loss.slope, loss.bound), loss.name)


def column_parameters(penalty: Penalty, configurations: Sequence[Mapping[str, Any]], count: int) -> tuple[Floats, ...]:
    """(R, αρ, α(1 − ρ)) of every column; each configuration has `count` of them."""
    R, alpha, ratio = (
        np.repeat([float(c.get(name, 0.0)) for c in configurations], count) for name in ("R", "alpha", "l1_ratio")
    )
    l1, ridge = np.zeros((2, alpha.size))
    if not penalty.bounded:  # a box is that of all configurations
        l1[:], ridge[:] = penalty.maps.split(alpha, SimpleNamespace(l1_ratio=ratio))
    return R, l1, ridge


@dataclass(eq=False, repr=False)
class EpochColumns:
    """State of configurations that play the same rounds, with len(positive) adjacent columns each.

    ``state`` (n_features, slots, columns) float64; ``rounds`` of all epochs; ``diverged`` (columns,) int64, the round
    (from 1) in which a column diverged, or 0; ``refreshes``, whether rounds write to the slopes they are given.

    Parameters
    ----------
    configurations : sequence of dict
        R, alpha, predict_gradient (the same in all, if there is one) and, for the elastic net, l1_ratio of each.
    positive : sequence of int
        The class with y = +1 of each column of a configuration; −1: y is the label.
    n_features : int
        With an `intercept`, which has no penalty, it is the last of them.
    """

    loss: Loss
    penalty: Penalty
    configurations: Sequence[Mapping[str, Any]]
    positive: Sequence[int]
    n_features: int
    intercept: bool

    def __post_init__(self) -> None:
        configurations, positive, n_features = self.configurations, self.positive, self.n_features
        self._play = play_kernel(self.loss)
        R, l1, ridge = column_parameters(self.penalty, configurations, len(positive))
        classes = np.tile(np.array(positive, np.int64), len(configurations))
        penalties = [np.stack([own, np.zeros_like(own)][: 1 + self.intercept]) for own in (l1, ridge * R)]
        self._params = EpochParams(classes, R, 1.0 / R, *penalties)
        self._position = np.full(n_features, -1, np.int64)
        prediction = configurations[0].get("predict_gradient")
        self._previous, self.refreshes = (prediction == own for own in ("previous", "last"))
        self.state = np.zeros((n_features, 3 if self._previous else 2, classes.size))
        self.rounds = 0
        self.diverged = np.zeros(classes.size, np.int64)
        self.start_run(None)

    def start_run(self, gradient: Floats | None, parts: int = 1) -> None:
        """Start a run of rounds, with the pass's gradient (n_features, columns), if given, as control variate; of as
        many parts."""
        n_features, _, columns = self.state.shape
        self._refresh = float(parts) if self.refreshes else 0.0
        self._control_variate = np.empty((0, columns)) if gradient is None else np.ascontiguousarray(gradient)
        if self.refreshes:
            self._control_variate = self._control_variate.copy()
        self._last_update = np.full(0 if gradient is None else n_features, self.rounds, np.int64)
        self._pending = np.flatnonzero(self.state[:, 2].any(axis=1)) if self._previous else np.empty(0, np.int64)

    @property
    def _state(self) -> EpochState:
        lazy = self._control_variate, self._last_update
        return EpochState(self.state, *lazy, self._position, self.diverged, self._pending, self._refresh)

    def play(
        self,
        rows: RowBatch,
        edges: NDArray[np.int64],
        anchor_slopes: Floats,
        importance: Floats,
        places: NDArray[np.int64] | None = None,
    ) -> None:
        """Play rounds in turn; see `MiniBatches`. Without places, slopes are those of the rows."""
        indptr, indices, counts, labels, weights = rows
        pointers, slopes = np.asarray(indptr, np.int64) - indptr[0], np.ascontiguousarray(anchor_slopes)
        at = np.arange(len(labels)) if places is None else places
        batches = MiniBatches(pointers, indices, counts, labels, edges, slopes, at, importance)
        own = np.ones(len(labels)) if weights is None else np.asarray(weights, np.float64)
        self._pending = self._play(batches, own, self._params, self._state, self.rounds)
        self.rounds += importance.size

    def flush(self) -> None:
        """End a run of rounds: apply all lazy updates."""
        FLUSH(self.rounds, self._state)

    def weights(self) -> Floats:
        """(n_features, columns): the next iterate, the point of the next epoch's pass; without a prediction unless the
        state has one.

        Not valid within a run with a control variate before `flush`.
        """
        out = np.empty(self.state[:, 0].shape)
        WEIGHTS(self.rounds, self._params, self.state, out)
        return out
