"""What an epoch method suffers, Σ_{t≤T} H(x_t) with H = Σ_j f_j + αψ, told from the ends of its epochs.

H takes a pass over all examples, so that it is known where a pass is made, at the iterate x̄_s with which epoch s + 1
begins, and taken to go in a straight line between (`curve.LinearSum`): the sum is sampled. Mohri and Yang (2015),
Corollaries 6 and 7 and Theorem 7, bound its mean over the draws, less T·H(x*).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sparseoco.kernels.full_pass import loss_kernels
from sparseoco.learners.cao_rcd import slope_bounds
from sparseoco.learners.losses import Loss
from sparseoco.offline.passes import Csr, Floats
from sparseoco.offline.regret.curve import LinearSum


class EpochMark(NamedTuple):
    """How an epoch method stands at the end of an epoch."""

    epoch: int
    T: int
    """Rounds played."""
    passes: float
    """Times it has gone through the examples, rounds counted too."""
    epoch_objective: float
    """H there."""
    loss: float
    """Σ_{t≤T} H(x_t)."""
    penalty_error: float
    """What that sum differs by where every second epoch is left out."""
    penalty: float = 0.0
    """It is in H."""
    exact: bool = False


def epoch_marks(
    rounds: int, at_zero: float, objectives: Sequence[float], passes: Sequence[float]
) -> Iterator[EpochMark]:
    """The marks of epochs of so many `rounds`, from H(0), where all begin, and H at the end of each."""
    values = [at_zero, *objectives]
    at = [1, *(rounds * epoch for epoch in range(1, len(values)))]
    for epoch in range(1, len(values)):
        every = range(epoch + 1)
        totals = []
        for chosen in (every, [k for k in every if k % 2 == 0 or k == epoch]):
            total = LinearSum()
            for k in chosen:
                total.add(at[k], values[k])
            totals.append(float(total.total))
        yield EpochMark(epoch, at[epoch], passes[epoch - 1], values[epoch], totals[0], abs(totals[0] - totals[1]))


class Sums(NamedTuple):
    """Sums over examples; added, those of more."""

    at_zero: float
    """Σ_j f_j(0), all outputs together."""
    L: float
    """Σ_j L_j, L_j ≥ max_i |∂f_j/∂x_i| in the box."""

    @classmethod
    def of(cls, rows: Csr, loss: Loss, positive: Sequence[int], R: float) -> "Sums":
        """Of some rows, in a box |x_i| ≤ R."""
        indptr, _, counts, labels = rows
        z = np.zeros((labels.size, len(positive)))
        loss_sum: Floats = np.zeros(len(positive))
        loss_kernels(loss).respond(z, labels, np.array(positive, np.int64), np.empty_like(z), loss_sum)
        owner = np.repeat(np.arange(labels.size), np.diff(indptr))
        sizes = np.abs(np.asarray(counts, np.float64))
        norms, largest = np.bincount(owner, sizes, labels.size), np.zeros(labels.size)
        np.maximum.at(largest, owner, sizes)
        targets = np.abs(labels) if -1 in positive else np.ones(labels.size)
        bounds = slope_bounds(loss, norms, targets, R)
        return cls(float(loss_sum.sum()), float(bounds @ largest))

    def __add__(self, other: object) -> "Sums":
        assert isinstance(other, Sums)
        return Sums(self.at_zero + other.at_zero, self.L + other.L)


def block_quantities(L: Floats, batch: int, R: float) -> dict[str, float]:
    """`bounds.QUANTITIES` of blocks of `batch` coordinates, of the bounds L (features,) of their gradients."""
    starts = np.arange(0, L.size, batch)
    sides = R * np.diff(np.append(starts, L.size)) * np.sqrt(np.add.reduceat(L**2, starts))
    return {
        "RL": float((sides ** (2 / 3)).sum()),
        "RL1": float(sides.sum()),
        "blocks": float(np.count_nonzero(sides)),
    }
