"""Turning text into word bytes between zeros."""

import numpy as np
from numba import njit


@njit(nogil=True, cache=True, error_model="numpy")
def find_non_ascii(data, starts, stops):
    """(rows,) bool: does document data[starts[d] : stops[d]] hold a byte above 127?"""
    found = np.zeros(starts.size, np.bool_)
    for d in range(starts.size):
        union = np.uint8(0)
        for i in range(starts[d], stops[d]):
            union |= data[i]
        found[d] = union >= 128
    return found


@njit(nogil=True, cache=True, error_model="numpy")
def clean_ascii(data, start, stop, to, table, clean):
    """Map the bytes of one ASCII document through a 256-byte table (a separator gives 0) into clean[to:]."""
    for i in range(stop - start):
        clean[to + i] = table[data[start + i]]


@njit(nogil=True, cache=True, error_model="numpy")
def clean_utf8(data, start, stop, to, table, wide, clean):
    """The same for valid UTF-8 whose letters have the case wanted; `wide[c]` says if code point c is of a word."""
    i = start
    shift = to - start
    while i < stop:
        byte = np.int64(data[i])
        if byte < 0x80:
            clean[i + shift] = data[i] if table[byte] else np.uint8(0)
            i += 1
            continue
        if byte < 0xE0:
            size, point = 2, byte & 0x1F
        elif byte < 0xF0:
            size, point = 3, byte & 0x0F
        else:
            size, point = 4, byte & 0x07
        for k in range(1, size):
            point = (point << 6) | (np.int64(data[i + k]) & 0x3F)
        word = wide[point]
        for k in range(size):
            clean[i + k + shift] = data[i + k] if word else np.uint8(0)
        i += size


@njit(nogil=True, cache=True, error_model="numpy")
def clean_documents(data, starts, stops, other, other_offsets, which, table, wide):
    """Clean a run of documents; document d is other[other_offsets[k] : …] if which[d] = k ≥ 0, else ASCII in data.

    Returns (clean uint8 with 16 zero bytes of slack, bounds int64 (rows + 1,)): the form `count_grams` reads.
    """
    rows = starts.size
    bounds = np.zeros(rows + 1, np.int64)
    for d in range(rows):
        k = which[d]
        size = stops[d] - starts[d] if k < 0 else other_offsets[k + 1] - other_offsets[k]
        bounds[d + 1] = bounds[d] + size + 1
    clean = np.empty(bounds[rows] + 16, np.uint8)
    clean[bounds[rows] :] = 0
    for d in range(rows):
        k = which[d]
        if k < 0:
            clean_ascii(data, starts[d], stops[d], bounds[d], table, clean)
        else:
            clean_utf8(other, other_offsets[k], other_offsets[k + 1], bounds[d], table, wide, clean)
        clean[bounds[d + 1] - 1] = 0
    return clean, bounds
