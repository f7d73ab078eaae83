"""The loop over randomly drawn coordinates, with margins updated while every weight changes in every round.

Data are stored by columns: the nonzeros of feature i are ``rows[indptr[i]:indptr[i + 1]]`` and `counts`, rows
increasing. After a draw at most two segments of its feature (`kernels.coordinate_segments`) end before its next draw,
each at the cost of the feature's nonzeros: the work depends on the drawn features, not on the number of features.

Columns share the draws; each has its own calendar and arithmetic.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from sparseoco.core.compile_cache import compiled, register_jitable
from sparseoco.kernels.coordinate_segments import (
    add_line,
    any_nonzero,
    coordinate_params,
    end_segments,
    fill_basis,
    start_segment,
    unlink,
    value_at,
)
from sparseoco.learners.cao_rcd import ROUNDING, gradient_or_prediction, update, weight
from sparseoco.learners.losses import Loss
from sparseoco.learners.numerics import response


class Sampling(NamedTuple):
    """How rounds draw: `L` (n,) bounds |∇_iF|; block b, drawn with probability ``chances[b]``, has the features
    ``order[b * batch:(b + 1) * batch]``; `order` (n,) int64 is a permutation."""

    L: Any
    chances: Any
    order: Any
    batch: int


@register_jitable
def predict_none(i, c, L, slots):
    return 0.0


@register_jitable
def predict_half(i, c, L, slots):
    return 0.5 * L[i]


@register_jitable
def predict_last(i, c, L, slots):
    return slots[i, 2, c]


@register_jitable
def store_nothing(i, c, slots, g):
    """For predictions that do not depend on the past."""


@register_jitable
def store_gradient(i, c, slots, g):
    slots[i, 2, c] = g


PREDICTIONS = {
    "none": (predict_none, store_nothing),
    "half": (predict_half, store_nothing),
    "last": (predict_last, store_gradient),
}


@register_jitable
def snap_to_kink(z, y):
    """The margin, or the kink yz = 1 of the hinge and the squared hinge if that is within `ROUNDING`.

    With counts of words and weights at 0 or ±R many margins are exactly at the kink, where the slope is 0. Rounding, of
    the margins and of the weights themselves, must not select another one: hinge subgradients differ by |a|.
    """
    return y if abs(1.0 - y * z) <= ROUNDING else z


@register_jitable
def exact_margin(z, y):
    """For losses whose slope vanishes at no kink."""
    return z


@register_jitable
def slope_of_one(weight, slope):
    """The slope of an example of weight 1."""
    return slope


@register_jitable
def weighted_slope(weight, slope):
    """The slope of an example with a sample weight."""
    return weight * slope


def build_play(slope, weigh, snap, predict, store, P):
    """The loop for one loss, one prediction and P basis functions."""

    def play(data, weights, columns, sampling, drawn, origin, first, state):
        """Rounds of a stretch from round `first` on, which draw the blocks `drawn`; round 0 has the number `origin`.

        data : `offline.column_major.ColumnMajor`; weights : (m,) bool or float64, of the examples in F.
        """
        slots, lines, margins = state.slots, state.lines, state.margins
        L, order, batch = sampling.L, sampling.order, sampling.batch
        n, K = lines.shape[0], lines.shape[2]
        x, g, shift = np.zeros((batch, K)), np.zeros((batch, K)), np.zeros((batch, K))
        change, scratch, basis = np.zeros((batch, P, K)), np.zeros(P), np.zeros(P)
        for d in range(drawn.shape[0]):
            k = first + d
            t = origin + float(k)
            fill_basis(k, origin, basis)
            end_segments(k, origin, data, columns, state, scratch)
            p = sampling.chances[drawn[d]]
            start = drawn[d] * batch
            block = order[start : min(start + batch, n)]
            for b, i in enumerate(block):
                shifts = False
                change[b] = 0.0
                for c in range(K):
                    on_line = value_at(P, basis, lines[i], c)
                    g_tilde = predict(i, c, L, slots) / p
                    x[b, c], shift[b, c], g[b, c] = on_line, 0.0, 0.0
                    if g_tilde != 0.0:
                        R, l1, ridge = coordinate_params(i, c, columns)
                        x[b, c] = weight(slots[i, 0, c], slots[i, 1, c], g_tilde, t, R, l1, ridge)
                        shift[b, c] = change[b, 0, c] = x[b, c] - on_line
                        shifts = shifts or shift[b, c] != 0.0
                if shifts:
                    add_line(P, i, data, change[b], margins)
            for b, i in enumerate(block):
                for e in range(data.indptr[i], data.indptr[i + 1]):
                    row = data.rows[e]
                    weight_of_row = weights[row]
                    if weight_of_row:
                        a = float(data.counts[e])
                        z = margins[row]
                        for c in range(K):
                            y = response(data.labels[row], columns.positive[c])
                            g[b, c] += a * weigh(weight_of_row, slope(snap(value_at(P, basis, z, c), y), y))
            for b, i in enumerate(block):
                moves = False
                for c in range(K):
                    g_tilde = predict(i, c, L, slots)
                    g[b, c] = gradient_or_prediction(g[b, c], g_tilde, slots[i, 1, c], L[i])
                    R, l1, ridge = coordinate_params(i, c, columns)
                    slots[i, 0, c], slots[i, 1, c] = update(
                        slots[i, 0, c], slots[i, 1, c], x[b, c], g[b, c] / p, g_tilde / p, t, R, l1, ridge
                    )
                    store(i, c, slots, g[b, c])
                    unlink(i, c, state.links, state.head)
                    start_segment(i, c, k + 1, origin, columns, state, change[b, :, c])
                    change[b, 0, c] -= shift[b, c]
                    moves = moves or any_nonzero(change[b, :, c])
                if moves:
                    add_line(P, i, data, change[b], margins)

    return play


@lru_cache(maxsize=32)
def play_kernel(loss: Loss, predict_gradient: str, terms: int, *, weighted: bool = False) -> Callable[..., None]:
    """The compiled loop of a loss, a prediction and `terms` basis functions; `weighted` for examples with weights in
    float64."""
    snap = snap_to_kink if loss.slope_vanishes and not loss.regression else exact_margin
    weigh = weighted_slope if weighted else slope_of_one
    function = build_play(loss.slope, weigh, snap, *PREDICTIONS[predict_gradient], terms)
    key = [loss.name, predict_gradient, str(terms), str(weighted)]
    return compiled(function, key, restrict=True)
