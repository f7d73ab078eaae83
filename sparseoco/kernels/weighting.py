"""Term weights of rows: a function of each count, times the feature's idf, divided by the row's norm."""

import math

import numpy as np

from sparseoco.core.compile_cache import compiled

COUNT, BINARY, LOG = range(3)

LOGS = np.concatenate([[0.0], 1.0 + np.log(np.arange(1.0, 4096.0))])
"""1 + ln c of small counts c; the entry of 0 is not read."""


def _kernel(function):
    return compiled(function, [], ("kernels/weighting.py",), restrict=True)


@_kernel
def weigh_rows(indptr, indices, counts, tf, logs, idf, normalized, out):
    """out_k = tf(c_k)·idf_j, divided by the ℓ2 norm of its row if `normalized`; computed in float64.

    `tf` is c (`COUNT`), 1 (`BINARY`) or 1 + ln c (`LOG`); `logs` is `LOGS`, `idf` is empty if there is none.
    Returns the first row with a count whose logarithm is not defined, or −1.
    """
    widest = 0
    for i in range(indptr.size - 1):
        widest = max(widest, indptr[i + 1] - indptr[i])
    row = np.empty(widest, np.float64)
    for i in range(indptr.size - 1):
        first = indptr[i] - indptr[0]
        size = indptr[i + 1] - indptr[i]
        if tf == COUNT:
            for k in range(size):
                row[k] = counts[first + k]
        elif tf == BINARY:
            for k in range(size):
                row[k] = 1.0
        else:
            for k in range(size):
                count = counts[first + k]
                if not count > 0:
                    return i
                if count < logs.size and count == np.int64(count):
                    row[k] = logs[np.int64(count)]
                else:
                    row[k] = 1.0 + math.log(count)
        if idf.size:
            for k in range(size):
                row[k] *= idf[indices[first + k]]
        scale = 1.0
        if normalized:
            squares = 0.0
            for k in range(size):
                squares += row[k] * row[k]
            if squares > 0:
                scale = 1.0 / math.sqrt(squares)
        for k in range(size):
            out[first + k] = row[k] * scale
    return -1
