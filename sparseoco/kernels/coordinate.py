"""The loop over randomly drawn coordinates: margins kept up to date exactly while every weight moves in every round.

Data lie by columns: the nonzeros of feature i are ``rows[indptr[i]:indptr[i + 1]]`` and `counts`, rows increasing.
Between two draws a weight is piecewise linear in the round (`learners.cao_rcd.piece`), so the margin of example j in
round k of an epoch is ``margins[j, 0] + k·margins[j, 1]`` as long as no piece of a feature of its row ends. A calendar
says in which round which pieces end: lists, one a round and column, of coordinates linked both ways, so that a
coordinate that is drawn leaves the list it is in. A draw ends two pieces at most before the next one, each at the cost
of the feature's nonzeros: the work is that of the features drawn, whatever the number of features.

Columns lie side by side and share the draws; each has a calendar of its own and no arithmetic in common. Arrays, for n
features, m examples and K columns:

- ``state`` (n, 2 or 3, K) float64: Z, Δ and, with predict = last, the last gradient;
- ``lines`` (n, 2, K) float64: the piece that is in the margins, value in round 0 of the epoch, and slope;
- ``links`` (n, 3, K) integers: the round of the calendar a coordinate is in, or −1, and its neighbours there;
- ``head`` (rounds, K) integers: the first coordinate of each list, or −1; ``margins`` (m, 2, K) float64.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numba.extending import register_jitable

from sparseoco.core.compile_cache import compiled
from sparseoco.learners.cao_rcd import observe, piece, weight
from sparseoco.learners.losses import Loss
from sparseoco.learners.numerics import cube_root, response

SOURCES = ("learners/numerics.py", "learners/losses.py", "learners/penalties.py", "learners", "kernels/coordinate.py")


@register_jitable
def leave(i, c, links, head):
    """Take a coordinate out of the calendar."""
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
def settle(i, c, k, origin, R, alpha, state, lines, links, head):
    """The piece that a coordinate is on from round k on: kept in `lines`, its end in the calendar.

    Gives how much the line has changed, in round 0 and by round. The coordinate must not be in the calendar.
    """
    value, slope, lasts = piece(state[i, 0, c], state[i, 1, c], origin + k, R[c], alpha[c])
    at_0 = value - slope * k
    change, turn = at_0 - lines[i, 0, c], slope - lines[i, 1, c]
    lines[i, 0, c], lines[i, 1, c] = at_0, slope
    if k + lasts < head.shape[0]:
        due = k + int(max(lasts, 1.0))
        after = head[due, c]
        links[i, 0, c], links[i, 1, c], links[i, 2, c] = due, -1, after
        if after >= 0:
            links[after, 1, c] = i
        head[due, c] = i
    return change, turn


@register_jitable
def end_pieces(k, origin, indptr, rows, counts, R, alpha, state, lines, links, head, margins):
    """Put every coordinate whose piece ends in round k on its next piece."""
    for c in range(R.shape[0]):
        i = head[k, c]
        head[k, c] = -1
        while i >= 0:
            following = links[i, 2, c]
            links[i, 0, c] = -1
            change, turn = settle(i, c, k, origin, R, alpha, state, lines, links, head)
            for e in range(indptr[i], indptr[i + 1]):
                a = float(counts[e])
                margins[rows[e], 0, c] += a * change
                margins[rows[e], 1, c] += a * turn
            i = following


@register_jitable
def add_line(i, indptr, rows, counts, at_origin, turn, margins):
    """Add column i times at_origin + k·turn, (columns,) each, to the margins."""
    for e in range(indptr[i], indptr[i + 1]):
        a = float(counts[e])
        z = margins[rows[e]]
        for c in range(at_origin.shape[0]):
            z[0, c] += a * at_origin[c]
            z[1, c] += a * turn[c]


def begin(first, stop, origin, indptr, rows, counts, R, alpha, state, lines, links, head, margins):
    """Lines, calendar and margins of features first..stop for an epoch whose first round is `origin`.

    Before feature 0, lines and margins are 0 and the calendar is empty (−1); after the last ``margins[:, 0]`` are those
    of the weights that play round `origin`.
    """
    for i in range(first, stop):
        moves = False
        for c in range(R.shape[0]):
            if state[i, 0, c] != 0.0:
                settle(i, c, 0, origin, R, alpha, state, lines, links, head)
                moves = moves or lines[i, 0, c] != 0.0
        if moves:
            add_line(i, indptr, rows, counts, lines[i, 0], lines[i, 1], margins)


@register_jitable
def predict_none(i, c, L, state):
    return 0.0


@register_jitable
def predict_half(i, c, L, state):
    return 0.5 * L[i]


@register_jitable
def predict_last(i, c, L, state):
    return state[i, 2, c]


@register_jitable
def forget(i, c, state, g):
    """For predictions that do not look back."""


@register_jitable
def remember(i, c, state, g):
    state[i, 2, c] = g


PREDICTIONS = {
    "none": (predict_none, forget),
    "half": (predict_half, forget),
    "last": (predict_last, remember),
}


def build_play(slope, predict, keep):
    """The loop for one loss and one prediction."""

    def play(
        indptr,
        rows,
        counts,
        labels,
        kept,
        positive,
        R,
        alpha,
        L,
        chances,
        batch,
        blocks,
        origin,
        first,
        state,
        lines,
        links,
        head,
        margins,
    ):
        """Rounds of an epoch from `first` on, which draw `blocks`; `origin` is the number t of its round 0.

        `labels` and `kept` (bool: in F, not held out) are an example each; column c has y = +1 for class `positive[c]`,
        y = the label where that is −1; `R`, `alpha` (K,); `L` (n,); `chances` are p, a block of `batch` features each.
        """
        n, K = state.shape[0], R.shape[0]
        x = np.zeros((batch, K))
        shift = np.zeros((batch, K))
        turn = np.zeros((batch, K))
        level = np.zeros(K)
        g = np.zeros((batch, K))
        for d in range(blocks.shape[0]):
            k = first + d
            t = origin + float(k)
            end_pieces(k, origin, indptr, rows, counts, R, alpha, state, lines, links, head, margins)
            p = chances[blocks[d]]
            start = blocks[d] * batch
            size = min(batch, n - start)
            for b in range(size):
                i = start + b
                shifts = False
                for c in range(K):
                    on_line = lines[i, 0, c] + k * lines[i, 1, c]
                    g_tilde = predict(i, c, L, state) / p
                    x[b, c], shift[b, c], g[b, c] = on_line, 0.0, 0.0
                    if g_tilde != 0.0:
                        x[b, c] = weight(state[i, 0, c], state[i, 1, c], g_tilde, t, R[c], alpha[c])
                        shift[b, c] = x[b, c] - on_line
                        shifts = shifts or shift[b, c] != 0.0
                if shifts:
                    add_line(i, indptr, rows, counts, shift[b], level, margins)
            for b in range(size):
                for e in range(indptr[start + b], indptr[start + b + 1]):
                    row = rows[e]
                    if kept[row]:
                        a = float(counts[e])
                        z = margins[row]
                        for c in range(K):
                            y = response(labels[row], positive[c])
                            g[b, c] += a * slope(z[0, c] + k * z[1, c], y)
            for b in range(size):
                i = start + b
                moves = False
                for c in range(K):
                    g_tilde = predict(i, c, L, state) / p
                    state[i, 0, c], state[i, 1, c] = observe(
                        state[i, 0, c], state[i, 1, c], x[b, c], g[b, c] / p, g_tilde, t, R[c], alpha[c]
                    )
                    keep(i, c, state, g[b, c])
                    leave(i, c, links, head)
                    change, turn[b, c] = settle(i, c, k + 1, origin, R, alpha, state, lines, links, head)
                    shift[b, c] = change - shift[b, c]
                    moves = moves or shift[b, c] != 0.0 or turn[b, c] != 0.0
                if moves:
                    add_line(i, indptr, rows, counts, shift[b], turn[b], margins)

    return play


def column_weights(t, R, alpha, state, out):
    """x_t without a prediction, (features, columns)."""
    for i in range(out.shape[0]):
        for c in range(out.shape[1]):
            out[i, c] = weight(state[i, 0, c], state[i, 1, c], 0.0, t, R[c], alpha[c])


def place(features, sizes, piece_rows, piece_counts, ends, rows, counts):
    """Put entries by feature after those that are there: feature i's at ``ends[i]``, which moves on."""
    at = 0
    for f in range(features.shape[0]):
        to = ends[features[f]]
        for e in range(sizes[f]):
            rows[to + e] = piece_rows[at + e]
            counts[to + e] = piece_counts[at + e]
        at += sizes[f]
        ends[features[f]] = to + sizes[f]


