"""Lower-cases text and replaces every separator by zero bytes."""

import numpy as np

from sparseoco.core.compile_cache import register_jitable
from sparseoco.text.kernels import kernel
from sparseoco.text.kernels.characters import decode

ASCII, LATIN, OTHER = 0, 1, 2
IRREGULAR = 0xFFFF  # in a table of Latin letters: Python must lower-case the document
LATIN_END = 0x250
SLACK = 64  # zero bytes after the last document, so that kernels can read ahead


@register_jitable
def _is_latin(source, table):
    """Whether all characters are ASCII, regular letters below U+0250, or punctuation of U+2000 … U+206F."""
    i = 0
    while i < source.size:
        byte = np.int64(source[i])
        if byte < 0x80:
            i += 1
        elif byte < 0xCA:
            if table[(byte & 0x1F) << 6 | (source[i + 1] & 0x3F)] == IRREGULAR:
                return False
            i += 2
        elif byte == 0xE2 and (source[i + 1] == 0x80 or (source[i + 1] == 0x81 and source[i + 2] < 0xB0)):
            i += 3
        else:
            return False
    return True


@kernel
def classify(data, starts, stops, table):
    """(rows,) uint8: the kind of document data[starts[d] : stops[d]]: ASCII, LATIN (below U+0250), or OTHER."""
    kinds = np.zeros(starts.size, np.uint8)
    for d in range(starts.size):
        source = data[starts[d] : stops[d]]
        union = np.uint8(0)
        for byte in source:
            union |= byte
        if union >= 128:
            kinds[d] = LATIN if _is_latin(source, table) else OTHER
    return kinds


@register_jitable
def is_word(byte):
    """Whether this ASCII byte is a word character: a letter, a digit or an underscore."""
    upper = np.uint8(byte - np.uint8(65)) < np.uint8(26)
    lower = np.uint8(byte - np.uint8(97)) < np.uint8(26)
    digit = np.uint8(byte - np.uint8(48)) < np.uint8(10)
    return upper | lower | digit | (byte == np.uint8(95))


@register_jitable
def _copy_ascii(source, lowercase, target):
    """Copy an ASCII document, separators as 0. Eight-bit arithmetic vectorizes to 64 bytes at a time."""
    difference = np.uint8(32 if lowercase else 0)
    for i in range(source.size):
        byte = source[i]
        upper = np.uint8(byte - np.uint8(65)) < np.uint8(26)
        target[i] = (byte | (difference if upper else np.uint8(0))) if is_word(byte) else np.uint8(0)


@register_jitable
def _copy_latin(source, lowercase, table, target):
    """Copy a LATIN document: table[c] replaces the letter c < U+0250, 0 for a separator."""
    _copy_ascii(source, lowercase, target)  # bytes above 127 become separators
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
def _copy_utf8(data, start, stop, to, word_points, clean):
    """Copy valid UTF-8, already lower-cased if requested; `word_points[c]`: is code point c a word character?"""
    i = start
    shift = to - start
    while i < stop:
        if data[i] < 0x80:
            clean[i + shift] = data[i] if is_word(data[i]) else np.uint8(0)
            i += 1
            continue
        point, size = decode(data, i)
        word = word_points[point]
        for k in range(size):
            clean[i + k + shift] = data[i + k] if word else np.uint8(0)
        i += size


@kernel
def preprocess(data, starts, stops, kinds, latin, other, other_offsets, lowercase, word_points):
    """Preprocess documents; those of the kind OTHER come from `other`, in order, already lower-cased if requested.

    Returns (clean uint8 with SLACK zero bytes, bounds int64 (rows + 1,)), the input of `tokenize_words`.
    """
    rows = starts.size
    bounds = np.zeros(rows + 1, np.int64)
    k = 0
    for d in range(rows):
        size = stops[d] - starts[d]
        if kinds[d] == OTHER:
            size = other_offsets[k + 1] - other_offsets[k]
            k += 1
        bounds[d + 1] = bounds[d] + size + 1
    clean = np.empty(bounds[rows] + SLACK, np.uint8)
    clean[bounds[rows] :] = 0
    k = 0
    for d in range(rows):
        source, target = data[starts[d] : stops[d]], clean[bounds[d] : bounds[d + 1]]
        if kinds[d] == ASCII:
            _copy_ascii(source, lowercase, target)
        elif kinds[d] == LATIN:
            _copy_latin(source, lowercase, latin, target)
        else:
            _copy_utf8(other, other_offsets[k], other_offsets[k + 1], bounds[d], word_points, clean)
            k += 1
        clean[bounds[d + 1] - 1] = 0
    return clean, bounds
