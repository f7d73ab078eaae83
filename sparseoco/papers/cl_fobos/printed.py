"""Algorithms 1 to 4 of Togari and Yamashita (2016) as printed: run times, and R̄(T) where no learner sums it.

`run_rounds` is what is timed: Step 2 of L-FOBOS visits all n variables every K rounds, and FOBOS and Algorithm 1 visit
them in every round. The learners apply the same maps when a feature occurs again, so that no K costs O(n) there.

R̄(T) needs ‖x_t‖₁ of every round. The learner sums it for CL-FOBOS; here it is for the others, and for other readings
of Algorithm 4. In `sums` (4,) are, of all rounds, f_t(x_t), r(x_t), right predictions, and margins of 0.
"""

import math
import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from sparseoco.core.compile_cache import compiled, compiled_restrict, register_jitable
from sparseoco.learners.losses import logistic_slope, logistic_value
from sparseoco.learners.penalties import soft
from sparseoco.papers.rows import Row

SUBGRADIENT: Final = -1
"""For the K of `run_rounds`: Algorithm 1."""
BY_COMPONENT: Final = 0
"""For the K of `run_rounds`: Algorithm 4."""


@register_jitable
def observe(sums, margin, sign):  # type: ignore[no-untyped-def]
    """Add the loss of a round, and whether its prediction is right."""
    sums[0] += logistic_value(margin, sign)
    sums[2] += 1.0 if margin * sign > 0.0 else 0.0
    sums[3] += 1.0 if margin == 0.0 else 0.0


@register_jitable
def size_of(x):  # type: ignore[no-untyped-def]
    """‖x‖₁, by four sums: one would wait for every addition."""
    a = b = c = d = 0.0
    whole = x.shape[0] // 4 * 4
    for i in range(0, whole, 4):
        a += abs(x[i])
        b += abs(x[i + 1])
        c += abs(x[i + 2])
        d += abs(x[i + 3])
    for i in range(whole, x.shape[0]):
        a += abs(x[i])
    return (a + b) + (c + d)


@register_jitable
def pulled(w, pull):  # type: ignore[no-untyped-def]
    """w − pull·sign(w), the subgradient of |w| being 0 at 0."""
    return w - (pull if w > 0.0 else 0.0) + (pull if w < 0.0 else 0.0)


def run_rounds(indptr, indices, values, signs, order, first, last, lam, alpha0, K, observed, x, applied, clock, sums):  # type: ignore[no-untyped-def]
    """Update x in place over rounds `first` to `last`: Algorithm 3 (K = 1: Algorithm 2), `SUBGRADIENT`, `BY_COMPONENT`.

    observed  whether to sum f_t and r, not for Algorithm 4, whose learner does; and not when it is timed
    x         (n,) x_first, then x_{last+1}
    applied   (n,) for Algorithm 4, α_ξ of (9), the sum of the steps whose penalty a variable has received
    clock     (3,) sums of the steps: all so far, and those up to the last Step 2 of Algorithm 3; ‖x‖₁
    """
    steps, evaluated, size = clock
    for t in range(first, last + 1):
        row = order[t - 1]
        start, stop = indptr[row], indptr[row + 1]
        margin = 0.0
        for k in range(start, stop):
            margin += values[k] * x[indices[k]]
        if observed:
            observe(sums, margin, signs[row])
            size = size_of(x) if K == SUBGRADIENT else size
            sums[1] += lam * size
        alpha = alpha0 / math.sqrt(t)
        steps += alpha
        change = alpha * logistic_slope(margin, signs[row])
        if K == BY_COMPONENT:
            for k in range(start, stop):
                i = indices[k]
                x[i] = soft(x[i] - change * values[k], lam * (steps - applied[i]))
                applied[i] = steps
            continue
        if K == SUBGRADIENT:
            for i in range(x.shape[0]):
                x[i] = pulled(x[i], lam * alpha)
        if observed:
            for k in range(start, stop):
                w = x[indices[k]]
                x[indices[k]] = w - change * values[k]
                size += abs(x[indices[k]]) - abs(w)
        else:
            for k in range(start, stop):
                x[indices[k]] -= change * values[k]
        if K > 0 and t % K == 0:
            due = lam * (steps - evaluated)
            for i in range(x.shape[0]):
                x[i] = soft(x[i], due)
            evaluated = steps
            if observed:
                size = size_of(x)
    clock[0], clock[1], clock[2] = steps, evaluated, size


