"""The rounds at which regret is measured."""

from collections.abc import Sequence

import numpy as np

FIRST = 50  # fewer rounds say little about growth
MARKS = 12
MIN_SAMPLES, MAX_SAMPLES = 64, 2048
SAMPLE_SHARE = 16  # cost of reading all weights at the samples, relative to learning the rows


def spread_marks(n_rows: int, number: int = MARKS) -> list[int]:
    """At most `number` rounds from 50 to the last, evenly spaced in the logarithm, including the last."""
    spread = np.geomspace(min(FIRST, n_rows), n_rows, number)
    return sorted({round(float(T)) for T in spread} | {n_rows})


def sample_size(n_rows: int, nonzeros: int, n_features: int) -> int:
    """Number of rounds to sample: all if they are few, else as many as cost a fixed multiple of the pass."""
    affordable = SAMPLE_SHARE * nonzeros // max(n_features, 1)
    return min(n_rows, max(MIN_SAMPLES, min(affordable, MAX_SAMPLES)))


def sampled_rounds(marks: Sequence[int], number: int) -> list[int]:
    """About `number` rounds from 1 to the last mark, including all marks; at most every round.

    They are spaced quadratically, denser at the start, because iterates change by 1/√t.
    """
    last = marks[-1]
    if number >= last:
        return list(range(1, last + 1))
    return sorted({1, *marks} | {max(1, round(last * (k / number) ** 2)) for k in range(1, number + 1)})
