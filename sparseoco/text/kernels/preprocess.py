"""Turning text into word bytes between zeros."""

import numpy as np
from numba.extending import register_jitable

from sparseoco.text.kernels import kernel

ASCII, WESTERN, WIDE = 0, 1, 2
HARD = 0xFFFF  # in a table of western letters: leave the document to Python
WESTERN_END = 0x250


@register_jitable
def _is_western(source, table):
    """Are all characters ASCII, below U+0250 and easy by the table, or punctuation of U+2000 … U+206F?"""
    i = 0
    while i < source.size:
        byte = np.int64(source[i])
        if byte < 0x80:
            i += 1
        elif byte < 0xCA:
            if table[(byte & 0x1F) << 6 | (source[i + 1] & 0x3F)] == HARD:
                return False
            i += 2
        elif byte == 0xE2 and (source[i + 1] == 0x80 or (source[i + 1] == 0x81 and source[i + 2] < 0xB0)):
            i += 3
        else:
            return False
    return True


@kernel
def classify(data, starts, stops, table):
    """(rows,) uint8: is document data[starts[d] : stops[d]] ASCII, WESTERN (see `clean_western`), or WIDE?"""
    kinds = np.zeros(starts.size, np.uint8)
    for d in range(starts.size):
        source = data[starts[d] : stops[d]]
        union = np.uint8(0)
        for byte in source:
            union |= byte
        if union >= 128:
            kinds[d] = WESTERN if _is_western(source, table) else WIDE
    return kinds


@register_jitable
def is_word(byte):
    """Is this ASCII byte of a word: a letter, a digit, an underscore?"""
    upper = np.uint8(byte - np.uint8(65)) < np.uint8(26)
    lower = np.uint8(byte - np.uint8(97)) < np.uint8(26)
    digit = np.uint8(byte - np.uint8(48)) < np.uint8(10)
    return upper | lower | digit | (byte == np.uint8(95))


@register_jitable
def clean_ascii(source, lowercase, target):
    """Copy an ASCII document, separators as 0. Arithmetic in eight bits, so that it runs 64 bytes at a time."""
    difference = np.uint8(32 if lowercase else 0)
    for i in range(source.size):
        byte = source[i]
        upper = np.uint8(byte - np.uint8(65)) < np.uint8(26)
        target[i] = (byte | (difference if upper else np.uint8(0))) if is_word(byte) else np.uint8(0)


@register_jitable
def clean_western(source, lowercase, table, target):
    """The same for a document that is WESTERN: table[c] is what the letter c < U+0250 becomes, 0 for a separator."""
    clean_ascii(source, lowercase, target)  # bytes above 127 become separators
    i = 0
    while i < source.size:
        byte = np.int64(source[i])
        if byte < 0x80:
            i += 1
        elif byte < 0xCA:
            letter = np.int64(table[(byte & 0x1F) << 6 | (source[i + 1] & 0x3F)])
            if letter:
                target[i], target[i + 1] = 0xC0 | (letter >> 6), 0x80 | (letter & 0x3F)
            i += 2
        else:
            i += 3


@register_jitable
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


@kernel
def clean_documents(data, starts, stops, kinds, western, other, other_offsets, lowercase, wide):
    """Clean a run of documents; the WIDE ones, in order, are taken from `other`, their letters in the case wanted.

    Returns (clean uint8 with 16 zero bytes of slack, bounds int64 (rows + 1,)): the form `count_grams` reads.
    """
    rows = starts.size
    bounds = np.zeros(rows + 1, np.int64)
    k = 0
    for d in range(rows):
        size = stops[d] - starts[d]
        if kinds[d] == WIDE:
            size = other_offsets[k + 1] - other_offsets[k]
            k += 1
        bounds[d + 1] = bounds[d] + size + 1
    clean = np.empty(bounds[rows] + 16, np.uint8)
    clean[bounds[rows] :] = 0
    k = 0
    for d in range(rows):
        source, target = data[starts[d] : stops[d]], clean[bounds[d] : bounds[d + 1]]
        if kinds[d] == ASCII:
            clean_ascii(source, lowercase, target)
        elif kinds[d] == WESTERN:
            clean_western(source, lowercase, western, target)
        else:
            clean_utf8(other, other_offsets[k], other_offsets[k + 1], bounds[d], wide, clean)
            k += 1
        clean[bounds[d + 1] - 1] = 0
    return clean, bounds
