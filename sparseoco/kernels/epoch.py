"""The loop over sampled examples of an epoch method: draw, predict, suffer, learn.

A round plays one mini-batch Π of consecutive examples, drawn with chance p. With s̄_j the slope that the epoch's full
pass left of example j and s_j the slope at the iterate played, coordinate i of the round sees

    g̃_i = Σ_{j∈Π} s̄_j a_{j,i}/p,    x_i = weight(g̃_i),    ĝ_i = Σ_{j∈Π} s_j a_{j,i}/p

for the features i of Π alone; or, where estimates are corrected by the pass's gradient ∇,

    g̃_i = ∇_i,    ĝ_i = ∇_i + Σ_{j∈Π} (s_j − s̄_j) a_{j,i}/p

for all i, which the features of no example of a round are given when they are next met, or in the end. State lies
``[feature, slot, column]`` in float64. Draws are a function of (seed, epoch, part, round), sums run in the order of the
examples and of their nonzeros, every column's arithmetic is its own: how rounds are cut into calls and which columns
lie side by side changes no bit.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

from sparseoco.core.compile_cache import compiled
from sparseoco.kernels import responses as outputs
from sparseoco.kernels.functions import bind, rule_key
from sparseoco.kernels.order import key
from sparseoco.kernels.stream import build_evaluate
from sparseoco.learners.caos_erm import EpochRule, drifted
from sparseoco.learners.losses import Loss
from sparseoco.learners.numerics import mix, response

SOURCES = ("learners/numerics.py", "learners/losses.py", "learners/penalties.py", "learners", "kernels")
ROUND_STREAM = np.uint64(4)  # a stream of hashes apart from those of `order` and of `learners.caos_ftrl`

Floats = NDArray[np.float64]
Csr = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]


@register_jitable
def share_drawn(seed, epoch, part, t):
    """A number of [0, 1), uniform over its arguments."""
    bits = mix(mix(key(seed, ROUND_STREAM, epoch) ^ np.uint64(part)) ^ np.uint64(t))
    return float(bits >> np.uint64(11)) * 2.0**-53


def draw(cumulative, seed, epoch, part, first, count):
    """The places drawn in rounds first … first + count − 1 of an epoch's part, int64, by inverting the sums.

    ``cumulative`` (n,), the last above 0, are sums of weights ≥ 0 from the first on; a place of weight 0 is never
    drawn.
    """
    n = cumulative.shape[0]
    last = n - 1
    while last > 0 and cumulative[last - 1] == cumulative[n - 1]:
        last -= 1
    places = np.empty(count, np.int64)
    for d in range(count):
        target = share_drawn(seed, epoch, part, first + d) * cumulative[n - 1]
        low, high = 0, last  # the first place whose sum is above the target; the last where rounding left none
        while low < high:
            middle = (low + high) // 2
            if cumulative[middle] > target:
                high = middle
            else:
                low = middle + 1
        places[d] = low
    return places


def row_sizes(indptr, counts):
    """L_j = max_i |a_{j,i}| of every row, 0 for an empty one. Returns float64."""
    base = indptr[0]
    sizes = np.zeros(indptr.shape[0] - 1)
    for j in range(sizes.shape[0]):
        for k in range(indptr[j] - base, indptr[j + 1] - base):
            sizes[j] = max(sizes[j], abs(float(counts[k])))
    return sizes


def build_play(rule, loss):
    """``play``: rounds in turn, from `t` rounds done.

    Rows as CSR from 0 on, mini-batch d being rows ``edges[d]`` … ``edges[d + 1] − 1``; ``foretold`` (rows, columns) are
    the slopes s̄, ``importance`` (rounds,) is 1/p. Column c takes the class ``positive[c]`` for y = +1, or the label
    for y where that is −1. ``place`` (features,) is −1 everywhere, before and after.

    ``drift`` (features, columns) is the pass's gradient where estimates are corrected by it, else it has no rows; then
    ``settled`` (features,) counts the rounds that a feature's slots have been brought up to.

    A column one of whose margins is not finite, or beyond `bound`, has diverged: the round is noted in ``diverged``
    (columns,), and from then on it learns nothing.
    """
    functions, slope, bound = bind(rule), loss.slope, loss.bound
    n_scalars = len(rule.scalars._fields)

    def play(
        indptr,
        indices,
        counts,
        labels,
        edges,
        foretold,
        importance,
        positive,
        t,
        hyper,
        state,
        drift,
        settled,
        place,
        diverged,
    ):
        f_ = functions()
        columns = positive.shape[0]
        corrected = drift.shape[0] > 0
        largest = 0
        for d in range(importance.shape[0]):
            largest = max(largest, indptr[edges[d + 1]] - indptr[edges[d]])
        features = np.empty(largest, np.int64)
        g_tilde, missed, x = np.empty((3, largest, columns))
        z, now = np.empty(columns), np.empty((n_scalars, columns))
        for d in range(importance.shape[0]):
            done = t + d
            one_over_p = importance[d]
            for c in range(columns):
                params = f_.Params(*f_.load_params(hyper, c))
                f_.store_scalars(now, c, f_.round_scalars(done + 1.0, one_over_p, params, f_.maps))
            met = 0
            for j in range(edges[d], edges[d + 1]):
                for k in range(indptr[j], indptr[j + 1]):
                    f = indices[k]
                    i = place[f]
                    if i < 0:
                        i = met
                        place[f] = i
                        features[i] = f
                        met += 1
                        for c in range(columns):
                            g_tilde[i, c] = 0.0
                            missed[i, c] = 0.0
                    a = float(counts[k])
                    for c in range(columns):
                        g_tilde[i, c] += foretold[j, c] * a
            for i in range(met):
                f = features[i]
                slots = state[f]
                if corrected:
                    for c in range(columns):
                        g_tilde[i, c] = drift[f, c]
                        state_c = f_.State(*f_.load_state(slots, c))
                        f_.store_state(slots, c, drifted(state_c, float(done - settled[f]), drift[f, c]))
                    settled[f] = done + 1
                else:
                    for c in range(columns):
                        g_tilde[i, c] *= one_over_p
                for c in range(columns):
                    scalars = f_.Scalars(*f_.load_scalars(now, c))
                    x[i, c] = f_.weight(f_.State(*f_.load_state(slots, c)), g_tilde[i, c], scalars, f_.maps)
            for j in range(edges[d], edges[d + 1]):
                for c in range(columns):
                    z[c] = 0.0
                for k in range(indptr[j], indptr[j + 1]):
                    i = place[indices[k]]
                    a = float(counts[k])
                    for c in range(columns):
                        z[c] += a * x[i, c]
                for c in range(columns):
                    y = response(labels[j], positive[c])
                    if diverged[c] == 0 and not abs(z[c]) <= bound:
                        diverged[c] = done + 1
                    z[c] = slope(z[c], y) - foretold[j, c]
                for k in range(indptr[j], indptr[j + 1]):
                    i = place[indices[k]]
                    a = float(counts[k])
                    for c in range(columns):
                        missed[i, c] += z[c] * a
            for i in range(met):
                place[features[i]] = -1
                slots = state[features[i]]
                for c in range(columns):
                    if diverged[c] == 0:
                        more = one_over_p * missed[i, c]
                        state_c, scalars = f_.State(*f_.load_state(slots, c)), f_.Scalars(*f_.load_scalars(now, c))
                        f_.store_state(slots, c, f_.update(state_c, x[i, c], g_tilde[i, c], more, scalars))

    return play


def build_settle(rule):
    """``settle``: what a corrected estimate adds to the coordinates that no example drew, up to round `t`."""

    functions = bind(rule)

    def settle(t, drift, settled, state):
        f_ = functions()
        for f in range(settled.shape[0]):
            slots = state[f]
            for c in range(drift.shape[1]):
                state_c = f_.State(*f_.load_state(slots, c))
                f_.store_state(slots, c, drifted(state_c, float(t - settled[f]), drift[f, c]))
            settled[f] = t

    return settle


def build_sweep(rule):
    """``sweep``: the weights without a prediction after `t` rounds; the state is only read."""
    functions = bind(rule)
    n_scalars = len(rule.scalars._fields)

    def sweep(t, hyper, state, out):
        f_ = functions()
        now = np.empty((n_scalars, out.shape[1]))
        for c in range(out.shape[1]):
            params = f_.Params(*f_.load_params(hyper, c))
            f_.store_scalars(now, c, f_.round_scalars(t + 1.0, 0.0, params, f_.maps))
        for j in range(out.shape[0]):
            for c in range(out.shape[1]):
                scalars = f_.Scalars(*f_.load_scalars(now, c))
                out[j, c] = f_.weight(f_.State(*f_.load_state(state[j], c)), 0.0, scalars, f_.maps)

    return sweep


class Kernels(NamedTuple):
    """The loops of a method."""

    play: Callable[..., None]
    settle: Callable[..., None]
    sweep: Callable[..., None]


@lru_cache(maxsize=64)
def kernels_for(rule: EpochRule, loss: Loss) -> Kernels:
    """The loops of these functions; equal arguments share them."""
    key = rule_key(rule)
    return Kernels(
        compiled(build_play(rule, loss), [*key, loss.name], SOURCES, restrict=True),
        compiled(build_settle(rule), key, SOURCES, restrict=True),
        compiled(build_sweep(rule), key, SOURCES, restrict=True),
    )


@lru_cache(maxsize=16)
def evaluate_for(loss: Loss, response: str) -> Callable[..., None]:
    """``evaluate`` of `stream.build_evaluate` for float64 margins; `response` is a function of `outputs`."""
    function = build_evaluate(getattr(outputs, response), loss.value, loss.slope)
    return compiled(function, [response, loss.name, "float64"], SOURCES, restrict=True)


DRAW = compiled(draw, [], ("kernels/epoch.py", "kernels/order.py", "learners/numerics.py"))
ROW_SIZES = compiled(row_sizes, [], ("kernels/epoch.py",))


class Sampled:
    """State of configurations with as many adjacent columns each as `positive` has, that play the same rounds.

    `positive` has the class that is y = +1 for each of them, or −1. ``state`` (n_features, slots, columns) float64;
    ``rounds`` of all epochs; ``diverged`` (columns,) int64, the round (from 1) in which a column diverged, or 0.
    """

    def __init__(
        self,
        rule: EpochRule,
        loss: Loss,
        hyper: Sequence[Sequence[float]],
        positive: Sequence[int],
        n_features: int,
    ) -> None:
        self._kernels = kernels_for(rule, loss)
        self._hyper = np.repeat(np.array(hyper, np.float64), len(positive), axis=0).T.copy()
        self._positive = np.tile(np.array(positive, np.int64), len(hyper))
        self._place = np.full(n_features, -1, np.int64)
        self.state = np.zeros((n_features, len(rule.slots), self._positive.size))
        self.rounds = 0
        self.diverged = np.zeros(self._positive.size, np.int64)
        self.begin(None)

    def begin(self, gradient: Floats | None) -> None:
        """Begin a run of rounds; given the pass's gradient (n_features, columns), estimates are corrected by it."""
        n_features, _, columns = self.state.shape
        self._drift = np.empty((0, columns)) if gradient is None else np.ascontiguousarray(gradient)
        self._settled = np.full(0 if gradient is None else n_features, self.rounds, np.int64)

    def play(self, rows: Csr, edges: NDArray[np.int64], foretold: Floats, importance: Floats) -> None:
        """Play rounds in turn; see `build_play`."""
        indptr, indices, counts, labels = rows
        self._kernels.play(
            np.asarray(indptr, np.int64) - indptr[0],
            indices,
            counts,
            labels,
            edges,
            np.ascontiguousarray(foretold),
            importance,
            self._positive,
            self.rounds,
            self._hyper,
            self.state,
            self._drift,
            self._settled,
            self._place,
            self.diverged,
        )
        self.rounds += importance.size

    def settle(self) -> None:
        """End a run of rounds: nothing is owed."""
        self._kernels.settle(self.rounds, self._drift, self._settled, self.state)

    def weights(self) -> Floats:
        """(n_features, columns): the iterate without a prediction, at which the coming epoch's pass is made.

        Of a run of rounds that is not settled it has no meaning.
        """
        out = np.empty((self.state.shape[0], self._positive.size))
        self._kernels.sweep(self.rounds, self._hyper, self.state, out)
        return out
