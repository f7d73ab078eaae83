"""Strings of JSON: their ends, and their escapes."""

import numpy as np

from sparseoco.core.compile_cache import register_jitable
from sparseoco.text.kernels import kernel
from sparseoco.text.kernels.intrinsics import B3, HIGHS, ONES, ZERO, load8, store8, trailing_zeros

QUOTES, SLASHES, SPACES = ONES * np.uint64(0x22), ONES * np.uint64(0x5C), ONES * np.uint64(0x20)


@register_jitable
def _in_range(data, i, low, high):
    return low <= data[i] <= high


@register_jitable
def _skip_utf8(data, i):
    """End of the run of bytes above 127 at i, or -1 if it is not well-formed UTF-8 (Unicode 16.0, table 3-7)."""
    while data[i] >= 0x80:
        byte = data[i]
        if 0xC2 <= byte <= 0xDF:
            size = 2
            good = True
        elif 0xE0 <= byte <= 0xEF:
            size = 3
            good = _in_range(data, i + 1, 0xA0 if byte == 0xE0 else 0x80, 0x9F if byte == 0xED else 0xBF)
        elif 0xF0 <= byte <= 0xF4:
            size = 4
            good = _in_range(data, i + 1, 0x90 if byte == 0xF0 else 0x80, 0x8F if byte == 0xF4 else 0xBF)
        else:
            return -1
        for k in range(1, size):
            if not _in_range(data, i + k, 0x80, 0xBF):
                return -1
        if not good:
            return -1
        i += size
    return i


@register_jitable
def skip_string(data, i):
    """From the byte after a quote: (position of the closing quote, has escapes), or (-1, ·) for the full parser."""
    escaped = False
    while True:
        word = load8(data, i)
        quote = word ^ QUOTES
        slash = word ^ SLASHES
        hit = ((quote - ONES) & ~quote) | ((slash - ONES) & ~slash) | ((word - SPACES) & ~word) | word
        hit &= HIGHS
        if hit == ZERO:
            i += 8
            continue
        i += np.int64(trailing_zeros(hit) >> B3)
        byte = data[i]
        if byte == 0x22:
            return i, escaped
        if byte >= 0x80:
            i = _skip_utf8(data, i)
            if i < 0:
                return -1, escaped
            continue
        if byte != 0x5C:
            return -1, escaped
        i = _skip_escape(data, i)
        if i < 0:
            return -1, escaped
        escaped = True


@register_jitable
def _skip_escape(data, i):
    """End of the escape at i, with the second one of a surrogate pair, or -1."""
    byte = data[i + 1]
    if (
        byte == 0x22 or byte == 0x5C or byte == 0x2F or byte == 0x6E or byte == 0x74 or byte == 0x72
        or byte == 0x62 or byte == 0x66
    ):  # fmt: skip
        return i + 2
    if byte != 0x75:
        return -1
    unit = _code_unit(data, i + 2)
    if unit < 0 or 0xDC00 <= unit <= 0xDFFF:
        return -1
    i += 6
    if unit < 0xD800 or unit > 0xDFFF:
        return i
    if data[i] != 0x5C or data[i + 1] != 0x75 or not 0xDC00 <= _code_unit(data, i + 2) <= 0xDFFF:
        return -1
    return i + 6


@register_jitable
def _code_unit(data, i):
    """The number of the four hexadecimal digits at i, or -1."""
    unit = 0
    for k in range(4):
        byte = data[i + k]
        if 48 <= byte <= 57:
            digit = byte - 48
        elif 65 <= byte <= 70 or 97 <= byte <= 102:
            digit = (byte | 32) - 87
        else:
            return -1
        unit = unit * 16 + digit
    return unit


@register_jitable
def _resolve(byte):
    """The character of a simple escape, by the byte after its backslash."""
    if byte == 0x6E:
        return np.uint8(10)
    if byte == 0x74:
        return np.uint8(9)
    if byte == 0x72:
        return np.uint8(13)
    if byte == 0x62:
        return np.uint8(8)
    return np.uint8(12) if byte == 0x66 else byte


@register_jitable
def _store_utf8(data, to, code):
    """Write the UTF-8 of a code point; returns its end."""
    if code < 0x80:
        data[to] = code
        return to + 1
    if code < 0x800:
        data[to] = 0xC0 | code >> 6
    else:
        if code < 0x10000:
            data[to] = 0xE0 | code >> 12
        else:
            data[to] = 0xF0 | code >> 18
            to += 1
            data[to] = 0x80 | code >> 12 & 0x3F
        to += 1
        data[to] = 0x80 | code >> 6 & 0x3F
    data[to + 1] = 0x80 | code & 0x3F
    return to + 2


@kernel
def unescape(data, escaped, starts, stops):
    """Resolve the escapes of the strings that are `escaped` in place, which shortens them (`stops` changes)."""
    for k in range(starts.size):
        if not escaped[k]:
            continue
        to = i = starts[k]
        stop = stops[k]
        while i < stop:
            if i + 8 <= stop:
                word = load8(data, i)
                slash = word ^ SLASHES
                if (slash - ONES) & ~slash & HIGHS == ZERO:
                    store8(data, to, word)
                    i += 8
                    to += 8
                    continue
            if data[i] != 0x5C:
                data[to] = data[i]
                i += 1
                to += 1
            elif data[i + 1] != 0x75:
                data[to] = _resolve(data[i + 1])
                i += 2
                to += 1
            else:
                code = _code_unit(data, i + 2)
                i += 6
                if 0xD800 <= code <= 0xDBFF:
                    code = 0x10000 + ((code - 0xD800) << 10) + _code_unit(data, i + 2) - 0xDC00
                    i += 6
                to = _store_utf8(data, to, code)
        stops[k] = to
