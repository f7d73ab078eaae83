"""A strict scanner for simple JSON lines; all others are left to a full parser.

Parsed here: objects on one line whose strings are UTF-8 with simple escapes and whose values are strings, numbers and
literals. Left: nested values, `u` escapes, escapes in keys, repeated keys, requested fields that are neither strings
nor numbers, and anything that is not JSON.
"""

import numpy as np
from numba.extending import register_jitable

from sparseoco.text.kernels import kernel
from sparseoco.text.kernels.intrinsics import B3, HIGHS, ONES, ZERO, load8, store8, trailing_zeros

QUOTES, SLASHES, SPACES = ONES * np.uint64(0x22), ONES * np.uint64(0x5C), ONES * np.uint64(0x20)

PARSED, LEFT, BLANK = 0, 1, 2
MISSING, STRING, ESCAPED, INTEGER, NUMBER = 0, 1, 2, 3, 4


@register_jitable
def _skip_blanks(data, i):
    while data[i] == 32 or data[i] == 9 or data[i] == 13:
        i += 1
    return i


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
def _string(data, i):
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
        byte = data[i + 1]
        if not (
            byte == 0x22 or byte == 0x5C or byte == 0x2F or byte == 0x6E or byte == 0x74 or byte == 0x72
            or byte == 0x62 or byte == 0x66
        ):  # fmt: skip
            return -1, escaped
        escaped = True
        i += 2


@register_jitable
def _skip_digits(data, i):
    while 48 <= data[i] <= 57:
        i += 1
    return i


@register_jitable
def _number(data, i):
    """From the first byte of a number: (end, is an integer in canonical form), or (-1, ·)."""
    negative = data[i] == 45
    i += negative
    begin = i
    i = _skip_digits(data, i)
    if i == begin or (data[begin] == 48 and i > begin + 1):
        return -1, False
    integer = not (negative and data[begin] == 48)
    if data[i] == 46:
        integer = False
        begin = i + 1
        i = _skip_digits(data, begin)
        if i == begin:
            return -1, False
    if data[i] == 101 or data[i] == 69:
        integer = False
        i += 1
        if data[i] == 43 or data[i] == 45:
            i += 1
        begin = i
        i = _skip_digits(data, begin)
        if i == begin:
            return -1, False
    return i, integer


@register_jitable
def _literal(data, i):
    """End of true, false or null at i, or -1."""
    a, b, c, d = data[i], data[i + 1], data[i + 2], data[i + 3]
    if (a == 116 and b == 114 and c == 117 and d == 101) or (a == 110 and b == 117 and c == 108 and d == 108):
        return i + 4
    if a == 102 and b == 97 and c == 108 and d == 115 and data[i + 4] == 101:
        return i + 5
    return -1


@register_jitable
def _field_index(data, start, stop, names, name_offsets):
    for w in range(name_offsets.size - 1):
        size = name_offsets[w + 1] - name_offsets[w]
        if size == stop - start:
            same = True
            for k in range(size):
                same &= data[start + k] == names[name_offsets[w] + k]
            if same:
                return w
    return -1


@register_jitable
def _line(data, i, end, names, name_offsets, kinds, starts, stops):
    """Scan the object of one line; True if it was parsed. `end` is the position of its newline."""
    if data[i] != 0x7B:
        return False
    i = _skip_blanks(data, i + 1)
    while True:
        if data[i] != 0x22:
            return False
        begin = i + 1
        i, escaped = _string(data, begin)
        if i < 0 or escaped:
            return False
        field = _field_index(data, begin, i, names, name_offsets)
        i = _skip_blanks(data, i + 1)
        if data[i] != 0x3A:
            return False
        i = _skip_blanks(data, i + 1)
        byte = data[i]
        begin = i
        kind = MISSING
        if byte == 0x22:
            begin += 1
            i, escaped = _string(data, begin)
            if i < 0:
                return False
            stop = i
            i += 1
            kind = ESCAPED if escaped else STRING
        elif byte == 45 or 48 <= byte <= 57:
            i, integer = _number(data, i)
            stop = i
            kind = INTEGER if integer else NUMBER
        else:
            i = _literal(data, i)
            stop = i
        if i < 0:
            return False
        if field >= 0:
            if kind == MISSING or kinds[field] != MISSING:
                return False
            kinds[field] = kind
            starts[field] = begin
            stops[field] = stop
        i = _skip_blanks(data, i)
        if data[i] == 0x7D:
            return _skip_blanks(data, i + 1) == end
        if data[i] != 0x2C:
            return False
        i = _skip_blanks(data, i + 1)


@kernel
def scan_json_lines(data, lines, names, name_offsets):
    """Find the requested fields of each line.

    data   uint8, with a newline and eight bytes of slack after the last line; lines from `Chunk.lines`
    names  the requested keys, concatenated, and their offsets
    Returns status uint8 (lines,): PARSED, LEFT or BLANK; kinds uint8, starts, stops int64 (fields, lines) of values.
    A missing key has the kind MISSING. The span of a string is inside its quotes, with its escapes.
    """
    n = lines.size - 1
    fields = name_offsets.size - 1
    status = np.empty(n, np.uint8)
    kinds = np.zeros((fields, n), np.uint8)
    starts, stops = np.zeros((fields, n), np.int64), np.zeros((fields, n), np.int64)
    kind, start, stop = np.empty(fields, np.uint8), np.empty(fields, np.int64), np.empty(fields, np.int64)
    for k in range(n):
        end = lines[k + 1]
        if data[end - 1] == 10:
            end -= 1
        i = _skip_blanks(data, lines[k])
        if i >= end:
            status[k] = BLANK
            continue
        kind[:] = MISSING
        if _line(data, i, end, names, name_offsets, kind, start, stop):
            status[k] = PARSED
            for w in range(fields):
                if kind[w] != MISSING:
                    kinds[w, k], starts[w, k], stops[w, k] = kind[w], start[w], stop[w]
        else:
            status[k] = LEFT
    return status, kinds, starts, stops


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


@kernel
def unescape(data, kinds, starts, stops):
    """Resolve the simple escapes of strings of the kind ESCAPED in place, which shortens them (`stops` changes)."""
    for k in range(kinds.size):
        if kinds[k] != ESCAPED:
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
            if data[i] == 0x5C:
                data[to] = _resolve(data[i + 1])
                i += 2
            else:
                data[to] = data[i]
                i += 1
            to += 1
        stops[k] = to


@kernel
def gather_spans(data, starts, stops):
    """(bytes, int32 offsets) of the concatenated spans: the two buffers of an Arrow string array."""
    offsets = np.zeros(starts.size + 1, np.int32)
    for k in range(starts.size):
        offsets[k + 1] = offsets[k] + (stops[k] - starts[k])
    gathered = np.empty(offsets[starts.size], np.uint8)
    for k in range(starts.size):
        to = offsets[k]
        for i in range(starts[k], stops[k]):
            gathered[to] = data[i]
            to += 1
    return gathered, offsets
