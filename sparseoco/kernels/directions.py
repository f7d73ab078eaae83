"""Directions of bandits: unit vectors drawn uniformly, each a pure function of repetition, round and output."""

import math

import numpy as np

from sparseoco.core.compile_cache import register_jitable
from sparseoco.kernels.synthetic_text import log, share
from sparseoco.learners.domains import norm_of
from sparseoco.learners.numerics import mix

DIRECTIONS = np.uint64(4)  # distinct from the hash streams of row order, folds and sampling
OTHER = np.uint64(0x9E3779B97F4A7C15)


@register_jitable
def direction(repetition, t, output, flat, v):
    """Write the direction of round t into `v`: uniform on the unit sphere or, if `flat`, on its points with Σ v_i = 0.

    Normalised Gaussian numbers, in pairs by Marsaglia's polar method (1964) from the hashes of a counter.
    """
    stream = mix(mix(mix(mix(np.uint64(repetition)) ^ DIRECTIONS) ^ np.uint64(t)) ^ np.uint64(output))
    n = v.shape[0]
    i = 0
    while i < n:
        a = 2.0 * share(mix(stream)) - 1.0
        b = 2.0 * share(mix(stream ^ OTHER)) - 1.0
        stream = mix(stream)
        square = a * a + b * b
        if 0.0 < square < 1.0:
            scale = math.sqrt(-2.0 * log(square) / square)
            v[i] = a * scale
            if i + 1 < n:
                v[i + 1] = b * scale
            i += 2
    if flat:
        mean = 0.0
        for i in range(n):
            mean += v[i] / n
        for i in range(n):
            v[i] -= mean
    norm = norm_of(v)
    for i in range(n):
        v[i] /= norm
