"""Counts and norms of weights."""

import math

import numpy as np


def count_nonzeros(weights, bins, out):
    """Add to int64 ``out[bin, column]`` the nonzero entries of ``weights[feature, column]``; NaN counts as nonzero.

    Counts are 32-bit, one row per bin, which the compiler vectorises as one comparison and one subtraction.
    """
    counts = np.zeros(out.shape, np.uint32)
    for feature in range(weights.shape[0]):
        row = weights[feature]
        count = counts[bins[feature]]
        for column in range(out.shape[1]):
            count[column] += np.uint32(row[column] != 0)
    out += counts


def measure_absolute(weights, absolute):
    """`measure` for `absolute` only, with the same bits, for learners that sum ‖w‖₁ every K rounds."""
    for feature in range(weights.shape[0]):
        row = weights[feature]
        for column in range(absolute.shape[0]):
            absolute[column] += abs(float(row[column]))


def measure(weights, absolute, squares, norms):
    """Add to float64 `absolute` Σ_j |w_j| and to `squares` Σ_j w_j², (columns,), and to `norms` Σ_j ‖w_j‖₂, (groups,).

    A group has columns // groups adjacent columns. Each column's sum runs over the features of `weights` (features,
    columns) in order, independently of other columns.
    """
    columns, groups = absolute.shape[0], norms.shape[0]
    outputs = columns // groups
    for feature in range(weights.shape[0]):
        row = weights[feature]
        for column in range(columns):
            w = float(row[column])
            absolute[column] += abs(w)
            squares[column] += w * w
        for group in range(groups):
            square = 0.0
            for column in range(group * outputs, (group + 1) * outputs):
                w = float(row[column])
                square += w * w
            norms[group] += math.sqrt(square)
