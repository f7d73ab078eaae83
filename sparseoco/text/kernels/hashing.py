"""XXH64 (Yann Collet, xxHash specification 0.1.1, section "XXH64 algorithm"), for hashed features and equal ids."""

import numpy as np

from sparseoco.core.compile_cache import register_jitable
from sparseoco.text.kernels import kernel
from sparseoco.text.kernels.intrinsics import load8
from sparseoco.text.kernels.keys import HALF, LOW

P1, P2, P3 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9)
BYTE = np.uint64(0xFF)
P4, P5 = np.uint64(0x85EBCA77C2B2AE63), np.uint64(0x27D4EB2F165667C5)


@register_jitable
def _left(word, bits):
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


@register_jitable
def _round(lane, word):
    return _left(lane + word * P2, 31) * P1


@register_jitable
def xxh64(data, start, stop, seed):
    """64-bit hash of data[start:stop]; the array has eight bytes of slack after `stop`."""
    at = start
    if stop - start >= 32:
        a, b, c, d = seed + P1 + P2, seed + P2, seed, seed - P1
        while at + 32 <= stop:
            a = _round(a, load8(data, at))
            b = _round(b, load8(data, at + 8))
            c = _round(c, load8(data, at + 16))
            d = _round(d, load8(data, at + 24))
            at += 32
        h = _left(a, 1) + _left(b, 7) + _left(c, 12) + _left(d, 18)
        h = (h ^ _round(np.uint64(0), a)) * P1 + P4
        h = (h ^ _round(np.uint64(0), b)) * P1 + P4
        h = (h ^ _round(np.uint64(0), c)) * P1 + P4
        h = (h ^ _round(np.uint64(0), d)) * P1 + P4
    else:
        h = seed + P5
    h += np.uint64(stop - start)
    while at + 8 <= stop:
        h = _left(h ^ _round(np.uint64(0), load8(data, at)), 27) * P1 + P4
        at += 8
    # Without branches on what is left: they could not be predicted.
    word, left = load8(data, at), stop - at
    step = _left(h ^ ((word & LOW) * P1), 23) * P2 + P3
    h = step if left >= 4 else h
    word = word >> HALF if left >= 4 else word
    for k in range(3):
        step = _left(h ^ ((word & BYTE) * P5), 11) * P1
        h = step if (left & 3) > k else h
        word >>= np.uint64(8)
    h = (h ^ (h >> np.uint64(33))) * P2
    h = (h ^ (h >> np.uint64(29))) * P3
    return h ^ (h >> np.uint64(32))


@kernel
def hash_terms(data, offsets, seed, bits):
    """(terms,) int64: the low `bits` bits of XXH64 of each term; data has eight bytes of slack."""
    result = np.empty(offsets.size - 1, np.int64)
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    for i in range(result.size):
        result[i] = np.int64(xxh64(data, offsets[i], offsets[i + 1], seed) & mask)
    return result
