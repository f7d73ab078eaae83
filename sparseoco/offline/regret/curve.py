"""What a learner suffers along a stream: Σ_{t≤T} f_t(w_t) and Σ_{t≤T} ψ_t(w_t) at marks.

The losses are added up by the learner itself, every row predicted before it is learned. ψ_t(w_t) is

- λ·ψ(w_t), of the iterate that predicts round t; or
- λ·Σ_i h_{t,i}|w_{t,i}| for learners whose coordinates' own history weighs the penalty (`Learner.thresholds_of`):
  Oiwa et al. (2011), Theorem 1, and (2012), (10), (19). h_t includes round t's gradient.

It is exact where the learner adds ‖w_t‖₁ up in every round (`Learner(objective=True)`), or where every round is
sampled. Elsewhere it is taken at sampled rounds and in a straight line between them.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.training.learner import Learner

Stream = Callable[[int, int], tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]]
"""``stream(start, stop)``: rounds start + 1 … stop as CSR arrays and labels."""

CHUNK_ROWS = 4096


class Mark(NamedTuple):
    """How a learner stands after T rounds."""

    T: int
    loss: float
    """Σ_{t≤T} f_t(w_t)."""
    penalty: float
    """Σ_{t≤T} ψ_t(w_t), λ included."""
    penalty_error: float
    """What that sum differs by where every second sample is left out; 0 where it is exact."""
    exact: bool
    thresholds: NDArray[np.float64] | None
    """(features, outputs) Σ_{t≤T} h_t, for learners that have them."""


class LinearSum:
    """Σ_{t≤T} a_t of numbers or arrays seen in some rounds, in a straight line between them; the first is round 1.

    With a in rounds s < t, the rounds s + 1 … t sum to (t − s)(a_s + a_t)/2 + (a_t − a_s)/2: a_t where t = s + 1.
    """

    def __init__(self) -> None:
        self.t = 0
        self.last: Any = 0.0
        self.total: Any = 0.0

    def add(self, t: int, value: Any) -> None:
        """See a_t."""
        last = value if self.t == 0 else self.last
        self.total = self.total + (t - self.t) * (last + value) / 2 + (value - last) / 2
        self.t, self.last = t, value


def measure(learner: Learner, stream: Stream, marks: Sequence[int], samples: Sequence[int]) -> Iterator[Mark]:
    """Learn the rows of a stream with a new learner of one configuration, and tell how it stands at each mark.

    `samples` are rounds in order, from 1, all marks among them (`rounds.sampled_rounds`). A learner that diverges has
    no marks from there on.
    """
    if learner.history.exact[0] and learner.thresholds_of(0) is None:
        yield from _measure_exactly(learner, stream, marks)
    else:
        yield from _measure_sampled(learner, stream, set(marks), samples)


def _measure_exactly(learner: Learner, stream: Stream, marks: Sequence[int]) -> Iterator[Mark]:
    for T in marks:
        _learn(learner, stream, T)
        if learner.diverged[0]:
            return
        learner.mark()
        penalty = float(learner.history.objective[-1, 0] - learner.history.progressive_loss[-1, 0]) * T
        yield Mark(T, float(learner.progress.loss_sum[0]), penalty, 0.0, True, None)


def _measure_sampled(learner: Learner, stream: Stream, marks: set[int], samples: Sequence[int]) -> Iterator[Mark]:
    lam = learner.configurations[0].get("lam", 0.0)
    every = len(samples) == samples[-1]
    penalty, coarse, thresholds = LinearSum(), LinearSum(), LinearSum()
    for k, t in enumerate(samples):
        _learn(learner, stream, t - 1)
        weighs = learner.thresholds_of(0) is not None
        if weighs:
            weights = np.abs(learner.weights_of(0), dtype=np.float64)
            _learn(learner, stream, t)
            h = np.asarray(learner.thresholds_of(0), np.float64)
            value = lam * float(np.einsum("jc,jc->", h, weights))
            thresholds.add(t, h)
        else:
            learner.mark()
            value = float(learner.history.penalty[-1, 0])
        penalty.add(t, value)
        if k % 2 == 0 or t in marks:
            coarse.add(t, value)
        if t in marks:
            _learn(learner, stream, t)
            if learner.diverged[0]:
                return
            loss, error = float(learner.progress.loss_sum[0]), 0.0 if every else abs(penalty.total - coarse.total)
            yield Mark(t, loss, penalty.total, error, every, np.array(thresholds.total) if weighs else None)


def _learn(learner: Learner, stream: Stream, T: int) -> None:
    """Learn up to round T."""
    for start in range(learner.progress.rows, T, CHUNK_ROWS):
        learner.learn_rows(*stream(start, min(start + CHUNK_ROWS, T)))
