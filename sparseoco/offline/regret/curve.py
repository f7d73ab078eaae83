"""The loss and penalty that a learner incurs on a stream: Σ_{t≤T} f_t(w_t) and Σ_{t≤T} ψ_t(w_t) at marks.

The learner itself sums the losses, times the sample weights of their rows; every row is predicted before it is learned.
ψ_t(w_t), without the intercept, is

- λ·ψ(w_t), of the iterate that predicts round t, times α_t of the learner's `schedule`; or
- λ·Σ_i h_{t,i}|w_{t,i}| for learners that weight the penalty by each coordinate's history (`Learner.thresholds_of`):
  Oiwa et al. (2011), Theorem 1, and (2012), (10), (19). h_t includes round t's gradient.

The sum is exact if the learner sums ‖w_t‖₁ in every round (`Learner(objective=True)`) and all α_t = 1, or if every
round is sampled.
Otherwise ψ_t is computed at sampled rounds and interpolated linearly between them.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.progress import RowsCallback
from sparseoco.kernels.structs import RowBatch
from sparseoco.offline.regret.comparator import penalty_factor
from sparseoco.training.learner import Learner
from sparseoco.training.sizes import chunk_rows
from sparseoco.training.stream import Order, RowSource, StreamPosition, stream

FIRST_EPOCH = 1


class FirstEpoch(NamedTuple):
    """The first epoch of a stream, whose rows are the rounds."""

    source: RowSource
    order: Order
    report: RowsCallback = lambda rows: None
    """Called with the rounds learned so far."""

    def learn(self, learner: Learner, T: int, observe: Callable[[RowBatch], None] = lambda rows: None) -> None:
        """Continue a learner up to round T; `observe` gets the rows of each chunk before they are learned."""
        start = StreamPosition(FIRST_EPOCH, learner.progress.rows)
        size = chunk_rows(learner.algorithm, learner.n_features, learner.n_columns)
        for position, rows in stream(self.source, self.order, start, StreamPosition(FIRST_EPOCH, T), (), size):
            observe(rows)
            learner.learn_rows(*rows)
            self.report(position.position)


class Mark(NamedTuple):
    """The sums of a learner after T rounds."""

    T: int
    loss: float
    """Σ_{t≤T} f_t(w_t)."""
    penalty: float
    """Σ_{t≤T} ψ_t(w_t), λ included."""
    penalty_error: float
    """The difference from the sum over every second sample; 0 if exact."""
    exact: bool
    thresholds: NDArray[np.float64] | None
    """(features, outputs) Σ_{t≤T} h_t, for learners that have them."""


class LinearSum:
    """Σ_{t≤T} a_t of numbers or arrays known in some rounds, from round 1, interpolated linearly between them.

    With a known in rounds s < t, the rounds s + 1 … t sum to (t − s)(a_s + a_t)/2 + (a_t − a_s)/2: a_t where t = s + 1.
    """

    def __init__(self) -> None:
        self.t = 0
        self.last: Any = 0.0
        self.total: Any = 0.0

    def add(self, t: int, value: Any) -> None:
        """Add a_t."""
        last = value if self.t == 0 else self.last
        self.total = self.total + (t - self.t) * (last + value) / 2 + (value - last) / 2
        self.t, self.last = t, value


def measure(learner: Learner, rounds: FirstEpoch, marks: Sequence[int], samples: Sequence[int]) -> Iterator[Mark]:
    """Learn a stream with a new learner of one configuration; yields its sums at each mark.

    `samples` are increasing rounds, from 1, that include all marks (`rounds.sampled_rounds`). Stops when the
    learner diverges.
    """
    constant = learner.configurations[0].get("schedule", "constant") == "constant"
    if constant and learner.history.exact[0] and learner.thresholds_of(0) is None:
        yield from _measure_exactly(learner, rounds, marks)
    else:
        yield from _measure_sampled(learner, rounds, set(marks), samples)


def _measure_exactly(learner: Learner, rounds: FirstEpoch, marks: Sequence[int]) -> Iterator[Mark]:
    for T in marks:
        rounds.learn(learner, T)
        if learner.diverged[0]:
            return
        learner.mark()
        penalty = float(learner.history.objective[-1, 0] - learner.history.progressive_loss[-1, 0]) * T
        yield Mark(T, float(learner.weighted_loss_sum[0]), penalty, 0.0, True, None)


def _measure_sampled(learner: Learner, rounds: FirstEpoch, marks: set[int], samples: Sequence[int]) -> Iterator[Mark]:
    parameters = learner.configurations[0]
    lam, schedule = parameters.get("lam", 0.0), parameters.get("schedule", "constant")
    exact = len(samples) == samples[-1]
    penalty, coarse, thresholds = LinearSum(), LinearSum(), LinearSum()
    for k, t in enumerate(samples):
        rounds.learn(learner, t - 1)
        weighted = learner.thresholds_of(0) is not None
        if weighted:
            weights = np.abs(learner.weights_of(0), dtype=np.float64)
            rounds.learn(learner, t)
            h = np.asarray(learner.thresholds_of(0), np.float64)
            value = lam * float(np.einsum("jc,jc->", h, weights))
            thresholds.add(t, h)
        else:
            learner.mark()
            value = penalty_factor(schedule, t) * float(learner.history.penalty[-1, 0])
        penalty.add(t, value)
        if k % 2 == 0 or t in marks:
            coarse.add(t, value)
        if t in marks:
            rounds.learn(learner, t)
            if learner.diverged[0]:
                return
            loss, error = float(learner.weighted_loss_sum[0]), 0.0 if exact else abs(penalty.total - coarse.total)
            yield Mark(t, loss, penalty.total, error, exact, np.array(thresholds.total) if weighted else None)
