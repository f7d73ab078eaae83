"""The loop of a mixture: AO-EG weights over the predictions of all columns, round by round."""

import math
from typing import Any

import numpy as np

from sparseoco.core.compile_cache import compiled
from sparseoco.kernels.responses import respond_row
from sparseoco.learners.exponentiated import ao_eg_scale, ao_eg_weights, balanced_scale, mixability_gap

SUMS = ("deviation", "gaps", "drawn", "deviation_before", "gaps_before", "largest")
"""Sums that `mix` updates: Σ ‖g − g̃‖∞², Σ m, Σ x·g, the first two without the last round, and the largest weight above
1, else 0."""
ERROR_C = 1.0  # errors and their predictions are 0 or 1: half the range of the difference is at most 1


def mix(
    margins,
    labels,
    weights,
    loss,
    rounds,
    outputs,
    by_error,
    last,
    total,
    guess,
    sums,
    out,
    losses,
    errors,
    loss_sum,
    error_count,
):
    """Learn the rows in turn from the margins and losses of n columns, after `rounds` rounds.

    margins             (rows, n·outputs)
    labels, loss        those of `stream.build_learn`
    weights             (rows,) of the losses g
    total, guess        (n,) g_{1:t}, infinite for diverged columns, and g̃_{t+1}
    sums                as in `SUMS`
    out                 (n,) the round in which a column was removed, or 0
    losses, errors      (n,) float64 and int64: sums per column
    loss_sum, error_count  (1,) sums of the mixture
    """
    n = total.shape[0]
    x, z = np.zeros(n), np.zeros(outputs)
    lost, wrong = np.zeros(n), np.zeros(n, np.int64)
    row, u, v = np.zeros(n * outputs), np.zeros(n * outputs), np.zeros(outputs)
    own = np.zeros(1, np.int64)
    for i in range(labels.shape[0]):
        t = rounds + i + 1
        weight = weights[i]
        for k in range(row.shape[0]):
            row[k] = margins[i, k]
        lost[:] = 0.0
        wrong[:] = 0
        respond_row(loss.respond, loss.bound, row, u, u[:0], outputs, labels[i], t, out, lost, wrong)
        for c in range(n):
            if out[c] > 0:  # known before the label is used
                total[c], guess[c] = math.inf, 0.0
        scale = ao_eg_scale(ERROR_C, sums[0], n) if by_error else balanced_scale(sums[1], n)
        ao_eg_weights(total, guess, scale, x)
        z[:] = 0.0
        own[0] = 0  # a mean of margins within bounds can exceed them by rounding only
        for c in range(n):
            if x[c] > 0.0:
                for k in range(outputs):
                    z[k] += x[c] * row[c * outputs + k]
        respond_row(loss.respond, loss.bound, z, v, v[:0], outputs, labels[i], t, own, loss_sum, error_count)
        for c in range(n):
            losses[c] += lost[c]
            errors[c] += wrong[c]
            if by_error:
                lost[c] = float(wrong[c])
            lost[c] *= weight
        gap, half = mixability_gap(total, guess, lost, scale, x)
        sums[3], sums[4] = sums[0], sums[1]
        if weight > 1.0:
            sums[5] = max(sums[5], weight)
        sums[0] += half * half
        sums[1] += gap
        for c in range(n):
            if total[c] < math.inf:
                sums[2] += x[c] * lost[c]
                total[c] += lost[c]
                guess[c] = lost[c] if last else 0.0


MIX = compiled(mix, [])


def _weights(total: Any, guess: Any, sums: Any, by_error: Any, x: Any) -> None:
    scale = ao_eg_scale(ERROR_C, sums[0], x.shape[0]) if by_error else balanced_scale(sums[1], x.shape[0])
    ao_eg_weights(total, guess, scale, x)


weights_now = compiled(_weights, [])
"""``weights_now(total, guess, sums, by_error, x)``: write the weights of the coming round into `x` (n,)."""
