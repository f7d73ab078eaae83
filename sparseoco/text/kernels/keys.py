"""Keys of n-grams: 64-bit numbers of two halves, the n-gram of all tokens but the last, and the last token."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseoco.text.kernels import kernel

HALF = np.uint64(32)
LOW = np.uint64(0xFFFFFFFF)


def pack_keys(high: NDArray[Any], low: NDArray[Any]) -> NDArray[np.uint64]:
    """high · 2^32 + low."""
    return (high.astype(np.uint64) << HALF) | low.astype(np.uint64, copy=False)


def unpack_keys(keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(high, low) of packed keys."""
    return (keys >> HALF).astype(np.int64), (keys & LOW).astype(np.int64)


@kernel
def locate(keys, known):
    """(keys.size,) int32: the position of each key in `known`, or −1; both strictly increase.

    A galloping search: O(m log n) for few keys, O(m + n) for many.
    """
    positions = np.empty(keys.size, np.int32)
    at = 0
    for i in range(keys.size):
        key = keys[i]
        step = 1
        low = at
        while at < known.size and known[at] < key:
            low = at + 1
            at += step
            step <<= 1
        if at > low:
            high = min(at, known.size)
            while low < high:
                middle = (low + high) >> 1
                if known[middle] < key:
                    low = middle + 1
                else:
                    high = middle
            at = low
        positions[i] = at if at < known.size and known[at] == key else -1
    return positions


@kernel
def map_keys(keys, first, high_map, low_map):
    """(high_map[high − first], low_map[low]) of each key, packed."""
    result = np.empty(keys.size, np.uint64)
    for i in range(keys.size):
        high = high_map[np.int64(keys[i] >> HALF) - first]
        result[i] = (np.uint64(high) << HALF) | np.uint64(low_map[np.int64(keys[i] & LOW)])
    return result


@kernel
def merge_pair(left, right):
    """(the sorted union of two arrays that strictly increase, the int32 positions of left in it, those of right).

    Without branches on keys: the position of a key is overwritten until the key is taken.
    """
    union = np.empty(left.size + right.size, np.uint64)
    left_positions, right_positions = np.empty(left.size, np.int32), np.empty(right.size, np.int32)
    i, j, size = 0, 0, 0
    while i < left.size and j < right.size:
        a, b = left[i], right[j]
        union[size] = min(a, b)
        left_positions[i] = size
        right_positions[j] = size
        i += a <= b
        j += b <= a
        size += 1
    for k in range(i, left.size):
        union[size] = left[k]
        left_positions[k] = size
        size += 1
    for k in range(j, right.size):
        union[size] = right[k]
        right_positions[k] = size
        size += 1
    return union[:size], left_positions, right_positions


@kernel
def compose(outer, inner):
    """outer[inner]."""
    result = np.empty(inner.size, outer.dtype)
    for i in range(inner.size):
        result[i] = outer[inner[i]]
    return result


@kernel
def add_at(totals, positions, values):
    """totals[positions] += values."""
    for i in range(positions.size):
        totals[positions[i]] += values[i]
