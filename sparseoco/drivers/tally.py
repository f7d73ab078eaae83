"""Counting the weights that are not zero."""

import numpy as np


def tally(weights: np.ndarray, bins: np.ndarray, out: np.ndarray) -> None:
    """Add to ``out[bin, column]`` the nonzero entries of ``weights[feature, column]``; NaN counts as not zero."""
    alive = weights != 0
    if len(out) == 1:
        out[0] += np.count_nonzero(alive, axis=0)
        return
    for column in range(out.shape[1]):
        out[:, column] += np.bincount(bins[alive[:, column]], minlength=len(out))
