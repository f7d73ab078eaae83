"""Turning text into word bytes between zeros."""

import numpy as np
from numba import njit


@njit(nogil=True, cache=True, error_model="numpy")
def find_non_ascii(data, starts, stops):
    """(rows,) bool: does document data[starts[d] : stops[d]] hold a byte above 127?"""
    found = np.zeros(starts.size, np.bool_)
    for d in range(starts.size):
        union = np.uint8(0)
        for byte in data[starts[d] : stops[d]]:
            union |= byte
        found[d] = union >= 128
    return found


@njit(nogil=True, cache=True, error_model="numpy")
def is_word(byte):
    """Is this ASCII byte of a word: a letter, a digit, an underscore?"""
    upper = np.uint8(byte - np.uint8(65)) < np.uint8(26)
    lower = np.uint8(byte - np.uint8(97)) < np.uint8(26)
    digit = np.uint8(byte - np.uint8(48)) < np.uint8(10)
    return upper | lower | digit | (byte == np.uint8(95))


@njit(nogil=True, cache=True, error_model="numpy")
def clean_ascii(source, lowercase, target):
    """Copy an ASCII document, separators as 0. Arithmetic in eight bits, so that it runs 64 bytes at a time."""
    difference = np.uint8(32 if lowercase else 0)
    for i in range(source.size):
        byte = source[i]
        upper = np.uint8(byte - np.uint8(65)) < np.uint8(26)
        target[i] = (byte | (difference if upper else np.uint8(0))) if is_word(byte) else np.uint8(0)


@njit(nogil=True, cache=True, error_model="numpy")
def clean_utf8(data, start, stop, to, wide, clean):
    """The same for valid UTF-8 whose letters have the case wanted; `wide[c]` says if code point c is of a word."""
    i = start
    shift = to - start
    while i < stop:
        byte = np.int64(data[i])
        if byte < 0x80:
            clean[i + shift] = data[i] if is_word(data[i]) else np.uint8(0)
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
def clean_documents(data, starts, stops, other, other_offsets, which, lowercase, wide):
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
            clean_ascii(data[starts[d] : stops[d]], lowercase, clean[bounds[d] : bounds[d + 1]])
        else:
            clean_utf8(other, other_offsets[k], other_offsets[k + 1], bounds[d], wide, clean)
        clean[bounds[d + 1] - 1] = 0
    return clean, bounds