_RUN_ROUNDS = compiled(run_rounds)
Examples = tuple[csr_matrix, NDArray[np.int64], NDArray[np.int64]]
"""Features (examples, n) float64, labels 0 and 1, and the example of every round."""


class AsPrinted:
    """A run of `run_rounds` from x_1 = 0."""

    def __init__(self, examples: Examples, lam: float, alpha0: float, K: int, *, observed: bool = False) -> None:
        self._examples, self._parameters, self._rounds = _arrays(examples), (lam, alpha0, K, observed), 0
        n = examples[0].shape[1]
        self.x, self._applied = np.full(n, 0.0), np.full(n, 0.0)  # memory of np.zeros is mapped when it is first used
        self._clock, self.sums = np.zeros(3), np.zeros(4)

    def run(self, rounds: int) -> float:
        """Go on up to round `rounds`; gives the processor's seconds."""
        before = time.thread_time()
        state = self.x, self._applied, self._clock, self.sums
        _RUN_ROUNDS(*self._examples, self._rounds + 1, rounds, *self._parameters, *state)
        self._rounds = rounds
        return time.thread_time() - before


# ----------------------------------------------------------------------------------------------------------------------
# R̄(T) of FOBOS without visiting all variables in every round, and of other readings of Algorithm 4.


ZETA: Final = -1.4603545088095868
"""ζ(1/2), the limit of 1/√1 + … + 1/√u − 2√u."""


@register_jitable
def rounds_to(reach, S, most):  # type: ignore[no-untyped-def]
    """The first u ≤ `most` of S_u ≥ reach."""
    root = 0.5 * (reach - ZETA)
    u = min(int(root * root), most)
    while u < most and S[u, 0] < reach:
        u += 1
    while u > 0 and S[u - 1, 0] >= reach:
        u -= 1
    return u


def run_fobos(indptr, indices, values, signs, order, rates, alphas, S, x, z, sums):  # type: ignore[no-untyped-def]
    """Algorithm 2 of several settings, each variable when it occurs.

    Maps of Step 2 that wait add up (Property 1): a variable that is w before Step 2 of round t has
    |x_s| = max(level − rate·S_{s−1}, 0) in later rounds s, with level = |w| + rate·S_{t−1}. Its part of Σ‖x_s‖₁ is
    level·s − rate·(S_0 + … + S_{s−1}) at the last s at which it is not 0, less that at s = t.

    rates, alphas  (settings,) λα₀ and α₀
    S              (T + 1, 2) S_u = 1/√1 + … + 1/√u, and S_0 + … + S_{u−1}
    x              (n, settings) zeros; during the run, ± level; in the end x_{T+1}
    z              (settings,) scratch
    """
    T, settings = order.shape[0], rates.shape[0]
    for t in range(1, T + 1):
        row = order[t - 1]
        start, stop, due, dues = indptr[row], indptr[row + 1], S[t - 1, 0], S[t, 1]
        z[:] = 0.0
        for k in range(start, stop):
            for c in range(settings):
                v = x[indices[k], c]
                if v != 0.0:
                    w = soft(v, rates[c] * due)
                    if w != 0.0:
                        sums[1, c] += abs(v) * t - rates[c] * dues
                        z[c] += values[k] * w
                    else:
                        u = rounds_to(abs(v) / rates[c], S, t - 1)
                        sums[1, c] += abs(v) * u - rates[c] * S[u, 1]
                    x[indices[k], c] = w
        for c in range(settings):
            observe(sums[:, c], z[c], signs[row])
            z[c] = alphas[c] / math.sqrt(t) * logistic_slope(z[c], signs[row])
        for k in range(start, stop):
            for c in range(settings):
                w = x[indices[k], c] - z[c] * values[k]
                if w != 0.0:
                    level = abs(w) + rates[c] * due
                    sums[1, c] -= level * t - rates[c] * dues
                    w = math.copysign(level, w)
                x[indices[k], c] = w
    for i in range(x.shape[0]):
        for c in range(settings):
            v = x[i, c]
            if v != 0.0:
                u = rounds_to(abs(v) / rates[c], S, T)
                sums[1, c] += abs(v) * u - rates[c] * S[u, 1]
                x[i, c] = soft(v, rates[c] * S[T, 0])