def row_norms(first, stop, indptr, rows, counts, norms):
    """Add the part of features first..stop of ‖a_j‖₁ to `norms` (examples,)."""
    for e in range(indptr[first], indptr[stop]):
        norms[rows[e]] += abs(float(counts[e]))


def coordinate_bounds(first, stop, indptr, rows, counts, bounds, L):
    """L_i = Σ_j |a_{j,i}|·ℓ_j of features first..stop into `L` (features,), of `bounds` ℓ (examples,)."""
    for i in range(first, stop):
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            total += abs(float(counts[e])) * bounds[rows[e]]
        L[i] = total


def block_weights(L, batch, out):
    """(S_Π L_Π)^{2/3} but for a factor, of blocks of `batch` features: S_Π as their number, L_Π = √(Σ_{i∈Π} L_i²)."""
    for block in range(out.shape[0]):
        start, stop = block * batch, min((block + 1) * batch, L.shape[0])
        square = 0.0
        for i in range(start, stop):
            square += L[i] * L[i]
        root = cube_root((stop - start) * math.sqrt(square))
        out[block] = root * root


def _bound(function: Callable[..., Any], *names: str) -> Callable[..., Any]:
    return compiled(function, list(names), SOURCES, restrict=True)


BEGIN = _bound(begin)
PLACE = _bound(place)
WEIGHTS = _bound(column_weights)
ROW_NORMS = _bound(row_norms)
COORDINATE_BOUNDS = _bound(coordinate_bounds)
BLOCK_WEIGHTS = _bound(block_weights)


@lru_cache(maxsize=32)
def play_for(loss: Loss, predict: str) -> Callable[..., None]:
    """The compiled loop of a loss and a prediction."""
    return _bound(build_play(loss.slope, *PREDICTIONS[predict]), loss.name, predict)
