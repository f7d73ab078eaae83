"""The loop over randomly drawn coordinates, with margins updated while every weight changes in every round.

Data are stored by columns: the nonzeros of feature i are ``rows[indptr[i]:indptr[i + 1]]`` and `counts`, rows
increasing. After a draw at most two segments of its feature end before its next draw,
each at the cost of the feature's nonzeros: the work depends on the drawn features, not on the number of features.

Columns share the draws; each has its own calendar and arithmetic.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from sparseoco.core.compile_cache import compiled_restrict, register_jitable
from sparseoco.learners.cao_rcd import ROUNDING, fill_line, fill_series, gradient_or_prediction, segment, update, weight
from sparseoco.learners.losses import Loss
from sparseoco.learners.numerics import any_nonzero, response

# ----------------------------------------------------------------------------------------------------------------------
# Weights between two draws of their coordinate: segments, their ends in a calendar, and the margins of all examples.
#
# Between two draws a weight is a function of the round in at most three segments (`learners.cao_rcd.segment`), each a
# sum of the same basis functions φ_p: with l1 (1, k), with a ridge Chebyshev polynomials. So the margin of example j
#     in
# round k is ``Σ_p φ_p(k)·margins[j, p]`` until a segment of a feature of its row ends. Rounds are counted from the
# start of a stretch: an epoch, or with a ridge its rounds t_0 … 2t_0, in which the series converge.
#
# A calendar lists the segments that end in each round, as one doubly linked list per round and column, so that a drawn
# coordinate is unlinked in constant time.


LINE = 2
"""Basis functions with l1: 1 and k."""
TERMS = 20
"""Basis functions with a ridge: the first term left out is 1e-15 of the largest."""


class ColumnParams(NamedTuple):
    """(K,) arrays: the class with y = +1 (−1: y is the label), R, αρ and α(1 − ρ) of every column."""

    positive: Any
    R: Any
    l1: Any
    ridge: Any
    scale: Any
    """(n,) float64: R_i/R of every feature."""
    penalised: int
    """How many features α penalises: all but an intercept, which is the last one."""


class CoordinateState(NamedTuple):
    """Arrays for n features, m examples, K columns and P basis functions, `LINE` or `TERMS`.

    slots    (n, 2 or 3, K) float64: Z, Δ and, with predict_gradient = last, the last gradient
    lines    (n, P, K) float64: the segment included in the margins
    links    (n, 3, K) integers: the calendar round a coordinate is listed in, or −1, and its neighbours in the list
    head     (rounds, K) integers: the first coordinate of each list, or −1
    margins  (m, P, K) float64
    """

    slots: Any
    lines: Any
    links: Any
    head: Any
    margins: Any


@register_jitable
def unlink(i, c, links, head):
    """Remove a coordinate from the calendar."""
    k = links[i, 0, c]
    if k >= 0:
        before, after = links[i, 1, c], links[i, 2, c]
        if before >= 0:
            links[before, 2, c] = after
        else:
            head[k, c] = after
        if after >= 0:
            links[after, 1, c] = before
        links[i, 0, c] = -1


@register_jitable
def coordinate_params(i, c, columns):
    """R_i, αρ and α(1 − ρ) of coordinate i in column c."""
    R = columns.R[c] * columns.scale[i]
    return (R, columns.l1[c], columns.ridge[c]) if i < columns.penalised else (R, 0.0, 0.0)


@register_jitable
def fill_basis(k, origin, basis):
    """φ_p(k), (P,), in round k of the stretch that starts with round `origin`."""
    basis[0] = 1.0
    if basis.shape[0] == LINE:
        basis[1] = k
        return
    u = 2.0 * k / origin - 1.0
    basis[1] = u
    for p in range(2, basis.shape[0]):
        basis[p] = 2.0 * u * basis[p - 1] - basis[p - 2]


@register_jitable
def value_at(P, basis, coefficients, c):
    """Σ_p φ_p·coefficients[p, c] of P basis functions, a constant, so that the loop is unrolled."""
    total = coefficients[0, c]
    for p in range(1, P):
        total += basis[p] * coefficients[p, c]
    return total


@register_jitable
def start_segment(i, c, k, origin, columns, state, change):
    """Start a coordinate's segment in round k, and list its end in the calendar.

    `change` (P,) becomes the change of its line. The coordinate must not be in the calendar.
    """
    slots, lines, links, head = state.slots, state.lines, state.links, state.head
    Z, Delta, t = slots[i, 0, c], slots[i, 1, c], origin + k
    R, l1, ridge = coordinate_params(i, c, columns)
    free, length = segment(Z, Delta, t, R, l1, ridge)
    if not free:
        change[:] = 0.0
        change[0] = weight(Z, Delta, 0.0, t, R, l1, ridge)
    elif change.shape[0] == LINE:
        fill_line(Z, Delta, t, R, l1, change)
        change[0] -= change[1] * k
    else:
        fill_series(Z, Delta, origin, R, l1, ridge, change)
    for p in range(change.shape[0]):
        line = change[p]
        change[p] = line - lines[i, p, c]
        lines[i, p, c] = line
    if k + length < head.shape[0]:
        due = k + int(max(length, 1.0))
        after = head[due, c]
        links[i, 0, c], links[i, 1, c], links[i, 2, c] = due, -1, after
        if after >= 0:
            links[after, 1, c] = i
        head[due, c] = i


@register_jitable
def end_segments(k, origin, data, columns, state, change):
    """Move every coordinate whose segment ends in round k to its next segment; `change` (P,) is scratch."""
    margins = state.margins
    for c in range(columns.R.shape[0]):
        i = state.head[k, c]
        state.head[k, c] = -1
        while i >= 0:
            following = state.links[i, 2, c]
            state.links[i, 0, c] = -1
            start_segment(i, c, k, origin, columns, state, change)
            for e in range(data.indptr[i], data.indptr[i + 1]):
                a = float(data.counts[e])
                for p in range(change.shape[0]):
                    margins[data.rows[e], p, c] += a * change[p]
            i = following


@register_jitable
def add_line(P, i, data, change, margins):
    """Add feature i times the lines `change` (P, columns) to the margins; P is a constant."""
    for e in range(data.indptr[i], data.indptr[i + 1]):
        a = float(data.counts[e])
        z = margins[data.rows[e]]
        for p in range(P):
            for c in range(change.shape[1]):
                z[p, c] += a * change[p, c]


def init_margins(first, stop, origin, data, columns, state):
    """Lines, calendar and margins of features first..stop for a stretch whose first round is `origin`.

    Before feature 0, lines and margins must be 0 and the calendar empty (−1); after the last feature the margins are
    those of the weights that play round `origin`.
    """
    change = np.empty(state.lines.shape[1])
    for i in range(first, stop):
        moves = False
        for c in range(columns.R.shape[0]):
            if state.slots[i, 0, c] != 0.0:
                start_segment(i, c, 0, origin, columns, state, change)
                moves = moves or any_nonzero(state.lines[i, :, c])
        if moves:
            add_line(state.lines.shape[1], i, data, state.lines[i], state.margins)


def column_weights(t, columns, slots, out):
    """x_t without a prediction, (features, columns)."""
    for i in range(out.shape[0]):
        for c in range(out.shape[1]):
            R, l1, ridge = coordinate_params(i, c, columns)
            out[i, c] = weight(slots[i, 0, c], slots[i, 1, c], 0.0, t, R, l1, ridge)


INIT_MARGINS = compiled_restrict(init_margins)
WEIGHTS = compiled_restrict(column_weights)


class Sampling(NamedTuple):
    """How rounds draw: `L` (n,) bounds |∇_iF|; block b, drawn with probability ``chances[b]``, has the features
    ``order[b * batch:(b + 1) * batch]``; `order` (n,) int64 is a permutation."""

    L: Any
    chances: Any
    order: Any
    batch: int


PREDICTIONS = ("none", "half", "last")
"""Predictions of the next gradient of a coordinate: 0, half its bound, or the last one."""
HALF, LAST = PREDICTIONS.index("half"), PREDICTIONS.index("last")


@register_jitable
def predict(prediction, i, c, L, slots):
    """The predicted gradient, by its number in `PREDICTIONS`."""
    if prediction == LAST:
        return slots[i, 2, c]
    return 0.5 * L[i] if prediction == HALF else 0.0


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


def build_play(slope, snap, P):
    """The loop for one loss and P basis functions."""

    def play(data, weights, columns, sampling, prediction, drawn, origin, first, state):
        """Rounds of a stretch from round `first` on, which draw the blocks `drawn`; round 0 has the number `origin`.

        data : `offline.passes.ColumnMajor`; weights : (m,) float64, 0 for examples that are not in F; prediction : a
        position in `PREDICTIONS`.
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
                    g_tilde = predict(prediction, i, c, L, slots) / p
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
                    if weights[row] > 0.0:
                        a = float(data.counts[e])
                        z = margins[row]
                        for c in range(K):
                            y = response(data.labels[row], columns.positive[c])
                            g[b, c] += a * (weights[row] * slope(snap(value_at(P, basis, z, c), y), y))
            for b, i in enumerate(block):
                moves: Any = False
                for c in range(K):
                    g_tilde = predict(prediction, i, c, L, slots)
                    g[b, c] = gradient_or_prediction(g[b, c], g_tilde, slots[i, 1, c], L[i])
                    R, l1, ridge = coordinate_params(i, c, columns)
                    slots[i, 0, c], slots[i, 1, c] = update(
                        slots[i, 0, c], slots[i, 1, c], x[b, c], g[b, c] / p, g_tilde / p, t, R, l1, ridge
                    )
                    if prediction == LAST:
                        slots[i, 2, c] = g[b, c]
                    unlink(i, c, state.links, state.head)
                    start_segment(i, c, k + 1, origin, columns, state, change[b, :, c])
                    change[b, 0, c] -= shift[b, c]
                    moves = moves or any_nonzero(change[b, :, c])
                if moves:
                    add_line(P, i, data, change[b], margins)

    return play


@lru_cache(maxsize=32)
def play_kernel(loss: Loss, terms: int) -> Callable[..., None]:
    """The compiled loop of a loss and `terms` basis functions."""
    snap = snap_to_kink if loss.slope_vanishes and not loss.regression else exact_margin
    return compiled_restrict(build_play(loss.slope, snap, terms), loss.name, str(terms))
