"""Counting the weights that are not zero."""

import numpy as np


def tally(weights, bins, out):
    """Add to int64 ``out[bin, column]`` the nonzero entries of ``weights[feature, column]``; NaN counts as not zero.

    Counts run up in 32 bits, a row a bin, which the compiler turns into one comparison and one subtraction a vector.
    """
    counts = np.zeros(out.shape, np.uint32)
    for feature in range(weights.shape[0]):
        row = weights[feature]
        count = counts[bins[feature]]
        for column in range(out.shape[1]):
            count[column] += np.uint32(row[column] != 0)
    out += counts
