"""The loop over randomly drawn coordinates, with margins updated while every weight changes in every round.

Data are stored by columns: the nonzeros of feature i are ``rows[indptr[i]:indptr[i + 1]]`` and `counts`, rows
increasing. Between two draws a weight is piecewise linear in the round (`learners.cao_rcd.segment`), so the margin of
example j in round k of an epoch is ``margins[j, 0] + k·margins[j, 1]`` until a segment of a feature of its row ends. A
calendar lists the segments that end in each round, as one doubly linked list per round and column, so that a drawn
coordinate is unlinked in constant time. After a draw at most two segments of its feature end before its next draw, each
at the cost of the feature's nonzeros: the work depends on the drawn features, not on the number of features.

Columns share the draws; each has its own calendar and arithmetic.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from sparseoco.core.compile_cache import compiled
from sparseoco.learners.cao_rcd import segment, update, weight
from sparseoco.learners.losses import Loss
from sparseoco.learners.numerics import cube_root, response

SOURCES = ("learners/numerics.py", "learners/losses.py", "learners/penalties.py", "learners", "kernels/coordinate.py")

MARGIN_ERROR = 2.0**-34
"""Bound on the rounding error of incrementally updated margins; measured: 2e-11 after a million rounds."""


class ColumnParams(NamedTuple):
    """(K,) arrays: the class with y = +1 (−1: y is the label), and the parameters R and α of every column."""

    positive: Any
    R: Any
    alpha: Any
    penalised: int
    """How many features α penalises: all but an intercept, which is the last one."""


class Sampling(NamedTuple):
    """How rounds draw: `L` (n,) bounds |∇_iF|; block b, drawn with probability ``chances[b]``, has the features
    ``order[b * batch:(b + 1) * batch]``; `order` (n,) int64 is a permutation."""

    L: Any
    chances: Any
    order: Any
    batch: int


class CoordinateState(NamedTuple):
    """Arrays for n features, m examples and K columns.

    slots    (n, 2 or 3, K) float64: Z, Δ and, with predict = last, the last gradient
    lines    (n, 2, K) float64: the segment included in the margins: value in round 0 of the epoch, and slope
    links    (n, 3, K) integers: the calendar round a coordinate is listed in, or −1, and its neighbours in the list
    head     (rounds, K) integers: the first coordinate of each list, or −1
    margins  (m, 2, K) float64: value in round 0, and slope
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
def penalty_weight(i, c, columns):
    """α of coordinate i in column c."""
    return columns.alpha[c] if i < columns.penalised else 0.0


@register_jitable
def start_segment(i, c, k, origin, columns, state):
    """Set a coordinate's line from round k on, and list its end in the calendar.

    Returns the change of the line: in round 0, and of its slope. The coordinate must not be in the calendar.
    """
    slots, lines, links, head = state.slots, state.lines, state.links, state.head
    alpha = penalty_weight(i, c, columns)
    value, slope, length = segment(slots[i, 0, c], slots[i, 1, c], origin + k, columns.R[c], alpha)
    at_0 = value - slope * k
    change, turn = at_0 - lines[i, 0, c], slope - lines[i, 1, c]
    lines[i, 0, c], lines[i, 1, c] = at_0, slope
    if k + length < head.shape[0]:
        due = k + int(max(length, 1.0))
        after = head[due, c]
        links[i, 0, c], links[i, 1, c], links[i, 2, c] = due, -1, after
        if after >= 0:
            links[after, 1, c] = i
        head[due, c] = i
    return change, turn


@register_jitable
def end_segments(k, origin, data, columns, state):
    """Move every coordinate whose segment ends in round k to its next segment."""
    margins = state.margins
    for c in range(columns.R.shape[0]):
        i = state.head[k, c]
        state.head[k, c] = -1
        while i >= 0:
            following = state.links[i, 2, c]
            state.links[i, 0, c] = -1
            change, turn = start_segment(i, c, k, origin, columns, state)
            for e in range(data.indptr[i], data.indptr[i + 1]):
                a = float(data.counts[e])
                margins[data.rows[e], 0, c] += a * change
                margins[data.rows[e], 1, c] += a * turn
            i = following


