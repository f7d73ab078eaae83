"""Algorithms 3 and 4 as printed, for run times: Step 2 of L-FOBOS visits all n variables every K rounds.

The learners of the project apply the same maps when a feature occurs again, so that no K costs O(n) there.
"""

import math
import time

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from sparseoco.core.compile_cache import compiled
from sparseoco.learners.losses import logistic_slope
from sparseoco.learners.penalties import soft


def run_rounds(indptr, indices, values, signs, order, lam, alpha0, K, x, applied):  # type: ignore[no-untyped-def]
    """Update x in place over the rounds of `order`: Algorithm 3, or with K = 0 Algorithm 4.

    x        (n,) x_1, then x_{T+1}
    applied  (n,) zeros; for Algorithm 4, α_ξ of (9), the sum of the steps whose penalty a variable has received
    """
    steps = evaluated = 0.0  # sums of the steps: all so far, and those up to the last Step 2 of Algorithm 3
    for t in range(1, order.shape[0] + 1):
        row = order[t - 1]
        start, stop = indptr[row], indptr[row + 1]
        margin = 0.0
        for k in range(start, stop):
            margin += values[k] * x[indices[k]]
        alpha = alpha0 / math.sqrt(t)
        steps += alpha
        change = alpha * logistic_slope(margin, signs[row])
        if K == 0:
            for k in range(start, stop):
                i = indices[k]
                x[i] = soft(x[i] - change * values[k], lam * (steps - applied[i]))
                applied[i] = steps
            continue
        for k in range(start, stop):
            x[indices[k]] -= change * values[k]
        if t % K == 0:
            due = lam * (steps - evaluated)
            for i in range(x.shape[0]):
                x[i] = soft(x[i], due)
            evaluated = steps


_RUN = compiled(run_rounds, [])


def run_as_printed(
    features: csr_matrix, labels: NDArray[np.int64], order: NDArray[np.int64], lam: float, alpha0: float, K: int | None
) -> tuple[NDArray[np.float64], float]:
    """x after the rounds of `order`, and the processor's seconds.

    Parameters
    ----------
    features : csr_matrix, (examples, n) float64
    labels : (examples,)
        0 or 1.
    order : (T,)
        The example of every round.
    lam, alpha0 : float
        λ and α₀; steps are α₀/√t.
    K : int or None
        Rounds between two Steps 2 of Algorithm 3; None for Algorithm 4.
    """
    x, applied = np.zeros((2, features.shape[1]))
    signs = 2.0 * labels - 1.0
    before = time.thread_time()
    _RUN(features.indptr, features.indices, features.data, signs, order, lam, alpha0, K or 0, x, applied)
    return x, time.thread_time() - before
