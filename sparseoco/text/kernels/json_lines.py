"""A strict scanner for simple JSON lines; all others are left to a full parser.

Parsed here: objects on one line whose strings are UTF-8. Left: lone surrogates, escapes in keys of the object, repeated
requested keys, values nested more than 64 deep, and anything that is not JSON.
"""

import numpy as np

from sparseoco.core.compile_cache import register_jitable
from sparseoco.text.kernels import kernel
from sparseoco.text.kernels.intrinsics import ZERO
from sparseoco.text.kernels.json_strings import skip_string

ONE = np.uint64(1)

PARSED, LEFT, BLANK = 0, 1, 2
MISSING, STRING, ESCAPED, INTEGER, NUMBER, BOOLEAN, NESTED = 0, 1, 2, 3, 4, 5, 6
MAX_DEPTH = 64  # bits of a word


@register_jitable
def _skip_blanks(data, i):
    while data[i] == 32 or data[i] == 9 or data[i] == 13:
        i += 1
    return i


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
def _skip_scalar(data, i):
    """From the first byte of a value: (end, kind), or (-1, ·). Literals but true and false are MISSING."""
    byte = data[i]
    if byte == 0x22:
        i, escaped = skip_string(data, i + 1)
        return (i if i < 0 else i + 1), (ESCAPED if escaped else STRING)
    if byte == 45 or 48 <= byte <= 57:
        i, integer = _number(data, i)
        return i, (INTEGER if integer else NUMBER)
    return _literal(data, i), (MISSING if byte == 110 else BOOLEAN)


@register_jitable
def _skip_key(data, i):
    """From a key to the first byte of its value, or -1."""
    if data[i] != 0x22:
        return -1
    i, _ = skip_string(data, i + 1)
    if i < 0:
        return -1
    i = _skip_blanks(data, i + 1)
    return _skip_blanks(data, i + 1) if data[i] == 0x3A else -1


@register_jitable
def _skip_nested(data, i):
    """End of the list or object at i, or -1."""
    objects = ZERO  # bit k: whether what is open k levels above is an object
    depth = 0
    while True:
        opens_object = data[i] == 0x7B
        if opens_object or data[i] == 0x5B:
            if depth == MAX_DEPTH:
                return -1
            depth += 1
            objects = objects << ONE | (ONE if opens_object else ZERO)
            i = _skip_blanks(data, i + 1)
            if data[i] != (0x7D if opens_object else 0x5D):
                if opens_object:
                    i = _skip_key(data, i)
                    if i < 0:
                        return -1
                continue
        else:
            i, _ = _skip_scalar(data, i)
            if i < 0:
                return -1
            i = _skip_blanks(data, i)
        while data[i] == (0x7D if objects & ONE else 0x5D):
            depth -= 1
            objects >>= ONE
            if depth == 0:
                return i + 1
            i = _skip_blanks(data, i + 1)
        if data[i] != 0x2C:
            return -1
        i = _skip_blanks(data, i + 1)
        if objects & ONE:
            i = _skip_key(data, i)
            if i < 0:
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
        i, escaped = skip_string(data, begin)
        if i < 0 or escaped:
            return False
        field = _field_index(data, begin, i, names, name_offsets)
        i = _skip_blanks(data, i + 1)
        if data[i] != 0x3A:
            return False
        i = _skip_blanks(data, i + 1)
        begin = i
        if data[i] == 0x7B or data[i] == 0x5B:
            i = _skip_nested(data, i)
            kind = NESTED
        else:
            i, kind = _skip_scalar(data, i)
        if i < 0:
            return False
        if field >= 0:
            if kinds[field] != MISSING:
                return False
            quote = kind in (STRING, ESCAPED)
            kinds[field] = kind
            starts[field] = begin + quote
            stops[field] = i - quote
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
    A missing key and null have the kind MISSING. The span of a string is inside its quotes, with its escapes.
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