@register_jitable
def add_line(i, data, at_0, turn, margins):
    """Add feature i times the lines at_0 + k·turn, (columns,) each, to the margins."""
    for e in range(data.indptr[i], data.indptr[i + 1]):
        a = float(data.counts[e])
        z = margins[data.rows[e]]
        for c in range(at_0.shape[0]):
            z[0, c] += a * at_0[c]
            z[1, c] += a * turn[c]


def init_margins(first, stop, origin, data, columns, state):
    """Lines, calendar and margins of features first..stop for an epoch whose first round is `origin`.

    Before feature 0, lines and margins must be 0 and the calendar empty (−1); after the last feature ``margins[:, 0]``
    are those of the weights that play round `origin`.
    """
    for i in range(first, stop):
        moves = False
        for c in range(columns.R.shape[0]):
            if state.slots[i, 0, c] != 0.0:
                start_segment(i, c, 0, origin, columns, state)
                moves = moves or state.lines[i, 0, c] != 0.0
        if moves:
            add_line(i, data, state.lines[i, 0], state.lines[i, 1], state.margins)


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
    """The margin, or the kink yz = 1 of the hinge and the squared hinge if that is within `MARGIN_ERROR`.

    With counts of words and weights at 0 or ±R many margins are exactly at the kink, where the slope is 0. Rounding, of
    the margins and of the weights themselves, must not select another one: hinge subgradients differ by |a|, and any
    first gradient other than 0, however small, moves a weight to ±R.
    """
    return y if abs(1.0 - y * z) <= MARGIN_ERROR else z


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


def build_play(slope, weigh, snap, predict, store):
    """The loop for one loss and one prediction."""

    def play(data, weights, columns, sampling, drawn, origin, first, state):
        """Rounds of an epoch from round `first` on, which draw the blocks `drawn`; round 0 has the number `origin`.

        data : `offline.coordinates.ColumnMajor`; weights : (m,) bool or float64, of the examples in F.
        """
        slots, lines, margins = state.slots, state.lines, state.margins
        R, L, order, batch = columns.R, sampling.L, sampling.order, sampling.batch
        n, K = slots.shape[0], R.shape[0]
        x, shift, turn, g = np.zeros((batch, K)), np.zeros((batch, K)), np.zeros((batch, K)), np.zeros((batch, K))
        no_turn = np.zeros(K)
        for d in range(drawn.shape[0]):
            k = first + d
            t = origin + float(k)
            end_segments(k, origin, data, columns, state)
            p = sampling.chances[drawn[d]]
            start = drawn[d] * batch
            block = order[start : min(start + batch, n)]
            for b, i in enumerate(block):
                shifts = False
                for c in range(K):
                    on_line = lines[i, 0, c] + k * lines[i, 1, c]
                    g_tilde = predict(i, c, L, slots) / p
                    x[b, c], shift[b, c], g[b, c] = on_line, 0.0, 0.0
                    if g_tilde != 0.0:
                        alpha = penalty_weight(i, c, columns)
                        x[b, c] = weight(slots[i, 0, c], slots[i, 1, c], g_tilde, t, R[c], alpha)
                        shift[b, c] = x[b, c] - on_line
                        shifts = shifts or shift[b, c] != 0.0
                if shifts:
                    add_line(i, data, shift[b], no_turn, margins)
            for b, i in enumerate(block):
                for e in range(data.indptr[i], data.indptr[i + 1]):
                    row = data.rows[e]
                    weight_of_row = weights[row]
                    if weight_of_row:
                        a = float(data.counts[e])
                        z = margins[row]
                        for c in range(K):
                            y = response(data.labels[row], columns.positive[c])
                            g[b, c] += a * weigh(weight_of_row, slope(snap(z[0, c] + k * z[1, c], y), y))
            for b, i in enumerate(block):
                moves = False
                for c in range(K):
                    g_tilde = predict(i, c, L, slots) / p
                    alpha = penalty_weight(i, c, columns)
                    slots[i, 0, c], slots[i, 1, c] = update(
                        slots[i, 0, c], slots[i, 1, c], x[b, c], g[b, c] / p, g_tilde, t, R[c], alpha
                    )
                    store(i, c, slots, g[b, c])
                    unlink(i, c, state.links, state.head)
                    change, turn[b, c] = start_segment(i, c, k + 1, origin, columns, state)
                    shift[b, c] = change - shift[b, c]
                    moves = moves or shift[b, c] != 0.0 or turn[b, c] != 0.0
                if moves:
                    add_line(i, data, shift[b], turn[b], margins)

    return play


