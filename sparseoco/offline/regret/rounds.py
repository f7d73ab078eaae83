"""The rounds at which a stream is looked at."""

from collections.abc import Sequence

import numpy as np

FIRST = 50  # fewer rounds say little about growth
MARKS = 12
LEAST_SAMPLES, MOST_SAMPLES = 64, 2048
SAMPLE_SHARE = 16  # sweeps over all weights may cost so many times what learning the rows does


def spread_marks(n_rows: int, number: int = MARKS) -> list[int]:
    """At most `number` rounds from 50 to the last, even in the logarithm, the last among them."""
    spread = np.geomspace(min(FIRST, n_rows), n_rows, number)
    return sorted({round(float(T)) for T in spread} | {n_rows})


def sample_size(n_rows: int, nonzeros: int, n_features: int) -> int:
    """How many rounds to sweep: all of few; else as many as cost a fixed multiple of the pass itself."""
    affordable = SAMPLE_SHARE * nonzeros // max(n_features, 1)
    return min(n_rows, max(LEAST_SAMPLES, min(affordable, MOST_SAMPLES)))


def sampled_rounds(marks: Sequence[int], number: int) -> list[int]:
    """About `number` rounds from 1 to the last mark, all marks among them; every round where there are no more.

    They lie at the squares of even steps, the denser the earlier: iterates move by 1/√t.
    """
    last = marks[-1]
    if number >= last:
        return list(range(1, last + 1))
    return sorted({1, *marks} | {max(1, round(last * (k / number) ** 2)) for k in range(1, number + 1)})
