"""Counting the weights that are not zero, and adding up how large they are."""

import math

import numpy as np


def count_nonzeros(weights, bins, out):
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


def measure_absolute(weights, absolute):
    """`measure` of `absolute` alone, the same bits: what a learner that adds R̄(T) up needs every K rounds."""
    for feature in range(weights.shape[0]):
        row = weights[feature]
        for column in range(absolute.shape[0]):
            absolute[column] += abs(float(row[column]))


def measure(weights, absolute, squares, norms):
    """Add to float64 `absolute` Σ_j |w_j| and to `squares` Σ_j w_j², (columns,), and to `norms` Σ_j ‖w_j‖₂, (groups,).

    A group is so many adjacent columns that there are as many groups as `norms` has. Every column's sum runs over the
    features of `weights` (features, columns) in order, whatever other columns there are.
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