L1: Final = 0
SUMMED: Final = 1
PRODUCT: Final = 2
"""Penalties of `run_reading`: λ‖x‖₁; ½λ‖x‖² with the map of (10), 1/(1 + λΣα_j), or with the maps of Step 2 in turn."""


def run_reading(indptr, indices, values, signs, order, lam, alpha0, late, penalty, x, applied, sums):  # type: ignore[no-untyped-def]
    """Algorithm 4 by one of its readings.

    late     whether (9) is read as printed: α̌_t of round t is without α_t, and α_ξ is with it
    penalty  `L1`, `SUMMED` or `PRODUCT`
    x        (n,) x_1, then x_{T+1}
    applied  (n,) zeros
    """
    clock = r = 0.0  # λ times the sum of the steps, or Σ log(1 + λα_j); r(x_t)
    for t in range(1, order.shape[0] + 1):
        row = order[t - 1]
        start, stop = indptr[row], indptr[row + 1]
        margin = 0.0
        for k in range(start, stop):
            margin += values[k] * x[indices[k]]
        observe(sums, margin, signs[row])
        sums[1] += r
        alpha = alpha0 / math.sqrt(t)
        change = alpha * logistic_slope(margin, signs[row])
        before = clock
        clock += math.log1p(lam * alpha) if penalty == PRODUCT else lam * alpha
        now = before if late else clock
        for k in range(start, stop):
            i = indices[k]
            w, moved, due = x[i], x[i] - change * values[k], now - applied[i]
            if penalty == L1:
                x[i] = soft(moved, due)
                r += lam * (abs(x[i]) - abs(w))
            else:
                x[i] = moved / (1.0 + due) if penalty == SUMMED else moved * math.exp(-due)
                r += 0.5 * lam * (x[i] * x[i] - w * w)
            applied[i] = clock


_RUN_FOBOS, _RUN_READING = compiled_restrict(run_fobos), compiled_restrict(run_reading)


def measure_rounds(examples: Examples, lam: float, alpha0: float, K: int) -> Row:
    """Algorithm 3, or Algorithm 1, as of `run_rounds`."""
    own = AsPrinted(examples, lam, alpha0, K, observed=True)
    own.run(len(examples[2]))
    return _measured(own.x, own.sums, len(examples[2]))


def measure_fobos(examples: Examples, lams: Sequence[float], alphas: Sequence[float]) -> list[Row]:
    """Algorithm 2 for each λ and α₀."""
    T, n = len(examples[2]), examples[0].shape[1]
    S = np.concatenate([[0.0], np.cumsum(1.0 / np.sqrt(np.arange(1.0, T + 1)))])
    S = np.column_stack([S, np.cumsum(S) - S])
    x, z, sums = np.zeros((n, len(lams))), np.zeros(len(lams)), np.zeros((4, len(lams)))
    _RUN_FOBOS(*_arrays(examples), np.multiply(lams, alphas), np.array(alphas), S, x, z, sums)
    sums[1] *= lams
    return [_measured(x[:, c], sums[:, c], T) for c in range(len(lams))]


def measure_reading(examples: Examples, lam: float, alpha0: float, *, late: bool = False, penalty: int = L1) -> Row:
    """Algorithm 4 by a reading, see `run_reading`."""
    n = examples[0].shape[1]
    x, applied, sums = np.zeros(n), np.zeros(n), np.zeros(4)
    _RUN_READING(*_arrays(examples), lam, alpha0, late, penalty, x, applied, sums)
    return _measured(x, sums, len(examples[2]))


def _arrays(examples: Examples) -> tuple[NDArray[Any], ...]:
    features, labels, order = examples
    return features.indptr, features.indices, features.data, 2.0 * labels - 1.0, order


def _measured(x: NDArray[np.float64], sums: NDArray[np.float64], T: int) -> Row:
    """R̄(T), its part Σ f_t(x_t)/T, the shares of right predictions and of margins of 0, and nonzeros of x."""
    loss, penalty, right, undecided = (sums / T).tolist()
    shares = {"right": right, "undecided": undecided}
    return {"objective": loss + penalty, "loss": loss, **shares, "nonzeros": int(np.count_nonzero(x))}
