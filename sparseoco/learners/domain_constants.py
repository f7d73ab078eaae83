"""The smallest constants valid on given rows for the theorems on bandits and online Newton steps.

P is the ball of diameter D around 0, r = D/2; a round's loss is f(x) = ℓ(⟨x, z⟩, y):

    squared    F = max ½(r‖z‖ + |y|)²          G = max (r‖z‖ + |y|)·‖z‖         α = min 1/(r‖z‖ + |y|)²
    logistic   F = max log(1 + exp(r‖z‖))      G = max ‖z‖/(1 + exp(−r‖z‖))     α = min exp(−r‖z‖)

F bounds |f| and G bounds ‖∇f‖ on P; α is the largest for which exp(−αf) is concave on P for every row
(f″ ≥ α·f′² along z).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.errors import InputError


class Constants(NamedTuple):
    """F, G and α of rows on a ball."""

    F: float
    G: float
    alpha: float


def ball_constants(features: NDArray[np.float64], labels: NDArray[np.float64], loss: str, D: float) -> Constants:
    """The constants of rows (n, d), labels (n,) float64 (unused by the logistic loss), for squared or logistic loss.

    Raises `InputError` for another loss, and if they overflow or every row is 0.
    """
    with np.errstate(over="ignore"):  # infinite values are rejected below
        size = np.linalg.norm(features, axis=1)
        reach = D / 2 * size  # the largest |margin| on P
        residual = reach + np.abs(labels)
        steepest, most = residual.max(), float((residual * size).max())
        square = float(steepest * steepest)
    if loss == "squared":
        found = Constants(0.5 * square, most, 1 / square if square else np.inf)
    elif loss == "logistic":
        steep = size / (1 + np.exp(-np.minimum(reach, 700.0)))
        found = Constants(float(np.logaddexp(0.0, reach.max())), float(steep.max()), float(np.exp(-reach.max())))
    else:
        raise InputError(
            f"loss={loss!r}: constants are known for squared and logistic only.", code="unsupported-combination"
        )
    if not (np.isfinite(found.F) and 0 < found.G < np.inf and found.alpha > 0):
        raise InputError(
            f"The losses are not bounded on a ball of diameter {D:g}: F = {found.F:g}, "
            f"G = {found.G:g}, α = {found.alpha:g}. Standardise the columns, or choose a smaller D.",
            code="unbounded-losses",
        )
    return found