def column_weights(t, columns, slots, out):
    """x_t without a prediction, (features, columns)."""
    for i in range(out.shape[0]):
        for c in range(out.shape[1]):
            alpha = penalty_weight(i, c, columns)
            out[i, c] = weight(slots[i, 0, c], slots[i, 1, c], 0.0, t, columns.R[c], alpha)


def append_entries(features, sizes, piece_rows, piece_counts, ends, rows, counts):
    """Append entries, sorted by feature, to those of each feature, which end at ``ends[i]``; `ends` is updated."""
    at = 0
    for f in range(features.shape[0]):
        to = ends[features[f]]
        for e in range(sizes[f]):
            rows[to + e] = piece_rows[at + e]
            counts[to + e] = piece_counts[at + e]
        at += sizes[f]
        ends[features[f]] = to + sizes[f]


def row_norms(first, stop, data, norms):
    """Add the terms of features first..stop in ‖a_j‖₁ to `norms` (examples,)."""
    for e in range(data.indptr[first], data.indptr[stop]):
        norms[data.rows[e]] += abs(float(data.counts[e]))


def coordinate_bounds(first, stop, data, bounds, L):
    """L_i = Σ_j |a_{j,i}|·ℓ_j of features first..stop into `L` (features,), from `bounds` ℓ (examples,)."""
    for i in range(first, stop):
        total = 0.0
        for e in range(data.indptr[i], data.indptr[i + 1]):
            total += abs(float(data.counts[e])) * bounds[data.rows[e]]
        L[i] = total


def block_weights(L, batch, out):
    """(S_Π L_Π)^{2/3} of blocks up to a factor: S_Π is their number of features, L_Π = √(Σ_{i∈Π} L_i²).

    `L` (n,) is in the order of the blocks, `batch` features each.
    """
    for block in range(out.shape[0]):
        start, stop = block * batch, min((block + 1) * batch, L.shape[0])
        square = 0.0
        for i in range(start, stop):
            square += L[i] * L[i]
        root = cube_root((stop - start) * math.sqrt(square))
        out[block] = root * root


def _compiled(function: Callable[..., Any], *names: str) -> Callable[..., Any]:
    return compiled(function, list(names), SOURCES, restrict=True)


INIT_MARGINS = _compiled(init_margins)
APPEND_ENTRIES = _compiled(append_entries)
WEIGHTS = _compiled(column_weights)
ROW_NORMS = _compiled(row_norms)
COORDINATE_BOUNDS = _compiled(coordinate_bounds)
BLOCK_WEIGHTS = _compiled(block_weights)


@lru_cache(maxsize=32)
def play_kernel(loss: Loss, predict: str, *, weighted: bool = False) -> Callable[..., None]:
    """The compiled loop of a loss and a prediction; `weighted` for examples with weights in float64."""
    snap = snap_to_kink if loss.slope_vanishes and not loss.regression else exact_margin
    function = build_play(loss.slope, weighted_slope if weighted else slope_of_one, snap, *PREDICTIONS[predict])
    return _compiled(function, loss.name, predict, str(weighted))
