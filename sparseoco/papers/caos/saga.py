"""SAGA with importance sampling, a peer of CAOS-ERM, for logistic losses.

    H(x) = Σ_j f_j(x) + α‖x‖₁,    x_{t+1} = prox_{ηα‖·‖₁}(x_t − η·ĝ_t),
    ĝ_t = Σ_i ∇f_i(φ_i) + (∇f_j(x_t) − ∇f_j(φ_j))/p_j,    φ_j ← x_t,    j drawn with probability p_j

Source: Defazio, Bach and Lacoste-Julien (2014), §2; their step 1/(3L) of the mean of the f_j, with the mean of the L_j
for L, and p_j ∝ L_j = ‖a_j‖²/4, the smoothness of f_j (importance sampling as in Kovalev, Horváth and Richtárik 2020).
Of the sum that is η = 1/(3 Σ_j L_j). φ_j = 0 at first: a pass.

Why lazy is exact: the gradient of a feature changes in rounds with it only. Others are repeated when it is next read.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from sparseoco.core.compile_cache import compiled_restrict, register_jitable
from sparseoco.kernels.epoch import draw
from sparseoco.learners.losses import find_loss
from sparseoco.learners.penalties import soft
from sparseoco.offline.passes import Floats


@register_jitable
def repeat_rounds(x, rounds, step, threshold):
    """A weight after rounds of x ← soft(x − step, threshold)."""
    for _ in range(rounds):
        before = x
        x = soft(x - step, threshold)
        if x == before:
            break
    return x


def build_play(slope):
    """``play``: rounds of the examples `drawn`, after which every weight is up to date."""

    def play(indptr, indices, values, signs, drawn, importance, eta, alpha, x, gradient, slopes):
        seen = np.zeros(x.size, np.int64)
        for t in range(drawn.size):
            j, z = drawn[t], 0.0
            for k in range(indptr[j], indptr[j + 1]):
                i = indices[k]
                x[i] = repeat_rounds(x[i], t - seen[i], eta * gradient[i], eta * alpha)
                z += values[k] * x[i]
            change = slope(z, signs[j]) - slopes[j]
            slopes[j] += change
            for k in range(indptr[j], indptr[j + 1]):
                i = indices[k]
                own = change * values[k]
                x[i] = soft(x[i] - eta * (gradient[i] + importance[j] * own), eta * alpha)
                gradient[i] += own
                seen[i] = t + 1
        for i in range(x.size):
            x[i] = repeat_rounds(x[i], drawn.size - seen[i], eta * gradient[i], eta * alpha)

    return play


@cache
def play_kernel() -> Any:
    """The compiled loop."""
    return compiled_restrict(build_play(find_loss("logistic").slope), "logistic")


def saga(rows: csr_matrix, labels: Any, alpha: float, passes: Sequence[int], seed: int) -> list[Floats]:
    """The weights after each of these passes, the first of which is that of the gradients at 0."""
    n = rows.shape[0]
    smoothness = np.asarray(rows.multiply(rows).sum(axis=1)).ravel() / 4.0
    with np.errstate(divide="ignore"):  # an example without features is never drawn
        importance = smoothness.sum() / smoothness
    signs = np.where(np.asarray(labels) > 0, 1.0, -1.0)
    values, slopes, x = rows.data.astype(np.float64), -0.5 * signs, np.zeros(rows.shape[1])
    gradient, weights, done = np.asarray(rows.T @ slopes), [], 1
    for mark in passes:
        drawn = draw(np.cumsum(smoothness), seed, mark, 0, 0, (mark - done) * n)
        examples = rows.indptr, rows.indices, values, signs
        eta = 1.0 / (3.0 * smoothness.sum())
        play_kernel()(*examples, drawn, importance, eta, alpha, x, gradient, slopes)
        done = mark
        weights.append(x.copy())
    return weights
