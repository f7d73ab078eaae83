"""How fast regret grows: the slope of its logarithm against the logarithm of the rounds."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

LEAST_POINTS = 3


class Slope(NamedTuple):
    """log Reg_T ≈ intercept + slope·log T over `points` marks from round `first` on."""

    slope: float
    error: float
    """Standard error of the slope by least squares. Sums along one stream are not independent: it is a lower guess."""
    intercept: float
    first: int
    points: int

    def at(self, T: float) -> float:
        """The fitted regret after T rounds."""
        return float(np.exp(self.intercept + self.slope * np.log(T)))


def fit_slope(rounds: Sequence[int], regret: Sequence[float], doubt: Sequence[float]) -> Slope | None:
    """Least squares over the later half of the marks, or None where fewer than three of them tell.

    While T is far below the number of features the best fixed weights fit any stream, and regret grows like T whatever
    the learner: so the early half is left out. A mark tells where regret is above its `doubt`, what the optimum's gap
    and the sampled penalty leave open.
    """
    T, values, open_ = (np.asarray(of, np.float64) for of in (rounds, regret, doubt))
    late = np.arange(T.size) >= T.size // 2
    if late.sum() < LEAST_POINTS:
        late[:] = True
    good = late & (values > open_) & (values > 0)
    if good.sum() < LEAST_POINTS:
        return None
    x, y = np.log(T[good]), np.log(values[good])
    centred = x - x.mean()
    square = float(centred @ centred)
    slope = float(centred @ y) / square
    intercept = float(y.mean() - slope * x.mean())
    rest = y - intercept - slope * x
    error = float(np.sqrt(rest @ rest / (x.size - 2) / square))
    return Slope(slope, error, intercept, int(T[good][0]), int(good.sum()))
